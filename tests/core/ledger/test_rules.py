"""The rules of docs/reference/history.md on small cases, worked out by hand; both ledgers.

Times are bare numbers of nanoseconds, and the run has one chip, so that kinds can be read off.
"""

from __future__ import annotations

from typing import Any

import pytest
from plain_ledger import account as plain_account

from holdfast.core.ledger.account import Account
from holdfast.core.ledger.facts import (
    AttemptFact,
    CapacityFact,
    Fact,
    FaultFact,
    NoticeFact,
    RestoreFact,
    RunFact,
    SeenFact,
    SpanFact,
    StepsFact,
    WaitFact,
)
from holdfast.core.ledger.incremental import Ledger

S = 10**9


def ask(*facts: Fact, now: int | None = None, window: int | None = None) -> Account:
    """The account, on which both ledgers must agree."""
    ledger = Ledger()
    ledger.add(facts)
    result = ledger.account(now, window)
    assert result == plain_account(facts, now, window)
    return result


def kinds(*facts: Fact, **question: Any) -> dict[str, int]:
    """The kinds that are not zero."""
    return {kind: ns for kind, ns in ask(*facts, **question).kinds.items() if ns}


def run(ended: int | None, requested: int = 0, chips: int = 1) -> RunFact:
    return RunFact("r", requested, ended, chips)


def attempt(start: int, end: int | None, cause: str | None = "done", n: int = 0) -> AttemptFact:
    return AttemptFact(n, start, end, cause)


def step(number: int, start: int, end: int | None, n: int = 0) -> StepsFact:
    return StepsFact(n, number, number, start, end)


def span(start: int, end: int | None, kind: str = "data", n: int = 0) -> SpanFact:
    return SpanFact(n, kind, start, end)


def fault(at: int, detected: int, cause: str = "failed", n: int = 0) -> FaultFact:
    return FaultFact(n, at, detected, cause)


# --- The time line -------------------------------------------------------------------------------


def test_no_run_no_account() -> None:
    for ledger in (Ledger().account, lambda: plain_account([])):
        with pytest.raises(ValueError, match="run fact"):
            ledger()


def test_nothing_but_a_request() -> None:
    result = ask(run(None))
    assert (result.elapsed_ns, result.goodput, result.runtime_goodput) == (0, None, None)
    assert kinds(run(None), now=7) == {"queued": 7}


def test_an_open_run_ends_with_its_last_time_but_not_with_a_deadline() -> None:
    facts = (run(None), attempt(0, None, None), step(1, 0, 5), NoticeFact(6, 99, "gce"))
    assert kinds(*facts) == {"step": 5, "other": 1}
    assert kinds(*facts, now=9) == {"step": 5, "other": 4}


def test_now_opens_what_ends_later() -> None:
    facts = (run(20), attempt(0, 10, "failed"), step(1, 0, 4), step(2, 4, 8), fault(8, 9))
    assert kinds(*facts, now=6) == {"step": 4, "under_way": 2}
    assert ask(*facts, now=6).disruptions == ()
    assert kinds(*facts, now=8) == {"step": 8}
    assert kinds(*facts, now=10) == {"step": 8, "detect": 1, "drain": 1}
    assert kinds(*facts) == {"step": 8, "detect": 1, "drain": 1, "reschedule": 10}


def test_now_cuts_a_row_of_steps_between_its_steps() -> None:
    facts = (run(None), attempt(0, None, None), StepsFact(0, 1, 3, 0, 10))  # ends at 3, 6, 10
    for now, done, ended in [(2, 0, 0), (3, 1, 3), (5, 1, 3), (6, 2, 6), (9, 2, 6), (10, 3, 10)]:
        result = ask(*facts, now=now)
        assert (result.steps_kept, result.productive) == (done, ended), now


