"""Journals as they grew: written by the real writers, brought to their reader a piece at a time.

A `GrownRun` writes a run of short attempts into one folder. After each thing that happens it notes
how long each file is and what its header says; `Arrivals` bring any of those states of any file to
a reader's folder, in any order, whole or torn.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest

from holdfast.journal import attempts as attempts_module
from holdfast.journal import writer as writer_module
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt
from holdfast.journal.clocks import ClockPair
from holdfast.journal.layout import (
    CONTROLLER_RANK,
    HEADER_BYTES,
    PAGE_BYTES,
    RECORD_BYTES,
    WORD_BYTES,
    Flag,
    Identity,
    Kind,
    NoteType,
    Word,
)
from holdfast.journal.sidecar import sidecar_path
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.writer import JournalWriter

S = 1_000_000_000
UNIX = 1_700_000_000 * S
RUN = "r"


@dataclass
class Grown:
    """One file: how much of it there was, one state after the other."""

    path: Path
    states: list[tuple[int, int, bytes]] = field(default_factory=list)  # records, text, header
    arrived: int = 0  # states that the reader has


class GrownRun:
    """A run as its processes write it; `random` decides what happens to it."""

    def __init__(self, root: Path, random: Random, patch: pytest.MonkeyPatch) -> None:
        self.random = random
        self.files: dict[Path, Grown] = {}
        self._now = 10 * S  # on the boot's clock
        patch.setattr(writer_module, "read_clock_pair", self._clocks)
        clock = SimpleNamespace(time_ns=lambda: UNIX + self._now)
        patch.setattr(attempts_module, "time", clock)
        self.folder: RunFolder = RunStore(root).create(RUN)
        self._writers: list[JournalWriter] = []
        self._done = 0

    @property
    def now_ns(self) -> int:
        """Unix ns, on the run's clock."""
        return UNIX + self._now

    def _clocks(self) -> ClockPair:
        return ClockPair(self._now, UNIX + self._now + self.random.choice([0, 0, 1, 7]))

    def _later(self) -> int:
        """Time goes by, sometimes none."""
        self._now += self.random.randint(0, 3) * S // 2
        return self._now

    def _maybe(self, percent: int) -> bool:
        return self.random.randrange(100) < percent

    def _make(self, path: Path, attempt: int, rank: int, boot: str = "boot-a") -> JournalWriter:
        path.parent.mkdir(parents=True, exist_ok=True)
        identity = Identity(RUN, attempt, f"{path.name}-{attempt}", 0, "host", rank, boot)
        writer = JournalWriter.create(path, identity)
        self._writers.append(writer)
        self.files[path] = Grown(path)
        self._note()
        return writer

    def _note(self) -> None:
        """This is how the files are now."""
        for path, grown in self.files.items():
            if path.suffix == ".hfj":
                with path.open("rb") as file:
                    header = file.read(HEADER_BYTES)
                at = PAGE_BYTES + WORD_BYTES * Word.COUNT
                count = int.from_bytes(header[at : at + WORD_BYTES], "little")
                text = sidecar_path(path)
                state = count, text.stat().st_size if text.exists() else 0, header
            else:
                state = 0, path.stat().st_size, b""
            if not grown.states or grown.states[-1] != state:
                grown.states.append(state)

    def _fact(self, writer: JournalWriter, what: str, /, **payload: object) -> None:
        writer.note(NoteType.FACT, {"fact": what, **payload})
        self._note()

    # --- what happens ---------------------------------------------------------------------------

    def live(self, attempts: int, ranks: int) -> None:
        """So many attempts; now and then another supervisor takes over."""
        epoch = 1
        controller = self._controller(epoch)
        machines: JournalWriter | None = None
        for attempt in range(attempts):
            if attempt and self._maybe(15):
                epoch += 1
                controller = self._controller(epoch)
            if self._maybe(15):
                machines = machines or self._make(
                    self.folder.journal_dir / "machines-a.hfj", 0, CONTROLLER_RANK, "laptop"
                )
                start = self._now
                self._fact(machines, "wait", kind="queue", start_ns=start, end_ns=self._later())
            self._attempt(controller, epoch, attempt, ranks)
        if self._maybe(50):
            self._fact(controller, "run_end", at_ns=self._now)
        for writer in self._writers:
            writer.close()

    def lose_tails(self) -> None:
        """The hosts of some ranks lose power: what their files held last never comes."""
        for path, grown in self.files.items():
            if path.name.startswith("rank-") and self._maybe(20):
                del grown.states[self.random.randint(1, len(grown.states)) :]

    def _controller(self, epoch: int) -> JournalWriter:
        path = self.folder.journal_dir / f"controller-{epoch:06d}.hfj"
        controller = self._make(path, epoch, CONTROLLER_RANK)
        chips = self.random.randint(1, 3)
        self._fact(controller, "run", name=RUN, requested_ns=5 * S, chips=chips)
        return controller

    def _attempt(self, controller: JournalWriter, epoch: int, number: int, ranks: int) -> None:
        resume = self.random.randint(0, self._done)
        parent = number - 1 if number and resume else None
        resume = resume if parent is not None else 0
        create_attempt(
            self.folder,
            number,
            parent=parent,
            resume_step=resume,
            restore_set=None if parent is None else "set",
            epoch=epoch,
            ranks=ranks,
        )
        self._appears(self.folder.attempt_dir(number) / "attempt.json")
        has_journals = self._maybe(90)
        if has_journals:
            if self._maybe(90):
                self._fact(controller, "attempt_start", attempt=number, at_ns=self._later())
            self._train([self._rank(number, rank) for rank in range(ranks)], resume, parent)
        self._end(controller, number, has_journals=has_journals)

    def _end(self, controller: JournalWriter, number: int, *, has_journals: bool) -> None:
        broke, found = self._now, self._later()
        cause = self.random.choice(["failed", "failed", "preempted", "done"])
        if self._maybe(40):
            times = {"at_ns": broke, "detected_ns": found}
            self._fact(controller, "fault", attempt=number, cause=cause, **times)
        if has_journals and self._maybe(85):
            self._fact(controller, "attempt_end", attempt=number, at_ns=self._now, cause=cause)
        if self._maybe(80):
            end_attempt(self.folder, number, AttemptEnd(cause, "", (1,), self.now_ns))
            self._appears(self.folder.attempt_dir(number) / "end.json")
        start = self._now
        if self._maybe(30):
            kind = self.random.choice(["backoff", "stopped"])
            plan = {"until_ns": start + 20 * S} if self._maybe(50) else {}
            self._fact(controller, "wait", kind=kind, start_ns=start, end_ns=None, **plan)
        if self._maybe(60):
            self._fact(controller, "wait", kind="backoff", start_ns=start, end_ns=self._later())
        if self._maybe(60):
            controller.append(self._now, Kind.SEEN, 0, 0, 0, 0)
            self._now += self.random.choice([0, 1, 25, 70]) * S
        saved = {"event": "FlushCommitted", "step": self._done, "at_ns": self._now}
        controller.note(NoteType.INPUT, saved)
        self._note()

    def _appears(self, path: Path) -> None:
        self.files[path] = Grown(path)
        self._note()

    def _rank(self, attempt: int, rank: int) -> JournalWriter:
        path = self.folder.attempt_journal_dir(attempt) / f"rank-{rank:05d}.hfj"
        return self._make(path, attempt, rank)

    def _train(self, writers: list[JournalWriter], resume: int, parent: int | None) -> None:
        is_watched = self._maybe(25)  # completions on the device are told
        steps = [resume] * len(writers)
        for writer in writers:
            for _ in range(self.random.choice([0, 1, 1, 1, 2])):
                writer.record_restore(self._now, self._later(), resume, parent)
            writer.begin_step(resume + 1, self._now)
        self._note()
        for _ in range(self.random.randint(0, 6 * len(writers))):
            rank = self.random.randrange(len(writers))
            writer = writers[rank]
            if self._maybe(5):  # a rollback within the attempt
                resume = steps[rank] = self.random.randint(0, steps[rank])
                if self._maybe(70):
                    writer.record_restore(self._now, self._later(), resume, parent)
            start = max(0, self._now - self.random.randint(0, 2) * S)
            if self._maybe(20):
                kind = self.random.choice(["data", "save", "evaluation", "compile"])
                writer.record_span(kind, start, self._later())
            steps[rank] += 2 if self._maybe(5) else 1  # one may be missing
            flags = Flag.CONTINUES if self._maybe(95) else 0
            writer.append(self._later(), Kind.STEP, flags, 0, steps[rank], start)
            if is_watched and self._maybe(70):
                writer.append(self._later(), Kind.COMPLETE, 0, 0, steps[rank], 0)
            self._note()
            if self._maybe(10):
                writer.record_span("save", self._now, self._later())
            if self._maybe(40):
                writer.open_span(self.random.choice(["save", "evaluation"]))
                writer.page.store(Word.OPEN_SPANS + 1, self._now)  # on our clock
            if self._maybe(30):
                writer.page.store(Word.OPEN_SPANS, 0)
            self._note()
        self._done = max(self._done, *steps)


