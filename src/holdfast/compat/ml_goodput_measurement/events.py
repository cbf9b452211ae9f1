"""What single log entries say: an event that begins or ends, a checkpoint, a number of slices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from holdfast.compat.ml_goodput_measurement import keys, kinds
from holdfast.compat.ml_goodput_measurement.clock import NS_PER_S, ns_of
from holdfast.core.ledger.kinds import DATA, RESTORE, SAVE

Entry = Mapping[str, Any]
RECENT = 100  # steps by which it is judged how long one takes
LONG = 1.25  # as for an attempt's first step (journal.facts.steps)
SKEW_NS = 2 * NS_PER_S  # a clock that is off, or goes back, by less counts as right

# (start, end) of what an event's entries say, and its span.
_EVENTS = (
    (keys.TPU_INIT_START, keys.TPU_INIT_END, kinds.TPU_INIT),
    (keys.PREPARATION_START, keys.PREPARATION_END, kinds.PREPARATION),
    (keys.DATA_START, keys.DATA_END, DATA),
    (keys.REINIT_START, keys.REINIT_END, kinds.ELASTIC_REINIT),
)


@dataclass(frozen=True, slots=True)
class SliceCounts:
    """How many slices trained, were there, and there are, from a moment on (unix seconds)."""

    at_s: float
    active: int
    available: int
    total: int


def event_of(entry: Entry) -> tuple[str, int, bool] | None:
    """(span, time in ns, whether it begins) of an event's entry; None: it is no event."""
    for start, end, kind in _EVENTS:
        if start in entry:
            return kind, ns_of(entry[start]), True
        if end in entry:
            return kind, ns_of(entry[end]), False
    if keys.CUSTOM_START in entry or keys.CUSTOM_END in entry:
        kind = kinds.custom_kind(str(entry.get(keys.CUSTOM_TYPE, "unknown")))
        begins = keys.CUSTOM_START in entry
        return kind, ns_of(entry[keys.CUSTOM_START if begins else keys.CUSTOM_END]), begins
    if keys.ELASTIC_WAIT_START in entry or keys.ELASTIC_WAIT_END in entry:
        kind = kinds.wait_kind(str(entry.get(keys.ELASTIC_TYPE, "unknown")))
        begins = keys.ELASTIC_WAIT_START in entry
        at = entry[keys.ELASTIC_WAIT_START if begins else keys.ELASTIC_WAIT_END]
        return kind, ns_of(at), begins
    return None


def slices_of(entry: Entry) -> SliceCounts:
    """What an entry on slices says."""
    total = max(1, int(entry.get(keys.SLICES_TOTAL, 1)))
    return SliceCounts(
        float(entry[keys.SLICES_AT]),
        int(entry.get(keys.SLICES_ACTIVE, 0)),
        int(entry.get(keys.SLICES_AVAILABLE, 0)),
        total,
    )


def checkpoint_of(entry: Entry) -> tuple[str, int | None, int] | None:
    """(span, start in ns or None, length in ns) of an entry by a checkpoint logger."""
    event = entry.get(keys.EVENT_TYPE)
    if event == "save":
        kind, start, seconds = SAVE, keys.SAVE_START, keys.SAVE_SECONDS
    elif event in ("restore", "emergency_restore"):
        kind, start, seconds = RESTORE, keys.RESTORE_START, keys.RESTORE_SECONDS
    else:
        return None
    if entry.get(seconds) is None:
        return None
    start_ns = None if entry.get(start) is None else ns_of(entry[start])
    return kind, start_ns, ns_of(float(entry[seconds]))


def last_step_end(start_ns: int, ended_ns: int, typical_ns: int) -> int:
    """When the step under way was done that ended with its job, or well before.

    `typical_ns` is what it should have taken (0: nobody knows); a little more is the step's own.
    """
    is_long = typical_ns > 0 and ended_ns - start_ns > LONG * typical_ns
    return start_ns + typical_ns if is_long else ended_ns


def told_behind(attempt: int, behind_ns: int) -> str:
    """For people: an attempt began before what came ahead of it had ended."""
    behind_s = behind_ns / NS_PER_S
    return (
        f"attempt {attempt} began {behind_s:.0f} s before the last entry of the attempt before it: "
        "the clock of its host is behind by at least that. It counts as begun right after that "
        "entry, so goodput may be too high"
    )