def test_nobody_was_left() -> None:
    facts = (run(None), attempt(0, None, None), step(1, 0, 5 * S), SeenFact(30 * S))
    assert ask(*facts, now=90 * S).elapsed_ns == 90 * S  # 60 s are not more than 60 s
    assert ask(*facts, now=90 * S + 1).elapsed_ns == 30 * S
    assert ask(*facts, step(2, 5 * S, 40 * S), now=10**15).elapsed_ns == 40 * S
    closed = (run(99 * S), *facts[1:])
    assert ask(*closed, now=10**15).elapsed_ns == 99 * S


# --- Rule 1 --------------------------------------------------------------------------------------


def test_of_a_wait_that_is_told_again_nothing_counts_but_the_last() -> None:
    """Not even its end as the last time of the file."""
    waits = [WaitFact("backoff", 20, end) for end in (30, None)]
    assert ask(run(None), attempt(0, 20, "preempted"), step(1, 0, 20), *waits).end_ns == 20


def test_gaps() -> None:
    facts = (
        run(60),
        attempt(10, 20, "failed", 0),
        attempt(30, 40, "done", 1),
        attempt(45, 50, None, 2),
    )
    startup = {"startup": 25}
    assert kinds(*facts) == {"queued": 10, "reschedule": 20, "other": 5} | startup
    waits = [WaitFact(kind, at, at + 2) for at in (0, 22, 40, 50)
             for kind in ("queue", "backoff")]  # fmt: skip
    assert kinds(*facts, *waits[:1], *waits[2:3], *waits[4:5], WaitFact("pull", 20, 24)) == {
        "queued": 8, "queued:queue": 2, "reschedule": 16, "reschedule:pull": 2,
        "reschedule:queue": 4, "other": 3,
    } | startup  # fmt: skip
    assert kinds(*facts, *waits[1::2])["backoff"] == 8


# --- Rule 2 --------------------------------------------------------------------------------------


def test_of_overlapping_spans_the_last_started_then_the_shorter_then_the_later_wins() -> None:
    facts = (run(20), attempt(0, 20), step(1, 0, 20))
    assert kinds(*facts, span(2, 12, "save"), span(5, 8, "custom:a")) == {
        "step": 10, "save": 7, "custom:a": 3}  # fmt: skip
    assert kinds(*facts, span(5, 15, "custom:a"), span(2, 12, "save")) == {
        "step": 7, "save": 3, "custom:a": 10}  # fmt: skip
    assert kinds(*facts, span(2, 6, "custom:a"), span(2, 12, "save")) == {
        "step": 10, "save": 6, "custom:a": 4}  # fmt: skip
    assert kinds(*facts, span(2, 6, "save"), span(2, 6, "data")) == {"step": 16, "data": 4}
    assert kinds(*facts, span(2, 6, "data"), span(2, 6, "save")) == {"step": 16, "save": 4}
    late = (run(20), attempt(0, 20), step(1, 12, 20))
    assert kinds(*late, RestoreFact(0, 2, 6, 0), span(3, 9, "data")) == {
        "startup": 2 + 3, "restore": 1, "data": 6, "step": 8}  # fmt: skip


def test_a_span_without_an_end_lasts_until_the_fault_or_the_attempts_end() -> None:
    base = (run(30), attempt(0, 20, "failed"), step(1, 0, 4), span(10, None, "save"))
    assert kinds(*base) == {"step": 4, "drain": 6, "save": 10, "reschedule": 10}
    assert kinds(*base, fault(15, 17)) == {
        "step": 4, "save": 5, "detect": 8, "drain": 3, "reschedule": 10}  # fmt: skip
    assert kinds(*base, span(12, 13)) == {
        "step": 4, "other": 6, "save": 9, "data": 1, "reschedule": 10}  # fmt: skip
    assert kinds(*base[:3], span(16, None, "save"), fault(15, 17)) == {
        "step": 4, "detect": 13, "drain": 3, "reschedule": 10}  # fmt: skip
    assert kinds(run(None), attempt(0, None, None), span(1, None), now=5) == {
        "startup": 1, "data": 4}  # fmt: skip


