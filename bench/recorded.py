"""Runs on disk as their processes would have written them, by the package's own writers, quickly.

A run that has trained for hours has more on record than its steps: waits for data, saves to memory
and disk with all that the supervisor was told of them, failures with their stories, output. All of
it is here, at made-up times; nothing is synced to the disk, and that is what makes it quick.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest import mock

import numpy as np

from holdfast.journal import attempts as attempts_module
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt
from holdfast.journal.clocks import ClockPair
from holdfast.journal.incidents import story_of, write_incident
from holdfast.journal.layout import (
    CONTROLLER_RANK,
    HEADER_BYTES,
    RECORD_BYTES,
    Flag,
    Identity,
    Kind,
    NoteType,
    Word,
)
from holdfast.journal.lease import acquire
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.writer import JournalWriter
from holdfast.snapshot.names import set_name
from holdfast.snapshot.sets import commit
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import GLOBAL, Staging

S = 1_000_000_000
FAILURES = (
    ("killed", "killed by SIGKILL", None),
    ("failed", "RuntimeError at /home/me/train.py:41: CUDA error: uncorrectable ECC", "train.py"),
    ("hang", "no progress for 300 s", None),
    ("failed", "ValueError at /home/me/data.py:17: bad shard", "data.py"),
)


@dataclass(frozen=True)
class Plan:
    """What a run is like."""

    steps: int = 2_000
    attempts: int = 4
    ranks: int = 1
    step_s: float = 2.0
    memory_every: int = 10  # steps between two sets in memory
    disk_every: int = 100
    is_done: bool = True


def make(store: RunStore, name: str, plan: Plan, requested_ns: int, seed: int = 0) -> int:
    """Record it; its last moment. The time line begins when the run was requested (unix ns)."""
    with unsynced():
        return _Recording(store, name, plan, requested_ns, seed).write()


@contextlib.contextmanager
def unsynced() -> Iterator[None]:
    """Nothing goes to the disk before the system wants it to."""
    with mock.patch.object(os, "fsync"):
        yield


def close(journal: JournalWriter) -> None:
    """As it lies in a store: without the room that was kept for more records."""
    path, size_bytes = journal.path, HEADER_BYTES + journal.page.load(Word.COUNT) * RECORD_BYTES
    assert path is not None
    journal.close()
    os.truncate(path, size_bytes)


class _Recording:
    def __init__(
        self, store: RunStore, name: str, plan: Plan, requested_ns: int, seed: int
    ) -> None:
        self.plan = plan
        self.requested_ns = requested_ns
        self.random = np.random.default_rng(seed)
        command = ["python", "train.py", "--name", name]
        self.folder: RunFolder = store.create(name, command=command, requested_unix_ns=requested_ns)
        self.boot = f"boot-{name}"
        self.lease = acquire(self.folder)
        self.at_ns = 10 * S
        self.step = 0  # completed
        self.saved = 0
        self.parent = -1  # the attempt that saved it

    def write(self) -> int:
        self.controller = self.journal("journal/controller-000001.hfj", 0, CONTROLLER_RANK)
        self.fact("run", name=self.folder.name, requested_ns=0, chips=8 * self.plan.ranks)
        self.told("Opened", next_attempt=0, high_water=0, wishes=[], memory_lost=0)
        share = self.plan.steps // self.plan.attempts
        for number in range(self.plan.attempts):
            is_last = number == self.plan.attempts - 1
            target = self.plan.steps if is_last else share * (number + 1)
            self.attempt(number, target, is_last=is_last)
        if self.plan.is_done:
            self.fact("run_end", at_ns=self.at_ns)
        close(self.controller)
        self.lease.release()
        return self.requested_ns + self.at_ns

    def attempt(self, number: int, target: int, *, is_last: bool) -> None:
        folder, ranks = self.folder, self.plan.ranks
        is_resumed = self.parent >= 0
        self.told("Chosen", resume={"step": self.saved}, words="the newest checkpoint")
        with self.then(attempts_module):
            create_attempt(
                folder,
                number,
                parent=self.parent if is_resumed else None,
                resume_step=self.saved,
                restore_set=set_name(self.parent, self.saved) if is_resumed else None,
                ranks=ranks,
                chips=8 * ranks,
                command=folder.identity.command,
            )
        self.fact("attempt_start", attempt=number, at_ns=self.at_ns)
        self.told("Launched", attempt=number, waited=None)
        start_ns = self.at_ns + 20 * S
        self.step = self.saved
        count = target - self.step
        took_ns = (self.plan.step_s * S * self.random.lognormal(0, 0.05, count)).astype(np.int64)
        ends_ns = start_ns + 5 * S + np.cumsum(took_ns)
        for rank in range(ranks):
            self.rank(number, rank, start_ns, ends_ns - rank * 1000, took_ns)
        for at in range(self.plan.memory_every - 1, count, self.plan.memory_every):
            self.save(number, self.step + at + 1, int(ends_ns[at]))
        self.step, self.at_ns = target, int(ends_ns[-1])
        self.end(number, is_last=is_last)

    def rank(self, number: int, rank: int, start_ns: int, ends: Any, took: Any) -> None:
        name = f"rank-{rank:05d}"
        writer = self.journal(f"attempts/{number:04d}/journal/{name}.hfj", number, rank)
        writer.record_span("startup", self.at_ns, start_ns)
        parent = self.parent if self.saved else None
        writer.record_restore(start_ns, start_ns + 5 * S, self.saved, parent)
        writer.append(start_ns + 5 * S, Kind.STEP_BEGIN, 0, 0, self.saved + 1, 0)
        data, save = writer.span_kind("data"), writer.span_kind("save")
        step = self.saved
        waits = (1_000_000 * self.random.lognormal(0, 0.3, len(took))).astype(np.int64)
        for end_ns, took_ns, waited_ns in zip(
            *(c.tolist() for c in (ends, took, waits)), strict=True
        ):
            begin_ns = end_ns - took_ns
            wait_ns = begin_ns + 4_000_000  # behind the save
            writer.append(wait_ns + waited_ns, Kind.SPAN, 0, data, step, wait_ns)
            step += 1
            writer.append(end_ns, Kind.STEP, Flag.CONTINUES, 4096, step, begin_ns)
            if step % self.plan.memory_every == 0:
                writer.append(end_ns + 3_000_000, Kind.SPAN, 0, save, step, end_ns)
        writer.page.store(Word.STEP, step)
        writer.page.store(Word.STEP_AT, int(ends[-1]))
        close(writer)
        log = self.folder.logs_dir(number) / f"{name}.log"
        log.write_text("\n".join(f"step {n} loss {9 / (n + 1):.4f}" for n in range(60)))

    def save(self, number: int, step: int, at_ns: int) -> None:
        """What the supervisor is told of a save: a few lines, as it writes them."""
        self.controller.append(at_ns, Kind.SEEN, 0, 0, 0, 0)
        told = partial(self.told, at_ns=at_ns, of_attempt=number, epoch=step, step=step)
        self.told("SaveTook", at_ns=at_ns, attempt=number, blocked_ns=3_000_000)
        snapped = {"event": "Snapped", "at_ns": at_ns, "rank": 0, "epoch": step, "step": step}
        self.told("Heard", at_ns=at_ns, attempt=number, news=snapped)
        told("Sealed", buffer=step % 3)
        if step % self.plan.disk_every:
            return
        told("Flushed", rank=0)
        told("FlushCommitted")
        self.fact("saves", memory=step // self.plan.memory_every, memory_blocked_ns=step,
                  disk=step // self.plan.disk_every, drains=1, drained_ns=S)  # fmt: skip
        words = "saving every 10 steps to memory, every 2 min to disk, because a copy blocks 3 ms"
        self.fact("saving", at_ns=at_ns, words=words)
        self.saved, self.parent = step, number

    def end(self, number: int, *, is_last: bool) -> None:
        folder = self.folder
        if self.parent == number and self.saved:
            self.set_of(number)
        if is_last and not self.plan.is_done:
            return
        cause, words, file = ("done", "", None) if is_last else FAILURES[number % len(FAILURES)]
        exits = (0 if is_last else -9,) * self.plan.ranks
        if not is_last:
            found_ns = self.at_ns + S
            self.fact("fault", attempt=number, at_ns=self.at_ns, detected_ns=found_ns, cause=cause)
            self.at_ns += 5 * S
            traceback = file and f'Traceback …\n  File "/home/me/{file}", line 41, in <module>\n'
            lines = ["the last line of its output"] * 20
            story = story_of(number, cause, words, exits=exits, rank=0, last_lines=lines,
                             traceback=traceback)  # fmt: skip
            write_incident(folder, number, story)
        self.told("TreeGone", attempt=number)
        self.fact("attempt_end", attempt=number, at_ns=self.at_ns, cause=cause)
        end_attempt(folder, number, AttemptEnd(cause, words, exits, self.unix_ns))
        if not is_last:
            start_ns, self.at_ns = self.at_ns, self.at_ns + 15 * S
            self.fact("wait", kind="backoff", start_ns=start_ns, end_ns=self.at_ns)

    def set_of(self, number: int) -> None:
        place = self.folder.ckpt_dir / set_name(number, self.saved)
        ranks = self.plan.ranks
        for rank in range(ranks):
            tree = {"state": {"w": np.full(16, rank, np.float32)}}
            captured = Staging().capture(tree, rank, ranks, GLOBAL)
            write_shard(place, captured, attempt=number, step=self.saved, rank=rank,
                        world_size=ranks)  # fmt: skip
            captured.release()
        commit(place, ranks)

    # --- writing ---------------------------------------------------------------------------

    @property
    def unix_ns(self) -> int:
        return self.requested_ns + self.at_ns

    def then(self, module: Any) -> Any:
        """The module's wall clock, at the recording's moment."""
        return mock.patch.object(module, "time", SimpleNamespace(time_ns=lambda: self.unix_ns))

    def journal(self, path: str, attempt: int, rank: int) -> JournalWriter:
        place = self.folder.path / path
        place.parent.mkdir(parents=True, exist_ok=True)
        identity = Identity(
            self.folder.name, attempt, f"{attempt}/{rank}", 0, "host", rank, self.boot
        )
        return JournalWriter.create(place, identity, lambda: ClockPair(0, self.requested_ns))

    def fact(self, what: str, /, **payload: Any) -> None:
        self.controller.note(NoteType.FACT, {"fact": what, **payload})

    def told(self, event: str, **payload: Any) -> None:
        self.controller.note(NoteType.INPUT, {"event": event, "at_ns": self.at_ns, **payload})
