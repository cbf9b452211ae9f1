"""What ml-goodput-measurement 0.2.3 would say of a finished job: to show where it was wrong.

A model of its arithmetic, and no part of any answer of ours. It believes that a step lasts until
the next one starts, whatever was in between; that a job was disrupted when a step number comes
again; and that events never nest.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from holdfast.compat.ml_goodput_measurement import keys
from holdfast.compat.ml_goodput_measurement.checkpoint_badput_calculator import (
    CheckpointBadputCalculator,
    CheckpointLoggerOptions,
)


@dataclass(frozen=True, slots=True)
class OldNumber:
    """Goodput in percent (None: it raises an error instead), and its count of disruptions."""

    goodput: float | None
    disruptions: int
    elapsed_s: float


def old_number(entries: Sequence[Mapping[str, Any]], now_s: float) -> OldNumber:
    """Its answer at `now_s`, which counts only if no end of the job was recorded."""
    starts = [entry[keys.JOB_START] for entry in entries if keys.JOB_START in entry]
    ends = [entry[keys.JOB_END] for entry in entries if keys.JOB_END in entry]
    if not starts:
        return OldNumber(None, 0, 0.0)
    elapsed_s = (ends[-1] if ends else now_s) - starts[0]
    customs = _customs(entries)
    rows: dict[int, float] = {}
    productive_s, disruptions = 0.0, 0
    for entry in entries:
        if keys.STEP_START not in entry:
            continue
        step = int(entry[keys.STEP])
        if step in rows:
            disruptions += 1
            productive_s += _row_of_steps(rows, step, customs)
            rows = {}
        rows[step] = entry[keys.STEP_START]
    if rows:
        productive_s += _row_of_steps(rows, max(rows), customs)
        if ends:
            productive_s += ends[-1] - rows[max(rows)]
        productive_s -= _saves_s(entries)
    if elapsed_s <= 0 or not 0 <= productive_s <= elapsed_s:
        return OldNumber(None, disruptions, elapsed_s)
    return OldNumber(productive_s / elapsed_s * 100, disruptions, elapsed_s)


def _row_of_steps(
    rows: Mapping[int, float], until: int, customs: Sequence[tuple[float, float]]
) -> float:
    """What it takes for productive of steps below `until`, by their starts."""
    lengths: list[tuple[int, float]] = []
    for (step, since), (after, at) in pairwise(rows.items()):
        if after > until or after != step + 1:
            continue
        begun = customs[bisect_left(customs, (since,)) : bisect_right(customs, (at,))]
        inside = sum(end - begin for begin, end in begun if end <= at)
        lengths.append((step, max(0.0, at - since - inside)))
    total, first_step = sum(length for _, length in lengths), min(rows)
    others = [length for step, length in lengths if step != first_step]
    if not others:
        return total
    first = total - sum(others)
    return total - max(0.0, first - sum(others) / len(others))


def _saves_s(entries: Sequence[Mapping[str, Any]]) -> float:
    """What saves blocked for; several entries of one step and place are hosts of one save."""
    saves = CheckpointBadputCalculator(CheckpointLoggerOptions(use_goodput_logger=True))
    saves.entries = [dict(entry) for entry in entries if keys.EVENT_TYPE in entry]
    found = saves.calculate_save_operation_checkpoint_manager_blocking_time()
    return found.total_checkpoint_manager_blocking_time


def _customs(entries: Sequence[Mapping[str, Any]]) -> list[tuple[float, float]]:
    """Events of which an end was recorded, by their start."""
    since: dict[str, float] = {}
    found: list[tuple[float, float]] = []
    for entry in entries:
        name = str(entry.get(keys.CUSTOM_TYPE, "")).upper()
        if keys.CUSTOM_START in entry:
            since[name] = entry[keys.CUSTOM_START]
        elif keys.CUSTOM_END in entry and name in since:
            begin = since.pop(name)
            if begin < entry[keys.CUSTOM_END]:
                found.append((begin, entry[keys.CUSTOM_END]))
    return sorted(found)
