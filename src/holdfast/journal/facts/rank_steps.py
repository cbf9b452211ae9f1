"""From one rank's records to its steps: vectorised, and fed a piece at a time.

A rank's track is cut into parts: a restore and the steps after it.
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

NO_INTS: Ints = np.empty(0, np.int64)
# Steps that nobody recorded are made up between those that somebody did, but not without measure:
# a damaged number would cost more memory than there is. In all, so many and so many a record.
_BRIDGED_ALWAYS = 1 << 16
_BRIDGED_PER_RECORD = 8


class TimedSteps(NamedTuple):
    """Completed steps in the order run; times in ns on the run-wide clock."""

    step: Ints
    start: Ints
    end: Ints

    def cut(self, first: int, last: int | None = None) -> TimedSteps:
        """TimedSteps `first` to before `last`."""
        return TimedSteps(self.step[first:last], self.start[first:last], self.end[first:last])


class ClosedSpans(NamedTuple):
    """Spans that have ended; `kind` holds positions in `kinds`, times as in TimedSteps."""

    kinds: list[str]
    kind: Ints
    start: Ints
    end: Ints


class UnderWay(NamedTuple):
    """A step that had begun and is not known to be complete."""

    step: int
    start_ns: int


def joined(pieces: Sequence[TimedSteps]) -> TimedSteps:
    """All pieces as one; no copy of a single one."""
    if len(pieces) == 1:
        return pieces[0]
    if not pieces:
        return TimedSteps(NO_INTS, NO_INTS, NO_INTS)
    return TimedSteps(*(np.concatenate(column) for column in zip(*pieces, strict=True)))


@dataclass(slots=True)
class _Part:
    restore: RestoreFact | None = None
    pieces: list[TimedSteps] = field(default_factory=list)  # dispatched, not taken yet
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
                self._new_part()
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
        part = self._new_part()
        if part.restore is not None:  # read again before any step: one restore, the later choice
            restore = RestoreFact(
                self.attempt, part.restore.start_ns, restore.end_ns, restore.step, restore.source
            )
        part.restore = restore

    def _new_part(self) -> _Part:
        """Another one, but where no step has begun the last."""
        part = self.parts[-1]
        if part.began:
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

    def _extend(self, rows: TimedSteps, continues: npt.NDArray[np.bool_]) -> None:
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

    def _bridge(self, step: int, end_ns: int, rows: TimedSteps, at: int) -> Iterator[TimedSteps]:
        """Steps that were run but not recorded (no space): equal ones between those that were."""
        missing = int(rows.step[at]) - step - 1
        most = _BRIDGED_ALWAYS + _BRIDGED_PER_RECORD * (self._recorded + at) - self._bridged
        if not 0 < missing <= most:
            return
        self._bridged += missing
        edges = np.linspace(end_ns, int(rows.start[at]), missing + 1).astype(np.int64)
        edges[0], edges[-1] = end_ns, rows.start[at]
        yield TimedSteps(np.arange(step + 1, step + 1 + missing), edges[:-1], edges[1:])

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

    def take(self, index: int) -> TimedSteps:
        """Completed steps of a part that were not taken before."""
        part = self.parts[index]
        rows = joined(part.pieces)
        part.pieces = []
        if not len(rows.step):
            return rows
        if not self._reports:
            self._took = True
            return rows
        steps = np.concatenate([NO_INTS, *(step for step, _ in part.completions)])
        times = np.concatenate([NO_INTS, *(time for _, time in part.completions)])
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

    def is_silent(self, index: int) -> bool:
        """Whether the rank has told nothing at all of this part."""
        part = self.parts[index]
        return part.restore is None and not part.began and self.under_way(index) is None

    def under_way(self, index: int) -> UnderWay | None:
        """The first step of this part that had begun and is not complete; the newest part only."""
        if index != len(self.parts) - 1:
            return None
        for piece in self.parts[index].pieces:
            return UnderWay(int(piece.step[0]), int(piece.start[0]))
        return self._under_way


_IS_WALKED = np.zeros(1 << 8, np.bool_)  # by kind
_IS_WALKED[[Kind.STEP_BEGIN, Kind.LOOP_END, Kind.RESTORE]] = True


def _rows(records: Records, offset_ns: int, before_ns: int) -> TimedSteps:
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
    return TimedSteps(records["step"].astype(np.int64), start, end)


def _completed(rows: TimedSteps, steps: Ints, times: Ints, before_ns: int) -> TimedSteps:
    """The rows, ended when the device had completed them too, where that is known."""
    if not len(rows.step):
        return rows
    at = np.minimum(np.searchsorted(steps, rows.step), len(steps) - 1)
    known = np.where(steps[at] == rows.step, times[at], rows.end)
    end = np.maximum.accumulate(np.maximum(np.maximum(known, rows.end), before_ns))
    start = np.maximum(rows.start, before_ns)
    np.maximum(start[1:], end[:-1], out=start[1:])
    return TimedSteps(rows.step, np.minimum(start, end), end)
