"""The loop of a framework, and the checkpoints that it writes: what an adapter goes by.

A framework calls its adapter after each step. `due` records the step and says what the run's
controller wants of this boundary, `saved` names the checkpoint that the framework has written,
`leave` waits until it counts. The set that is made of it holds what the framework does not keep
(data positions, random generators), and the checksums of its files (`snapshot.external`).

A rank answers an order as it does for a copy of its own: TAKEN at the boundary, COPIED when the
training goes on, DURABLE once the files are there and were read.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.core.save.word import MAX_STEP, Answer, Order, after_loop, at_boundary, pack, unpack
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import RankPhase, Word
from holdfast.session.asked_save import WAIT_STEP_S
from holdfast.session.boundary import Boundary
from holdfast.session.saver import Saver

NOTHING_SAVED = "the framework saved nothing"


class Due(Enum):
    """What is due after a step: nothing, a save, a save and the end, or the end at once."""

    NONE = "none"
    SAVE = "save"
    STOP = "stop"
    LEAVE = "leave"

    @property
    def saves(self) -> bool:
        """Whether the framework is to save this step."""
        return self in (Due.SAVE, Due.STOP)

    @property
    def stops(self) -> bool:
        """Whether the loop is to end here: after the save, call `leave`."""
        return self in (Due.STOP, Due.LEAVE)


class _Order(NamedTuple):
    """To save that step."""

    epoch: int
    step: int
    flags: int
    since_ns: int


class FrameworkLoop:
    """A loop that a framework drives. Made by `Run.framework`, for the training's own thread."""

    def __init__(
        self,
        folder: Path,
        checkpoint: str | None,
        boundary: Boundary,
        saver: Saver,
        rank: int,
        world_size: int,
        ready: Callable[[int | None, bool], None],
    ) -> None:
        """`checkpoint`: what is chosen, below the folder.

        `ready`: the first step is near; the last that is done, and whether to restore generators.
        """
        self.folder = folder
        self.checkpoint = None if checkpoint is None else folder / checkpoint
        """The framework's checkpoint that this attempt starts from; None: from scratch."""
        self._boundary = boundary
        self._saver = saver
        self._rank = rank
        self._world_size = world_size
        self._ready = ready
        self._until = MAX_STEP
        self._pending: _Order | None = None  # due, and the framework's checkpoint is not there yet
        self._is_told = False  # of that one: the training goes on
        self._stop: _Order | None = None
        self._is_prepared = False

    @property
    def resume_step(self) -> int:
        """The last step that the chosen checkpoint contains; 0: from scratch."""
        return self._boundary.resume_step

    # --- the loop ---------------------------------------------------------------------------

    def begin(
        self, *, after: int | None = None, until: int | None = None, generators: bool = True
    ) -> None:
        """The framework has restored its state: the next step is the one after `after`.

        Steps count from 1; without `after` they go on from the chosen checkpoint. `until`: the last
        one, if it is known. `generators`: random generators are put back now, as they were at that
        step; False where the framework does that itself.
        """
        self._ready(after, generators)
        first, self._until = self._boundary.resume_step + 1, until or MAX_STEP
        if first <= self._until:
            self._boundary.begin(first, self._until, 1)

    def due(self, step: int, *, tokens: int = 0) -> Due:
        """`step` is done: what is due at its boundary. Raises StepOrderError, and nothing else."""
        boundary = self._boundary
        if step != boundary.expected:
            boundary.out_of_order(step, "due")
        self._settle()
        order = boundary.record(step, tokens)
        if not self._is_prepared:
            self._is_prepared = True
            self._saver.prepare(None, is_external=True)
            boundary.stepped()
        answer, _ = at_boundary(step, order, boundary.answered_epoch)
        if answer is Answer.LEAVE_UNSAVED:
            return Due.LEAVE
        return self._take(step, order) if answer is Answer.SNAPSHOT else Due.NONE

    def measured(self, step: int, metrics: Mapping[str, Any]) -> None:
        """A few numbers of that step by name, for the report; those of rank 0 are kept."""
        self._boundary.measure(step, metrics)

    def spent(self, kind: str, seconds: float) -> None:
        """So long, until now, the loop was busy with something else: `evaluate`, say."""
        now = now_ns()
        self._boundary.writer.record_span(kind, now - int(seconds * 1e9), now)

    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Put it around the part of a save that keeps training from running.

        Needed where the rest goes on beside the next steps, so that `saved` comes later.
        """
        writer = self._boundary.writer
        began_ns, token = now_ns(), writer.open_span("save")
        try:
            yield
        finally:
            writer.close_span(token)
        if self._pending is not None:
            self._tell_copied(self._pending, now_ns() - began_ns)

    def saved(
        self, step: int, path: str | os.PathLike[str], *, seconds: float | None = None
    ) -> None:
        """The checkpoint of that step is whole, all ranks' parts of it: a file or folder at `path`.

        All ranks call it. It is read by a thread, for its checksums. `seconds`: how long training
        was kept from running, if that was not all of the time since `due`. No effect for a step
        that was not due. Raises ConfigurationError when it is not below the loop's folder.
        """
        from holdfast.snapshot.external import below, read_external

        pending = self._pending
        if pending is None or pending.step != step:
            return
        name = below(self.folder, path)
        if not self._is_told:
            now = now_ns()
            blocked_ns = now - pending.since_ns if seconds is None else int(seconds * 1e9)
            self._boundary.writer.record_span("save", now - blocked_ns, now)
            self._tell_copied(pending, blocked_ns)
        self._pending = None
        read = partial(read_external, self.folder, name, self._rank, self._world_size)
        self._saver.write_held(read)
        if not pending.flags & Order.STOP:
            self._boundary.await_commit_if_asked(pending.epoch, step)

    def failed(self, step: int, error: Exception) -> None:
        """The checkpoint of that step will not be there; the training goes on."""
        pending = self._pending
        if pending is not None and pending.step == step:
            self._pending = None
            self._saver.give_up_held()
            self._boundary.publish_failure(step, pending.epoch, error)

    def leave(self) -> None:
        """After a stop, and its save: raises Stop once that counts on all ranks.

        It returns where the stop was called off meanwhile: train on.
        """
        if self._pending is not None:
            self.failed(self._pending.step, RuntimeError(NOTHING_SAVED))
        stop, self._stop = self._stop, None
        if stop is None:
            self._boundary.leave("told to leave: nothing more will be saved")
        token = self._boundary.writer.open_span("save")
        try:
            self._boundary.await_verdict(stop.epoch, stop.step)
        finally:
            self._boundary.writer.close_span(token)

    # --- after the last step ----------------------------------------------------------------

    def finishing(self) -> bool:
        """No step follows: whether the framework is still to save the last one.

            while loop.finishing():
                framework.save(path)
                loop.saved(step, path)

        False: it counts, and the run is done. Raises Stop or StoreUnavailable where it never will.
        """
        boundary = self._boundary
        page, writer = boundary.writer.page, boundary.writer
        if page.load(Word.PHASE) == RankPhase.FINISHED:
            return False
        if page.load(Word.PHASE) != RankPhase.LOOP_ENDED:
            self._settle()
            boundary.close_steps()
        step = page.load(Word.STEP) or boundary.resume_step
        token = writer.open_span("save")
        try:
            while True:
                order, verdict = page.load(Word.ORDER), page.load(Word.VERDICT)
                committed = page.load(Word.COMMITTED) or boundary.resume_step
                answered, is_lost = boundary.answered_epoch, boundary.supervisor_lost()
                answer, reason = after_loop(step, order, verdict, committed, answered, is_lost)
                if answer is Answer.LEAVE_SAVED:
                    page.store(Word.PHASE, RankPhase.FINISHED)
                    return False
                if answer is Answer.LEAVE_UNSAVED:
                    boundary.leave_last(step, reason)
                if answer is Answer.SNAPSHOT and self._take(step, order).saves:
                    return True
                time.sleep(WAIT_STEP_S)
        finally:
            writer.close_span(token)

    # --- what an order is answered with -----------------------------------------------------

    def _take(self, step: int, order: int) -> Due:
        boundary = self._boundary
        epoch, flags, _ = unpack(order)
        boundary.answered_epoch = epoch
        taken = _Order(epoch, step, flags, now_ns())
        boundary.writer.page.store(Word.TAKEN, pack(epoch, step, flags))
        if flags & Order.STOP:
            self._stop = taken
        try:
            self._saver.hold(epoch, step)
        except Exception as error:
            boundary.publish_failure(step, epoch, error)
        else:
            self._pending, self._is_told = taken, False
        if flags & Order.STOP:
            return Due.STOP
        return Due.SAVE if self._pending is taken else Due.NONE

    def _tell_copied(self, pending: _Order, blocked_ns: int) -> None:
        page = self._boundary.writer.page
        self._is_told = True
        page.store(Word.SAVE_BLOCKED_NS, max(1, blocked_ns))
        page.store(Word.COPIED, pack(pending.epoch, pending.step))
        self._boundary.hurry()

    def _settle(self) -> None:
        """The training goes on: a save that was due and has not even begun never will be."""
        if self._pending is not None and not self._is_told:
            self.failed(self._pending.step, RuntimeError(NOTHING_SAVED))
