"""What a report is about: a run's account, and what else its store knows, as plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.core.alerts import LIVE_STATES
from holdfast.core.durations import in_words
from holdfast.core.ledger.account import Account, Disruption
from holdfast.core.ledger.program import Basis
from holdfast.core.ledger.summary import spent_of
from holdfast.core.preloaded import PreloadedPart
from holdfast.core.visible import clean
from holdfast.profiles.summary import ProfileSummary
from holdfast.report.words import counted, duration, percent
from holdfast.runs.curves import Curve


@dataclass(frozen=True, slots=True)
class RestartFindings:
    """How the attempt after a disruption was started, up to its sessions: what its journals tell.

    `phases_ns` in their order; `cold` has the reason of each rank that no standby was woken for.
    """

    phases_ns: Mapping[str, int]
    woken: tuple[int, ...] = ()
    cold: Mapping[int, str] = field(default_factory=dict)

    @property
    def words(self) -> str:
        """All of it in a sentence."""
        names = RESTART_PHASES
        phases = [f"{names.get(name, name)} {duration(ns)}" for name, ns in self.phases_ns.items()]
        ranks = len(self.woken) + len(self.cold)
        woken = f"; {len(self.woken)} of {counted(ranks, 'rank')} woken" if ranks else ""
        why = "".join(
            f"; rank {rank} started without a standby: {why}" for rank, why in self.cold.items()
        )
        return f"restart: {', '.join(phases)}{woken}{why}"


RESTART_PHASES = {
    "detect": "noticed in",
    "drain": "ranks ended in",
    "wait": "waited on purpose for",
    "choose": "checkpoint chosen in",
    "record": "attempt recorded in",
    "launch": "ranks started in",
    "start": "sessions joined in",
}


@dataclass(frozen=True, slots=True)
class DisruptionEvidence:
    """What was found out about one disruption beside its times (an incident file)."""

    attempt: int
    words: str | None = None  # the cause in a sentence
    exits: tuple[int | None, ...] = ()  # per rank: exit code, -signal, None: unknown
    last_lines: tuple[str, ...] = ()  # the end of the output of the rank that broke
    traceback: str | None = None
    restart: RestartFindings | None = None
    rank: int | None = None  # the rank that broke first, where that is known
    stacks: tuple[tuple[int, str], ...] = ()  # where ranks stood when it hung
    host: int | None = None  # that rank's, in a run of several


@dataclass(frozen=True, slots=True)
class HostFindings:
    """One host of several, as it stood last. `slot`: whose part it has; None: none.

    `parts`: which ranks it had when, each (first attempt, last attempt, first rank, last rank).
    `ahead_ns`: how far its wall clock is ahead of the controller's host's; its times are right to
    within `error_ns`; None: nobody has measured that. `incidents`: attempts that it broke. `chips`:
    how many it has; None: it did not say.
    """

    index: int
    state: str
    slot: int | None = None
    slice: str = ""
    parts: tuple[tuple[int, int, int, int], ...] = ()
    ahead_ns: int | None = None
    error_ns: int | None = None
    incidents: tuple[int, ...] = ()
    chips: int | None = None


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A committed set: its name, the last step it contains, its tags, size, and when it was."""

    name: str
    attempt: int
    step: int
    tags: tuple[str, ...] = ()
    nbytes: int = 0
    at_ns: int | None = None


@dataclass(frozen=True, slots=True)
class RolledBack:
    """An attempt that went back because somebody wanted it to: to what, and why.

    `of_attempt`: which one wrote the checkpoint; None: from scratch, and `step` is 0.
    """

    attempt: int
    step: int
    of_attempt: int | None
    skip_batches: int
    why: str

    @property
    def words(self) -> str:
        """All of it in a sentence."""
        to = "scratch"
        if self.of_attempt is not None:
            to = f"step {self.step:,} of attempt {self.of_attempt}"
        if self.skip_batches:
            to += f", skipping {counted(self.skip_batches, 'batch', 'batches')}"
        return f"attempt {self.attempt} rolled back to {to}: {self.why}"


