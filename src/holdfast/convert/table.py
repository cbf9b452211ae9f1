"""A table of steps: CSV or TSV with a line of names, or JSON: an object a line, or one list.

Columns are found by their names, the usual ones or those of --map.
"""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any

from holdfast.convert.asked import MAX_NS, ConvertOptions, TableColumn
from holdfast.convert.curves import WITHOUT_TRAINING
from holdfast.convert.lines import lines
from holdfast.convert.notes import LogPlace, Notes
from holdfast.convert.seen import Seen
from holdfast.convert.stamps import ElapsedClock, StampClock, clock_of
from holdfast.core.durations import SECOND_NS
from holdfast.errors import ConfigurationError

UNITS_NS = {"s": SECOND_NS, "ms": 1_000_000, "us": 1_000, "ns": 1, "min": 60 * SECOND_NS}
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
_TIMES = ("time", "seconds", "row_seconds", "elapsed")
LATEST_S = MAX_NS // SECOND_NS
DOCUMENT_LIMIT_CHARS = 16 << 20
LOOK_AT = 1000  # so many rows may come before the first with a step
Lines = Iterator[tuple[int, str]]
Rows = Iterator[tuple[int, Mapping[str, Any]]]


def read(paths: list[Path], asked: ConvertOptions, notes: Notes) -> Iterator[Seen]:
    """What the tables tell, in the order of the files; ConfigurationError for unknown columns."""
    table = _Table(asked, notes)
    for path in paths:
        yield Seen("file", LogPlace(str(path)))
        yield from table.read(path)


class _Table:
    """The state over all files: where steps start to count, and the attempt under way."""

    def __init__(self, asked: ConvertOptions, notes: Notes) -> None:
        self._asked = asked
        self._notes = notes
        self._shift: int | None = None  # 1 where the table's first step is 0
        self._last = 0
        self._step: int | None = None  # of the row before, as it says
        self._of_step: Mapping[str, Any] = {}  # the first row of it
        self._attempt: str | None = None
        self._elapsed = ElapsedClock(asked)

    def read(self, path: Path) -> Iterator[Seen]:
        columns: dict[str, TableColumn] = {}
        clock = clock_of(path, self._asked)
        trouble: ConfigurationError | None = None
        for count, (number, row) in enumerate(rows(path, self._notes), 1):
            place = LogPlace(str(path), number)
            try:
                columns = columns or self._columns(place, row)
            except ConfigurationError as error:  # the first line may be about something else
                trouble = trouble or error
                if count >= LOOK_AT:
                    raise trouble from None
                self._notes.odd(place, "it has no step and time: left out")
                continue
            values = {}
            for what, column in columns.items():
                text = row.get(column.name)
                if text is not None and text != "":
                    values[what] = _value(what, text, column, clock, place)
                    if values[what] is None:
                        words = f"its {what} ({column.name}) cannot be read: left out"
                        self._notes.odd(place, words)
                if values.get("step") is None:
                    break  # many rows are about something else
            else:
                yield from self._row(place, self._is_evaluation(row, values["step"]), **values)
        if not columns and trouble is not None:
            raise trouble
        clock.say(str(path), self._notes)

    def _columns(self, place: LogPlace, row: Mapping[str, Any]) -> dict[str, TableColumn]:
        """Which column is what: as asked, else by the usual names."""
        asked = self._asked.columns
        for what, column in asked.items():
            if column.name not in row and what in ("step", "time", "seconds", "row_seconds"):
                raise ConfigurationError(
                    f"--map {what}={column.name}: {place} has no such column; it has {_some(row)}"
                )
        usual = {w: [TableColumn(n) for n in names if n in row] for w, names in USUAL.items()}
        found = dict(asked) | {w: c[0] for w, c in usual.items() if c and w not in asked}
        if "step" not in found or not found.keys() & set(_TIMES):
            missing = "steps" if "step" not in found else "times or durations"
            raise ConfigurationError(
                f"{place} names no column of {missing}; it has {_some(row)}: say which is which, "
                "as in --map step=COLUMN,time=COLUMN (or seconds=, elapsed=)"
            )
        said = ", ".join(f"{what} = {column.name}" for what, column in found.items())
        self._notes.assume(f"columns: {said}", f"columns {said}")
        return {what: found[what] for what in USUAL if what in found}  # the step first

    def _is_evaluation(self, row: Mapping[str, Any], step: int) -> bool:
        """Whether it is one more row of the step before, and tells how an evaluation after it went.

        Lightning's validation has a row of its own, with the step that was the last.
        """
        if step != self._step:
            self._step, self._of_step = step, row
            return False
        empty, before = ("", None), self._of_step
        new = (n for n, v in row.items() if v not in empty and before.get(n) in empty)
        name = next(filter(WITHOUT_TRAINING.search, new), None)
        if name is not None:
            self._notes.evaluates(name)
        return name is not None

    def _row(
        self, place: LogPlace, is_evaluation: bool, step: int, time: int | None = None,
        seconds: int | None = None, row_seconds: int | None = None, elapsed: int | None = None,
        attempt: str | None = None, rank: str | None = None,
    ) -> Iterator[Seen]:  # fmt: skip
        """What a row says; times are nanoseconds."""
        if self._shift is None:
            self._shift = 1 if step == 0 else 0
            if self._shift:
                self._notes.assume("the table counts steps from 0; here the first is 1")
        step += self._shift
        is_another = attempt not in (None, self._attempt)
        self._attempt = attempt or self._attempt
        began_ns = None
        if elapsed is not None and time is None and seconds is None and row_seconds is None:
            time, is_another = self._elapsed.read(elapsed, is_another=is_another)
            began_ns = self._elapsed.start_ns
            self._notes.assume(
                "elapsed times tell nothing of what passed between processes: goodput is an upper "
                "bound"
            )
        if is_another:
            yield Seen("began", place, began_ns, is_sure=True)
        first, is_sample = None, False
        if row_seconds is None and seconds is not None:
            is_sample = not 0 < self._last < step
            steps = 1 if is_sample else step - self._last
            if steps > 1:
                self._notes.assume(
                    "of several steps with one line, each took what that line says (row_seconds= "
                    "in --map: all of them did)",
                    "each took",
                )
            row_seconds, first = seconds * steps, step - steps + 1
        self._last = step
        if is_evaluation and time is not None and not is_another:
            yield Seen("pause", place, time, name="custom:eval")
            return
        yield Seen("step", place, time, step, first, row_seconds, rank, is_sample=is_sample)


