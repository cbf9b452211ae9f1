"""One attempt of a recorded job: its journal, and how the API's moments become its records.

The journal lies in the run's folder where that is on a local disk, else in local scratch, and is
copied. Its times are those of this machine's boot. A job that is told afterwards, with times before
the boot, gets a journal whose clock is the wall clock.
"""

from __future__ import annotations

import os
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.compat.ml_goodput_measurement import clock, kinds
from holdfast.compat.ml_goodput_measurement.events import RECENT, SKEW_NS, last_step_end
from holdfast.core.ledger.facts import DONE
from holdfast.errors import AttemptExists, HoldfastError
from holdfast.journal.attempts import (
    ATTEMPT_FILE,
    AttemptEnd,
    create_attempt,
    end_attempt,
    next_number,
)
from holdfast.journal.clocks import ClockPair, boot_id, now_ns, read_clock_pair
from holdfast.journal.layout import SPAN_SLOTS, Flag, Identity, Kind, NoteType, Word
from holdfast.journal.names import new_id
from holdfast.journal.scratch import filesystem_of, is_remote, make_scratch, remove_scratch
from holdfast.journal.writer import JournalWriter

if TYPE_CHECKING:
    from holdfast.journal.replicate import Replicator
    from holdfast.journal.store import RunFolder

RECORDER = "goodput-"  # how a recorder's incarnation begins
WALL_CLOCK = "wall-clock"  # the boot of journals that are not of any boot
JOURNAL = "rank-00000.hfj"
_TRIES = 20
FEWEST = 3  # steps that tell how long one takes
_NEVER_NS = 2**62
_LAST_SLOT = int(Word.OPEN_SPANS) + 2 * SPAN_SLOTS - 2  # deeper spans do not show while open


