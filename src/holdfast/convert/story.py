"""What readers saw, one thing after the other → the facts of a history.

Here it is decided where one attempt ends and the next begins. What a log cannot tell (the time in a
queue, why a process went) is left out; what is assumed instead is said.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from holdfast.convert.asked import MAX_NS, NS_PER_S, ConvertOptions
from holdfast.convert.attempt import Attempt, Judged
from holdfast.convert.attempts import LogAttempts
from holdfast.convert.notes import Notes
from holdfast.convert.seen import (
    About,
    Began,
    LogEnded,
    LogEntry,
    NewFile,
    Paused,
    RestoreEnded,
    Restoring,
    Stepped,
)
from holdfast.core.ledger.facts import Fact, RestoreFact, RunFact, SpanFact
from holdfast.core.save.word import MAX_STEP
from holdfast.errors import ConfigurationError

HOLD = 4096  # rows are placed when so many more are known
BACK_NS = NS_PER_S  # clocks that are set right go back by less
SAME_START_NS = 60 * NS_PER_S  # the ranks of one attempt start within it


class LogStory:
    """Takes what was seen in the order of the log; yields facts as they are certain."""

    def __init__(self, asked: ConvertOptions, notes: Notes) -> None:
        self._asked = asked
        self._notes = notes
        self._attempts = LogAttempts(asked, notes)
        self._name: str | None = asked.name
        self._chips: int | None = asked.chips
        self._file: NewFile | None = None  # nothing of it has told a time yet
        self._left_out = False
        self._steps_end_ns: int | None = None
        self.steps = 0
        self.has_times = False

    @property
    def clock_ns(self) -> int:
        """Up to when everything is told."""
        return self._attempts.clock_ns

    def feed(self, seen: LogEntry) -> Iterator[Fact]:
        """Take the next thing that was seen."""
        if isinstance(seen, NewFile):
            self._file, self._left_out = seen, False
            if self._attempts.now is not None:
                self._attempts.now.new_file = True
        elif self._is_of_another_rank(seen):
            return
        match seen:
            case Stepped():
                yield from self._stepped(seen)
            case Began():
                yield from self._began(seen)
            case Paused():
                yield from self._paused(seen)
            case Restoring():
                yield from self._restoring(seen)
            case RestoreEnded():
                yield from self._restored(seen)
            case LogEnded():
                if self._attempts.now is not None:
                    self._attempts.now.cause = seen.cause
                self._alive(seen.at_ns)
            case About():
                self._name = self._name or seen.name
                self._chips = self._chips or seen.chips
                self._alive(seen.at_ns)
            case _:
                self._alive(seen.at_ns)

    def _is_of_another_rank(self, seen: LogEntry) -> bool:
        """Whether it stands in a file that was written beside the one before it."""
        if self._file is not None and seen.at_ns is not None:
            end_ns = self._steps_end_ns
            self._left_out = end_ns is not None and seen.at_ns < end_ns - SAME_START_NS
            if self._left_out:
                self._notes.odd(
                    self._file.place,
                    "begun while the log before it was written, by another process of the same "
                    "attempt, it seems: left out",
                )
            self._file = None
        return self._left_out

    def finish(self) -> Iterator[Fact]:
        """The rest, and the run itself. The notes are complete after it."""
        yield from self._attempts.end()
        asked, notes = self._asked, self._notes
        first_ns = self._attempts.first_ns
        start_ns = self.clock_ns if first_ns is None else first_ns
        end_ns = max(self.clock_ns, start_ns)
        if asked.requested_ns is None:
            notes.assume(
                "how long the run was in a queue is not in the log: its time begins with its first "
                "process"
            )
        elif asked.requested_ns > start_ns:
            raise ConfigurationError("--requested is later than the first process of the log")
        if asked.end_ns is None:
            notes.assume("the run is assumed to have ended with the last entry of its log")
        elif asked.end_ns < end_ns:
            raise ConfigurationError("--end is earlier than the last entry of the log")
        if self._chips is None:
            notes.assume("the number of chips is not known: 1 is written (--chips)")
        yield RunFact(
            self._name or "converted",
            start_ns if asked.requested_ns is None else asked.requested_ns,
            end_ns if asked.end_ns is None else asked.end_ns,
            self._chips or 1,
            notes.all(),
        )

    def _stepped(self, step: Stepped) -> Iterator[Fact]:
        if not 1 <= step.last <= MAX_STEP or abs(step.at_ns or 0) > MAX_NS:
            self._notes.odd(step.place, "a step or a time that cannot be: the line is left out")
            return
        attempt = self._attempts.now or self._attempts.open(None)
        judged = attempt.judge(step)
        if judged is Judged.ECHO:
            self._notes.odd(step.place, "a step that was there already: the line is left out")
            return
        why = attempt.why_another(step, judged, self._asked.gap_ns)
        if why is not None:
            self._notes.odd(step.place, why)
            yield from self._attempts.close(attempt)
            attempt = self._attempts.open(attempt.silent_until_ns)
            attempt.judge(step)
        at_ns = self._in_order(attempt, step)
        if at_ns is None and step.took_ns is None:
            return
        step = step if at_ns == step.at_ns else replace(step, at_ns=at_ns)
        self.steps += 1
        attempt.cause, attempt.new_file, attempt.silent_until_ns = None, False, None
        if step.at_ns is not None:
            attempt.has_times = self.has_times = True
            attempt.seen_ns = max(attempt.seen_ns or step.at_ns, step.at_ns)
            if attempt.rows and attempt.line_ns is not None:
                steps = step.last - attempt.rows[-1].last
                attempt.pace_ns = max(step.at_ns - attempt.line_ns, 0) // max(steps, 1)
            attempt.line_ns = self._steps_end_ns = step.at_ns
        attempt.rows.append(step)
        if len(attempt.rows) >= 2 * HOLD:
            yield from self._attempts.place(attempt, HOLD)

    def _in_order(self, attempt: Attempt, step: Stepped) -> int | None:
        """The step's time, if it does not lie before that of the step before."""
        if step.at_ns is None:
            if step.took_ns is None:
                self._notes.odd(
                    step.place,
                    "a step without a time or a duration: it counts with the next that has one",
                )
            return None
        at_ns = step.at_ns + attempt.shift_ns
        if attempt.line_ns is None or at_ns >= attempt.line_ns - BACK_NS:
            attempt.back_ns = None
            return at_ns
        if attempt.back_ns is None or at_ns < attempt.back_ns:
            attempt.back_ns = at_ns
            self._notes.odd(
                step.place, "its time lies before that of the step before: it is left out"
            )
            return None
        shift_ns, attempt.back_ns = attempt.line_ns - attempt.back_ns, None
        attempt.shift_ns += shift_ns
        self._notes.odd(
            step.place, "the clock was set back: later times of this process are shifted to go on"
        )
        return at_ns + shift_ns

    def _alive(self, at_ns: int | None) -> None:
        attempt = self._attempts.now
        if attempt is None or at_ns is None or abs(at_ns) > MAX_NS:
            return
        at_ns += attempt.shift_ns
        heard_ns, gap_ns = attempt.seen_ns, self._asked.gap_ns
        if heard_ns is not None and at_ns - heard_ns > gap_ns and attempt.rows:
            pace_ns = attempt.usual_ns or attempt.pace_ns
            if pace_ns is not None and at_ns - heard_ns - pace_ns > gap_ns:
                attempt.silent_until_ns = at_ns
        if attempt.silent_until_ns is None and (heard_ns is None or at_ns > heard_ns):
            attempt.seen_ns = at_ns

    def _began(self, began: Began) -> Iterator[Fact]:
        attempt = self._attempts.now
        if attempt is not None and not self._is_another(attempt, began):
            attempt.began_by.setdefault(began.what, began.at_ns)
            return
        if attempt is not None:
            yield from self._attempts.close(attempt)
        self._attempts.open(began.at_ns).began_by[began.what] = began.at_ns

    def _is_another(self, attempt: Attempt, began: Began) -> bool:
        """Whether this line tells of another process than those of the attempt so far."""
        if attempt.last is not None or began.sure:
            return True
        if began.what not in attempt.began_by:
            return False
        before_ns, at_ns = attempt.began_by[began.what], began.at_ns
        is_later = before_ns is not None and at_ns is not None and at_ns - before_ns > SAME_START_NS
        return is_later or attempt.cause is not None

    def _restoring(self, restoring: Restoring) -> Iterator[Fact]:
        attempt = self._attempts.now
        if attempt is not None and attempt.last is not None:
            yield from self._attempts.close(attempt)
        attempt = self._attempts.now or self._attempts.open(restoring.at_ns)
        attempt.restoring = attempt.restoring or restoring

    def _restored(self, restored: RestoreEnded) -> Iterator[Fact]:
        attempt = self._attempts.now
        if attempt is None or attempt.restoring is None or attempt.last is not None:
            return
        start_ns, end_ns = attempt.restoring.at_ns, restored.at_ns
        if start_ns is None or end_ns is None:
            return
        if attempt.least_ns <= start_ns <= end_ns <= MAX_NS:
            self._alive(end_ns)
            attempt.reach(start_ns, end_ns)
            yield RestoreFact(attempt.number, start_ns, end_ns, attempt.restoring.step)

    def _paused(self, paused: Paused) -> Iterator[Fact]:
        attempt = self._attempts.now or self._attempts.open(None)
        if paused.at_ns is None:
            if paused.after is not None and len(attempt.after) < 2 * HOLD:
                attempt.wait(paused.after, paused)
        elif paused.start_ns is None:
            if len(attempt.paused) < 2 * HOLD:
                attempt.paused.append(paused)
        else:
            start_ns = max(paused.start_ns + attempt.shift_ns, attempt.least_ns)
            end_ns = paused.at_ns + attempt.shift_ns
            if start_ns <= end_ns <= MAX_NS:
                attempt.has_times = self.has_times = True
                self._alive(paused.at_ns)
                attempt.reach(start_ns, end_ns)
                yield SpanFact(attempt.number, paused.kind, start_ns, end_ns)
