"""Saves from inside the training process: a copy that blocks, and a thread that writes it.

The copy goes into warm, reused memory (`snapshot.staging`); the thread writes the shard, syncs it
and publishes (epoch, step) in the DURABLE word, or in FAILED. The manifest is not ours: whoever
controls the run writes it when all ranks' shards are there. (The RAM tier will sit between the
copy and the thread: a sealed buffer that outlives this process.)
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.word import pack
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Word
from holdfast.journal.words import WordsPage
from holdfast.session.boundary import say
from holdfast.session.contents import Contents

if TYPE_CHECKING:
    from holdfast.snapshot.staging import Captured, Staging


class _Work(NamedTuple):
    captured: Captured
    epoch: int
    step: int
    started_ns: int
    tags: tuple[str, ...]


class Saver:
    """One rank's saves in one attempt. `contents` adds to the state what else belongs in a set."""

    def __init__(
        self,
        ckpt_dir: Path,
        words: WordsPage,
        contents: Contents,
        *,
        attempt: Callable[[], int],
        rank: int,
        world_size: int,
        before_write: Callable[[], None] = lambda: None,
    ) -> None:
        self._ckpt_dir = ckpt_dir
        self._words = words
        self._contents = contents
        self._attempt = attempt
        self._rank = rank
        self._world_size = world_size
        self._before_write = before_write
        self._work: _Work | None = None
        self._wake = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._warming: threading.Thread | None = None

    @functools.cached_property
    def _staging(self) -> Staging:
        from holdfast.snapshot.staging import Staging  # numpy: not before the first step

        return Staging()

    def prepare(self, state: Any) -> None:
        """Check that everything can be stored (raises Unstorable) and start warming the memory."""
        tree = self._contents.gather(state)
        size_bytes = self._staging.measure(tree)
        self._warming = threading.Thread(
            target=self._staging.reserve, args=(size_bytes,), name="holdfast-warm", daemon=True
        )
        self._warming.start()

    def save(self, state: Any, epoch: int, step: int) -> None:
        """Copy everything now, write it later. Blocks for the copy (and an earlier write)."""
        started_ns = now_ns()
        if self._warming is not None:
            self._warming.join()
            self._warming = None
        with self._wake:
            self._wake.wait_for(lambda: self._work is None)
        captured = self._staging.capture(
            self._contents.gather(state),
            rank=self._rank,
            world_size=self._world_size,
            shared=self._contents.shared(),
        )
        with self._wake:
            self._work = _Work(captured, epoch, step, started_ns, self._contents.take_tags())
            self._wake.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="holdfast-save", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Let the write under way finish, and end the thread."""
        with self._wake:
            self._wake.wait_for(lambda: self._work is None)
            self._closing = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()

    def _write(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._work is not None or self._closing)
                if self._work is None:
                    return
                work = self._work
            try:
                self._write_one(work)
                self._words.store(Word.SAVE_TOTAL_NS, now_ns() - work.started_ns)
                self._words.store(Word.DURABLE, pack(work.epoch, work.step))
            except Exception as error:
                # Whatever it was, the agreement must hear of it, and the training must not.
                self._words.increment(Word.ERRORS)
                self._contents.give_back(work.tags)
                self._words.store(Word.FAILED, pack(work.epoch, work.step))
                say(f"step {work.step} could not be saved: {error}; training goes on")
            finally:
                work.captured.release()
                with self._wake:
                    self._work = None
                    self._wake.notify_all()

    def _write_one(self, work: _Work) -> None:
        from holdfast.snapshot.sets import set_name
        from holdfast.snapshot.shard import write_shard

        self._before_write()
        attempt = self._attempt()  # a rank that learns it from another has by now
        write_shard(
            self._ckpt_dir / set_name(attempt, work.step),
            work.captured,
            attempt=attempt,
            step=work.step,
            rank=self._rank,
            world_size=self._world_size,
            tags=work.tags,
        )
