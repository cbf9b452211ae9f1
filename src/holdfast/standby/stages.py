"""A standby's three lives, in one process.

1. `python -I -S interpreter.py` sees whether the command's interpreter can be held up, and executes
   itself again: with the command's flags, and our `sitecustomize` on PYTHONPATH.
2. If that file runs, this interpreter, with these flags and in this environment, does as it
   should: it executes the user's very command line. If it does not, interpreter.py finds itself run
   a second time, and the standby is unfit.
3. The user's command line begins, and our `sitecustomize` holds it up before the program's first
   instruction. There it imports, and waits. Woken, it puts everything back and lets go: CPython
   itself then runs the program, as it would have.

So nothing of CPython's own start (`__main__`, sys.path[0], runpy, exit codes, tracebacks) is
imitated. What must never happen is that the program runs unasked: between the second life and the
third a timer of the process's own CPU time is set, which ends it before any program gets far.
"""

from __future__ import annotations

import os
import signal
import sys

from . import priority, waiting
from .channel import Task, default_signals, wait_cold
from .command import INTERPRETER, read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from typing import NoReturn

    from .command import PythonCommand

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
OLDEST = (3, 11)
# Of CPU time: an interpreter reaches `site` after some 0.01 s, and a program's first imports take
# longer than this.
TRIP_S = 0.5
BROKEN = 70  # an error of ours: the exit code of sysexits.h for one


def begin() -> NoReturn:
    """interpreter.py: the first life; or the second, if `site` did not hold it up."""
    task = Task.take()
    if task.stage == "probe":
        wait_cold(task, "its interpreter does not import sitecustomize from PYTHONPATH")
    command = read(task.argv)
    if isinstance(command, str):
        wait_cold(task, command)
    why = _unfit(task, command)
    if why:
        wait_cold(task, why)
    task.is_lowered = priority.lower()
    _become(task, "probe", [command.python, *command.flags, INTERPRETER])


def hold_up(before: AbstractSet[str]) -> BaseException | None:
    """sitecustomize: the second life, and the third. Returns when the program is to run.

    What it returns is to be raised there: whatever the `sitecustomize` that ours hides has raised.
    """
    signal.setitimer(signal.ITIMER_PROF, 0)
    try:
        task = Task.take()
        if task.stage == "probe":
            signal.setitimer(signal.ITIMER_PROF, TRIP_S)
            _become(task, "wait", task.argv)
        os.set_inheritable(task.wake_fd, False)
        os.set_inheritable(task.status_fd, False)
        return waiting.hold_up(task, before, SITE, lambda: _become(task, "wait", task.argv))
    except BaseException as error:
        print(f"holdfast: standby: {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(BROKEN)


def _become(task: Task, stage: str, argv: list[str]) -> NoReturn:
    environment = task.environment(stage, SITE)
    os.set_inheritable(task.wake_fd, True)
    os.set_inheritable(task.status_fd, True)
    default_signals()
    os.execvpe(argv[0], argv, environment)  # noqa: S606 - no shell


def _unfit(task: Task, command: PythonCommand) -> str:
    """Why nothing could be gained, or something might go wrong; empty: nothing."""
    if sys.version_info < OLDEST or sys.implementation.name != "cpython":
        return f"its interpreter is not CPython {'.'.join(map(str, OLDEST))} or newer"
    if not os.path.exists(task.imports):
        return "nothing has been learned yet"
    if not _is_direct(command.python):
        return f"{command.python} is a wrapper around the interpreter: name the interpreter itself"
    return ""


def _is_direct(python: str) -> bool:
    """Whether the command is this interpreter's file, and no script that starts it."""
    import shutil

    found = shutil.which(python)
    if found is None:
        return False
    return os.path.samefile(found, "/proc/self/exe")
