"""Flushes that are late, and flushes that hang: when which is said of one."""

from __future__ import annotations

import pytest

from holdfast.core import events as ev
from holdfast.core.save.events import SetInBuffer
from holdfast.core.save.flushes import MOST_AT_HAND, FlushWatch

SECOND = 10**9
A, B = SetInBuffer(0, 1, 10, 0), SetInBuffer(0, 2, 20, 1)


def watch(patience_s: int = 300) -> FlushWatch:
    one = FlushWatch(patience_s * SECOND)
    one.begin(0, A)
    return one


@pytest.mark.parametrize(
    ("after_s", "usual_s", "is_next_due", "why"),
    [
        (0.9, 0.1, True, ""),
        (1.0, 0.1, True, "the next checkpoint is due"),
        (4.9, 0.1, False, ""),
        (5.0, 0.1, False, "not done after 5 s"),
        (79.0, 20.0, False, ""),
        (80.0, 20.0, False, "not done after 80 s"),
        (29.0, 0.0, False, ""),
        (30.0, 0.0, False, "not done after 30 s"),
    ],
)
def test_when_one_is_late(after_s: float, usual_s: float, is_next_due: bool, why: str) -> None:
    late = watch().late(round(after_s * SECOND), round(usual_s * SECOND), lambda: is_next_due)
    assert late == why


def test_after_one_that_was_late_the_next_few_do_not_begin_by_giving_way() -> None:
    one = watch()
    runs = []
    for _ in range(7):
        assert one.may_give_way()
        one.late(SECOND, 0, lambda: True)
        runs.append(0)
        while not one.may_give_way():
            runs[-1] += 1
        one.begin(0, B if one.began_ns else A)
    assert runs == [4, 8, 16, 32, 64, 64, MOST_AT_HAND]


def flushing(at_s: int, nbytes: int) -> ev.Flushing:
    return ev.Flushing(at_s * SECOND, 0, 1, 10, nbytes)


def test_one_that_gets_on_is_left_alone_however_long_it_takes() -> None:
    one = watch()
    assert all(not one.hangs(flushing(at_s, at_s), 0) for at_s in range(0, 100_000, 29))


def test_one_that_writes_nothing_is_given_up_and_next_time_later() -> None:
    one = watch()
    begun_s, limits = 0, []
    for _ in range(6):
        at_s = begun_s
        while not (why := one.hangs(flushing(at_s, 7), 0)):
            at_s += 10
        assert "has taken nothing for" in why
        limits.append(at_s - begun_s)
        begun_s = at_s
        one.over(is_durable=False)
        one.begin(begun_s * SECOND, A)
    assert limits == [300, 600, 1200, 2400, 4800, 4800]
    one.over(is_durable=True)
    one.begin(0, B)
    assert one.hangs(flushing(300, 0), 0) == ""


def test_what_is_known_to_be_slow_may_be_silent_for_longer() -> None:
    one = watch()
    assert not any(one.hangs(flushing(at_s, 0), 60 * SECOND) for at_s in range(0, 1200, 30))
    assert one.hangs(flushing(1200, 0), 60 * SECOND)


def test_a_machine_that_slept_has_not_waited() -> None:
    one = watch()
    assert one.hangs(flushing(1, 5), 0) == ""
    assert one.hangs(flushing(80_000, 5), 0) == ""
