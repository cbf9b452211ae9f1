"""What readers see in a log: their only vocabulary. Times are nanoseconds; None: the log has none.

Steps are counted as a history counts them: the first is 1, whatever the trainer calls it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Place(NamedTuple):
    """Where something stood."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}" if self.line else self.file


@dataclass(frozen=True, slots=True)
class Stepped:
    """Step `last` was over at `at_ns`, or before: the line may have been written later.

    The row began with step `first`; None: after the row before it. `took_ns` is what the whole row
    took. `writer` tells processes apart whose lines are mixed.
    """

    place: Place
    last: int
    at_ns: int | None = None
    took_ns: int | None = None
    first: int | None = None
    writer: str | None = None


@dataclass(frozen=True, slots=True)
class Began:
    """A process started. `what` says by which line that is known: the same twice is two starts."""

    place: Place
    at_ns: int | None
    what: str
    sure: bool = False  # even right after another start


@dataclass(frozen=True, slots=True)
class Ended:
    """The attempt ended, and how: a cause of the history."""

    place: Place
    at_ns: int | None
    cause: str


@dataclass(frozen=True, slots=True)
class Alive:
    """The process wrote something."""

    at_ns: int


@dataclass(frozen=True, slots=True)
class Paused:
    """A time in which no step advanced, of a history's span kind.

    From `start_ns` to `end_ns` where both are known. `end_ns` alone: it ended then, its length is
    what the row around it took too long. `took_ns` and `after`: so long, right after that step.
    """

    place: Place
    kind: str
    start_ns: int | None = None
    end_ns: int | None = None
    took_ns: int | None = None
    after: int | None = None


@dataclass(frozen=True, slots=True)
class Restoring:
    """A checkpoint with the steps up to `step` is read; a process that trained starts anew."""

    place: Place
    at_ns: int | None
    step: int


@dataclass(frozen=True, slots=True)
class Restored:
    """That reading is over."""

    at_ns: int | None


@dataclass(frozen=True, slots=True)
class NewFile:
    """What follows stands in another file."""

    place: Place


@dataclass(frozen=True, slots=True)
class About:
    """What the log says of the run itself."""

    name: str | None = None
    chips: int | None = None


Seen = Stepped | Began | Ended | Alive | Paused | Restoring | Restored | NewFile | About
