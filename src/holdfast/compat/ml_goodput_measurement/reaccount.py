"""A job that the library accounted for, accounted for anew from its exported log entries."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from holdfast.compat.ml_goodput_measurement import clock, keys, kinds
from holdfast.compat.ml_goodput_measurement.books import JobAnswer
from holdfast.compat.ml_goodput_measurement.clock import NS_PER_S
from holdfast.compat.ml_goodput_measurement.events import event_of
from holdfast.compat.ml_goodput_measurement.exported import Exported, corrected, read_export
from holdfast.compat.ml_goodput_measurement.old_number import OldNumber, old_number
from holdfast.compat.ml_goodput_measurement.shapes import flat_badput
from holdfast.compat.ml_goodput_measurement.story import JobStory
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.journal.layout import MAX_TIME_NS

MIN_S = 0.5  # a reason that is worth less is not named


@dataclass(frozen=True, slots=True)
class Reason:
    """Why the old number was wrong; `seconds` is what was taken for something else."""

    words: str
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Reaccounted:
    """A job's account as it is and as it was."""

    job: str
    now: JobAnswer
    old: OldNumber
    reasons: tuple[Reason, ...]
    damaged: int

    def to_json(self) -> dict[str, Any]:
        """Plain types; seconds and percent."""
        return {
            "job": self.job,
            "goodput": self.now.goodput,
            "elapsed_s": self.now.elapsed_s,
            "productive_s": self.now.productive_s,
            "badput_s": {
                name.lower(): seconds
                for name, seconds in flat_badput(self.now.badput_s())
                if seconds
            },
            "disruptions": self.now.disruptions,
            "max_productive_step": self.now.max_productive_step,
            "old": {
                "goodput": self.old.goodput,
                "elapsed_s": self.old.elapsed_s,
                "disruptions": self.old.disruptions,
            },
            "reasons": [{"words": one.words, "seconds": one.seconds} for one in self.reasons],
            "damaged_entries": self.damaged,
        }


def reaccount(
    path: str | os.PathLike[str], job: str | None = None, now_s: float | None = None
) -> Reaccounted:
    """Account for the job in a file of exported entries, as of `now_s` (unix seconds; None: now).

    Raises ConfigurationError when the file cannot be read or does not say whose job, or `now_s` is
    no moment, ValueError when nothing in it can be accounted for.
    """
    if now_s is not None and not 0 <= now_s <= MAX_TIME_NS / NS_PER_S:
        raise ConfigurationError(
            f"--now {now_s} is no moment: give unix seconds, such as 1704000000"
        )
    exported = read_export(path, job)
    now_s = clock.unix_ns() / NS_PER_S if now_s is None else now_s
    entries, moved = corrected(exported)
    story = JobStory(exported.job)
    story.feed(entries)
    answer = story.ask(clock.ns_of(now_s))
    old = old_number(exported.entries, now_s)
    reasons = tuple(_reasons(exported, story, answer, old, moved))
    return Reaccounted(exported.job, answer, old, reasons, exported.damaged)


def _reasons(
    exported: Exported,
    story: JobStory,
    answer: JobAnswer,
    old: OldNumber,
    moved: Sequence[tuple[int, float]],
) -> Iterator[Reason]:
    if old.goodput is None:
        yield Reason("it gives an error instead of a number: times do not fit together", None)
    for attempt, off_s in moved:
        yield Reason(f"the clock of the host that ran attempt {attempt} was off", off_s)
    for words in story.contradictions.values():
        yield Reason(words, None)
    behind = [
        (after.first_step_ns - before.ended_ns) / NS_PER_S
        for before, after in pairwise(story.lives)
        if after.first == before.done + 1 and after.first_step_ns and before.ended_ns
    ]
    if behind:
        yield Reason(
            f"{len(behind)} restart{'s' * (len(behind) > 1)} that lost no step: the time down was "
            "counted as part of a step",
            sum(behind),
        )
    if answer.disruptions != old.disruptions:
        count = answer.disruptions
        yield Reason(f"{count} disruption{'s' * (count != 1)}; it saw {old.disruptions}", None)
    firsts = [life.first for life in story.lives if life.first is not None]
    if any(after < before for before, after in pairwise(firsts)):
        yield Reason(
            "a restart fell back behind the start of the attempt before it: steps of earlier "
            "attempts were thrown away, and counted as kept",
            answer.by_kind.get("lost"),
        )
    if answer.by_kind.get(kinds.LATER_DATA, 0.0) > MIN_S:
        yield Reason(
            "waits for data within steps were counted as productive",
            answer.by_kind[kinds.LATER_DATA],
        )
    if (twice_s := _twice(exported)) > MIN_S:
        yield Reason("events that nest or overlap were taken off the steps twice", twice_s)
    if (longer_s := old.elapsed_s - answer.elapsed_s) > MIN_S:
        yield Reason("no end was recorded: the time since the job was last heard of", longer_s)
    if answer.by_kind.get(kinds.AFTER_STEPS, 0.0) > MIN_S:
        yield Reason(
            "what came after the last step, until the job's end, was counted as part of it",
            answer.by_kind[kinds.AFTER_STEPS],
        )


def _twice(exported: Exported) -> float:
    """Seconds in which more than one custom event was open."""
    edges: list[tuple[int, int]] = []
    since: dict[str, int] = {}
    for entry in exported.entries:
        event = event_of(entry) if keys.CUSTOM_TYPE in entry else None
        if event is None:
            continue
        kind, at_ns, begins = event
        if begins:
            since[kind] = at_ns
        elif kind in since:
            edges += [(since.pop(kind), 1), (at_ns, -1)]
    level, twice_ns = 0, 0
    ordered = sorted(edges)
    for (at_ns, change), (next_ns, _) in pairwise(ordered):
        level += change
        twice_ns += max(0, level - 1) * (next_ns - at_ns)
    return twice_ns / NS_PER_S


def command(arguments: list[str]) -> int:
    """The command line; gives the exit code."""
    parser = argparse.ArgumentParser(prog="reaccount", description=(__doc__ or "").strip())
    parser.add_argument("file", help="exported log entries, JSON")
    parser.add_argument("--job", help="whose, if the file holds several jobs")
    parser.add_argument("--now", type=float, help="as of that moment, unix seconds")
    parser.add_argument("--json", action="store_true", help="for programs")
    options = parser.parse_args(arguments)
    try:
        found = reaccount(options.file, options.job, options.now)
    except HoldfastError as problem:
        print(problem, file=sys.stderr)
        return problem.exit_code
    except ValueError as problem:
        print(problem, file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(found.to_json(), indent=1))
    else:
        print("\n".join(_lines(found)))
    return 0


def _lines(found: Reaccounted) -> Iterator[str]:
    answer, old = found.now, found.old
    said = "an error" if old.goodput is None else f"{old.goodput:.1f} %"
    yield f"job {found.job}: {answer.goodput:.1f} % goodput; ml-goodput-measurement said {said}"
    yield f"{answer.elapsed_s:,.0f} s, {answer.productive_s:,.0f} of them steps that were kept"
    for name, seconds in flat_badput(answer.badput_s()):
        if seconds >= MIN_S and name != "DATA_LOADING_ASYNC":
            yield f"  {name.lower():44}{seconds:12,.0f} s{seconds / answer.elapsed_s * 100:7.1f} %"
    yield "where the old number was wrong:" if found.reasons else "the old number was right"
    for reason in found.reasons:
        amount = "" if reason.seconds is None else f" ({reason.seconds:,.0f} s)"
        yield f"  - {reason.words}{amount}"
    if found.damaged:
        yield f"{found.damaged} lines were no entries, and are left out"
