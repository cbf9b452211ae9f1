"""A run's time line for who looks at it: pieces that partition it, so many at most.

Where little happened there are few stretches, and each is a piece. Where there are more than can be
drawn or sent, those that tell most stay as they were (the longest of what is not training, the
slowest steps), and what lies between is put together: a piece then has several kinds, each with its
time. So nothing is left out: the times of all pieces still add up to the account's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from holdfast.core.ledger.columns import Ints
from holdfast.core.ledger.facts import NoticeFact
from holdfast.core.ledger.kinds import LOST, STEP
from holdfast.core.ledger.stretches import Stretches

SLOW = 1.5  # times the median: from there on a step may stand alone
CELLS = 2048  # what is put together is no wider than the whole's part of so many
MOST = 16_384


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of the time line: `kinds` are wall nanoseconds by kind, and sum up to its length.

    `steps` of the run ended in it, `last_step` the last of them (0: none); the longest took
    `longest_ns` by itself. `attempt` None: between attempts, or of several.
    """

    start_ns: int
    end_ns: int
    kinds: Mapping[str, int]
    attempt: int | None = None
    steps: int = 0
    last_step: int = 0
    longest_ns: int = 0


@dataclass(frozen=True, slots=True)
class CourseAttempt:
    """An attempt: from `start_ns` to `end_ns` (None: it runs), and of which steps it is."""

    attempt: int
    start_ns: int
    end_ns: int | None
    cause: str | None
    first_step: int  # 0: it has completed none
    last_step: int
    resume_step: int  # the last step of what it restored; 0: from scratch


@dataclass(frozen=True, slots=True)
class Course:
    """All of it, from the request to the account's end; times are in ns on the run's clock.

    Wall time: chips that an elastic run lacks meanwhile are in the account alone.
    """

    start_ns: int
    end_ns: int
    pieces: tuple[Piece, ...]
    launches: tuple[CourseAttempt, ...]
    notices: tuple[NoticeFact, ...]
    is_over: bool  # the run's end is on record

    @property
    def last_kind(self) -> str | None:
        """What the time line ends with."""
        return max(self.pieces[-1].kinds.items(), key=_by_time)[0] if self.pieces else None

    @property
    def last_kind_since_ns(self) -> int:
        """Since when it has been of that kind alone."""
        since_ns, kind = self.end_ns, self.last_kind
        for piece in reversed(self.pieces):
            if kind is None or set(piece.kinds) != {kind}:
                break
            since_ns = piece.start_ns
        return since_ns


def coarser(pieces: Sequence[Piece], cells: int) -> tuple[Piece, ...]:
    """The same in about so many pieces: neighbours narrower than a cell are put together."""
    if len(pieces) <= cells:
        return tuple(pieces)
    least_ns = (pieces[-1].end_ns - pieces[0].start_ns) // cells
    found: list[list[Piece]] = []
    for piece in pieces:
        is_wide = piece.end_ns - piece.start_ns >= least_ns
        if found and not is_wide and found[-1][-1].end_ns - found[-1][0].start_ns < least_ns:
            found[-1].append(piece)
        else:
            found.append([piece])
    return tuple(map(_together, found))


def _together(pieces: Sequence[Piece]) -> Piece:
    kinds: dict[str, int] = {}
    for piece in pieces:
        for kind, ns in piece.kinds.items():
            kinds[kind] = kinds.get(kind, 0) + ns
    return Piece(
        pieces[0].start_ns,
        pieces[-1].end_ns,
        kinds,
        pieces[0].attempt if len({piece.attempt for piece in pieces}) == 1 else None,
        sum(piece.steps for piece in pieces),
        max(piece.last_step for piece in pieces),
        max(piece.longest_ns for piece in pieces),
    )


def pieces_of(
    found: Stretches, attempt: Ints, names: Sequence[str], most: int = MOST
) -> tuple[Piece, ...]:
    """Pieces of a partition.

    `attempt` of each stretch (-1: none); `names` by the stretches' kinds, which count from 0 here.
    """
    if not len(found.start):
        return ()
    begins = np.ones(len(found.start), dtype=np.bool_)
    if len(begins) > most:
        begins = _begins(found, attempt, names, most, min(CELLS, most // 4))
    first = np.flatnonzero(begins)
    return tuple(_pieces(found, attempt, names, first))


def _begins(
    found: Stretches, attempt: Ints, names: Sequence[str], most: int, cells: int
) -> NDArray[np.bool_]:
    """Where a piece begins: at what stands alone, after it, in each cell, and at attempts.

    Where there are so many attempts that their bounds alone would be most of all, at none of them.
    """
    weight = _weights(found, names)
    begins: NDArray[np.bool_] = np.diff(attempt, prepend=attempt[0]) != 0
    if 2 * np.count_nonzero(begins) > most:
        begins[:] = False
    begins[0] = True
    count = max(1, (most - cells - 1) // 2 - len(np.unique(attempt[begins])))
    alone = np.flatnonzero(weight)
    if count < len(alone):
        alone = alone[np.argpartition(weight[alone], -count)[-count:]]
    t0, end = int(found.start[0]), int(found.end[-1])
    width = max(1, (end - t0) // cells)
    begins[found.start.searchsorted(np.arange(t0 + width, int(found.start[-1]) + 1, width))] = True
    begins[alone] = True
    begins[np.minimum(alone + 1, len(begins) - 1)] = True
    return begins


def _weights(found: Stretches, names: Sequence[str]) -> Ints:
    """How much each stretch tells: its length, or of training how much longer than usual."""
    length = found.end - found.start
    training = np.array([name in (STEP, LOST) for name in names])[found.kind]
    stepped = training & (found.steps > 0)
    if stepped.any():
        usual = int(np.median(found.longest[stepped]) * SLOW)
        length = np.where(training, np.maximum(0, found.longest - usual), length)
    return length


def _pieces(found: Stretches, attempt: Ints, names: Sequence[str], first: Ints) -> Iterator[Piece]:
    last = np.append(first[1:], len(found.start)) - 1
    length = found.end - found.start
    by_kind, bounds = {}, np.append(first, len(length))
    for number, name in enumerate(names):
        where = np.flatnonzero(found.kind == number)
        sums = np.append(0, np.cumsum(length[where]))
        by_kind[name] = np.diff(sums[where.searchsorted(bounds)]).tolist()
    columns = (
        found.start[first],
        found.end[last],
        np.where(attempt[first] == attempt[last], attempt[first], -1),
        np.add.reduceat(found.steps, first),
        np.maximum.reduceat(np.where(found.steps > 0, found.last, 0), first),
        np.maximum.reduceat(found.longest, first),
    )
    rows = zip(*(column.tolist() for column in columns), strict=True)
    for i, (start_ns, end_ns, number, steps, last_step, longest_ns) in enumerate(rows):
        kinds = {name: times[i] for name, times in by_kind.items() if times[i]}
        of = None if number < 0 else number
        yield Piece(start_ns, end_ns, kinds, of, steps, last_step, longest_ns)


def _by_time(pair: tuple[str, int]) -> int:
    return pair[1]
