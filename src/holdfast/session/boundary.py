"""The step boundary: where a step is recorded, and where an ordered save is answered.

`done` runs once per step and must cost about a microsecond when nothing is due: one record, one
load of the agreement word, two comparisons. Everything else is off that path, in `Boundary`.
"""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any, NoReturn, Protocol

from holdfast.core.save.choose import TrainingEnd
from holdfast.core.save.word import (
    MAX_STEP,
    TOLD_TO_LEAVE,
    Answer,
    Order,
    after_loop,
    at_boundary,
    between_steps,
    is_decided,
    is_durable,
    is_settled,
    may_end_later,
    pack,
    unpack,
    while_waiting,
)
from holdfast.errors import DeclaredFailure, StepOrderError, Stop, StoreUnavailable, Unstorable
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import RankPhase, Word
from holdfast.journal.rank_page import RankPage
from holdfast.journal.writer import JournalWriter
from holdfast.session.asked_save import WAIT_STEP_S, AskedSave
from holdfast.session.say import say

SUPERVISOR_LOST_NS = 15_000_000_000
# A place to stop between two steps counts only this long after a boundary: the next boundary is
# often as near, and it is the one that all ranks come to.
BETWEEN_STEPS_NS = 250_000_000
NO_STEP = -1
NOTHING_LEFT = (
    "Nothing is left to train: the script ended its training at step {}, in an earlier attempt"
)


class UnfinishedCopy(Protocol):
    """What a boundary needs of `snapshot.late.LateCopy`."""

    def begin(self, over: Callable[[Exception | None, int], None]) -> None:
        """Go on in a thread; `over` gets what went wrong, and the time that a step waited for."""


class StateSaver(Protocol):
    """What a boundary needs of `session.saver.Saver`."""

    def prepare(self, state: Any, *, is_external: bool) -> None:
        """Check that the state can be stored, and make room for its copy; raises Unstorable."""

    def save(
        self, state: Any, epoch: int, step: int, flags: int, *, may_end_later: bool = False
    ) -> UnfinishedCopy | None:
        """Copy the state, which blocks; `flags` are the order's, and say where it goes.

        The rest of the copy, if it may end later, and does.
        """

    @property
    def waits_for_device(self) -> bool:
        """Whether a copy waits for the device, even one that may end later."""


