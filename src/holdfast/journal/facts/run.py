"""All journals of a run, on one clock, as facts; and what is new in them, as often as asked.

Reads `attempts/*/journal/rank-*.hfj`, `journal/controller-*.hfj` and `journal/machines-*.hfj`.
Steps go as arrays, everything else as facts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np

from holdfast.core.ledger.facts import Fact, RunFact, SeenFact
from holdfast.core.ledger.program import Basis
from holdfast.errors import JournalError
from holdfast.journal.clocks import ClockLink, RunClock
from holdfast.journal.facts.attempts import (
    ControllerSigns,
    KnownAttempt,
    KnownAttempts,
    Open,
    RankSeen,
    Signs,
    ranks_of,
)
from holdfast.journal.facts.controllers import Controllers, looks_after_run
from holdfast.journal.facts.followed import FollowedJournal, Polled, Touched
from holdfast.journal.facts.lines import AttemptStated, HostStated
from holdfast.journal.facts.proven import EqualSteps
from holdfast.journal.facts.rank_steps import ClosedSpans, Ints, TimedSteps
from holdfast.journal.folders import attempt_folders, journal_names
from holdfast.journal.layout import RankPhase


class Compilations(NamedTuple):
    """Programs that were looked for in a compilation cache.

    `saved_ns` is what compiling those that were found had taken, less what finding them took; the
    ranks' savings are summed up, though they happen side by side.
    """

    hits: int
    misses: int
    saved_ns: int


class FactSink(Protocol):
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


@dataclass(slots=True)
class _Outgoing:
    """What goes to the sink at once, with the numbers of the attempts."""

    facts: list[Fact] = field(default_factory=list)
    spans: list[tuple[int, ClosedSpans]] = field(default_factory=list)
    steps: list[tuple[int, TimedSteps]] = field(default_factory=list)
    proven: list[tuple[int, tuple[EqualSteps, ...]]] = field(default_factory=list)
    open: list[tuple[int, Open]] = field(default_factory=list)

    def send(self, sink: FactSink) -> None:
        if self.facts:
            sink.add(self.facts)
        for number, spans in self.spans:
            sink.add_spans(number, *spans)
        for number, rows in self.steps:
            sink.add_steps(number, rows.step, rows.step, rows.start, rows.end)
        for number, equal in self.proven:
            sink.add_steps(number, *np.array(equal, np.int64).T)
        for number, open_now in self.open:
            sink.set_open(number, *open_now)


class RunFacts:
    """Follows all journals of a run, and gives a sink what they say.

    Times are unix nanoseconds, as each boot's first clock reading has them.
    """

    def __init__(
        self,
        run_dir: str | os.PathLike[str],
        sink: FactSink,
        live: Mapping[Path, Path] | None = None,
        clock: RunClock | None = None,
    ) -> None:
        """`live` maps journals of the folder to the live files they are copied from.

        `clock`: what an earlier reading has learned of clocks.
        """
        self.run_dir = Path(run_dir)
        self.clock = clock or RunClock()
        self.superseded = False
        """What was given is no longer what a first reading would give: start anew, with a new sink.

        Something came late that belongs before it: a rank, a line, an earlier reading of the clock.
        """
        self.live = dict(live or {})
        self._sink = sink
        self._journals: dict[Path, FollowedJournal] = {}
        self._problems: dict[Path, str] = {}
        self.controllers = Controllers()
        self._attempts = KnownAttempts(self.run_dir / "attempts")
        self._folders: dict[Path, Touched] = {}  # of journals
        self._run: RunFact | None = None  # as given
        self._signs = Signs()
        self._controller_signs = ControllerSigns()

    @property
    def requested_ns(self) -> int | None:
        """When the run's resources were asked for: the origin of its time line."""
        return None if self._run is None else self._run.requested_ns

    @property
    def is_held(self) -> bool:
        """Whether all steps are done and the last is not durable yet, as far as anybody said."""
        controllers = (journal for journal in self._journals.values() if journal.track is None)
        newest = max(controllers, key=lambda one: one.identity.attempt, default=None)
        last = [*self.newest_ranks(), *([] if newest is None else [newest])]
        return any(one.values.phase is RankPhase.LOOP_ENDED for one in last)

    def notes(self) -> list[str]:
        """Sentences on what could not be read or was not recorded."""
        notes = sorted(self._problems.values())
        dropped = sum(journal.values.dropped for journal in self._journals.values())
        if dropped:
            notes.append(
                f"{dropped} records were not written for lack of space; "
                "steps between recorded ones count as equally long"
            )
        for journal in self._journals.values():
            if failed_step := journal.values.failed.step:
                notes.append(
                    f"attempt {journal.identity.attempt}: rank {journal.identity.rank} could not "
                    f"save step {failed_step} (the last time that this happened); it trained on"
                )
        broken = sum(journal.damaged_records for journal in self._journals.values())
        if broken:
            notes.append(f"{broken} records hold times or steps that cannot be, and are left out")
        damaged = sum(journal.damaged_lines for journal in self._journals.values())
        if damaged:
            notes.append(f"{damaged} facts in the journals' text files are damaged and left out")
        return notes

    def opening(self) -> tuple[int, int] | None:
        """What of the newest attempt's first step seems to be starting, while it is not given."""
        attempt = self._attempts.of(self._attempts.newest)
        if attempt.first_step.known is not None:
            return None
        guess = attempt.first_step.guess(self._attempts.typical_before(attempt))
        return None if guess is None else guess.startup

    def is_written_by(self, incarnations: str) -> bool:
        """Whether the newest attempt's ranks are of incarnations that begin so."""
        ranks = [one.identity for one in self._journals.values() if one.track is not None]
        newest = max((one.attempt for one in ranks), default=0)
        return any(
            one.attempt == newest and one.incarnation.startswith(incarnations) for one in ranks
        )

    def hosts(self) -> int:
        """How many hosts the ranks of the newest attempt with a journal ran on."""
        return len({one.identity.host for one in self.newest_ranks()})

    def newest_ranks(self) -> list[FollowedJournal]:
        """The journals of the newest attempt that has any, one a rank."""
        ranks = [journal for journal in self._journals.values() if journal.track is not None]
        newest = max((one.identity.attempt for one in ranks), default=0)
        return [one for one in ranks if one.identity.attempt == newest]

    @property
    def seen_ns(self) -> int:
        """When the supervisor last showed life, to some seconds; 0: never."""
        seen_ns = (one.supervised_ns() for one in self._journals.values())
        return max(self._signs.last(), max(seen_ns, default=0))

    def ranks(self) -> tuple[RankSeen, ...]:
        """The ranks of the newest attempt with a journal."""
        newest = max((one.identity.attempt for one in self.newest_ranks()), default=None)
        return () if newest is None else tuple(ranks_of(self._attempts.of(newest)))

    def compilations(self) -> Compilations:
        """What all ranks of all attempts found compiled, and what they did not."""
        values = [journal.values for journal in self._journals.values()]
        return Compilations(
            hits=sum(one.compile_hits for one in values),
            misses=sum(one.compile_misses for one in values),
            saved_ns=sum(one.compile_saved_ns for one in values),
        )

    def program_basis(self) -> Basis:
        """What a step should take, by whose word, and how many tokens steps had."""
        first = [one for one in self._journals.values() if one.track and one.identity.rank == 0]
        return replace(
            self.controllers.program_basis,
            tokens=sum(one.tokens for one in first),
            token_steps=sum(one.token_steps for one in first),
        )

    # --- what is new ------------------------------------------------------------------------

    def refresh(self) -> int:
        """Give the sink what is new since the last call; gives the number of new records."""
        if opened := [path for path in self._new_journals() if self._open(path)]:
            self._sort(opened)
        batch = _Outgoing()
        signs: list[Ints] = []
        records = 0
        for journal in self._active():
            try:
                found = journal.poll()
            except JournalError as problem:
                self._problems[journal.home] = str(problem)
                continue
            self._problems.pop(journal.home, None)
            records += found.records
            signs += found.seen_ns
            if journal.track is None and looks_after_run(journal):
                for seen_ns in found.seen_ns:
                    self._controller_signs.add(journal, seen_ns)
            self._take(journal, found, batch)
        self.superseded = self.superseded or self.clock.is_other()
        if signs:
            batch.facts += map(SeenFact, self._signs.add(np.concatenate(signs)))
        if not self.superseded:
            batch.facts += self.controllers.back_offs()
            self._send(batch)
        return records

    def _take(self, journal: FollowedJournal, found: Polled, batch: _Outgoing) -> None:
        """What one journal says: steps were taken by its track already."""
        if journal.track is not None:  # a controller's spans would belong to no attempt
            attempt = self._attempts.of(journal.identity.attempt)
            number = attempt.steps.tracks.index(journal.track)
            for rows in found.spans:
                attempt.spans.add(number, rows)
        elif found.statements or found.inputs:
            self.controllers.take_inputs(journal, found.inputs)
        for one in found.statements:
            if isinstance(one, AttemptStated):
                self._attempts.take(journal.place, one)
            else:
                if isinstance(one, HostStated):
                    self._compare_clocks(journal, one)
                batch.facts += self.controllers.take(journal, one)
        self.superseded = self.superseded or journal.is_wrong or self.controllers.is_wrong

    def _compare_clocks(self, journal: FollowedJournal, one: HostStated) -> None:
        if one.boot and one.offset_ns is not None and one.error_ns is not None:
            to, order = journal.identity.boot_id, journal.identity.attempt
            self.clock.link(ClockLink(one.boot, to, one.offset_ns, one.error_ns, order))

    def _send(self, batch: _Outgoing) -> None:
        known = self._attempts.with_starts()
        for attempt, start_ns, next_ns in known:
            self._send_rows(attempt, start_ns, next_ns, batch)
        proofs = self._attempts.proofs()
        for attempt, _, _ in known:
            proof = proofs.get(attempt.number)
            if proof != attempt.proof:
                self.superseded = self.superseded or attempt.proof is not None
                attempt.proof = proof
                if proof is not None:
                    batch.proven.append((attempt.number, proof.rows))
            if (open_now := attempt.open_now()) != attempt.open:
                attempt.open = open_now
                batch.open.append((attempt.number, open_now))
        run = self.controllers.run_fact(self._attempts.facts(), self._name(), self.clock)
        if run is not None and run != self._run:
            self._run = run
            batch.facts.append(run)
        batch.send(self._sink)

    def _send_rows(
        self, attempt: KnownAttempt, start_ns: int | None, next_ns: int | None, batch: _Outgoing
    ) -> None:
        """New restores, steps and spans of an attempt, and what they say of itself."""
        is_over = self._attempts.is_over(attempt, next_ns)
        restores, pieces = attempt.steps.take(is_over=is_over)
        attempt.restores += restores
        batch.facts += restores
        batch.steps += [(attempt.number, piece) for piece in pieces]
        if pieces:
            attempt.last_step_end_ns = int(pieces[-1].end[-1])
            self.superseded = self.superseded or attempt.spans.is_last
        self._send_fact(attempt, start_ns, next_ns, batch)
        before_ns = self._attempts.typical_before(attempt)
        opening = attempt.first_step.take(pieces, before_ns, is_over=is_over)
        if opening is not None and opening.startup is not None:
            start, end = (np.array([at_ns], np.int64) for at_ns in opening.startup)
            rows = ClosedSpans(["startup"], np.zeros(1, np.int64), start, end)
            batch.spans.append((attempt.number, rows))
        counted = attempt.spans.take(attempt.steps, is_over=is_over)
        batch.spans += [(attempt.number, rows) for rows in counted]
        self.superseded |= attempt.first_step.is_wrong or attempt.steps.is_wrong

    def _send_fact(
        self, attempt: KnownAttempt, start_ns: int | None, next_ns: int | None, batch: _Outgoing
    ) -> None:
        fact = self._attempts.fact(attempt, start_ns, next_ns, self._controller_signs)
        if fact is not None and fact != attempt.fact:
            attempt.fact = fact
            batch.facts.append(fact)

    def _name(self) -> str:
        return next((s.identity.run for s in self._journals.values()), self.run_dir.name)

    # --- files ------------------------------------------------------------------------------

    def _new_journals(self) -> Iterator[Path]:
        folders = [self.run_dir / "journal"]
        for number, folder in sorted(attempt_folders(self.run_dir / "attempts")):
            self._attempts.of(number)
            folders.append(folder / "journal")
        known = self._journals
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
        if path in self._journals:
            return False
        try:
            live = self.live.get(path)
            journal = FollowedJournal(live or path, self.clock, home=path if live else None)
        except JournalError as problem:
            if self.live.pop(path, None) is not None:  # brought home meanwhile, and removed
                return self._open(path)
            self._problems[path] = str(problem)
            return False
        self._problems.pop(path, None)
        self._journals[path] = journal
        self.superseded = self.superseded or journal.is_wrong
        if journal.track is not None:
            attempt = self._attempts.of(journal.identity.attempt)
            self.superseded |= attempt.steps.has_given or attempt.spans.is_of_one
            attempt.journals.append(journal)
            attempt.steps.add(journal.track)
        return True

    def _sort(self, opened: Iterable[Path]) -> None:
        """Keep journals in the order of their places, however they came."""
        in_order = sorted(self._journals.items(), key=lambda item: item[1].place)
        self._journals = dict(in_order)
        for path in opened:
            journal = self._journals[path]
            if journal.track is None:
                self.controllers.add(journal)

    def _active(self) -> Iterator[FollowedJournal]:
        """Journals that may have grown; the others are left closed."""
        newest = self._attempts.newest
        followed = {id(one) for one in self.controllers.newest(2)}
        for journal in list(self._journals.values()):
            if journal.track is None:
                over = id(journal) not in followed
            else:
                over = journal.identity.attempt < newest - 1
            if not over or journal.may_have_grown():
                yield journal
            if over:
                journal.rest()
