"""The learned deadline, one rank's pace, and who is judged hung: tables, and random runs."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import actions as act
from holdfast.core.hang import events as ev
from holdfast.core.hang.deadline import (
    HOUR_NS,
    MINUTE_NS,
    SECOND_NS,
    Experience,
    HangPolicy,
    StepIntervals,
    start_limit,
    step_limit,
    wait_limit,
)
from holdfast.core.hang.judge import Hung, _Held, _held_by, _step, describe, judge, suspect
from holdfast.core.hang.watch import MEMORY_NS, STOPPED_LOOKS, HangWatch
from holdfast.core.run.state import Timer

S, M, H = SECOND_NS, MINUTE_NS, HOUR_NS
AUTO = HangPolicy(floor_ns=M)
NOTHING = Experience()

times = st.integers(0, 10 * H)


# --- the deadline --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("median_ns", "longest_ns", "limit_ns", "why"),
    [
        (0, 0, M, "the least there is"),
        (6 * S, 0, M, "the least there is"),
        (7 * S, 0, 70 * S, "10 × the median step"),
        (1 * S, 20 * S, 80 * S, "4 × the longest pause so far"),
        (10 * S, 20 * S, 100 * S, "10 × the median step"),
        (1 * S, 20 * M, H, "the most there is"),
        (10 * M, 0, H, "the most there is"),
        (20 * M, 20 * M, 80 * M, "the most there is"),
    ],
)
def test_the_deadline_of_a_step(median_ns: int, longest_ns: int, limit_ns: int, why: str) -> None:
    assert step_limit(AUTO, Experience(longest_ns), median_ns) == (limit_ns, why)


@given(median_ns=times, longest_ns=times, patience=st.sampled_from([1, 2, 8]))
def test_the_deadline_leaves_room_and_is_not_for_ever(
    median_ns: int, longest_ns: int, patience: int
) -> None:
    """Not hung: a step as long as any before, as long as that is less than a quarter of an hour."""
    known = Experience(longest_ns, patience=patience)
    limit_ns = step_limit(AUTO, known, median_ns).ns
    assert limit_ns >= AUTO.floor_ns * patience
    assert limit_ns >= 4 * patience * min(longest_ns, 15 * M)
    assert limit_ns >= 4 * patience * median_ns
    assert limit_ns <= max(H, 4 * median_ns) * patience
    longer = step_limit(AUTO, Experience(longest_ns + S, patience=patience), median_ns + S)
    assert longer.ns >= limit_ns


@pytest.mark.parametrize(
    ("known", "limit_ns"),
    [
        (NOTHING, H),
        (Experience(start_ns=10 * S), 5 * M),
        (Experience(start_ns=2 * M), 20 * M),
        (Experience(start_ns=2 * H), H),
        (Experience(start_ns=10 * S, patience=4), 20 * M),
    ],
)
def test_the_deadline_of_the_first_step(known: Experience, limit_ns: int) -> None:
    assert start_limit(AUTO, known).ns == limit_ns


def test_a_deadline_of_the_users_own_holds_for_steps_and_is_not_stretched() -> None:
    known = Experience(longest_ns=H, start_ns=10 * S, patience=8)
    own = HangPolicy(step_ns=2 * S)
    assert step_limit(own, known, 30 * S) == (2 * S, "as set")
    assert start_limit(own, known).ns == 5 * M
    assert start_limit(HangPolicy(step_ns=2 * H), known).ns == 2 * H
    assert wait_limit(HangPolicy(step_ns=H), NOTHING).ns == H


# --- the pace ------------------------------------------------------------------------------------


@given(
    steps=st.lists(st.tuples(st.integers(0, 100), st.integers(0, 100)), min_size=1, max_size=300),
    seen=st.sets(st.integers(0, 300)),
)
def test_the_pace_is_that_of_the_steps_that_were_seen(
    steps: list[tuple[int, int]], seen: set[int]
) -> None:
    """`steps`: (own time, time in spans) of each; only some boundaries are looked at."""
    pace = StepIntervals()
    at_ns, spans_ns = 1, 0
    looks: list[tuple[int, int, int]] = []
    for number, (own_ns, span_ns) in enumerate(steps, 1):
        at_ns, spans_ns = at_ns + own_ns + span_ns, spans_ns + span_ns
        if number in seen:
            looks.append((number, at_ns, spans_ns))
            pace.look(number, at_ns, spans_ns)
            pace.look(number, at_ns, spans_ns)  # nothing new: nothing is measured
    intervals = [
        sum(own for own, _ in steps[before[0] : after[0]])
        for before, after in itertools.pairwise(looks)
    ]
    assert pace.samples == len(intervals)
    assert pace.take_longest_ns() == max(intervals, default=0)
    assert pace.take_longest_ns() == 0
    recent = intervals[-256:]
    assert pace.median_ns == (statistics.median_low(recent) if recent else 0)


def test_a_suspended_step_is_not_measured() -> None:
    pace = StepIntervals()
    pace.look(0, 0, 0)  # before the first step there is nothing
    pace.look(1, 10, 0)
    pace.forget()
    pace.look(2, 10_000, 0)
    assert pace.samples == 0
    pace.look(3, 10_010, 0)
    assert (pace.samples, pace.median_ns, pace.take_longest_ns()) == (1, 10, 10)


# --- the judge -----------------------------------------------------------------------------------


def look(rank: int = 0, **how: Any) -> ev.RankLook:
    """A rank that has taken steps of a second, the last of them, 50, at 100 s."""
    told = {"doing": ev.TRAINING, "step": 50, "step_ns": 100 * S, "process": "S"}
    return ev.RankLook(rank, **{**told, "samples": 40, "median_ns": S, **how})


def judged(
    looks: Sequence[ev.RankLook], at_ns: int, *, not_before_ns: int = 0, **stopped_ns: int
) -> tuple[tuple[Hung, ...], int | None]:
    """`rank_0=…`: since when it was found stopped."""
    since_ns = {int(name.removeprefix("rank_")): ns for name, ns in stopped_ns.items()}
    return judge(
        looks, AUTO, NOTHING, at_ns=at_ns, not_before_ns=not_before_ns, stopped_ns=since_ns
    )


def hung(*looks: ev.RankLook, at_s: float, not_before_s: int = 0, **stopped_s: int) -> list[int]:
    stopped_ns = {name: since_s * S for name, since_s in stopped_s.items()}
    found, _ = judged(looks, round(at_s * S), not_before_ns=not_before_s * S, **stopped_ns)
    return [one.look.rank for one in found]


CASES: dict[str, tuple[tuple[ev.RankLook, ...], float, list[int]]] = {
    "just in time": ((look(),), 159.9, []),
    "too late": ((look(),), 160, [0]),
    "all of them": ((look(0), look(1)), 160, [0, 1]),
    "one alone": ((look(0, step=90, step_ns=150 * S), look(1)), 160, [1]),
    "a compilation": ((look(span="compile", span_ns=101 * S),), 9999, []),
    "a span of its own": ((look(span="custom", span_ns=101 * S),), 9999, []),
    "after a span": ((look(span_ended_ns=150 * S),), 160, []),
    "long after a span": ((look(span_ended_ns=150 * S),), 210, [0]),
    "another's span": ((look(0), look(1, span="custom", span_ns=1)), 9999, []),
    "after another's span": ((look(0), look(1, span_ended_ns=150 * S)), 160, []),
    "another's span, further on": ((look(0), look(1, step=51, span="custom")), 160, [0]),
    "data": ((look(span="data", span_ns=101 * S),), 1900, []),
    "no data": ((look(span="data", span_ns=101 * S),), 1901, [0]),
    "a debugger": ((look(process="t"),), 9999, []),
    "another's debugger": ((look(0), look(1, process="t")), 9999, []),
    "stopped": ((look(process="T"),), 160, [0]),
    "stopped, and another waits for its save": (
        (look(0, process="T"), look(1, span="save", span_ns=101 * S)),
        160,
        [0],
    ),
    "stopped while it waits for data": (
        (look(process="T", span="data", span_ns=101 * S),),
        160,
        [],
    ),
    "waits for our verdict": ((look(doing=ev.WAITING, span="save"),), 9999, []),
    "loop ended": ((look(doing=ev.LOOP_ENDED, span="save"),), 9999, []),
    "finished": ((look(doing=ev.FINISHED),), 9999, []),
    "an exception that never comes out": ((look(doing=ev.FAILING),), 160, [0]),
    "a plain command": ((ev.RankLook(0, process="S"),), 99999, []),
    "one that never showed itself": ((look(0), ev.RankLook(1, process="S")), 3600, [0, 1]),
    "before the first step": ((look(doing=ev.STARTING, step=0, step_ns=0),), 3599, []),
    "never a first step": ((look(doing=ev.STARTING, step=0, step_ns=0),), 3600, [0]),
    "the first steps": ((look(samples=4),), 3600, []),
    "the first steps, for an hour": ((look(samples=4),), 3700, [0]),
    "the device works": ((look(step_ns=155 * S, awaited_ns=120 * S, behind=10),), 160, []),
    "the device does not": (
        (look(step_ns=155 * S, complete_ns=99 * S, awaited_ns=90 * S, behind=1),),
        163,
        [0],
    ),
    "the device gets on, the host waits": ((look(complete_ns=150 * S),), 160, []),
}


@pytest.mark.parametrize("case", CASES)
def test_who_is_hung(case: str) -> None:
    looks, at_s, expected = CASES[case]
    assert hung(*looks, at_s=at_s) == expected


def test_a_script_that_had_a_session_before_has_hung_while_it_imports() -> None:
    silent = [ev.RankLook(0, process="S"), ev.RankLook(1, process="S")]
    for at_s, expected in ((299, []), (300, [0, 1])):
        found, due_ns = judge(
            silent, AUTO, Experience(start_ns=4 * S), at_ns=at_s * S, not_before_ns=0, stopped_ns={}
        )
        assert [one.look.rank for one in found] == expected
        assert due_ns == 300 * S


def test_no_clock_starts_before_the_launch_or_the_end_of_a_suspension() -> None:
    assert hung(look(), at_s=4000, not_before_s=3950) == []
    assert hung(look(), at_s=4010, not_before_s=3950) == [0]
    assert hung(look(span="data", span_ns=1), at_s=4010, not_before_s=3950) == []


# Whatever it was doing when it was stopped, it does that no more.
STOPPED: dict[str, dict[str, Any]] = {
    "a save": {"span": "save", "span_ns": 101 * S},
    "a wait for data": {"span": "data", "span_ns": 101 * S},
    "a restore": {"span": "restore", "span_ns": 101 * S, "step": 49},
    "a compilation": {"span": "compile", "span_ns": 101 * S},
    "an evaluation": {"span": "custom", "span_ns": 101 * S},
    "waits for our verdict": {"doing": ev.WAITING, "span": "save", "span_ns": 101 * S},
    "saves the last step": {"doing": ev.LOOP_ENDED, "span": "save", "span_ns": 101 * S},
    "waits for no one any more": {"doing": ev.FINISHED},
}


@pytest.mark.parametrize("case", STOPPED)
def test_a_rank_that_is_stopped_has_no_more_time_than_for_a_step(case: str) -> None:
    stopped, waits = look(0, process="T", **STOPPED[case]), look(1, step_ns=910 * S)
    assert hung(stopped, waits, at_s=959.9, rank_0=900) == []
    assert hung(stopped, waits, at_s=960, rank_0=900) == [0]
    assert hung(stopped, at_s=959.9, rank_0=900) == []


def test_a_rank_that_is_stopped_has_no_more_time_than_it_had() -> None:
    waits = look(process="T", span="data", span_ns=101 * S)
    assert hung(waits, at_s=1901, rank_0=1900) == [0]
    assert hung(look(process="T"), at_s=160, rank_0=159) == [0]


looks = st.builds(
    ev.RankLook,
    st.just(0),
    doing=st.sampled_from([ev.STARTING, ev.TRAINING, ev.WAITING, ev.LOOP_ENDED, ev.FAILING, ""]),
    step=st.integers(0, 3),
    step_ns=times,
    complete_ns=times,
    awaited_ns=st.just(0) | times,
    behind=st.integers(0, 64),
    span=st.sampled_from(["", "", "data", "custom"]),
    span_ns=times,
    span_ended_ns=times,
    process=st.sampled_from(["S", "S", "T", "t"]),
    samples=st.integers(0, 9),
    median_ns=times,
)


@given(looks=st.lists(looks, min_size=1, max_size=4), at_ns=times)
def test_what_is_due_is_hung_then_and_not_before(looks: list[ev.RankLook], at_ns: int) -> None:
    """A later look at the same words finds whom an earlier one found; the time told is right."""
    looks = [ev.RankLook(**{**_fields(one), "rank": n}) for n, one in enumerate(looks)]

    def found(now_ns: int) -> list[int]:
        hung, _ = judged(looks, now_ns, **stopped_ns)
        return [one.look.rank for one in hung]

    stopped_ns = {f"rank_{one.rank}": at_ns for one in looks if one.process == "T"}
    _, due_ns = judged(looks, at_ns, **stopped_ns)
    if due_ns is None:
        assert found(10**20) == []
    else:
        assert found(due_ns - 1) == []
        assert found(due_ns) != []
        assert set(found(due_ns)) <= set(found(due_ns + at_ns))


@given(looks=st.lists(looks, min_size=1, max_size=6), not_before_ns=st.just(0) | times)
def test_what_holds_up_a_rank_is_found_as_by_asking_all_that_are_no_further(
    looks: list[ev.RankLook], not_before_ns: int
) -> None:
    held_by = _held_by(looks, not_before_ns)
    for one in looks:
        held = _Held()
        for place, other in enumerate(looks):
            if _step(other) <= _step(one):
                held = held.beside(other, place, not_before_ns)
        assert held_by[_step(one)] == held


def _fields(look: ev.RankLook) -> dict[str, Any]:
    return {name: getattr(look, name) for name in ev.RankLook.__slots__}


# --- the suspect ---------------------------------------------------------------------------------


def named(*looks: ev.RankLook, stacks: tuple[ev.RankStack, ...] = ()) -> int:
    found, _ = judged(looks, 10 * H)
    return suspect(found, stacks).look.rank


def test_the_suspect_is_who_holds_up_the_others() -> None:
    waits = ev.RankStack(0, "all_reduce (train.py:9)", waits_for_others=True)
    assert named(look(0), look(1)) == 0
    assert named(look(0), look(1), stacks=(waits, ev.RankStack(1, "load (data.py:3)"))) == 1
    assert named(look(0), look(1, step=49)) == 1
    assert named(look(0), look(1, step=49), look(2, process="T")) == 2
    assert named(look(0), ev.RankLook(1, process="S")) == 1


def test_the_story() -> None:
    found, _ = judged([look(3)], 165 * S)
    where = (ev.RankStack(3, "load (data.py:3)"),)
    assert describe(found[0], 165 * S, where, ranks=4) == (
        "rank 3 hung: no step after step 50 for 65 s (limit 60 s: the least there is); "
        "in load (data.py:3)"
    )
    found, _ = judged([look(kernel="nfs_wait", process="D")], H)
    assert describe(found[0], H) == (
        "hung: no step after step 50 for 58 min (limit 60 s: the least there is); "
        "its process is in the kernel, not to be interrupted, in nfs_wait"
    )
    found, _ = judged([look(span="data", span_ns=100 * S)], H)
    assert describe(found[0], H).startswith("hung: waiting (data) after step 50 for 58 min (limit")
    found, _ = judged([look(span="custom", process="T")], H, rank_0=H - 65 * S)
    assert describe(found[0], H) == (
        "hung: no sign of life after step 50 for 65 s (limit 60 s: the least there is); "
        "its process is stopped by a signal"
    )


# --- what is remembered --------------------------------------------------------------------------


def examined(watch: HangWatch, at_ns: int, reached: int = 50, **how: Any) -> list[act.Action]:
    event = ev.Examined(at_ns, 0, (look(step_ns=at_ns, **how),))
    return watch.examined(event, gone=(), reached=reached, is_writing=False)


def test_a_look_that_came_when_no_rank_was_left_finds_nothing() -> None:
    watch = HangWatch(AUTO)
    watch.begin(0, 1)
    event = ev.Examined(H, 0, ())
    [timer] = watch.examined(event, gone=(), reached=0, is_writing=False)
    assert isinstance(timer, act.SetTimer)


def test_a_pause_is_remembered_for_half_a_day_at_least_and_not_for_two() -> None:
    watch = HangWatch(AUTO)
    watch.begin(0, 1)
    examined(watch, MEMORY_NS - S, longest_ns=5 * M)
    assert watch.experience.longest_ns == 5 * M
    examined(watch, MEMORY_NS + S, longest_ns=S)
    assert watch.experience.longest_ns == 5 * M
    examined(watch, 2 * MEMORY_NS + S)
    assert watch.experience.longest_ns == S
    examined(watch, 9 * MEMORY_NS)
    assert watch.experience.longest_ns == 0


def test_the_slowest_start_is_remembered() -> None:
    watch = HangWatch(AUTO)
    for launched_ns, took_ns in ((0, 90 * S), (H, 30 * S)):
        watch.begin(launched_ns, 1)
        watch.stepped(launched_ns + took_ns)
        watch.stepped(launched_ns + 9 * M)
    assert watch.experience.start_ns == 90 * S


def hang(watch: HangWatch, at_ns: int, reached: int) -> None:
    watch.begin(at_ns, 1)
    event = ev.Examined(at_ns + 2 * H, 0, (look(step_ns=at_ns),))
    for _ in range(2):  # seems so; is so
        answer = watch.examined(event, gone=(), reached=reached, is_writing=False)
    assert any(isinstance(action, act.Kill) for action in answer)


def test_patience_doubles_with_each_hang_until_the_run_is_past_it() -> None:
    watch = HangWatch(AUTO)
    for times_hung in (1, 2, 3):
        hang(watch, times_hung * 10 * H, reached=50)
        assert watch.experience.patience == 2**times_hung
    examined(watch, 50 * H, reached=50)
    assert watch.experience.patience == 8
    examined(watch, 50 * H + S, reached=51)
    assert watch.experience.patience == 1
    hang(watch, 60 * H, reached=51)
    assert watch.experience.patience == 2


def test_ranks_that_have_left_are_not_judged() -> None:
    watch = HangWatch(AUTO)
    watch.begin(0, 2)
    event = ev.Examined(H, 0, (look(0), look(1, step_ns=H)))
    answer = watch.examined(event, gone=(0,), reached=50, is_writing=False)
    assert answer == [act.SetTimer(Timer.HANG, H + M)]


def test_stacks_that_nobody_waits_for_any_more_are_of_no_use() -> None:
    watch = HangWatch(AUTO)
    watch.begin(0, 1)
    assert watch.collected(ev.StacksCollected(S, 0, ())) == []


def found_stopped(watch: HangWatch, at_s: int, **how: Any) -> list[act.Action]:
    evaluates = {"span": "custom", "span_ns": 101 * S, "process": "T", **how}
    event = ev.Examined(at_s * S, 0, (look(0, **evaluates), look(1)))
    return watch.examined(event, gone=(), reached=50, is_writing=True)


def test_who_is_stopped_in_an_evaluation_is_looked_at_often_and_is_hung() -> None:
    watch = HangWatch(AUTO)
    watch.begin(0, 2)
    (timer,) = found_stopped(watch, 1000)
    assert timer == act.SetTimer(Timer.HANG, 1000 * S + M // STOPPED_LOOKS)
    assert not any(isinstance(one, act.CollectStacks) for one in found_stopped(watch, 1059))
    assert any(isinstance(one, act.CollectStacks) for one in found_stopped(watch, 1060))
    assert any(isinstance(one, act.Kill) for one in found_stopped(watch, 1061))
    assert watch.verdict is not None
    assert watch.verdict.rank == 0


@pytest.mark.parametrize("how", ["continued", "suspended", "begun anew"])
def test_who_was_stopped_only_now_and_then_is_not_hung(how: str) -> None:
    watch = HangWatch(AUTO)
    watch.begin(0, 2)
    found_stopped(watch, 1000)
    if how == "continued":
        found_stopped(watch, 1010, process="S")
    elif how == "suspended":
        watch.suspended(ev.Suspended(1010 * S, S))
    else:
        watch.begin(1010 * S, 2)
    assert all(isinstance(one, act.SetTimer) for one in found_stopped(watch, 1061))
