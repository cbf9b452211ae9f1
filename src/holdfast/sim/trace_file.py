"""Traces as they are published: which of three formats a file has, and what it says.

1. `milliseconds,add|remove,node`: machines that came and went; at first there is none.
2. `date,time,nodes held`: how many were there; which ones is not known.
3. Outages: a header `start,end,node,cause`, then one a line (see `sim.outages`).

Dates, and times from 10^9 seconds on, are those of a clock: the trace begins with the first.
"""

from __future__ import annotations

import os
import re

from holdfast.core.history.line import shorten
from holdfast.errors import TraceError
from holdfast.sim.faults import FaultCause
from holdfast.sim.outages import COLUMNS, read_outages
from holdfast.sim.trace_text import CLOCK_NS, NS_PER_S, Lines, read_lines
from holdfast.sim.traces import Trace, TraceChange

NS_PER_MS = 1_000_000
LONG_GAP_NS = 3600 * NS_PER_S
MOST_NODES = 1_000_000
FORMATS = (
    "a trace has lines `milliseconds,add|remove,node`, or `date,time,nodes held`, or a header "
    "`start,end,node,cause` and an outage a line"
)
_DATE = re.compile(r"\d+-\d+-\d+")


def read_trace(path: str | os.PathLike[str]) -> Trace:
    """Read a trace; its first line tells the format.

    What can be taken in one way only is taken so and noted: a line that repeats another, an hour
    without a count, outages that overlap or are not in the order of time, an unknown cause.

    Raises ConfigurationError when there is no such file, and TraceError, which names the line, when
    it is no trace or an impossible one.
    """
    lines = read_lines(path)
    if not lines.rows:
        raise lines.wrong(1, f"the file is empty; {FORMATS}")
    line, fields = lines.rows[0]
    if fields[1:2] in (["add"], ["remove"]):
        changes, names = _members(lines)
    elif _DATE.fullmatch(fields[0]) and len(fields) == 3:
        changes, names = _counts(lines), []
    elif {field.lower() for field in fields} & set(COLUMNS):
        changes, names = read_outages(lines)
        return Trace(tuple(changes), tuple(names), are_there=True, notes=tuple(lines.notes))
    else:
        raise lines.wrong(
            line, f"{shorten(','.join(fields))} is not the first line of a trace; {FORMATS}"
        )
    return Trace(tuple(changes), tuple(names), are_there=False, notes=tuple(lines.notes))


def _members(lines: Lines) -> tuple[list[TraceChange], list[str]]:
    numbers: dict[str, int] = {}
    last: dict[str, tuple[int, int, str]] = {}  # of each node: time, line, add or remove
    changes: list[TraceChange] = []
    begin_ns = before_ns = 0
    for row in lines.rows:
        line = row.line
        text, word, node = lines.fields(row, "milliseconds", "add|remove", "node")
        at_ns = lines.number_ns(line, text, "milliseconds", NS_PER_MS)
        if at_ns is None:
            raise lines.wrong(line, f"{shorten(text)} is not a time; write milliseconds, a number")
        if word not in ("add", "remove"):
            raise lines.wrong(line, f"{shorten(word)} is neither add nor remove; write one of them")
        if at_ns < before_ns:
            raise _goes_back(lines, line, f"{text} ms")
        if not changes and at_ns >= CLOCK_NS:
            begin_ns = at_ns
        before_ns = at_ns
        number = numbers.setdefault(lines.name(line, node), len(numbers))
        then_ns, then_line, did = last.get(node, (-1, 0, "remove"))
        if (then_ns, did) == (at_ns, word):
            lines.note(line, f"repeats line {then_line}; it is left out")
            continue
        if did == word:
            raise lines.wrong(line, _clash(shorten(node), word, then_line))
        last[node] = at_ns, line, word
        if word == "remove" and then_ns == at_ns:
            lines.note(line, f"takes back line {then_line} at once; both are left out")
            changes.remove(TraceChange(at_ns - begin_ns, number, None))
            continue
        cause = FaultCause.HOST if word == "remove" else None
        changes.append(TraceChange(at_ns - begin_ns, number, cause))
    return changes, list(numbers)


def _clash(node: str, word: str, then_line: int) -> str:
    if word == "add":
        why = f"is there since line {then_line}"
    elif then_line:
        why = f"is gone since line {then_line}"
    else:
        why = "was never added"
    done = "added" if word == "add" else "removed"
    return f"{node} is {done}, but it {why}; write the line that is missing before, or drop this"


def _counts(lines: Lines) -> list[TraceChange]:
    changes: list[TraceChange] = []
    begin_ns = before_ns = None
    held = before_line = 0
    for row in lines.rows:
        line = row.line
        date, time, text = lines.fields(row, "date", "time", "nodes held")
        at_ns = lines.date_ns(line, f"{date} {time}")
        if not (text.isdecimal() and len(text) < 9 and int(text) <= MOST_NODES):
            raise lines.wrong(
                line, f"{shorten(text)} is not a number of nodes; write one from 0 to {MOST_NODES}"
            )
        now = int(text)
        if begin_ns is None or before_ns is None:
            begin_ns = at_ns
        elif at_ns < before_ns:
            raise _goes_back(lines, line, f"{date} {time}")
        elif at_ns == before_ns:
            if now != held:
                raise lines.wrong(
                    line,
                    f"{now} nodes at {date} {time}, but line {before_line} has {held} for the same "
                    "time; keep one of the two",
                )
            lines.note(line, f"repeats line {before_line}; it is left out")
        elif at_ns - before_ns > LONG_GAP_NS:
            minutes = (at_ns - before_ns) // (60 * NS_PER_S)
            lines.note(
                line, f"comes {minutes} minutes after the count before; until then it is unchanged"
            )
        cause = FaultCause.HOST if now < held else None
        changes += [TraceChange(at_ns - begin_ns, None, cause)] * abs(now - held)
        held, before_ns, before_line = now, at_ns, line
    return changes


def _goes_back(lines: Lines, line: int, time: str) -> TraceError:
    return lines.wrong(
        line, f"{time} is before the time of the line above; put the lines in the order of time"
    )
