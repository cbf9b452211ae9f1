"""What is exported of one run at one moment; every exporter gets the same."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from holdfast.core.alerts import AlertPolicy
from holdfast.core.durations import SECOND_NS
from holdfast.core.hang.deadline import Experience, step_limit
from holdfast.core.hosts.chips import chips_of_slices
from holdfast.core.hosts.members import GONE
from holdfast.core.ledger.summary import ALL, RunSummary
from holdfast.export.familiar import BADPUT_TYPES, CUSTOM, type_of
from holdfast.journal.attempts import Attempts, crash_loop
from holdfast.journal.facts.lines import DISK, MEMORY, SavedSet, SavesStated
from holdfast.journal.layout import RankPhase
from holdfast.runs.curves import Curve
from holdfast.runs.reading import RunReading
from holdfast.runs.state import RUNNING

CUSTOM_SHOWN = 16  # kinds that a script named: the greatest; the rest is one
OTHER_CUSTOM = "custom:other"
LONGEST_LABEL = 120


@dataclass(frozen=True, slots=True)
class TierSample:
    """A tier's newest set: its step, how old it is, and the median time between the last few."""

    step: int
    age_s: float
    interval_s: float | None


@dataclass(frozen=True, slots=True)
class EndedAttempt:
    """An attempt that has ended, with its cause in words; `at_s` is unix time."""

    attempt: int
    cause: str
    words: str
    at_s: float


@dataclass(frozen=True, slots=True)
class Sample:
    """One run at `at_s` (unix seconds).

    `attempt`: the newest; None: it was never launched. `since_step_s`: since all ranks of it last
    came to a step, while it runs. `at_risk_s`: the steps since the newest set of any tier, as time.
    `notice_s`: until the earliest announced deadline, below 0 when it is over; None: none is
    announced, or nobody says when. `since_seen_s`: since the supervisor last showed life, while the
    run counts as supervised. `save_s`, by tier: what a save takes on the average; to memory the
    training stands still for it, to disk it does not. `alike`: failures in the same way that are a
    crash loop, of which the last was in the last hour. `curves`: the script's own numbers; none
    where a summary was kept. `hosts`: of a run of several, how many stand how, while it runs;
    `clock_apart_s` and `clock_bound_s`: of those that count, how far a wall clock is at most from
    that of the controller's host, and how exactly the least known one is known.
    """

    run: RunSummary
    at_s: float
    attempt: int | None = None
    since_step_s: float | None = None
    hang_suspected: bool = False
    tiers: Mapping[str, TierSample] = field(default_factory=dict)
    at_risk_steps: int = 0
    at_risk_s: float = 0.0
    announced: int = 0
    notice_s: float | None = None
    since_seen_s: float | None = None
    ended: tuple[EndedAttempt, ...] = ()
    started_s: tuple[tuple[int, float], ...] = ()
    save_s: Mapping[str, float] = field(default_factory=dict)
    records_dropped: int = 0
    alike: int = 0
    curves: tuple[Curve, ...] = ()
    hosts: Mapping[str, int] = field(default_factory=dict)
    slice_chips: Mapping[str, int] = field(default_factory=dict)
    clock_apart_s: float | None = None
    clock_bound_s: float | None = None

    @property
    def is_running(self) -> bool:
        """Whether somebody supervises it and shows life."""
        return self.run.state == RUNNING

    def badput_s(self, window: str = ALL) -> dict[str, float]:
        """Seconds of the time line by kind of badput; a bounded number of kinds."""
        spent = self.run.spent(window)
        found: dict[str, float] = {}
        custom = 0
        for kind, chip_ns in spent.badput():
            name = kind[:LONGEST_LABEL]
            if kind.startswith("custom:"):
                custom += 1
                name = name if custom <= CUSTOM_SHOWN else OTHER_CUSTOM
            found[name] = found.get(name, 0.0) + self.run.seconds(chip_ns, window)
        return found

    def badput_by_type_s(self, window: str = ALL) -> dict[str, float]:
        """The same by the familiar types; those that are always reported are always there."""
        found = {name: 0.0 for name in BADPUT_TYPES if name != CUSTOM}
        for kind, seconds in self.badput_s(window).items():
            name = type_of(kind)
            found[name] = found.get(name, 0.0) + seconds
        return found

    def productive_s(self, window: str = ALL) -> float:
        """Seconds of kept steps."""
        return self.run.seconds(self.run.spent(window).productive, window)

    def elapsed_s(self, window: str = ALL) -> float:
        """Seconds of the time line."""
        return self.run.seconds(self.run.spent(window).elapsed, window)


