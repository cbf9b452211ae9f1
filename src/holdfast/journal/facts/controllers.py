"""What the controllers of a run have stated, put together: of several that contradict, the last.

A run has one after the other; beside them those that look after its machines keep journals, too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from holdfast.core.hang.deadline import HangPolicy
from holdfast.core.ledger.facts import AttemptFact, Fact, RunFact, WaitFact
from holdfast.core.ledger.kinds import BACKOFF
from holdfast.core.ledger.program import Basis, Declared, ToldProgram
from holdfast.journal.clocks import RunClock
from holdfast.journal.facts.followed import FollowedJournal, Place
from holdfast.journal.facts.hosts import KnownHosts
from holdfast.journal.facts.lines import (
    TIERS,
    AnnouncedEvent,
    AnnouncedStated,
    BackingOff,
    FromInputs,
    HostStated,
    JobStated,
    OtherStated,
    PartsStated,
    PreloadStated,
    ProgramStated,
    RunEnded,
    RunStated,
    SavedSet,
    SavesStated,
    SavingStated,
    Suspected,
    WentBack,
)

_OF_RUN = "controller"
_RECENT = 16  # sets of a tier, for the interval between them


class Controllers:
    """Takes what they state; gives facts, and what else is known by them."""

    def __init__(self) -> None:
        self.tiers = {name: TierSets() for name in TIERS}
        self.suspected: Suspected | None = None
        """The last time that ranks seemed to hang."""
        self.hosts = KnownHosts()
        self.preloads: dict[int, PreloadStated] = {}
        """The last of them, by when they were over."""
        self.jobs: dict[str, JobStated] = {}
        """The cluster's jobs, each with the first that was said of its last start; the newest."""
        self.is_wrong = False
        """Something came late that belongs before what was given."""
        self._families: dict[str, list[FollowedJournal]] = {}  # by what they looked after, in order
        self._last_heard: dict[str, Place] = {}  # the last of them that said anything
        self._stated: dict[Place, RunStated] = {}
        self._requested: list[RunStated] = []
        self._ended_ns: list[int] = []
        self._saving: tuple[int, Place, SavingStated] | None = None
        self._told_flops: tuple[int, Place, ProgramStated] | None = None  # the last with FLOPs
        self._all_flops: set[tuple[int, int]] = set()  # with the tokens that they are of
        self._of_attempt: dict[int, tuple[int, Place, ProgramStated]] = {}  # the last, of each
        self._program: tuple[int, Place, ProgramStated] | None = None
        self._announced: tuple[int, Place, AnnouncedStated] | None = None
        self._backing_off: dict[
            int, tuple[FollowedJournal, BackingOff]
        ] = {}  # of unknown end, by start
        self._open_waits: dict[int, WaitFact] = {}  # as given for those
        self._saves: dict[Path, SavesStated] = {}  # by journal

    # --- Their journals -----------------------------------------------------------------------

    def add(self, journal: FollowedJournal) -> None:
        """One more journal."""
        family = self._families.setdefault(_family(journal), [])
        family.append(journal)
        family.sort(key=lambda one: one.place)

    def newest(self, count: int) -> Iterator[FollowedJournal]:
        """The last so many of each family."""
        for family in self._families.values():
            yield from family[-count:]

    def take_inputs(self, journal: FollowedJournal, inputs: Iterable[FromInputs]) -> None:
        """What inputs of the run's machine say; before `take` of what came with them."""
        family = _family(journal)
        self.is_wrong = self.is_wrong or journal.place < self._last_heard.get(family, journal.place)
        self._last_heard[family] = journal.place
        for one in inputs:
            if isinstance(one, SavedSet):
                self.tiers[one.tier].add(one)
            elif isinstance(one, WentBack):
                for sets in self.tiers.values():
                    sets.went_back(one.step)
            else:
                self.suspected = one

    def take(self, journal: FollowedJournal, statement: OtherStated) -> Iterator[Fact]:
        """The facts that a statement is by itself."""
        place = journal.place
        match statement:
            case HostStated():
                self.hosts.take(place, statement)
            case PartsStated():
                self.hosts.take_parts(place, statement)
            case SavesStated():
                self._saves[journal.home] = statement
            case RunStated():
                self._stated[place] = statement
                self._requested.append(statement)
            case ProgramStated(at_ns):
                self._all_flops.add((statement.told.flops, statement.told.tokens))
                if self._program is None or (at_ns, place) >= self._program[:2]:
                    self._program = at_ns, place, statement
                newest = self._told_flops
                last = self._of_attempt.get(place[0])
                if last is None or (at_ns, place) >= last[:2]:
                    self._of_attempt[place[0]] = at_ns, place, statement
                if statement.told.flops and (newest is None or (at_ns, place) >= newest[:2]):
                    self._told_flops = at_ns, place, statement
            case RunEnded(at_ns):
                self._ended_ns.append(at_ns)
            case AnnouncedStated(at_ns):
                if self._announced is None or (at_ns, place) >= self._announced[:2]:
                    self._announced = at_ns, place, statement
            case PreloadStated(at_ns):
                self.preloads[at_ns] = statement
                while len(self.preloads) > _RECENT:
                    del self.preloads[min(self.preloads)]
            case JobStated():
                self._take_job(statement)
            case SavingStated(at_ns):
                if self._saving is None or (at_ns, place) >= self._saving[:2]:
                    self._saving = at_ns, place, statement
            case BackingOff(start_ns):
                self._backing_off[start_ns] = journal, statement
                self._open_waits.pop(start_ns, None)
            case _:
                if isinstance(statement, WaitFact) and statement.kind == BACKOFF:
                    self._backing_off.pop(statement.start_ns, None)
                yield statement

    def _take_job(self, said: JobStated) -> None:
        known = self.jobs.get(said.job)
        if known is None or (said.restarts, -said.at_ns) > (known.restarts, -known.at_ns):
            self.jobs[said.job] = said
        if len(self.jobs) > _RECENT:
            del self.jobs[min(self.jobs, key=lambda job: self.jobs[job].at_ns)]

    # --- What follows -------------------------------------------------------------------------

    def back_offs(self) -> Iterator[WaitFact]:
        """Waits whose end nobody has stated: as long as planned, or as their supervisors lived.

        Of one without a plan, and may be alive, until the next attempt begins.
        """
        for start_ns, (journal, wait) in self._backing_off.items():
            is_last = journal.track is not None or journal is self._families[_family(journal)][-1]
            until_ns = wait.until_ns
            end_ns = None
            if until_ns is not None or not is_last:
                end_ns = max(start_ns, until_ns or start_ns, journal.seen_ns)
            fact = WaitFact(BACKOFF, start_ns, end_ns)
            if fact != self._open_waits.get(start_ns):
                self._open_waits[start_ns] = fact
                yield fact

    def run_fact(self, attempts: list[AttemptFact], name: str, clock: RunClock) -> RunFact | None:
        """The run, of which these attempts are known; `name`: if nobody stated one."""
        starts = [fact.start_ns for fact in attempts]
        if not self._stated and not starts:
            return None
        last_start_ns = max(starts, default=0)
        ended = [at_ns for at_ns in self._ended_ns if at_ns >= last_start_ns]
        ended_ns = None
        if ended and all(fact.end_ns is not None for fact in attempts):
            ends = (fact.end_ns for fact in attempts if fact.end_ns is not None)
            ended_ns = max([*ended, *ends])
        newest = self._newest_stated()
        if newest is None:
            return RunFact(name, min(starts), ended_ns, 1)
        requested_ns = min([*(_asked_ns(one, clock) for one in self._requested), *starts])
        return RunFact(newest.name, requested_ns, ended_ns, newest.chips)

    @property
    def saving(self) -> str | None:
        """How often is saved to which tier, and why, as last decided; None: nobody said."""
        return None if self._saving is None else self._saving[-1].words or None

    @property
    def hang(self) -> HangPolicy:
        """When a step counts as hung, as last stated."""
        newest = self._newest_stated()
        return HangPolicy() if newest is None else newest.hang

    @property
    def announced(self) -> tuple[AnnouncedEvent, ...]:
        """What journals of notices tell, as last stated."""
        return () if self._announced is None else self._announced[-1].events

    @property
    def program_basis(self) -> Basis:
        """What a step should take, as last declared and as last told."""
        newest = self._newest_stated()
        declared = Declared() if newest is None else newest.declared
        told = ToldProgram() if self._program is None else self._program[-1].told
        if self._told_flops is not None and not told.flops:
            before = self._told_flops[-1].told  # that attempt's script did not say it again
            is_like = told.dtype == before.dtype
            told = _counted_as(before, told) if is_like else before
        others = tuple(sorted(one for one in self._all_flops if one[0] not in (0, told.flops)))
        each = tuple((number, last[-1].told) for number, last in sorted(self._of_attempt.items()))
        return Basis(declared, told, others, of_attempts=each)

    def saves(self) -> SavesStated:
        """All saves of the run, by all its supervisors."""
        each = self._saves.values()
        return SavesStated(
            memory=sum(one.memory for one in each),
            memory_blocked_ns=sum(one.memory_blocked_ns for one in each),
            disk=sum(one.disk for one in each),
            flushes=sum(one.flushes for one in each),
            flushed_ns=sum(one.flushed_ns for one in each),
        )

    def _newest_stated(self) -> RunStated | None:
        return self._stated[max(self._stated)] if self._stated else None


