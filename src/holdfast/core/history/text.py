"""A history: a run's events as JSON lines. Text → facts, facts → text; no files here.

A million lines should be read in seconds, so completed steps and closed spans, which are nearly
all of them, stay in columns. Their usual spelling, the one that `to_lines` and `json.dumps` write,
is read by one regular expression over a whole block of lines; whatever else a line may be goes
through `decode`.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby, repeat
from operator import add, mul

from holdfast.core.history.check import check
from holdfast.core.history.line import NS_PER_S, SCALE, decode, encode
from holdfast.core.history.rows import SpanRows, StepRows
from holdfast.core.ledger.facts import Fact, SpanFact, StepsFact
from holdfast.errors import HistoryError

# Numbers of so many digits are always within the limits that `decode` knows.
_ATTEMPT = r'"attempt": ?(\d{1,9})'
_TIMES = r'"start": ?([0-3]?\d{1,9})\.(\d{1,9}), ?"end": ?([0-3]?\d{1,9})\.(\d{1,9})'
_STEP_LINE = re.compile(
    rf'^\{{"event": ?"step", ?{_ATTEMPT}, ?"step": ?([1-9]\d{{0,11}}), ?{_TIMES}\}}\r?$',
    re.MULTILINE | re.ASCII,
)
_SPAN_LINE = re.compile(
    rf'^\{{"event": ?"span", ?{_ATTEMPT}, ?"kind": ?"(data|save|custom:\w+)", ?{_TIMES}\}}\r?$',
    re.MULTILINE | re.ASCII,
)
_ONLY_IN_SPANS = '"kind"'  # tells a line that matched _SPAN_LINE from one that matched _STEP_LINE
_Groups = tuple[str, ...]  # what a line's expression captured


@dataclass(frozen=True, slots=True)
class History:
    """What a history file says: completed steps and closed spans by attempt, `facts` the rest.

    `lines[i]` is where `facts[i]` stood; `span_kinds` names the kinds of the spans.
    """

    facts: tuple[Fact, ...]
    lines: tuple[int, ...]
    steps: dict[int, StepRows]
    spans: dict[int, SpanRows]
    span_kinds: tuple[str, ...]

    def all_facts(self) -> list[Fact]:
        """Every fact, in the file's order."""
        found: list[tuple[int, Fact]] = list(zip(self.lines, self.facts, strict=True))
        for attempt, rows in self.steps.items():
            for line, first, last, start_ns, end_ns in zip(
                rows.line, rows.first, rows.last, rows.start_ns, rows.end_ns, strict=True
            ):
                found.append((line, StepsFact(attempt, first, last, start_ns, end_ns)))
        for attempt, marks in self.spans.items():
            for line, kind, start_ns, end_ns in zip(
                marks.line, marks.kind, marks.start_ns, marks.end_ns, strict=True
            ):
                found.append((line, SpanFact(attempt, self.span_kinds[kind], start_ns, end_ns)))
        return [fact for _, fact in sorted(found, key=lambda pair: pair[0])]


def parse(blocks: Iterable[str]) -> History:
    """Read a history from its text, given as blocks of whole lines (or as its lines).

    Lines may come in any order; blank ones are skipped. Raises HistoryError, with the line's
    number, for whatever cannot be: see `decode` for a single line, `check` for what lines say
    together.
    """
    reading = _Reading()
    for block in blocks:
        reading.read(block)
    if reading.is_empty:
        raise HistoryError(
            max(reading.number, 1), "the file is empty; a history has at least a run line"
        )
    for rows in reading.steps.values():
        rows.sort()
    check(reading.facts, reading.lines, reading.steps, reading.spans, reading.number)
    return History(
        tuple(reading.facts),
        tuple(reading.lines),
        reading.steps,
        reading.spans,
        tuple(reading.span_kinds),
    )


def parse_text(text: str) -> History:
    """Read a history that is all in one string."""
    return parse([text] if text else [])


def to_lines(facts: Iterable[Fact]) -> Iterator[str]:
    """The lines of a history, each with its line end. `parse` reads back the very same facts."""
    for fact in facts:
        yield encode(fact) + "\n"


