"""What the user says about a log that the log itself does not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, tzinfo

from holdfast.core.durations import SECOND_NS

MAX_NS = 4_000_000_000 * SECOND_NS  # what a history can hold, either side of its origin


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table, and how many nanoseconds its unit has; 0: nothing was said."""

    name: str
    unit_ns: int = 0


@dataclass(frozen=True, slots=True)
class ConvertOptions:
    """The choices of one conversion.

    `start_ns`: when the first process started, for logs without times. `gap_ns`: silence beyond
    what steps take that counts as a restart. `pause`: a row that took so many times what rows
    usually take was held up. `file_times`: a log without times ended when its file last changed.
    `warm_up`: the span kind of what the first steps of a process take too long (the format's).
    """

    name: str | None = None
    chips: int | None = None
    start_ns: int | None = None
    requested_ns: int | None = None
    end_ns: int | None = None
    gap_ns: int = 600 * SECOND_NS
    pause: float = 3.0
    zone: tzinfo = UTC
    file_times: bool = False
    columns: Mapping[str, TableColumn] = field(default_factory=dict)
    tag: str | None = None
    warm_up: str = "startup"