@dataclass(frozen=True, slots=True)
class Resumed:
    """What an attempt started from: a step, read from memory or from disk."""

    attempt: int
    step: int
    from_memory: bool

    @property
    def words(self) -> str:
        """All of it in a few words."""
        return f"resumed at step {self.step:,}, from {'memory' if self.from_memory else 'disk'}"


@dataclass(frozen=True, slots=True)
class LaunchFindings:
    """What the ranks were started as, in that attempt and those after it."""

    attempt: int
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class PreloadFindings:
    """What was read into a host's memory before the run needed it, by then."""

    at_ns: int
    host: str
    parts: tuple[PreloadedPart, ...]

    def words(self, origin_ns: int) -> str:
        """All of it in a line; `origin_ns`: when the run was asked for."""
        when = f"by {in_words(self.at_ns - origin_ns)} after the request"
        parts = "; ".join(part.words for part in self.parts)
        return f"preloaded on {self.host} {when}: {parts}"


@dataclass(frozen=True, slots=True)
class RequeueFindings:
    """A cluster's job that was requeued so often, and when its last start began."""

    job: str
    times: int
    at_ns: int

    def words(self, origin_ns: int) -> str:
        """All of it in a sentence; `origin_ns`: when the run was asked for."""
        when = f"{in_words(max(0, self.at_ns - origin_ns))} after the request"
        return f"job {self.job} was requeued {counted(self.times, 'time')}, and began again {when}"


