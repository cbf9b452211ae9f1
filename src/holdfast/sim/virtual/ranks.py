"""Virtual training processes: they take steps, save and leave as `session.boundary` does.

What a rank decides at a boundary, while it waits and after its loop is the real
`core.save.word`; only time, memory and disk are virtual.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from holdfast.core.events import Resume
from holdfast.core.exits import Exit
from holdfast.core.hang import events as hang
from holdfast.core.save.word import (
    Answer,
    Order,
    after_loop,
    at_boundary,
    between_steps,
    unpack,
    while_waiting,
)
from holdfast.sim.virtual.process import RankProcess, RankSurroundings
from holdfast.sim.virtual.shape import Barrier


class VirtualRank(RankProcess):
    """A rank that trains, from its start to its end."""

    def __init__(self, rank: int, resume: Resume, barrier: Barrier, host: RankSurroundings) -> None:
        super().__init__(rank, resume, host)
        self._barrier = barrier
        self._later(host.shape.import_ns, self._imported)

    def _imported(self) -> None:
        if not self._host.shape.has_session:
            self._later(self._host.shape.plain_ns, lambda: self.end(Exit(code=0)))
            return
        self.has_page = True
        self._host.touched()
        self.doing = hang.STARTING
        self._later(self._host.shape.restore_ns, self._restored)

    def _restored(self) -> None:
        wrong = self._host.read_error(self.resume)
        if wrong:
            self._fail("CorruptCheckpoint", wrong, "train.py:7", 69)
            return
        self._host.restored(self)
        self.buffers = self._host.shape.buffers
        self._host.touched()
        until = self._host.shape.until
        if self.resume.step >= until or self.resume.ended_until == until:  # no step is left
            self.words = self.words._replace(loop_ended=True, step=self.resume.step)
            self._finish()
        else:
            self.doing = hang.TRAINING
            self._enter(self.resume.step + 1)

    def _enter(self, step: int) -> None:
        kind, span_ns = self._host.shape.spans.get(step, ("", 0))
        if not span_ns:
            self._work(step)
            return
        self.span = kind, self._host.clock.now_ns
        self.where = f"wait ({kind}.py:7)"

        def ended() -> None:
            self.where = ""
            self._close_span(span_ns)
            self._work(step)

        self._later(span_ns, ended)

    def _work(self, step: int) -> None:
        shape = self._host.shape
        pause_ns = shape.pauses.get(step, 0)
        if pause_ns and shape.poll_ns[self.rank % len(shape.poll_ns)]:
            self._poll(step, self._host.clock.now_ns + pause_ns)
        else:
            self._later(pause_ns + shape.step_time_ns(self.rank), lambda: self._worked(step))

    def _poll(self, step: int, end_ns: int) -> None:
        """Before `step` the script does something else for a while, and looks up now and then."""
        shape, now_ns = self._host.shape, self._host.clock.now_ns
        if now_ns >= end_ns:
            self._later(shape.step_time_ns(self.rank), lambda: self._worked(step))
            return
        order = self.order
        answer, _ = between_steps(step - 1, order, self._answered_epoch)
        if answer is Answer.LEAVE_UNSAVED:
            self._leave()
        elif answer is Answer.SNAPSHOT:
            on = partial(self._poll, step, end_ns)
            self._copy(step - 1, order, lambda: self._copied(step - 1, order, on))
        else:
            poll_ns = min(shape.poll_ns[self.rank % len(shape.poll_ns)], end_ns - now_ns)
            self._later(poll_ns, lambda: self._poll(step, end_ns))

    def _worked(self, step: int) -> None:
        how = self._host.failure(self.rank, step)
        if isinstance(how, Exit):
            self.end(how)
        elif how == "device":
            self.awaited_ns = self._host.clock.now_ns  # never done; the host goes on dispatching
            self._boundary(step)
        elif how is not None:
            self.where = f"step ({how})"
        elif self._host.shape.together:
            self._barrier.arrive(step, lambda: self._boundary(step) if self.alive else None)
        else:
            self._boundary(step)

    def _boundary(self, step: int) -> None:
        self.words = self.words._replace(step=step)
        self.step_ns = self._host.clock.now_ns
        if self._host.shape.sees_device and not self.awaited_ns:
            self.complete_ns = self.step_ns
        self._host.stepped(self)
        answer, _ = at_boundary(step, self.order, self._answered_epoch)
        if answer is Answer.LEAVE_UNSAVED:
            self._leave()
        elif answer is Answer.SNAPSHOT:
            order = self.order
            self._copy(step, order, lambda: self._copied(step, order, partial(self._go_on, step)))
        else:
            self._go_on(step)

    def _go_on(self, step: int) -> None:
        if self._host.shape.is_last(step, self.rank):
            self._loop_ended(step)
        else:
            self._enter(step + 1)

    def _copied(self, step: int, order: int, go_on: Callable[[], None]) -> None:
        epoch, flags, _ = unpack(order)
        if flags & Order.STOP:
            self.doing = hang.WAITING
            self._waits = lambda: self._look_while_waiting(epoch, step, go_on)
            self._waits()
        else:
            go_on()

    def _look_while_waiting(self, epoch: int, step: int, go_on: Callable[[], None]) -> None:
        answer, _ = while_waiting(self.order, self.verdict, epoch, step)
        if answer is Answer.GO_ON:
            self._waits = None
            self.doing = hang.TRAINING
            go_on()
        elif answer is not Answer.WAIT:
            if answer is Answer.LEAVE_SAVED:
                self._host.left_saved(self, step)
            self._leave()

    def _loop_ended(self, step: int) -> None:
        until = self._host.shape.until
        self.words = self.words._replace(loop_ended=True, step=step, until=until)
        self.doing = hang.LOOP_ENDED
        self._waits = lambda: self._look_after_loop(step)
        self._waits()

    def _look_after_loop(self, step: int) -> None:
        answer, why = after_loop(
            step, self.order, self.verdict, self.committed, self._answered_epoch
        )
        if answer is Answer.LEAVE_SAVED:
            self._host.left_saved(self, step)
            self._finish()
        elif answer is Answer.LEAVE_UNSAVED:
            self._waits = None
            message = f"the last step, {step}, could not be saved ({why})"
            leave_ns = self._host.shape.leave_ns
            self._later(
                leave_ns, lambda: self._fail("StoreUnavailable", message, "train.py:50", 69)
            )
        elif answer is Answer.SNAPSHOT:
            waits, self._waits = self._waits, None

            def copied() -> None:
                self._waits = waits
                self.stored()

            self._copy(step, self.order, copied)

    def _finish(self) -> None:
        self._waits = None
        self.finished = True
        self.doing = hang.FINISHED
        how = self._host.failure(self.rank, self._host.shape.until + 1)
        done = how if isinstance(how, Exit) else Exit(code=0)
        self._later(self._host.shape.leave_ns, lambda: self.end(done))

    def _leave(self) -> None:
        self._waits = None
        self._later(self._host.shape.leave_ns, lambda: self.end(Exit(code=75)))