# --- Rules 3 and 4 -------------------------------------------------------------------------------


def test_a_step_under_way() -> None:
    base = (run(30), step(1, 0, 4), step(2, 6, None))
    assert kinds(*base, attempt(0, 20, "failed")) == {
        "step": 4, "other": 2, "lost": 14, "reschedule": 10}  # fmt: skip
    assert kinds(*base, attempt(0, 20, "failed"), fault(9, 12)) == {
        "step": 4, "other": 2, "lost": 3, "detect": 3, "drain": 8, "reschedule": 10}  # fmt: skip
    assert kinds(*base, attempt(0, None, None)) == {"step": 4, "other": 2, "under_way": 24}
    assert kinds(*base, attempt(0, None, None), fault(9, 12, "hang")) == {
        "step": 4, "other": 2, "under_way": 3, "hang": 3, "drain": 18}  # fmt: skip
    result = ask(*base, attempt(0, 20, "failed"))
    assert (result.lost_steps, result.disruptions[0].lost_ns) == (0, 0)  # it was not completed


def test_what_nothing_covers() -> None:
    base = (run(30), step(1, 3, 5), span(7, 8, "save"))
    assert kinds(*base, attempt(0, 30, "done")) == {
        "startup": 3, "step": 2, "save": 1, "other": 24}  # fmt: skip
    assert kinds(*base, attempt(0, 30, "failed"))["drain"] == 22
    assert kinds(*base, attempt(0, 30, None))["other"] == 24
    assert kinds(*base, attempt(0, 30, "hang"), fault(10, 25, "hang")) == {
        "startup": 3, "step": 2, "other": 2, "save": 1, "hang": 17, "drain": 5}  # fmt: skip


def test_an_attempt_without_a_step_is_startup_until_its_fault() -> None:
    assert kinds(run(10), attempt(0, 10, "failed")) == {"startup": 10}
    assert kinds(run(10), attempt(0, 10, "failed"), span(2, 4, "compile")) == {
        "startup": 8, "compile": 2}  # fmt: skip
    assert kinds(run(10), attempt(0, 10, "failed"), fault(6, 9)) == {
        "startup": 6, "detect": 3, "drain": 1}  # fmt: skip


def test_a_fault_that_a_step_outlived_is_information_only() -> None:
    base = (run(20), attempt(0, 20, "failed"), step(1, 0, 4), step(2, 4, 10))
    assert kinds(*base, fault(4, 5))["drain"] == 10  # a step started at 4: after it
    assert kinds(*base, fault(5, 12)) == {"step": 10, "detect": 2, "drain": 8}
    assert kinds(*base, fault(2, 3), fault(11, 14), fault(15, 16))["detect"] == 4


# --- Rule 5 --------------------------------------------------------------------------------------


def test_capacity_splits_each_chip_nanosecond() -> None:
    facts = (run(10, chips=3), attempt(0, 10), step(1, 0, 10), span(6, 8))
    assert kinds(*facts, CapacityFact(5, 1), CapacityFact(7, 3)) == {
        "step": 3 * 7 + 1, "data": 1 + 3, "reschedule": 2 + 2}  # fmt: skip
    assert kinds(*facts, CapacityFact(0, 0)) == {"reschedule": 30}


def test_a_run_may_have_other_chips_from_a_moment_on() -> None:
    facts = (run(10, chips=3), attempt(2, 8, "failed"), step(1, 2, 8))
    changes = CapacityFact(2, 4, of=6), CapacityFact(7, 8, of=8)
    assert kinds(*facts, *changes) == {
        "queued": 2 * 6,  # it had asked for those that it first had, whatever its line says
        "step": 5 * 4 + 8,
        "reschedule": 5 * 2 + 2 * 8,
    }
    result = ask(*facts, *changes)
    assert (result.chips, result.paid) == (8, 7 * 6 + 3 * 8)
    assert [one.chips for one in result.disruptions] == [8]
    before = ask(*facts, *changes, now=6)
    assert (before.chips, before.paid, before.kinds["reschedule"]) == (6, 6 * 6, 4 * 2)


