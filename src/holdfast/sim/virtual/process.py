"""A virtual training process: its page, what can be done to it, and how it copies a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Protocol

from holdfast.core.events import Resume
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hang import events as hang
from holdfast.core.hang.deadline import StepIntervals
from holdfast.core.save.ranks import RankAnswers
from holdfast.core.save.word import Agreed, buffer_of, may_end_later, unpack
from holdfast.sim.clock import VirtualClock
from holdfast.sim.virtual.shape import Shape


class RankSurroundings(Protocol):
    """What a rank needs of the host that it runs on."""

    @property
    def clock(self) -> VirtualClock:
        """The clock that it lives by."""

    @property
    def shape(self) -> Shape:
        """What the ranks are like."""

    def failure(self, rank: int, step: int) -> Exit | str | None:
        """Whether it fails in this step, and how."""

    def read_error(self, resume: Resume) -> str:
        """What is wrong with the set; empty: nothing."""

    def can_write(self, rank: int) -> bool:
        """Whether the store takes a shard."""

    def touched(self) -> None:
        """A page has changed."""

    def restored(self, rank: RankProcess) -> None:
        """It has what it starts from."""

    def stepped(self, rank: RankProcess) -> None:
        """It has passed a boundary."""

    def written(self, rank: RankProcess, step: int) -> None:
        """Its shard of this step is durable."""

    def copying(self, rank: RankProcess, buffer: int) -> None:
        """It begins to write into a buffer."""

    def copied(self, rank: RankProcess, buffer: int, epoch: int, step: int) -> None:
        """It has copied into a buffer, and rings."""

    def left_saved(self, rank: RankProcess, step: int) -> None:
        """It leaves, because that step is durable."""

    def ended(self, rank: RankProcess) -> None:
        """The process is no more."""


class RankProcess:
    """One process: what can be done to it, and how it copies. Its page is plain attributes."""

    def __init__(self, rank: int, resume: Resume, host: RankSurroundings) -> None:
        self.rank = rank
        self.resume = resume
        self.alive = True
        self.is_stuck = False  # in the kernel: survives SIGKILL, and does nothing more
        self.has_page = False
        self._answers = RankAnswers()
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
        self._answered_epoch = 0
        self._copies = 0  # into a buffer, begun so far
        self._is_copying = False  # beside its steps
        self._when_copied: Callable[[], None] | None = None  # a next step waits to be taken
        self._waits: Callable[[], None] | None = None
        self._written_ns = 0
        # What a look at it shows (core.hang.events.RankLook).
        self.doing = hang.NO_SESSION
        self.step_ns = self.complete_ns = self.awaited_ns = 0
        self.span: tuple[str, int] | None = None
        self.span_ended_ns = self.spans_ns = 0
        self.pace = StepIntervals()
        self.where = ""
        self.is_stopped = False  # by SIGSTOP
        self._held: list[Callable[[], None]] = []

    @property
    def words(self) -> RankAnswers:
        """What the rank has written in its page."""
        return self._answers

    @words.setter
    def words(self, answers: RankAnswers) -> None:
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

    def look(self) -> hang.RankLook:
        """What a look at its words and its process shows."""
        kind, span_ns = self.span or ("", 0)
        return hang.RankLook(
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

    def _close_span(self, took_ns: int) -> None:
        self.span = None
        self.span_ended_ns = self._host.clock.now_ns
        self.spans_ns += took_ns

    def _fail(self, kind: str, message: str, where: str, code: int) -> None:
        self.end(Exit(code=code, report=RankReport(kind, message, where, "")))

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

    def slept(self, gap_ns: int) -> None:
        """All that was to happen happens so much later, its writes too: they stay in order."""
        if self._written_ns > self._host.clock.now_ns - gap_ns:
            self._written_ns += gap_ns

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
