"""From the steps of an attempt's ranks to those of the run: together, and vectorised.

A step of the run is complete when all ranks have completed it; it ends with the slowest and starts
with the first of them, but not before the run's last step was over. Two things follow: which saves
of ranks that are ahead cost the run time, and what of an attempt's first step was its start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.ledger.facts import RestoreFact
from holdfast.journal.facts.proven import slowest
from holdfast.journal.facts.rank_steps import (
    NO_INTS,
    ClosedSpans,
    Ints,
    RankTrack,
    TimedSteps,
    UnderWay,
    joined,
)

SAVE = "save"
OPENING_STEPS = 10  # of those after the first, the lower quartile says how long a step takes here
_LONG = 1.25
FEWEST = 3  # an attempt that ended after fewer is measured by the one before it
# A save is read right after the step that it follows; a poll may come between the two.
_LEADS_KEPT = 256


class Lead(NamedTuple):
    """When one rank had completed a step, and when the run had: times in ns, in order."""

    start: Ints
    end: Ints


class AttemptSteps:
    """All ranks of one attempt: gives the steps and restores of the run."""

    def __init__(self) -> None:
        self.tracks: list[RankTrack] = []
        self._gave = False
        self._part = 0
        self.last_end_ns = 0  # of the newest step that was given
        self._highest = 0  # of the steps that were
        self._waiting: list[TimedSteps] = []  # per rank: completed, but not by all
        self._leads: list[list[Lead]] = []  # per rank
        self._restore: RestoreFact | None = None  # of this part, as given
        self._restore_changed = False
        self._is_over = False

    @property
    def has_given(self) -> bool:
        """Something was given: another rank now would change it."""
        return self._gave or self._part > 0

    @property
    def is_wrong(self) -> bool:
        """Something that was given is no longer what would be."""
        return self._restore_changed or any(track.is_wrong for track in self.tracks)

    def add(self, track: RankTrack) -> None:
        """One more rank."""
        self.tracks.append(track)
        self._waiting.append(joined(()))
        self._leads.append([])

    def leads(self, number: int) -> Lead:
        """When the `number`-th rank was ahead of the run, as far as that may still matter."""
        pieces = [Lead(NO_INTS, NO_INTS), *self._leads[number]]
        lead = Lead(*(np.concatenate(column) for column in zip(*pieces, strict=True)))
        self._leads[number] = [lead]
        return lead

    def is_judged(self, number: int, at_ns: Ints) -> npt.NDArray[np.bool_]:
        """Whether the run has got as far as that rank had at these moments."""
        waiting = self._waiting[number].end
        first_ns = int(waiting[0]) if len(waiting) else None
        is_known = at_ns < self.last_end_ns
        return is_known if first_ns is None else is_known & (at_ns < first_ns)

    def forget_leads(self) -> None:
        """Spans were given with them: only the last may matter again."""
        for number in range(len(self.tracks)):
            start, end = self.leads(number)
            kept = Lead(start[-_LEADS_KEPT:].copy(), end[-_LEADS_KEPT:].copy())
            self._leads[number] = [kept]

    def take(self, *, is_over: bool = False) -> tuple[list[RestoreFact], list[TimedSteps]]:
        """Restores and steps that all ranks have completed since the last call.

        `is_over`: the attempt is, and what a rank has not told by now may be lost with its host.
        """
        self._is_over = is_over
        restores: list[RestoreFact] = []
        steps: list[TimedSteps] = []
        while True:
            if (restore := self._take_restore()) is not None:
                restores.append(restore)
            rows = self._take_rows()
            if len(rows.step):
                self._gave = True
                self.last_end_ns = int(rows.end[-1])
                self._highest = max(self._highest, int(rows.step[-1]))
                steps.append(rows)
            if not self.tracks or not all(track.parts[self._part].over for track in self.tracks):
                return restores, steps
            self._waiting = [joined(()) for _ in self.tracks]
            self._part += 1
            self._restore = None

    def under_way(self, above: int = 0) -> UnderWay | None:
        """The step of the run that had begun and is not complete, of those above that one."""
        known: list[UnderWay] = []
        for track, waiting in zip(self.tracks, self._waiting, strict=True):
            at = int(np.searchsorted(waiting.step, above, "right"))
            if at < len(waiting.step):
                known.append(UnderWay(int(waiting.step[at]), int(waiting.start[at])))
            elif len(track.parts) > self._part:
                begun = track.under_way(self._part)
                known += [begun] if begun is not None and begun.step > above else []
        if not known:
            return None
        first = min(known)
        return UnderWay(first.step, max(min(u.start_ns for u in known), self.last_end_ns))

    def unproven(self, last: int) -> UnderWay | None:
        """The first step that is not complete, should `last` have been completed; None: none is."""
        if last <= self._highest:
            return None
        known = self.under_way()
        return (
            UnderWay(self._highest + 1, self.last_end_ns) if known is None and self._gave else known
        )

    def seen(self, last: int) -> TimedSteps:
        """What some ranks have completed up to that step, and others not."""
        return slowest(self._waiting, last)

    def _take_restore(self) -> RestoreFact | None:
        given, known = self._restore, self._common_restore()
        if given is not None:
            self._restore_changed = self._restore_changed or known != given
            return None
        self._restore = known
        return known

    def _common_restore(self) -> RestoreFact | None:
        known: list[RestoreFact] = []
        for track in self.tracks:
            restore = track.parts[self._part].restore
            if restore is not None:
                known.append(restore)
            elif not self._is_over or not track.is_silent(self._part):
                return None
        if not known:
            return None
        return RestoreFact(
            known[0].attempt,
            min(restore.start_ns for restore in known),
            max(restore.end_ns for restore in known),
            min(restore.step for restore in known),
            max((one.source for one in known if one.source is not None), default=None),
        )

    def _take_rows(self) -> TimedSteps:
        if len(self.tracks) == 1:
            return self.tracks[0].take(self._part)
        for i, track in enumerate(self.tracks):
            new = track.take(self._part)
            if len(new.step):
                self._waiting[i] = joined([w for w in (self._waiting[i], new) if len(w.step)])
        if not self.tracks or not all(len(rows.step) for rows in self._waiting):
            return joined(())
        common = self._waiting[0].step
        for rows in self._waiting[1:]:
            common = _both(common, rows.step)
        if not len(common):
            return joined(())
        aligned = [_select(rows, common) for rows in self._waiting]
        last = int(common[-1])
        self._waiting = [
            rows.cut(int(np.searchsorted(rows.step, last, "right"))) for rows in self._waiting
        ]
        end = aligned[0].end.copy()
        start = aligned[0].start.copy()
        for rows in aligned[1:]:
            np.maximum(end, rows.end, out=end)
            np.minimum(start, rows.start, out=start)
        np.maximum(end, self.last_end_ns, out=end)
        np.maximum.accumulate(end, out=end)
        for leads, rows in zip(self._leads, aligned, strict=True):
            leads.append(Lead(rows.end, end))
        np.maximum(start[1:], end[:-1], out=start[1:])
        start[0] = max(int(start[0]), self.last_end_ns)
        return TimedSteps(common, np.minimum(start, end), end)


def _is_range(steps: Ints) -> bool:
    return int(steps[-1]) - int(steps[0]) + 1 == len(steps)


def _both(left: Ints, right: Ints) -> Ints:
    """Steps in both; each is increasing, and nearly always without a gap."""
    if len(left) and _is_range(left) and _is_range(right):
        first, last = max(left[0], right[0]), min(left[-1], right[-1])
        return left[int(first - left[0]) : max(0, int(last - left[0]) + 1)]
    return np.intersect1d(left, right, assume_unique=True)


def _select(rows: TimedSteps, steps: Ints) -> TimedSteps:
    first = int(np.searchsorted(rows.step, steps[0]))
    if _is_range(rows.step) and _is_range(steps):
        return rows.cut(first, first + len(steps))
    at = np.searchsorted(rows.step, steps)
    return TimedSteps(rows.step[at], rows.start[at], rows.end[at])


@dataclass(slots=True)
class SaveSpans:
    """Of one attempt: spans as its ranks tell them; given back when they are known to count.

    A run steps when its slowest rank does. A rank that has completed a step before the others, and
    copies its state while they still work on that step, keeps nobody waiting yet: its save is time
    of the run only from the run's own end of the step on.
    """

    _waiting: list[tuple[int, ClosedSpans]] = field(default_factory=list)  # (number of the rank, …)
    is_of_one: bool = False
    """Saves were given as those of the only rank: another one would change them."""
    is_last: bool = False
    """Saves were given because no step would follow: another one would change them."""

    def add(self, number: int, rows: ClosedSpans) -> None:
        """Take what the `number`-th of the attempt's ranks has closed."""
        self._waiting.append((number, rows))

    def take(self, steps: AttemptSteps, *, is_over: bool) -> Iterator[ClosedSpans]:
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


