"""Signs of life of a supervisor, thinned: of so many in a minute, few say as much."""

from __future__ import annotations

from bisect import bisect_right, insort

import numpy as np

from holdfast.journal.rank_steps import Ints

SPACING_NS = 20_000_000_000


class Signs:
    """The first and the last of each 20 s, in whatever order and pieces they come.

    A pause of a minute shows where it did, at whatever moment one asks.
    """

    def __init__(self) -> None:
        self._cells: list[int] = []
        self._kept: dict[int, tuple[int, int]] = {}

    def add(self, at_ns: Ints) -> list[int]:
        """Take some; gives those that are kept and were not."""
        if not len(at_ns):
            return []
        at_ns = np.sort(at_ns)
        begins = np.flatnonzero(np.diff(at_ns // SPACING_NS, prepend=-1))
        first, last = at_ns[begins], at_ns[np.append(begins[1:], len(at_ns)) - 1]
        news: list[int] = []
        for low, high in zip(first.tolist(), last.tolist(), strict=True):
            cell = low // SPACING_NS
            known = self._kept.get(cell)
            if known is None:
                insort(self._cells, cell)
                kept = (low, high)
            else:
                kept = (min(low, known[0]), max(high, known[1]))
            self._kept[cell] = kept
            news += sorted({*kept} - {*(known or ())})
        return news

    def last(self, until_ns: int | None = None) -> int:
        """The last one, or the last up to a moment; 0: there is none."""
        at = len(self._cells)
        if until_ns is not None:
            at = bisect_right(self._cells, until_ns // SPACING_NS)
        for cell in reversed(self._cells[max(0, at - 2) : at]):
            for at_ns in reversed(self._kept[cell]):
                if until_ns is None or at_ns <= until_ns:
                    return at_ns
        return 0
