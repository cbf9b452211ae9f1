"""Virtual training processes: they take steps, save and leave as `session.boundary` does.

What a rank decides at a boundary, while it waits and after its loop is the real
`core.save.agree_rank`; only time, memory and disk are virtual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from holdfast.core.events import Resume
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang import events as told
from holdfast.core.hang.deadline import StepIntervals
from holdfast.core.save import agree_events as news
from holdfast.core.save.agree_rank import (
    Answer,
    after_loop,
    at_boundary,
    between_steps,
    while_waiting,
)
from holdfast.core.save.word import Agreed, Order, buffer_of, may_end_later, unpack
from holdfast.sim.clock import VirtualClock
from holdfast.sim.virtual.shape import Barrier, Shape


class RankSurroundings(Protocol):
    """What a rank needs of the host that it runs on."""

    @property
    def clock(self) -> VirtualClock:
        """Whose time passes for it."""

    @property
    def shape(self) -> Shape:
        """What it is like."""

    def failure(self, rank: int, step: int) -> Exit | str | None:
        """Whether it fails in this step, and how."""

    def read_error(self, resume: Resume) -> str:
        """What is wrong with the set; empty: nothing."""

    def can_write(self, rank: int) -> bool:
        """Whether the store takes a shard."""

    def touched(self) -> None:
        """A page has changed."""

    def restored(self, rank: VirtualRank) -> None:
        """It has what it starts from."""

    def stepped(self, rank: VirtualRank) -> None:
        """It has passed a boundary."""

    def written(self, rank: VirtualRank, step: int) -> None:
        """Its shard of this step is durable."""

    def copying(self, rank: VirtualRank, buffer: int) -> None:
        """It begins to write into a buffer."""

    def copied(self, rank: VirtualRank, buffer: int, epoch: int, step: int) -> None:
        """It has copied into a buffer, and rings."""

    def left_saved(self, rank: VirtualRank, step: int) -> None:
        """It leaves, because that step is durable."""

    def ended(self, rank: VirtualRank) -> None:
        """The process is no more."""


class VirtualRank:
    """One process, from its start to its end. The words of its page are plain attributes."""

    def __init__(self, rank: int, resume: Resume, barrier: Barrier, host: RankSurroundings) -> None:
        self.rank = rank
        self.resume = resume
        self.alive = True
        self.is_stuck = False  # in the kernel: survives SIGKILL, and does nothing more
        self.has_page = False
        self._answers = news.RankAnswers()
        self.finished = False
        self.blocked_ns = 0
        self.sigterms = 0
        self.how: Exit | None = None
        self.ended_ns = 0
        # The supervisor's half.
        self.order = self.verdict = 0
        self.committed = resume.durable_step
        self.buffers = 0
        self._remade_ns = 0  # how long it takes to make buffers that are gone; 0: they are there
        self._host = host
        self._barrier = barrier
        self._answered_epoch = 0
        self._copies = 0  # into a buffer, begun so far
        self._is_copying = False  # beside its steps
        self._when_copied: Callable[[], None] | None = None  # a next step waits to be taken
        self._waits: Callable[[], None] | None = None
        self._written_ns = 0
        # What a look at it shows (core.hang.events.RankLook).
        self.doing = told.NO_SESSION
        self.step_ns = self.complete_ns = self.awaited_ns = 0
        self.span: tuple[str, int] | None = None
        self.span_ended_ns = self.spans_ns = 0
        self.pace = StepIntervals()
        self.where = ""
        self.is_stopped = False  # by SIGSTOP
        self._held: list[Callable[[], None]] = []
        self._later(host.shape.import_ns, self._imported)

    @property
    def words(self) -> news.RankAnswers:
        """Its half of its page."""
        return self._answers

    @words.setter
    def words(self, answers: news.RankAnswers) -> None:
        self._answers = answers
        self._host.touched()

    # --- from outside -----------------------------------------------------------------------

    def see(self, order: int, verdict: int, committed: int) -> None:
        """What the supervisor has stored is visible here."""
        self.order, self.verdict, self.committed = order, verdict, committed
        self.stored()

    def vanish(self) -> None:
        """Its host is gone, and nobody is left to tell."""
        self.alive = False

    def stored(self) -> None:
        """The supervisor has stored into the page: a rank that waits looks again."""
        if self.alive and not (self.is_stuck or self.is_stopped) and self._waits is not None:
            self._waits()

    def sigterm(self) -> None:
        """SIGTERM arrives."""
        how = self._host.shape.on_sigterm
        if not self.alive:
            return
        if self.has_page:
            self.sigterms += 1
            self._host.touched()
        elif self._host.shape.has_session and how != "ignore":
            self.end(Exit(signal=15))  # no handler yet: the default action
        elif how.startswith("exit"):
            code = int(how.split()[1])
            self._later(self._host.shape.leave_ns, lambda: self.end(Exit(code=code)))

    def stop(self) -> None:
        """SIGSTOP arrives."""
        self.is_stopped = True

    def go_on(self) -> None:
        """SIGCONT arrives."""
        self.is_stopped = False
        held, self._held = self._held, []
        for do in held:
            do()
        self.stored()

    def look(self) -> told.RankLook:
        """What a look at its words and its process shows."""
        kind, span_ns = self.span or ("", 0)
        return told.RankLook(
            self.rank,
            doing=self.doing,
            step=self.words.step,
            step_ns=self.step_ns,
            complete_ns=self.complete_ns,
            awaited_ns=self.awaited_ns,
            behind=1 if self.awaited_ns else 0,
            span=kind,
            span_ns=span_ns,
            span_ended_ns=self.span_ended_ns,
            process="T" if self.is_stopped else "S",
            samples=self.pace.samples,
            median_ns=self.pace.median_ns,
            longest_ns=self.pace.take_longest_ns(),
        )

    def end(self, how: Exit) -> None:
        """The process ends, whatever it was doing."""
        if not self.alive or self.is_stuck:
            return
        self.alive = False
        self.how = replace(how, finished=self.finished, has_session=self.has_page)
        self.ended_ns = self._host.clock.now_ns
        self._host.ended(self)

    # --- its life ---------------------------------------------------------------------------

    def _later(self, delay_ns: int, do: Callable[[], None]) -> None:
        def do_if_able() -> None:
            if self.is_stopped:
                self._held.append(do_if_able)
            elif self.alive and not self.is_stuck:
                do()

        self._host.clock.later(delay_ns, do_if_able)

    def _imported(self) -> None:
        if not self._host.shape.has_session:
            self._later(self._host.shape.plain_ns, lambda: self.end(Exit(code=0)))
            return
        self.has_page = True
        self._host.touched()
        self.doing = told.STARTING
        self._later(self._host.shape.restore_ns, self._restored)

    def _restored(self) -> None:
        wrong = self._host.read_error(self.resume)
        if wrong:
            self._fail("CorruptCheckpoint", wrong, "train.py:7", 69)
            return
        self._host.restored(self)
        self.buffers = self._host.shape.buffers
        self._host.touched()
        if self.resume.step >= self._host.shape.until:  # `run.steps` has no step to give
            self.words = self.words._replace(loop_ended=True, step=self.resume.step)
            self._finish()
        else:
            self.doing = told.TRAINING
            self._enter(self.resume.step + 1)

    def _fail(self, kind: str, message: str, where: str, code: int) -> None:
        self.end(Exit(code=code, report=RankReport(kind, message, where, "")))

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

    def _close_span(self, took_ns: int) -> None:
        self.span = None
        self.span_ended_ns = self._host.clock.now_ns
        self.spans_ns += took_ns

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
        if step == self._host.shape.until:
            self._loop_ended(step)
        else:
            self._enter(step + 1)

    def _copied(self, step: int, order: int, go_on: Callable[[], None]) -> None:
        epoch, flags, _ = unpack(order)
        if flags & Order.STOP:
            self.doing = told.WAITING
            self._waits = lambda: self._look_while_waiting(epoch, step, go_on)
            self._waits()
        else:
            go_on()

    def _look_while_waiting(self, epoch: int, step: int, go_on: Callable[[], None]) -> None:
        answer, _ = while_waiting(self.order, self.verdict, epoch, step)
        if answer is Answer.GO_ON:
            self._waits = None
            self.doing = told.TRAINING
            go_on()
        elif answer is not Answer.WAIT:
            if answer is Answer.LEAVE_SAVED:
                self._host.left_saved(self, step)
            self._leave()

    def _loop_ended(self, step: int) -> None:
        self.words = self.words._replace(loop_ended=True, step=step)
        self.doing = told.LOOP_ENDED
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
        self.doing = told.FINISHED
        self._later(self._host.shape.leave_ns, lambda: self.end(Exit(code=0)))

    def _leave(self) -> None:
        self._waits = None
        self._later(self._host.shape.leave_ns, lambda: self.end(Exit(code=75)))

    # --- saves ------------------------------------------------------------------------------

    def _copy(self, step: int, order: int, then: Callable[[], None]) -> None:
        """Take this step; `then` is what comes after the boundary."""
        if self._is_copying:  # one copy at a time
            self._when_copied = partial(self._copy, step, order, then)
            return
        epoch, flags, _ = unpack(order)
        buffer = buffer_of(flags)
        self._answered_epoch = epoch
        taken = Agreed(epoch, flags, step)
        if buffer is not None and self._remade_ns:
            self._lost(taken)
            then()
            return
        later_ns = 0
        if buffer is not None:
            self._host.copying(self, buffer)
            self._copies += 1
            if may_end_later(flags, is_last=step == self._host.shape.until):
                times = self._host.shape.later_ns
                later_ns = times[(self.rank + self._copies) % len(times)]
        self.blocked_ns = self._host.shape.copy_ns
        self.span = "save", self._host.clock.now_ns
        if later_ns:
            self._is_copying = True
            self.words = self.words._replace(taken=taken)
            self._later(self.blocked_ns + later_ns, lambda: self._copied_later(taken))

        def blocked() -> None:
            self._close_span(self.blocked_ns)
            if not later_ns:
                self._copy_over(taken)
            then()

        self._later(self.blocked_ns, blocked)

    def _copied_later(self, taken: Agreed) -> None:
        self._is_copying = False
        self._copy_over(taken)
        goes_on, self._when_copied = self._when_copied, None
        if goes_on is not None:
            goes_on()

    def _copy_over(self, taken: Agreed) -> None:
        """It is there, or has failed."""
        buffer, made = buffer_of(taken.flags), taken._replace(flags=0)
        failing = self._host.shape.failing
        if buffer is not None and failing and self._copies % failing == 0:
            self.words = self.words._replace(taken=taken, failed=made)
        elif buffer is not None:
            self.words = self.words._replace(taken=taken, copied=made)
            self._host.copied(self, buffer, taken.epoch, taken.step)
        else:
            self.words = self.words._replace(taken=taken, copied=made)
            now_ns = self._host.clock.now_ns
            self._written_ns = max(now_ns, self._written_ns) + self._host.shape.write_ns
            self._later(self._written_ns - now_ns, lambda: self._written(*made.save))

    def lose_buffers(self, again_ns: int) -> None:
        """Its buffers are gone, which it finds out at the next copy; then it makes them again."""
        self._remade_ns = again_ns

    def _lost(self, taken: Agreed) -> None:
        self.words = self.words._replace(taken=taken, failed=taken._replace(flags=0))
        self.buffers = 0

        def made() -> None:
            self._remade_ns, self.buffers = 0, self._host.shape.buffers

        self._later(self._remade_ns, made)

    def _written(self, epoch: int, step: int) -> None:
        word = Agreed(epoch, 0, step)
        if self._host.can_write(self.rank):
            self.words = self.words._replace(durable=word)
            self._host.written(self, step)
        else:
            self.words = self.words._replace(failed=word)
