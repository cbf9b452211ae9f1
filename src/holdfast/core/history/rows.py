"""What a history says: completed steps and closed spans as columns, and all else as facts."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from holdfast.core.ledger.columns import Ints
from holdfast.core.ledger.facts import Fact


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
