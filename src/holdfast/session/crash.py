"""How this rank ended, in its own words: for the supervisor's verdict and the incident.

An uncaught exception is written to `attempts/NNNN/ranks/rank-00000.json` before Python prints it,
and under a supervisor first to a file on this host. That makes "the same failure at the same place"
something that can be compared, and puts the traceback into the report.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from holdfast.errors import HoldfastError
from holdfast.journal.regular import open_regular

MAX_TEXT_CHARS = 20_000


def describe(error: BaseException, stack: traceback.StackSummary | None = None) -> dict[str, Any]:
    """The exception as plain data: type, message, where it was raised, the whole traceback.

    `stack`: where it is about to be raised, if it has not been yet.
    """
    frames = traceback.extract_tb(error.__traceback__) if stack is None else stack
    story = traceback.format_exception(error)
    if stack is not None:
        story = ["Traceback (most recent call last):\n", *stack.format(), *story]
    # The deepest frame of the user's own code tells more than one inside a library.
    own = [f for f in frames if "site-packages" not in f.filename and not _is_ours(f.filename)]
    shown = own or list(frames)
    at = shown[-1] if shown else None
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    else:
        where = f"{at.filename}:{at.lineno}" if at else ""
    return {
        "type": type(error).__name__,
        "message": _short(str(error)),
        "where": where,
        "traceback": _short("".join(story)),
        "exit_code": error.exit_code if isinstance(error, HoldfastError) else None,
    }


def here() -> traceback.StackSummary:
    """The way to where the script called us, without our own part of it."""
    return traceback.StackSummary.from_list(
        [frame for frame in traceback.extract_stack() if not _is_ours(frame.filename)]
    )


def _is_ours(filename: str) -> bool:
    return filename.startswith(str(Path(__file__).parent.parent) + os.sep)


def _short(text: str) -> str:
    if len(text) <= MAX_TEXT_CHARS:
        return text
    half = MAX_TEXT_CHARS // 2
    return f"{text[:half]}\n… {len(text) - MAX_TEXT_CHARS} characters left out …\n{text[-half:]}"


def write_report(path: Path, data: dict[str, Any]) -> bool:
    """Write the report; a store that cannot be written costs the report, nothing else."""
    draft = path.with_suffix(".tmp")
    try:
        path.parent.mkdir(exist_ok=True)
        # Where a link was planted under the draft's name, nothing is written at its other end.
        with os.fdopen(open_regular(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), "w") as file:
            file.write(json.dumps(data))
        draft.replace(path)
    except OSError:
        return False
    return True


def install(
    find_paths: Callable[[], tuple[Path, ...]],
    on_failure: Callable[[BaseException], None],
    is_declared: Callable[[], bool],
) -> None:
    """Have uncaught exceptions reported before whatever hook was there shows them.

    `find_paths` is asked then: a rank may learn late which attempt it belongs to. `is_declared`:
    the script has said itself why it fails; what follows from that is not the reason.
    """
    before = sys.excepthook
    owner = os.getpid()

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if os.getpid() != owner:  # a forked child's troubles are its own
            before(kind, error, trace)
            return
        if not is_declared():
            if not issubclass(kind, KeyboardInterrupt):
                for path in find_paths():
                    write_report(path, describe(error))
            on_failure(error)
        before(kind, error, trace)

    sys.excepthook = hook


def use_exit_codes() -> None:
    """An uncaught error of Holdfast's own ends the process with its exit code, not with 1.

    So that whoever started it can tell a store that is away from a bug. CPython takes a SystemExit
    out of the hook as the way to end.
    """
    before = sys.excepthook
    if getattr(before, "holdfast", False):
        return

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        before(kind, error, trace)
        if isinstance(error, HoldfastError) and not hasattr(sys, "ps1"):  # not from a prompt
            sys.exit(error.exit_code)

    hook.holdfast = True  # type: ignore[attr-defined]
    sys.excepthook = hook
