"""Where the ranks stand: asked of the ranks themselves, else of py-spy, else of the kernel.

In a thread of its own and in bounded time: the loop never waits for a process that may never
answer. What the rank writes in its signal handler (`session.stacks`) comes first, since it costs
nothing to have ready. `py-spy` reads a process from outside, where it is installed and may: ranks
that are stopped or too broken to answer, and their children (a data loader's workers).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from holdfast.agent.look import pid_of, process_state
from holdfast.agent.ranks import RankPages
from holdfast.agent.reaper.processes import descendants
from holdfast.agent.stack_text import (
    as_traceback,
    innermost_of_user,
    is_whole,
    main_thread,
    waits_for_others,
)
from holdfast.core.hang.events import RankStack
from holdfast.core.value import value
from holdfast.journal.layout import STACKS_SUFFIX

LIMIT_S = 10.0  # for everything
ANSWER_LIMIT_S = 2.0  # for a rank to write its stacks
PY_SPY_LIMIT_S = 4.0
LOOK_EVERY_S = 0.02
QUIET_LOOKS = 5  # so long without a new byte after what looks like the end
MAX_CHARS = 200_000
MAX_CHILDREN = 16


@value
class StackTarget:
    """A rank to be asked; `stacks` is what its page says of how."""

    rank: int
    pid: int
    file: Path
    stacks: int


@value
class Collected:
    """A rank's stacks: for the machine, in full for people, and as a traceback for the report."""

    stack: RankStack
    text: str
    traceback: str | None


def targets(pages: RankPages, pids: dict[int, int]) -> list[StackTarget]:
    """Every rank of the attempt that has a process."""
    found = []
    for view in pages.views:
        values = view.page.snapshot() if view.page is not None else None
        pid = pid_of(values, pids.get(view.rank, 0))
        if pid:
            file = view.live.with_suffix(STACKS_SUFFIX)
            found.append(StackTarget(view.rank, pid, file, values.stacks if values else 0))
    return found


def collect_beside(ranks: Sequence[StackTarget], done: Callable[[list[Collected]], None]) -> None:
    """Collect in a thread; `done` is called from it, whatever happens."""

    def run() -> None:
        found: list[Collected] = []
        try:
            for collected in collect(ranks):
                found.append(collected)
        finally:
            done(found)

    threading.Thread(target=run, name="holdfast-stacks", daemon=True).start()


def collect(ranks: Sequence[StackTarget]) -> Iterator[Collected]:
    """Ask all ranks, then wait for the answers."""
    give_up_s = time.monotonic() + LIMIT_S
    asked = [(target, _ask(target)) for target in ranks]
    for target, before in asked:
        text, how = "", ""
        if before is not None:
            text, how = _answer(target.file, before), "faulthandler"
        if not main_thread(text):
            text, how = _py_spy(target.pid, give_up_s), "py-spy"
        frames = main_thread(text)
        frame = innermost_of_user(frames)
        where = str(frame) if frame is not None else ""
        stack = RankStack(target.rank, where, waits_for_others(frames), how if frames else "")
        story = [
            f"rank {target.rank}, {describe(target.pid)}",
            text or "its stack could not be read",
        ]
        for child in descendants(target.pid)[:MAX_CHILDREN]:
            story += [f"child {describe(child)}", _py_spy(child, give_up_s)]
        whole = "\n\n".join(part for part in story if part)[:MAX_CHARS] + "\n"
        yield Collected(stack, whole, as_traceback(frames))


def _ask(target: StackTarget) -> int | None:
    """Send the signal, if the process is ready for it; the size of its file before."""
    number, fd = target.stacks & 0xFF, target.stacks >> 8
    try:
        # The descriptor may be another file's by now, and the handler another's.
        is_ours = Path(f"/proc/{target.pid}/fd/{fd}").readlink() == target.file
        if not number or not is_ours or not _catches(target.pid, number):
            return None
        if process_state(target.pid)[0] in ("T", "t", "Z", ""):
            return None  # it will not answer
        size = target.file.stat().st_size
        os.kill(target.pid, number)
    except OSError:
        return None
    return size


def _catches(pid: int, number: int) -> bool:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("SigCgt:"):
            return bool(int(line.split()[1], 16) >> (number - 1) & 1)
    return False


def _answer(file: Path, before: int) -> str:
    """What is written after the first `before` bytes, as soon as it is whole.

    On a busy host a rank may lose its turn in the middle of it: no more bytes, that alone says
    nothing.
    """
    end_s = time.monotonic() + ANSWER_LIMIT_S
    size, quiet = before, 0
    while time.monotonic() < end_s:
        time.sleep(LOOK_EVERY_S)
        now = file.stat().st_size
        quiet = quiet + 1 if now == size > before else 0
        size = now
        if quiet >= QUIET_LOOKS and is_whole(_written(file, before)):
            break
    return _written(file, before)


def _written(file: Path, before: int) -> str:
    with file.open("rb") as stream:
        stream.seek(before)
        return stream.read(MAX_CHARS).decode(errors="replace")


def _py_spy(pid: int, give_up_s: float) -> str:
    """The stacks by py-spy; empty where it is not installed, may not, or takes too long.

    Without stopping the process: it stands still anyway, and one that is in the kernel for good
    could not be stopped.
    """
    tool = py_spy()
    limit_s = min(PY_SPY_LIMIT_S, give_up_s - time.monotonic())
    if tool is None or limit_s <= 0:
        return ""
    command = [tool, "dump", "--nonblocking", "--pid", str(pid)]
    with contextlib.suppress(OSError, subprocess.SubprocessError):
        result = subprocess.run(command, capture_output=True, timeout=limit_s, check=False)
        if result.returncode == 0:
            return result.stdout.decode(errors="replace")[:MAX_CHARS]
    return ""


def py_spy() -> str | None:
    """The program: beside our interpreter (`holdfast-ml[stacks]`), else on the path."""
    beside = Path(sys.executable).parent / "py-spy"
    return str(beside) if beside.exists() else shutil.which("py-spy")


def describe(pid: int) -> str:
    """What the kernel says of a process: `process 4711 (python train.py) is asleep, in futex`."""
    state, kernel = process_state(pid)
    name = ""
    with contextlib.suppress(OSError):
        name = Path(f"/proc/{pid}/comm").read_text().strip()
    lines = [f"process {pid} ({name}): state {state or 'gone'}{', in ' + kernel if kernel else ''}"]
    with contextlib.suppress(OSError):  # for root alone
        lines += Path(f"/proc/{pid}/stack").read_text().splitlines()
    return "\n".join(lines)
