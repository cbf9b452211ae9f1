"""What a chip-nanosecond can have been: the kinds, and the level of goodput each one weighs on.

Kinds are strings, because three families are open: `custom:NAME`, `queued:KIND`,
`reschedule:KIND`. The rules that give each moment its kind are in docs/reference/history.md.
"""

from __future__ import annotations

from enum import StrEnum

DONE = "done"  # why an attempt ended: the cause that is no disruption

STEP = "step"  # steps that were kept: the only productive kind
QUEUED = "queued"  # before the first attempt
RESCHEDULE = "reschedule"  # between attempts, and chips that an elastic run lacks
STOPPED = "stopped"  # from a stop that a person asked for to the next start
BACKOFF = "backoff"  # the hardware was there, and we waited on purpose
STARTUP = "startup"
COMPILE = "compile"
RESTORE = "restore"
SAVE = "save"
DATA = "data"
DETECT = "detect"  # fault → noticed
HANG = "hang"  # the same, when the fault was a hang
DRAIN = "drain"  # noticed → the attempt's processes are gone
LOST = "lost"  # steps that are not on the kept lineage
UNDER_WAY = "under_way"  # a step that is not over yet: nobody knows whether it will be kept
OTHER = "other"
CUSTOM_PREFIX = "custom:"

SPAN_KINDS = (STARTUP, COMPILE, SAVE, DATA)  # and custom:NAME
_RANKS = 2**61 - 1  # a prime
WAIT_KINDS = (BACKOFF, STOPPED, "hosts", "queue", "provision", "pull", "boot")


def is_span_kind(kind: str) -> bool:
    """Whether a span may be of that kind."""
    return kind in SPAN_KINDS or (kind.startswith(CUSTOM_PREFIX) and kind != CUSTOM_PREFIX)


class Level(StrEnum):
    """Which factor of goodput = SG × RG × PG a kind lowers."""

    PRODUCTIVE = "productive"
    SCHEDULING = "scheduling"
    RUNTIME = "runtime"


def level_of(kind: str) -> Level:
    """The level of a kind: what is neither a kept step nor waiting for a start is runtime."""
    if kind == STEP:
        return Level.PRODUCTIVE
    family = kind.partition(":")[0]
    return Level.SCHEDULING if family in (QUEUED, RESCHEDULE, STOPPED) else Level.RUNTIME


def waiting_kind(wait: str | None, *, before_first: bool, after_done: bool) -> str:
    """Rule 1: the kind of a moment in which no attempt was running; `wait` is what a wait says."""
    if wait in (BACKOFF, STOPPED):
        return wait
    if wait is not None:
        return f"{QUEUED if before_first else RESCHEDULE}:{wait}"
    if before_first:
        return QUEUED
    return OTHER if after_done else RESCHEDULE


def kind_rank(kind: str) -> int:
    """Which of two kinds wins where nothing else tells them apart: any fixed order will do."""
    rank = 0
    for place in map(ord, kind):
        rank = (rank * 257 + place) % _RANKS
    return rank


def is_disruption(end_ns: int | None, cause: str | None) -> bool:
    """Whether an attempt's end is one: it ended, with another cause than `done` or null."""
    return end_ns is not None and cause is not None and cause != DONE
