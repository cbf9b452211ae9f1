"""Saves of ranks that are ahead: no time of the run while its slowest rank is still in its step.

A run steps when its slowest rank does. A rank that has completed a step before the others, and
copies its state while they still work on that step, keeps nobody waiting yet: its save is time of
the run only from the run's own end of the step on.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from holdfast.journal.rank_steps import AttemptSteps, Ints, Lead
from holdfast.journal.source import SpanRows

SAVE = "save"


@dataclass(slots=True)
class SaveSpans:
    """Of one attempt: spans as its ranks tell them; given back when they are known to count."""

    _waiting: list[tuple[int, SpanRows]] = field(default_factory=list)  # (number of the rank, …)
    is_of_one: bool = False
    """Saves were told as those of the only rank: another one would change them."""
    is_last: bool = False
    """Saves were told because no step would follow: another one would change them."""

    def add(self, number: int, rows: SpanRows) -> None:
        """Take what the `number`-th of the attempt's ranks has closed."""
        self._waiting.append((number, rows))

    def take(self, steps: AttemptSteps, *, is_over: bool) -> Iterator[SpanRows]:
        """What counts; saves that followed a step of the rank alone wait, unless all `is_over`."""
        waiting, self._waiting = self._waiting, []
        is_one = len(steps.tracks) == 1
        for number, rows in waiting:
            if is_one:
                self.is_of_one = self.is_of_one or SAVE in rows.kinds
                yield rows
                continue
            is_save = np.array([kind == SAVE for kind in rows.kinds], bool)[rows.kind]
            waits = is_save & ~steps.is_judged(number, rows.start)
            if is_over:
                self.is_last = self.is_last or bool(waits.any())
                waits[:] = False
            if waits.any():
                self._waiting.append((number, _chosen(rows, waits)))
            start = np.where(is_save, _held_up(rows.start, steps.leads(number)), rows.start)
            counts = ~waits & ((start < rows.end) | ~is_save)
            if counts.any():
                yield _chosen(rows._replace(start=start), counts)
        if not is_one:
            steps.forget_leads()


def _held_up(at_ns: Ints, leads: Lead) -> Ints:
    """These moments, or the run's end of the step where the rank was ahead then."""
    if not len(leads.start):
        return at_ns
    index = np.searchsorted(leads.start, at_ns, "right") - 1
    end = np.where(index >= 0, leads.end[np.maximum(index, 0)], at_ns)
    return np.maximum(at_ns, end)


def _chosen(rows: SpanRows, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> SpanRows:
    return SpanRows(rows.kinds, rows.kind[which], rows.start[which], rows.end[which])