class Boundary:
    """The step counter of a session, its hot path, and its answers to orders."""

    def __init__(self, writer: JournalWriter, saves: StateSaver) -> None:
        self.writer = writer
        self._page = writer.page
        self._saves = saves
        self.answered_epoch = 0
        self._last_step = NO_STEP  # after this one the loop is over
        self._state: Any = None  # of the last boundary; the loop holds it as long as this does
        self._commit: Callable[[int], None] | None = None  # likewise
        self._drawing: int | None = None  # the user's number of the step that drew its data last
        self._is_external = False  # checkpoints are the script's own
        self._prepared = False
        self.resume_step = 0
        self.ended: TrainingEnd | None = None  # where an earlier attempt's script ended its loop
        self.shift = 0  # the user's number + shift = our number, which starts at 1
        self.expected = NO_STEP  # the user's number of the step under way
        self.begun = NO_STEP  # the user's number of the step that the loop was given last
        self.failure: DeclaredFailure | None = None  # the script gave up: nothing comes after it
        self.watch: Callable[[int, Any], None] = lambda _step, _ready: None
        self.copied: Callable[[int], None] = lambda _step: None
        self.measure: Callable[[int, Mapping[str, Any]], None] = lambda _step, _metrics: None
        self.hurry: Callable[[], None] = lambda: None
        self.stepped: Callable[[], None] = lambda: None  # the first step is done
        self.wait_for_commit = False
        self._errand: Callable[[], None] | None = None  # for this thread, at a boundary
        self._errand_step = 0  # that of this step (ours), or the next one that is there
        self.at_end: Callable[[], None] = lambda: None  # for this thread, where no step follows
        self._asked = AskedSave(writer)
        self.done = self._make_done()

    # --- the hot path -----------------------------------------------------------------------

    def _make_done(self) -> Callable[..., None]:
        record_step = self.writer.record_step
        slow = self._slow
        settled = ahead = due = 0

        def done(
            step: int,
            state: Any = None,
            *,
            ready: Any = None,
            tokens: int | None = None,
            commit: Callable[[int], None] | None = None,
            metrics: Mapping[str, Any] | None = None,
        ) -> None:
            nonlocal settled, ahead, due
            if step != self.expected:
                self.out_of_order(step)
            if step == self.slow_step:
                _await_device(state)  # the loop's last step ends when the device is done with it
            order = record_step(step + self.shift, tokens or 0)
            self.expected = step + 1
            self._state = state
            self._commit = commit
            if ready is not None:
                self.watch(step + self.shift, ready)
            if metrics is not None:
                self.measure(step + self.shift, metrics)
            if order != settled or step == self.slow_step:
                if order == ahead and step + self.shift < due and step != self.slow_step:
                    return  # seen already, and its step is still to come
                settled = slow(step + self.shift, state, order, commit)
                ahead, due = order, order & MAX_STEP

        def unsettle() -> None:
            nonlocal settled, ahead
            settled = ahead = NO_STEP

        self._unsettle = unsettle
        return done

    def at_next(self, errand: Callable[[], None], give_up: Callable[[], bool]) -> None:
        """Have the training's thread do something at its next boundary, unless `give_up` says so.

        From another thread. The next boundary takes the slow way, which costs the others nothing;
        it may have been on that way already, and so it is told again until it has seen it.
        """
        self._errand_step, self._errand = 0, errand
        while self._errand is errand and not give_up():
            self._unsettle()
            time.sleep(WAIT_STEP_S)
        if self._errand is errand:
            self._errand = None

    def at_step(self, step: int, errand: Callable[[], None]) -> None:
        """Do something when that step (ours) is done: for an errand, which this thread runs."""
        self._errand_step, self._errand = step, errand

    def run_errand(self) -> None:
        """Do what was asked for, if it is due; a boundary is here."""
        errand = self._errand
        if errand is not None and self._page.load(Word.STEP) >= self._errand_step:
            self._errand = None
            errand()

    slow_step = NO_STEP
    """The user's number of a step whose `done` must take the slow way whatever the order says."""

    def _slow(self, step: int, state: Any, order: int, commit: Callable[[int], None] | None) -> int:
        """The rest of `done`; returns the order if later boundaries may skip it, else 0."""
        if not self._prepared:
            self._prepared = True
            self._is_external = commit is not None
            self._saves.prepare(state, is_external=self._is_external)
            self.stepped()
        self.run_errand()
        self.slow_step = self._next_slow_step(step)
        answer, reason = at_boundary(step, order, self.answered_epoch)
        if answer is Answer.LEAVE_UNSAVED:
            self.leave(reason)
        if answer is Answer.SNAPSHOT:
            self._snapshot(step, state, order, commit)
        return order if is_settled(step, order) else 0

    def _next_slow_step(self, step: int) -> int:
        """`step`, ours, is done: the user's number of the next one that takes the slow way."""
        if step == self._last_step:
            return NO_STEP
        errand = self._last_step if self._errand is None else max(self._errand_step, step + 1)
        return min(self._last_step, errand) - self.shift

    # --- steps ------------------------------------------------------------------------------

    def is_over(self, last: int) -> bool:
        """Whether an earlier attempt's script ended its loop here, though `last` was to come."""
        return self.ended == TrainingEnd(self.resume_step, last)

    def begin(self, first: int, last: int, base: int) -> None:
        """Steps `first`..`last` (ours) are to come; the user counts from `base`."""
        self.shift = 1 - base
        self._last_step = last
        self.expected = first - self.shift
        self.slow_step = self.expected  # the first boundary makes room for the copies
        self._page.store(Word.UNTIL, last)
        self._page.store(Word.PHASE, RankPhase.TRAINING)
        self.writer.begin_step(first, None)

    def record(self, step: int, tokens: int) -> int:
        """A step is done whose save is a framework's affair; the order that stands."""
        self._is_external = True
        self.expected = step + 1
        order = self.writer.record_step(step, tokens)
        if self._errand is not None:
            self.run_errand()
        return order

    def close_steps(self) -> None:
        """No step follows."""
        self.at_end()
        self.writer.end_steps(None)
        self.expected = NO_STEP
        self._page.store(Word.PHASE, RankPhase.LOOP_ENDED)
        self.hurry()

    def fail(self, failure: DeclaredFailure) -> NoReturn:
        """No step follows; whoever swallows this error meets it again."""
        self.at_end()
        self.failure = failure
        self.expected = NO_STEP
        self.writer.end_steps(None)
        raise failure

    def out_of_order(self, step: int, called: str = "done") -> NoReturn:
        """Another step is under way than the one that was told by `called`; raises."""
        if self.failure is not None:
            raise self.failure
        if self.expected == NO_STEP:
            begin = (
                "call begin first"
                if called == "due"
                else "take the numbers from `for step in run.steps(until)`"
            )
            raise StepOrderError(f"{called}({step}) was called before any step began: {begin}")
        raise StepOrderError(
            f"{called}({step}) was called, but step {self.expected} is under way: "
            f"call {called} once per step, in order"
        )

    def finish(self, state: Any = None) -> None:
        """The loop is over: the last state is saved, and only then is the run done."""
        page = self._page
        if self.failure is not None:
            raise self.failure
        if page.load(Word.PHASE) == RankPhase.FINISHED:
            return
        is_another = state is not None and state is not self._state
        if state is None:
            self._refuse_in_step()
            state = self._state
        step = page.load(Word.STEP) or self.resume_step
        self.close_steps()
        token = self.writer.open_span("save")
        try:
            is_copied = self._await_last_commit(step, state)
        finally:
            self.writer.close_span(token)
        if is_another and not is_copied:
            was = f"step {step} was saved before" if step else "no step was done"
            say(f"{was}: the state given to run.finish is not kept")
        self._state = self._commit = None
        page.store(Word.PHASE, RankPhase.FINISHED)

    def _refuse_in_step(self) -> None:
        """In the middle of a step the last state may be changed already, or given away."""
        if self.begun == self.expected != NO_STEP:
            raise StepOrderError(
                f"run.finish() was called in the middle of step {self.begun}: leave the loop right "
                "after run.done(step), or give the state of the last step that was done, "
                "run.finish(state)"
            )

    def _await_last_commit(self, step: int, state: Any) -> bool:
        """Wait until the last step is durable; whether it was copied here, and not before."""
        page, is_copied = self._page, False
        while True:
            verdict, order = page.load(Word.VERDICT), page.load(Word.ORDER)
            committed = page.load(Word.COMMITTED) or self.resume_step
            answer, reason = after_loop(
                step, order, verdict, committed, self.answered_epoch, self.supervisor_lost()
            )
            if answer is Answer.LEAVE_SAVED:
                return is_copied
            if answer is Answer.LEAVE_UNSAVED:
                self.leave_last(step, reason)
            if answer is Answer.SNAPSHOT:
                started_ns = now_ns()
                if self._commit is not None:
                    self._commit(step)
                epoch, flags, _ = unpack(order)
                unstorable = self._copy(step, state, epoch, flags, started_ns, is_last=True)
                if unstorable is not None:
                    raise unstorable  # another try would find the same
                is_copied = True
            time.sleep(WAIT_STEP_S)

    def leave_last(self, step: int, reason: str) -> NoReturn:
        """The last step will not be saved: raises Stop or StoreUnavailable."""
        if self._page.load(Word.DEADLINE_AT):
            self.leave(reason)
        is_told = reason == TOLD_TO_LEAVE  # by who knows why, and puts it on record
        then = "the report says why" if is_told else "make room in the run store, start it again"
        raise StoreUnavailable(f"the last step, {step}, could not be saved ({reason}): {then}")

    # --- answers to orders ------------------------------------------------------------------

    def _snapshot(
        self, step: int, state: Any, order: int, commit: Callable[[int], None] | None
    ) -> None:
        epoch, flags, _ = unpack(order)
        is_last = step == self._last_step
        if not may_end_later(flags, is_last=is_last) or self._saves.waits_for_device:
            _await_device(state)
        token, started_ns = self.writer.open_span("save"), now_ns()
        try:
            if commit is not None:
                commit(step)
            self._copy(step, state, epoch, flags, started_ns, is_last=is_last)
            if flags & Order.STOP:
                self.await_verdict(epoch, step)
            elif is_durable(flags):
                self.await_commit_if_asked(epoch, step)
        finally:
            self.writer.close_span(token)

    def _copy(
        self, step: int, state: Any, epoch: int, flags: int, started_ns: int, *, is_last: bool
    ) -> Unstorable | None:
        """Answer an order. A failure is said and counted, and the training goes on.

        `started_ns`: since then the training waits.

        Returns what was wrong with the state itself.
        """
        self.answered_epoch = epoch
        page = self._page
        later = may_end_later(flags, is_last=is_last)
        try:
            unfinished = self._saves.save(state, epoch, step, flags, may_end_later=later)
        except Exception as error:
            page.store(Word.TAKEN, pack(epoch, step, flags))
            self.publish_failure(step, epoch, error)
            if not isinstance(error, Unstorable):
                return None
            if step <= self.resume_step + 1:
                raise
            return error
        if unfinished is None:
            self._publish_copy(step, epoch, flags, started_ns)
        else:
            self._publish_taken(step, epoch, flags, started_ns, unfinished)
        return None

    def publish_failure(self, step: int, epoch: int, error: Exception) -> None:
        """Answer an order by saying that it failed, and the user by saying why."""
        page = self._page
        page.increment(Word.ERRORS)
        page.store(Word.FAILED, pack(epoch, step))
        self.hurry()
        say(f"step {step} could not be saved: {error}; {what_then(page)}")

    def _publish_taken(
        self, step: int, epoch: int, flags: int, started_ns: int, unfinished: UnfinishedCopy
    ) -> None:
        """The copy goes on beside the next steps, and whoever ends it tells the rest."""
        page = self._page
        blocked_ns = now_ns() - started_ns

        def over(problem: Exception | None, waited_ns: int) -> None:
            if problem is not None:
                self.publish_failure(step, epoch, problem)
                return
            self.copied(step)
            page.store(Word.SAVE_BLOCKED_NS, blocked_ns + waited_ns)
            page.store(Word.COPIED, pack(epoch, step))
            self.hurry()

        page.store(Word.TAKEN, pack(epoch, step, flags))
        unfinished.begin(over)

    def _publish_copy(self, step: int, epoch: int, flags: int, started_ns: int) -> None:
        """A copy ends at its boundary, so that it was taken is told with it."""
        self.answered_epoch = epoch
        self.copied(step)
        self._page.store(Word.SAVE_BLOCKED_NS, now_ns() - started_ns)
        self._page.store(Word.TAKEN, pack(epoch, step, flags))
        self._page.store(Word.COPIED, pack(epoch, step))
        self.hurry()  # the next save is ordered when all ranks have copied this one

    def await_verdict(self, epoch: int, step: int) -> None:
        """After a stop's save: raises Stop, or returns where the training goes on."""
        page = self._page
        page.store(Word.PHASE, RankPhase.WAITING)
        while True:
            verdict, order = page.load(Word.VERDICT), page.load(Word.ORDER)
            answer, reason = while_waiting(order, verdict, epoch, step, self.supervisor_lost())
            if answer in (Answer.LEAVE_SAVED, Answer.LEAVE_UNSAVED):
                self.leave(reason)
            if answer is Answer.GO_ON:
                page.store(Word.PHASE, RankPhase.TRAINING)
                return
            time.sleep(WAIT_STEP_S)

    def await_commit_if_asked(self, epoch: int, step: int) -> None:
        """After a durable save: `run.save(wait=True)` waits until it counts, or never will."""
        page = self._page
        if not self.wait_for_commit:
            return
        self.wait_for_commit = False
        while page.load(Word.COMMITTED) < step and not self.supervisor_lost():
            is_over = is_decided(page.load(Word.VERDICT), epoch)
            if is_over or unpack(page.load(Word.FAILED)).epoch == epoch:
                return
            order = unpack(page.load(Word.ORDER))
            if order.epoch != epoch and order.step > step:  # a new controller orders it anew
                self.wait_for_commit = True
                return
            time.sleep(WAIT_STEP_S)

    def ask_now(self) -> bool:
        """Ask for a save, and wait until it is ordered: then it is of this very step.

        False: there was no answer in time (another save is under way), and it becomes one of a
        later step.
        """
        before = self._page.load(Word.ORDER)
        self._page.increment(Word.SAVE_ASKED)
        self.hurry()
        if self.expected == NO_STEP:
            return True
        step = self.expected + self.shift
        return self._asked.await_order(before, step, until_durable=self.wait_for_commit)

    def poll(self) -> None:
        """Leave if nothing more will be saved, or once the last step is; raises Stop.

        A sign of life, too: a script that looks up has not hung.
        """
        self._page.store(Word.SPAN_ENDED_AT, now_ns())
        self.run_errand()
        if self.failure is not None:
            raise self.failure
        order = self._page.load(Word.ORDER)
        flags = order >> 40
        if flags & Order.LEAVE:
            self.leave(TOLD_TO_LEAVE)
        if flags & Order.EARLY and self._is_between_steps():
            self._answer_between_steps(order)

    def draw(self) -> None:
        """The step under way is about to draw data: it has begun. A place to leave, like `poll`."""
        if self.failure is not None:
            raise self.failure
        self._drawing = self.expected
        if self._page.load(Word.ORDER) >> 40 & Order.LEAVE:
            self.leave(TOLD_TO_LEAVE)

    def _is_between_steps(self) -> bool:
        """Whether all is as the last boundary left it, and has been for a while.

        Known only of loops that draw their data through `run.data`: a step begins with that.
        """
        page = self._page
        return (
            self.expected != NO_STEP
            and self._drawing not in (None, self.expected)
            and not self._is_external
            and page.load(Word.PHASE) == RankPhase.TRAINING
            and now_ns() - page.load(Word.STEP_AT) > BETWEEN_STEPS_NS
        )

    def _answer_between_steps(self, order: int) -> None:
        """A stop, and the next boundary may be far: copy what the last one left, and wait."""
        epoch, flags, _ = unpack(order)
        step = self._page.load(Word.STEP)
        answer, _ = between_steps(step, order, self.answered_epoch)
        if answer is not Answer.SNAPSHOT:
            return
        _await_device(self._state)
        token = self.writer.open_span("save")
        try:
            started_ns = now_ns()
            self._saves.save(self._state, epoch, step, flags)
            self._publish_copy(step, epoch, flags, started_ns)
            self.await_verdict(epoch, step)
        except Exception as error:
            # The state was given away, perhaps. No answer is given; the next boundary has one.
            self._page.increment(Word.ERRORS)
            self._drawing = self.expected
            say(f"step {step} cannot be saved any more ({error}); the next one is")
        finally:
            self.writer.close_span(token)

    def leave(self, reason: str) -> NoReturn:
        """Raise Stop."""
        self.at_end()
        self.writer.end_steps(None)  # no step is under way any more: what follows is leaving
        raise Stop(reason)

    def supervisor_lost(self) -> bool:
        """Whether nobody is there any more who could commit a save."""
        alive_ns = self._page.load(Word.SUPERVISOR_ALIVE_AT)
        return alive_ns != 0 and now_ns() - alive_ns > SUPERVISOR_LOST_NS


def _await_device(state: Any) -> None:
    """Steps dispatched ahead are still running: that is training, and no part of the save."""
    jax = sys.modules.get("jax")
    if jax is not None:
        with contextlib.suppress(Exception):  # a failed step fails in the training loop as well
            jax.block_until_ready(state)


def what_then(page: RankPage) -> str:
    """What follows a save that failed, for people."""
    is_last = page.load(Word.PHASE) == RankPhase.LOOP_ENDED
    return "it is the last step, and is tried again" if is_last else "training goes on"
