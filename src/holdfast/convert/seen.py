"""What readers see in a log: their only vocabulary. Times are nanoseconds; None: the log has none.

Steps are counted as a history counts them: the first is 1, whatever the trainer calls it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class LogPlace(NamedTuple):
    """Where something stood."""

    file: str
    line: int = 0

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class LogEntry:
    """The process wrote something; the kinds below say what."""

    place: LogPlace
    at_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped(LogEntry):
    """Step `last` was over at `at_ns`, or before: the line may have been written later.

    The row began with step `first`; None: after the row before it. `took_ns` is what the whole row
    took. `writer` tells processes apart whose lines are mixed.
    """

    last: int
    took_ns: int | None = None
    first: int | None = None
    writer: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Began(LogEntry):
    """A process started. `what` says by which line that is known: the same twice is two starts."""

    what: str
    sure: bool = False  # even right after another start


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEnded(LogEntry):
    """The attempt ended, and how: a cause of the history."""

    cause: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Paused(LogEntry):
    """No step advanced, for a span kind of the history.

    It ended at `at_ns`; without `start_ns` its length is what the row around it took too long.
    Without `at_ns`: it took `took_ns`, right after the step `after`.
    """

    kind: str
    start_ns: int | None = None
    took_ns: int = 0
    after: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Restoring(LogEntry):
    """A checkpoint with the steps up to `step` is read; a process that trained starts anew."""

    step: int


@dataclass(frozen=True, slots=True)
class RestoreEnded(LogEntry):
    """That reading is over."""


@dataclass(frozen=True, slots=True)
class NewFile(LogEntry):
    """What follows stands in another file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class About(LogEntry):
    """What the log says of the run itself."""

    name: str | None = None
    chips: int | None = None
