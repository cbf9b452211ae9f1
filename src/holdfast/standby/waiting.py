"""The third life: import, wait, and become the command."""

from __future__ import annotations

import gc
import importlib
import os
import sys
import time

from . import learned, priority
from .channel import Task, Wake, become_cold, wait_cold
from .command import PythonCommand, read
from .freshness import Freshness
from .output import HeldOutput
from .preload import ModuleRefused, import_all
from .surroundings import VariableReads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from typing import Any, NoReturn

NAME = "hf-standby"  # shown by ps and top while it waits
REFUSALS_MAX = 32


def hold_up(
    task: Task, before: AbstractSet[str], folder: str, again: Callable[[], NoReturn]
) -> BaseException | None:
    """Be here unseen: what our `sitecustomize` hides runs first, `usercustomize` included."""
    sys.path[:] = [path for path in sys.path if path != folder]
    for path in (folder, os.path.dirname(folder)):
        sys.path_importer_cache.pop(path, None)
    ours = sys.modules.keys() - before
    error = _hidden_sitecustomize()
    site: Any = sys.modules["site"]
    if not site.ENABLE_USER_SITE:
        wait(task, ours, again)
        return error
    user = site.execusercustomize

    def last() -> None:
        site.execusercustomize = user
        user()
        wait(task, ours, again)

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


def wait(task: Task, ours: AbstractSet[str], again: Callable[[], NoReturn]) -> None:
    """Until woken; then return as the interpreter that the command would have found.

    `again` begins this life anew.
    """
    began_s = time.monotonic()
    command = read(task.argv)
    if isinstance(command, str):
        raise ValueError(command)  # it was one a moment ago
    name = _rename(NAME)
    output = HeldOutput()
    surroundings = VariableReads()
    libraries = learned.Libraries()
    try:
        names = learned.read(task.imports, libraries)
    except (OSError, ValueError, TypeError, KeyError) as error:
        output.restore(say=False)
        wait_cold(task, f"what was learned cannot be read: {error}")
    never = learned.NeverList(task.imports)
    freshness = Freshness(libraries)
    try:
        with surroundings, _MainFile(command):
            import_all(names, never, libraries, freshness, task.wake_fd, is_lowered=task.is_lowered)
    except ModuleRefused as refused:
        output.restore(say=False)
        if len(never.entries) >= REFUSALS_MAX:
            wait_cold(task, f"too much cannot be imported ahead; the last: {refused}")
        never.add(refused.name, refused.kind, refused.why)
        again()
    _tidy()
    if task.is_lowered:
        priority.restore()
    task.tell(
        "ready",
        modules=len(sys.modules),
        took_s=round(time.monotonic() - began_s, 3),
        never=never.reasons(),
        **_memory(),
    )
    wake = Wake(task.read_line())
    woken_s = time.monotonic()
    why = _difference(task, wake, command, surroundings, freshness)
    if why:
        output.restore(say=False)
        become_cold(task, wake, why)
    surroundings.become(wake.env, wake.cwd)
    if wake.is_beside and task.is_lowered:
        priority.lower_again()
    task.tell("warm", took_s=round(time.monotonic() - woken_s, 6))
    wake.await_go(task)
    output.restore(say=True)
    task.close()
    _rename(name)
    _forget(ours, set(names))


def _difference(
    task: Task,
    wake: Wake,
    command: PythonCommand,
    surroundings: VariableReads,
    freshness: Freshness,
) -> str:
    if wake.argv != task.argv:
        return "the command is another than when the standby was started"
    return surroundings.difference(wake.env, wake.cwd) or freshness.change(command, wake.cwd)


class _MainFile:
    """Modules take a `__main__` without a file for an interactive session; CPython sets it late."""

    def __init__(self, command: PythonCommand) -> None:
        self._has_file = command.form != "code"
        self._file = os.path.abspath(command.target)

    def __enter__(self) -> None:
        if self._has_file:
            sys.modules["__main__"].__file__ = self._file

    def __exit__(self, *_: object) -> None:
        if self._has_file:
            del sys.modules["__main__"].__file__


def _tidy() -> None:
    """Give back what the imports needed only for a moment.

    Not gc.freeze: the program could see that, and would never collect what it drops of these.
    """
    gc.collect()
    ctypes: Any = sys.modules.get("ctypes")
    if ctypes is not None:  # else it would be there because of us
        ctypes.CDLL(None).malloc_trim(0)


def _memory() -> dict[str, int]:
    """What waiting costs: resident memory, and our share of what is mapped by several."""
    wanted = {b"Rss:": "rss_bytes", b"Pss:": "pss_bytes"}
    found = {}
    try:
        with open("/proc/self/smaps_rollup", "rb") as file:
            for line in file:
                words = line.split()
                if words[0] in wanted:
                    found[wanted[words[0]]] = int(words[1]) << 10
    except OSError:
        pass
    return found


def _rename(name: str) -> str:
    """The process's short name; returns what it was."""
    with open("/proc/self/comm", "r+", encoding="utf-8", errors="surrogateescape") as file:
        before = file.read().rstrip("\n")
        file.seek(0)
        file.write(name)
    return before


def _forget(ours: AbstractSet[str], names: AbstractSet[str]) -> None:
    """Modules that are here only for our own sake. Half a package is worse than all of it."""
    kept = {name.partition(".")[0] for name in names} | {"importlib", "sitecustomize"}
    for name in ours:
        if name.partition(".")[0] not in kept:
            sys.modules.pop(name, None)
