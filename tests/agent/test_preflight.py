"""Whether a host is fit to train: the checks, the pairs, and the process that does both."""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import select
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.agent import preflight
from holdfast.agent.launch import LOOPBACK, free_ports
from holdfast.agent.preflight import PAIR_BYTES, TOKEN_BYTES, PreflightJob, UnfitError
from holdfast.agent.preflight_runner import HostFacts, PreflightRunner
from holdfast.core.hosts.preflight import Neighbour, PreflightAnswer, PreflightOrder
from holdfast.link import strangers

TOKEN = b"t" * TOKEN_BYTES
Serve = Callable[[socket.socket], None]


def served(serve: Serve) -> tuple[str, int]:
    """Where one connection is served so, in a thread."""
    server = socket.create_server((LOOPBACK, 0))

    def one() -> None:
        with server, server.accept()[0] as connection:
            serve(connection)

    threading.Thread(target=one, daemon=True).start()
    return server.getsockname()


def test_a_neighbour_that_knows_the_token_sends_back_what_it_got() -> None:
    address, port = served(lambda one: preflight._answer(one, TOKEN))
    assert preflight.exchange(3, address, port, TOKEN).startswith("host 3 at ")


def changes_a_byte(connection: socket.socket) -> None:
    connection.sendall(preflight._receive(connection, TOKEN_BYTES))
    data = bytearray(preflight._receive(connection, PAIR_BYTES))
    data[PAIR_BYTES // 2] ^= 1
    connection.sendall(data)


def says_nothing_more(connection: socket.socket) -> None:
    preflight._receive(connection, TOKEN_BYTES)


@pytest.mark.parametrize(
    ("serve", "words"),
    [
        (changes_a_byte, "does not come back as it was"),
        (says_nothing_more, "breaks the connection off"),
        (lambda one: one.sendall(b"x" * TOKEN_BYTES), "does not know the run's secret"),
        (lambda one: preflight._answer(one, b"another" * 4), "breaks the connection off"),
    ],
)
def test_what_is_wrong_with_a_pair_is_one_sentence(serve: Serve, words: str) -> None:
    with pytest.raises(UnfitError, match=words):
        preflight.exchange(3, *served(serve), TOKEN)


def test_a_network_that_hardly_carries_anything_is_no_network(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(preflight, "LEAST_BYTES_PER_S", 1e15)
    monkeypatch.setattr(preflight, "SLOW_START_TRIPS", 0)
    address, port = served(lambda one: preflight._answer(one, TOKEN))
    with pytest.raises(UnfitError, match=r"its network to host 3 \(127.0.0.1\) carries"):
        preflight.exchange(3, address, port, TOKEN)


def test_a_token_that_comes_byte_by_byte_has_little_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers, "HANDSHAKE_S", 0.0)
    monkeypatch.setattr(preflight, "PAIR_LIMIT_S", 60.0)
    server = socket.create_server((LOOPBACK, 0))
    threading.Thread(target=preflight.answer_all, args=(server, TOKEN), daemon=True).start()
    with socket.create_connection(server.getsockname(), timeout=20) as slow:
        slow.sendall(TOKEN[:-1])
        with contextlib.suppress(ConnectionError):
            assert slow.recv(1) == b""


def test_a_host_without_descriptors_does_not_spin(monkeypatch: pytest.MonkeyPatch) -> None:
    class FullHost:
        asked = 0

        def settimeout(self, _: float | None) -> None:
            pass

        def accept(self) -> None:
            self.asked += 1
            assert self.asked == 1, "it asks again at once"
            raise OSError(errno.EMFILE, "Too many open files")

    def paused(_: float) -> None:
        raise StopIteration

    monkeypatch.setattr("time.sleep", paused)
    with pytest.raises(StopIteration):
        preflight.answer_all(FullHost(), TOKEN)  # type: ignore[arg-type]


@pytest.mark.parametrize("has_numpy", [True, False])
def test_a_processor_that_multiplies_rightly_passes(
    has_numpy: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_numpy:
        monkeypatch.setitem(sys.modules, "numpy", None)
    assert preflight.multiply() == f"matmul with {'numpy' if has_numpy else 'Python'}"


def test_a_product_that_is_wrong_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    import numpy as np

    right = np.outer

    def outer(u: list[float], v: list[float]) -> object:
        found = right(u, v)
        found[7, 9] += 1
        return found

    monkeypatch.setattr(np, "outer", outer)
    with pytest.raises(UnfitError, match="multiplies matrices wrongly"):
        preflight.multiply()


def job(folder: Path, **fields: object) -> PreflightJob:
    script = folder / "train.py"
    script.touch()
    places = {"scratch": str(folder), "store": str(folder), "script": str(script)}
    return PreflightJob(True, TOKEN.hex(), (LOOPBACK, 0), **(places | fields))


def test_a_host_that_is_well_has_nothing_to_say(tmp_path: Path) -> None:
    assert preflight.try_out(job(tmp_path)) == ("", "memory and disks, matmul with numpy")
    assert [path.name for path in tmp_path.iterdir()] == ["train.py"]


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"scratch": "/nowhere"}, "its scratch folder cannot be written: No such file"),
        ({"store": "/nowhere"}, "the run store cannot be written: No such file"),
        ({"script": "/nowhere/train.py"}, "the script cannot be read: No such file"),
    ],
)
def test_what_is_missing_is_named(
    tmp_path: Path, fields: dict[str, str], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "STORE_LIMIT_S", 0.0)
    failure, _ = preflight.try_out(job(tmp_path, **fields))
    assert failure.startswith(words)


