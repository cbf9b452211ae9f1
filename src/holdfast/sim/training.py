"""The training of one simulated attempt: steps of equal length, and saves that block them.

All ranks step together, so one line of steps stands for them all. It is unbroken from an anchor on:
boundary n of it is passed at `anchor_ns + (n − anchor_step) × step_ns`.
"""

from __future__ import annotations

from holdfast.sim.story import Rows


class Training:
    """From the first step after a restore on.

    Each step takes `step_ns`, of which `idle_ns` go by before it begins: its batch is not there.
    A row of steps has that time at its end, but for the last row of all: its last step stands for
    itself, so that an attempt ends with a step where it did.
    """

    def __init__(self, rows: Rows, step: int, at_ns: int, step_ns: int, idle_ns: int = 0) -> None:
        self.step_ns = step_ns
        self._idle_ns = idle_ns
        self.anchor_step, self.anchor_ns = step, at_ns
        self._rows = rows
        self._begun_step, self._begun_ns = step, at_ns  # of the row that is not written down yet

    def passed_ns(self, step: int) -> int:
        """When that boundary is passed."""
        return self.anchor_ns + (step - self.anchor_step) * self.step_ns

    def completed(self, at_ns: int) -> int:
        """The last boundary passed by then."""
        if at_ns <= self.anchor_ns:
            return self.anchor_step
        return self.anchor_step + (at_ns - self.anchor_ns) // self.step_ns

    def last_before(self, at_ns: int) -> int:
        """The last boundary that is passed before then, not at the same time."""
        return self.completed(at_ns - 1)

    def saving_since_ns(self, at_ns: int) -> int | None:
        """Since when a save keeps training at that time; None: none does."""
        return self._rows.save[-1][0] if at_ns < self.anchor_ns and self._rows.save else None

    def block(self, step: int, save_ns: int) -> None:
        """At that boundary a save keeps training for so long."""
        end_ns = self.passed_ns(step)
        if save_ns:
            self._write_down(step, end_ns)
            self._rows.save.append((end_ns, end_ns + save_ns))
            self._begun_step, self._begun_ns = step, end_ns + save_ns
        self.anchor_step, self.anchor_ns = step, end_ns + save_ns

    def fold(self, periods: int, steps: int, save_ns: int) -> None:
        """So many times over: `steps` steps from the anchor on, then a save."""
        own_ns = steps * self.step_ns
        idle_ns = steps * self._idle_ns
        if save_ns:
            self._write_down(self.anchor_step, self.anchor_ns)
            first = self.anchor_step + 1
            self._rows.fold(first, periods, steps, self.anchor_ns, own_ns, save_ns, idle_ns)
        self.anchor_step += periods * steps
        self.anchor_ns += periods * (own_ns + save_ns)
        if save_ns:
            self._begun_step, self._begun_ns = self.anchor_step, self.anchor_ns

    def end(self, at_ns: int) -> tuple[int, int | None]:
        """Nothing goes on: the last step completed, and when the one under way began, if any."""
        step = self.completed(at_ns)
        if self._idle_ns and step > self._begun_step:
            begun_ns = self.passed_ns(step - 1)
            self._write_down(step - 1, begun_ns)
            self._rows.row.append((step, step, begun_ns + self._idle_ns, self.passed_ns(step)))
        else:
            self._write_down(step, self.passed_ns(step))
        if at_ns < self.anchor_ns:  # in a save
            start_ns, _ = self._rows.save[-1]
            self._rows.save[-1] = start_ns, at_ns
            return step, None
        began_ns = self.passed_ns(step) + self._idle_ns
        return step, began_ns if began_ns < at_ns else None

    def _write_down(self, step: int, end_ns: int) -> None:
        if step > self._begun_step:
            end_ns -= (step - self._begun_step) * self._idle_ns
            self._rows.row.append((self._begun_step + 1, step, self._begun_ns, end_ns))
