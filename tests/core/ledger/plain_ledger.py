"""The plain ledger: checked by hand against docs/reference/history.md, rule by rule.

It cuts the run's time line wherever anything begins or ends, gives every piece one kind, and adds
the pieces up. It is slow on purpose (quadratic in an attempt's events): the ledger of Holdfast
(`holdfast.core.ledger.incremental`) must say the same on every history.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from plain_lineage import Fates, fates_of
from plain_story import Execution, Fault, Life, Span, Story, read_story

from holdfast.core.ledger.account import Account, Disruption
from holdfast.core.ledger.facts import DONE, Fact
from holdfast.core.ledger.kinds import (
    DETECT,
    DRAIN,
    HANG,
    LOST,
    OTHER,
    RESCHEDULE,
    STARTUP,
    STEP,
    STOPPED,
    UNDER_WAY,
    is_disruption,
    waiting_kind,
)

_Key = TypeVar("_Key", int, str)


@dataclass(frozen=True, slots=True)
class Piece:
    """A stretch of the time line of one kind; `execution` is the step whose own time it is."""

    start_ns: int
    end_ns: int
    kind: str
    execution: int | None = None


def account(
    facts: Iterable[Fact], now_ns: int | None = None, window_ns: int | None = None
) -> Account:
    """The account of a history up to `now_ns`, or of its last `window_ns` nanoseconds.

    The facts must make sense (`holdfast.core.history.text` says whether they do). Raises ValueError
    when none is about the run.
    """
    story = read_story(facts, now_ns)
    fates = fates_of(story.lives)
    pieces = _time_line(story, fates)
    from_ns = story.requested_ns
    if window_ns is not None:
        from_ns = max(from_ns, story.end_ns - window_ns)
    counts = [e for life in story.lives for e in life.completed]
    if from_ns > story.requested_ns:  # a step counts in the window in which it ends
        counts = [e for e in counts if e.end_ns is not None and e.end_ns > from_ns]
    kept_of = {
        life.attempt: sum(e in counts and e.index in fates.kept for e in life.completed)
        for life in story.lives
    }
    kept = sum(kept_of.values())
    return Account(
        name=story.name,
        start_ns=from_ns,
        end_ns=story.end_ns,
        chips=_chips_of(story, story.end_ns),
        kinds=_chip_time(story, _cut(pieces, from_ns, story.end_ns)),
        steps_kept=kept,
        lost_steps=len(counts) - kept,
        disruptions=tuple(_disruptions(story, fates, pieces, counts, from_ns)),
        paid=sum(
            (b - a) * _chips_of(story, a)
            for a, b in _between([at for at, _, _ in story.capacity], from_ns, story.end_ns)
        ),
        first_start_ns=_first_start(story, pieces) if from_ns <= story.requested_ns else {},
        kept_of={attempt: count for attempt, count in kept_of.items() if count},
        kept_ns=sum(
            piece.end_ns - piece.start_ns
            for piece in _cut(pieces, from_ns, story.end_ns)
            if piece.kind == STEP
        ),
    )


# --- One kind for each moment (rules 1 to 4) -----------------------------------------------------


def _time_line(story: Story, fates: Fates) -> list[Piece]:
    """The whole time line, piece by piece: gaps and attempts in turn."""
    pieces: list[Piece] = []
    before: Life | None = None
    stopped_ns = None
    for life in story.lives:
        # Attempts follow one another; if two overlap all the same, no moment counts twice.
        free_ns, stop_ns = _or(stopped_ns, life.start_ns), _stop(life, story)
        pieces += _gap(story, before, _or(stopped_ns, story.requested_ns), life.start_ns)
        pieces += _cut(_attempt(life, stop_ns, fates), max(life.start_ns, free_ns), stop_ns)
        before, stopped_ns = life, max(stop_ns, free_ns)
    return pieces + _gap(story, before, _or(stopped_ns, story.requested_ns), story.end_ns)


def _gap(story: Story, before: Life | None, start_ns: int, end_ns: int) -> list[Piece]:
    """Rule 1: no attempt was running; `before` is the one that had ended."""
    bounds = [t for w in story.waits for t in (w.start_ns, _or(w.end_ns, story.end_ns))]
    after_done = before is not None and before.cause == DONE
    pieces = []
    for a, b in _between(bounds, start_ns, end_ns):
        wait = _winner(story.waits, a, story.end_ns)
        kind = waiting_kind(
            wait.kind if wait else None, before_first=before is None, after_done=after_done
        )
        pieces.append(Piece(a, b, kind))
    return pieces


def _attempt(life: Life, stop_ns: int, fates: Fates) -> list[Piece]:
    """Rules 2, 3 and 4, in that order: spans beat steps, steps beat what nothing covers."""
    fault = _fault_that_counts(life)
    # A span or a step that was never closed lasts until the fault, else as long as the attempt.
    cut_ns = _within(fault.at_ns, life.start_ns, stop_ns) if fault else stop_ns
    bounds = [cut_ns, _first_step_ns(life, cut_ns), _tail_ns(life, cut_ns, stop_ns)]
    bounds += [_detected_ns(fault, cut_ns, stop_ns)] if fault else []
    bounds += [t for s in life.spans for t in (s.start_ns, _or(s.end_ns, cut_ns))]
    steps = life.completed + ([life.under_way] if life.under_way else [])
    lasting = [(e.start_ns, _or(e.end_ns, cut_ns), e) for e in steps]
    bounds += [t for start_ns, end_ns, _ in lasting for t in (start_ns, end_ns)]
    pieces = []
    for a, b in _between(bounds, life.start_ns, stop_ns):
        span = _winner(life.spans, a, cut_ns)
        step = next((e for start_ns, end_ns, e in lasting if start_ns <= a < end_ns), None)
        if span is not None:  # rule 2
            pieces.append(Piece(a, b, span.kind))
        elif step is not None and step.end_ns is not None:  # rule 3
            pieces.append(Piece(a, b, STEP if step.index in fates.kept else LOST, step.index))
        elif step is not None:  # rule 3: under way
            pieces.append(Piece(a, b, UNDER_WAY if life.end_ns is None else LOST))
        else:
            pieces.append(Piece(a, b, _uncovered_kind(life, fault, a, cut_ns, stop_ns)))
    return pieces


def _uncovered_kind(life: Life, fault: Fault | None, at_ns: int, cut_ns: int, stop_ns: int) -> str:
    """Rule 4: what no span and no step covers."""
    if at_ns < _first_step_ns(life, cut_ns):
        return STARTUP
    if at_ns < _tail_ns(life, cut_ns, stop_ns):
        return OTHER
    if fault is not None:
        if at_ns >= _detected_ns(fault, cut_ns, stop_ns):
            return DRAIN
        return HANG if fault.cause == HANG else DETECT
    return OTHER if life.cause in (None, DONE) else DRAIN


def _winner(spans: Sequence[Span], at_ns: int, unclosed_end_ns: int) -> Span | None:
    """Rule 2: the span that started last wins, then the shorter, then the later line."""

    def end_ns(span: Span) -> int:
        return _or(span.end_ns, max(span.start_ns, unclosed_end_ns))

    there = [s for s in spans if s.start_ns <= at_ns < end_ns(s)]
    return max(there, key=lambda s: (s.start_ns, -end_ns(s), s.line), default=None)


def _fault_that_counts(life: Life) -> Fault | None:
    """The first fault after which the attempt did not start and complete another step."""
    last_start_ns = max((e.start_ns for e in life.completed), default=None)
    for fault in life.faults:
        if last_start_ns is None or last_start_ns < fault.at_ns:
            return fault
    return None


def _first_step_ns(life: Life, cut_ns: int) -> int:
    """Until here it is STARTUP; of an attempt without any step, all up to its fault or end."""
    steps = life.completed + ([life.under_way] if life.under_way else [])
    return min((e.start_ns for e in steps), default=cut_ns)


def _tail_ns(life: Life, cut_ns: int, stop_ns: int) -> int:
    """From here on nothing happened any more: after the last step or closed span."""
    if life.under_way is not None:
        return max(_last_activity_ns(life, stop_ns), life.under_way.start_ns, cut_ns)
    if not life.completed:
        return cut_ns
    return _last_activity_ns(life, stop_ns)


def _last_activity_ns(life: Life, stop_ns: int) -> int:
    """The end of the last completed step or closed span; the attempt's start if there is none."""
    ends = [life.start_ns, *(e.end_ns for e in life.completed)]
    ends += [s.end_ns for s in life.spans if s.start_ns <= stop_ns]
    return min(max(t for t in ends if t is not None), stop_ns)


