"""The time line as it was: one stretch after the other, each of one kind, without gap or overlap.

The same rules as the account's, which only sums them up: the lengths of a kind's stretches add up
to its wall time. Everything is columns; a million steps are a few array operations.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.ledger.attempt import BEFORE_ALL, AttemptView
from holdfast.core.ledger.columns import Ints
from holdfast.core.ledger.kinds import DETECT, DRAIN, HANG, LOST, OTHER, STARTUP, STEP, UNDER_WAY

# Kinds that are no spans have numbers below those of spans, which count from 0.
OWN_KINDS = (STEP, LOST, STARTUP, OTHER, UNDER_WAY, DETECT, HANG, DRAIN)
_NUMBERS: dict[int | str, int] = {
    kind: number - len(OWN_KINDS) for number, kind in enumerate(OWN_KINDS)
}
STEP_NUMBER, LOST_NUMBER = _NUMBERS[STEP], _NUMBERS[LOST]


class Stretches(NamedTuple):
    """`start`, `end` in ns; `kind` as a number; how many `steps` ended in it, `last` of them.

    `longest`: the longest of these steps' own time in ns, taken as even within a row of steps.
    """

    start: Ints
    end: Ints
    kind: Ints
    steps: Ints
    last: Ints
    longest: Ints


def of_attempt(view: AttemptView, kept_until: tuple[int, ...], a: int, b: int) -> Stretches:
    """An attempt's stretches between two moments; `kept_until`: see `AttemptView.time_between`."""
    a, b = max(a, view.start_ns), min(b, view.stop_ns)
    if a >= b:
        return empty()
    steps, spans = view.steps, view.spans
    edges = [
        np.array([a, b, view.open_ns, view.cut_ns, *kept_until], dtype=np.int64),
        np.array([at for zone in view.zones for at in zone[:2]], dtype=np.int64),
        np.array([span.start_ns for span in view.open_spans], dtype=np.int64),
        steps.start.view,
        steps.end.view,
        spans.shown_start.view,
        spans.shown_end.view,
    ]
    # Most edges are in order already: a stable sort only merges them, where np.unique would not.
    bounds = np.sort(np.concatenate(edges), kind="stable")
    bounds = bounds[(bounds >= a) & (bounds <= b) & (np.diff(bounds, prepend=BEFORE_ALL) > 0)]
    start, end = bounds[:-1], bounds[1:]
    kind = _zone_kinds(view, start)
    row, in_step = _inside(steps.start.view, steps.end.view, start)
    kind[in_step] = np.where(_is_kept(view, kept_until, start[in_step]), STEP_NUMBER, LOST_NUMBER)
    _put_spans(view, start, kind)
    return _with_steps(view, Stretches(start, end, kind, *np.zeros((3, len(start)), np.int64)), row)


def empty() -> Stretches:
    """None at all."""
    return Stretches(*(np.empty(0, dtype=np.int64) for _ in Stretches._fields))


def _inside(start: Ints, end: Ints, at: Ints) -> tuple[Ints, NDArray[np.bool_]]:
    """For each moment: the last of disjoint, sorted intervals begun by then, and if it is open."""
    index = start.searchsorted(at, "right") - 1
    if not len(end):
        return index, np.zeros(len(at), dtype=np.bool_)
    return index, (index >= 0) & (end[index] > at)


def _zone_kinds(view: AttemptView, at: Ints) -> Ints:
    """What a moment is that is neither span nor step."""
    kind = np.full(len(at), _NUMBERS[OTHER], dtype=np.int64)
    for start_ns, end_ns, name, _ in view.zones:
        kind[(at >= start_ns) & (at < end_ns)] = _NUMBERS[name]
    return kind


def _is_kept(view: AttemptView, kept_until: tuple[int, ...], at: Ints) -> NDArray[np.bool_]:
    kept = np.zeros(len(at), dtype=np.bool_)
    for part, until_ns in zip(view.parts, kept_until, strict=True):
        if part.low < part.high:
            kept |= (at >= view.steps.start[part.low]) & (at < until_ns)
    return kept


def _put_spans(view: AttemptView, at: Ints, kind: Ints) -> None:
    """Spans win over steps and zones; what was never closed wins as `AttemptView` says."""
    spans = view.spans
    index, shown = _inside(spans.shown_start.view, spans.shown_end.view, at)
    is_open = (at >= view.open_ns) & (at < view.cut_ns)
    closed = shown & ~is_open
    kind[closed] = spans.shown_kind.view[index[closed]]
    for i, span in enumerate(view.open_spans):
        later = view.open_spans[i + 1].start_ns if i + 1 < len(view.open_spans) else view.cut_ns
        here = np.flatnonzero(is_open & (at >= span.start_ns) & (at < later))
        kind[here] = span.kind
        here = here[shown[here]]
        source = spans.shown_source.view[index[here]]
        wins = view.beats(source, span)
        kind[here[wins]] = spans.kind.view[source[wins]]


def _with_steps(view: AttemptView, found: Stretches, row: Ints) -> Stretches:
    """Each row's steps stand in the stretch in which the row ends."""
    steps = view.steps
    if not len(steps):
        return found
    at = np.minimum(np.maximum(row, 0), len(steps) - 1)
    ends = (row >= 0) & (found.end == steps.end.view[at])
    done = at[ends]
    count = np.diff(steps.count.view, prepend=0)[done]
    own = np.diff(steps.own.view, prepend=0)[done]
    found.steps[ends] = count
    found.last[ends] = steps.last.view[done]
    found.longest[ends] = own // np.maximum(count, 1)
    return found
