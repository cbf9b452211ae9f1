"""The flush processes, real ones: what they are asked comes true, whoever dies meanwhile."""

from __future__ import annotations

import contextlib
import os
import selectors
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.agent.flush import FlushProcess, FlushProcesses, FlushResult
from holdfast.snapshot.reader import verify
from holdfast.snapshot.sets import commit, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

pytestmark = pytest.mark.real

STEP = 7
Eventually = Callable[..., object]


class Asked:
    """A client in a loop of its own, and what it heard."""

    def __init__(self) -> None:
        self.selector = selectors.DefaultSelector()
        self.flushes = FlushProcesses(self.selector, dict(os.environ))
        self.outcome: FlushResult | None = None

    def flush(self, buffer: Path, place: Path, *, urgent: bool = False) -> None:
        self.outcome = None
        self.flushes.flush(buffer, place, self._done, attempt=0, step=STEP, urgent=urgent)

    def _done(self, outcome: FlushResult) -> None:
        self.outcome = outcome

    def turn(self) -> bool:
        """One look; whether the outcome is known."""
        self.selector.select(0.05)
        self.flushes.turn()
        return self.outcome is not None

    def heard(self, eventually: Eventually) -> FlushResult:
        eventually(self.turn, within_s=60.0)
        assert self.outcome is not None
        return self.outcome


@pytest.fixture
def asked() -> Iterator[Asked]:
    asked = Asked()
    yield asked
    asked.flushes.close()
    asked.selector.close()


