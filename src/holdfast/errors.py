"""The exception tree: whose fault it is, and what to do about it.

Every message is one sentence that names the value that was wrong, says whose fault it is, and what
to do next. `exit_code` is what a Holdfast command ends with when the error reaches the top.
"""

from __future__ import annotations

import sys
from typing import ClassVar

from holdfast.distribution import NAME

EXIT_DONE = 0
EXIT_USER_FAILURE = 1
EXIT_UNAVAILABLE = 69
EXIT_SAVED_START_ME_AGAIN = 75
EXIT_CONFIGURATION = 78


def needs_extra(what: str, extra: str) -> str:
    """The sentence for a library that is not installed; `what`: with its verb, as in "pages need".

    It names this interpreter, since the first `pip` of a shell is often another one's.
    """
    python = sys.executable or "python3"
    return f"{what} an extra that is not installed: {python} -m pip install '{NAME}[{extra}]'"


class HoldfastError(Exception):
    """Base of every error that Holdfast raises on purpose."""

    exit_code: ClassVar[int] = EXIT_USER_FAILURE


class ConfigurationError(HoldfastError):
    """A setting, a name or a command line that is not valid; nothing was started."""

    exit_code = EXIT_CONFIGURATION


class UnknownRun(ConfigurationError):
    """No run of that name lives in the store."""


class StoreUnavailable(HoldfastError):
    """The run store cannot be read or written (full, read-only, gone); nothing in it changed."""

    exit_code = EXIT_UNAVAILABLE


class RunHeld(StoreUnavailable):
    """Another supervisor holds the run; the message names it."""


class AttemptExists(StoreUnavailable):
    """Somebody else created this attempt first: the caller was fenced off and must not write."""


class NoGoodCheckpoint(HoldfastError):
    """Checkpoints were made, and none of them can be trusted: never silently from step 0."""

    exit_code = EXIT_UNAVAILABLE


class NoSuchCheckpoint(ConfigurationError):
    """Somebody wants to go back to a checkpoint that is not there: nothing else is chosen."""


class CorruptCheckpoint(HoldfastError):
    """A manifest or shard whose bytes are not what was written (torn, truncated, a flipped bit)."""

    exit_code = EXIT_UNAVAILABLE


class PartNotFetched(CorruptCheckpoint):
    """What this host lacks of a set in memory did not come from another host; it may next time."""


class JournalError(HoldfastError):
    """A journal that cannot be read: not a journal, or written by a newer format version."""

    exit_code = EXIT_UNAVAILABLE


class InternalError(HoldfastError):
    """Something of Holdfast's own failed as nobody has foreseen."""

    exit_code = EXIT_UNAVAILABLE


class HistoryError(HoldfastError):
    """A history line that is impossible; `line` is its number, counted from 1."""

    exit_code = EXIT_CONFIGURATION

    def __init__(self, line: int, message: str) -> None:
        super().__init__(f"line {line}: {message}")
        self.line = line


class TraceError(ConfigurationError):
    """A line of a recorded trace that is not valid; `line` is its number, counted from 1."""

    def __init__(self, path: object, line: int, message: str) -> None:
        super().__init__(f"the trace {path} cannot be replayed: line {line}: {message}")
        self.line = line


class Unstorable(HoldfastError):
    """A value in the state that no checkpoint can hold; `path` says where in the tree it sits."""

    exit_code = EXIT_CONFIGURATION

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path or 'the state itself'}: {message}")
        self.path = path


class StateMismatch(HoldfastError):
    """The stored state does not fit the wanted one; `path` is the first place where they differ.

    `run`: the name of the run that was to go on from it, where that is known.
    """

    exit_code = EXIT_CONFIGURATION

    def __init__(self, path: str, want: str, got: str) -> None:
        super().__init__(path, want, got)
        self.path = path
        self.want = want
        self.got = got
        self.run = "NAME"

    def __str__(self) -> str:
        is_state = self.path.startswith("state")
        as_saved = " (run.restore() without init takes it as it was saved)" if is_state else ""
        return (
            f"the checkpoint does not fit this program at {self.path or 'the top'}: "
            f"the program wants {self.want}, the checkpoint has {self.got}; "
            f"restore with the code that wrote it{as_saved}, or start over: a run of another name "
            "(holdfast run --name NEW), a new run of this name, with the old one kept (holdfast "
            f"run --fresh), or this run from scratch (holdfast rollback {self.run} --to 0)"
        )


class DataTopologyChanged(HoldfastError):
    """The number of ranks changed, and nobody said how the data positions carry over."""

    exit_code = EXIT_CONFIGURATION


class StepOrderError(HoldfastError):
    """`done` was called for another step than the one under way."""

    exit_code = EXIT_CONFIGURATION


class Stop(SystemExit):
    """Saved, start me again: a `SystemExit` with code 75.

    Raised at a boundary after every rank's state is durable (or when the deadline is at hand).
    `except Exception` does not swallow it; `finally` blocks run.
    """

    def __init__(self, reason: str = "asked to stop") -> None:
        super().__init__(EXIT_SAVED_START_ME_AGAIN)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason


class DeclaredFailure(SystemExit):
    """The script gave up (`run.fail`): a `SystemExit` with code 1, for the reason that it gave.

    `except Exception` does not swallow it; a handler that does meets it again at the next boundary.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(EXIT_USER_FAILURE)
        self.reason = reason

    def __str__(self) -> str:
        return self.reason
