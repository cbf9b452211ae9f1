"""A record of outages: a header `start,end,node,cause`, then a line for each.

Times are seconds, or dates as of ISO 8601 (without a zone: UTC). The end is empty where the node
never came back, and counts for nothing where a process failed or hung: its node stays. Lines of
`rack` or `slice` with one start are one failure of all their nodes. A node is there but for its
outages.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from holdfast.core.history.line import shorten
from holdfast.sim.faults import IN_PLACE, FaultCause
from holdfast.sim.trace_text import CLOCK_NS, NS_PER_S, Lines, Row
from holdfast.sim.traces import TraceChange

COLUMNS = ("start", "end", "node", "cause")


class Outage(NamedTuple):
    """From when till when, None: for ever."""

    start_ns: int
    end_ns: int | None
    node: str
    cause: FaultCause
    line: int


def read_outages(lines: Lines) -> tuple[list[TraceChange], list[str]]:
    """The changes in the order of time, and the names of the nodes."""
    header, *rows = lines.rows
    columns = _columns(lines, header)
    if not rows:
        raise lines.wrong(header.line, "no outage follows; write one a line, or replay no trace")
    clock = _Clock(lines)
    outages = [_outage(lines, clock, row, columns) for row in rows]
    begin_ns = min(outage.start_ns for outage in outages) if clock.is_clock else 0
    whole = _whole(lines, _in_order(lines, outages))
    names = {outage.node: 0 for outage in whole}
    numbers = {node: number for number, node in enumerate(names)}
    changes = []
    for outage in whole:
        number = numbers[outage.node]
        changes.append(TraceChange(outage.start_ns - begin_ns, number, outage.cause))
        if outage.end_ns is not None and outage.cause not in IN_PLACE:
            changes.append(TraceChange(outage.end_ns - begin_ns, number, None))
    return sorted(changes, key=lambda change: change.at_ns), list(names)


class _Clock:
    """All times of a file are dates, or all are seconds of a run."""

    def __init__(self, lines: Lines) -> None:
        self.is_clock = False
        self._lines = lines
        self._line = 0  # that of the first time

    def read_ns(self, line: int, text: str) -> int:
        ns = self._lines.number_ns(line, text, "seconds", NS_PER_S)
        is_clock = ns is None or ns >= CLOCK_NS
        if ns is None:
            ns = self._lines.date_ns(line, text)
        if not self._line:
            self.is_clock, self._line = is_clock, line
        elif is_clock != self.is_clock:
            raise self._lines.wrong(
                line,
                f"{shorten(text)} and the time in line {self._line} are not of one kind; write "
                "dates in all lines, or seconds of the run in all",
            )
        return ns


def _columns(lines: Lines, header: Row) -> list[int]:
    """Where in a line start, end, node and cause are."""
    names = [field.lower() for field in header.fields]
    for name in COLUMNS:
        if names.count(name) != 1:
            has = f"has {names.count(name)} columns" if name in names else "has no column"
            raise lines.wrong(
                header.line, f"the header {has} `{name}`; write {','.join(COLUMNS)}, once each"
            )
    return [names.index(name) for name in COLUMNS]


def _outage(lines: Lines, clock: _Clock, row: Row, columns: Sequence[int]) -> Outage:
    line, fields = row.line, lines.fields(row, *lines.rows[0].fields)
    start, end, node, word = (fields[column] for column in columns)
    start_ns = clock.read_ns(line, start)
    end_ns = clock.read_ns(line, end) if end else None
    if end_ns is not None and end_ns < start_ns:
        raise lines.wrong(
            line,
            f"the outage ends at {shorten(end)}, before its start at {shorten(start)}; "
            "correct one of the two",
        )
    try:
        cause = FaultCause(word.lower())
    except ValueError:
        cause = FaultCause.HOST
        known = ", ".join(FaultCause)
        lines.note(
            line,
            f"has the cause {shorten(word) or '(none)'}, which is none of {known}: taken as host",
        )
    return Outage(start_ns, end_ns, lines.name(line, node), cause, line)


def _in_order(lines: Lines, outages: Sequence[Outage]) -> list[Outage]:
    ordered = sorted(outages, key=lambda outage: outage.start_ns)
    if ordered != list(outages):
        late = next(b for a, b in pairwise(outages) if b.start_ns < a.start_ns)
        lines.note(late.line, "starts before the line above; all lines are put in order by start")
    return ordered


def _whole(lines: Lines, ordered: Sequence[Outage]) -> list[Outage]:
    """Outages of a node that overlap are one."""
    seen: dict[Outage, int] = {}
    away: dict[str, int] = {}  # where the last outage of a node is in `whole`
    whole: list[Outage] = []
    for outage in ordered:
        first_line = seen.setdefault(outage._replace(line=0), outage.line)
        if first_line != outage.line:
            lines.note(outage.line, f"repeats line {first_line}; it is left out")
            continue
        if outage.cause in IN_PLACE:
            whole.append(outage)
            continue
        last = whole[away[outage.node]] if outage.node in away else None
        if last is None or (last.end_ns is not None and last.end_ns < outage.start_ns):
            away[outage.node] = len(whole)
            whole.append(outage)
            continue
        if last.end_ns is None:
            raise lines.wrong(
                outage.line,
                f"{shorten(outage.node)} is lost, but by line {last.line} it was lost before and "
                "never came back; give that line its end",
            )
        if outage.start_ns < last.end_ns:
            lines.note(outage.line, f"overlaps line {last.line}: taken as one outage")
        end_ns = None if outage.end_ns is None else max(last.end_ns, outage.end_ns)
        whole[away[outage.node]] = last._replace(end_ns=end_ns)
    return whole
