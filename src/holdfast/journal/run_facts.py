"""All journals of a run, on one clock, as facts; and what is new in them, as often as asked.

Reads `attempts/*/journal/rank-*.hfj`, `journal/controller-*.hfj` and `journal/machines-*.hfj`.
Steps are told as arrays, everything else as facts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from holdfast.core.ledger.facts import Fact, RunFact, SeenFact, WaitFact
from holdfast.core.ledger.kinds import BACKOFF
from holdfast.errors import JournalError
from holdfast.journal.attempt_facts import Attempt, Attempts, Open, Place
from holdfast.journal.clocks import RunClock
from holdfast.journal.folders import attempt_folders, journal_names
from holdfast.journal.heard import TIERS, Kept, Suspected, TierSets, Told, WentBack
from holdfast.journal.layout import Phase
from holdfast.journal.rank_seen import RankSeen, ranks_of
from holdfast.journal.rank_steps import Ints, Rows
from holdfast.journal.signs import Signs
from holdfast.journal.source import Source, SpanRows
from holdfast.journal.statements import (
    Announced,
    AnnouncedStated,
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    BackingOff,
    RunEnded,
    RunStated,
    SavesStated,
    SavingStated,
    Statement,
)
from holdfast.journal.touched import Touched


class Compilations(NamedTuple):
    """Programs that were looked for in a compilation cache.

    `saved_ns` is what compiling those that were found had taken, less what finding them took; the
    ranks' savings are summed up, though they happen side by side.
    """

    hits: int
    misses: int
    saved_ns: int


class Sink(Protocol):
    """Where facts go: the ledger, or a list for export."""

    def add(self, facts: Iterable[Fact]) -> None:
        """Take facts; of several about the run or one attempt the last counts."""

    def add_steps(
        self, attempt: int, first: Ints, last: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        """Take rows of equal steps of one attempt, completed, in the order run."""

    def add_spans(
        self, attempt: int, kinds: Sequence[str], kind: Ints, start_ns: Ints, end_ns: Ints
    ) -> None:
        """Take closed spans of one attempt; `kind` holds positions in `kinds`."""

    def set_open(
        self, attempt: int, spans: Iterable[tuple[str, int]], step: tuple[int, int] | None
    ) -> None:
        """What is open in an attempt from now on: (kind, start) of spans, (number, start)."""


class RunFacts:
    """Follows all journals of a run, and tells a sink what they say.

    Times told are unix nanoseconds, as each boot's first clock reading has them.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        sink: Sink,
        live: Mapping[Path, Path] | None = None,
    ) -> None:
        """`live` maps journals of the folder to the live files they are copied from."""
        self.run_dir = Path(run_dir)
        self.clock = RunClock()
        self.superseded = False
        """What was told is no longer what a first reading would tell: start anew, with a new sink.

        Something came late that belongs before it: a rank, a line, an earlier reading of the clock.
        """
        self.live = dict(live or {})
        self._sink = sink
        self._sources: dict[Path, Source] = {}
        self._problems: dict[Path, str] = {}
        self._attempts = Attempts(self.run_dir / "attempts")
        self._folders: dict[Path, Touched] = {}  # of journals
        self._controllers: dict[str, list[Source]] = {}  # by what they looked after, in order
        self._heard: dict[str, Place] = {}  # the last of them that said anything
        self._stated: dict[Place, RunStated] = {}
        self._requested_ns: list[int] = []
        self._ended_ns: list[int] = []
        self._saving: tuple[int, Place, SavingStated] | None = None
        self._announced: tuple[int, Place, AnnouncedStated] | None = None
        self._backing_off: dict[int, tuple[Source, BackingOff]] = {}  # of unknown end, by start
        self._told_waits: dict[int, WaitFact] = {}  # what was told of those
        self._saves: dict[Path, SavesStated] = {}  # by the supervisor's journal
        self._told_run: RunFact | None = None
        self.tiers = {name: TierSets() for name in TIERS}
        self.suspected: Suspected | None = None
        """The last time that ranks seemed to hang."""
        self._signs = Signs()

    @property
    def requested_ns(self) -> int | None:
        """When the run's resources were asked for: the origin of its time line."""
        return None if self._told_run is None else self._told_run.requested_ns

    @property
    def saving(self) -> str | None:
        """How often is saved to which tier, and why, as last decided; None: nobody said."""
        return None if self._saving is None else self._saving[-1].words or None

    @property
    def is_held(self) -> bool:
        """Whether all steps are done and the last is not durable yet, as far as anybody told."""
        controllers = (source for source in self._sources.values() if source.track is None)
        newest = max(controllers, key=lambda one: one.identity.attempt, default=None)
        told = [*self.newest_ranks(), *([] if newest is None else [newest])]
        return any(one.words.phase is Phase.LOOP_ENDED for one in told)

    @property
    def announced(self) -> tuple[Announced, ...]:
        """What sources of notices tell, as last stated."""
        return () if self._announced is None else self._announced[-1].events

    def notes(self) -> list[str]:
        """Sentences on what could not be read or was not recorded."""
        notes = sorted(self._problems.values())
        dropped = sum(source.words.dropped for source in self._sources.values())
        if dropped:
            notes.append(
                f"{dropped} records were not written for lack of space; "
                "steps between recorded ones count as equally long"
            )
        for source in self._sources.values():
            if failed_step := source.words.failed.step:
                notes.append(
                    f"attempt {source.identity.attempt}: rank {source.identity.rank} could not "
                    f"save step {failed_step} (the last time that this happened); it trained on"
                )
        broken = sum(source.damaged_records for source in self._sources.values())
        if broken:
            notes.append(f"{broken} records hold times or steps that cannot be, and are left out")
        damaged = sum(source.damaged_lines for source in self._sources.values())
        if damaged:
            notes.append(f"{damaged} facts in the journals' text files are damaged and left out")
        return notes

    def saves(self) -> SavesStated:
        """All saves of the run, by all its supervisors."""
        told = self._saves.values()
        return SavesStated(
            memory=sum(one.memory for one in told),
            memory_blocked_ns=sum(one.memory_blocked_ns for one in told),
            disk=sum(one.disk for one in told),
            drains=sum(one.drains for one in told),
            drained_ns=sum(one.drained_ns for one in told),
        )

    def opening(self) -> tuple[int, int] | None:
        """What of the newest attempt's first step seems to be starting, while it is not told."""
        attempt = self._attempts.of(self._attempts.newest)
        if attempt.first_step.told is not None:
            return None
        told = attempt.first_step.guess(self._attempts.typical_before(attempt))
        return None if told is None else told.startup

    def is_written_by(self, incarnations: str) -> bool:
        """Whether the newest attempt's ranks are of incarnations that begin so."""
        ranks = [one.identity for one in self._sources.values() if one.track is not None]
        newest = max((one.attempt for one in ranks), default=0)
        return any(
            one.attempt == newest and one.incarnation.startswith(incarnations) for one in ranks
        )

    def hosts(self) -> int:
        """How many hosts the ranks of the newest attempt with a journal ran on."""
        return len({one.identity.host for one in self.newest_ranks()})

    def newest_ranks(self) -> list[Source]:
        """The journals of the newest attempt that has any, one a rank."""
        ranks = [source for source in self._sources.values() if source.track is not None]
        newest = max((one.identity.attempt for one in ranks), default=0)
        return [one for one in ranks if one.identity.attempt == newest]

    @property
    def seen_ns(self) -> int:
        """When the supervisor last showed life, to some seconds; 0: never."""
        told = (one.supervised_ns() for one in self._sources.values())
        return max(self._signs.last(), max(told, default=0))

    @property
    def ideal_step_ns(self) -> int:
        """What a step should take, as last declared; 0: nobody said."""
        newest = self._newest_stated()
        return 0 if newest is None else newest.ideal_step_ns

    def ranks(self) -> tuple[RankSeen, ...]:
        """The ranks of the newest attempt with a journal."""
        newest = max((one.identity.attempt for one in self.newest_ranks()), default=None)
        return () if newest is None else tuple(ranks_of(self._attempts.of(newest)))

    def compilations(self) -> Compilations:
        """What all ranks of all attempts found compiled, and what they did not."""
        words = [source.words for source in self._sources.values()]
        return Compilations(
            hits=sum(one.compile_hits for one in words),
            misses=sum(one.compile_misses for one in words),
            saved_ns=sum(one.compile_saved_ns for one in words),
        )

    def refresh(self) -> int:
        """Tell the sink what is new since the last call; gives the number of new records."""
        if opened := [path for path in self._new_journals() if self._open(path)]:
            self._sort(opened)
        facts: list[Fact] = []
        signs: list[Ints] = []
        records = 0
        for source in self._active():
            try:
                news = source.poll()
            except JournalError as problem:
                self._problems[source.home] = str(problem)
                continue
            self._problems.pop(source.home, None)
            records += news.records
            signs += news.seen_ns
            if source.track is not None:  # a controller's spans would belong to no attempt
                attempt = self._attempts.of(source.identity.attempt)
                number = attempt.steps.tracks.index(source.track)
                for rows in news.spans:
                    attempt.spans.add(number, rows)
            elif news.statements or news.told:
                self._hear_in_order(source)
            for statement in news.statements:
                self._take(source, statement, facts)
            self._hear(news.told)
            self.superseded = self.superseded or source.is_wrong
        if signs:
            facts += map(SeenFact, self._signs.add(np.concatenate(signs)))
        if not self.superseded:
            facts += self._back_offs()
            self._tell(facts)
        return records

    def _tell(self, facts: list[Fact]) -> None:
        spans: list[tuple[int, SpanRows]] = []
        steps: list[tuple[int, Rows]] = []
        opened: list[tuple[int, Open]] = []
        known = self._attempts.with_starts()
        for attempt, start_ns, next_ns in known:
            restores, pieces = attempt.steps.take()
            attempt.restores += restores
            facts += restores
            steps += [(attempt.number, piece) for piece in pieces]
            if pieces:
                attempt.last_step_end_ns = int(pieces[-1].end[-1])
                self.superseded = self.superseded or attempt.spans.is_last
            self._tell_fact(attempt, start_ns, next_ns, facts)
            is_over = attempt.told is not None and attempt.told.end_ns is not None
            spans += self._startup(attempt, pieces, is_over=is_over)
            counted = attempt.spans.take(attempt.steps, is_over=is_over)
            spans += [(attempt.number, rows) for rows in counted]
            self.superseded |= attempt.first_step.is_wrong or attempt.steps.is_wrong
        proofs = self._attempts.proofs()
        for attempt, start_ns, next_ns in known:
            proof = proofs.get(attempt.number)
            if proof != attempt.proof:
                self.superseded = self.superseded or attempt.proof is not None
                attempt.proof = proof
                if proof is not None:
                    steps.append((attempt.number, Rows(*(np.array([n], np.int64) for n in proof))))
                self._tell_fact(attempt, start_ns, next_ns, facts)
            if (open_now := attempt.open_now(attempt.told)) != attempt.told_open:
                attempt.told_open = open_now
                opened.append((attempt.number, open_now))
        run = self._run_fact()
        if run is not None and run != self._told_run:
            self._told_run = run
            facts.append(run)
        if facts:
            self._sink.add(facts)
        for number, rows in spans:
            self._sink.add_spans(number, *rows)
        for number, piece in steps:
            self._sink.add_steps(number, piece.step, piece.step, piece.start, piece.end)
        for number, open_now in opened:
            self._sink.set_open(number, *open_now)

    def _tell_fact(
        self, attempt: Attempt, start_ns: int | None, next_ns: int | None, facts: list[Fact]
    ) -> None:
        fact = self._attempts.fact(attempt, start_ns, next_ns, self._signs)
        if fact is not None and fact != attempt.told:
            attempt.told = fact
            facts.append(fact)

    def _startup(
        self, attempt: Attempt, pieces: list[Rows], *, is_over: bool
    ) -> Iterator[tuple[int, SpanRows]]:
        """What of the attempt's first step was starting."""
        before_ns = self._attempts.typical_before(attempt)
        told = attempt.first_step.take(pieces, before_ns, is_over=is_over)
        if told is not None and told.startup is not None:
            start_ns, end_ns = (np.array([at_ns], np.int64) for at_ns in told.startup)
            kind = np.zeros(1, np.int64)
            yield attempt.number, SpanRows(["startup"], kind, start_ns, end_ns)

    # --- files ------------------------------------------------------------------------------

    def _new_journals(self) -> Iterator[Path]:
        folders = [self.run_dir / "journal"]
        for number, folder in sorted(attempt_folders(self.run_dir / "attempts")):
            self._attempts.of(number)
            folders.append(folder / "journal")
        known = self._sources
        yield from [path for path in self._problems if path not in known]
        for folder in folders:
            if folder not in self._folders:
                self._folders[folder] = Touched(folder)
            if self._folders[folder].again():
                names = journal_names(folder)
                yield from (path for name in names if (path := folder / name) not in known)
        yield from (path for path in list(self.live) if path not in known)

    def _open(self, path: Path) -> bool:
        """Follow one more journal; whether it is one."""
        if path in self._sources:
            return False
        try:
            live = self.live.get(path)
            source = Source(live or path, self.clock, home=path if live else None)
        except JournalError as problem:
            if self.live.pop(path, None) is not None:  # brought home meanwhile, and removed
                return self._open(path)
            self._problems[path] = str(problem)
            return False
        self._problems.pop(path, None)
        self._sources[path] = source
        self.superseded = self.superseded or source.is_wrong
        if source.track is not None:
            attempt = self._attempts.of(source.identity.attempt)
            self.superseded |= attempt.steps.has_given or attempt.spans.is_of_one
            attempt.sources.append(source)
            attempt.steps.add(source.track)
        return True

    def _sort(self, opened: Iterable[Path]) -> None:
        """Keep journals in the order of their places, however they came."""
        in_order = sorted(self._sources.items(), key=lambda item: item[1].place)
        self._sources = dict(in_order)
        for path in opened:
            source = self._sources[path]
            if source.track is None:
                family = self._controllers.setdefault(_family(path), [])
                family.append(source)
                family.sort(key=lambda one: one.place)

    def _active(self) -> Iterator[Source]:
        """Journals that may have grown; the others are left closed."""
        newest = self._attempts.newest
        followed = {id(one) for family in self._controllers.values() for one in family[-2:]}
        for source in list(self._sources.values()):
            if source.track is None:
                over = id(source) not in followed
            else:
                over = source.identity.attempt < newest - 1
            if not over or source.may_have_grown():
                yield source
            if over:
                source.rest()

    # --- statements -------------------------------------------------------------------------

    def _hear_in_order(self, source: Source) -> None:
        """Of several controllers one after the other, what the last one said counts."""
        family = _family(source.home)
        is_late = source.place < self._heard.get(family, source.place)
        self.superseded = self.superseded or is_late
        self._heard[family] = source.place

    def _take(self, source: Source, statement: Statement, facts: list[Fact]) -> None:
        place = source.place
        match statement:
            case SavesStated():
                self._saves[source.home] = statement
            case RunStated():
                self._stated[place] = statement
                self._requested_ns.append(statement.requested_ns)
            case AttemptStarted(number, at_ns):
                attempt = self._attempts.of(number)
                if attempt.started is None or place >= attempt.started[0]:
                    attempt.started = place, at_ns
            case AttemptEnded(number, at_ns, cause):
                attempt = self._attempts.of(number)
                if attempt.ended is None or place >= attempt.ended[0]:
                    attempt.ended = place, at_ns, cause
            case AttemptLost(number, at_ns, cause):
                attempt, lost = self._attempts.of(number), (at_ns, place, cause)
                attempt.lost = min(attempt.lost or lost, lost)  # who found it first
            case RunEnded(at_ns):
                self._ended_ns.append(at_ns)
            case AnnouncedStated(at_ns):
                if self._announced is None or (at_ns, place) >= self._announced[:2]:
                    self._announced = at_ns, place, statement
            case SavingStated(at_ns):
                if self._saving is None or (at_ns, place) >= self._saving[:2]:
                    self._saving = at_ns, place, statement
            case WaitFact():
                facts.append(statement)
                if statement.kind == BACKOFF:
                    self._backing_off.pop(statement.start_ns, None)
            case BackingOff(start_ns):
                self._backing_off[start_ns] = source, statement
                self._told_waits.pop(start_ns, None)
            case _:
                facts.append(statement)

    def _back_offs(self) -> Iterator[WaitFact]:
        """Those whose end nobody has told: as long as planned, or as their supervisors lived.

        Of one that told no plan, and may be alive, until the next attempt begins.
        """
        for start_ns, (source, wait) in self._backing_off.items():
            is_last = source.track is not None or source is self._last_of(source)
            until_ns = wait.until_ns
            end_ns = None
            if until_ns is not None or not is_last:
                end_ns = max(start_ns, until_ns or start_ns, source.seen_ns)
            fact = WaitFact(BACKOFF, start_ns, end_ns)
            if fact != self._told_waits.get(start_ns):
                self._told_waits[start_ns] = fact
                yield fact

    def _last_of(self, source: Source) -> Source:
        """Of the controllers that looked after the same."""
        return self._controllers[_family(source.home)][-1]

    def _hear(self, told: Iterable[Told]) -> None:
        for one in told:
            if isinstance(one, Kept):
                self.tiers[one.tier].add(one)
            elif isinstance(one, WentBack):
                for sets in self.tiers.values():
                    sets.went_back(one.step)
            else:
                self.suspected = one

    def _run_fact(self) -> RunFact | None:
        told = self._attempts.told()
        starts = [fact.start_ns for fact in told]
        if not self._stated and not starts:
            return None
        last_start_ns = max(starts, default=0)
        ended = [at_ns for at_ns in self._ended_ns if at_ns >= last_start_ns]
        ended_ns = None
        if ended and all(fact.end_ns is not None for fact in told):
            ended_ns = max([*ended, *(fact.end_ns for fact in told if fact.end_ns is not None)])
        newest = self._newest_stated()
        if newest is None:
            return RunFact(self._name(), min(starts), ended_ns, 1)
        requested_ns = min([*self._requested_ns, *starts])
        return RunFact(newest.name, requested_ns, ended_ns, newest.chips)

    def _newest_stated(self) -> RunStated | None:
        return self._stated[max(self._stated)] if self._stated else None

    def _name(self) -> str:
        return next((s.identity.run for s in self._sources.values()), self.run_dir.name)


def _family(path: Path) -> str:
    """What the journals of controllers look after: the run, or its machines."""
    return path.name.partition("-")[0]
