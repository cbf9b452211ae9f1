"""The saves of a simulated attempt while nothing else happens: which is next, which are alike.

When is asked of the core's own policies, for the boundaries to come: a save that is due stays due,
so that the first boundary is found by halving. Where two periods in a row were alike, those up to
the next event from outside are written down as rows, and only the last ones are played.
"""

from __future__ import annotations

from bisect import bisect_left

from holdfast.core.save.saving import Saving
from holdfast.sim.training import Training

DRIFT = 20  # a fold is no longer than a twentieth of what was seen: intervals follow from that


class Habit:
    """So many steps after the start, and after a save, the next one was due, the last time.

    Of all attempts of a run: where to look first.
    """

    def __init__(self) -> None:
        self.after_start = self.after_save = 0


class Cadence:
    """Of one attempt that trains."""

    def __init__(self, training: Training, habit: Habit) -> None:
        self.training = training
        self._habit = habit
        self._saved: tuple[int, ...] = ()  # the last two steps that were saved
        self._due_after = 0  # so many steps after a save the next one was due, the last time

    def save(self, step: int, blocked_ns: int) -> None:
        """At that boundary a save keeps training for so long."""
        self.training.block(step, blocked_ns)
        self._saved = (*self._saved[-1:], step)

    def step_to_save(self, saving: Saving, now_ns: int, until_ns: int) -> int | None:
        """The first boundary before `until_ns` at which the core would have a save made.

        It may order one now (`Saving.may_order`).
        """
        training, has_saved = self.training, bool(self._saved)

        def is_due(step: int) -> bool:
            return saving.would_be_due(training.passed_ns(step - 1), step)

        # Of what was restored nothing is lost: only a step after it makes a save worth while.
        anchor = training.anchor_step if has_saved else training.anchor_step + 1
        low = max(training.completed(now_ns), anchor) + 1
        high = training.last_before(until_ns)
        if high < low:
            return None
        guess = training.anchor_step
        guess += self._habit.after_save if has_saved else self._habit.after_start
        if low < guess <= high and is_due(guess):
            high = guess
            if not is_due(guess - 1):
                return guess
        elif not is_due(high):
            return None
        while low < high:
            middle = (low + high) // 2
            if is_due(middle):
                high = middle
            else:
                low = middle + 1
        return low

    def are_alike(self, step: int) -> bool:
        """Whether the save of that step, which is due, comes as the last one did.

        One that was asked for in between comes sooner after the last than it would have been due.
        """
        due_after, known = step - self.training.anchor_step, self._due_after
        self._due_after = due_after
        if self._saved:
            self._habit.after_save = due_after
        else:
            self._habit.after_start = due_after
        if len(self._saved) < 2 or due_after != known:
            return False
        return self._saved[1] - self._saved[0] == due_after

    def fold(self, saving: Saving, step: int, blocked_ns: int, until_ns: int, seen_ns: int) -> int:
        """Write down all periods but the last before `until_ns`; the step that is due after them.

        `step` is due now. Saves to memory go as far as none of them is to be flushed.
        """
        training = self.training
        steps = self._saved[1] - self._saved[0]
        period_ns = steps * training.step_ns + blocked_ns
        passed_ns = training.passed_ns(step)
        periods = min(until_ns - passed_ns, seen_ns // DRIFT) // period_ns - 1
        if saving.tier.is_there:

            def flushes(after: int) -> bool:
                """Before the copy that follows that one: the newest must be there to be flushed."""
                next_ns = passed_ns + blocked_ns + (after + 1) * period_ns
                return saving.flush_due(next_ns, step + after * steps)[0]

            periods = bisect_left(range(max(0, periods)), True, key=flushes)
        if periods <= 0:
            return step
        training.fold(periods, steps, blocked_ns)
        self._saved = training.anchor_step - steps, training.anchor_step
        return step + periods * steps
