"""A run that is under way in this very process, as its supervisor and ranks would write it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from holdfast.journal.attempts import create_attempt
from holdfast.journal.clocks import boot_id, now_ns
from holdfast.journal.layout import CONTROLLER_RANK, Identity, Kind, NoteType, RankPhase, Word
from holdfast.journal.lease import acquire
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.writer import JournalWriter
from holdfast.runs.reading import RunReading

S = 1_000_000_000


class UnderWay:
    """A run of this very process: two ranks, 30 steps of 0.1 s, the last of them just now."""

    def __init__(self, store: Path) -> None:
        self.folder: RunFolder = RunStore(store).create("r")
        self.lease = acquire(self.folder)
        create_attempt(self.folder, 0, parent=None, resume_step=0, restore_set=None, ranks=2)
        self.at_ns = now_ns()
        self.controller = self.make("journal/controller-000001.hfj", CONTROLLER_RANK)
        self.fact("run", name="r", requested_ns=self.at_ns - 10 * S, chips=2)
        self.fact("attempt_start", attempt=0, at_ns=self.at_ns - 4 * S)
        self.ranks = [self.make(f"attempts/0000/journal/rank-0000{n}.hfj", n) for n in range(2)]
        for rank, writer in enumerate(self.ranks):
            for step in range(1, 31):
                end_ns = self.at_ns - (30 - step) * S // 10 - rank * S // 20
                writer.append(end_ns, Kind.STEP, 0, 0, step, end_ns - S // 10)
            writer.page.store(Word.STEP, 30 + rank)
            writer.page.store(Word.STEP_AT, end_ns)
            writer.page.store(Word.PHASE, RankPhase.TRAINING)
        self.controller.append(self.at_ns, Kind.SEEN, 0, 0, 0, 0)
        self.reading = RunReading(self.folder)

    def make(self, path: str, rank: int) -> JournalWriter:
        (self.folder.path / path).parent.mkdir(parents=True, exist_ok=True)
        identity = Identity("r", 0, f"i{rank}", 0, "host", rank, boot_id())
        return JournalWriter.create(self.folder.path / path, identity)

    def fact(self, what: str, /, **payload: Any) -> None:
        self.controller.note(NoteType.FACT, {"fact": what, **payload})

    def told(self, event: str, **payload: Any) -> None:
        self.controller.note(NoteType.INPUT, {"event": event, **payload})

    def close(self) -> None:
        for writer in (self.controller, *self.ranks):
            writer.close()
        self.lease.release()


@contextmanager
def under_way(store: Path) -> Iterator[UnderWay]:
    """The run, until the block is left."""
    run = UnderWay(store)
    try:
        yield run
    finally:
        run.close()