@dataclass(slots=True)
class _Reading:
    """What has been read so far; `number` is that of the last line."""

    number: int = 0
    facts: list[Fact] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    steps: dict[int, StepRows] = field(default_factory=dict)
    spans: dict[int, SpanRows] = field(default_factory=dict)
    span_kinds: dict[str, int] = field(default_factory=dict)

    @property
    def is_empty(self) -> bool:
        return not (self.facts or self.steps or self.spans)

    def read(self, block: str) -> None:
        """Read a block of whole lines; only the file's last line may lack its line end."""
        count = block.count("\n") + (not block.endswith("\n"))
        numbers = range(self.number + 1, self.number + count + 1)
        steps = _STEP_LINE.findall(block)
        if len(steps) == count:
            self.add_steps(steps, numbers)
        else:
            spans = _SPAN_LINE.findall(block)
            if len(steps) + len(spans) == count:
                is_span = [_ONLY_IN_SPANS in text for text in block.split("\n")]
                self.add_steps(steps, [n for n, yes in zip(numbers, is_span) if not yes])  # noqa: B905
                self.add_spans(spans, [n for n, yes in zip(numbers, is_span) if yes])  # noqa: B905
            else:
                self.read_lines(block)
        self.number += count

    def read_lines(self, block: str) -> None:
        """Read a block in which other lines are mixed with the usual ones."""
        texts = block.split("\n")
        steps: list[tuple[int, _Groups]] = []
        spans: list[tuple[int, _Groups]] = []
        for number, text in enumerate(texts, self.number + 1):
            if match := _STEP_LINE.match(text):
                steps.append((number, match.groups()))
            elif match := _SPAN_LINE.match(text):
                spans.append((number, match.groups()))
            elif stripped := text.strip():
                torn = number == self.number + len(texts)  # the line end is missing
                self.add(decode(stripped, number, torn=torn), number)
        self.add_steps([groups for _, groups in steps], [number for number, _ in steps])
        self.add_spans([groups for _, groups in spans], [number for number, _ in spans])

    def add(self, fact: Fact, number: int) -> None:
        """Put one fact where it belongs."""
        if isinstance(fact, StepsFact) and fact.end_ns is not None:
            row = (fact.first, fact.last, fact.start_ns, fact.end_ns, number)
            self.steps.setdefault(fact.attempt, StepRows()).extend(*((value,) for value in row))
        elif isinstance(fact, SpanFact) and fact.end_ns is not None:
            kind = self.span_kinds.setdefault(fact.kind, len(self.span_kinds))
            mark = (kind, fact.start_ns, fact.end_ns, number)
            self.spans.setdefault(fact.attempt, SpanRows()).extend(*((value,) for value in mark))
        else:
            self.facts.append(fact)
            self.lines.append(number)

    def add_steps(self, found: Sequence[_Groups], numbers: Sequence[int]) -> None:
        """Add what `_STEP_LINE` found in the lines with these numbers."""
        if not found:
            return
        attempts, names, *times = zip(*found, strict=True)
        step = array("q", map(int, names))
        start_ns, end_ns = _nanoseconds(*times[:2]), _nanoseconds(*times[2:])
        for attempt, part in _stretches(attempts):
            self.steps.setdefault(attempt, StepRows()).extend(
                step[part], step[part], start_ns[part], end_ns[part], numbers[part]
            )

    def add_spans(self, found: Sequence[_Groups], numbers: Sequence[int]) -> None:
        """Add what `_SPAN_LINE` found in the lines with these numbers."""
        if not found:
            return
        attempts, names, *times = zip(*found, strict=True)
        for name in dict.fromkeys(names):
            self.span_kinds.setdefault(name, len(self.span_kinds))
        kind = array("q", map(self.span_kinds.__getitem__, names))
        start_ns, end_ns = _nanoseconds(*times[:2]), _nanoseconds(*times[2:])
        for attempt, part in _stretches(attempts):
            self.spans.setdefault(attempt, SpanRows()).extend(
                kind[part], start_ns[part], end_ns[part], numbers[part]
            )


def _nanoseconds(whole: _Groups, decimals: _Groups) -> array[int]:
    """Seconds, as the texts before and after the point → nanoseconds, exactly."""
    rest = map(mul, map(int, decimals), map(SCALE.__getitem__, map(len, decimals)))
    return array("q", map(add, map(mul, map(int, whole), repeat(NS_PER_S)), rest))


def _stretches(attempts: _Groups) -> Iterator[tuple[int, slice]]:
    """Where the same attempt stands in consecutive entries."""
    low = 0
    for attempt, group in groupby(attempts):
        high = low + sum(1 for _ in group)
        yield int(attempt), slice(low, high)
        low = high
