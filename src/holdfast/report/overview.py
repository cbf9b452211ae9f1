"""What a run's page shows, as plain data: of findings and the ledger's course. Others render it.

A page on disk and a live one show the same. Everything is bounded: a month's run has as many marks
as an hour's. Words from outside stand here as they came, but for what a terminal would obey.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from holdfast.core.ledger.account import Account, Disruption
from holdfast.core.ledger.course import Course
from holdfast.core.ledger.kinds import OTHER, STEP, UNDER_WAY, Level, level_of
from holdfast.core.ledger.program import Basis
from holdfast.core.ledger.step_times import StepTimes
from holdfast.core.visible import clean
from holdfast.journal.facts.attempts import RankSeen
from holdfast.profiles.summary import ProfileSummary
from holdfast.report.advice import Advice, RunCondition, advice
from holdfast.report.findings import Findings, HostFindings, LastAnnounced, LaunchFindings
from holdfast.report.hosts import HostRow, host_rows
from holdfast.report.kinds import place_of
from holdfast.report.stories import Incident, stories
from holdfast.report.tiers import Newest, TierRisk, tiers
from holdfast.report.words import duration
from holdfast.runs.curves import Curve


@dataclass(frozen=True, slots=True)
class Factor:
    """One of goodput's factors: its share, of what, and what was lost by it.

    `lost_chip_ns` None: it is not measured.
    """

    name: str
    share: float | None
    of: str
    lost_chip_ns: int | None


@dataclass(frozen=True, slots=True)
class PresentPhase:
    """What the run is in that is no step: its kind, for how long, and how long it took before.

    `usual_ns` None: it never was in this after a disruption; `times`: how often it was.
    """

    kind: str
    since_ns: int
    lasts_ns: int
    usual_ns: int | None
    times: int


@dataclass(frozen=True, slots=True)
class Gain:
    """A change that would raise goodput, and by how much: shares."""

    change: str
    gain: float
    goodput: float


@dataclass(frozen=True, slots=True)
class Gains:
    """What would raise goodput most, the largest first; `words`: what that rests on."""

    changes: tuple[Gain, ...]
    words: str


@dataclass(frozen=True, slots=True)
class RunSight:
    """All that a page is made of. `now_ns`: when it was looked, on the run's clock."""

    findings: Findings
    course: Course
    steps: StepTimes
    now_ns: int
    ranks: tuple[RankSeen, ...] = ()
    newest: Mapping[str, Newest] = field(default_factory=dict)  # sets, by tier
    price_per_chip_hour: float | None = None
    gains: Gains | None = None
    store_flag: str | None = None  # where commands have to be told to look


@dataclass(frozen=True, slots=True)
class Overview:
    """The page's content. Times are ns on the run's clock, unix time if `unix_clock`."""

    name: str
    state: str
    why: str
    is_live: bool
    store: str | None
    command: tuple[str, ...]
    commands: tuple[LaunchFindings, ...]
    unix_clock: bool
    origin_ns: int
    now_ns: int
    account: Account
    factors: tuple[Factor, ...]
    productivity: str  # all three together, in words
    price_per_chip_hour: float | None
    last_step_age_ns: int | None
    is_on_device: bool  # its ranks tell when the device has completed a step
    phase: PresentPhase | None
    announced: tuple[LastAnnounced, ...]
    save_ns: int | None
    advice: Advice
    course: Course
    steps: StepTimes
    curves: tuple[Curve, ...]
    incidents: tuple[Incident, ...]
    members: tuple[HostFindings, ...]  # the hosts of a run of several
    hosts: tuple[HostRow, ...]
    tiers: tuple[TierRisk, ...]
    saving: str | None
    compilations: str | None
    gains: Gains | None
    profile: ProfileSummary | None
    basis: Basis
    requeues: tuple[str, ...]
    rollbacks: tuple[str, ...]
    notes: tuple[str, ...]
    attempts: int

    @property
    def newest(self) -> Incident | None:
        """The incident that counts: the last one."""
        return self.incidents[-1] if self.incidents else None


def overview(sight: RunSight) -> Overview:
    """Everything that a page shows of a run."""
    findings, course = sight.findings, sight.course
    account = findings.account
    state = findings.state or _state_of(course)
    is_live = state in ("running", "silent")
    incidents = stories(findings, sight.price_per_chip_hour)
    rows = tiers(findings, sight.steps, sight.ranks, sight.newest)
    hosts = host_rows(sight.ranks, sight.now_ns, sight.steps.usual_ns)
    phase = _phase(sight) if is_live else None
    age_ns = None
    if sight.steps.last_end_ns is not None:
        age_ns = max(0, sight.now_ns - sight.steps.last_end_ns)
    save_ns = _save_ns(findings, sight.ranks)
    standing = _Standing(state, phase, age_ns, save_ns, incidents, hosts, rows)
    return Overview(
        name=clean(account.name),
        state=state,
        why=clean(findings.why),
        is_live=is_live,
        store=findings.store,
        command=tuple(map(clean, findings.command)),
        commands=tuple(
            LaunchFindings(one.attempt, tuple(map(clean, one.command))) for one in findings.commands
        ),
        unix_clock=findings.unix_clock,
        origin_ns=findings.origin_ns,
        now_ns=sight.now_ns,
        account=account,
        factors=_factors(account, findings.program, _program_words(findings)),
        productivity=findings.productivity_words,
        price_per_chip_hour=sight.price_per_chip_hour,
        last_step_age_ns=age_ns,
        is_on_device=any(rank.complete for rank in sight.ranks),
        phase=phase,
        announced=findings.announced,
        save_ns=save_ns,
        advice=advice(_condition(sight, standing)),
        course=course,
        steps=sight.steps,
        curves=findings.curves,
        incidents=incidents,
        members=findings.hosts,
        hosts=hosts,
        tiers=rows,
        saving=findings.saving_words,
        compilations=None if findings.compilations is None else findings.compilations.words,
        gains=sight.gains,
        profile=findings.profile,
        basis=findings.basis,
        requeues=tuple(clean(one.words(findings.origin_ns)) for one in findings.requeues),
        rollbacks=tuple(clean(one.words) for one in findings.rollbacks),
        notes=tuple(map(clean, findings.notes)),
        attempts=len(course.launches) if findings.attempts is None else findings.attempts,
    )


