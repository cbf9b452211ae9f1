"""The facts of a history that was read, its columns' too."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.core.history.text import History
from holdfast.core.ledger.columns import Ints
from holdfast.core.ledger.facts import Fact, SpanFact, StepsFact


def all_facts(history: History) -> list[Fact]:
    """Every fact, in the file's order."""
    found: list[tuple[int, Fact]] = list(zip(history.lines, history.facts, strict=True))
    steps, spans = history.steps, history.spans
    for line, *step in _rows(
        steps.line, steps.attempt, steps.first, steps.last, steps.start_ns, steps.end_ns
    ):
        found.append((line, StepsFact(*step)))
    for line, attempt, kind, start_ns, end_ns in _rows(
        spans.line, spans.attempt, spans.kind, spans.start_ns, spans.end_ns
    ):
        found.append((line, SpanFact(attempt, history.span_kinds[kind], start_ns, end_ns)))
    return [fact for _, fact in sorted(found, key=lambda pair: pair[0])]


def _rows(*columns: Ints) -> Iterator[tuple[int, ...]]:
    return zip(*(column.tolist() for column in columns), strict=True)