def sample_of(run: RunSummary, reading: RunReading | None, now_ns: int) -> Sample:
    """All there is to tell of a run that was just summed up.

    `reading`: what its journals said; None: nobody has written any since it was last read, and only
    what a summary holds is told. `now_ns`: unix time.
    """
    at_s = now_ns / SECOND_NS
    if reading is None:
        return Sample(run, at_s, run.attempts - 1 if run.attempts else None)
    facts, records = reading.recorded.facts, reading.known.records
    clock_ns = reading.now_ns
    tiers = {
        name: TierSample(kept.step, _age_s(clock_ns, kept), _seconds(sets.interval_ns))
        for name, sets in facts.controllers.tiers.items()
        if (kept := sets.newest) is not None
    }
    if DISK not in tiers and (newest := reading.newest_set) is not None:  # without a supervisor
        tiers[DISK] = TierSample(
            newest.step, max(0.0, at_s - newest.created_unix_ns / SECOND_NS), None
        )
    is_running = run.state == RUNNING
    since_step_s = _since_step_s(reading) if is_running else None
    saved = max((tier.step for tier in tiers.values()), default=run.saved_step or 0)
    newest_start = max((record.resume_step for record in records[-1:]), default=0)
    steps = max(0, (run.step or 0) - max(saved, newest_start)) if is_running else 0
    step_s = run.step_s("1h") or run.step_s() or 0.0
    deadlines = [
        one.deadline_ns for one in facts.controllers.announced if one.deadline_ns is not None
    ]
    return Sample(
        run,
        at_s,
        attempt=records[-1].attempt if records else None,
        since_step_s=since_step_s,
        hang_suspected=is_running and _is_suspected(reading, since_step_s, step_s),
        tiers=tiers,
        at_risk_steps=steps,
        at_risk_s=steps * step_s,
        announced=len(facts.controllers.announced) if is_running else 0,
        notice_s=(min(deadlines) - clock_ns) / SECOND_NS if deadlines and is_running else None,
        since_seen_s=_since_seen_s(reading, run),
        ended=tuple(
            EndedAttempt(
                one.attempt, one.end.cause, one.end.words, one.end.ended_unix_ns / SECOND_NS
            )
            for one in records
            if one.end is not None
        ),
        started_s=tuple((one.attempt, one.created_unix_ns / SECOND_NS) for one in records),
        save_s=_save_s(facts.controllers.saves()),
        records_dropped=sum(one.values.dropped for one in facts.newest_ranks()),
        alike=_alike(reading.known, now_ns) if is_running else 0,
        curves=reading.curves,
        **(_hosts(reading) if is_running else {}),
    )


def _hosts(reading: RunReading) -> dict[str, Any]:
    """Of a run of several: nothing of one."""
    facts = reading.recorded.facts
    known = facts.controllers.hosts.all(facts.clock)
    if not known:
        return {}
    there = [one for one in known if one.state not in GONE]
    apart_ns = [abs(one.ahead_ns) for one in there if one.ahead_ns is not None]
    bound_ns = [one.error_ns for one in there if one.error_ns is not None]
    return {
        "hosts": Counter(one.state for one in known),
        "slice_chips": chips_of_slices(
            (one.slice, one.chips) for one in there if one.slot is not None
        ),
        "clock_apart_s": _seconds(max(apart_ns, default=None)),
        "clock_bound_s": _seconds(max(bound_ns, default=None)),
    }


def _alike(known: Attempts, now_ns: int) -> int:
    end = crash_loop(known)
    return end.alike if end and now_ns - end.ended_unix_ns <= AlertPolicy().alike_ns else 0


def _since_step_s(reading: RunReading) -> float | None:
    """Since the rank that is furthest behind last came to a step of the newest attempt."""
    ranks = reading.recorded.facts.newest_ranks()
    if not reading.known.records or not ranks:
        return None
    if ranks[0].identity.attempt != reading.known.records[-1].attempt:
        return None  # it is being launched
    last = []
    for one in ranks:
        at_ns = max(one.values.step_at_ns, one.values.complete_at_ns)
        last.append(at_ns + one.offset_ns if at_ns else one.first_ns or 0)
    return max(0.0, (reading.now_ns - min(last)) / SECOND_NS)


def _is_suspected(reading: RunReading, since_step_s: float | None, step_s: float) -> bool:
    """Whether the attempt that runs seems to hang.

    Either somebody collected its stacks, and no step came after that; or it is half-way to the
    deadline of a step, which the user set or which is learned, outside of any declared span, after
    a first step.
    """
    ranks, records = reading.recorded.facts.newest_ranks(), reading.known.records
    if since_step_s is None or not records or records[-1].end is not None:
        return False
    suspected = reading.recorded.facts.controllers.suspected
    if suspected is not None and suspected.attempt == records[-1].attempt:
        return (reading.now_ns - suspected.at_ns) / SECOND_NS <= since_step_s
    if any(one.values.open_spans or not one.values.step_at_ns for one in ranks):
        return False
    if any(one.values.phase not in (RankPhase.TRAINING, RankPhase.FAILING) for one in ranks):
        return False
    policy = reading.recorded.facts.controllers.hang
    if not policy.is_watched:
        return False
    limit = step_limit(policy, Experience(), round(step_s * SECOND_NS))
    return since_step_s * SECOND_NS > limit.ns / 2


def _since_seen_s(reading: RunReading, run: RunSummary) -> float | None:
    """Since a sign of life, by the lease's heartbeat or the journal's, whichever is newer."""
    if run.holder is None:
        return None
    seen_ns = max(reading.lease.seen_unix_ns or 0, reading.recorded.facts.seen_ns)
    return max(0.0, (reading.now_ns - seen_ns) / SECOND_NS) if seen_ns else None


def _save_s(saves: SavesStated) -> dict[str, float]:
    found = {}
    if saves.memory:
        found[MEMORY] = saves.memory_blocked_ns / saves.memory / SECOND_NS
    if saves.flushes:
        found[DISK] = saves.flushed_ns / saves.flushes / SECOND_NS
    return found


def _age_s(now_ns: int, kept: SavedSet) -> float:
    return max(0.0, (now_ns - kept.at_ns) / SECOND_NS)


def _seconds(ns: int | None) -> float | None:
    return None if ns is None else ns / SECOND_NS
