"""Stacks of real processes: asked where that is safe, else read from outside, else described."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.agent import stacks
from holdfast.agent.stacks import StackTarget, collect, py_spy
from holdfast.journal.layout import STACKS_SUFFIX

CHILD = """
import os, sys, threading, time
from pathlib import Path
from holdfast.journal.layout import Word
from holdfast.journal.writer import JournalWriter
from holdfast.session.stacks import answer_for_stacks

def where_it_stands():
    print(page.load(Word.STACKS), flush=True)
    while True:
        time.sleep(1000)

page = JournalWriter.nowhere().page
answer_for_stacks(Path(sys.argv[1]), page)
exec(sys.argv[2])
threading.Thread(target=lambda: time.sleep(1000), daemon=True).start()
where_it_stands()
"""
NOTHING = "pass"
# What it opens next gets the numbers of what it closed.
ALL_CLOSED = """
os.closerange(3, 100)
others = [open(sys.argv[1] + ".other", "w") for _ in range(64)]
"""
HANDLER_GONE = "import signal; signal.signal(page.load(Word.STACKS) & 0xFF, signal.SIG_DFL)"


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine is not a failure."""
    for limit in ("LIMIT_S", "ANSWER_LIMIT_S", "PY_SPY_LIMIT_S"):
        monkeypatch.setattr(stacks, limit, 60.0)


@pytest.fixture
def child(tmp_path: Path) -> Iterator[Callable[[str], StackTarget]]:
    started: list[subprocess.Popen[str]] = []

    def start(does: str = NOTHING) -> StackTarget:
        journal = tmp_path / f"rank-{len(started):05d}.hfj"
        script = tmp_path / "train.py"
        script.write_text(CHILD)
        command = [sys.executable, str(script), str(journal), does]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        assert process.stdout is not None
        file = journal.with_suffix(STACKS_SUFFIX)
        return StackTarget(len(started) - 1, process.pid, file, int(process.stdout.readline()))

    yield start
    for process in started:
        process.kill()
        process.communicate()


@pytest.mark.contract("stacks: every process of a rank writes its own")
def test_every_process_answers_for_itself(child: Callable[[str], StackTarget]) -> None:
    targets = [child(NOTHING), child(NOTHING)]
    first, second = collect(targets)
    for rank, one in enumerate((first, second)):
        assert one.stack.rank == rank
        assert one.stack.how == "faulthandler"
        assert one.stack.where.startswith("where_it_stands (train.py:")
        assert "in where_it_stands" in str(one.traceback).splitlines()[-1]
        assert f"process {targets[rank].pid} (python" in one.text
    assert next(collect(targets[:1])).stack == first.stack  # again: only what is new is read


def test_an_answer_that_stops_in_the_middle_is_awaited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "stacks"
    file.write_text("before\n")
    lines = [
        "Thread 0x1 (most recent call first):\n",
        '  File "/a/loader.py", line 3 in read\n',
        "\nCurrent thread 0x2 (most recent call first):\n",
        '  File "/a/train.py", line 41 in step\n',
        '  File "/a/train.py", line 80 in <module>\n',
    ]
    left, looks = iter(lines), itertools.count(1)

    def sleep(_s: float) -> None:
        if next(looks) % (5 * stacks.QUIET_LOOKS) == 0:
            with file.open("a") as stream:
                stream.write(next(left))

    clock = types.SimpleNamespace(sleep=sleep, monotonic=lambda: 0.0)
    monkeypatch.setattr(stacks, "time", clock)
    assert stacks._answer(file, 7) == "".join(lines)


@pytest.mark.real
@pytest.mark.parametrize("does", [ALL_CLOSED, HANDLER_GONE])
def test_a_process_that_is_not_ready_any_more_is_left_alone(
    child: Callable[[str], StackTarget], does: str, tmp_path: Path
) -> None:
    target = child(does)
    (one,) = collect([target])
    assert one.stack.how in ("", "py-spy")
    os.kill(target.pid, 0)
    assert target.file.stat().st_size == 0
    assert not any(path.stat().st_size for path in tmp_path.glob("*.other"))


@pytest.mark.real
@pytest.mark.skipif(py_spy() is None, reason="py-spy is not installed")
def test_a_stopped_process_is_read_from_outside(
    child: Callable[[str], StackTarget], eventually: Callable[..., object]
) -> None:
    target = child(NOTHING)
    os.kill(target.pid, signal.SIGSTOP)
    state = Path(f"/proc/{target.pid}/stat")
    eventually(lambda: state.read_text().rpartition(")")[2].split()[0] == "T")
    (one,) = collect([target])
    assert one.stack.how == "py-spy"
    assert one.stack.where.startswith("where_it_stands (train.py:")
    assert "state T" in one.text


@pytest.mark.real
def test_a_process_that_is_gone_is_said_to_be_gone() -> None:
    (one,) = collect([StackTarget(0, 2**22 - 3, Path("/nowhere"), 60 | 5 << 8)])
    assert one.stack.where == one.stack.how == ""
    assert one.traceback is None
    assert "state gone" in one.text


@pytest.mark.real
def test_no_words_mean_no_signal(child: Callable[[str], StackTarget]) -> None:
    target = child(NOTHING)
    (one,) = collect([StackTarget(0, target.pid, target.file, 0)])
    assert one.stack.how in ("", "py-spy")
    assert target.file.stat().st_size == 0