def test_no_more_chips_work_than_there_are() -> None:
    assert kinds(run(10, chips=2), attempt(0, 10), step(1, 0, 10), CapacityFact(5, 4)) == {
        "step": 20}  # fmt: skip


# --- What was kept -------------------------------------------------------------------------------


def two_lives(*more: Fact) -> tuple[Fact, ...]:
    """Steps 1 to 10 in [0, 100), a crash, then whatever comes from 110 on."""
    return (run(200), attempt(0, 100, "failed", 0), StepsFact(0, 1, 10, 0, 100), *more)


def test_fall_back_keeps_the_parents_steps_up_to_the_resume_step() -> None:
    result = ask(*two_lives(attempt(110, 200, "done", 1), RestoreFact(1, 110, 120, 6),
                            StepsFact(1, 7, 10, 120, 200)))  # fmt: skip
    assert (result.steps_kept, result.lost_steps) == (10, 4)
    disruption = result.disruptions[0]
    assert (disruption.lost_steps, disruption.lost_ns) == (4, 40)
    assert (disruption.downtime_ns, disruption.resumed_ns) == (20, 140)
    assert disruption.waterfall_ns == {"reschedule": 10, "restore": 10, "step": 20}


def test_without_a_restore_line_the_step_number_tells() -> None:
    result = ask(*two_lives(attempt(110, 200, "done", 1), StepsFact(1, 9, 10, 120, 200)))
    assert (result.steps_kept, result.lost_steps) == (10, 2)


def test_from_scratch_keeps_nothing() -> None:
    result = ask(*two_lives(attempt(110, 200, "done", 1), StepsFact(1, 1, 2, 120, 200)))
    assert (result.steps_kept, result.lost_steps) == (2, 10)


def test_from_names_another_parent_than_the_latest() -> None:
    facts = (
        *two_lives(attempt(110, 150, "failed", 1), RestoreFact(1, 110, 120, 5)),
        StepsFact(1, 6, 8, 120, 150),
        attempt(160, 200, "done", 2),
    )
    by_default = ask(*facts, RestoreFact(2, 160, 170, 7))
    assert (by_default.steps_kept, by_default.lost_steps) == (5 + 2, 5 + 1)
    assert [d.lost_steps for d in by_default.disruptions] == [5, 1]
    told = ask(*facts, RestoreFact(2, 160, 170, 7, 0))
    assert (told.steps_kept, told.lost_steps) == (7, 3 + 3)
    # Steps 6 and 7 of attempt 0 were abandoned and taken up again; 8 to 10 left with attempt 1.
    assert [d.lost_steps for d in told.disruptions] == [3, 3]


def test_a_resume_step_is_a_ceiling_for_grandparents() -> None:
    result = ask(
        *two_lives(attempt(110, 120, "failed", 1), RestoreFact(1, 110, 115, 9)),
        attempt(130, 200, "done", 2),
        RestoreFact(2, 130, 140, 4, 1),
        StepsFact(2, 5, 9, 140, 200),
    )
    assert (result.steps_kept, result.lost_steps) == (4 + 5, 6)


def test_what_a_part_throws_away_belongs_to_no_disruption() -> None:
    result = ask(
        run(100),
        attempt(0, 100, "failed"),
        StepsFact(0, 1, 5, 0, 50),
        RestoreFact(0, 50, 60, 2),
        StepsFact(0, 3, 6, 60, 100),
    )
    assert (result.steps_kept, result.lost_steps) == (6, 3)
    assert result.disruptions[0].lost_steps == 0


def test_a_step_number_that_falls_back_is_not_kept_twice() -> None:
    result = ask(run(60), attempt(0, 60), StepsFact(0, 1, 4, 0, 40), StepsFact(0, 3, 4, 40, 60))
    assert (result.steps_kept, result.lost_steps) == (4, 2)