def _asked_ns(one: RunStated, clock: RunClock) -> int:
    """When the run's resources were asked for; by whose clock that was, where it was compared."""
    asked_on = clock.mapped(one.requested_boot) if one.requested_boot else None
    if asked_on is None or asked_on.error_ns is None:
        return one.requested_ns
    return one.requested_boot_ns + asked_on.offset_ns


def looks_after_run(journal: FollowedJournal) -> bool:
    """Whether a controller's journal is of the run's own, and not of its machines'."""
    return _family(journal) == _OF_RUN


def _family(journal: FollowedJournal) -> str:
    """What the controller of a journal looks after: the run, or its machines."""
    return journal.home.name.partition("-")[0]


class TierSets:
    """The newest sets of one tier that are on the lineage."""

    def __init__(self) -> None:
        self._sets: deque[SavedSet] = deque(maxlen=_RECENT)
        self._saved_ns: deque[int] = deque(maxlen=_RECENT)  # those that are on no lineage too
        self._last_step = 0

    def add(self, saved: SavedSet) -> None:
        """One more; said again, it counts once."""
        if saved.step != self._last_step:
            self._last_step = saved.step
            self._saved_ns.append(saved.at_ns)
        if not self._sets or saved.step > self._sets[-1].step:
            self._sets.append(saved)

    def went_back(self, step: int) -> None:
        """Forget what is beyond."""
        self._last_step = 0
        while self._sets and self._sets[-1].step > step:
            self._sets.pop()

    @property
    def newest(self) -> SavedSet | None:
        """The one that a restart would use."""
        return self._sets[-1] if self._sets else None

    @property
    def interval_ns(self) -> int | None:
        """The median time between the last few; None: there were fewer than two."""
        gaps = [later_ns - sooner_ns for sooner_ns, later_ns in pairwise(self._saved_ns)]
        return round(median(gaps)) if gaps else None


def _counted_as(before: ToldProgram, told: ToldProgram) -> ToldProgram:
    """What an attempt tells of its device, with the count that an earlier one told."""
    flops, gaps, moved = before.flops, before.left_out, before.bytes
    return replace(told, flops=flops, left_out=gaps, bytes=moved, tokens=before.tokens)
