"""A table of steps: CSV or TSV with a line of names, or JSON: an object a line, or one list.

Columns are found by their names, the usual ones or those of --map.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.convert.asked import MAX_NS, NS_PER_S, Asked, Column
from holdfast.convert.notes import Notes
from holdfast.convert.rows import rows
from holdfast.convert.seen import Began, NewFile, Place, Seen, Stepped
from holdfast.convert.stamps import Clock, clock_of
from holdfast.errors import ConfigurationError

WARM_UP = "startup"
UNITS_NS = {"s": NS_PER_S, "ms": 1_000_000, "us": 1_000, "ns": 1, "min": 60 * NS_PER_S}
# What a column can be, and the names under which it is looked for, in this order.
USUAL = {
    "step": ("step", "global_step", "_step", "trainer/global_step", "iteration", "iter", "steps"),
    "time": ("time", "timestamp", "wall_time", "_timestamp", "datetime", "date", "ts"),
    "seconds": ("seconds", "step_time", "step_seconds", "step_time_s", "step_time_seconds",
                "perf/step_time_seconds", "iter_time", "duration", "duration_s"),
    "row_seconds": (),
    "elapsed": ("elapsed", "elapsed_s", "_runtime"),
    "attempt": ("attempt", "restart", "restarts"),
    "rank": ("rank", "global_rank", "process_index"),
}  # fmt: skip
LATEST_S = MAX_NS // NS_PER_S
LOOK_AT = 1000  # so many rows may come before the first with a step


def read(paths: list[Path], asked: Asked, notes: Notes) -> Iterator[Seen]:
    """What the tables tell, in the order of the files; ConfigurationError for unknown columns."""
    table = _Table(asked, notes)
    for path in paths:
        yield NewFile(Place(str(path), 0))
        yield from table.read(path)


class _Table:
    """The state over all files: where steps start to count, and the attempt under way."""

    def __init__(self, asked: Asked, notes: Notes) -> None:
        self._asked = asked
        self._notes = notes
        self._shift: int | None = None  # 1 where the table's first step is 0
        self._last = 0
        self._attempt: str | None = None
        self._base_ns = asked.start_ns or 0
        self._elapsed_ns: int | None = None

    def read(self, path: Path) -> Iterator[Seen]:
        name = str(path)
        found: dict[str, Column] | None = None
        clock = clock_of(path, self._asked)
        trouble: ConfigurationError | None = None
        without = 0
        for number, row in rows(path, self._notes):
            place = Place(name, number)
            if found is None:
                try:
                    found = self._columns(place, row)
                except ConfigurationError as error:  # the first line may be about something else
                    trouble = trouble or error
                    without += 1
                    if without >= LOOK_AT:
                        raise trouble from None
                    self._notes.odd(place, "it has no step and time: left out")
                    continue
            yield from self._row(place, _Values(row, found, place, self._notes, clock))
        if found is None and trouble is not None:
            raise trouble
        clock.say(name, self._notes)

    def _columns(self, place: Place, row: Mapping[str, Any]) -> dict[str, Column]:
        """Which column is what: as asked, else by the usual names."""
        asked = self._asked.columns
        for what, column in asked.items():
            if column.name not in row and what in ("step", "time", "seconds", "row_seconds"):
                raise ConfigurationError(
                    f"--map {what}={column.name}: {place} has no such column; it has {_some(row)}"
                )
        found = dict(asked)
        for what, names in USUAL.items():
            usual = next((n for n in names if n in row), None)
            if what not in found and usual is not None:
                found[what] = Column(usual)
        if "step" not in found or not found.keys() & {"time", "seconds", "row_seconds", "elapsed"}:
            missing = "steps" if "step" not in found else "times or durations"
            raise ConfigurationError(
                f"{place} names no column of {missing}; it has {_some(row)}: say which is which, "
                "as in --map step=COLUMN,time=COLUMN (or seconds=, elapsed=)"
            )
        said = ", ".join(f"{what} = {column.name}" for what, column in found.items())
        self._notes.assume(f"columns: {said}", f"columns {said}")
        return found

    def _row(self, place: Place, values: _Values) -> Iterator[Seen]:
        step = values.whole("step")
        if step is None:
            return
        if self._shift is None:
            self._shift = 1 if step == 0 else 0
            if self._shift:
                self._notes.assume("the table counts steps from 0; here the first is 1")
        step += self._shift
        at_ns, took_ns, row_ns = (
            values.time_ns(),
            values.span_ns("seconds"),
            values.span_ns("row_seconds"),
        )
        attempt = values.text("attempt")
        if attempt is not None and attempt != self._attempt:
            self._attempt, self._elapsed_ns = attempt, None
            yield Began(place, None, "attempt", sure=True)
        elapsed_ns = values.span_ns("elapsed")
        if elapsed_ns is not None and at_ns is None and took_ns is None and row_ns is None:
            if self._elapsed_ns is None or elapsed_ns < self._elapsed_ns:
                self._base_ns += self._elapsed_ns or 0
                self._notes.assume(
                    "elapsed times tell nothing of what passed between processes: goodput is an "
                    "upper bound"
                )
                yield Began(place, self._base_ns, "elapsed", sure=True)
            self._elapsed_ns = elapsed_ns
            at_ns = self._base_ns + elapsed_ns
        first = None
        if row_ns is None and took_ns is not None:
            steps = step - self._last if 0 < self._last < step else 1
            if steps > 1:
                self._notes.assume(
                    "of several steps with one line, each took what that line says (row_seconds= "
                    "in --map: all of them did)",
                    "each took",
                )
            row_ns, first = took_ns * steps, step - steps + 1
        self._last = step
        yield Stepped(place, step, at_ns, row_ns, first, values.text("rank"))


class _Values:
    """The fields of one row, as what they mean; what cannot be is said, and None."""

    def __init__(
        self,
        row: Mapping[str, Any],
        columns: Mapping[str, Column],
        place: Place,
        notes: Notes,
        clock: Clock,
    ) -> None:
        self._row, self._columns, self._place = row, columns, place
        self._notes, self._clock = notes, clock

    def _get(self, what: str) -> Any:
        column = self._columns.get(what)
        value = None if column is None else self._row.get(column.name)
        return None if value == "" else value

    def text(self, what: str) -> str | None:
        """A value as it stands."""
        value = self._get(what)
        return None if value is None else str(value)[:200]

    def whole(self, what: str) -> int | None:
        """A whole number, also spelled 12.0; none at all is no oddity: many rows are about else."""
        value = self._get(what)
        number = _number(value)
        if number is None or not number.is_integer() or number < 0:
            if value is not None:
                self._odd(what)
            return None
        return int(number)

    def span_ns(self, what: str) -> int | None:
        """A duration; seconds, if no unit was said."""
        value = self._get(what)
        if value is None:
            return None
        number = _number(value)
        unit_ns = self._columns[what].unit_ns or NS_PER_S
        if number is None or not 0 <= number * unit_ns <= MAX_NS:
            self._odd(what)
            return None
        return round(number * unit_ns)

    def time_ns(self) -> int | None:
        """A moment: unix time in the unit that was said (seconds, if none), or a date."""
        value = self._get("time")
        if value is None:
            return None
        number, unit_ns = _number(value), self._columns["time"].unit_ns
        if number is None:
            found = self._clock.read(str(value)[:200])
            if found is None:
                self._odd("time")
            return found
        if abs(number) > LATEST_S and not unit_ns:
            raise ConfigurationError(
                f"{self._place}: {value} is not a unix time in seconds; give the unit, as in --map "
                f"time={self._columns['time'].name}:ms (or us, ns)"
            )
        if not abs(number) * (unit_ns or NS_PER_S) <= MAX_NS:
            self._odd("time")
            return None
        return round(number * (unit_ns or NS_PER_S))

    def _odd(self, what: str) -> None:
        self._notes.odd(
            self._place, f"its {what} ({self._columns[what].name}) cannot be read: left out"
        )


def _number(value: object) -> float | None:
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return None
    try:
        number = float(value)
    except (ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _some(row: Mapping[str, Any]) -> str:
    names = ["".join(c if c.isprintable() else "?" for c in str(n)[:40]) for n in list(row)[:20]]
    return ", ".join(names) + (", …" if len(row) > len(names) else "")