@dataclass(frozen=True, slots=True)
class SaveFindings:
    """How many saves there were, and what they cost."""

    memory: int
    memory_blocked_ns: int  # training stood still
    disk: int
    flushes: int  # of those to disk: taken there from memory, beside the training
    flushed_ns: int

    @property
    def words(self) -> str:
        """All of it in a few words."""
        parts = []
        if self.memory:
            each = duration(self.memory_blocked_ns // self.memory)
            parts.append(f"{counted(self.memory, 'save')} to memory, {each} each")
        if self.disk:
            words = f"{self.disk:,} to disk" if parts else f"{counted(self.disk, 'save')} to disk"
            if self.flushes:
                words += f", {duration(self.flushed_ns // self.flushes)} each beside the training"
            parts.append(words)
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class CompilationFindings:
    """How many programs were found compiled, by all ranks of all attempts, and what that saved."""

    hits: int
    misses: int
    saved_ns: int

    @property
    def words(self) -> str:
        """All of it in a few words."""
        found = f"{counted(self.hits, 'hit')}, {counted(self.misses, 'miss', 'misses')}"
        return f"{found}, {duration(self.saved_ns)} saved" if self.hits else found


@dataclass(frozen=True, slots=True)
class LastAnnounced:
    """What was announced last, and not withdrawn. `at_ns`: where the account ends."""

    words: str
    since_ns: int
    deadline_ns: int | None
    at_ns: int

    @property
    def sentence(self) -> str:
        """With its countdown."""
        announced = f"announced {duration(max(0, self.at_ns - self.since_ns))} ago: {self.words}"
        if self.deadline_ns is None:
            return f"{announced}; no time is given"
        left_ns = self.deadline_ns - self.at_ns
        return (
            f"{announced}, in {duration(left_ns)}" if left_ns > 0 else f"{announced}; it is due now"
        )


@dataclass(frozen=True, slots=True)
class Findings:
    """Everything a report shows. Without a store (a history file) it is the account alone.

    `notes` are sentences about what could not be read or recorded: a report never hides a gap.
    `requested_ns` is the run's request on the account's clock: a window begins later. Only
    with `unix_clock` does that clock count from 1970, so that times can be given as dates.
    """

    account: Account
    store: str | None = None
    command: tuple[str, ...] = ()
    commands: tuple[LaunchFindings, ...] = ()  # each that differs from the one before
    state: str | None = None  # running, done, stopped, failed, …
    why: str = ""  # the state's reason, where it has one
    requested_ns: int | None = None
    unix_clock: bool = False
    attempts: int | None = None
    evidence: tuple[DisruptionEvidence, ...] = ()
    checkpoints: tuple[Checkpoint, ...] = ()
    rollbacks: tuple[RolledBack, ...] = ()
    announced: tuple[LastAnnounced, ...] = ()
    saving: str | None = None  # how often is saved to which tier, and why
    resumed: tuple[Resumed, ...] = ()
    preloads: tuple[PreloadFindings, ...] = ()  # the last few
    requeues: tuple[RequeueFindings, ...] = ()  # of the cluster's last few jobs
    saves: SaveFindings | None = None  # None: there were none
    compilations: CompilationFindings | None = None  # None: nothing was looked for in a cache
    notes: tuple[str, ...] = field(default=())
    rolling: Mapping[str, Account] = field(default_factory=dict)  # 1h, 1d, 7d up to the end
    curves: tuple[Curve, ...] = ()  # the script's own numbers
    hosts: tuple[HostFindings, ...] = ()  # of a run of several
    program: float | None = None  # program goodput; None: it is not known, see its basis
    productivity: float | None = None  # all three factors: ideal / elapsed; None: it is not known
    program_of_reached: float | None = None  # by the peak that the devices were measured to reach
    basis: Basis = Basis()  # noqa: RUF009 - it is frozen
    profile: ProfileSummary | None = None  # the newest that was read; None: there is none

    @property
    def origin_ns(self) -> int:
        """Where the run began on the account's clock, as far as that is known."""
        return self.account.start_ns if self.requested_ns is None else self.requested_ns

    @property
    def productivity_words(self) -> str:
        """All three factors together, and of what that is a share; "": it is not known."""
        if self.productivity is None:
            return ""
        paid_ns = self.account.wall_ns(self.account.elapsed)
        best, paid = duration(round(self.productivity * paid_ns)), duration(paid_ns)
        return f"with program: {percent(self.productivity)}, {best} at best of {paid} paid"

    @property
    def is_live(self) -> bool:
        """Whether it may still train, as far as that is known."""
        return self.state in ("", *LIVE_STATES)

    @property
    def saving_words(self) -> str | None:
        """How often it saves; of one that has left, how often it did at last."""
        if self.saving is None:
            return None
        return clean(self.saving if self.is_live else f"At its end: {self.saving}")

    def without_stopped(self) -> Findings:
        """The same, as if the time in which a person kept the run stopped had not gone by."""
        account = self.account.without_stopped()
        return replace(
            self,
            account=account,
            rolling={name: one.without_stopped() for name, one in self.rolling.items()},
            productivity=spent_of(account, self.basis).productivity,
        )

    def resumed_after(self, disruption: Disruption) -> Resumed | None:
        """How the attempt after a disrupted one began; None: from scratch, or not at all."""
        after = disruption.attempt + 1
        return next((one for one in self.resumed if one.attempt == after), None)

    def evidence_for(self, disruption: Disruption) -> DisruptionEvidence:
        """What is known about a disruption; empty evidence if nothing is."""
        for evidence in self.evidence:
            if evidence.attempt == disruption.attempt:
                return evidence
        return DisruptionEvidence(disruption.attempt)


def nearer(findings: Findings, folder: Path) -> Findings:
    """The same, with paths below `folder` shown from there: what people read, not programs."""
    if folder == folder.parent:
        return findings  # the root: every path is below it
    prefix = f"{folder}/"

    def cut(text: str) -> str:
        return text.replace(prefix, "")

    return replace(
        findings,
        command=tuple(map(cut, findings.command)),
        commands=tuple(
            LaunchFindings(one.attempt, tuple(map(cut, one.command))) for one in findings.commands
        ),
        evidence=tuple(
            replace(
                one,
                words=one.words and cut(one.words),
                last_lines=tuple(map(cut, one.last_lines)),
                traceback=one.traceback and cut(one.traceback),
                stacks=tuple((rank, cut(text)) for rank, text in one.stacks),
            )
            for one in findings.evidence
        ),
    )