def _chosen(rows: ClosedSpans, which: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> ClosedSpans:
    return ClosedSpans(rows.kinds, rows.kind[which], rows.start[which], rows.end[which])


class Opening(NamedTuple):
    """The startup in an attempt's first step, if any, and how long a step takes there."""

    startup: tuple[int, int] | None
    typical_ns: int


class FirstStep:
    """Of one attempt: what its first step took longer than others is the price of starting.

    Whatever had not been needed before happens in it: lazy imports, connections between ranks,
    kernels that are chosen or run for the first time. What is kept of it in the end is one step
    like any other; the rest is STARTUP (where a compilation was recorded, COMPILE: that span began
    later, and shows). A first step that is hardly longer than the others is one of them: steps
    differ. How long those take is seen by the quicker ones: right after a start, standbys that
    import slow others down.
    """

    def __init__(self) -> None:
        self._first: tuple[int, int] | None = None
        self._lengths: list[int] = []
        self._typical_ns = 0  # of these; 0: they are too few
        self.known: Opening | None = None  # as given
        self.is_wrong = False  # by now something else would be given

    def take(self, pieces: list[TimedSteps], before_ns: int, *, is_over: bool) -> Opening | None:
        """What follows, once: when enough steps are known, or there will be no more.

        `before_ns`: how long a step took in the attempts before; 0: nobody knows.
        """
        for rows in pieces:
            self._note(rows.start, rows.end)
        known = self.guess(before_ns) if is_over or len(self._lengths) >= OPENING_STEPS else None
        if self.known is not None:
            self.is_wrong = known != self.known
            return None
        self.known = known
        return known

    def guess(self, before_ns: int) -> Opening | None:
        """What would be given if there were no more steps; None while the first is not done."""
        if self._first is None:
            return None
        typical_ns = self._typical_ns if len(self._lengths) >= FEWEST else before_ns
        start_ns, end_ns = self._first
        is_long = typical_ns > 0 and end_ns - start_ns > _LONG * typical_ns
        return Opening((start_ns, end_ns - typical_ns) if is_long else None, typical_ns)

    def _note(self, start: Ints, end: Ints) -> None:
        if self._first is None and len(start):
            self._first = int(start[0]), int(end[0])
            start, end = start[1:], end[1:]
        wanted = OPENING_STEPS - len(self._lengths)
        if wanted and len(start):
            self._lengths += (end[:wanted] - start[:wanted]).tolist()
            self._typical_ns = int(np.quantile(self._lengths, 0.25, method="lower"))
