"""All journals of a run, on one clock, as facts; and what is new in them, as often as asked.

Reads `attempts/*/journal/rank-*.hfj`, `journal/controller-*.hfj` and `journal/machines-*.hfj`.
Steps are told as arrays, everything else as facts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from holdfast.core.facts import Fact, RestoreFact, RunFact, SeenFact
from holdfast.errors import JournalError
from holdfast.journal.attempt_facts import Attempt, Attempts, Open
from holdfast.journal.clocks import RunClock
from holdfast.journal.folders import attempt_folders, journal_names
from holdfast.journal.heard import TIERS, Kept, Suspected, TierSets, Told, WentBack
from holdfast.journal.rank_seen import RankSeen, ranks_of
from holdfast.journal.rank_steps import Ints, Rows
from holdfast.journal.source import Source, SpanRows
from holdfast.journal.statements import (
    Announced,
    AnnouncedStated,
    AttemptEnded,
    AttemptLost,
    AttemptStarted,
    RunEnded,
    RunStated,
    SavesStated,
    SavingStated,
    Statement,
)

_SEEN_SPACING_NS = 20_000_000_000  # of many signs of life, these few say the same
_SEEN_GAP_NS = 30_000_000_000


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
        """What was told is no longer right (a rank turned up late): start anew with a new sink."""
        self.live = dict(live or {})
        self._sink = sink
        self._sources: dict[Path, Source] = {}
        self._problems: dict[Path, str] = {}
        self._attempts = Attempts(self.run_dir / "attempts")
        self._controllers: dict[str, list[Source]] = {}  # by what they looked after
        self._stated: list[RunStated] = []
        self._ended_ns: list[int] = []
        self._saving: SavingStated | None = None
        self._announced: AnnouncedStated | None = None
        self._saves: dict[Path, SavesStated] = {}  # by the supervisor's journal
        self._told_run: RunFact | None = None
        self.tiers = {name: TierSets() for name in TIERS}
        self.suspected: Suspected | None = None
        """The last time that ranks seemed to hang."""
        self._seen_ns: list[int] = []
        self._kept_seen_ns = 0

    @property
    def requested_ns(self) -> int | None:
        """When the run's resources were asked for: the origin of its time line."""
        return None if self._told_run is None else self._told_run.requested_ns

    @property
    def saving(self) -> str | None:
        """How often is saved to which tier, and why, as last decided; None: nobody said."""
        return None if self._saving is None else self._saving.words

    @property
    def announced(self) -> tuple[Announced, ...]:
        """What sources of notices tell, as last stated."""
        return () if self._announced is None else self._announced.events

    def notes(self) -> list[str]:
        """Sentences on what could not be read or was not recorded."""
        notes = list(self._problems.values())
        dropped = sum(source.words.dropped for source in self._sources.values())
        if dropped:
            notes.append(
                f"{dropped} records were not written for want of space; "
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
        return self._seen_ns[-1] if self._seen_ns else 0

    @property
    def ideal_step_ns(self) -> int:
        """What a step should take, as last declared; 0: nobody said."""
        return self._stated[-1].ideal_step_ns if self._stated else 0

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
        for path in self._new_journals():
            self._open(path)
        facts: list[Fact] = []
        seen_ns: list[int] = []
        records = 0
        for source in self._active():
            try:
                news = source.poll()
            except JournalError as problem:
                self._problems[source.home] = str(problem)
                continue
            self._problems.pop(source.home, None)
            records += news.records
            seen_ns += news.seen_ns
            if source.track is not None:  # a controller's spans would belong to no attempt
                attempt = self._attempts.of(source.identity.attempt)
                number = attempt.steps.tracks.index(source.track)
                for rows in news.spans:
                    attempt.spans.add(number, rows)
            for statement in news.statements:
                self._take(source.home, statement, facts)
            self._hear(news.told)
        facts += self._thinned(seen_ns)
        self._tell(facts)
        return records

    def _tell(self, facts: list[Fact]) -> None:
        spans: list[tuple[int, SpanRows]] = []
        steps: list[tuple[int, Rows]] = []
        opened: list[tuple[int, Open]] = []
        resumed: list[RestoreFact] = []
        for attempt, next_ns in self._attempts.still_read():
            restores, pieces = attempt.steps.take()
            facts += restores
            resumed += restores
            steps += [(attempt.number, piece) for piece in pieces]
            if pieces:
                attempt.last_step_end_ns = int(pieces[-1].end[-1])
            fact = self._attempts.fact(attempt, next_ns, self._seen_ns)
            if fact is not None and fact != attempt.told:
                attempt.told = fact
                facts.append(fact)
            is_over = fact is not None and fact.end_ns is not None
            spans += self._startup(attempt, pieces, is_over=is_over)
            counted = attempt.spans.take(attempt.steps, is_over=is_over)
            spans += [(attempt.number, rows) for rows in counted]
            if (open_now := attempt.open_now(fact)) != attempt.told_open:
                attempt.told_open = open_now
                opened.append((attempt.number, open_now))
        for restore in resumed:
            if (proof := self._attempts.completed_by(restore)) is not None:
                donor, piece = proof
                steps.append((donor.number, piece))
                opened.append((donor.number, donor.told_open))
                facts += [] if donor.told is None else [donor.told]
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
        newest = self._attempts.newest
        folders = [self.run_dir / "journal"]
        for number, folder in sorted(attempt_folders(self.run_dir / "attempts")):
            if number >= newest - 1:
                self._attempts.of(number)
                folders.append(folder / "journal")
        known = self._sources
        for folder in folders:
            names = journal_names(folder)
            yield from (path for name in names if (path := folder / name) not in known)
        yield from (path for path in list(self.live) if path not in known)

    def _open(self, path: Path) -> None:
        try:
            live = self.live.get(path)
            source = Source(live or path, self.clock, home=path if live else None)
        except JournalError as problem:
            if self.live.pop(path, None) is not None:  # brought home meanwhile, and removed
                self._open(path)
                return
            self._problems[path] = str(problem)
            return
        self._problems.pop(path, None)
        self._sources[path] = source
        if source.track is None:
            self._controllers.setdefault(path.name.partition("-")[0], []).append(source)
            return
        attempt = self._attempts.of(source.identity.attempt)
        if attempt.steps.gave:
            self.superseded = True
        attempt.sources.append(source)
        attempt.steps.add(source.track)

    def _active(self) -> Iterator[Source]:
        """Journals that may have grown; the others are left closed."""
        newest = self._attempts.newest
        for source in self._sources.values():
            if source.track is None:
                over = all(source not in family[-2:] for family in self._controllers.values())
            else:
                over = source.identity.attempt < newest - 1
            if not over or source.fresh:
                yield source
            if over:
                source.rest()

    # --- statements -------------------------------------------------------------------------

    def _take(self, place: Path, statement: Statement, facts: list[Fact]) -> None:
        match statement:
            case SavesStated():
                self._saves[place] = statement
            case RunStated():
                self._stated.append(statement)
            case AttemptStarted(number, at_ns):
                self._attempts.of(number).started_ns = at_ns
            case AttemptEnded(number, at_ns, cause):
                attempt = self._attempts.of(number)
                attempt.ended_ns, attempt.cause = at_ns, cause
            case AttemptLost(number, at_ns, cause):
                lost = self._attempts.of(number)
                if lost.lost is None or at_ns < lost.lost[0]:  # who found it first
                    lost.lost = (at_ns, cause)
            case RunEnded(at_ns):
                self._ended_ns.append(at_ns)
            case AnnouncedStated():
                if self._announced is None or statement.at_ns >= self._announced.at_ns:
                    self._announced = statement
            case SavingStated():
                if self._saving is None or statement.at_ns >= self._saving.at_ns:
                    self._saving = statement
            case _:
                facts.append(statement)

    def _hear(self, told: Iterable[Told]) -> None:
        for one in told:
            if isinstance(one, Kept):
                self.tiers[one.tier].add(one)
            elif isinstance(one, WentBack):
                for sets in self.tiers.values():
                    sets.went_back(one.step)
            else:
                self.suspected = one

    def _thinned(self, seen_ns: list[int]) -> Iterator[SeenFact]:
        """Signs of life, fewer, yet a pause of a minute shows where it did before."""
        after = self._seen_ns[-1] if self._seen_ns else 0
        seen_ns = sorted(at_ns for at_ns in seen_ns if at_ns > after)
        for at_ns, next_ns in zip_longest(seen_ns, seen_ns[1:]):
            paused = next_ns is None or next_ns - at_ns > _SEEN_GAP_NS
            if paused or at_ns - self._kept_seen_ns >= _SEEN_SPACING_NS:
                self._kept_seen_ns = at_ns
                self._seen_ns.append(at_ns)
                yield SeenFact(at_ns)

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
        if not self._stated:
            return RunFact(self._name(), min(starts), ended_ns, 1)
        requested_ns = min([stated.requested_ns for stated in self._stated] + starts)
        newest = self._stated[-1]
        return RunFact(newest.name, requested_ns, ended_ns, newest.chips)

    def _name(self) -> str:
        return next((s.identity.run for s in self._sources.values()), self.run_dir.name)
