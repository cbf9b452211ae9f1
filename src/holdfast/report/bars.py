"""Bars out of characters: to an eighth of a cell, or plain ASCII where nothing else prints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

_EIGHTHS = " ▏▎▍▌▋▊▉█"
_RIGHT_HALF = "▐"


class BarSegment(NamedTuple):
    """A run of equal cells: how many, and which of the pieces they belong to."""

    piece: int
    cells: int


def bar(begin: float, end: float, width: int, *, ascii_only: bool = False) -> str:
    """A bar from `begin` to `end` (shares of the width, 0 to 1), padded to `width` cells.

    Something that took any time at all is at least a sliver, so that no phase is invisible.
    """
    begin, end = max(0.0, min(begin, 1.0)), max(0.0, min(end, 1.0))
    if end <= begin:
        return " " * width
    first, last = begin * width, end * width
    cell = min(int(first), width - 1)
    if ascii_only:
        cells = max(1, round(last) - cell)
        return (" " * cell + "#" * cells).ljust(width)[:width]
    if last - first < 1:  # less than a cell: at the cell border that is nearest
        cell = min(round(first), width - 1)
        eighths = max(1, round((last - first) * 8))
        return (" " * cell + _EIGHTHS[eighths]).ljust(width)
    text = " " * cell
    covered = cell + 1 - first
    text += "█" if covered > 0.75 else _RIGHT_HALF if covered > 0.25 else " "
    text += "█" * (int(last) - cell - 1)
    rest = round((last - int(last)) * 8)
    return (text + (_EIGHTHS[rest] if rest else "")).ljust(width)[:width]


def split(parts: Sequence[int], width: int) -> list[BarSegment]:
    """Share `width` cells among parts in proportion, by largest remainder.

    The cells add up to `width` exactly; a part that is not zero gets at least one cell while there
    are enough for all.
    """
    total = sum(parts)
    if total <= 0 or width <= 0:
        return []
    cells = [part * width // total for part in parts]
    by_remainder = sorted(range(len(parts)), key=lambda i: (-(parts[i] * width % total), i))
    for i in by_remainder[: width - sum(cells)]:
        cells[i] += 1
    for i in (i for i, part in enumerate(parts) if part > 0 and cells[i] == 0):
        richest = max(range(len(parts)), key=lambda j: cells[j])
        if cells[richest] > 1:
            cells[richest] -= 1
            cells[i] = 1
    return [BarSegment(i, count) for i, count in enumerate(cells) if count]
