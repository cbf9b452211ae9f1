"""A growing column of 64-bit integers: the storage of the vectorised ledger."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

FEW = 24  # up to so many rows plain numbers are quicker than numpy, and smaller
_FIRST_CAPACITY = 64
_NOTHING: Ints = np.empty(0, dtype=np.int64)


class Column:
    """Values that are appended at the end, or cut off there.

    It grows by an eighth at a time: a million rows cost 8 to 9 MB, and an append is O(1) amortised.
    Of fifty thousand attempts nearly all have a few rows: those may be put in as plain numbers with
    `put`, and stay so until the column grows.
    """

    __slots__ = ("_data", "_few", "_size")

    def __init__(self) -> None:
        self._few: tuple[int, ...] | None = ()  # all of it; None: it is in `_data`
        self._data = _NOTHING
        self._size = 0

    def __len__(self) -> int:
        return self._size if self._few is None else len(self._few)

    def __getitem__(self, index: int) -> int:
        few = self._few
        if few is not None and index >= 0:
            return few[index]
        if not 0 <= index < self._size:
            raise IndexError(index)
        return int(self._data[index])

    def put(self, values: Iterable[int]) -> None:
        """These few instead of all that is there."""
        self._few, self._data, self._size = tuple(values), _NOTHING, 0

    @property
    def few(self) -> tuple[int, ...] | None:
        """All values, if they are few."""
        return self._few

    @property
    def view(self) -> Ints:
        """The values, without a copy if they are many; valid until the column changes."""
        if self._few is not None:
            return np.array(self._few, dtype=np.int64)
        return self._data[: self._size]

    def extend(self, values: Ints) -> None:
        """Append values."""
        self.grow(len(values))[:] = values

    def grow(self, count: int) -> Ints:
        """Append `count` values that the caller must fill in at once; returns where."""
        if self._few is not None:
            self._data = self.view
            self._few, self._size = None, len(self._data)
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
        if self._few is not None:
            self._few = self._few[:size]
        self._size = min(size, self._size)

    def left(self, value: int) -> int:
        """How many values are below `value`; the column must be sorted."""
        if self._few is not None:
            return bisect_left(self._few, value)
        return int(self.view.searchsorted(value, "left"))

    def right(self, value: int) -> int:
        """How many values are not above `value`; the column must be sorted."""
        if self._few is not None:
            return bisect_right(self._few, value)
        return int(self.view.searchsorted(value, "right"))


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
