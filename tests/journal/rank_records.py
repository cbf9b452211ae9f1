"""Records as a rank writes them, by hand."""

from __future__ import annotations

import numpy as np

from holdfast.journal.layout import Flag, Kind, pack_kind
from holdfast.journal.reader import RECORD


def record(time, kind, step=0, value=0, flags=0, arg=0) -> tuple[int, int, int, int]:
    return time, pack_kind(kind, flags, arg), step, value


def step(number, start, end, *, last=False) -> tuple[int, int, int, int]:
    return record(end, Kind.STEP, number, start, 0 if last else Flag.CONTINUES)


def begin(number, at):
    return record(at, Kind.STEP_BEGIN, number)


def restore(number, start, end, source=None):
    return record(end, Kind.RESTORE, number, start, arg=0 if source is None else source + 1)


def array(records) -> np.ndarray:
    flat = np.array(records, np.uint64).reshape(-1, 4)
    return np.ascontiguousarray(flat).view(RECORD).reshape(-1)
