"""Completed steps and closed spans of a history as columns: lean, and quick to check."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from operator import lt


def _column() -> array[int]:
    return array("q")


@dataclass(slots=True)
class StepRows:
    """Completed steps of one attempt, sorted by time: columns of 64-bit integers.

    One entry is a row of equal steps `first`..`last`; `line` is where it stood in the file.
    """

    first: array[int] = field(default_factory=_column)
    last: array[int] = field(default_factory=_column)
    start_ns: array[int] = field(default_factory=_column)
    end_ns: array[int] = field(default_factory=_column)
    line: array[int] = field(default_factory=_column)

    def __len__(self) -> int:
        return len(self.first)

    def extend(self, *columns: Iterable[int]) -> None:
        """Append rows, given as one iterable a column, in the order of the fields."""
        for column, values in zip(self._columns(), columns, strict=True):
            column.extend(values)

    def sort(self) -> None:
        """Bring the rows into the order of time. Most files have them in it already."""
        if all(map(lt, self.start_ns, islice(self.start_ns, 1, None))):
            return
        keys = list(zip(self.start_ns, self.end_ns, self.first, strict=True))
        order = sorted(range(len(self)), key=keys.__getitem__)
        for column in self._columns():
            column[:] = array("q", map(column.__getitem__, order))

    def _columns(self) -> tuple[array[int], ...]:
        return self.first, self.last, self.start_ns, self.end_ns, self.line


@dataclass(slots=True)
class SpanRows:
    """Closed spans of one attempt, in any order; `kind` indexes the history's kinds.

    `line` is where each stood in the file: of two equal ones, the later wins.
    """

    kind: array[int] = field(default_factory=_column)
    start_ns: array[int] = field(default_factory=_column)
    end_ns: array[int] = field(default_factory=_column)
    line: array[int] = field(default_factory=_column)

    def __len__(self) -> int:
        return len(self.kind)

    def extend(self, *columns: Iterable[int]) -> None:
        """Append rows, given as one iterable a column, in the order of the fields."""
        own = (self.kind, self.start_ns, self.end_ns, self.line)
        for column, values in zip(own, columns, strict=True):
            column.extend(values)