def _detected_ns(fault: Fault, cut_ns: int, stop_ns: int) -> int:
    return _within(_or(fault.detected_ns, stop_ns), cut_ns, stop_ns)


def _stop(life: Life, story: Story) -> int:
    """Where an attempt's time stops: its end, or that of the time line while it is open."""
    if life.end_ns is not None:
        return life.end_ns
    return max(life.start_ns, story.end_ns, *(e.end_ns or 0 for e in life.completed[-1:]))


# --- Adding up -----------------------------------------------------------------------------------


def _chip_time(story: Story, pieces: Iterable[Piece]) -> dict[str, int]:
    """Rules 5 and 6: chip-nanoseconds by kind."""
    kinds = {STEP: 0}
    for piece in pieces:
        for a, b in _between([at for at, _, _ in story.capacity], piece.start_ns, piece.end_ns):
            of = _chips_of(story, a)
            working = min(of, [of, *(chips for at, chips, _ in story.capacity if at <= a)][-1])
            working = of if piece.kind == STOPPED else working
            _add(kinds, piece.kind, (b - a) * working)
            _add(kinds, RESCHEDULE, (b - a) * (of - working))
    return kinds


def _chips_of(story: Story, at_ns: int) -> int:
    """How many the run has then: as was said last, else as will be said first."""
    said = [(at, of) for at, _, of in story.capacity if of is not None]
    first = said[0][1] if said else story.chips
    return [first, *(of for at, of in said if at <= at_ns)][-1]


