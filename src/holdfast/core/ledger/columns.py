"""A growing column of 64-bit integers: the storage of the vectorised ledger."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Ints: TypeAlias = NDArray[np.int64]

_FIRST_CAPACITY = 4  # there may be fifty thousand attempts of a few rows each
_NOTHING: Ints = np.empty(0, dtype=np.int64)


class Column:
    """Values that are appended at the end, or cut off there.

    It grows by an eighth at a time, a small one by half: a million rows cost 8 to 9 MB, and an append is O(1) amortised.
    """

    __slots__ = ("_data", "_size")

    def __init__(self) -> None:
        self._data = _NOTHING
        self._size = 0

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._size:
            raise IndexError(index)
        return int(self._data[index])

    @property
    def view(self) -> Ints:
        """The values, without a copy; valid until the column changes."""
        return self._data[: self._size]

    def extend(self, values: Ints) -> None:
        """Append values."""
        self.grow(len(values))[:] = values

    def grow(self, count: int) -> Ints:
        """Append `count` values that the caller must fill in at once; returns where."""
        size = self._size + count
        if size > len(self._data):
            data = np.empty(
                max(_FIRST_CAPACITY, size + max(size // 8, min(size // 2, 64))), dtype=np.int64
            )
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


def as_ints(values: object) -> Ints:
    """Anything that numpy can read as whole numbers, as a contiguous array of int64."""
    array = np.asarray(values)
    if array.size == 0:
        return np.empty(0, dtype=np.int64)
    if array.dtype.kind not in "iu":
        raise TypeError(f"whole numbers are needed, not {array.dtype}")
    return np.ascontiguousarray(array, dtype=np.int64)
