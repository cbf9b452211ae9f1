"""What a history says: completed steps and closed spans as columns, and all else as facts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from holdfast.core.ledger.columns import Ints
from holdfast.core.ledger.facts import Fact, SpanFact, StepsFact


@dataclass(frozen=True, slots=True)
class StepRows:
    """Completed steps, by attempt, and by time in each.

    One entry is a row of equal steps `first`..`last`; `line` is where it stood in the file.
    """

    attempt: Ints
    first: Ints
    last: Ints
    start_ns: Ints
    end_ns: Ints
    line: Ints

    @classmethod
    def sorted(cls, *columns: Ints) -> StepRows:
        """Rows by attempt and start, of rows in any order. Most files have them so already."""
        attempt, first, _, start, end, _ = columns
        after = (attempt[1:] == attempt[:-1]) & (start[1:] > start[:-1])
        if np.all(after | (attempt[1:] > attempt[:-1])):
            return cls(*columns)
        order = np.lexsort((first, end, start, attempt))
        return cls(*(column[order] for column in columns))


@dataclass(frozen=True, slots=True)
class SpanRows:
    """Closed spans, by attempt; `kind` indexes the history's kinds.

    `line` is where each stood in the file: of two equal ones, the later wins.
    """

    attempt: Ints
    kind: Ints
    start_ns: Ints
    end_ns: Ints
    line: Ints

    @classmethod
    def sorted(cls, *columns: Ints) -> SpanRows:
        """Rows by their start, of spans in any order."""
        if np.all(columns[0][1:] >= columns[0][:-1]):
            return cls(*columns)
        order = np.argsort(columns[0], kind="stable")
        return cls(*(column[order] for column in columns))


@dataclass(frozen=True, slots=True)
class History:
    """What a history file says: completed steps, closed spans, and `facts`, the rest.

    `lines[i]` is where `facts[i]` stood; `span_kinds` names the kinds of the spans.
    """

    facts: tuple[Fact, ...]
    lines: tuple[int, ...]
    steps: StepRows
    spans: SpanRows
    span_kinds: tuple[str, ...]

    def all_facts(self) -> list[Fact]:
        """Every fact, in the file's order."""
        found: list[tuple[int, Fact]] = list(zip(self.lines, self.facts, strict=True))
        steps, spans = self.steps, self.spans
        for line, *step in _rows(
            steps.line, steps.attempt, steps.first, steps.last, steps.start_ns, steps.end_ns
        ):
            found.append((line, StepsFact(*step)))
        for line, attempt, kind, start_ns, end_ns in _rows(
            spans.line, spans.attempt, spans.kind, spans.start_ns, spans.end_ns
        ):
            found.append((line, SpanFact(attempt, self.span_kinds[kind], start_ns, end_ns)))
        return [fact for _, fact in sorted(found, key=lambda pair: pair[0])]


def _rows(*columns: Ints) -> Iterator[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)
