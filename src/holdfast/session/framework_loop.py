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
from typing import Any, NamedTuple

from holdfast.core.save.word import (
    MAX_STEP,
    TOLD_TO_LEAVE,
    WAITS,
    Answer,
    Order,
    after_loop,
    at_boundary,
    pack,
    unpack,
    while_agreeing,
)
from holdfast.errors import ConfigurationError, StepOrderError
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import RankPhase, Word
from holdfast.session.asked_save import WAIT_STEP_S
from holdfast.session.boundary import NOTHING_LEFT, Boundary
from holdfast.session.framework_files import FrameworkFiles, is_of_the_model
from holdfast.session.saver import Saver
from holdfast.session.say import say

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
    """To save that step, which keeps training from running since then."""

    epoch: int
    step: int
    since_ns: int


class FrameworkLoop:
    """A loop that a framework drives. Made by `Run.framework`, for the training's own thread."""

    def __init__(
        self,
        files: FrameworkFiles,
        checkpoint: str | None,
        boundary: Boundary,
        saver: Saver,
        ready: Callable[[int | None], None],
    ) -> None:
        """`checkpoint`: what is chosen, below the folder.

        `ready`: the first step is near; the last that is done.
        """
        self.folder = files.folder
        self.checkpoint = None if checkpoint is None else files.folder / checkpoint
        """The framework's checkpoint that this attempt starts from; None: from scratch."""
        self._boundary = boundary
        self._saver = saver
        self._files = files
        self._ready = ready
        self._pending: _Order | None = None  # due, and the framework's checkpoint is not there yet
        self._is_told = False  # of that one: the training goes on
        self._stop: _Order | None = None
        self._has_begun = self._is_prepared = False
        self._last = MAX_STEP
        self._busy: int | None = None  # the span of what is under way beside the steps

    @property
    def resume_step(self) -> int:
        """The last step that the chosen checkpoint contains; 0: from scratch."""
        return self._boundary.resume_step

    # --- the loop ---------------------------------------------------------------------------

    def begin(
        self,
        *,
        after: int | None = None,
        until: int | None = None,
        is_retried: bool = False,
    ) -> None:
        """The framework has restored its state: the next step is the one after `after`.

        Steps count from 1; without `after` they go on from the chosen checkpoint. `until`: the last
        one, if it is known. Random generators are put back now, as they were at that step.
        `is_retried`: the framework may try its loop anew, and begin once more before a step is
        done.
        """
        boundary = self._boundary
        first, self._last = boundary.resume_step + 1, until or MAX_STEP
        if not self._has_begun:
            self._has_begun = True
            self._ready(after)
            first = boundary.resume_step + 1
        elif not is_retried:
            raise StepOrderError(
                "the loop began twice: register the adapter once, and train once in a run"
            )
        elif boundary.expected != first:
            raise StepOrderError(
                "the framework begins its loop anew, though steps are done (memory ran out, say): "
                "have it begin with what fits"
            )
        self.ends()
        if first <= self._last:
            boundary.begin(first, self._last, 1)
        else:
            boundary.writer.page.store(Word.PHASE, RankPhase.FINISHED)

    def is_over(self) -> bool:
        """After `begin`: whether nothing is left to train, though `until` is not reached.

        An earlier attempt ended its loop at this step, with the same `until`, and its script failed
        after that. A line says so. Train no step, and call `finishing`.
        """
        is_over = self._boundary.is_over(self._last)
        if is_over:
            say(NOTHING_LEFT.format(self.resume_step))
        return is_over

    def due(self, step: int, *, tokens: int = 0, saves_itself: bool = False) -> Due:
        """`step` is done: what is due at its boundary.

        `saves_itself`: the framework is about to save this step, whether that is due or not. It
        becomes the run's save, unless another one is under way; asking for it takes milliseconds.

        Raises StepOrderError; at the first step Unstorable, of a tracked part that has no state.
        """
        boundary = self._boundary
        self.ends()
        if step != boundary.expected:
            boundary.out_of_order(step, "due")
        self._settle()
        if saves_itself:
            boundary.ask_now()
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

    def begins(self, kind: str) -> None:
        """From now on the loop is busy with something else: `evaluate`, say, or `save`.

        Up to `ends`, or what is called next of the loop's own: it is no step, and no hang.
        """
        self.ends()
        self._busy = self._boundary.writer.open_span(kind)

    def ends(self) -> None:
        """That is over; no effect where nothing has begun."""
        busy, self._busy = self._busy, None
        if busy is not None:
            self._boundary.writer.close_span(busy)

    def spent(self, kind: str, seconds: float) -> None:
        """So long, until now, the loop waited for something short: a batch."""
        now = now_ns()
        self._boundary.writer.record_span(kind, now - int(seconds * 1e9), now)

    @contextlib.contextmanager
    def restoring(self) -> Iterator[None]:
        """Put it around the framework's own reading of the chosen checkpoint: that is no step.

        Each byte was verified, so what does not fit is of another model: raises ConfigurationError
        in the place of such an error. Others (a lost neighbour, no memory) may not come again.
        """
        writer = self._boundary.writer
        token = writer.open_span("restore")
        try:
            yield
        except Exception as error:
            self.refused(error)
            raise
        finally:
            writer.close_span(token)

    def refused(self, error: BaseException) -> None:
        """The framework could not load what was chosen. Raises as `restoring`, or returns."""
        whole = [error]
        while (before := whole[-1].__cause__ or whole[-1].__context__) is not None:
            whole.append(before)
        # A failure may come while a library handles one of these, as where it looks something up.
        does_not_fit = all(map(is_of_the_model, whole))
        if self.checkpoint is None or not does_not_fit:
            return
        first = error
        while first.__cause__ is not None:
            first = first.__cause__
        lines = map(str.strip, str(first).strip().splitlines()[:2])  # PyTorch's first is a head
        reason = " ".join(lines)[:200]
        raise ConfigurationError(
            f"{self.checkpoint} cannot be loaded ({reason}), and each byte of it is as it was "
            "saved: build the model as it was, or train it as another run"
        ) from error

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

    @contextlib.contextmanager
    def awaiting(self) -> Iterator[None]:
        """Put it around a wait for what is still written beside the steps: no training, either."""
        token = self._boundary.writer.open_span("save")
        try:
            yield
        finally:
            self._boundary.writer.close_span(token)

    def saved(
        self, step: int, path: str | os.PathLike[str], *, seconds: float | None = None
    ) -> None:
        """The checkpoint of that step is whole, all ranks' parts of it: a file or folder at `path`.

        All ranks call it. It is read by a thread, for its checksums. `seconds`: how long training
        was kept from running, if that was not all of the time since `due`. No effect for a step
        that was not due. Raises ConfigurationError when it is not below the loop's folder.
        """
        from holdfast.snapshot.external import below

        self.ends()
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
        self._saver.write_held(partial(self._files.read, name))
        if pending is not self._stop:
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
        self.ends()
        if self._pending is not None:
            self.failed(self._pending.step, RuntimeError(NOTHING_SAVED))
        stop, self._stop = self._stop, None
        if stop is None:
            self._boundary.leave(TOLD_TO_LEAVE)
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
        self.ends()
        if page.load(Word.PHASE) == RankPhase.FINISHED:
            return False
        self._settle()
        if page.load(Word.PHASE) != RankPhase.LOOP_ENDED:
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
                if answer is Answer.SNAPSHOT and self._take(step, order, is_last=True).saves:
                    return True
                time.sleep(WAIT_STEP_S)
        finally:
            writer.close_span(token)

    # --- what an order is answered with -----------------------------------------------------

    def _take(self, step: int, order: int, *, is_last: bool = False) -> Due:
        """Take an order for this very step; with other ranks only if all of them have taken it."""
        boundary = self._boundary
        page = boundary.writer.page
        answer = Answer.SNAPSHOT
        while answer is Answer.SNAPSHOT:
            taken = self._hold(step, order)
            if taken is None:
                return Due.NONE  # told as failed: another order follows, for all ranks
            if self._is_agreed(taken):
                self._pending, self._is_told = taken._replace(since_ns=now_ns()), False
                if unpack(order).flags & Order.STOP:
                    self._stop = self._pending
                    return Due.STOP
                return Due.SAVE
            self._saver.give_up_held()
            page.store(Word.FAILED, pack(taken.epoch, step))
            boundary.hurry()
            order = page.load(Word.ORDER)
            answer, _ = at_boundary(step, order, boundary.answered_epoch, is_last)
        return Due.LEAVE if answer is Answer.LEAVE_UNSAVED else Due.NONE

    def _hold(self, step: int, order: int) -> _Order | None:
        """Take the order, and what belongs to the set beside the framework's part; None: failed."""
        boundary = self._boundary
        epoch, flags, _ = unpack(order)
        boundary.answered_epoch = epoch
        together = WAITS if self._files.world_size > 1 else 0
        boundary.writer.page.store(Word.TAKEN, pack(epoch, step, flags | together))
        try:
            self._saver.hold(epoch, step)
        except Exception as error:
            boundary.publish_failure(step, epoch, error)
            return None
        return _Order(epoch, step, now_ns())

    def _is_agreed(self, taken: _Order) -> bool:
        """Wait until all ranks have taken it: a framework's save is one that all make together."""
        if self._files.world_size == 1:
            return True
        boundary = self._boundary
        page = boundary.writer.page
        boundary.hurry()
        token = boundary.writer.open_span("save")
        try:
            while True:
                verdict, order = page.load(Word.VERDICT), page.load(Word.ORDER)
                is_lost = boundary.supervisor_lost()
                answer, _ = while_agreeing(order, verdict, taken.epoch, taken.step, is_lost)
                if answer is not Answer.WAIT:
                    return answer is Answer.SNAPSHOT
                time.sleep(WAIT_STEP_S)
        finally:
            boundary.writer.close_span(token)

    def _tell_copied(self, pending: _Order, blocked_ns: int) -> None:
        page = self._boundary.writer.page
        self._is_told = True
        page.store(Word.SAVE_BLOCKED_NS, max(1, blocked_ns))
        # Whoever controls the run sees it at its next look. To wake it is a system call, which can
        # cost this thread milliseconds: the framework's own threads are writing.
        page.store(Word.COPIED, pack(pending.epoch, pending.step))

    def _settle(self) -> None:
        """The training goes on: a save that was due and has not even begun never will be."""
        if self._pending is not None and not self._is_told:
            self.failed(self._pending.step, RuntimeError(NOTHING_SAVED))
