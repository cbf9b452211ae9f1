"""A column of whole numbers, few or many: the storage of the vectorised ledger."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

FEW = 24  # up to so many rows plain numbers are quicker than numpy, and smaller
_FIRST_CAPACITY = 64
_NOTHING: Ints = np.empty(0, dtype=np.int64)


class Few(tuple[int, ...]):
    """A column of a few rows, as plain numbers. Of fifty thousand attempts nearly all have few."""

    __slots__ = ()

    @property
    def view(self) -> Ints:
        """The values for numpy."""
        return np.array(self, dtype=np.int64)

    def grown(self) -> Column:
        """The same as a column that grows."""
        return Column(self.view)

    def left(self, value: int) -> int:
        """How many values are below `value`; they must be sorted."""
        return bisect_left(self, value)

    def right(self, value: int) -> int:
        """How many values are not above `value`; they must be sorted."""
        return bisect_right(self, value)


NONE = Few()


class Column:
    """64-bit integers that are appended at the end, or cut off there.

    It grows by an eighth at a time: a million rows cost 8 to 9 MB, and an append is O(1) amortised.
    """

    __slots__ = ("_data", "_size")

    def __init__(self, values: Ints = _NOTHING) -> None:
        self._data = values
        self._size = len(values)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._size:
            raise IndexError(index)
        return int(self._data[index])

    def __iter__(self) -> Iterator[int]:
        return iter(self.view.tolist())

    @property
    def view(self) -> Ints:
        """The values, without a copy; valid until the column changes."""
        return self._data[: self._size]

    def grown(self) -> Column:
        """It is one that grows."""
        return self

    def extend(self, values: Ints) -> None:
        """Append values."""
        self.grow(len(values))[:] = values

    def grow(self, count: int) -> Ints:
        """Append `count` values that the caller must fill in at once; returns where."""
        size = self._size + count
        if size > len(self._data):
            data = np.empty(max(_FIRST_CAPACITY, size + size // 8), dtype=np.int64)
            data[: self._size] = self._data[: self._size]
            self._data = data
        new = self._data[self._size : size]
        self._size = size
        return new

    def truncate(self, size: int) -> None:
        """Keep only the first `size` values."""
        self._size = min(size, self._size)

    def left(self, value: int) -> int:
        """How many values are below `value`; the column must be sorted."""
        return int(self.view.searchsorted(value, "left"))

    def right(self, value: int) -> int:
        """How many values are not above `value`; the column must be sorted."""
        return int(self.view.searchsorted(value, "right"))


Numbers: TypeAlias = Few | Column


def as_ints(values: object) -> Ints:
    """Anything that numpy can read as whole numbers, as a contiguous array of int64."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"whole numbers are needed, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)


def groups(column: Ints) -> Iterator[tuple[int, slice]]:
    """Each value of a sorted column, and where it stands."""
    starts = np.flatnonzero(np.diff(column, prepend=column[:1] - 1))
    bounds = [*starts.tolist(), len(column)]
    for value, (start, end) in zip(column[starts].tolist(), pairwise(bounds), strict=True):
        yield value, slice(start, end)
