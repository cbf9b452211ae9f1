"""Saves from inside the training process: a copy that blocks, and nothing else that does.

Where the order names a buffer of the memory tier, the copy goes there and outlives this process;
others seal it and take it to the run store. Without one it goes into warm, reused memory
(`snapshot.staging`), and a thread of ours writes the shard, syncs it and publishes (epoch, step) in
the DURABLE word, or in FAILED. The manifest is never ours: whoever controls the run writes it when
all ranks' shards are there.
"""

from __future__ import annotations

import contextlib
import functools
import re
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from holdfast.core.save.word import Order, buffer_of, is_durable, is_in_parts, pack, unpack
from holdfast.errors import StoreUnavailable, Unstorable
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Word
from holdfast.journal.rank_page import RankPage
from holdfast.session.boundary import what_then
from holdfast.session.contents import STATE, Contents
from holdfast.session.say import say
from holdfast.session.watch import beside

if TYPE_CHECKING:
    from holdfast.session.memory import RankBuffers
    from holdfast.snapshot.device_copies import DeviceCopies
    from holdfast.snapshot.external import External
    from holdfast.snapshot.late import LateCopy
    from holdfast.snapshot.receipt import DeclaredReplicas
    from holdfast.snapshot.staging import Captured, Staging


REPORT_LIMIT_S = 5.0
SAY_AGAIN_NS = 60_000_000_000
_NUMBER = re.compile(r"[0-9]+")  # of steps, in the sentence about one


class _Work(NamedTuple):
    captured: Captured
    epoch: int
    step: int
    started_ns: int
    tags: tuple[str, ...]
    declared: DeclaredReplicas
    external: Callable[[], External] | None = None


