"""The time that stands in a line: many spellings, one clock of unix nanoseconds."""

from __future__ import annotations

import re
from calendar import timegm
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from pathlib import Path

from holdfast.convert.asked import MAX_NS, NS_PER_S, ConvertOptions
from holdfast.convert.lines import head
from holdfast.convert.notes import Notes

# Where the stamp may begin: after the words of a logger, a rank or a pod.
_FAR = 120
_GLOG = re.compile(r"(?<![A-Za-z])[IWEFD](\d\d)(\d\d) (\d\d):(\d\d):(\d\d)\.(\d{1,9})", re.ASCII)
_ISO = re.compile(
    r"(?<!\d)(\d{4})[-/](\d\d)[-/](\d\d)[T ](\d\d):(\d\d):(\d\d)(?:[.,](\d{1,9}))?"
    r" ?(Z|[+-]\d\d:?\d\d|[A-Z]{2,4}\b)?",
    re.ASCII,
)
_HOURS = {
    "Z": 0, "UTC": 0, "GMT": 0, "PST": -8, "PDT": -7, "MST": -7, "MDT": -6, "CST": -6, "CDT": -5,
    "EST": -5, "EDT": -4, "WET": 0, "WEST": 1, "CET": 1, "CEST": 2, "EET": 2, "EEST": 3,
}  # fmt: skip


class StampClock:
    """Reads the stamps of one log, in its order.

    `zone`: of stamps that name none. `year`: of the last stamp of a log whose stamps have no year.
    """

    def __init__(self, zone: tzinfo = UTC, year: int | None = None) -> None:
        self._zone = zone
        self._year = year
        self._month = 0
        self._readers: list[Callable[[str], int | None]] = [self._glog, self._iso]
        self._second: tuple[tuple[str, ...], int] | None = None
        self._has_no_zone = False
        self._has_no_year = False

    def read(self, line: str) -> int | None:
        """The time in the line; None: there is none, or one that cannot be."""
        for reader in self._readers:
            if (found := reader(line)) is not None:
                if reader is not self._readers[0]:
                    self._readers.reverse()
                return found
        return None

    def say(self, file: str, notes: Notes) -> None:
        """Note what had to be assumed of the stamps so far."""
        if self._has_no_zone:
            notes.assume(f"times without a zone are taken for {self._zone} (--timezone)", "zone")
        if self._has_no_year:
            notes.assume(
                f"{file}: its times have no year; {self._year} is assumed, from when the file was "
                "last changed, or --start",
                f"year of {file}",
            )

    def _glog(self, line: str) -> int | None:
        match = _GLOG.search(line, 0, _FAR)
        if match is None or self._year is None:
            return None
        month, *rest, decimals = match.groups()
        if self._month == 12 and int(month) == 1:
            self._year += 1
        self._has_no_year = self._has_no_zone = True
        found = self._moment((str(self._year), month, *rest), decimals, self._zone)
        if found is not None:
            self._month = int(month)
        return found

    def _iso(self, line: str) -> int | None:
        match = _ISO.search(line, 0, _FAR)
        if match is None:
            return None
        *fields, decimals, name = match.groups()
        zone = _zone(name)
        self._has_no_zone = self._has_no_zone or zone is None
        return self._moment(tuple(fields), decimals or "0", zone or self._zone)

    def _moment(self, fields: tuple[str, ...], decimals: str, zone: tzinfo) -> int | None:
        key = (*fields, str(zone))
        if self._second is None or self._second[0] != key:
            try:
                moment = datetime(*map(int, fields), tzinfo=zone)  # type: ignore[arg-type, misc]
                self._second = (key, timegm(moment.astimezone(UTC).timetuple()))
            except (ValueError, OverflowError):
                return None
        return self._second[1] * NS_PER_S + int(decimals.ljust(9, "0"))


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


def moment_ns(text: str, zone: tzinfo) -> int | None:
    """A time that stands alone: unix seconds, or ISO 8601 (without a zone: of `zone`).

    None for anything else, and for a moment that no history can hold.
    """
    try:
        seconds = float(text)
    except ValueError:
        try:
            moment = datetime.fromisoformat(text.strip())
        except ValueError:
            return StampClock(zone).read(text)
        moment = moment.replace(tzinfo=zone) if moment.tzinfo is None else moment
        try:
            whole = timegm(moment.astimezone(UTC).timetuple())
        except OverflowError:
            return None
        found = whole * NS_PER_S + moment.microsecond * 1000
        return found if abs(found) <= MAX_NS else None
    return round(seconds * NS_PER_S) if abs(seconds) <= MAX_NS // NS_PER_S else None


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
        changed = datetime.fromtimestamp(asked.start_ns / NS_PER_S, asked.zone)
        return StampClock(asked.zone, changed.year)
    first = _GLOG.search(head(path).decode("utf-8", "replace")) if path.is_file() else None
    is_last_years = first is not None and int(first[1]) > changed.month
    return StampClock(asked.zone, changed.year - is_last_years)
