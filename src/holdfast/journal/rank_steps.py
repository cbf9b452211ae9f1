"""From ranks' records to the run's steps: vectorised, and fed a piece at a time.

Each rank's track is cut into parts: a restore and the steps after it. A step of the run is complete
when all ranks have completed it; it ends with the slowest and starts with the first of them, but
not before the run's last step was over.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.core.ledger.facts import RestoreFact
from holdfast.journal.layout import Flag, Kind
from holdfast.journal.reader import Records

Ints = npt.NDArray[np.int64]

_NO_INTS: Ints = np.empty(0, np.int64)
# Steps that nobody recorded are made up between those that somebody did, but not without measure:
# a damaged number would cost more memory than there is. In all, so many and so many a record.
_BRIDGED_ALWAYS = 1 << 16
_BRIDGED_PER_RECORD = 8
# A save is told right after the step that it follows; a poll may come between the two.
_LEADS_KEPT = 256


class Rows(NamedTuple):
    """Completed steps in the order run; times in ns on the run-wide clock."""

    step: Ints
    start: Ints
    end: Ints

    def cut(self, first: int, last: int | None = None) -> Rows:
        """Rows `first` to before `last`."""
        return Rows(self.step[first:last], self.start[first:last], self.end[first:last])


class Lead(NamedTuple):
    """When one rank had completed a step, and when the run had: times in ns, in order."""

    start: Ints
    end: Ints


class UnderWay(NamedTuple):
    """A step that had begun and is not known to be complete."""

    step: int
    start_ns: int


def joined(pieces: Sequence[Rows]) -> Rows:
    """All pieces as one; no copy of a single one."""
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return Rows(_NO_INTS, _NO_INTS, _NO_INTS)
    return Rows(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


@dataclass(slots=True)
class _Part:
    restore: RestoreFact | None = None
    pieces: list[Rows] = field(default_factory=list)  # dispatched, not taken yet
    completions: list[tuple[Ints, Ints]] = field(default_factory=list)  # (step, device time)
    complete: int = 0  # the last step that the device is known to have completed
    began: bool = False  # it has or had steps
    over: bool = False  # the rank has begun another part


class RankTrack:
    """One rank of one attempt: takes its records in order, gives its completed steps.

    A rank that reports completions on the device (COMPLETE records) has completed only what it
    reported, at the times it reported; any other has completed what it dispatched.
    """

    def __init__(self, attempt: int) -> None:
        self.attempt = attempt
        self.parts = [_Part()]
        self.last_ns = 0  # the newest time met
        self.is_wrong = False  # what was taken is no longer what would be
        self._under_way: UnderWay | None = None
        self._continues = False
        self._last_step = 0
        self._last_end_ns = 0
        self._recorded = 0  # STEP records
        self._bridged = 0
        self._reports = False
        self._took = False
        self._completed_ns = 0  # when the last step that was taken was complete on the device

    def consume(self, records: Records, offset_ns: int) -> None:
        """Take the next records; `offset_ns` brings their times onto the run-wide clock."""
        if not len(records):
            return
        kinds = records["kind"]
        self.last_ns = max(self.last_ns, int(records["time"].max()) + offset_ns)
        others = np.flatnonzero(kinds != Kind.STEP)
        # What is rare is walked; what is frequent goes in rows between.
        walked = others[_IS_WALKED[kinds[others]]]
        steps = np.flatnonzero(kinds == Kind.STEP)
        numbers = records["step"][steps]
        back = steps[np.diff(numbers, prepend=self._last_step) <= 0]
        stops = {**dict.fromkeys(back.tolist(), True), **dict.fromkeys(walked.tolist(), False)}
        begin = 0
        for stop in sorted(stops):
            self._take_steps(records[begin:stop], offset_ns)
            begin = stop
            if stops[stop]:
                # Steps that go back without a restore: a part of their own, whatever the reason.
                self._current_part(restarts=True)
                self._continues = False
            else:
                self._take_other(records[stop], offset_ns)
                begin += 1
        self._take_steps(records[begin:], offset_ns)

    def _take_other(self, record: np.void, offset_ns: int) -> None:
        at_ns, step = int(record["time"]) + offset_ns, int(record["step"])
        kind = int(record["kind"])
        if kind == Kind.RESTORE:
            source = (int(record["word"]) >> 16) - 1
            start_ns = min(int(record["value"]) + offset_ns, at_ns)
            self._take_restore(
                RestoreFact(self.attempt, start_ns, at_ns, step, source if source >= 0 else None)
            )
        self._under_way = UnderWay(step, at_ns) if kind == Kind.STEP_BEGIN else None
        self._continues = False

    def _take_restore(self, restore: RestoreFact) -> None:
        part = self._current_part(restarts=True)
        if part.restore is not None:  # read again before any step: one restore, the later choice
            restore = RestoreFact(
                self.attempt, part.restore.start_ns, restore.end_ns, restore.step, restore.source
            )
        part.restore = restore

    def _current_part(self, *, restarts: bool) -> _Part:
        part = self.parts[-1]
        if restarts and part.began:
            part.over = True
            part = _Part()
            self.parts.append(part)
        return part

    def _take_steps(self, records: Records, offset_ns: int) -> None:
        kinds = records["kind"]
        if not (kinds == Kind.STEP).all():
            self._take_completions(records[kinds == Kind.COMPLETE], offset_ns)
            records = records[kinds == Kind.STEP]
        if not len(records):
            return
        rows = _rows(records, offset_ns, self._last_end_ns)
        continues = (records["flags"] & Flag.CONTINUES) != 0
        self._extend(rows, continues)
        self._last_end_ns = int(rows.end[-1])
        last = int(rows.step[-1])
        self._under_way = UnderWay(last + 1, self._last_end_ns) if self._continues else None

    def _extend(self, rows: Rows, continues: npt.NDArray[np.bool_]) -> None:
        part = self.parts[-1]
        gaps = np.flatnonzero(np.diff(rows.step) > 1) + 1
        begin = 0
        if self._continues and rows.step[0] > self._last_step + 1:
            before_ns = min(self._last_end_ns, int(rows.start[0]))
            part.pieces.extend(self._bridge(self._last_step, before_ns, rows, 0))
        for at in gaps.tolist():
            part.pieces.append(rows.cut(begin, at))
            if continues[at - 1]:
                before_ns = int(rows.end[at - 1])
                last_step = int(rows.step[at - 1])
                part.pieces.extend(self._bridge(last_step, before_ns, rows, at))
            begin = at
        part.pieces.append(rows.cut(begin))
        part.began = True
        self._recorded += len(rows.step)
        self._last_step = int(rows.step[-1])
        self._continues = bool(continues[-1])

    def _bridge(self, step: int, end_ns: int, rows: Rows, at: int) -> Iterator[Rows]:
        """Steps that were run but not recorded (no space): equal ones between those that were."""
        missing = int(rows.step[at]) - step - 1
        most = _BRIDGED_ALWAYS + _BRIDGED_PER_RECORD * (self._recorded + at) - self._bridged
        if not 0 < missing <= most:
            return
        self._bridged += missing
        edges = np.linspace(end_ns, int(rows.start[at]), missing + 1).astype(np.int64)
        edges[0], edges[-1] = end_ns, rows.start[at]
        yield Rows(np.arange(step + 1, step + 1 + missing), edges[:-1], edges[1:])

    def _take_completions(self, records: Records, offset_ns: int) -> None:
        if not len(records):
            return
        self.is_wrong = self.is_wrong or (self._took and not self._reports)
        self._reports = True
        part, steps = self.parts[-1], records["step"].astype(np.int64)
        best = np.maximum.accumulate(np.append(part.complete, steps))
        news = steps > best[:-1]  # what comes late is known already
        part.complete = int(best[-1])
        part.completions.append((steps[news], records["time"][news] + offset_ns))

    def take(self, index: int) -> Rows:
        """Completed steps of a part that were not taken before."""
        part = self.parts[index]
        rows = joined(part.pieces)
        part.pieces = []
        if not len(rows.step):
            return rows
        if not self._reports:
            self._took = True
            return rows
        steps = np.concatenate([_NO_INTS, *(step for step, _ in part.completions)])
        times = np.concatenate([_NO_INTS, *(time for _, time in part.completions)])
        done = int(np.searchsorted(rows.step, steps.max(), "right")) if len(steps) else 0
        if done < len(rows.step):
            part.pieces = [rows.cut(done)]
        if done:
            later = steps > rows.step[done - 1]
            part.completions = [(steps[later], times[later])]
        rows = _completed(rows.cut(0, done), steps, times, self._completed_ns)
        if done:
            self._took, self._completed_ns = True, int(rows.end[-1])
        return rows

    def under_way(self, index: int) -> UnderWay | None:
        """The first step of this part that had begun and is not complete; the newest part only."""
        if index != len(self.parts) - 1:
            return None
        for piece in self.parts[index].pieces:
            return UnderWay(int(piece.step[0]), int(piece.start[0]))
        return self._under_way


_IS_WALKED = np.zeros(1 << 8, np.bool_)  # by kind
_IS_WALKED[[Kind.STEP_BEGIN, Kind.LOOP_END, Kind.RESTORE]] = True


def _rows(records: Records, offset_ns: int, before_ns: int) -> Rows:
    """Steps with sane times: none begins before the one before it has ended."""
    end = np.maximum(records["time"] + offset_ns, before_ns)
    if len(end) > 1 and (end[1:] < end[:-1]).any():
        np.maximum.accumulate(end, out=end)
    value = records["value"]
    start = value + offset_ns
    if not value.all():
        start[value == 0] = end[value == 0]  # the start is unknown
    np.minimum(start, end, out=start)
    np.maximum(start[1:], end[:-1], out=start[1:])
    start[0] = min(max(int(start[0]), before_ns), int(end[0]))
    return Rows(records["step"].astype(np.int64), start, end)


def _completed(rows: Rows, steps: Ints, times: Ints, before_ns: int) -> Rows:
    """The rows, ended when the device had completed them too, where that is known."""
    if not len(rows.step):
        return rows
    at = np.minimum(np.searchsorted(steps, rows.step), len(steps) - 1)
    known = np.where(steps[at] == rows.step, times[at], rows.end)
    end = np.maximum.accumulate(np.maximum(np.maximum(known, rows.end), before_ns))
    start = np.maximum(rows.start, before_ns)
    np.maximum(start[1:], end[:-1], out=start[1:])
    return Rows(rows.step, np.minimum(start, end), end)


class AttemptSteps:
    """All ranks of one attempt: gives the steps and restores of the run."""

    def __init__(self) -> None:
        self.tracks: list[RankTrack] = []
        self._gave = False
        self._part = 0
        self.last_end_ns = 0  # of the newest step that was given
        self._waiting: list[Rows] = []  # per rank: completed, but not by all
        self._leads: list[list[Lead]] = []  # per rank
        self._restore: RestoreFact | None = None  # of this part, as given
        self._restore_changed = False

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
        pieces = [Lead(_NO_INTS, _NO_INTS), *self._leads[number]]
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
        """What was told until now was told with them: only the last may matter again."""
        for number in range(len(self.tracks)):
            start, end = self.leads(number)
            kept = Lead(start[-_LEADS_KEPT:].copy(), end[-_LEADS_KEPT:].copy())
            self._leads[number] = [kept]

    def take(self) -> tuple[list[RestoreFact], list[Rows]]:
        """Restores and steps that all ranks have completed since the last call."""
        restores: list[RestoreFact] = []
        steps: list[Rows] = []
        while True:
            if (restore := self._take_restore()) is not None:
                restores.append(restore)
            rows = self._take_rows()
            if len(rows.step):
                self._gave = True
                self.last_end_ns = int(rows.end[-1])
                steps.append(rows)
            if not self.tracks or not all(track.parts[self._part].over for track in self.tracks):
                return restores, steps
            self._waiting = [joined(()) for _ in self.tracks]
            self._part += 1
            self._restore = None

    def under_way(self) -> UnderWay | None:
        """The step of the run that had begun and is not complete."""
        known: list[UnderWay] = []
        for track, waiting in zip(self.tracks, self._waiting, strict=True):
            if len(waiting.step):
                known.append(UnderWay(int(waiting.step[0]), int(waiting.start[0])))
            elif len(track.parts) > self._part:
                known += [u for u in [track.under_way(self._part)] if u is not None]
        if not known:
            return None
        first = min(known)
        return UnderWay(first.step, max(min(u.start_ns for u in known), self.last_end_ns))

    def _take_restore(self) -> RestoreFact | None:
        given, known = self._restore, self._common_restore()
        if given is not None:
            self._restore_changed = self._restore_changed or known != given
            return None
        self._restore = known
        return known

    def _common_restore(self) -> RestoreFact | None:
        restores = [track.parts[self._part].restore for track in self.tracks]
        known = [restore for restore in restores if restore is not None]
        if not known or len(known) < len(restores):
            return None
        return RestoreFact(
            known[0].attempt,
            min(restore.start_ns for restore in known),
            max(restore.end_ns for restore in known),
            min(restore.step for restore in known),
            max((one.source for one in known if one.source is not None), default=None),
        )

    def _take_rows(self) -> Rows:
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
        return Rows(common, np.minimum(start, end), end)


def _is_range(steps: Ints) -> bool:
    return int(steps[-1]) - int(steps[0]) + 1 == len(steps)


def _both(left: Ints, right: Ints) -> Ints:
    """Steps in both; each is increasing, and nearly always without a gap."""
    if len(left) and _is_range(left) and _is_range(right):
        first, last = max(left[0], right[0]), min(left[-1], right[-1])
        return left[int(first - left[0]) : max(0, int(last - left[0]) + 1)]
    return np.intersect1d(left, right, assume_unique=True)


def _select(rows: Rows, steps: Ints) -> Rows:
    first = int(np.searchsorted(rows.step, steps[0]))
    if _is_range(rows.step) and _is_range(steps):
        return rows.cut(first, first + len(steps))
    at = np.searchsorted(rows.step, steps)
    return Rows(rows.step[at], rows.start[at], rows.end[at])
