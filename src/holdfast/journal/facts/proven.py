"""Steps that a later attempt has resumed behind, though not all ranks are known to have ended them.

A set is whole when every rank has saved it, so all steps up to its own were completed. Whoever
saved it may not have lived to say so: a host that loses power takes the last second of its ranks'
records with it. What the other hosts have recorded of such steps is when they ended: a run steps
when its slowest rank does, and that one is not known to be another. All here are integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from holdfast.journal.facts.rank_steps import TimedSteps, UnderWay, joined

# Of one attempt: a damaged number would make up more steps than there ever were.
MOST_PROVEN = 1 << 16


class EqualSteps(NamedTuple):
    """Steps `first` to `last`, that took equally long."""

    first: int
    last: int
    start_ns: int
    end_ns: int


class Proof(NamedTuple):
    """Steps of one attempt, as rows one after the other, up to the step `last`."""

    last: int
    rows: tuple[EqualSteps, ...]


def prove(
    begun: UnderWay, last: int, seen: TimedSteps, typical_ns: int, until_ns: int
) -> Proof | None:
    """The steps from the one that was under way to `last`; None: there is none, or too many.

    `seen`: what ranks have recorded of them, each step once, by number. Others lie evenly between
    those, or take `typical_ns` each. No step ends after `until_ns`, when the attempt ended.
    """
    if not 0 <= last - begun.step < MOST_PROVEN:
        return None
    return Proof(last, tuple(_rows(begun, last, seen, typical_ns, until_ns)))


def _rows(
    begun: UnderWay, last: int, seen: TimedSteps, typical_ns: int, until_ns: int
) -> Iterator[EqualSteps]:
    step, at_ns = begun
    until_ns = max(until_ns, at_ns)
    for number, began_ns, ended_ns in zip(*(column.tolist() for column in seen), strict=True):
        start_ns = min(max(began_ns, at_ns), until_ns)
        if number > step:  # nobody has recorded those before it
            yield EqualSteps(step, number - 1, at_ns, start_ns)
        at_ns = min(max(ended_ns, start_ns), until_ns)
        yield EqualSteps(number, number, start_ns, at_ns)
        step = number + 1
    if step <= last:
        end_ns = min(at_ns + (last - step + 1) * typical_ns, until_ns)
        yield EqualSteps(step, last, at_ns, end_ns)


def slowest(pieces: list[TimedSteps], last: int) -> TimedSteps:
    """Steps up to `last` that several ranks have recorded: each from first begin to last end."""
    rows = joined(
        [piece.cut(0, int(np.searchsorted(piece.step, last, "right"))) for piece in pieces]
    )
    if not len(rows.step):
        return rows
    order = np.argsort(rows.step, kind="stable")
    step, start, end = (column[order] for column in rows)
    firsts = np.flatnonzero(np.diff(step, prepend=step[0] - 1))
    return TimedSteps(
        step[firsts], np.minimum.reduceat(start, firsts), np.maximum.reduceat(end, firsts)
    )