def test_steps_that_left_after_a_done_attempt_belong_to_no_disruption() -> None:
    result = ask(
        run(100),
        attempt(0, 50, "done", 0),
        StepsFact(0, 1, 5, 0, 50),
        attempt(60, 100, "done", 1),
        RestoreFact(1, 60, 70, 3),
        StepsFact(1, 4, 6, 70, 100),
    )
    assert (result.lost_steps, result.disruptions) == (2, ())


def test_a_crash_loop_waits_for_the_first_step_of_a_later_attempt() -> None:
    loop = [attempt(i * 10, i * 10 + 6, "failed", i) for i in range(3)]
    result = ask(run(None), *loop, attempt(30, None, None, 3), now=50)
    assert [d.downtime_ns for d in result.disruptions] == [None] * 3
    assert result.disruptions[1].waterfall_ns == {"startup": 32, "reschedule": 8}
    result = ask(run(None), *loop, attempt(30, None, None, 3), step(1, 35, 40, 3), now=50)
    assert [d.downtime_ns for d in result.disruptions] == [35, 25, 15]
    assert result.disruptions[0].waterfall_ns == {"startup": 23, "reschedule": 12, "step": 5}


def test_a_run_that_ended_before_its_attempts_last_activity_has_no_time_after_it() -> None:
    (result,) = ask(run(3), attempt(0, 9, "failed"), span(4, 4)).disruptions
    assert (result.at_ns, result.waterfall_ns) == (9, {})


def test_a_step_that_a_later_attempt_completed_before_the_request_ends_no_wait() -> None:
    facts = (run(20, 6), attempt(0, 1, "failed"), attempt(2, 20, "done", 1))
    (result,) = ask(*facts, step(1, 3, 4, 1), span(2, 9, "startup", 1)).disruptions
    assert (result.resumed_ns, result.waterfall_ns) == (4, {})


# --- Windows -------------------------------------------------------------------------------------


def test_a_window_cuts_time_and_counts_steps_where_they_end() -> None:
    facts = two_lives(attempt(110, 200, "done", 1), RestoreFact(1, 110, 120, 6),
                      StepsFact(1, 7, 10, 120, 200))  # fmt: skip
    result = ask(*facts, window=125)  # from 75 on: step 8 ends at 80, step 7 at 70
    assert result.start_ns == 75
    assert {k: ns for k, ns in result.kinds.items() if ns} == {
        "lost": 25, "reschedule": 10, "restore": 10, "step": 80}  # fmt: skip
    assert (result.steps_kept, result.lost_steps) == (4, 3)
    assert (result.disruptions[0].lost_steps, result.disruptions[0].lost_ns) == (3, 25)
    assert ask(*facts, window=100).disruptions == ()
    assert ask(*facts, window=10**6) == ask(*facts)


def test_hung_for_most_of_the_window() -> None:
    facts = (run(None), attempt(0, None, None), StepsFact(0, 1, 30, 0, 300 * S),
             fault(300 * S, 1800 * S, "hang"))  # fmt: skip
    result = ask(*facts, now=1800 * S, window=1800 * S)
    assert result.goodput == pytest.approx(300 / 1800)


def test_no_moment_counts_twice_even_if_attempts_overlap() -> None:
    """A history like this is refused; records of two clocks may still come to it."""
    result = kinds(
        run(100),
        attempt(0, 60, "failed", 0),
        StepsFact(0, 1, 6, 0, 60),
        attempt(50, 100, "done", 1),
        StepsFact(1, 7, 10, 50, 90),
    )
    assert result == {"step": 60 + 30, "other": 10}


def test_an_attempt_inside_another_has_no_time_of_its_own() -> None:
    span_outside = span(0, 20, "save", 1)
    attempts = (attempt(0, 10, "done", 0), attempt(5, 6, "done", 1))
    assert kinds(run(30), *attempts, span_outside) == {"startup": 10, "other": 20}
