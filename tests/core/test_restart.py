"""Restart policies: who gives up when, and how long the others wait."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.exits import ExitCause
from holdfast.core.run.restart import (
    DEFAULT,
    REPEATABLE,
    SECOND_NS,
    BackOff,
    Budget,
    CrashLoop,
    Failure,
    GiveUp,
    HopelessCauses,
    Restart,
    RestartPolicy,
    SameFailure,
    still_judged,
    without_progress,
)

# Ends that somebody else brings about: they say nothing about the program.
FROM_OUTSIDE = (
    ExitCause.PREEMPTED,
    ExitCause.STOPPED,
    ExitCause.HOST_LOST,
    ExitCause.KILLED,
    ExitCause.PEER_LOST,
)


def history(*ends: tuple[ExitCause, str, int], every_s: float = 0) -> list[Failure]:
    """(cause, signature, new steps) of each attempt in a row."""
    failures, reached = [], 0
    for attempt, (cause, signature, steps) in enumerate(ends):
        at_ns = round(attempt * every_s * SECOND_NS)
        is_from_script = cause is ExitCause.USER_ERROR
        failures.append(
            Failure(
                attempt,
                cause,
                signature,
                reached,
                reached + steps,
                at_ns,
                is_from_script=is_from_script,
            )
        )
        reached += steps
    return failures


def decide(policy: RestartPolicy, *ends: tuple[ExitCause, str, int]):
    return policy.decide(history(*ends), 0)


BUG = (ExitCause.USER_ERROR, "failed: ValueError at train.py:41", 0)
BUG_AFTER_STEPS = (*BUG[:2], 90)
OTHER_BUG = (ExitCause.USER_ERROR, "failed: KeyError at data.py:7", 0)
KILL = (ExitCause.KILLED, "killed: SIGKILL", 0)
PREEMPTION = (ExitCause.PREEMPTED, "preempted: exit 75", 0)
OOM = (ExitCause.OUT_OF_MEMORY, "out_of_memory: SIGKILL", 0)


AWAY = (ExitCause.USER_ERROR, "failed: ConnectionError at data.py:7", 0)


def test_a_source_of_data_that_is_away_is_waited_for_within_the_budget():
    decisions = [decide(DEFAULT, *[AWAY] * count)[0] for count in range(1, 11)]
    delays_s = [one.delay_ns // SECOND_NS for one in decisions[:-1] if isinstance(one, Restart)]
    assert len(delays_s) == 9
    assert sum(delays_s) > 500
    assert decisions[-1] == GiveUp()


def test_progress_restarts_at_once():
    decision, reason = decide(DEFAULT, BUG_AFTER_STEPS)
    assert decision == Restart(0)
    assert reason == "attempt 0 made 90 new steps"


def test_the_same_bug_twice_without_progress_gives_up_and_says_where():
    decision, reason = decide(DEFAULT, BUG_AFTER_STEPS, BUG)
    assert decision == GiveUp()
    assert "attempts 0, 1" in reason
    assert "ValueError at train.py:41" in reason
    assert "step 90" in reason


def test_a_kill_in_between_does_not_hide_a_bug():
    assert decide(DEFAULT, BUG, KILL, KILL)[0] != GiveUp()
    assert decide(DEFAULT, BUG, KILL, PREEMPTION, BUG)[0] == GiveUp()


def test_the_same_bug_after_progress_is_another_chance():
    assert decide(DEFAULT, BUG_AFTER_STEPS, BUG_AFTER_STEPS, BUG_AFTER_STEPS)[0] == Restart(0)


def test_two_different_bugs_are_not_the_same():
    assert isinstance(decide(DEFAULT, BUG, OTHER_BUG)[0], Restart)


@pytest.mark.parametrize("cause", FROM_OUTSIDE)
def test_ends_from_outside_are_never_the_programs_bug(cause):
    end = (cause, "the same", 0)
    assert decide(SameFailure(), *[end] * 50) == (Restart(), "")


@pytest.mark.parametrize("cause", REPEATABLE)
def test_what_repeats_itself_gives_up(cause):
    end = (cause, "the same", 0)
    assert decide(SameFailure(), end, end)[0] == GiveUp()
    assert decide(SameFailure(3), end, end)[0] == Restart()


def test_a_hang_at_the_same_place_gets_one_chance_more():
    hung = (ExitCause.HANG, "hang: load (data.py:3)", 0)
    elsewhere = (ExitCause.HANG, "hang: step (train.py:9)", 0)
    assert isinstance(decide(DEFAULT, hung, hung)[0], Restart)
    assert decide(DEFAULT, hung, hung, hung)[0] == GiveUp()
    assert decide(DEFAULT, (*hung[:2], 90), hung, KILL, hung)[0] == GiveUp()
    assert isinstance(decide(DEFAULT, hung, elsewhere, hung)[0], Restart)
    assert isinstance(decide(DEFAULT, hung, hung, (*hung[:2], 1))[0], Restart)


def test_out_of_memory_twice_gives_up():
    assert decide(DEFAULT, OOM)[0] == Restart(SECOND_NS)
    assert decide(DEFAULT, OOM, OOM)[0] == GiveUp()


def test_a_configuration_error_gives_up_at_once():
    decision, reason = decide(DEFAULT, (ExitCause.CONFIGURATION, "configuration: exit 78", 5))
    assert decision == GiveUp()
    assert reason == "starting again cannot help"


def test_the_budget_is_spent_by_failures_without_progress_and_refilled_by_a_step():
    assert isinstance(decide(DEFAULT, *[KILL] * 9)[0], Restart)
    decision, reason = decide(DEFAULT, *[KILL] * 10)
    assert decision == GiveUp()
    assert reason == "10 failures in a row without a new step: the budget of 10 is spent"
    assert isinstance(decide(DEFAULT, *[KILL] * 9, (*KILL[:2], 1), *[KILL] * 9)[0], Restart)


def test_preemptions_are_free():
    assert isinstance(decide(Budget(3), *[PREEMPTION] * 100)[0], Restart)
    assert decide(Budget(3), KILL, PREEMPTION, KILL, PREEMPTION, KILL)[0] == GiveUp()


def test_delays_double_up_to_the_cap():
    policy = BackOff(1, factor=2, cap_s=5)
    delays = [policy.decide(history(*[KILL] * n), 0)[0] for n in range(1, 6)]
    assert delays == [Restart(s * SECOND_NS) for s in (1, 2, 4, 5, 5)]
    assert decide(policy, *[KILL] * 100_000)[0] == Restart(5 * SECOND_NS)


def test_the_longest_delay_wins_and_gives_its_reason():
    both = BackOff(1) | BackOff(7)
    assert both.decide(history(KILL), 0) == (Restart(7 * SECOND_NS), "attempt 0 made no new step")
    assert (BackOff(7) | BackOff(1)).decide(history(KILL), 0)[0] == Restart(7 * SECOND_NS)


def test_a_part_that_has_nothing_to_say_leaves_the_reason_to_another():
    policy = SameFailure() | BackOff()
    assert decide(policy, BUG_AFTER_STEPS)[1].startswith("attempt 0 made 90")
    assert (HopelessCauses() | SameFailure()).decide(history(KILL), 0) == (Restart(), "")


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Budget(0), "budget of 0"),
        (lambda: SameFailure(1), "times is 1"),
        (lambda: CrashLoop(1), "times is 1"),
        (lambda: BackOff(10, cap_s=1), "from 10 s"),
        (lambda: BackOff(factor=0.5), "factor of 0.5"),
    ],
)
def test_impossible_settings_are_named(make, words):
    with pytest.raises(ValueError, match=words):
        make()


# --- a crash loop: progress does not end it ----------------------------------------------------


def looped(*ends: tuple[ExitCause, str, int], every_s: float = 30) -> tuple[object, str]:
    failures = history(*ends, every_s=every_s)
    return (BackOff() | CrashLoop()).decide(failures, failures[-1].at_ns)


def test_the_same_failure_again_and_again_costs_longer_and_longer_waits_whatever_the_progress():
    delays = [looped(*[BUG_AFTER_STEPS] * n)[0] for n in range(1, 12)]
    assert delays[:4] == [Restart(0)] * 4
    assert delays[4:] == [
        Restart(s * SECOND_NS, n) for n, s in enumerate((15, 30, 60, 120, 240, 300, 300), 5)
    ]
    reason = looped(*[BUG_AFTER_STEPS] * 8)[1]
    assert reason == (
        "the script failed 8 times in 3.5 min in the same way (ValueError at train.py:41)"
    )


def test_what_comes_from_outside_is_no_crash_loop_and_does_not_hide_one():
    kill = (*KILL[:2], 9)
    assert looped(*[kill] * 50)[0] == Restart(0)
    assert looped(*[(*OOM[:2], 9)] * 50)[0] == Restart(0)
    assert looped(*[BUG_AFTER_STEPS, kill] * 4)[0] == Restart(0)
    assert looped(*[BUG_AFTER_STEPS, kill] * 4, BUG_AFTER_STEPS)[0] == Restart(15 * SECOND_NS, 5)


def test_failures_of_different_places_or_long_ago_are_no_crash_loop():
    other = (*OTHER_BUG[:2], 9)
    assert looped(*[BUG_AFTER_STEPS] * 4, *[other] * 4)[0] == Restart(0)
    assert looped(*[BUG_AFTER_STEPS] * 50, every_s=1200)[0] == Restart(0)
    assert looped(*[BUG_AFTER_STEPS] * 50, every_s=800)[0] == Restart(15 * SECOND_NS, 5)


def test_a_crash_loop_is_told_also_where_another_part_waits_longer():
    both = BackOff(first_s=100) | CrashLoop(2)
    assert both.decide(history(BUG, BUG), 0)[0] == Restart(200 * SECOND_NS, 2)


ends = st.lists(
    st.tuples(st.sampled_from(ExitCause), st.sampled_from("ab"), st.sampled_from([0, 0, 0, 1, 9])),
    min_size=1,
    max_size=30,
)


@given(ends)
def test_the_default_by_a_plain_reading_of_its_rules(ends):
    failures = history(*ends)
    row = 0  # failures at the end without progress
    while row < len(failures) and not failures[-1 - row].made_progress:
        row += 1
    assert len(without_progress(failures)) == row
    last = failures[-1]
    window = failures[max(0, len(failures) - row - 1) :]
    free = (ExitCause.PREEMPTED, ExitCause.STOPPED)
    gives_up = (
        last.cause is ExitCause.CONFIGURATION
        or (
            row > 0
            and last.cause in REPEATABLE
            and sum(f.signature == last.signature for f in window) >= 2
        )
        or (
            row > 0
            and last.cause is ExitCause.HANG
            and sum(f.signature == last.signature for f in window) >= 3
        )
        or sum(f.cause not in free for f in failures[len(failures) - row :]) >= 10
    )
    decision, reason = DEFAULT.decide(failures, 0)
    assert reason
    if gives_up:
        assert decision == GiveUp()
    else:
        at_once = row == 0 or last.cause is ExitCause.BAD_CHECKPOINT
        expected_s = 0 if at_once else min(300, 2 ** (row - 1))
        alike = sum(f.signature == last.signature and f.cause is last.cause for f in failures)
        if last.cause is not ExitCause.USER_ERROR or alike < 5:
            alike = 0
        else:
            expected_s = max(expected_s, min(300, 15 * 2 ** (alike - 5)))
        assert decision == Restart(expected_s * SECOND_NS, alike)


@given(ends, st.sampled_from([1, 300, 2000]))
def test_what_is_kept_of_the_failures_decides_as_all_of_them_would(ends, every_s):
    kept: tuple[Failure, ...] = ()
    for known in range(1, len(ends) + 1):
        failures = history(*ends[:known], every_s=every_s)
        now_ns = failures[-1].at_ns
        kept = still_judged((*kept, failures[-1]), now_ns - DEFAULT.looks_back_ns)
        assert DEFAULT.decide(kept, now_ns) == DEFAULT.decide(failures, now_ns)


def test_a_run_that_fails_and_gets_on_keeps_one_failure() -> None:
    failures = history(*[(ExitCause.KILLED, "killed: SIGKILL", 1)] * 1000)
    assert still_judged(failures, -1) == (failures[-1],)
