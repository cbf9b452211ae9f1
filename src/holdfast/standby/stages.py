"""A standby's three lives, in one process.

1. `python -I -S interpreter.py` sees whether the command's interpreter can be held up, and executes
   itself again: with the command's flags, and our `sitecustomize` on PYTHONPATH.
2. If that file runs, this interpreter, with these flags and in this environment, does as it
   should: it executes the user's very command line. If it does not, interpreter.py finds itself run
   a second time, and the standby is unfit.
3. The user's command line begins, and our `sitecustomize` holds it up before the program's first
   instruction. There it imports, and waits. Woken, it puts everything back and lets go: CPython
   itself then runs the program, as it would have.

A fork server (`server`) lives these three lives, too, but is never woken: it forks standbys, which
begin where it has come to.

So nothing of CPython's own start (`__main__`, sys.path[0], runpy, exit codes, tracebacks) is
imitated. What must never happen is that the program runs unasked: between the second life and the
third a timer of the process's own CPU time is set, which ends it before any program gets far.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
import time

from . import priority
from .ahead import ImportsAhead
from .channel import Task, Wake, become_cold, default_signals, wait_cold
from .command import INTERPRETER, PythonCommand, read
from .output import HeldOutput
from .preload import ModuleRefused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet
    from typing import Any, NoReturn

SITE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "site")
OLDEST = (3, 11)
# Of CPU time: an interpreter reaches `site` after some 0.01 s, and a program's first imports take
# longer than this.
TRIP_S = 0.5
_PR_SET_PDEATHSIG = 1
BROKEN = 70  # an error of ours: the exit code of sysexits.h for one
NAME = "hf-standby"  # shown by ps and top while it waits
SERVER_NAME = "hf-fork-server"
USERS_SITE = {"sitecustomize", "usercustomize"}
PRIVATE = "holdfast_standby"  # as this package is called here


def begin() -> NoReturn:
    """interpreter.py: the first life; or the second, if `site` did not hold it up."""
    task = Task.take()
    if task.server_of:
        _die_with(task.server_of)
    if task.stage == "probe":
        wait_cold(task, "its interpreter does not import sitecustomize from PYTHONPATH")
    command = read(task.argv)
    if isinstance(command, str):
        wait_cold(task, command)
    why = _unfit(task, command)
    if why:
        wait_cold(task, why)
    task.is_lowered = priority.lower()
    if task.server_of:
        priority.lower_session()
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
        if task.server_of:  # all of ours is there before anything of the user's
            importlib.import_module(".server", __package__)
        return _be_unseen(task, before)
    except BaseException as error:
        print(f"holdfast: standby: {type(error).__name__}: {error}", file=sys.stderr)
        os._exit(BROKEN)


def _become(task: Task, stage: str, argv: list[str]) -> NoReturn:
    environment = task.environment(stage, SITE)
    os.set_inheritable(task.wake_fd, True)
    os.set_inheritable(task.status_fd, True)
    default_signals()
    os.execvpe(argv[0], argv, environment)  # noqa: S606 - no shell


def _die_with(parent: int) -> None:
    """The kernel ends this process when the agent's thread that has started it ends."""
    import ctypes

    libc = ctypes.CDLL(None, use_errno=True)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:  # it died before prctl took hold
        os._exit(0)


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


# --- the third life: import, wait, and become the command ---------------------------------------


def _be_unseen(task: Task, before: AbstractSet[str]) -> BaseException | None:
    """What our `sitecustomize` hides runs first, `usercustomize` included."""
    sys.path[:] = [path for path in sys.path if path != SITE]
    for path in (SITE, os.path.dirname(SITE)):
        sys.path_importer_cache.pop(path, None)
    there = frozenset(sys.modules)
    ours = there - before
    error = _hidden_sitecustomize()
    site: Any = sys.modules["site"]
    if not site.ENABLE_USER_SITE:
        _wait(task, ours, there)
        return error
    user = site.execusercustomize

    def last() -> None:
        site.execusercustomize = user
        user()
        _wait(task, ours, there)

    site.execusercustomize = last
    return error


def _hidden_sitecustomize() -> BaseException | None:
    """The user's own, if there is one; else the error that says that there is none."""
    del sys.modules["sitecustomize"]
    try:
        importlib.import_module("sitecustomize")
    except Exception as error:
        return error
    return None


