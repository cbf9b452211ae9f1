"""Stretches of time that somebody wants left out of an account."""

from __future__ import annotations

import datetime
import logging

logger = logging.getLogger(__name__)


def normalize_intervals(
    intervals: list[tuple[datetime.datetime, datetime.datetime]],
) -> list[tuple[float, float]]:
    """The intervals as unix seconds, sorted, those that touch or overlap made one.

    Times must be in UTC, and an end after its start: others are left out, with a warning.
    """
    fit = []
    for start, end in intervals:
        if start.tzinfo != datetime.UTC or end.tzinfo != datetime.UTC:
            logger.warning(
                "the interval %s to %s is left out: its times are not in UTC", start, end
            )
        elif start >= end:
            logger.warning("the interval %s to %s is left out: it has no length", start, end)
        else:
            fit.append((start.timestamp(), end.timestamp()))
    merged: list[tuple[float, float]] = []
    for begins, ends in sorted(fit):
        if merged and begins <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], ends))
        else:
            merged.append((begins, ends))
    return merged


def get_exclusion_overlap(start: float, end: float, exclusions: list[tuple[float, float]]) -> float:
    """How many seconds of `start` to `end` lie in the exclusions, which do not overlap."""
    return sum(max(0.0, min(end, until) - max(start, since)) for since, until in exclusions)
