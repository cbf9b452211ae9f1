"""Which arrays of a tree are copied at the boundary, which later, and what the driver copies.

What was sorted out once holds for the next copy, while all that may be late lies where it lay.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence, Set
from typing import Any, NamedTuple

from holdfast.snapshot.arrays import ArrayKind
from holdfast.snapshot.described import Description, Region
from holdfast.snapshot.device import DeviceBytes, device_of, on_device, stream_of
from holdfast.snapshot.layout import Placed
from holdfast.snapshot.shared_file import SharedFile


class _Sorting(NamedTuple):
    """What was sorted out of a tree, and holds while `key` is what it was."""

    key: tuple[Any, ...]
    now: list[int]  # places among all arrays of the file
    later: list[int]
    work: list[tuple[int, DeviceBytes]]
    streams: set[tuple[int, int]]  # of devices, that were there then

    def fits(self, key: tuple[Any, ...]) -> bool:
        """Whether it holds still."""
        return key == self.key and all(stream_of(one) == was for one, was in self.streams)


def sort_out(
    described: Description, may_be_late: Set[Region] | None, file: SharedFile
) -> tuple[list[Placed], list[Placed], list[tuple[int, DeviceBytes]]]:
    """What is copied now; what later: all from devices, or all on the host; the driver's work."""
    placed, outline = described.placed, described.outline
    if may_be_late is None:
        return list(placed), [], []
    key = _sorting_key(described, may_be_late, file)
    plan: _Sorting | None = outline.plan if outline is not None else None
    if plan is not None and key is not None and plan.fits(key):
        return [placed[one] for one in plan.now], [placed[one] for one in plan.later], plan.work
    now: list[Placed] = []
    later: list[Placed] = []
    for one in placed:
        (later if _is_late(one, may_be_late) else now).append(one)
    work, rest = by_driver(later, file)
    if work:
        taken = {id(one) for one in rest}
        now, later = now + rest, [one for one in later if id(one) not in taken]
    elif any(device_of(leaf) is not None for _, leaf, _ in rest):
        now, later = list(placed), []  # slow copies would hold up the step that comes
    if outline is not None and key is not None:
        places = {id(one): place for place, one in enumerate(placed)}
        of_now, of_later = ([places[id(one)] for one in some] for some in (now, later))
        streams = {(part.device, part.stream) for _, part in work}
        outline.plan = _Sorting(key, of_now, of_later, work, streams)
    return now, later, work


def _sorting_key(
    described: Description, may_be_late: Set[Region], file: SharedFile
) -> tuple[Any, ...] | None:
    """What follows from that alone: what is late, and where it is; None: more must be looked at."""
    regions = described.regions
    if any(
        _is_late(one, may_be_late)
        for one, region in zip(described.placed, regions, strict=False)
        if region is None
    ):
        return None
    are_late = [*map(may_be_late.__contains__, regions)]
    return file.pinned is not None, are_late, [*itertools.compress(regions, are_late)]


def _is_late(one: Placed, may_be_late: Set[Region]) -> bool:
    """Whether an array lies in such a place, all of it."""
    _, leaf, piece = one
    if leaf.kind is not ArrayKind.TORCH:
        return False
    source = piece.source
    try:
        region = source.data_ptr(), source.nbytes
    except RuntimeError:  # a tensor without memory of its own
        return False
    return region in may_be_late and source.is_contiguous()


def by_driver(
    placed: Sequence[Placed], file: SharedFile
) -> tuple[list[tuple[int, DeviceBytes]], list[Placed]]:
    """What the driver copies straight into the file, and where to; and all the rest."""
    if file.pinned is None:
        return [], list(placed)
    work: list[tuple[int, DeviceBytes]] = []
    rest: list[Placed] = []
    streams: dict[int, int] = {}
    for one in placed:
        entry, leaf, piece = one
        parts = on_device(leaf, piece, streams)
        if parts is None:
            rest.append(one)
        else:
            work += [(entry.begin, part) for part in parts]
    return work, rest