class Saver:
    """One rank's saves in one attempt. `contents` adds to the state what else belongs in a set."""

    def __init__(
        self,
        ckpt_dir: Path,
        page: RankPage,
        contents: Contents,
        *,
        attempt: Callable[[], int],
        rank: int,
        world_size: int,
        before_write: Callable[[], bool] = lambda: True,
        memory: RankBuffers | None = None,
    ) -> None:
        self._ckpt_dir = ckpt_dir
        self._page = page
        self._contents = contents
        self._attempt = attempt
        self._rank = rank
        self._world_size = world_size
        self._before_write = before_write
        self._memory = memory
        self._needs_state = False
        self._is_reported = False
        self._failed_for, self._say_again_ns = "", 0  # what was said, and until when that will do
        self._reporting: threading.Thread | None = None
        self._tagged: tuple[int, tuple[str, ...]] | None = None  # a copy in memory: epoch, tags
        self._late: LateCopy | None = None
        self._work: _Work | None = None
        self._held: _Work | None = None
        self._wake = threading.Condition()
        self._closing = False
        self._thread: threading.Thread | None = None
        self._warming: threading.Thread | None = None

    @functools.cached_property
    def _staging(self) -> Staging:
        from holdfast.snapshot.staging import Staging  # numpy: not before the first step

        return Staging()

    @functools.cached_property
    def _copies(self) -> DeviceCopies:
        from holdfast.snapshot.device_copies import DeviceCopies

        return DeviceCopies(beside, self._contents.optimizers.tell)

    @property
    def waits_for_device(self) -> bool:
        """Whether a copy waits for the device, even one that may end later."""
        return self._on_device is None or not self._on_device.is_ready

    @property
    def _on_device(self) -> DeviceCopies | None:
        """What copies arrays of JAX on their devices, where there may be any."""
        is_asked = self._contents.optimizers.is_safe and "jax" in sys.modules
        return self._copies if is_asked else None

    def expect(self, state: Any) -> None:
        """The state as it was restored: its memory can be made ready while the script goes on.

        What is said of it counts only at the first boundary (`prepare`): parts that a script tracks
        later, and what an optimizer makes in its first step, are not there yet.
        """
        self._needs_state = state is not None
        if self._memory is not None:
            with contextlib.suppress(Unstorable):
                self._memory.expect(self._contents.gather(state), self._contents.shared())

    def prepare(self, state: Any, *, is_external: bool) -> None:
        """Check that everything can be stored (raises Unstorable) and start warming the memory.

        `is_external`: the script keeps its state in checkpoints of its own.
        """
        self._needs_state = self._needs_state and not is_external
        tree, staging = self._gather(state), self._staging
        if self._memory is not None and not is_external:
            self._memory.prepare(tree, self._contents.shared(), otherwise=staging.reserve)
            return
        self._warming = threading.Thread(
            target=staging.reserve,
            args=(staging.measure(tree),),
            name="holdfast-warm",
            daemon=True,
        )
        self._warming.start()

    def save(
        self, state: Any, epoch: int, step: int, flags: int, *, may_end_later: bool = False
    ) -> LateCopy | None:
        """Copy everything now. Blocks for the copy (without a buffer: and an earlier write).

        `flags` are the order's: they name the buffer, if there is one. With `may_end_later` a part
        of the work may be left: it is returned, and to be begun once it is told that it was taken.
        """
        self.settle()
        self._take_back_tags()
        buffer = buffer_of(flags)
        if buffer is not None:
            is_asked = is_durable(flags)
            splits = is_in_parts(flags)
            late = self._save_in_memory(state, epoch, step, buffer, is_asked, may_end_later, splits)
            self._late = late
            return late
        self._begin(self._capture(state, epoch, step))
        return None

    def hold(self, epoch: int, step: int) -> None:
        """Copy what belongs to a set beside a framework's checkpoint; `write_held` follows.

        One that was held before and not written is given up. Raises Unstorable.
        """
        self.give_up_held()
        self._held = self._capture(None, epoch, step)

    def write_held(self, external: Callable[[], External]) -> None:
        """The framework's checkpoint is there: `external` reads it, in the thread that writes."""
        held, self._held = self._held, None
        if held is not None:
            self._begin(held._replace(external=external))

    def give_up_held(self) -> None:
        """It will not be there."""
        held, self._held = self._held, None
        if held is not None:
            held.captured.release()
            self._contents.give_back(held.tags)

    def _capture(self, state: Any, epoch: int, step: int) -> _Work:
        started_ns = now_ns()
        if self._warming is not None:
            self._warming.join()
            self._warming = None
        with self._wake:
            self._wake.wait_for(lambda: self._work is None)
        tree = self._gather(state)
        captured = self._staging.capture(
            tree, rank=self._rank, world_size=self._world_size, shared=self._contents.shared()
        )
        declared = self._declared(tree, captured)
        return _Work(captured, epoch, step, started_ns, self._contents.take_tags(), declared)

    def _declared(self, tree: dict[str, Any], captured: Captured) -> DeclaredReplicas:
        """What the set is compared by, as those in memory are; nothing where none of them is."""
        from holdfast.snapshot.receipt import NOTHING_DECLARED

        if self._memory is None or not self._memory.is_shared_by_ranks:
            return NOTHING_DECLARED
        paths = [entry.path for entry in captured.entries]
        return self._memory.declared(paths, self._contents.replicated(tree))

    def _begin(self, work: _Work) -> None:
        with self._wake:
            self._work = work
            self._wake.notify_all()
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, name="holdfast-save", daemon=True)
            self._thread.start()

    def settle(self) -> None:
        """Wait for a copy that goes on beside the steps: there is one at a time."""
        if self._late is not None:
            self._late.wait()
            self._late = None

    def _save_in_memory(
        self,
        state: Any,
        epoch: int,
        step: int,
        buffer: int,
        is_asked: bool,
        may_end_later: bool,
        in_parts: bool,
    ) -> LateCopy | None:
        if self._memory is None:
            raise StoreUnavailable("the order is for a buffer in memory, and this rank has none")
        from holdfast.snapshot.ram import Named

        self._report_first(waits=is_asked)
        # Tags are for a set that becomes durable; most of those in memory never do.
        tags = self._contents.take_tags() if is_asked else ()
        try:
            contents, optimizers = self._contents, self._contents.optimizers
            tree = self._gather(state)
            replicated = contents.replicated(tree) if self._memory.is_shared_by_ranks else ()
            of = self._attempt(), step, epoch, contents.shared(), tags, replicated
            late = self._memory.save(
                buffer,
                tree,
                Named(*of, in_parts),
                optimizers.may_be_late(step) if may_end_later else None,
                self._on_device if may_end_later else None,
            )
        except BaseException:
            self._contents.give_back(tags)
            raise
        if late is not None:
            optimizers.copying(late)
        self._tagged = (epoch, tags) if tags else None
        return late

    def _gather(self, state: Any) -> dict[str, Any]:
        """All that a set holds; without the state that was restored it would be of no use."""
        if state is None and self._needs_state:
            raise Unstorable(
                STATE,
                "run.restore returned a state, and run.done was given none: call "
                "run.done(step, state); for objects that are restored in place, call "
                "run.track(name=object) and run.restore() without init",
            )
        return self._contents.gather(state)

    def _report_first(self, *, waits: bool) -> None:
        """Report what must be known before a set is flushed, if it could not be at the start.

        A store may answer late or never: only a save that somebody waits for waits for it.
        """
        if self._is_reported or (self._reporting is not None and self._reporting.is_alive()):
            return
        self._reporting = threading.Thread(target=self._report, name="holdfast-report", daemon=True)
        self._reporting.start()
        if waits:
            self._reporting.join(REPORT_LIMIT_S)

    def _report(self) -> None:
        self._is_reported = self._before_write()

    def _take_back_tags(self) -> None:
        """Whether a tagged copy became durable, others have said by now: if not, here again."""
        if self._tagged is not None:
            (epoch, tags), self._tagged = self._tagged, None
            verdict = unpack(self._page.load(Word.VERDICT))
            if verdict.epoch == epoch and verdict.flags & Order.ABORTED:
                self._contents.give_back(tags)

    def close(self) -> None:
        """Let the copy and the write under way finish, and end the thread."""
        self.settle()
        self.give_up_held()
        with self._wake:
            self._wake.wait_for(lambda: self._work is None)
            self._closing = True
            self._wake.notify_all()
        if self._thread is not None:
            self._thread.join()
        if self._memory is not None:
            self._memory.close()

    def _write(self) -> None:
        while True:
            with self._wake:
                self._wake.wait_for(lambda: self._work is not None or self._closing)
                if self._work is None:
                    return
                work = self._work
            try:
                self._write_one(work)
                self._page.store(Word.SAVE_TOTAL_NS, now_ns() - work.started_ns)
                self._page.store(Word.DURABLE, pack(work.epoch, work.step))
            except Exception as error:
                # Whatever it was, the agreement must hear of it, and the training must not.
                self._page.increment(Word.ERRORS)
                self._contents.give_back(work.tags)
                self._page.store(Word.FAILED, pack(work.epoch, work.step))
                self._say_failed(work.step, str(error))
            finally:
                work.captured.release()
                with self._wake:
                    self._work = None
                    self._wake.notify_all()

    def _say_failed(self, step: int, why: str) -> None:
        """A reason once in a while: where a store is away, save after save fails alike."""
        reason, at_ns = _NUMBER.sub("", why), now_ns()
        if reason != self._failed_for or at_ns >= self._say_again_ns:
            self._failed_for, self._say_again_ns = reason, at_ns + SAY_AGAIN_NS
            say(f"step {step} could not be saved: {why}; {what_then(self._page)}")

    def _write_one(self, work: _Work) -> None:
        from holdfast.snapshot.sets import set_name
        from holdfast.snapshot.shard import write_shard

        external = work.external() if work.external is not None else None
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
            external=external,
            declared=work.declared,
        )
