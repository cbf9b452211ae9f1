"""One attempt while its lines are read: what is known of it, and whether a step is its own."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from itertools import count

from holdfast.convert.asked import MAX_NS, NS_PER_S
from holdfast.convert.seen import Paused, Restoring, Stepped
from holdfast.convert.writers import Judged, LogWriters
from holdfast.core.durations import in_words
from holdfast.core.ledger.facts import DONE


@dataclass(slots=True)
class Attempt:
    """One attempt while its lines are read."""

    number: int
    floor_ns: int | None  # known start, or the end of the attempt before
    start_ns: int | None  # as far as the log says it
    writers: LogWriters = field(default_factory=LogWriters)
    whats: dict[str, int | None] = field(default_factory=dict)
    rows: list[Stepped] = field(default_factory=list)
    paused: list[Paused] = field(default_factory=list)
    after: list[tuple[int, int, Paused]] = field(default_factory=list)  # a heap, by step
    numbers: Iterator[int] = field(default_factory=count)  # of what is in it
    placed_any: bool = False
    last_step: int | None = None  # of the rows that are placed
    end_ns: int | None = None  # of all that is placed
    rows_end_ns: int | None = None
    low_ns: int | None = None  # the first of all that is placed
    line_ns: int | None = None  # of the last step line
    seen_ns: int | None = None  # of the last line
    silent_until_ns: int | None = None  # a long silence ended then
    back_ns: int | None = None  # the time of a line that lay before the one before it
    shift_ns: int = 0
    usual_ns: int | None = None
    pace_ns: int | None = None  # of the last row
    cause: str | None = None
    restoring: Restoring | None = None
    has_times: bool = False
    new_file: bool = False

    @property
    def has_steps(self) -> bool:
        """Whether a step of it was told."""
        return self.writers.last is not None

    @property
    def over_ns(self) -> int | None:
        """When it was over, as far as known."""
        known = [t for t in (self.end_ns, self.seen_ns, self.start_ns) if t is not None]
        return max(known) if known else None

    @property
    def least_ns(self) -> int:
        """Nothing of it starts before."""
        known = [t for t in (self.floor_ns, self.start_ns) if t is not None]
        return max(known, default=-MAX_NS)

    def reach(self, start_ns: int, end_ns: int) -> None:
        """Something of the attempt lies there."""
        if self.low_ns is None or start_ns < self.low_ns:
            self.low_ns = start_ns
        if self.end_ns is None or end_ns > self.end_ns:
            self.end_ns = end_ns

    def waits_for(self, step: int, paused: Paused) -> None:
        """A pause right after that step, which is not placed yet."""
        heappush(self.after, (step, next(self.numbers), paused))

    def pauses_before(self, step: int) -> Iterator[Paused]:
        """Those that wait for a step before that one; they wait no more."""
        while self.after and self.after[0][0] < step:
            yield heappop(self.after)[2]

    def was_repeated(self, step: Stepped) -> bool:
        """Whether a step that is told again was done again, too."""
        if self.cause not in (None, DONE) or self.new_file:
            return True
        if step.at_ns is None or self.line_ns is None:
            return False
        took_ns = step.took_ns if step.took_ns is not None else self.pace_ns
        return took_ns is not None and step.at_ns - self.line_ns > max(took_ns, NS_PER_S)

    def why_another(self, step: Stepped, judged: Judged, gap_ns: int) -> str | None:
        """Why this step is another process's than the ones before; None: it is not."""
        if not self.rows and not self.placed_any:
            return None
        if judged is Judged.RESTART:
            return "the steps fall back: counted as a restart"
        if self.silent_until_ns is not None:
            return _gap_words(gap_ns)
        at_ns, heard_ns = step.at_ns, self.seen_ns
        if at_ns is not None and heard_ns is not None:
            last = self.rows[-1].last if self.rows else self.last_step or 0
            pace = self.usual_ns or self.pace_ns
            expected = step.took_ns if step.took_ns is not None else None
            if expected is None and pace is not None:
                expected = pace * (step.last - last)
            if expected is not None and at_ns - heard_ns - expected > gap_ns:
                return _gap_words(gap_ns)
        if self.new_file:
            last = self.rows[-1].last if self.rows else self.last_step or 0
            follows = (step.first or step.last) == last + 1 or step.first is None
            if not follows or at_ns is None or heard_ns is None:
                return "a new file: counted as a restart"
        return None


def _gap_words(gap_ns: int) -> str:
    return f"nothing was written for over {in_words(gap_ns)}: counted as a restart (--gap)"
