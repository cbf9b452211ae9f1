"""A history: a run's events as JSON lines. Text → facts, facts → text; no files here.

A million lines should be read in a second, so completed steps and closed spans, which are nearly
all of them, are read and kept as columns: see `spelling`. Whatever else a line may be goes
through `decode`.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from holdfast.core.history.check import check
from holdfast.core.history.line import decode
from holdfast.core.history.rows import History, SpanRows, StepRows
from holdfast.core.history.spelling import Digits, Spelling, spelling_of
from holdfast.core.ledger.columns import Column, Ints
from holdfast.core.ledger.facts import Fact, SpanFact, StepsFact
from holdfast.errors import HistoryError

MOST_SPELLINGS = 200  # lines of further ones are decoded one by one
LONGEST_SPELLING = 1000
BYTE_ORDER_MARK = b"\xef\xbb\xbf"


def parse(blocks: Iterable[bytes]) -> History:
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
    steps = StepRows.sorted(*(column.view for column in reading.steps))
    spans = SpanRows.sorted(*(column.view for column in reading.spans))
    check(reading.facts, reading.lines, steps, spans, reading.number)
    kinds = tuple(reading.span_kinds)
    return History(tuple(reading.facts), tuple(reading.lines), steps, spans, kinds)


def parse_text(text: str) -> History:
    """Read a history that is all in one string."""
    return parse([text.encode()] if text else [])


class _Spellings(dict[bytes, int]):
    """The number of each spelling that was met; 0: its lines are decoded one by one."""

    def __init__(self) -> None:
        super().__init__()
        self.numbered: list[Spelling | None] = [None]

    def __missing__(self, text: bytes) -> int:
        if len(self) == MOST_SPELLINGS or len(text) > LONGEST_SPELLING:
            return 0
        spelling = spelling_of(text)
        self[text] = 0 if spelling is None else len(self.numbered)
        if spelling is not None:
            self.numbered.append(spelling)
        return self[text]


class _Reading:
    """What has been read so far; `number` is that of the last line."""

    def __init__(self) -> None:
        self.number = 0
        self.facts: list[Fact] = []
        self.lines: list[int] = []
        self.steps = [Column() for _ in range(6)]  # as in StepRows
        self.spans = [Column() for _ in range(5)]  # as in SpanRows
        self.span_kinds: dict[str, int] = {}
        self._spellings = _Spellings()

    @property
    def is_empty(self) -> bool:
        return not (self.facts or len(self.steps[0]) or len(self.spans[0]))

    def read(self, block: bytes) -> None:
        """Read a block of whole lines; only the file's last line may lack its line end."""
        if not self.number:
            block = block.removeprefix(BYTE_ORDER_MARK)
        digits = Digits(block)
        texts = digits.spellings
        if not texts[-1]:
            texts.pop()
        of_line = np.array([self._spellings[text] for text in texts], dtype=np.int64)
        odd = np.flatnonzero(of_line == 0)
        numbered = self._spellings.numbered
        runs = np.array([one.runs if one else 0 for one in numbered], dtype=np.int64)[of_line]
        runs[odd] = [texts[line].count(b"0") for line in odd.tolist()]
        before = np.cumsum(runs) - runs
        for number, spelling in enumerate(numbered):
            lines = np.flatnonzero(of_line == number)
            if spelling is not None and len(lines):
                columns, fine = digits.columns(spelling, before[lines])
                if not fine.all():
                    odd = np.concatenate((odd, lines[~fine]))
                    columns, lines = [column[fine] for column in columns], lines[fine]
                self._add(spelling, columns, lines + self.number + 1)
        if len(odd):
            self._decode(block, np.sort(odd))
        self.number += len(texts)

    def _add(self, spelling: Spelling, columns: list[Ints], numbers: Ints) -> None:
        """Add steps or spans that stood in the lines with these numbers."""
        if spelling.steps is not None:
            _extend(self.steps, *columns, numbers)
        else:
            attempt, start_ns, end_ns = columns
            kind = np.full(len(numbers), self._kind(spelling.kind), dtype=np.int64)
            _extend(self.spans, attempt, kind, start_ns, end_ns, numbers)

    def _decode(self, block: bytes, lines: Ints) -> None:
        """Read these lines of the block one by one."""
        texts = block.split(b"\n")
        steps: list[tuple[int, ...]] = []
        spans: list[tuple[int, ...]] = []
        for at in lines.tolist():
            number = self.number + at + 1
            text = _text(texts[at], number).strip()
            if not text:
                continue
            torn = at == len(texts) - 1  # the line end is missing
            fact = decode(text, number, torn=torn)
            if isinstance(fact, StepsFact) and fact.end_ns is not None:
                row = (fact.attempt, fact.first, fact.last, fact.start_ns, fact.end_ns, number)
                steps.append(row)
            elif isinstance(fact, SpanFact) and fact.end_ns is not None:
                kind = self._kind(fact.kind)
                spans.append((fact.attempt, kind, fact.start_ns, fact.end_ns, number))
            else:
                self.facts.append(fact)
                self.lines.append(number)
        for columns, rows in ((self.steps, steps), (self.spans, spans)):
            _extend(columns, *np.array(rows, dtype=np.int64).reshape(-1, len(columns)).T)

    def _kind(self, name: str) -> int:
        return self.span_kinds.setdefault(name, len(self.span_kinds))


def _extend(columns: list[Column], *values: Ints) -> None:
    for column, more in zip(columns, values, strict=True):
        column.extend(more)


def _text(line: bytes, number: int) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise HistoryError(
            number,
            f"byte 0x{line[error.start]:02x} is not UTF-8 text; a history is text with one JSON "
            "object a line, so this is another file or a damaged one",
        ) from None