class AttemptTape:
    """Records of one attempt. One thread at a time; times are unix nanoseconds of this machine."""

    tells_steps = True  # nobody else does

    def __init__(
        self, folder: RunFolder | None, first_ns: int, before: AttemptTape | None = None
    ) -> None:
        """`first_ns`: when the first thing to record happened; `before`: this process's last one.

        Raises HoldfastError, OSError.
        """
        self.folder = folder
        self.number = 0
        self.writer = JournalWriter.nowhere()
        self.step: int | None = None  # under way, by the journal's numbers
        self.start_ns = first_ns
        self.closed = False
        self.events: list[tuple[str, int, int]] = []  # open: (span, since, token), innermost last
        self._left: dict[str, int] = {}  # those that a step has followed: since
        self._replicator: Replicator | None = None
        self._syncing = threading.Lock()
        self._scratch: Path | None = None
        self.is_live = True
        pair = read_clock_pair()
        self._offset_ns = pair.unix_ns - pair.boottime_ns  # unix, less the journal's clock
        if before is not None and before.is_live:
            self._offset_ns = before._offset_ns  # what `now_ns` gave there is told here
        if folder is not None:
            self._create(folder, pair, first_ns)

    def _create(self, folder: RunFolder, pair: ClockPair, first_ns: int) -> None:
        incarnation = RECORDER + new_id()
        self.number = _new_attempt(folder, incarnation)
        made = (folder.attempt_dir(self.number) / ATTEMPT_FILE).stat().st_mtime_ns
        # The store's clock is the one that all hosts of the job share.
        skew_ns = made - pair.unix_ns if abs(made - pair.unix_ns) > SKEW_NS else 0
        self.is_live = first_ns >= self._offset_ns
        if not self.is_live:
            self._offset_ns, skew_ns = 0, 0
            pair = ClockPair(pair.unix_ns, pair.unix_ns)
        boot = boot_id() if self.is_live else WALL_CLOCK
        host = os.uname().nodename
        place = folder.attempt_journal_dir(self.number)
        live = place / JOURNAL
        if is_remote(filesystem_of(place)):
            from holdfast.journal.adopt import bring_home
            from holdfast.journal.replicate import Replicator

            self._scratch, live = make_scratch(folder, 0, incarnation)
            self._replicator = Replicator(live, place / live.name)
            bring_home(folder, self._scratch.parent, mine=self._scratch)  # what a dead process left
        self.writer = JournalWriter.create(
            live,
            Identity(folder.name, self.number, incarnation, 0, host, 0, boot),
            lambda: ClockPair(pair.boottime_ns, pair.unix_ns + skew_ns),
        )

    def move(self, by_ns: int) -> None:
        """All that follows was so much later than it will be said."""
        self._offset_ns -= by_ns

    def now_ns(self) -> int:
        """Now, by the journal's clock: it goes on evenly where the wall clock is set."""
        return now_ns() + self._offset_ns if self.is_live else clock.unix_ns()

    def on_tape(self, unix_ns: int) -> int:
        """A moment, by the journal's clock."""
        return max(0, unix_ns - self._offset_ns)

    # --- Facts -------------------------------------------------------------------------------

    def begin(self, at_ns: int, chips: int) -> None:
        """The attempt began; again if it was earlier than it seemed."""
        self.start_ns = min(self.start_ns, at_ns)
        at = self.on_tape(self.start_ns)
        name = "" if self.folder is None else self.folder.name
        self.fact(fact="run", name=name, requested_ns=at, chips=chips)
        self.fact(fact="attempt_start", attempt=self.number, at_ns=at)

    def end(self, at_ns: int) -> None:
        """The job is done, and the step under way with it."""
        at = self.on_tape(at_ns)
        self.end_steps(at)
        self.fact(fact="attempt_end", attempt=self.number, at_ns=at, cause=DONE)
        self.fact(fact="run_end", at_ns=at)
        self.closed = True
        if self.folder is not None:
            at_unix_ns = at_ns if self.is_live else at
            end_attempt(self.folder, self.number, AttemptEnd(DONE, "done", (0,), at_unix_ns))

    def end_steps(self, at: int) -> None:
        """No step is under way after `at`, by the journal's clock: the last one is done."""
        if self.step is not None:
            since = self._step_since()
            done = last_step_end(since, at, self._typical(since))
            self.record_step(self.step + 1, done + self._offset_ns)
            if done < at:
                self.span(kinds.AFTER_STEPS, done, at)
            self.writer.end_steps(done)
        self.step = None

    def fact(self, **payload: Any) -> None:
        """A line of text, and the record that points to it."""
        self.writer.note(NoteType.FACT, payload)
        self.writer.flush()

    # --- Steps -------------------------------------------------------------------------------

    def begin_steps(self, step: int, at_ns: int, source: int | None) -> None:
        """The first step, or one that does not follow: `source` is the attempt that it resumes."""
        at = self.on_tape(at_ns)
        if source is not None:
            self.writer.append(at, Kind.RESTORE, 0, source + 1, step - 1, at)
        self.writer.begin_step(step, at)
        self.step = step

    def record_step(self, step: int, at_ns: int) -> None:
        """`step` began, and all from the one under way on were completed, equally long."""
        at = self.on_tape(at_ns)
        writer, before = self.writer, self.step
        assert before is not None  # noqa: S101 - for the type checker
        page = writer.page
        since = self._step_since()
        at = max(at, since)
        count = step - before
        for done in range(count):
            start = since + (at - since) * done // count
            end = since + (at - since) * (done + 1) // count
            writer.append(end, Kind.STEP, Flag.CONTINUES, 0, before + done, start)
        page.store(Word.STEP, step - 1)
        page.store(Word.STEP_AT, at)
        self.step = step

    def _step_since(self) -> int:
        page = self.writer.page
        return max(page.load(Word.STEP_AT), page.load(Word.STEP_STARTED))

    def _typical(self, since: int) -> int:
        """How long the step under way should have taken, with what else was in it; 0: unknown."""
        if self.writer.path is None:
            return 0
        import numpy as np

        from holdfast.journal.reader import JournalReader

        with JournalReader(self.writer.path) as reader:
            records = reader.read_new(max(0, reader.count() - 2 * RECENT))
        steps = records[records["kind"] == Kind.STEP][-RECENT:]
        if len(steps) < FEWEST:
            return 0
        spans = records[(records["kind"] == Kind.SPAN) & (records["value"] >= since)]
        inside = int((spans["time"] - spans["value"]).sum())
        return int(np.median(steps["time"] - steps["value"])) + inside

    # --- Events ------------------------------------------------------------------------------

    def open(self, kind: str, at_ns: int) -> None:
        """A span begins; one of that kind that was open is forgotten."""
        self._take(kind)
        token = self.writer.open_span(kind)
        at = self.on_tape(at_ns)
        if token <= _LAST_SLOT:
            self.writer.page.store(token + 1, at)
        self.events.append((kind, at, token))

    def close(self, kind: str, at_ns: int, *, keep: bool = True) -> int | None:
        """It ends; gives when it began, by the tape. With `keep` False it leaves no record."""
        start = self._take(kind)
        end = self.on_tape(at_ns)
        if start is not None and start < end and keep:
            self.span(kind, start, end)
        return start

    def is_open(self, kind: str) -> bool:
        """Whether a span of that kind is."""
        return kind in self._left or any(name == kind for name, *_ in self.events)

    def leave_open(self) -> None:
        """A step follows: if nobody ends what is open, it did not last longer than until now."""
        if self.events:
            self._left |= {kind: since for kind, since, _ in self.events}
            self._free(0)

    def span(self, kind: str, start: int, end: int) -> None:
        """A whole span, by the journal's clock."""
        writer = self.writer
        step = writer.page.load(Word.STEP)
        writer.append(end, Kind.SPAN, 0, writer.span_kind(kind), step, start)

    def _take(self, kind: str) -> int | None:
        """Take an open span off the tape's stack, wherever in it, without a record."""
        left = self._left.pop(kind, None)
        at = next((i for i, (name, *_) in enumerate(self.events) if name == kind), None)
        if at is None:
            return left
        start = self.events[at][1]
        above = self.events[at + 1 :]
        self._free(at)
        for name, since, _ in above:
            token = self.writer.open_span(name)
            if token <= _LAST_SLOT:
                self.writer.page.store(token + 1, since)
            self.events.append((name, since, token))
        return start

    def _free(self, at: int) -> None:
        """Take events from `at` on off the stack, innermost first, so that none leaves a record."""
        while len(self.events) > at:
            self.writer.close_span(self.events.pop()[2], _NEVER_NS)

    # --- Life --------------------------------------------------------------------------------

    def beat(self) -> None:
        """A sign of life, and what is new to the store. From any thread."""
        if self.is_live and not self.closed:
            self.writer.page.store(Word.SUPERVISOR_ALIVE_AT, now_ns())
        self._sync(durable=False)

    def _sync(self, *, durable: bool) -> None:
        if self._replicator is not None:
            with self._syncing:
                self._replicator.sync(durable=durable)

    def finish(self) -> None:
        """Let go of the files."""
        self.beat()
        self.writer.flush()
        self._sync(durable=True)
        self.writer.close()
        if self._scratch is not None:
            remove_scratch(self._scratch)


def is_of_this_boot(unix_ns: int) -> bool:
    """Whether it was recorded as it happened, as far as that can be known."""
    pair = read_clock_pair()
    return unix_ns >= pair.unix_ns - pair.boottime_ns


def _new_attempt(folder: RunFolder, incarnation: str) -> int:
    for _ in range(_TRIES):
        number = next_number(folder)
        try:
            create_attempt(
                folder,
                number,
                parent=None,
                resume_step=0,
                restore_set=None,
                incarnation=incarnation,
                command=(sys.executable, *sys.argv),
            )
        except AttemptExists:
            continue  # somebody else's, in between
        return number
    raise HoldfastError(
        f"run {folder.name!r} is supervised by `holdfast run`, which makes its attempts: give the "
        "recorder another job name"
    )
