"""What the lines of a history say together, and whether it can be.

Each finding is a HistoryError that names the line to look at: of two that clash, the later one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice, pairwise
from operator import lt

from holdfast.core.history.line import seconds
from holdfast.core.history.rows import SpanRows, StepRows
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


def check(
    facts: Sequence[Fact],
    lines: Sequence[int],
    steps: Mapping[int, StepRows],
    spans: Mapping[int, SpanRows],
    last_line: int,
) -> None:
    """Raise HistoryError when the facts contradict each other.

    `lines[i]` is where `facts[i]` stood; `steps` are the completed steps, sorted by time; `spans`
    the closed spans.
    """
    numbered = list(zip(lines, facts, strict=True))
    _check_run(numbered, last_line)
    attempts = _attempts(numbered)
    for line, fact in numbered:
        if isinstance(fact, FaultFact | RestoreFact | SpanFact | StepsFact):
            _check_attempt_known(line, fact.attempt, attempts)
    for attempt, rows in steps.items():
        _check_attempt_known(rows.line[0], attempt, attempts)
        _check_order(rows)
        _check_inside(rows, attempts[attempt])
        _check_overlap(rows, attempt)
    for attempt, marks in spans.items():
        _check_attempt_known(marks.line[0], attempt, attempts)
        _check_order(marks)
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
    chips = runs[0][1].chips
    for line, fact in numbered:
        if isinstance(fact, CapacityFact) and fact.chips > chips:
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


def _check_inside(rows: StepRows, attempt: AttemptFact) -> None:
    """Every step starts and ends within its attempt."""
    if rows.start_ns[0] < attempt.start_ns:
        raise _outside(rows, 0, attempt)
    if attempt.end_ns is not None and max(rows.end_ns) > attempt.end_ns:
        raise _outside(rows, max(range(len(rows)), key=rows.end_ns.__getitem__), attempt)


def _outside(rows: StepRows, i: int, attempt: AttemptFact) -> HistoryError:
    return HistoryError(
        rows.line[i],
        f"step {rows.first[i]} runs from {seconds(rows.start_ns[i])} to {seconds(rows.end_ns[i])}, "
        f"outside its attempt {attempt.attempt}, which runs from {seconds(attempt.start_ns)} to "
        f"{seconds(attempt.end_ns)}; correct one of the two",
    )


def _check_order(rows: StepRows | SpanRows) -> None:
    """Nothing ends before it starts."""
    if any(map(lt, rows.end_ns, rows.start_ns)):
        i = next(i for i in range(len(rows)) if rows.end_ns[i] < rows.start_ns[i])
        raise HistoryError(
            rows.line[i],
            f'the {"step" if isinstance(rows, StepRows) else "span"} has "end": '
            f'{seconds(rows.end_ns[i])} before "start": {seconds(rows.start_ns[i])}; '
            "correct one of the two",
        )


def _check_overlap(rows: StepRows, attempt: int) -> None:
    """One step at a time."""
    if any(map(lt, islice(rows.start_ns, 1, None), rows.end_ns)):
        i = next(i for i in range(1, len(rows)) if rows.start_ns[i] < rows.end_ns[i - 1])
        raise HistoryError(
            max(rows.line[i - 1], rows.line[i]),
            f"steps {rows.first[i - 1]} and {rows.first[i]} of attempt {attempt} overlap: one ends "
            f"at {seconds(rows.end_ns[i - 1])}, the next starts at {seconds(rows.start_ns[i])}; "
            "steps of an attempt follow one another",
        )


def _check_under_way(
    numbered: Sequence[tuple[int, Fact]],
    steps: Mapping[int, StepRows],
    attempts: Mapping[int, AttemptFact],
) -> None:
    """An attempt has at most one step under way, and it is the last."""
    under_way: dict[int, int] = {}
    for line, fact in _steps_under_way(numbered):
        rows, attempt = steps.get(fact.attempt), attempts[fact.attempt]
        what = f"step {fact.first} of attempt {fact.attempt} is under way"
        if fact.attempt in under_way:
            raise HistoryError(
                line, f"{what}, but so is the one in line {under_way[fact.attempt]}; one must end"
            )
        under_way[fact.attempt] = line
        if rows is not None and max(rows.end_ns) > fact.start_ns:
            raise HistoryError(
                line,
                f"{what} from {seconds(fact.start_ns)} on, but a step completed at "
                f"{seconds(max(rows.end_ns))} overlaps it; give it its end",
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
