"""What readers saw, one thing after the other → the facts of a history.

Here it is decided where one attempt ends and the next begins. What a log cannot tell (the time in a
queue, why a process went) is left out; what is assumed instead is said.
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.convert.asked import MAX_NS, NS_PER_S, Asked
from holdfast.convert.attempt import Attempt
from holdfast.convert.attempts import Attempts
from holdfast.convert.notes import Notes
from holdfast.convert.seen import (
    About,
    Alive,
    Began,
    Ended,
    NewFile,
    Paused,
    Restored,
    Restoring,
    Seen,
    Stepped,
)
from holdfast.convert.writers import Judged
from holdfast.core.ledger.facts import Fact, RestoreFact, RunFact, SpanFact
from holdfast.core.save.word import MAX_STEP
from holdfast.errors import ConfigurationError

HOLD = 4096  # rows are placed when so many more are known
BACK_NS = NS_PER_S  # clocks that are set right go back by less
SAME_START_NS = 60 * NS_PER_S  # the ranks of one attempt start within it


def _time_of(seen: Seen) -> int | None:
    if isinstance(seen, About | NewFile):
        return None
    return seen.end_ns if isinstance(seen, Paused) else seen.at_ns


class Story:
    """Takes what was seen in the order of the log; yields facts as they are certain.

    `warm_up` is the span kind of what the first steps of a process take too long.
    """

    def __init__(self, asked: Asked, notes: Notes, warm_up: str = "startup") -> None:
        self._asked = asked
        self._notes = notes
        self._attempts = Attempts(asked, notes, warm_up)
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

    def feed(self, seen: Seen) -> Iterator[Fact]:
        """Take the next thing that was seen."""
        if isinstance(seen, NewFile):
            self._new_file(seen)
        elif not self._is_of_another_rank(seen):
            yield from self._take_in(seen)

    def _new_file(self, seen: NewFile) -> None:
        self._file, self._left_out = seen, False
        if self._attempts.now is not None:
            self._attempts.now.new_file = True

    def _is_of_another_rank(self, seen: Seen) -> bool:
        """Whether it stands in a file that was written beside the one before it."""
        at_ns = _time_of(seen)
        if self._file is not None and at_ns is not None:
            steps_end_ns = self._steps_end_ns
            if steps_end_ns is not None and at_ns < steps_end_ns - SAME_START_NS:
                self._left_out = True
                self._notes.odd(
                    self._file.place,
                    "begun while the log before it was written, by another process of the same "
                    "attempt, it seems: left out",
                )
            self._file = None
        return self._left_out

    def _take_in(self, seen: Seen) -> Iterator[Fact]:
        match seen:
            case Stepped():
                yield from self._stepped(seen)
            case Alive():
                self._alive(seen.at_ns)
            case Began():
                yield from self._began(seen)
            case Paused():
                yield from self._paused(seen)
            case Restoring():
                yield from self._restoring(seen)
            case Restored():
                yield from self._restored(seen)
            case Ended():
                self._ended(seen)
            case About():
                self._name = self._name or seen.name
                self._chips = self._chips or seen.chips

    def finish(self) -> Iterator[Fact]:
        """The rest, and the run itself. The notes are complete after it."""
        yield from self._attempts.end()
        clock_ns, first_ns = self._attempts.clock_ns, self._attempts.first_ns
        start_ns = clock_ns if first_ns is None else first_ns
        requested_ns, ended_ns = start_ns, max(clock_ns, start_ns)
        asked, notes = self._asked, self._notes
        if asked.requested_ns is not None:
            if asked.requested_ns > start_ns:
                raise ConfigurationError("--requested is later than the first process of the log")
            requested_ns = asked.requested_ns
        else:
            notes.assume(
                "how long the run was in a queue is not in the log: its time begins with its first "
                "process"
            )
        if asked.end_ns is not None:
            if asked.end_ns < ended_ns:
                raise ConfigurationError("--end is earlier than the last entry of the log")
            ended_ns = asked.end_ns
        else:
            notes.assume("the run is assumed to have ended with the last entry of its log")
        if self._chips is None:
            notes.assume("the number of chips is not known: 1 is written (--chips)")
        yield RunFact(
            self._name or "converted", requested_ns, ended_ns, self._chips or 1, notes.all()
        )

    # -- steps

    def _stepped(self, step: Stepped) -> Iterator[Fact]:
        if not 1 <= step.last <= MAX_STEP or (step.at_ns is not None and abs(step.at_ns) > MAX_NS):
            self._notes.odd(step.place, "a step or a time that cannot be: the line is left out")
            return
        attempt = self._attempts.now or self._attempts.open(None)
        judged = attempt.writers.judge(step.last, step.writer)
        if judged is Judged.AGAIN:
            judged = Judged.RESTART if attempt.was_repeated(step) else Judged.ECHO
        if judged is Judged.ECHO:
            self._notes.odd(step.place, "a step that was there already: the line is left out")
            return
        why = attempt.why_another(step, judged, self._asked.gap_ns)
        if why is not None:
            self._notes.odd(step.place, why)
            start_ns = attempt.silent_until_ns
            yield from self._attempts.close(attempt)
            attempt = self._attempts.open(start_ns)
            attempt.writers.judge(step.last, step.writer)
        timed = self._in_order(attempt, step)
        if timed is None:
            return
        self.steps += 1
        attempt.cause = None
        attempt.new_file = False
        self._take(attempt, timed)
        if len(attempt.rows) >= 2 * HOLD:
            yield from self._attempts.place(attempt, HOLD)

    def _in_order(self, attempt: Attempt, step: Stepped) -> Stepped | None:
        """The step with a time that does not lie before the one before it; None: it has none."""
        at_ns = None if step.at_ns is None else step.at_ns + attempt.shift_ns
        if at_ns is not None and attempt.line_ns is not None and at_ns < attempt.line_ns - BACK_NS:
            if attempt.back_ns is not None and at_ns >= attempt.back_ns:
                attempt.shift_ns += attempt.line_ns - attempt.back_ns
                at_ns += attempt.line_ns - attempt.back_ns
                attempt.back_ns = None
                self._notes.odd(
                    step.place,
                    "the clock was set back: later times of this process are shifted to go on",
                )
            else:
                attempt.back_ns, at_ns = at_ns, None
                self._notes.odd(
                    step.place, "its time lies before that of the step before: it is left out"
                )
        elif at_ns is not None:
            attempt.back_ns = None
        if at_ns is None and step.took_ns is None:
            if step.at_ns is None:
                self._notes.odd(
                    step.place,
                    "a step without a time or a duration: it counts with the next that has one",
                )
            return None
        if at_ns == step.at_ns:
            return step
        return Stepped(step.place, step.last, at_ns, step.took_ns, step.first, step.writer)

    def _take(self, attempt: Attempt, step: Stepped) -> None:
        if step.at_ns is not None:
            attempt.has_times = self.has_times = True
            attempt.seen_ns = max(attempt.seen_ns or step.at_ns, step.at_ns)
            if attempt.rows and attempt.line_ns is not None:
                steps = step.last - attempt.rows[-1].last
                attempt.pace_ns = max(step.at_ns - attempt.line_ns, 0) // max(steps, 1)
            attempt.line_ns = self._steps_end_ns = step.at_ns
        attempt.silent_until_ns = None
        attempt.rows.append(step)

    # -- what else was seen

    def _alive(self, at_ns: int) -> None:
        attempt = self._attempts.now
        if attempt is None or abs(at_ns) > MAX_NS:
            return
        at_ns += attempt.shift_ns
        heard_ns = attempt.seen_ns
        if heard_ns is not None and at_ns - heard_ns > self._asked.gap_ns and attempt.rows:
            pace = attempt.usual_ns or attempt.pace_ns
            if pace is not None and at_ns - heard_ns - pace > self._asked.gap_ns:
                attempt.silent_until_ns = at_ns
        if attempt.silent_until_ns is None and (heard_ns is None or at_ns > heard_ns):
            attempt.seen_ns = at_ns

    def _began(self, began: Began) -> Iterator[Fact]:
        attempt = self._attempts.now
        if attempt is not None and not self._is_another(attempt, began):
            attempt.whats.setdefault(began.what, began.at_ns)
            return
        if attempt is not None:
            yield from self._attempts.close(attempt)
        self._attempts.open(began.at_ns).whats[began.what] = began.at_ns

    def _is_another(self, attempt: Attempt, began: Began) -> bool:
        """Whether this line tells of another process than those of the attempt so far."""
        if attempt.has_steps or began.sure:
            return True
        if began.what not in attempt.whats:
            return False
        if attempt.cause is not None:
            return True
        before_ns, at_ns = attempt.whats[began.what], began.at_ns
        return before_ns is not None and at_ns is not None and at_ns - before_ns > SAME_START_NS

    def _ended(self, ended: Ended) -> None:
        if self._attempts.now is not None:
            self._attempts.now.cause = ended.cause
            if ended.at_ns is not None:
                self._alive(ended.at_ns)

    def _restoring(self, restoring: Restoring) -> Iterator[Fact]:
        if self._attempts.now is not None and self._attempts.now.has_steps:
            yield from self._attempts.close(self._attempts.now)
            self._attempts.open(restoring.at_ns)
        attempt = self._attempts.now or self._attempts.open(restoring.at_ns)
        if attempt.restoring is None:
            attempt.restoring = restoring

    def _restored(self, restored: Restored) -> Iterator[Fact]:
        attempt = self._attempts.now
        restoring = None if attempt is None else attempt.restoring
        if attempt is None or restoring is None or restored.at_ns is None or attempt.has_steps:
            return
        start_ns = restoring.at_ns
        if start_ns is not None and attempt.least_ns <= start_ns <= restored.at_ns <= MAX_NS:
            self._alive(restored.at_ns)
            attempt.reach(start_ns, restored.at_ns)
            yield RestoreFact(attempt.number, start_ns, restored.at_ns, restoring.step)

    def _paused(self, paused: Paused) -> Iterator[Fact]:
        attempt = self._attempts.now or self._attempts.open(None)
        if paused.start_ns is not None and paused.end_ns is not None:
            start_ns = max(paused.start_ns + attempt.shift_ns, attempt.least_ns)
            end_ns = paused.end_ns + attempt.shift_ns
            if start_ns <= end_ns <= MAX_NS:
                attempt.has_times = self.has_times = True
                self._alive(paused.end_ns)
                attempt.reach(start_ns, end_ns)
                yield SpanFact(attempt.number, paused.kind, start_ns, end_ns)
        elif paused.after is not None and len(attempt.after) < 2 * HOLD:
            attempt.waits_for(paused.after, paused)
        elif paused.end_ns is not None and len(attempt.paused) < 2 * HOLD:
            attempt.paused.append(paused)