class Arrivals:
    """A reader's folder; whoever brings files there does so in any order."""

    def __init__(self, run: GrownRun, root: Path) -> None:
        self.run = run
        self.root = root
        root.mkdir()

    def left(self) -> list[Grown]:
        """Files of which more will come."""
        return [one for one in self.run.files.values() if one.arrived < len(one.states)]

    def bring(self, grown: Grown, states: int, tear: str = "") -> None:
        """So many more states of a file; `tear`: what of the newest does not come with it."""
        arrived = min(len(grown.states), grown.arrived + states)
        grown.arrived = arrived - 1 if tear else arrived  # it comes again, whole
        count, text_bytes, header = grown.states[arrived - 1]
        place = self.root / grown.path.relative_to(self.run.folder.path)
        place.parent.mkdir(parents=True, exist_ok=True)
        if not header:
            place.write_bytes(grown.path.read_bytes())
            return
        if text_bytes and tear != "no text":
            text = sidecar_path(grown.path).read_bytes()[:text_bytes]
            _grow(sidecar_path(place), text[:-5] if tear == "text" else text, 0)
        with grown.path.open("rb") as file:
            data = file.read(HEADER_BYTES + count * RECORD_BYTES)[HEADER_BYTES:]
        _grow(place, data[:-13] if tear == "records" else data, HEADER_BYTES)
        if tear != "header":
            _grow(place, header, 0)


def _grow(path: Path, data: bytes, offset: int) -> None:
    """Written over what is there: a file becomes no shorter."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    try:
        os.pwrite(handle, data, offset)
    finally:
        os.close(handle)
