"""An attempt's first step: what it took longer than others is the price of starting.

Whatever had not been needed before happens in it: lazy imports, connections between ranks, kernels
that are chosen or run for the first time. What is kept of it in the end is one step like any other;
the rest is STARTUP (where a compilation was recorded, COMPILE: that span began later, and shows).
A first step that is hardly longer than the others is one of them: steps differ. How long those take
is told by the quicker ones: right after a start, standbys that import slow others down.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from holdfast.journal.rank_steps import Ints, Rows

STEPS = 10  # of those after the first, the lower quartile says how long a step takes here
LONG = 1.25
FEWEST = 3  # an attempt that ended after fewer is measured by the one before it


class Told(NamedTuple):
    """The startup in an attempt's first step, if any, and how long a step takes there."""

    startup: tuple[int, int] | None
    typical_ns: int


class FirstStep:
    """Of one attempt. `take` is given its completed steps, as they become known."""

    def __init__(self) -> None:
        self._first: tuple[int, int] | None = None
        self._lengths: list[int] = []
        self._typical_ns = 0  # of these; 0: they are too few
        self.told: Told | None = None
        self.is_wrong = False  # by now something else would be told

    def take(self, pieces: list[Rows], before_ns: int, *, is_over: bool) -> Told | None:
        """What follows, once: when enough steps are known, or there will be no more.

        `before_ns`: how long a step took in the attempts before; 0: nobody knows.
        """
        for rows in pieces:
            self._note(rows.start, rows.end)
        known = self.guess(before_ns) if is_over or len(self._lengths) >= STEPS else None
        if self.told is not None:
            self.is_wrong = known != self.told
            return None
        self.told = known
        return known

    def guess(self, before_ns: int) -> Told | None:
        """What would be told if there were no more steps; None while the first is not done."""
        if self._first is None:
            return None
        typical_ns = self._typical_ns if len(self._lengths) >= FEWEST else before_ns
        start_ns, end_ns = self._first
        is_long = typical_ns > 0 and end_ns - start_ns > LONG * typical_ns
        return Told((start_ns, end_ns - typical_ns) if is_long else None, typical_ns)

    def _note(self, start: Ints, end: Ints) -> None:
        if self._first is None and len(start):
            self._first = int(start[0]), int(end[0])
            start, end = start[1:], end[1:]
        wanted = STEPS - len(self._lengths)
        if wanted and len(start):
            self._lengths += (end[:wanted] - start[:wanted]).tolist()
            self._typical_ns = int(np.quantile(self._lengths, 0.25, method="lower"))
