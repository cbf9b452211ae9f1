"""Ports for an attempt: free, and not to be had by whoever connects to anything meanwhile."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from holdfast.agent import launch
from holdfast.agent.launch import LOOPBACK, LOWEST_PORT, free_ports


def test_they_are_none_that_the_kernel_gives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "ip_local_port_range"
    given.write_text("32768\t60999\n")
    monkeypatch.setattr(launch, "PORT_RANGE", given)
    ports = free_ports(50)
    assert len(set(ports)) == 50
    assert LOWEST_PORT <= min(ports) <= max(ports) < 32768


@pytest.mark.parametrize("text", ["1024\t65535\n", "10500 65535", "", "rubbish"])
def test_where_it_gives_all_of_them_it_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    given = tmp_path / "ip_local_port_range"
    given.write_text(text)
    for place in (given, tmp_path / "none"):
        monkeypatch.setattr(launch, "PORT_RANGE", place)
        assert len(set(free_ports(3))) == 3


def test_one_that_somebody_has_is_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = tmp_path / "ip_local_port_range"
    given.write_text("32768 60999")
    monkeypatch.setattr(launch, "PORT_RANGE", given)
    with socket.create_server((LOOPBACK, 0)) as taken:
        port = taken.getsockname()[1]
        draws = iter([port, port, 0])
        monkeypatch.setattr(launch, "LOWEST_PORT", 0)
        monkeypatch.setattr(launch.secrets, "randbelow", lambda _choice: next(draws))
        assert free_ports(1) != [port]
        assert next(draws, None) is None