def _state_of(course: Course) -> str:
    """Of a history, which has no store that knows: it may have ended without being done."""
    if not course.is_over:
        return "recorded"
    return "done" if course.launches and course.launches[-1].cause == "done" else "ended"


class _Standing(NamedTuple):
    """What was found out so far; ages and times in ns."""

    state: str
    phase: PresentPhase | None
    step_age_ns: int | None
    save_ns: int | None
    incidents: tuple[Incident, ...]
    hosts: tuple[HostRow, ...]
    tiers: tuple[TierRisk, ...]


def _condition(sight: RunSight, found: _Standing) -> RunCondition:
    """What the advice goes by."""
    findings, launches, phase = sight.findings, sight.course.launches, found.phase
    return RunCondition(
        name=clean(findings.account.name),
        state=found.state,
        store=sight.store_flag,
        why=clean(findings.why),
        command=tuple(map(clean, findings.command)),
        attempt=launches[-1].attempt if launches else None,
        broke=found.incidents[-1] if found.incidents else None,
        same_again=_same_again(findings.account.disruptions),
        phase_kind=None if phase is None else phase.kind,
        phase_ns=0 if phase is None else phase.lasts_ns,
        phase_usual_ns=None if phase is None else phase.usual_ns,
        step_age_ns=found.step_age_ns,
        usual_ns=sight.steps.usual_ns,
        recent_ns=sight.steps.recent_ns,
        deadline_in_ns=_deadline_in_ns(findings, sight.now_ns),
        save_ns=found.save_ns,
        straggler=next((row.rank for row in found.hosts if row.is_straggler), None),
        tiers=found.tiers,
    )


def _program_words(findings: Findings) -> str:
    """Of what program goodput is a share, and by which convention."""
    words = findings.basis.words(findings.account)
    convention = "" if findings.program is None else findings.basis.convention
    return clean(f"{words}; {convention}" if convention else words)


def _factors(account: Account, program: float | None, of: str) -> tuple[Factor, ...]:
    elapsed = duration(account.elapsed_ns)
    ready = duration(account.wall_ns(account.available))
    away = account.elapsed - account.available
    return (
        Factor("scheduling", account.scheduling_goodput, f"{ready} ready of {elapsed} paid", away),
        Factor(
            "runtime",
            account.runtime_goodput,
            f"{duration(account.wall_ns(account.productive))} kept of {ready} ready",
            account.available - account.productive,
        ),
        Factor(
            "program",
            program,
            of,
            None if program is None else max(0, round(account.productive * (1 - program))),
        ),
    )


def badput(account: Account) -> Iterator[tuple[str, int]]:
    """Kinds of lost time and their chip-nanoseconds, in the order of a waterfall."""
    levels = {Level.SCHEDULING: 0, Level.RUNTIME: 1}
    kinds = [kind for kind, ns in account.kinds.items() if kind != STEP and ns > 0]
    for kind in sorted(kinds, key=lambda kind: (levels[level_of(kind)], place_of(kind))):
        yield kind, account.kinds[kind]


def _phase(sight: RunSight) -> PresentPhase | None:
    """What a live run is in, if it is in no step."""
    course, disruptions = sight.course, sight.findings.account.disruptions
    is_down = bool(disruptions) and disruptions[-1].resumed_ns is None
    kind = course.last_kind
    if kind is None or kind == STEP or (kind in (UNDER_WAY, OTHER) and not is_down):
        return None
    since_ns = course.last_kind_since_ns
    over = [one for one in disruptions if one.resumed_ns is not None]
    times = [one.waterfall_ns[kind] for one in over if one.waterfall_ns.get(kind)]
    usual_ns = round(median(times)) if times else None
    return PresentPhase(kind, since_ns, max(0, sight.now_ns - since_ns), usual_ns, len(times))


def _save_ns(findings: Findings, ranks: Sequence[RankSeen]) -> int | None:
    """What it takes from an order to a durable set, as measured; None: nothing was saved yet."""
    saves = findings.saves
    took_ns = max((rank.took_ns for rank in ranks), default=0)
    if saves is not None and saves.flushes:
        blocked_ns = saves.memory_blocked_ns // max(1, saves.memory)
        took_ns = max(took_ns, blocked_ns + saves.flushed_ns // saves.flushes)
    return took_ns or None


def _deadline_in_ns(findings: Findings, now_ns: int) -> int | None:
    deadlines = [one.deadline_ns for one in findings.announced if one.deadline_ns is not None]
    return min(deadlines) - now_ns if deadlines else None


def _same_again(disruptions: Sequence[Disruption]) -> int:
    """How many of the last attempts in a row ended of the same cause with no step completed."""
    count = 0
    for one in reversed(disruptions):
        if one.resumed_ns is not None or one.cause != disruptions[-1].cause:
            break
        count += 1
    return count