def _wait(task: Task, ours: AbstractSet[str], there: AbstractSet[str]) -> None:
    """Until woken; then return as the interpreter that the command would have found.

    `there`: the modules before anything of the user's was imported, `ours` among them.
    """
    began_s = time.monotonic()
    command = read(task.argv)
    if isinstance(command, str):
        raise ValueError(command)  # it was one a moment ago
    name = _rename(SERVER_NAME if task.server_of else NAME)
    output = HeldOutput()
    ahead = ImportsAhead(command)
    if task.server_of:
        task = _serve(task, output, ahead)
        _rename(NAME)
        began_s = time.monotonic()
        _import_ahead(ahead, task, output)  # what the server had not yet, perhaps
    else:
        _import_ahead(ahead, task, output)
        _tidy()
    task.tell_ready(took_s=round(time.monotonic() - began_s, 3), never=ahead.reasons)
    wake = Wake(task.read_line())
    woken_s = time.monotonic()
    why = _difference(task, wake, ahead)
    if why:
        output.restore(say=False)
        become_cold(task, wake, why)
    ahead.surroundings.become(wake.env, wake.cwd)
    if wake.is_beside and task.is_lowered:
        priority.lower_again()
    task.tell("warm", took_s=round(time.monotonic() - woken_s, 6))
    wake.await_go(task)
    output.restore(say=True)
    task.close()
    _rename(name)
    _forget(ours, ahead.names, sys.modules.keys() - there - USERS_SITE)


def _serve(task: Task, output: HeldOutput, ahead: ImportsAhead) -> Task:
    """The fork server's life; returns in each standby that is forked, with the task of that."""

    def anew() -> NoReturn:
        output.restore(say=False)
        _become(task, "wait", task.argv)

    def ready() -> bool:
        there = len(sys.modules)
        is_all = _import_ahead(ahead, task, output)
        if len(sys.modules) != there:  # else it costs a core's time beside the training
            _tidy()
        return is_all

    server = importlib.import_module(".server", __package__)
    forked: Task = server.TreeForker(task, output, ahead.surroundings).serve(
        ready=ready,
        change=lambda: ahead.change(os.getcwd()),
        anew=anew,
    )
    return forked


def _import_ahead(ahead: ImportsAhead, task: Task, output: HeldOutput) -> bool:
    """Whether all is imported, and not only what was before somebody asked for us."""
    try:
        is_all = ahead.take(task)
    except ModuleRefused as refused:
        output.restore(say=False)
        if not ahead.refuse(refused):
            wait_cold(task, f"too much cannot be imported ahead; the last: {refused}")
        _become(task, "wait", task.argv)  # this life anew
    except (OSError, ValueError, TypeError, KeyError) as error:
        output.restore(say=False)
        wait_cold(task, f"what was learned cannot be read: {error}")
    if task.is_lowered:
        priority.restore()
    return is_all


def _difference(task: Task, wake: Wake, ahead: ImportsAhead) -> str:
    if wake.argv != task.argv:
        return "the command is another than when the standby was started"
    return ahead.surroundings.difference(wake.env, wake.cwd) or ahead.change(wake.cwd)


def _tidy() -> None:
    """Give back what the imports needed only for a moment; a fork would copy what this looks at.

    Not gc.freeze: the program could see that, and would never collect what it drops of these.
    """
    gc.collect()
    ctypes: Any = sys.modules.get("ctypes")
    if ctypes is not None:  # else it would be there because of us
        ctypes.CDLL(None).malloc_trim(0)


def _rename(name: str) -> str:
    """The process's short name; returns what it was."""
    with open("/proc/self/comm", "r+", encoding="utf-8", errors="surrogateescape") as file:
        before = file.read().rstrip("\n")
        file.seek(0)
        file.write(name)
    return before


def _forget(ours: AbstractSet[str], names: AbstractSet[str], brought: AbstractSet[str]) -> None:
    """Modules that are here only for our own sake. Half a package is worse than all of it.

    What the user's `sitecustomize` and the imports have brought may use any of ours, and a second
    copy would be another module. What they use is in a list that was learned; one that was guessed
    leaves out most of it.
    """
    kept = {name.partition(".")[0] for name in names} | {"importlib", "sitecustomize"}
    is_told = brought <= names
    for name in ours:
        package = name.partition(".")[0]
        if package == PRIVATE or (is_told and package not in kept):
            sys.modules.pop(name, None)
