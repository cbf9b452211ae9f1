"""A job's log entries, told to the ledger as they come.

What entries say is less than what the ledger wants to know; the rules that close the gap:

- A job's start begins an attempt. The one before it ended with its recorded end, else with the last
  that was heard of it; either way it had not done what there was to do.
- A step's entry says that it began, and that the one before it ended. Numbers that are passed over
  were equal steps. The step that was under way at a recorded end was completed by then, after as
  long as the others took; what is more than that came after it. The step that
  was under way when the next attempt went on right behind it was completed too (it was saved); how
  long it took is not known, and taken from the others.
- An event that nobody ended lasts as long as no step follows.
- A clock that goes back is another host's: its attempt is moved behind the one before it, as near
  as it can have been. How long nothing ran in between no entry says, so `contradictions` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from holdfast.compat.ml_goodput_measurement import keys, kinds
from holdfast.compat.ml_goodput_measurement.books import Books
from holdfast.compat.ml_goodput_measurement.clock import NS_PER_S, ns_of
from holdfast.compat.ml_goodput_measurement.events import (
    RECENT,
    SKEW_NS,
    Entry,
    SliceCounts,
    checkpoint_of,
    event_of,
    last_step_end,
    slices_of,
    told_behind,
)
from holdfast.core.ledger.facts import DONE, AttemptFact, CapacityFact, SpanFact
from holdfast.core.ledger.kinds import DATA
from holdfast.journal.facts.rank_steps import Ints, TimedSteps
from holdfast.journal.facts.steps import FEWEST, FirstStep

RESTARTED = "restarted"  # an attempt that somebody ended, and that was followed by another
UNKNOWN = "unknown"  # … that nobody ended
FEW = 8  # steps in a row that are taken one by one: arrays cost more


@dataclass(slots=True)
class LoggedLife:
    """One attempt so far. Steps are numbered as the ledger does, one more than the job does."""

    number: int
    start_ns: int
    heard_ns: int
    is_started: bool  # its start was recorded, not guessed
    offset_ns: int = 0  # added to its clock
    ended_ns: int | None = None
    first: int | None = None  # its first step
    first_step_ns: int | None = None  # since
    done: int = 0  # the last that it completed
    step: int | None = None  # under way
    step_ns: int = 0  # since
    counted: int = 0  # steps
    typical_ns: int = 0  # that a step takes
    opening: FirstStep = field(default_factory=FirstStep)
    open: dict[str, int] = field(default_factory=dict)  # events by span: since
    reinits: list[tuple[int, int]] = field(default_factory=list)
    is_told: bool = False  # spans of it are in the ledger


class JobStory(Books):
    """The books of a job, fed with its log's entries in the log's order."""

    def __init__(self, name: str) -> None:
        self.contradictions: dict[int, str] = {}  # by attempt: where times and order do not fit
        self._usual_ns = 0  # what a step takes, where no attempt so far can say
        # All entries until some attempt can: its number is what guesses before it needed.
        self._early: list[Entry] | None = []
        self._has_guessed = False
        self._begin_anew(name)

    def _begin_anew(self, name: str) -> None:
        super().__init__()
        self.name = name
        self.lives: list[LoggedLife] = []
        # Of the newest attempt, not told yet: (first, last, start, end) of steps, spans.
        self._rows: list[tuple[int, int, int, int]] = []
        self._spans: list[tuple[str, int, int]] = []

    @property
    def life(self) -> LoggedLife | None:
        """The newest attempt."""
        return self.lives[-1] if self.lives else None

    def feed(self, entries: Sequence[Entry]) -> None:
        """Take the next entries. Those that say nothing of the job's time are passed over.

        Raises ValueError (or TypeError) for an entry whose times are no numbers.
        """
        if self._early is None:
            self._take_all(entries)
            return
        self._early += entries
        self._take_all(entries)
        self._usual_ns = next((life.typical_ns for life in self.lives if life.typical_ns), 0)
        if self._usual_ns:
            early, self._early = self._early, None
            if self._has_guessed:
                self._begin_anew(self.name)
                self._take_all(early)

    def _take_all(self, entries: Sequence[Entry]) -> None:
        times: list[Any] = [entry.get(keys.STEP_START) for entry in entries]
        others = [at for at, time in enumerate(times) if time is None]
        begin = 0
        for stop in [*others, len(entries)]:
            if stop - begin <= FEW:
                for at in range(begin, stop):
                    self._take_step(int(entries[at][keys.STEP]) + 1, ns_of(times[at]))
            else:
                counts = [entries[at][keys.STEP] for at in range(begin, stop)]
                at_ns = np.rint(np.asarray(times[begin:stop], float) * 1e6).astype(np.int64) * 1000
                self._take_steps(np.asarray(counts, dtype=np.int64) + 1, at_ns)
            if stop < len(entries):
                self._take(entries[stop])
            begin = stop + 1
        self._flush()

    # --- Attempts ----------------------------------------------------------------------------

    def _take(self, entry: Entry) -> None:
        if keys.JOB_START in entry:
            self._begin(ns_of(entry[keys.JOB_START]))
        elif keys.JOB_END in entry:
            self._end(ns_of(entry[keys.JOB_END]))
        elif keys.SLICES_AT in entry:
            self._take_slices(slices_of(entry))
        elif (event := event_of(entry)) is not None:
            self._take_event(*event)
        elif (checkpoint := checkpoint_of(entry)) is not None:
            self._take_checkpoint(*checkpoint)

    def _begin(self, at_ns: int, *, is_started: bool = True) -> LoggedLife:
        before = self.life
        if before is not None and not before.is_started and before.step is None and is_started:
            before.is_started = True  # its first events came before its start
            before.start_ns = min(before.start_ns, at_ns)
            self._tell(before)
            return before
        life = LoggedLife(len(self.lives), at_ns, at_ns, is_started)
        if before is not None:
            self._flush()
            self._close(before)
            if at_ns < before.heard_ns:  # another host's clock
                life.offset_ns = before.heard_ns - at_ns
                life.start_ns = life.heard_ns = before.heard_ns
                words = told_behind(life.number, life.offset_ns)
                self._note_contradiction(life, life.offset_ns, words)
        self.lives.append(life)
        self.ended_ns = None
        if self.requested_ns is None:
            self.requested_ns = life.start_ns
        self._tell(life)
        return life

    def _close(self, life: LoggedLife) -> None:
        """Another attempt begins: this one is over, and had not done what there was to do."""
        end_ns = life.heard_ns if life.ended_ns is None else life.ended_ns
        cause = UNKNOWN if life.ended_ns is None else RESTARTED
        life.ended_ns = end_ns
        self._note_first_step(life, [], is_over=True)
        self.ledger.add([AttemptFact(life.number, life.start_ns, end_ns, cause)])
        self._tell_open(life)

    def _end(self, at_ns: int) -> None:
        life = self.life or self._begin(at_ns, is_started=False)
        at_ns = self._heard(life, at_ns)
        if life.step is not None:
            self._flush_rows(life)
            inside = sum(end - start for _, start, end in self._spans if start >= life.step_ns)
            known_ns = life.typical_ns + inside if life.counted >= FEWEST else 0
            end_ns = last_step_end(life.step_ns, at_ns, known_ns)
            self._rows.append((life.step, life.step, life.step_ns, end_ns))
            if end_ns < at_ns:
                self._spans.append((kinds.AFTER_STEPS, end_ns, at_ns))
            life.done, life.step = life.step, None
        life.ended_ns = self.ended_ns = at_ns
        self._flush()
        self._tell(life)

    def _tell(self, life: LoggedLife) -> None:
        cause = DONE if life.ended_ns is not None else None
        self.newest = AttemptFact(life.number, life.start_ns, life.ended_ns, cause)
        self.ledger.add([self.newest])
        self._tell_open(life)
        if life.number == 0:
            self.requested_ns = life.start_ns

    def _tell_open(self, life: LoggedLife) -> None:
        since_ns = life.start_ns if life.first is None else life.step_ns
        spans = [(kind, at_ns) for kind, at_ns in life.open.items() if at_ns >= since_ns]
        step = (life.step, life.step_ns) if life.step is not None else None
        self.ledger.set_open(life.number, spans, step)

    def _here(self, at_ns: int) -> LoggedLife:
        """The attempt that an entry of this time belongs to."""
        life = self.life
        if life is None or (life.ended_ns is not None and life.is_started):
            return self._begin(at_ns, is_started=False)
        return life

    def _note_contradiction(self, life: LoggedLife, back_ns: int, words: str = "") -> None:
        if back_ns > SKEW_NS:
            words = words or (
                f"a clock went back by {back_ns / NS_PER_S:.0f} s in attempt {life.number}: what "
                "happened meanwhile counts as no time at all, so goodput may be wrong"
            )
            self.contradictions.setdefault(life.number, words)

    def _heard(self, life: LoggedLife, at_ns: int) -> int:
        """The moment on the run's clock."""
        at_ns = max(at_ns + life.offset_ns, life.start_ns)
        life.heard_ns = max(life.heard_ns, at_ns)
        return at_ns

    # --- Steps -------------------------------------------------------------------------------

    def _take_steps(self, steps: Ints, at_ns: Ints) -> None:
        """Many steps that began, by the ledger's numbers, in the log's order."""
        life = self._here(int(at_ns[0]))
        self._take_step(int(steps[0]), int(at_ns[0]))
        self._note_contradiction(life, int((at_ns[:-1] - at_ns[1:]).max()))
        at_ns = np.maximum(at_ns + life.offset_ns, life.step_ns)
        np.maximum.accumulate(at_ns, out=at_ns)
        goes_on = steps[1:] > steps[:-1]
        columns = steps[:-1], steps[1:] - 1, at_ns[:-1], at_ns[1:]
        first, last, start, end = (column[goes_on] for column in columns)
        self._flush_rows(life)
        if len(first):
            life.done = int(last[-1])
            self._add_rows(life, first, last, start, end)
        life.step, life.step_ns = int(steps[-1]), int(at_ns[-1])
        life.heard_ns = max(life.heard_ns, life.step_ns)

    def _take_step(self, step: int, at_ns: int) -> None:
        """A step began; the one before it, and those that were passed over, ended."""
        life = self._here(at_ns)
        if life.step is None:
            self._resume(life, step)
        self._note_contradiction(life, life.step_ns - at_ns - life.offset_ns)
        at_ns = max(self._heard(life, at_ns), life.step_ns)
        if life.step is None:
            life.first, life.first_step_ns = step, at_ns
        elif step > life.step:
            self._rows.append((life.step, step - 1, life.step_ns, at_ns))
            life.done = step - 1
        life.step, life.step_ns = step, at_ns

    def _resume(self, life: LoggedLife, step: int) -> None:
        """An attempt's first step tells what the ones before had completed."""
        for before in reversed(self.lives[: life.number]):
            if before.first is None or before.ended_ns is None:
                continue
            if before.first < step <= before.done + 1:
                return
            if before.step == step - 1:
                self._complete_last(before, life)
                return

    def _complete_last(self, life: LoggedLife, after: LoggedLife) -> None:
        """Its last step was completed after all: `after` went on right behind it."""
        if life.step is None or life.ended_ns is None:
            return
        known = (x.typical_ns for x in reversed(self.lives[: life.number + 1]) if x.typical_ns)
        typical_ns = next(known, self._usual_ns)
        self._has_guessed = self._has_guessed or not typical_ns
        end_ns = life.step_ns + typical_ns
        if after.offset_ns and not after.is_told:  # it was moved, and not far enough
            self._move(after, max(0, end_ns - after.start_ns))
        end_ns = min(end_ns, max(after.start_ns, life.step_ns))
        row = (
            np.array([value], np.int64) for value in (life.step, life.step, life.step_ns, end_ns)
        )
        self._add_rows(life, *row)
        life.done, life.step = life.step, None
        life.ended_ns = max(life.ended_ns, end_ns)
        self.ledger.add([AttemptFact(life.number, life.start_ns, life.ended_ns, UNKNOWN)])
        self._tell_open(life)

    def _move(self, life: LoggedLife, by_ns: int) -> None:
        """The newest attempt, which has no step yet, is later than it seemed."""
        life.offset_ns += by_ns
        life.start_ns += by_ns
        life.heard_ns += by_ns
        life.open = {kind: at_ns + by_ns for kind, at_ns in life.open.items()}
        life.reinits = [(start + by_ns, end + by_ns) for start, end in life.reinits]
        self._spans = [(kind, start + by_ns, end + by_ns) for kind, start, end in self._spans]
        self._tell(life)

    def _add_rows(self, life: LoggedLife, first: Ints, last: Ints, start: Ints, end: Ints) -> None:
        self.ledger.add_steps(life.number, first, last, start, end)
        each = (end - start) // (last - first + 1)
        life.counted += len(each)
        life.typical_ns = int(np.median(each[-RECENT:]))
        self._note_first_step(life, [TimedSteps(last, start, start + each)], is_over=False)

    def _flush_rows(self, life: LoggedLife) -> None:
        rows, self._rows = self._rows, []
        if rows:
            self._add_rows(life, *np.array(rows, dtype=np.int64).T)

    def _flush(self) -> None:
        """Tell the ledger what was gathered of the newest attempt."""
        life = self.life
        if life is None:
            return
        self._flush_rows(life)
        spans, self._spans = self._spans, []
        if spans:
            life.is_told = True
            names = sorted({kind for kind, *_ in spans})
            number = {name: at for at, name in enumerate(names)}
            columns = np.array([(number[kind], a, b) for kind, a, b in spans], dtype=np.int64).T
            self.ledger.add_spans(life.number, names, *columns)
        if life.ended_ns is not None:
            self._note_first_step(life, [], is_over=True)
        self._tell_open(life)

    def _note_first_step(
        self, life: LoggedLife, pieces: list[TimedSteps], *, is_over: bool
    ) -> None:
        opening = life.opening.take(pieces, self._typical_before(life), is_over=is_over)
        if opening is not None and opening.startup is not None:
            self.ledger.add([SpanFact(life.number, kinds.FIRST_STEP, *opening.startup)])

    def _typical_before(self, life: LoggedLife) -> int:
        """How long a step took in the attempts before, in ns; 0: nobody knows."""
        known = (x.opening.known for x in reversed(self.lives[: life.number]))
        return next((one.typical_ns for one in known if one is not None and one.typical_ns), 0)

    def opening(self) -> tuple[int, int] | None:
        """Of the newest attempt."""
        life = self.life
        if life is None or life.opening.known is not None:
            return None
        guess = life.opening.guess(self._typical_before(life))
        return None if guess is None else guess.startup

    # --- Events ------------------------------------------------------------------------------

    def _take_event(self, kind: str, at_ns: int, begins: bool) -> None:
        life = self.life or self._begin(at_ns, is_started=False)
        if life.ended_ns is not None:
            return
        at_ns = self._heard(life, at_ns)
        if begins:
            life.open[kind] = at_ns
            return
        start_ns = life.open.pop(kind, None)
        if start_ns is None or start_ns >= at_ns:
            return
        if kind == kinds.ELASTIC_REINIT:
            life.reinits.append((start_ns, at_ns))
        if kind in (kinds.TPU_INIT, kinds.PREPARATION) and self._is_in_reinit(life, start_ns):
            return
        if kind == DATA and life.first_step_ns is not None and start_ns >= life.first_step_ns:
            kind = kinds.LATER_DATA
        self._spans.append((kind, start_ns, at_ns))

    def _is_in_reinit(self, life: LoggedLife, at_ns: int) -> bool:
        """Whether an elastic reinitialization, which has initializing in it, counts this."""
        since_ns = life.open.get(kinds.ELASTIC_REINIT)
        if since_ns is not None and since_ns <= at_ns:
            return True
        return any(start_ns <= at_ns < end_ns for start_ns, end_ns in life.reinits)

    def _take_checkpoint(self, kind: str, start_ns: int | None, length_ns: int) -> None:
        life = self.life
        if life is None or length_ns <= 0:
            return
        if start_ns is None or start_ns + life.offset_ns < life.start_ns:
            start_ns = life.heard_ns - life.offset_ns  # a clock of no use
        start_ns = self._heard(life, start_ns)
        end_ns = self._heard(life, start_ns - life.offset_ns + length_ns)
        self._spans.append((kind, start_ns, end_ns))

    def _take_slices(self, slices: SliceCounts) -> None:
        at_ns = ns_of(slices.at_s)
        life = self.life or self._begin(at_ns, is_started=False)
        at_ns = self._heard(life, at_ns)
        self.slices.append(replace(slices, at_s=at_ns / NS_PER_S))
        self.chips = max(self.chips, slices.total)
        working = min(slices.active, slices.total) * self.chips // slices.total
        self.ledger.add([CapacityFact(at_ns, working)])