def test_a_store_that_comes_back_is_no_hosts_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "away"
    monkeypatch.setattr(preflight.time, "sleep", lambda _: store.mkdir())
    assert preflight.try_out(job(tmp_path, store=str(store)))[0] == ""


def test_a_host_without_memory_is_not_fit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(preflight, "LEAST_MEMORY_BYTES", 1 << 60)
    assert "MiB of memory left" in preflight.try_out(job(tmp_path))[0]


def test_a_clock_that_was_never_set_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(preflight, "EARLIEST_UNIX_S", 1 << 40)
    assert preflight.try_out(job(tmp_path))[0].startswith("its clock says 2")


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (["python", "train.py", "x.py"], "/w/train.py"),
        (["python", "-u", "/a/train.py"], "/a/train.py"),
        (["python", "-m", "train"], ""),
        (["./train", "config.py"], "/w/config.py"),
        (["./train"], ""),
    ],
)
def test_the_script_is_known_by_its_name(argv: list[str], script: str) -> None:
    assert HostFacts("", "", argv, "/w").script == script


class Two:
    """Host 0, which answers, and host 1, which is tried out."""

    def __init__(self, folder: Path, limit_ns: int = 60_000_000_000) -> None:
        self.answers: queue.Queue[PreflightAnswer] = queue.Queue()
        argv = [sys.executable, str(folder / "train.py")]
        facts = HostFacts(str(folder), str(folder), argv, str(folder))
        self.other = PreflightRunner(facts, b"secret", self.answers.put)
        self.tried = PreflightRunner(facts, b"secret", self.answers.put, limit_ns)

    def close(self) -> None:
        for runner in (self.other, self.tried):
            runner.close()


@pytest.mark.contract("preflight: a process that tries a host out, and its neighbour's")
def test_a_host_is_tried_out_with_its_neighbour(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    two = Two(tmp_path)
    answers_at, own_port = free_ports(2)
    order = PreflightOrder(1, "nonce", True, (Neighbour(0, LOOPBACK, answers_at),))
    try:
        two.other.obey(PreflightOrder(1, "nonce", False), LOOPBACK, answers_at)
        two.tried.obey(order, LOOPBACK, own_port)
        answer = two.answers.get(timeout=120)
        assert (answer.number, answer.failure) == (1, "")
        assert answer.words.startswith("memory and disks, matmul with numpy, host 0 at ")
        ends = [os.pidfd_open(runner.pid) for runner in (two.other, two.tried)]
    finally:
        two.close()
    for end in ends:
        assert select.select([end], [], [], 120)[0]  # it has ended
        os.close(end)
    assert two.answers.empty()


@pytest.mark.real
def test_a_preflight_that_hangs_has_failed(tmp_path: Path) -> None:
    """The script lies where nothing answers."""
    os.mkfifo(tmp_path / "train.py")
    two = Two(tmp_path, limit_ns=1_500_000_000)
    try:
        two.tried.obey(PreflightOrder(4, "nonce", True), LOOPBACK, free_ports(1)[0])
        answer = two.answers.get(timeout=120)
    finally:
        two.close()
    assert (answer.number, answer.failure) == (4, "it did not end within 1.5 s")


@pytest.mark.real
def test_a_neighbour_that_does_not_listen_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "train.py").touch()
    two = Two(tmp_path)
    nobody, own_port = free_ports(2)
    order = PreflightOrder(1, "nonce", True, (Neighbour(0, LOOPBACK, nobody),))
    try:
        two.tried.obey(order, LOOPBACK, own_port)
        answer = two.answers.get(timeout=120)
    finally:
        two.close()
    assert answer.failure == ""
    assert answer.words.endswith("host 0 not tried: nothing listens there")
