"""What takes a process otherwise, done in the test's own: a script without a supervisor, a command.

What the interpreter does for a script is done here: its `sys.argv`, the hook for an exception that
nobody catches, the exit code, and at the end what was registered for it. What a session does to its
process is left out (handlers of signals, callbacks of forks, listeners in JAX, a thread that waits
to be asked for a profile): real tests show it.
"""

from __future__ import annotations

import contextlib
import io
import os
import random
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace, TracebackType

import numpy as np
import pytest

import holdfast
from holdfast.cli.main import main
from holdfast.config.rank import OWNER_VARIABLE
from holdfast.session import asked_save, boundary, compiling, meeting, profiling, signals, start


def run_script(path: Path, *words: object, **env: object) -> tuple[int, str]:
    """Run a script, which has `np` and `hf`: its exit code, and what it printed."""
    code = compile(path.read_text(), str(path), "exec", dont_inherit=True)
    names = {"__name__": "__main__", "np": np, "hf": holdfast}
    with _printed() as out, _interpreter(env):
        sys.argv = [str(path), *map(str, words)]
        exit_code = _exit_code_of(lambda: exec(code, names))
    return exit_code, out.getvalue().rstrip("\n")


def run_command(*words: object) -> tuple[int, str]:
    """Run `holdfast` with these words: its exit code, and what it printed."""
    with _printed() as out:
        exit_code = _exit_code_of(lambda: main([str(word) for word in words]))
    return exit_code, out.getvalue().rstrip("\n")


@contextlib.contextmanager
def _printed() -> Iterator[io.StringIO]:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(out):
        yield out


@contextlib.contextmanager
def _interpreter(env: dict[str, object]) -> Iterator[None]:
    """What a new process has of its own; what was registered for its end is called at the end."""
    ends: list[Callable[[], None]] = []
    dice, numpy_dice = random.getstate(), np.random.get_state()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in {"HOLDFAST_COMPILE_CACHE": "off", **env}.items():
            patch.setenv(name, str(value))
        patch.setenv(OWNER_VARIABLE, "")  # the session claims the process: put back after it
        patch.setattr(sys, "argv", sys.argv)
        patch.setattr(sys, "excepthook", _show)
        patch.setattr(start, "_the_run", None)
        patch.setattr(start, "atexit", SimpleNamespace(register=ends.append))
        patch.setattr(meeting, "_at_exit", None)
        for module in (asked_save, boundary):
            patch.setattr(module, "WAIT_STEP_S", 0)  # between two looks: nobody sleeps here
        patch.setattr(os, "register_at_fork", lambda **_: None)
        patch.setattr(compiling.Compiling, "_jax_is_there", lambda _: None)
        patch.setattr(profiling.Profiling, "listen", lambda _: None)
        for name in ("install_sigterm", "install_sigint"):
            patch.setattr(signals, name, lambda *_, **__: None)
        try:
            yield
        finally:
            for end in reversed(ends):
                end()
            random.setstate(dice)
            np.random.set_state(numpy_dice)


def _show(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    traceback.print_exception(kind, error, trace)


def _exit_code_of(run: Callable[[], object]) -> int:
    """As Python ends: an exception goes to the hook, which may choose the code."""
    try:
        run()
    except SystemExit as leave:
        return _code(leave)
    except Exception as error:
        try:
            sys.excepthook(type(error), error, error.__traceback__)
        except SystemExit as leave:
            return _code(leave)
        return 1
    return 0


def _code(leave: SystemExit) -> int:
    return leave.code if isinstance(leave.code, int) else int(leave.code is not None)
