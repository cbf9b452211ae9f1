"""A short training run, made of the product's own parts, in this process and at once.

`live` is one process's life: it takes the lease, brings home what others left, chooses a set,
creates its attempt, trains, saves, collects, and ends; in the order in which a session without a
supervisor does it (`holdfast.session.alone`), without its threads and clocks, so that it does the
same operations each time. What it has been promised by the product goes to `told`.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.ledger.facts import DONE
from holdfast.journal.adopt import adopt
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt, next_number
from holdfast.journal.clocks import boot_id, now_ns
from holdfast.journal.holder import RunHolder
from holdfast.journal.layout import Identity, NoteType, Word
from holdfast.journal.lease import acquire
from holdfast.journal.log_copy import LogCopy
from holdfast.journal.replicate import Replicator
from holdfast.journal.store import RunStore
from holdfast.journal.writer import JournalWriter
from holdfast.snapshot.catalog import Catalog
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.restore import read_set
from holdfast.snapshot.sets import set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

NAME = "r"
WEIGHTS = 400  # 3200 bytes: several sectors
JOURNAL, LOG = "rank-00000.hfj", "rank-0.log"

Told = Callable[[str, Any], None]
"""`told(what, of_what)`: the product has said that this is done, and durable."""


@dataclass
class Place:
    """A store and a scratch folder; a clock that only moves when somebody sleeps."""

    store: Path
    scratch: Path
    boot: str = field(default_factory=boot_id)
    now_s: float = 0.0
    lives: itertools.count[int] = field(default_factory=itertools.count)

    def clock(self) -> float:
        """Seconds."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Time passes: more than was asked for, as on a busy machine."""
        self.now_s += seconds + 5

    def holder(self) -> RunHolder:
        """A process that nobody can look at any more: one of a boot before, or of another host."""
        return replace(RunHolder.current(), boot_id=f"gone-{next(self.lives)}")

    def take_lease(self, folder: Any) -> Any:
        """The run's lease, after the wait that a dead holder elsewhere costs."""
        return acquire(folder, self.holder(), clock=self.clock, sleep=self.sleep)


def state_at(step: int) -> dict[str, Any]:
    """What training gives after so many steps."""
    weights = np.zeros(WEIGHTS)
    for one in range(1, step + 1):
        train(weights, one)
    return {"weights": weights, "step": step}


def train(weights: Any, step: int) -> None:
    """One step of it."""
    weights *= 0.5
    weights += np.arange(WEIGHTS) % 7 + step


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit."""
    return a["step"] == b["step"] and a["weights"].tobytes() == b["weights"].tobytes()


@dataclass
class Life:
    """One process. `save_every` steps a set is saved; `tags` names those of some steps."""

    place: Place
    until: int
    told: Told = lambda _what, _of: None
    save_every: int = 2
    keep: Keep = field(default_factory=lambda: Keep(last=2))
    tags: dict[int, str] = field(default_factory=dict)

    def live(self) -> dict[str, Any]:
        """From the first breath to the last; the state trained in the end."""
        told, place = self.told, self.place
        folder = RunStore.at(place.store).open(NAME, command=("train",))
        told("run", folder.identity.run_id)
        lease = place.take_lease(folder)
        told("lease", lease.epoch)
        scratch = place.scratch / folder.scratch_key
        scratch.mkdir(parents=True, exist_ok=True)
        adopt(folder, scratch)
        attempt = next_number(folder)
        mine = scratch / f"attempt-{attempt:04d}"
        mine.mkdir()
        writer = self._writer(folder, attempt, mine)
        catalog = Catalog(folder, lease=lease)
        catalog.tidy()
        resume, _ = catalog.choose()
        state = state_at(0)
        if resume.set_name is not None:
            state = read_set(folder.ckpt_dir / resume.set_name)["state"]
        record = create_attempt(
            folder,
            attempt,
            parent=resume.parent,
            resume_step=resume.step,
            restore_set=resume.set_name,
            epoch=lease.epoch,
            incarnation=writer.identity.incarnation,
            command=("train",),
        )
        told("attempt", record)
        self._fact(
            writer, fact="run", name=NAME, requested_ns=folder.identity.requested_ns(), chips=1
        )
        self._fact(writer, fact="attempt_start", attempt=attempt, at_ns=now_ns())
        copies = (
            Replicator(mine / JOURNAL, folder.attempt_journal_dir(attempt) / JOURNAL),
            LogCopy(mine / LOG, folder.logs_dir(attempt) / LOG),
        )
        with (mine / LOG).open("a") as log:
            log.write(f"from {resume.step}\n")
        in_use = {resume.set_name} if resume.set_name else set[str]()
        if resume.step < self.until:
            writer.begin_step(resume.step + 1, None)
        for step in range(resume.step + 1, self.until + 1):
            train(state["weights"], step)
            state["step"] = step
            writer.record_step(step)
            with (mine / LOG).open("a") as log:
                log.write(f"did {step}\n")
            lease.renew()
            self._bring_home(attempt, writer, copies, durable=False)
            if step % self.save_every == 0 or step == self.until:
                self._save(folder, attempt, step, state)
                lease.check()
                catalog.commit(attempt, step, 1)
                lease.check()
                catalog.pin_tagged()
                told("committed", (attempt, step))
                if step in self.tags:
                    told("pinned", (self.tags[step], set_name(attempt, step)))
                self._bring_home(attempt, writer, copies, durable=True)
                catalog.collect(self.keep, in_use)
        writer.end_steps(None)
        self._fact(writer, fact="attempt_end", attempt=attempt, at_ns=now_ns(), cause=DONE)
        writer.flush()
        end = end_attempt(folder, attempt, AttemptEnd(DONE, "done", (0,), 1))
        told("ended", (attempt, end.cause))
        self._bring_home(attempt, writer, copies, durable=True)
        writer.close()
        copies[0].close()
        shutil.rmtree(mine)
        lease.release()
        told("released", lease.epoch)
        return state

    def _writer(self, folder: Any, attempt: int, mine: Path) -> JournalWriter:
        place = self.place
        who = f"{attempt}-{next(place.lives)}"
        identity = Identity(NAME, attempt, who, 0, "host", 0, place.boot)
        return JournalWriter.create(mine / JOURNAL, identity)

    def _bring_home(
        self, attempt: int, writer: JournalWriter, copies: Any, *, durable: bool
    ) -> None:
        for copy in copies:
            copy.sync(durable=durable)
        if durable:
            self.told(
                "at home", (attempt, writer.page.load(Word.COUNT), copies[1].live.read_bytes())
            )

    def _save(self, folder: Any, attempt: int, step: int, state: Any) -> None:
        captured = Staging().capture({"state": state})
        tags = (self.tags[step],) if step in self.tags else ()
        try:
            write_shard(
                folder.ckpt_dir / set_name(attempt, step),
                captured,
                attempt=attempt,
                step=step,
                rank=0,
                world_size=1,
                tags=tags,
            )
        finally:
            captured.release()
        self.told("durable", (attempt, step))

    @staticmethod
    def _fact(writer: JournalWriter, **fact: Any) -> None:
        writer.note(NoteType.FACT, fact)
