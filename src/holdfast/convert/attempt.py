"""One attempt while its lines are read: what is known of it, and whether a step is its own.

Several processes may write into one log, and some lines say which (a rank, a pod, a thread's
number). A step below the last one is a restart where the process that says it has been further
itself; of a process that was not heard before, it is an echo only while the attempt is young.
"""

from __future__ import annotations

from bisect import insort
from dataclasses import dataclass, field
from enum import Enum

from holdfast.convert.asked import MAX_NS, NS_PER_S
from holdfast.convert.seen import Paused, Restoring, Stepped
from holdfast.core.durations import in_words
from holdfast.core.ledger.facts import DONE

YOUNG_ROWS = 3
MAX_WRITERS = 100_000


class Judged(Enum):
    """What a step line is."""

    NEXT = "next"
    ECHO = "echo"
    RESTART = "restart"


@dataclass(slots=True)
class Attempt:
    """One attempt while its lines are read. `rows` and `paused` are not placed yet."""

    number: int
    floor_ns: int | None  # known start, or the end of the attempt before
    start_ns: int | None  # as far as the log says it
    seen_ns: int | None = None  # the time of the last line
    began_by: dict[str, int | None] = field(default_factory=dict)
    by_writer: dict[str | None, int] = field(default_factory=dict)  # how far each has been
    first: int = 0
    last: int | None = None  # the highest step of its lines
    count: int = 0  # of steps beyond the last
    rows: list[Stepped] = field(default_factory=list)
    paused: list[Paused] = field(default_factory=list)
    after: list[tuple[int, Paused]] = field(default_factory=list)  # by step
    placed: int | None = None  # the last step that is placed
    placed_ns: int | None = None  # its end
    low_ns: int | None = None  # the first of all that is placed
    end_ns: int | None = None  # the last
    line_ns: int | None = None  # of the last step line
    silent_until_ns: int | None = None  # a long silence ended then
    back_ns: int | None = None  # the time of a line that lay before the one before it
    shift_ns: int = 0
    usual_ns: int | None = None  # of a step
    pace_ns: int | None = None  # of a step of the last row
    cause: str | None = None
    restoring: Restoring | None = None
    has_times: bool = False
    new_file: bool = False

    @property
    def over_ns(self) -> int | None:
        """When it was over, as far as known."""
        known = [t for t in (self.end_ns, self.seen_ns, self.start_ns) if t is not None]
        return max(known, default=None)

    @property
    def least_ns(self) -> int:
        """Nothing of it starts before."""
        known = [t for t in (self.floor_ns, self.start_ns) if t is not None]
        return max(known, default=-MAX_NS)

    def reach(self, start_ns: int, end_ns: int) -> None:
        """Something of the attempt lies there."""
        self.low_ns = start_ns if self.low_ns is None else min(self.low_ns, start_ns)
        self.end_ns = end_ns if self.end_ns is None else max(self.end_ns, end_ns)

    def wait(self, after: int, paused: Paused) -> None:
        """Keep a pause right after that step, which is not placed yet."""
        insort(self.after, (after, paused), key=lambda one: one[0])

    def judge(self, step: Stepped) -> Judged:
        """Take note of a step line, and say what it is."""
        own = self.by_writer.get(step.writer)
        if self.last is None or step.last > self.last:
            self.first = step.last if self.last is None else self.first
            self.last = step.last
            self.count += 1
            judged = Judged.NEXT
        elif own is None:
            is_young = self.count <= YOUNG_ROWS and step.last >= self.first
            judged = Judged.ECHO if is_young else Judged.RESTART
        elif step.last > own or (step.last == own and not self._was_repeated(step)):
            judged = Judged.ECHO
        else:
            judged = Judged.RESTART
        is_known = own is not None or len(self.by_writer) < MAX_WRITERS
        if judged is not Judged.RESTART and is_known:
            self.by_writer[step.writer] = step.last
        return judged

    def _was_repeated(self, step: Stepped) -> bool:
        """Whether a step that is told again was done again, too."""
        if self.cause not in (None, DONE) or self.new_file:
            return True
        if step.at_ns is None or self.line_ns is None:
            return False
        took_ns = step.took_ns if step.took_ns is not None else self.pace_ns
        return took_ns is not None and step.at_ns - self.line_ns > max(took_ns, NS_PER_S)

    def why_another(self, step: Stepped, judged: Judged, gap_ns: int) -> str | None:
        """Why this step is another process's than the ones before; None: it is not."""
        if not self.rows and self.placed is None:
            return None
        if judged is Judged.RESTART:
            return "the steps fall back: counted as a restart"
        silence = f"nothing was written for over {in_words(gap_ns)}: counted as a restart (--gap)"
        if self.silent_until_ns is not None:
            return silence
        last = self.rows[-1].last if self.rows else self.placed or 0
        has_time = step.at_ns is not None and self.seen_ns is not None
        if step.at_ns is not None and self.seen_ns is not None:
            pace_ns, took_ns = self.usual_ns or self.pace_ns, step.took_ns
            if took_ns is None and pace_ns is not None:
                took_ns = pace_ns * (step.last - last)
            if took_ns is not None and step.at_ns - self.seen_ns - took_ns > gap_ns:
                return silence
        if self.new_file and not (has_time and step.first in (None, last + 1)):
            return "a new file: counted as a restart"
        return None