def _disruptions(
    story: Story, fates: Fates, pieces: list[Piece], counts: list[Execution], from_ns: int
) -> Iterable[Disruption]:
    """Every attempt that ended too early in the window, with what it cost."""
    own_ns: dict[int, int] = {}
    for piece in pieces:
        if piece.execution is not None:
            _add(own_ns, piece.execution, piece.end_ns - piece.start_ns)
    lost_ns: dict[int, int] = {}
    for piece in _cut(pieces, from_ns, story.end_ns):
        if piece.execution is not None:
            _add(lost_ns, piece.execution, piece.end_ns - piece.start_ns)
    for i, life in enumerate(story.lives):
        if life.end_ns is None or not is_disruption(life.end_ns, life.cause):
            continue
        if from_ns > story.requested_ns and life.end_ns <= from_ns:
            continue
        cost = [e for e in counts if fates.blame.get(e.index) == i]
        left_ns = _last_activity_ns(life, life.end_ns)
        first = next((e for later in story.lives[i + 1 :] for e in later.completed), None)
        resumed_ns = first.end_ns if first is not None else None
        waterfall: dict[str, int] = {}
        for piece in _cut(pieces, max(left_ns, story.requested_ns), story.end_ns):
            end_ns = min(piece.end_ns, _or(resumed_ns, piece.end_ns))
            _add(waterfall, piece.kind, max(0, end_ns - piece.start_ns))
        yield Disruption(
            attempt=life.attempt,
            cause=life.cause or "",
            lost_steps=len(cost),
            lost_ns=sum(lost_ns.get(e.index, 0) for e in cost),
            downtime_ns=(
                None
                if first is None or resumed_ns is None
                else max(0, resumed_ns - left_ns - own_ns.get(first.index, 0))
            ),
            at_ns=life.end_ns,
            resumed_ns=resumed_ns,
            waterfall_ns={kind: ns for kind, ns in waterfall.items() if ns},
            chips=_chips_of(story, life.end_ns),
        )


def _first_start(story: Story, pieces: list[Piece]) -> dict[str, int]:
    """From the beginning of the first attempt to the first step's end."""
    found: dict[str, int] = {}
    if not story.lives:
        return found
    first = next((e for life in story.lives for e in life.completed), None)
    until_ns = min(story.end_ns, _or(first.end_ns if first else None, story.end_ns))
    for piece in _cut(pieces, max(story.lives[0].start_ns, story.requested_ns), until_ns):
        _add(found, piece.kind, piece.end_ns - piece.start_ns)
    return found


def _cut(pieces: Iterable[Piece], start_ns: int, end_ns: int) -> list[Piece]:
    """The pieces between two moments."""
    if start_ns >= end_ns:
        return []
    return [
        p
        if start_ns <= p.start_ns and p.end_ns <= end_ns
        else Piece(max(p.start_ns, start_ns), min(p.end_ns, end_ns), p.kind, p.execution)
        for p in pieces
        if p.start_ns < end_ns and start_ns < p.end_ns and p.start_ns < p.end_ns
    ]


def _between(bounds: Iterable[int], start_ns: int, end_ns: int) -> list[tuple[int, int]]:
    """The stretches into which the bounds cut [start, end)."""
    inside = sorted({start_ns, end_ns, *(t for t in bounds if start_ns < t < end_ns)})
    return list(itertools.pairwise(inside)) if start_ns < end_ns else []


def _add(totals: dict[_Key, int], key: _Key, amount: int) -> None:
    if amount:
        totals[key] = totals.get(key, 0) + amount


def _within(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _or(value: int | None, default: int) -> int:
    return default if value is None else value
