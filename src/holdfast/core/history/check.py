"""What the lines of a history say together, and whether it can be.

Each finding is a HistoryError that names the line to look at: of two that clash, the later one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from holdfast.core.history.line import seconds
from holdfast.core.history.rows import SpanRows, StepRows
from holdfast.core.ledger.columns import Ints, groups
from holdfast.core.ledger.facts import (
    AttemptFact,
    CapacityFact,
    Fact,
    FaultFact,
    RestoreFact,
    RunFact,
    SpanFact,
    StepsFact,
)
from holdfast.errors import HistoryError

_FAR_NS = 2**63 - 1


def check(
    facts: Sequence[Fact],
    lines: Sequence[int],
    steps: StepRows,
    spans: SpanRows,
    last_line: int,
) -> None:
    """Raise HistoryError when the facts contradict each other.

    `lines[i]` is where `facts[i]` stood.
    """
    numbered = list(zip(lines, facts, strict=True))
    _check_run(numbered, last_line)
    attempts = _attempts(numbered)
    for line, fact in numbered:
        if isinstance(fact, FaultFact | RestoreFact | SpanFact | StepsFact):
            _check_attempt_known(line, fact.attempt, attempts)
    for rows in (steps, spans):
        for attempt, where in groups(rows.attempt):
            _check_attempt_known(int(rows.line[where].min()), attempt, attempts)
    _check_inside(steps, attempts)
    _check_overlap(steps)
    _check_under_way(numbered, steps, attempts)


def _check_run(numbered: Sequence[tuple[int, Fact]], last_line: int) -> None:
    runs = [(line, fact) for line, fact in numbered if isinstance(fact, RunFact)]
    if not runs:
        raise HistoryError(
            last_line, 'the file ends without a "run" line; add one with name, requested, ended '
            "and chips",
        )  # fmt: skip
    if len(runs) > 1:
        raise HistoryError(
            runs[1][0], f'this is a second "run" line, after line {runs[0][0]}; keep one of them'
        )
    _check_capacity(numbered, runs[0][1].chips)


def _check_capacity(numbered: Sequence[tuple[int, Fact]], chips: int) -> None:
    """No more chips work than the run has, at any time."""
    found = [(line, fact) for line, fact in numbered if isinstance(fact, CapacityFact)]
    found.sort(key=lambda one: one[1].at_ns)  # of several at one moment the later line counts
    chips = next((fact.of for _, fact in found if fact.of is not None), chips)
    for line, fact in found:
        chips = chips if fact.of is None else fact.of
        if fact.chips > chips:
            raise HistoryError(
                line, f"the capacity has {fact.chips} chips, but the run has {chips}; correct one"
            )


def _attempts(numbered: Sequence[tuple[int, Fact]]) -> dict[int, AttemptFact]:
    """The attempts by number; no two of the same number, no two at the same time."""
    found: dict[int, tuple[int, AttemptFact]] = {}
    for line, fact in numbered:
        if isinstance(fact, AttemptFact):
            if fact.attempt in found:
                raise HistoryError(
                    line,
                    f"attempt {fact.attempt} was described in line {found[fact.attempt][0]} "
                    "already; keep one of the two lines",
                )
            found[fact.attempt] = (line, fact)
    by_time = sorted(found.values(), key=lambda item: _bounds(item[1]))
    for (line, before), (other_line, after) in pairwise(by_time):
        if before.end_ns is None or after.start_ns < before.end_ns:
            end = "has not ended" if before.end_ns is None else f"ends at {seconds(before.end_ns)}"
            raise HistoryError(
                max(line, other_line),
                f"attempt {after.attempt} starts at {seconds(after.start_ns)} while attempt "
                f"{before.attempt} {end}; attempts of a run follow one another",
            )
    return {number: fact for number, (_, fact) in found.items()}


def _bounds(attempt: AttemptFact) -> tuple[int, bool, int]:
    """Orders attempts by time; one that has not ended goes after one that has."""
    return attempt.start_ns, attempt.end_ns is None, attempt.end_ns or 0


def _check_attempt_known(line: int, attempt: int, attempts: Mapping[int, AttemptFact]) -> None:
    if attempt not in attempts:
        raise HistoryError(
            line, f"attempt {attempt} has no attempt line in this file; add it, or drop this line"
        )


def _check_inside(rows: StepRows, attempts: Mapping[int, AttemptFact]) -> None:
    """Every step starts and ends within its attempt."""
    low, high = np.empty_like(rows.line), np.empty_like(rows.line)
    for number, where in groups(rows.attempt):
        start_ns, end_ns = attempts[number].start_ns, attempts[number].end_ns
        low[where], high[where] = start_ns, _FAR_NS if end_ns is None else end_ns
    i = _first((rows.start_ns < low) | (rows.end_ns > high), rows.line)
    if i is not None:
        attempt = attempts[int(rows.attempt[i])]
        raise HistoryError(
            int(rows.line[i]),
            f"step {rows.first[i]} runs from {seconds(int(rows.start_ns[i]))} to "
            f"{seconds(int(rows.end_ns[i]))}, outside its attempt {attempt.attempt}, which runs "
            f"from {seconds(attempt.start_ns)} to {seconds(attempt.end_ns)}; correct one of the "
            "two",
        )


def _check_overlap(rows: StepRows) -> None:
    """One step at a time."""
    same = rows.attempt[1:] == rows.attempt[:-1]
    later_line = np.maximum(rows.line[1:], rows.line[:-1])
    i = _first(same & (rows.start_ns[1:] < rows.end_ns[:-1]), later_line)
    if i is not None:
        raise HistoryError(
            int(later_line[i]),
            f"steps {rows.first[i]} and {rows.first[i + 1]} of attempt {rows.attempt[i]} overlap: "
            f"one ends at {seconds(int(rows.end_ns[i]))}, the next starts at "
            f"{seconds(int(rows.start_ns[i + 1]))}; steps of an attempt follow one another",
        )


def _first(wrong: NDArray[np.bool_], line: Ints) -> int | None:
    """The wrong row that stands first in the file."""
    found = np.flatnonzero(wrong)
    return int(found[line[found].argmin()]) if len(found) else None


def _check_under_way(
    numbered: Sequence[tuple[int, Fact]],
    steps: StepRows,
    attempts: Mapping[int, AttemptFact],
) -> None:
    """An attempt has at most one step under way, and it is the last."""
    under_way: dict[int, int] = {}
    for line, fact in _steps_under_way(numbered):
        attempt = attempts[fact.attempt]
        low, high = steps.attempt.searchsorted([fact.attempt, fact.attempt + 1]).tolist()
        last_end_ns = int(steps.end_ns[low:high].max(initial=fact.start_ns))
        what = f"step {fact.first} of attempt {fact.attempt} is under way"
        if fact.attempt in under_way:
            raise HistoryError(
                line, f"{what}, but so is the one in line {under_way[fact.attempt]}; one must end"
            )
        under_way[fact.attempt] = line
        if last_end_ns > fact.start_ns:
            raise HistoryError(
                line,
                f"{what} from {seconds(fact.start_ns)} on, but a step completed at "
                f"{seconds(last_end_ns)} overlaps it; give it its end",
            )
        ended = attempt.end_ns is not None and fact.start_ns > attempt.end_ns
        if ended or fact.start_ns < attempt.start_ns:
            raise HistoryError(
                line, f"{what} from {seconds(fact.start_ns)} on, outside its attempt; correct it"
            )


def _steps_under_way(numbered: Sequence[tuple[int, Fact]]) -> Iterator[tuple[int, StepsFact]]:
    for line, fact in numbered:
        if isinstance(fact, StepsFact):
            yield line, fact
