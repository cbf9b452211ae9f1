"""Flushes that are late, and flushes that hang: when which is said of one."""

from __future__ import annotations

import pytest

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.save.flushes import MOST_AT_HAND, Flushes, Wanted
from holdfast.core.save.tier_events import SetInBuffer

SECOND = 10**9
A, B = SetInBuffer(0, 1, 10, 0), SetInBuffer(0, 2, 20, 1)


def flush(usual_s: float = 0, patience_s: int = 300) -> Flushes:
    """A is under way since 0, after one that took that long."""
    one = Flushes(patience_s * SECOND)
    if usual_s:
        began_ns = -SECOND * 1000
        one.want(began_ns, Wanted(B, "due"))
        one.ended(committed(began_ns + round(usual_s * SECOND), B))
    one.want(0, Wanted(A, "due"))
    return one


def committed(at_ns: int, kept: SetInBuffer) -> ev.FlushCommitted:
    return ev.FlushCommitted(at_ns, kept.attempt, kept.epoch, kept.step)


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
    assert flush(usual_s).late(round(after_s * SECOND), lambda: is_next_due) == why


def test_one_that_is_urgent_or_nearly_done_is_not_late() -> None:
    one = flush()
    one.flushed(ev.Flushed(SECOND, 0, 0, 1, 10, 1))
    assert one.late(1000 * SECOND, lambda: True) == ""
    one = flush()
    one.want(SECOND, Wanted(A, "SIGTERM", is_urgent=True))
    assert one.late(1000 * SECOND, lambda: True) == ""


def test_after_one_that_was_late_the_next_few_do_not_begin_by_giving_way() -> None:
    one, at_ns = Flushes(), 0
    runs: list[int] = []

    def is_urgent() -> bool:
        (action,) = one.want_as_due(at_ns, A, "due")
        assert isinstance(action, act.Flush)
        return action.urgent

    assert not is_urgent()
    for _ in range(7):
        at_ns += SECOND
        assert one.late(at_ns, lambda: True)
        runs.append(0)
        one.ended(committed(at_ns, A))
        while is_urgent():
            runs[-1] += 1
            one.ended(committed(at_ns, A))
    assert runs == [4, 8, 16, 32, 64, 64, MOST_AT_HAND]


def flushing(at_s: int, nbytes: int) -> ev.Flushing:
    return ev.Flushing(at_s * SECOND, 0, 1, 10, nbytes)


def test_one_that_gets_on_is_left_alone_however_long_it_takes() -> None:
    one = flush()
    assert all(not one.hangs(flushing(at_s, at_s)) for at_s in range(0, 100_000, 29))


def test_one_that_writes_nothing_is_given_up_and_next_time_later() -> None:
    one = flush()
    begun_s, limits = 0, []
    for _ in range(6):
        at_s = begun_s
        while not (why := one.hangs(flushing(at_s, 7))):
            at_s += 10
        assert "has taken nothing for" in why
        limits.append(at_s - begun_s)
        begun_s = at_s
        one.ended(ev.FlushFailed(begun_s * SECOND, 0, 1, 10, why))
        one.want(begun_s * SECOND, Wanted(A, "due"))
    assert limits == [300, 600, 1200, 2400, 4800, 4800]
    one.ended(committed(begun_s * SECOND + 1, A))
    one.want(begun_s * SECOND + 1, Wanted(A, "due"))
    looks = range(begun_s + 10, begun_s + 300, 10)
    assert not any(one.hangs(flushing(at_s, 0)) for at_s in looks)
    assert one.hangs(flushing(begun_s + 310, 0)), "the limit is what it was at first"


def test_what_is_known_to_be_slow_may_be_silent_for_longer() -> None:
    one = flush(usual_s=60)
    assert not any(one.hangs(flushing(at_s, 0)) for at_s in range(0, 1200, 30))
    assert one.hangs(flushing(1200, 0))


def test_a_machine_that_slept_has_not_waited() -> None:
    one = flush()
    assert one.hangs(flushing(1, 5)) == ""
    assert one.hangs(flushing(80_000, 5)) == ""
