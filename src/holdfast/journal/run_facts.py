"""All journals of a run, on one clock, as facts; and what is new in them, as often as asked.

Reads `attempts/*/journal/rank-*.hfj` and `journal/controller-*.hfj`. Steps are told as arrays,
everything else as facts.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from holdfast.core.facts import AttemptFact, Fact, RunFact, SeenFact
from holdfast.errors import JournalError
from holdfast.journal.attempts import launched_and_ended
from holdfast.journal.clocks import RunClock
from holdfast.journal.fields import MAX_ATTEMPT
from holdfast.journal.first_step import FirstStep
from holdfast.journal.layout import JOURNAL_SUFFIX
from holdfast.journal.rank_steps import AttemptSteps, Ints, Rows, UnderWay
from holdfast.journal.regular import refuse_link
from holdfast.journal.save_spans import SaveSpans
from holdfast.journal.source import Source, SpanRows
from holdfast.journal.statements import (
    AttemptEnded,
    AttemptStarted,
    RunEnded,
    RunStated,
    SavesStated,
    SavingStated,
    Statement,
)

SUPERVISOR_LOST = "supervisor_lost"
"""Cause of an attempt that nobody was left to record the end of."""

MAX_ATTEMPT_DIGITS = len(str(MAX_ATTEMPT))

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


_Open = tuple[tuple[tuple[str, int], ...], UnderWay | None]


@dataclass(slots=True)
class _Attempt:
    number: int
    steps: AttemptSteps = field(default_factory=AttemptSteps)
    first_step: FirstStep = field(default_factory=FirstStep)
    spans: SaveSpans = field(default_factory=SaveSpans)
    sources: list[Source] = field(default_factory=list)
    started_ns: int | None = None
    stillborn_ns: int | None = None
    ended_ns: int | None = None
    cause: str | None = None
    last_step_end_ns: int = 0
    told: AttemptFact | None = None
    told_open: _Open = ((), None)

    def start_ns(self) -> int | None:
        """When it was launched, or else when its first journal was made, or else its record."""
        if self.started_ns is not None:
            return self.started_ns
        first_ns = (s.first_ns for s in self.sources if s.first_ns is not None)
        return min(first_ns, default=self.stillborn_ns)

    def alive_ns(self) -> int:
        """Its ranks' last sign of life."""
        return max((source.alive_ns() for source in self.sources), default=0)

    def open_now(self, fact: AttemptFact | None) -> _Open:
        """Spans and a step that had begun and not ended.

        What a rank began that was started ahead of its attempt counts from the attempt's beginning.
        """
        low_ns = 0 if fact is None else fact.start_ns
        spans = tuple(
            (kind, max(start_ns, low_ns))
            for source in self.sources
            for kind, start_ns in source.open_spans()
        )
        return spans, self.steps.under_way()


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
        self._attempts: dict[int, _Attempt] = {}
        self._controllers: list[Source] = []
        self._stated: list[RunStated] = []
        self._ended_ns: list[int] = []
        self._saving: SavingStated | None = None
        self._saves: dict[Path, SavesStated] = {}  # by the supervisor's journal
        self._told_run: RunFact | None = None
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
                self._problems[source.path] = str(problem)
                continue
            records += news.records
            seen_ns += news.seen_ns
            if source.track is not None:  # a controller's spans would belong to no attempt
                attempt = self._attempt(source.identity.attempt)
                number = attempt.steps.tracks.index(source.track)
                for rows in news.spans:
                    attempt.spans.add(number, rows)
            for statement in news.statements:
                self._take(source.path, statement, facts)
        facts += self._thinned(seen_ns)
        self._tell(facts)
        return records

    def _tell(self, facts: list[Fact]) -> None:
        spans: list[tuple[int, SpanRows]] = []
        steps: list[tuple[int, Rows]] = []
        opened: list[tuple[int, _Open]] = []
        for attempt, next_ns in self._still_read():
            restores, pieces = attempt.steps.take()
            facts += restores
            steps += [(attempt.number, piece) for piece in pieces]
            if pieces:
                attempt.last_step_end_ns = int(pieces[-1].end[-1])
            fact = self._attempt_fact(attempt, next_ns)
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
        self, attempt: _Attempt, pieces: list[Rows], *, is_over: bool
    ) -> Iterator[tuple[int, SpanRows]]:
        """What of the attempt's first step was starting."""
        before = (self._attempts.get(attempt.number - 1) or attempt).first_step.told
        told = attempt.first_step.take(pieces, before.typical_ns if before else 0, is_over=is_over)
        if told is not None and told.startup is not None:
            start_ns, end_ns = (np.array([at_ns], np.int64) for at_ns in told.startup)
            kind = np.zeros(1, np.int64)
            yield attempt.number, SpanRows(["startup"], kind, start_ns, end_ns)

    # --- files ------------------------------------------------------------------------------

    def _new_journals(self) -> Iterator[Path]:
        newest = max(self._attempts, default=0)
        folders = [self.run_dir / "journal"]
        for number, folder in sorted(_attempt_folders(self.run_dir / "attempts")):
            if number >= newest - 1:
                self._attempt(number)
                folders.append(folder / "journal")
        known = self._sources
        for folder in folders:
            names = _journal_names(folder)
            yield from (path for name in names if (path := folder / name) not in known)
        yield from (path for path in list(self.live) if path not in known)

    def _open(self, path: Path) -> None:
        try:
            source = Source(self.live.get(path, path), self.clock)
        except JournalError as problem:
            if self.live.pop(path, None) is not None:  # brought home meanwhile, and removed
                self._open(path)
                return
            self._problems[path] = str(problem)
            return
        self._problems.pop(path, None)
        self._sources[path] = source
        if source.track is None:
            self._controllers.append(source)
            return
        attempt = self._attempt(source.identity.attempt)
        if attempt.steps.gave:
            self.superseded = True
        attempt.sources.append(source)
        attempt.steps.add(source.track)

    def _active(self) -> Iterator[Source]:
        """Journals that may have grown; the others are left closed."""
        newest = max(self._attempts, default=0)
        for source in self._sources.values():
            if source.track is None:
                over = source not in self._controllers[-2:]
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
                self._attempt(number).started_ns = at_ns
            case AttemptEnded(number, at_ns, cause):
                attempt = self._attempt(number)
                attempt.ended_ns, attempt.cause = at_ns, cause
            case RunEnded(at_ns):
                self._ended_ns.append(at_ns)
            case SavingStated():
                if self._saving is None or statement.at_ns >= self._saving.at_ns:
                    self._saving = statement
            case _:
                facts.append(statement)

    def _attempt(self, number: int) -> _Attempt:
        return self._attempts.setdefault(number, _Attempt(number))

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

    # --- attempts ---------------------------------------------------------------------------

    def _still_read(self) -> Iterator[tuple[_Attempt, int | None]]:
        """Attempts whose journals may have grown, and when the next one started."""
        found: list[tuple[_Attempt, int | None]] = []
        newest = max(self._attempts, default=0)
        next_ns: int | None = None
        for number in sorted(self._attempts, reverse=True):
            attempt = self._attempts[number]
            if attempt.told is None or number >= newest - 1:
                self._note_stillborn(attempt, is_newest=number == newest)
                found.append((attempt, next_ns))
            start_ns = self._start_ns(attempt)
            next_ns = next_ns if start_ns is None else start_ns
        return reversed(found)

    def _start_ns(self, attempt: _Attempt) -> int | None:
        """When an attempt began: not while the one before it ran, though its ranks may have."""
        start_ns, before = attempt.start_ns(), self._attempts.get(attempt.number - 1)
        if start_ns is None or before is None or before.ended_ns is None:
            return start_ns
        return start_ns if attempt.started_ns is not None else max(start_ns, before.ended_ns)

    def _note_stillborn(self, attempt: _Attempt, *, is_newest: bool) -> None:
        """An attempt that left no journal was over before its first process could say anything.

        Its record is all there is. The newest may yet be launched, while it has no end.
        """
        if attempt.start_ns() is None:
            folder = self.run_dir / "attempts" / f"{attempt.number:04d}"
            created_ns, cause = launched_and_ended(folder, attempt.number)
            if cause is not None or not is_newest:
                attempt.stillborn_ns, attempt.cause = created_ns, cause

    def _attempt_fact(self, attempt: _Attempt, next_ns: int | None) -> AttemptFact | None:
        start_ns = self._start_ns(attempt)
        if start_ns is None:
            return None  # about to be launched
        if attempt.start_ns() == attempt.stillborn_ns:
            return AttemptFact(attempt.number, start_ns, start_ns, attempt.cause or SUPERVISOR_LOST)
        if attempt.ended_ns is not None:
            # All processes were gone then; a step ends later only by another host's clock.
            end_ns = max(start_ns, attempt.ended_ns, attempt.last_step_end_ns)
            cause = attempt.cause
        elif next_ns is not None:
            seen = self._seen_ns[: bisect_right(self._seen_ns, next_ns)]
            alive_ns = max(attempt.alive_ns(), seen[-1] if seen else 0)
            end_ns, cause = max(start_ns, alive_ns), SUPERVISOR_LOST
        else:
            return AttemptFact(attempt.number, start_ns, None, None)
        if next_ns is not None:
            end_ns = max(start_ns, min(end_ns, next_ns))
        return AttemptFact(attempt.number, start_ns, end_ns, cause)

    def _run_fact(self) -> RunFact | None:
        told = [a.told for a in self._attempts.values() if a.told is not None]
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


def _attempt_folders(attempts: Path) -> Iterator[tuple[int, Path]]:
    try:
        refuse_link(attempts)
        with os.scandir(attempts) as entries:
            names = [
                entry.name for entry in entries if not entry.is_symlink() and _is_number(entry.name)
            ]
    except OSError:
        return
    yield from ((int(name), attempts / name) for name in names)


def _is_number(name: str) -> bool:
    return len(name) <= MAX_ATTEMPT_DIGITS and name.isascii() and name.isdigit()


def _journal_names(folder: Path) -> list[str]:
    try:
        refuse_link(folder)
        with os.scandir(folder) as entries:
            return sorted(e.name for e in entries if e.name.endswith(JOURNAL_SUFFIX))
    except OSError:
        return []
