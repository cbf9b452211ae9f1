"""The exporters' process as the supervisor sees it: started again, and never waited for long."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.agent import exporter as exporter_module
from holdfast.agent.exporter import ExportProcess

pytestmark = pytest.mark.real


def make(store: Path, said: list[str], *words: str) -> ExportProcess:
    environment = {**os.environ, "HOLDFAST_MIRROR": str(store.parent / "mirror")}
    arguments = [*(words or ("--prometheus", "--port", "0")), "--store", str(store), "--until-eof"]
    return ExportProcess(arguments, environment, said.append)


@pytest.mark.contract("port: its process ends with the run")
def test_it_ends_with_its_lifeline_and_one_that_does_not_is_ended(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exporter_module, "CLOSE_LIMIT_S", 0.2)
    said: list[str] = []
    process = make(store, said)
    assert process.pids == []
    process.look()
    (pid,) = process.pids
    os.kill(pid, signal.SIGSTOP)
    process.close()
    assert said == ["The exporters did not end in time and were killed"]
    process.look()  # closed is closed
    assert process.pids == []


def test_one_that_dies_is_started_again_but_not_at_once(
    store: Path, monkeypatch: pytest.MonkeyPatch, eventually: Callable[..., object]
) -> None:
    monkeypatch.setattr(exporter_module, "FIRST_RETRY_S", 0.0)
    monkeypatch.setattr(exporter_module, "CLOSE_LIMIT_S", 60.0)  # it would be said
    said: list[str] = []
    process = make(store, said)
    process.look()
    (first,) = process.pids
    os.kill(first, signal.SIGKILL)
    eventually(lambda: (process.look(), process.pids != [first])[1])
    assert len(process.pids) == 1
    process.close()
    monkeypatch.setattr(exporter_module, "FIRST_RETRY_S", 3600.0)
    slow = make(store, said, "--gcp", "nonsense")
    slow.look()
    (pid,) = slow.pids
    eventually(lambda: said)
    slow.look()
    assert slow.pids == [pid]
    slow.close()
    assert said == ["export: gcp:nonsense: give project and zone, and the accelerator if you like, "
                    "as in gcp:my-project/us-central1-a/TPU"]  # fmt: skip
