"""One attempt while its lines are read: what is known of it, and whether a step is its own.

Several processes may write into one log, and some lines say which (a rank, a pod, a thread's
number). A step below the last one is a restart where the process that says it has been further
itself; of a process that was not heard before, it is an echo only while the attempt is young. What
another process wrote before the last line is an echo: their logs stand one after another.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from holdfast.convert.asked import MAX_NS
from holdfast.convert.seen import Seen
from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.ledger.facts import DONE

SAME_START_NS = 60 * SECOND_NS  # the ranks of one attempt start within it
YOUNG_ROWS = 3
MAX_WRITERS = 100_000
NEXT, ECHO, RESTART = "next", "echo", "restart"  # what a step line is


@dataclass(slots=True)
class Attempt:
    """One attempt while its lines are read. `rows` and `paused` are not placed yet."""

    number: int
    floor_ns: int | None  # known start, or the end of the attempt before
    start_ns: int | None  # as far as the log says it
    seen_ns: int | None = None  # the time of the last line
    began_by: dict[str, int | None] = field(default_factory=dict)
    by_writer: dict[str | None, int] = field(default_factory=dict)  # how far each has been
    leader: str | None = None  # who wrote the highest step
    first: int = 0
    last: int | None = None  # the highest step of its lines
    count: int = 0  # of steps beyond the last
    apart: int = 0  # so many steps usually lie between lines; 0: not known
    near: int = 0  # a step with a line, in this attempt or the one before
    rows: list[Seen] = field(default_factory=list)
    held: Seen | None = None  # it ended in the same second as the row before, or was the first
    paused: list[Seen] = field(default_factory=list)
    after: list[Seen] = field(default_factory=list)  # pauses without a time, by step
    placed: int | None = None  # the last step that is placed
    placed_ns: int | None = None  # its end
    low_ns: int | None = None  # the first of all that is placed
    end_ns: int | None = None  # the last
    line_ns: int | None = None  # of the last step line
    silent_until_ns: int | None = None  # a long silence ended then
    back_ns: int | None = None  # the time of a line that lay before the one before it
    shift_ns: int = 0
    behind_ns: int = 0  # of that, what its first time lay before the floor
    usual_ns: int | None = None  # of a step
    pace_ns: int | None = None  # of a step of the last row
    cause: str | None = None
    restoring: Seen | None = None
    has_times: bool = False
    is_new_file: bool = False

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

    @property
    def _is_over(self) -> bool:
        """Whether a step that is told again must have been done again: lines alone do not say."""
        return self.cause not in (None, DONE) or self.is_new_file

    def reach(self, start_ns: int, end_ns: int) -> None:
        """Something of the attempt lies there."""
        self.low_ns = start_ns if self.low_ns is None else min(self.low_ns, start_ns)
        self.end_ns = end_ns if self.end_ns is None else max(self.end_ns, end_ns)

    def on_clock(self, at_ns: int, took_ns: int | None = None) -> int:
        """The time of a line as it counts, which took so long; a clock may be another host's.

        If the first lies well before the floor, all are shifted so that it lies there.
        """
        if self.seen_ns is None and self.floor_ns is not None:
            behind_ns = self.floor_ns - at_ns
            if behind_ns > SAME_START_NS:
                self.behind_ns, self.shift_ns = behind_ns, behind_ns + (took_ns or 0)
                self.seen_ns = self.floor_ns
        return at_ns + self.shift_ns

    def judge(self, seen: Seen) -> str:
        """Take note of a step line, and say what it is."""
        own = self.by_writer.get(seen.writer)
        judged = ECHO
        if self.last is None or seen.step > self.last:
            self.first = seen.step if self.last is None else self.first
            self.last = seen.step
            self.count += 1
            self.leader = seen.writer
            judged = NEXT
        elif self.is_past(seen):
            pass
        elif own is None:
            is_young = self.count <= YOUNG_ROWS and seen.step >= self.first
            judged = ECHO if is_young else RESTART
        elif seen.step < own or (seen.step == own and self._is_over):
            judged = RESTART
        if judged is not RESTART and (own is not None or len(self.by_writer) < MAX_WRITERS):
            self.by_writer[seen.writer] = seen.step
        return judged

    def is_past(self, seen: Seen, slack_ns: int = 0) -> bool:
        """Whether another process than the one that is ahead wrote it before: its log follows."""
        if seen.writer in (None, self.leader) or seen.at_ns is None or self.seen_ns is None:
            return False
        return seen.at_ns + self.shift_ns < self.seen_ns - slack_ns

    def why_another(self, seen: Seen, judged: str, gap_ns: int) -> str | None:
        """Why this step is another process's than the ones before; None: it is not."""
        if not self.rows and self.placed is None:
            return None
        if judged is RESTART:
            return "the steps fall back: counted as a restart"
        last = self.rows[-1].step if self.rows else self.placed or 0
        is_silent = self.silent_until_ns is not None
        has_time = seen.at_ns is not None and self.seen_ns is not None
        if has_time:
            at_ns, seen_ns = (seen.at_ns or 0) + self.shift_ns, self.seen_ns or 0
            pace_ns, took_ns = self.usual_ns or self.pace_ns, seen.took_ns
            if took_ns is None and pace_ns is not None:
                took_ns = pace_ns * (seen.step - last)
            if took_ns is not None:
                is_late = at_ns - seen_ns - took_ns > gap_ns
                is_silent = is_late or (is_silent and seen.took_ns is None)
        if is_silent:
            return f"nothing was written for over {in_words(gap_ns)}: counted as a restart (--gap)"
        if self.is_new_file and not (has_time and seen.first in (None, last + 1)):
            return "a new file: counted as a restart"
        return None
