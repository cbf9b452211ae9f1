"""What was seen in a log, one thing after the other → the facts of a history.

Here it is decided where one attempt ends and the next begins. What a log cannot tell (the time in a
queue, why a process went) is left out; what is assumed instead is said.

An attempt is placed, closed, and settled once the step is known with which the next one begins:
that tells what it had done last.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import replace

from holdfast.convert.asked import MAX_NS, ConvertOptions
from holdfast.convert.attempt import ECHO, SAME_START_NS, Attempt
from holdfast.convert.notes import LogPlace, Notes
from holdfast.convert.place import place
from holdfast.convert.seen import BAR, Seen
from holdfast.core.durations import SECOND_NS, in_words
from holdfast.core.ledger.facts import (
    DONE,
    AttemptFact,
    Fact,
    RestoreFact,
    RunFact,
    SpanFact,
    StepsFact,
)
from holdfast.core.save.word import MAX_STEP
from holdfast.errors import ConfigurationError

HOLD = 4096  # rows are placed when so many more are known
BACK_NS = SECOND_NS  # clocks that are set right go back by less
UNKNOWN = "unknown"


class LogStory:
    """Takes what was seen in the order of the log; yields facts as they are certain.

    `clock_ns`: up to when everything is told.
    """

    def __init__(self, asked: ConvertOptions, notes: Notes) -> None:
        self._asked = asked
        self._notes = notes
        self._name, self._chips, self._wanted = asked.name, asked.chips, MAX_STEP
        self._file: Seen | None = None  # nothing of it has told a time yet
        self._left_out = False
        self._steps_end_ns: int | None = None
        self._pausing: Seen | None = None  # told in pieces
        self._attempts = 0
        self._first_ns: int | None = None  # when the first one that is closed started
        self._before: Attempt | None = None  # has steps; the next one's first step tells its last
        self._now: Attempt | None = None  # None: between two
        self.clock_ns = asked.start_ns or 0
        self.steps = 0
        self.has_times = False

    def feed(self, seen: Seen) -> Iterator[Fact]:
        """Take the next thing that was seen."""
        attempt = self._now
        if seen.what == "file":
            self._file, self._left_out, self._wanted, self._pausing = seen, False, MAX_STEP, None
            if attempt is not None:
                attempt.is_new_file = True
        elif self._is_of_another_rank(seen):
            return
        elif attempt is not None and attempt.is_past(seen, SAME_START_NS) and seen.what != "step":
            return  # its steps are left out one by one
        match seen.what:
            case "step":
                yield from self._stepped(seen)
            case "began":
                yield from self._began(seen)
            case "pause":
                yield from self._paused(seen)
            case "pause began" | "pause part" | "pause over":
                yield from self._paused_in_parts(seen)
            case "restoring":
                if attempt is not None and attempt.last is not None:
                    yield from self._close(attempt)
                attempt = self._now or self._open(seen.at_ns)
                attempt.restoring = attempt.restoring or seen
            case "restored":
                yield from self._restored(seen)
            case "ended":
                if attempt is not None:
                    attempt.cause = seen.name
            case "about":
                self._name, self._chips = self._name or seen.name, self._chips or seen.chips
                self._wanted = self._wanted if seen.wanted is None else seen.wanted
            case "torn":
                self._notes.odd(
                    seen.place, "a step line that breaks off or is mixed with another: left out"
                )
                return
        if seen.what not in ("step", "began", "pause", "restoring", "restored"):
            self._alive(seen.at_ns)

    def _is_of_another_rank(self, seen: Seen) -> bool:
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
        if self._now is not None:
            yield from self._close(self._now, is_last=True)
        yield from self._settle(None)
        asked, notes = self._asked, self._notes
        start_ns = self.clock_ns if self._first_ns is None else self._first_ns
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

    # --- what was seen ---

    def _stepped(self, seen: Seen) -> Iterator[Fact]:
        if not 1 <= seen.step <= MAX_STEP or abs(seen.at_ns or 0) > MAX_NS:
            self._notes.odd(seen.place, "a step or a time that cannot be: the line is left out")
            return
        attempt = self._now or self._open(None)
        judged = attempt.judge(seen)
        if judged is ECHO:
            self._notes.odd(seen.place, "a step that was there already: the line is left out")
            self._alive(seen.at_ns)
            return
        why = attempt.why_another(seen, judged, self._asked.gap_ns)
        if why is not None:
            self._notes.odd(seen.place, why)
            yield from self._close(attempt)
            until_ns = attempt.silent_until_ns
            attempt = self._open(None if until_ns is None else until_ns - attempt.shift_ns)
            attempt.judge(seen)
        if seen.at_ns is None and seen.took_ns is None:
            self._notes.odd(
                seen.place,
                "a step without a time or a duration: it counts with the next that has one",
            )
        seen = self._in_order(attempt, seen)
        if seen.at_ns is None and seen.took_ns is None:
            return
        self.steps += 1
        attempt.cause = DONE if seen.step >= self._wanted else None
        attempt.is_new_file, attempt.silent_until_ns = False, None
        # A clock of whole seconds tells when the first step of a second was over, and only that.
        same_ns = attempt.line_ns if attempt.rows else attempt.began_by.get(BAR)
        is_same = seen.at_ns is not None and seen.at_ns == same_ns
        attempt.held = seen if is_same and seen.took_ns is None else None
        if seen.at_ns is not None:
            attempt.has_times = self.has_times = True
            attempt.seen_ns = max(attempt.seen_ns or seen.at_ns, seen.at_ns)
            if attempt.rows and attempt.line_ns is not None and attempt.held is None:
                steps = seen.step - attempt.rows[-1].step
                attempt.pace_ns = max(seen.at_ns - attempt.line_ns, 0) // max(steps, 1)
            attempt.line_ns = self._steps_end_ns = seen.at_ns
        if attempt.held is None:
            attempt.rows.append(seen)
        if len(attempt.rows) >= 2 * HOLD:
            yield from self._place(attempt, HOLD)

    def _in_order(self, attempt: Attempt, seen: Seen) -> Seen:
        """The step, without its time if that lies before that of the step before."""
        if seen.at_ns is None:
            return seen
        at_ns = attempt.on_clock(seen.at_ns, seen.took_ns)
        before_ns, back_ns, attempt.back_ns = attempt.line_ns, attempt.back_ns, None
        if before_ns is None or at_ns >= before_ns - BACK_NS:
            return replace(seen, at_ns=at_ns) if attempt.shift_ns else seen
        if back_ns is None or at_ns < back_ns:
            attempt.back_ns = at_ns
            self._notes.odd(
                seen.place, "its time lies before that of the step before: it is left out"
            )
            return replace(seen, at_ns=None)
        self._notes.odd(
            seen.place, "the clock was set back: later times of this process are shifted to go on"
        )
        attempt.shift_ns += before_ns - back_ns
        return replace(seen, at_ns=at_ns + before_ns - back_ns)

    def _alive(self, at_ns: int | None) -> None:
        attempt = self._now
        if attempt is None or at_ns is None or abs(at_ns) > MAX_NS:
            return
        at_ns = attempt.on_clock(at_ns)
        heard_ns, pace_ns = attempt.seen_ns, attempt.usual_ns or attempt.pace_ns
        is_told = heard_ns is not None and pace_ns is not None and attempt.rows
        if is_told and at_ns - (heard_ns or 0) - (pace_ns or 0) > self._asked.gap_ns:
            attempt.silent_until_ns = at_ns
        if attempt.silent_until_ns is None and (heard_ns is None or at_ns > heard_ns):
            attempt.seen_ns = at_ns

    def _began(self, seen: Seen) -> Iterator[Fact]:
        attempt = self._now
        if attempt is not None and not self._is_another(attempt, seen):
            attempt.began_by.setdefault(seen.name, seen.at_ns)
            return
        if attempt is not None:
            yield from self._close(attempt)
        self._open(seen.at_ns).began_by[seen.name] = seen.at_ns

    def _is_another(self, attempt: Attempt, seen: Seen) -> bool:
        """Whether this line tells of another process than those of the attempt so far."""
        if attempt.last is not None or seen.is_sure:
            return True
        if seen.name not in attempt.began_by:
            return False
        before_ns, at_ns = attempt.began_by[seen.name], seen.at_ns
        is_later = before_ns is not None and at_ns is not None and at_ns - before_ns > SAME_START_NS
        return is_later or attempt.cause is not None

    def _restored(self, seen: Seen) -> Iterator[Fact]:
        attempt = self._now
        if attempt is None or attempt.restoring is None or attempt.last is not None:
            return
        if attempt.restoring.at_ns is None or seen.at_ns is None:
            return
        start_ns, end_ns = map(attempt.on_clock, (attempt.restoring.at_ns, seen.at_ns))
        if attempt.least_ns <= start_ns <= end_ns <= MAX_NS:
            self._alive(seen.at_ns)
            attempt.reach(start_ns, end_ns)
            yield RestoreFact(attempt.number, start_ns, end_ns, attempt.restoring.step)

    def _paused(self, seen: Seen) -> Iterator[Fact]:
        attempt = self._now or self._open(None)
        if seen.at_ns is None:
            if seen.step >= 0 and len(attempt.after) < 2 * HOLD:
                insort(attempt.after, seen, key=lambda one: one.step)
        elif seen.took_ns is None:
            at_ns = attempt.on_clock(seen.at_ns)
            self._was_busy(attempt, attempt.seen_ns, at_ns)
            if len(attempt.paused) < 2 * HOLD:
                attempt.paused.append(replace(seen, at_ns=at_ns))
        else:
            end_ns = attempt.on_clock(seen.at_ns, seen.took_ns)
            start_ns = max(end_ns - seen.took_ns, attempt.least_ns)
            if start_ns <= end_ns <= MAX_NS:
                attempt.has_times = self.has_times = True
                self._was_busy(attempt, start_ns, end_ns)
                attempt.reach(start_ns, end_ns)
                yield SpanFact(attempt.number, seen.name, start_ns, end_ns)

    def _was_busy(self, attempt: Attempt, start_ns: int | None, end_ns: int) -> None:
        """What the log names is no silence, though other lines broke it before."""
        if start_ns is None or abs(end_ns) > MAX_NS:
            return
        if start_ns < (attempt.silent_until_ns or start_ns) <= end_ns:
            attempt.silent_until_ns = None
        self._alive(start_ns - attempt.shift_ns)
        if attempt.silent_until_ns is None:
            attempt.seen_ns = max(attempt.seen_ns or end_ns, end_ns)

    def _paused_in_parts(self, seen: Seen) -> Iterator[Fact]:
        pause = self._pausing
        if seen.what == "pause began":
            self._pausing = seen
        elif pause is not None and seen.what == "pause part":
            self._pausing = replace(pause, took_ns=(pause.took_ns or 0) + (seen.took_ns or 0))
        elif pause is not None:
            self._pausing, at_ns, took_ns = None, None, pause.took_ns
            if pause.at_ns is not None and seen.at_ns is not None:
                at_ns, took_ns = seen.at_ns, seen.at_ns - pause.at_ns
            if took_ns is not None:
                yield from self._paused(replace(pause, at_ns=at_ns, took_ns=took_ns))

    # --- attempts ---

    def _open(self, start_ns: int | None) -> Attempt:
        """The next attempt; it starts no earlier than the last one ended."""
        floor_ns = self.clock_ns if self._attempts else None
        if floor_ns is None:
            start_ns = self._asked.start_ns if start_ns is None else start_ns
        self._now = Attempt(self._attempts, floor_ns, None)
        if start_ns is not None:
            start_ns = max(self._now.on_clock(start_ns), self._now.least_ns)
            self._now.start_ns = self._now.seen_ns = start_ns
        if self._before is not None:
            self._now.apart, self._now.near = self._before.apart, self._before.placed or 0
        self._attempts += 1
        return self._now

    def _place(self, attempt: Attempt, count: int | None) -> Iterator[Fact]:
        """Facts of the first rows that wait."""
        if not attempt.rows:
            return
        is_first = attempt.placed is None
        rows, spans = place(attempt, count, self.clock_ns, self._asked, self._notes)
        if is_first:
            restoring = attempt.restoring
            yield from self._settle(rows[0].first if restoring is None else restoring.step + 1)
        if not attempt.has_times:
            self._notes.assume(
                "lines without times: steps follow one another, and what passed between "
                "processes, or was not a step, is missing: goodput is an upper bound",
                "no times",
            )
        for row in rows:
            at_ns = row.start_ns
            row_end_ns = at_ns if row.end_ns is None else row.end_ns
            attempt.reach(at_ns, row_end_ns)
            yield row
            while (
                attempt.after and attempt.after[0].step < row.last
            ):  # pauses right before this row
                paused = attempt.after.pop(0)
                end_ns = min(at_ns + (paused.took_ns or 0), row_end_ns)
                yield SpanFact(attempt.number, paused.name, at_ns, end_ns)
                at_ns = end_ns
        for span in spans:
            attempt.reach(span.start_ns, span.start_ns if span.end_ns is None else span.end_ns)
            yield span

    def _close(self, attempt: Attempt, *, is_last: bool = False) -> Iterator[Fact]:
        """No more lines of this attempt will come."""
        if attempt.held is not None:
            attempt.rows.append(attempt.held)
        if attempt.behind_ns:
            self._notes.odd(
                LogPlace(f"attempt {attempt.number}"),
                f"it began {in_words(attempt.behind_ns)} before the last entry of the attempt "
                "before it: the clock of its host is behind by at least that. It counts as begun "
                "right after that entry; the wait is not known, so goodput may be too high",
            )
        yield from self._place(attempt, None)
        over_ns = self.clock_ns if attempt.over_ns is None else attempt.over_ns
        self.clock_ns = max(self.clock_ns, over_ns) if self._attempts > 1 else over_ns
        if attempt.start_ns is None:
            low_ns = over_ns if attempt.low_ns is None else attempt.low_ns
            attempt.start_ns = max(low_ns, attempt.least_ns)
        if self._first_ns is None:
            self._first_ns = attempt.start_ns
        if attempt.cause is None and not is_last:
            attempt.cause = UNKNOWN
        attempt.end_ns = over_ns
        self._now = None
        if attempt.placed is not None:
            self._before = attempt
        else:
            yield AttemptFact(attempt.number, attempt.start_ns, over_ns, attempt.cause)

    def _settle(self, next_first: int | None) -> Iterator[Fact]:
        """The attempt before, now that it is known which step came after it.

        A process logs its last steps late, or never; but what the next one continued was done.
        """
        if self._before is None:
            return
        before, self._before = self._before, None
        start_ns, end_ns, last = before.start_ns or 0, before.end_ns or 0, before.placed or 0
        if next_first is not None and next_first - 1 > last:
            self._notes.odd(
                LogPlace(f"attempt {before.number}"),
                f"steps {last + 1}–{next_first - 1} have no line, but the next attempt goes on "
                "after them: they are counted as done, without any time",
            )
            yield StepsFact(before.number, last + 1, next_first - 1, end_ns, end_ns)
        yield AttemptFact(before.number, start_ns, end_ns, before.cause)