@pytest.fixture
def buffer(tmp_path: Path) -> Path:
    """A sealed buffer of two ranks, large enough that a process can die in the middle of it."""
    place = tmp_path / "ram" / set_name(0, STEP)
    place.parent.mkdir()
    (tmp_path / "ckpt").mkdir()
    for rank in range(2):
        captured = Staging().capture({"state": np.full(4 << 20, rank + 1.0)}, rank, 2)
        write_shard(place, captured, attempt=0, step=STEP, rank=rank, world_size=2)
        captured.release()
    commit(place, 2)
    return place.rename(place.with_name("buffer-0"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "ckpt" / set_name(0, STEP)


@pytest.mark.contract("flush: memory to disk, by another process")
@pytest.mark.parametrize("urgent", [False, True])
def test_what_is_flushed_can_be_committed(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually, urgent: bool
) -> None:
    asked.flush(buffer, place, urgent=urgent)
    outcome = asked.heard(eventually)
    assert outcome.why is None
    assert (outcome.ranks, outcome.world_size) == ([0, 1], 2)
    assert outcome.nbytes > 2 * 32 << 20
    commit(place, 2)
    assert verify(place) == ()
    assert asked.flushes.nbytes == 0


def test_one_that_is_killed_over_a_flush_is_asked_again(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually
) -> None:
    asked.flush(buffer, place)
    shard = place / "rank-00000.safetensors"
    eventually(lambda: asked.turn() or shard.exists(), within_s=60.0)
    (pid,) = asked.flushes.pids
    os.kill(pid, signal.SIGKILL)
    eventually(lambda: not _runs(pid))  # it may have said meanwhile that it is done
    assert asked.heard(eventually).why is None
    assert asked.flushes.pids != [pid]
    commit(place, 2)
    assert verify(place) == ()


def test_one_that_dies_again_and_again_is_given_up(
    asked: Asked,
    buffer: Path,
    place: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    start = subprocess.Popen

    def stillborn(*args: Any, **options: Any) -> subprocess.Popen[bytes]:
        process = start(*args, **options)
        process.kill()  # before it is told what there is to do
        return process

    with monkeypatch.context() as patch:
        patch.setattr(subprocess, "Popen", stillborn)
        asked.flush(buffer, place)
        asked.heard(eventually)
    assert asked.outcome == FlushResult("the process that writes it to disk died 3 times")
    asked.flush(buffer, place)
    assert asked.heard(eventually).why is None


def test_one_that_gives_way_can_be_hurried(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually
) -> None:
    asked.flush(buffer, place)
    asked.flushes.hurry()
    asked.flushes.hurry()
    assert asked.heard(eventually).why is None
    commit(place, 2)
    assert verify(place) == ()
    assert asked.flushes.nbytes == 0


def test_one_that_is_never_scheduled_is_hurried_without_its_help(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually
) -> None:
    asked.flush(buffer, place)
    (calm,) = asked.flushes.pids
    os.kill(calm, signal.SIGSTOP)  # it will not even hear of it
    asked.flushes.hurry()
    assert asked.heard(eventually).why is None
    assert calm not in asked.flushes.pids
    commit(place, 2)
    assert verify(place) == ()
    eventually(lambda: not _runs(calm))


@pytest.mark.parametrize("urgent", [False, True])
def test_one_that_hangs_is_given_up_and_replaced(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually, urgent: bool
) -> None:
    asked.flush(buffer, place, urgent=urgent)
    (pid,) = asked.flushes.pids
    os.kill(pid, signal.SIGSTOP)
    asked.flushes.abandon("nothing was heard of it")
    assert asked.outcome == FlushResult("nothing was heard of it")
    eventually(lambda: not _runs(pid))
    assert asked.flushes.nbytes == 0
    asked.flushes.abandon("there is nothing to give up")
    asked.flush(buffer, place, urgent=urgent)
    assert asked.heard(eventually).why is None
    assert asked.flushes.pids != [pid]
    commit(place, 2)
    assert verify(place) == ()


def test_the_seals_of_one_that_is_given_up_are_asked_again(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually
) -> None:
    sealed: list[FlushResult] = []
    asked.flushes.start()
    (pid,) = asked.flushes.pids
    os.kill(pid, signal.SIGSTOP)
    asked.flushes.seal(buffer, sealed.append, attempt=0, step=STEP, ranks=(0, 1), world_size=2)
    asked.flush(buffer, place, urgent=True)
    asked.flushes.abandon("it hangs")
    assert asked.outcome == FlushResult("it hangs")
    eventually(lambda: (asked.turn(), sealed)[1], within_s=60.0)
    assert [one.why for one in sealed] == [None]


def test_it_says_how_far_it_is(
    asked: Asked,
    buffer: Path,
    place: Path,
    eventually: Eventually,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told: list[int] = []
    hear = FlushProcess._hear

    def hear_and_look(self: FlushProcess, said: dict[str, Any]) -> None:
        hear(self, said)  # all of it may come in one turn
        told.append(asked.flushes.nbytes)

    monkeypatch.setattr(FlushProcess, "_hear", hear_and_look)
    asked.flush(buffer, place)
    asked.heard(eventually)
    assert max(told) > 0
    assert asked.flushes.nbytes == 0


def test_a_failure_comes_in_words(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually
) -> None:
    place.parent.rmdir()
    asked.flush(buffer, place)
    outcome = asked.heard(eventually)
    assert "is not there" in (outcome.why or "")
    assert not outcome.is_gone
    place.parent.mkdir()  # the store is back
    asked.flush(buffer, place)
    assert asked.heard(eventually).why is None
    shutil.rmtree(buffer)
    asked.flush(buffer, place)
    outcome = asked.heard(eventually)
    assert "is missing" in (outcome.why or "")
    assert outcome.is_gone


@pytest.mark.skipif(os.geteuid() != 0, reason="mounting a small tmpfs takes root")
def test_a_full_store_keeps_nothing_of_it(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually
) -> None:
    mount = ["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", str(place.parent)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("no file system can be mounted here")
    try:
        asked.flush(buffer, place)
        assert "no space left on the disk" in (asked.heard(eventually).why or "")
        assert (place / "rank-00000.receipt.json").exists()
        assert not (place / "rank-00001.safetensors").exists()
        subprocess.run(["mount", "-o", "remount,size=100m", str(place.parent)], check=True)
        asked.flush(buffer, place)
        assert asked.heard(eventually).why is None
    finally:
        subprocess.run(["umount", "-l", str(place.parent)], check=True)


def test_a_terminal_or_a_batch_system_does_not_disturb_it(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually
) -> None:
    asked.flush(buffer, place)
    asked.heard(eventually)  # it has taken its place
    (pid,) = asked.flushes.pids
    assert os.getpgid(pid) != os.getpgrp()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        os.kill(pid, number)
    asked.flush(buffer, place)
    assert asked.heard(eventually).why is None
    assert asked.flushes.pids == [pid]


def test_it_gives_way_to_the_training(
    asked: Asked, buffer: Path, place: Path, eventually: Eventually
) -> None:
    asked.flush(buffer, place)
    asked.heard(eventually)
    (pid,) = asked.flushes.pids
    assert os.getpriority(os.PRIO_PROCESS, pid) == min(19, os.getpriority(os.PRIO_PROCESS, 0) + 15)


AGENT = """
import os, selectors, sys, time
from pathlib import Path
from holdfast.agent.flush import FlushProcesses
flushes = FlushProcesses(selectors.DefaultSelector(), dict(os.environ))
flushes.start()
print(*flushes.pids, flush=True)
while True:
    time.sleep(60)
"""


@pytest.mark.contract("flush: its process ends with the agent")
def test_it_dies_with_the_agent(eventually: Eventually) -> None:
    with subprocess.Popen([sys.executable, "-c", AGENT], stdout=subprocess.PIPE) as agent:
        assert agent.stdout is not None
        pid = int(agent.stdout.readline())
        agent.kill()
        agent.wait()
        eventually(lambda: not _runs(pid))


def _runs(pid: int) -> bool:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    return False
