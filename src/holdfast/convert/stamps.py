"""The times that a log has: stamps of many spellings, or what a process says that it ran so far."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

from holdfast.convert.asked import ConvertOptions
from holdfast.convert.lines import head
from holdfast.convert.notes import Notes
from holdfast.core.durations import SECOND_NS

_FAR = 120  # where a stamp may begin: after the words of a logger, a rank or a pod
# Either a date with a year and perhaps a zone, or glog's letter, month and day.
_STAMP = re.compile(
    r"(?<!\d)(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?"
    r" ?(Z|[+-]\d\d:?\d\d|[A-Z]{2,4}\b)?"
    r"|(?<![A-Za-z])[IWEFD](\d\d)(\d\d) (\d\d:\d\d:\d\d)\.(\d{1,9})",
    re.ASCII,
)
_HOURS = {
    "Z": 0, "UTC": 0, "GMT": 0, "PST": -8, "PDT": -7, "MST": -7, "MDT": -6, "CST": -6, "CDT": -5,
    "EST": -5, "EDT": -4, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3,
}  # fmt: skip
_LATE = timedelta(minutes=1)  # a thread's line stands so far behind a later one
_EPOCH, _SECOND = datetime(1970, 1, 1, tzinfo=UTC), timedelta(seconds=1)


class StampClock:
    """Reads the stamps of one log, in its order.

    `zone`: of stamps that name none. `year`, `month`: near the first stamp of a log whose stamps
    have no year; the next ones are each near the one before.
    """

    def __init__(self, zone: tzinfo = UTC, year: int | None = None, month: int = 0) -> None:
        self._zone = zone
        self._year, self._month = year, month
        self._years: set[int] = set()  # that were assumed
        self._has_no_zone = False
        self._last: timedelta | None = None  # the last stamp without a zone

    def read(self, line: str) -> int | None:
        """The time in the line; None: there is none, or one that cannot be."""
        found = _STAMP.search(line, 0, _FAR)
        if found is None:
            return None
        year, month, day, clock, decimals, name, *glog = found.groups()
        if glog[0] is not None:
            if self._year is None:
                return None
            month, day, clock, decimals = glog
            year = f"{self._year_near(int(month)):04}"
        zone = _zone(name)
        self._has_no_zone = self._has_no_zone or zone is None
        try:
            moment = datetime.fromisoformat(f"{year}-{month}-{day}T{clock}")
            since = self._since(moment) if zone is None else moment.replace(tzinfo=zone) - _EPOCH
        except (ValueError, OverflowError):
            return None
        if glog[0] is not None:
            self._year, self._month = moment.year, moment.month
            self._years.add(moment.year)
        return since // _SECOND * SECOND_NS + int((decimals or "").ljust(9, "0"))

    def _since(self, moment: datetime) -> timedelta:
        """Of an hour that comes twice, as clocks are set back in autumn, the one that goes on."""
        twice = [moment.replace(tzinfo=self._zone, fold=fold) - _EPOCH for fold in (0, 1)]
        least = twice[0] if self._last is None else self._last - _LATE
        self._last = next((since for since in twice if since >= least), twice[0])
        return self._last

    def _year_near(self, month: int) -> int:
        """That of the last stamp, or one beside it where the month is nearer to it then."""
        later = month - self._month if self._month else 0
        return (self._year or 0) + (later < -6) - (later > 6)

    def say(self, file: str, notes: Notes) -> None:
        """Note what had to be assumed of the stamps so far."""
        if self._has_no_zone:
            notes.assume(f"times without a zone are taken for {self._zone} (--timezone)", "zone")
        if self._years:
            years = " to ".join(map(str, sorted({min(self._years), max(self._years)})))
            notes.assume(
                f"{file}: its times have no year; {years} is assumed, from when the file was "
                "last changed, or --start",
                f"year of {file}",
            )


def _zone(text: str | None) -> tzinfo | None:
    """An offset or one of the usual names; None for nothing, and for words that are none."""
    if text in _HOURS:
        return timezone(timedelta(hours=_HOURS[text]))
    if text is None or text[0] not in "+-":
        return None
    hours, minutes = int(text[1:3]), int(text[-2:])
    if hours > 23 or minutes > 59:
        return None
    offset = timedelta(hours=hours, minutes=minutes)
    return timezone(-offset if text[0] == "-" else offset)


def in_order(paths: list[Path], asked: ConvertOptions, notes: Notes) -> list[Path]:
    """Logs by their first times, if each has one; else as they are."""
    begun: list[tuple[int, int, Path]] = []
    for path in paths:
        clock = clock_of(path, asked)
        lines_ = head(path).decode("utf-8", "replace").splitlines() if path.is_file() else []
        first_ns = next((at for at in map(clock.read, lines_) if at is not None), None)
        if first_ns is None:
            return paths
        begun.append((first_ns, len(begun), path))
    found = [path for _, _, path in sorted(begun)]
    if found != paths:
        notes.assume("the logs are read in the order of their first times")
    return found


def clock_of(path: Path, asked: ConvertOptions) -> StampClock:
    """A clock for a log; the year of stamps without one is that of the file's last change."""
    try:
        changed = datetime.fromtimestamp(path.stat().st_mtime, asked.zone)
    except (OSError, OverflowError, ValueError):
        return StampClock(asked.zone)
    if asked.start_ns is not None:
        changed = datetime.fromtimestamp(asked.start_ns / SECOND_NS, asked.zone)
        return StampClock(asked.zone, changed.year, changed.month)
    stamps = _STAMP.finditer(head(path).decode("utf-8", "replace") if path.is_file() else "")
    month = next((int(found[7]) for found in stamps if found[7]), 0)
    return StampClock(asked.zone, changed.year - (month > changed.month))


class ElapsedClock:
    """The times of processes, one after another, that say how long they have run."""

    def __init__(self, asked: ConvertOptions) -> None:
        self.start_ns = asked.start_ns or 0
        """Of the process that is heard: nothing tells what passed between two."""
        self._elapsed_ns: int | None = None

    def read(self, elapsed_ns: int, *, is_another: bool = False) -> tuple[int, bool]:
        """The moment, and whether it is the first of a process; less than before is another's."""
        began = is_another or self._elapsed_ns is None or elapsed_ns < self._elapsed_ns
        if began:
            self.start_ns += self._elapsed_ns or 0
        self._elapsed_ns = elapsed_ns
        return self.start_ns + elapsed_ns, began