def _value(what: str, text: object, column: TableColumn, clock: StampClock, place: LogPlace) -> Any:
    """A text, a step, or nanoseconds: a duration, or a moment (unix time, or a date)."""
    if what in ("attempt", "rank"):
        return str(text)[:200]
    number = _number(text)
    if what == "step":
        return int(number) if number is not None and number.is_integer() and number >= 0 else None
    if number is None:
        return clock.read(str(text)[:200]) if what == "time" else None
    if what == "time" and abs(number) > LATEST_S and not column.unit_ns:
        raise ConfigurationError(
            f"{place}: {text} is not a unix time in seconds; give the unit, as in --map "
            f"time={column.name}:ms (or us, ns)"
        )
    value_ns = number * (column.unit_ns or SECOND_NS)
    can_be = abs(value_ns) <= MAX_NS and (what == "time" or value_ns >= 0)
    return round(value_ns) if can_be else None


def _number(value: object) -> float | None:
    try:
        number = math.nan if isinstance(value, bool) else float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _some(row: Mapping[str, Any]) -> str:
    names = ["".join(c if c.isprintable() else "?" for c in str(n)[:40]) for n in list(row)[:20]]
    return ", ".join(names) + (", …" if len(row) > len(names) else "")


# --- the rows of a file ---


def rows(path: Path, notes: Notes) -> Rows:
    """Each row, by the names of its columns, with the number of its line."""
    found: Lines = (
        (number, text)
        for number, text in lines(path, notes, DOCUMENT_LIMIT_CHARS)
        if text.strip() and text[0] != "#"
    )
    first = next(found, None)
    if first is None:
        return
    number, text = first
    if not text.lstrip().startswith(("{", "[")):
        yield from _separated(text, found, str(path), notes)
        return
    held = [first]
    if _json(text) is None:  # it may begin one value that goes on over many lines
        held += _held(found)
        value = _json("\n".join(line for _, line in held))
        if value is not None:
            held = []
            yield from _objects(number, value)
    for number, text in chain(held, found):
        value = _json(text)
        if value is None:
            notes.odd(LogPlace(str(path), number), "not JSON, or it breaks off: left out")
        yield from _objects(number, value)


def _held(found: Lines) -> Lines:
    """As many lines as one value of JSON may have."""
    chars = 0
    for number, text in found:
        yield number, text
        chars += len(text)
        if chars > DOCUMENT_LIMIT_CHARS:
            return


def _separated(text: str, found: Lines, file: str, notes: Notes) -> Rows:
    """The rows under a line of names."""
    text = text.removeprefix("\N{ZERO WIDTH NO-BREAK SPACE}")
    delimiter = max(",\t;", key=text.count)
    names = [n.strip() for n in _split(text, delimiter)]
    for number, text in found:
        fields = _split(text, delimiter)
        if len(fields) == len(names):
            yield number, dict(zip(names, fields, strict=True))
        else:
            notes.odd(
                LogPlace(file, number), f"not the {len(names)} fields of the first line: left out"
            )


def _split(text: str, delimiter: str) -> list[str]:
    try:
        return next(csv.reader((text,), delimiter=delimiter), [])
    except csv.Error:
        return []


def _objects(number: int, value: object) -> Rows:
    """The objects of a value of JSON: itself, or those of a list."""
    for one in value if isinstance(value, list) else [value]:
        if isinstance(one, dict):
            yield number, one


def _json(text: str) -> object:
    """What it says; None for what is no JSON."""
    try:
        found: object = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return found
