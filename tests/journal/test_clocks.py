from __future__ import annotations

import time

from holdfast.journal.clocks import ClockPair, RunClock, boot_id, now_ns, read_clock_pair


def test_a_pair_is_two_clocks_at_one_instant():
    before_boot, before_unix = now_ns(), time.time_ns()
    pair = read_clock_pair()
    assert before_boot <= pair.boottime_ns <= now_ns()
    assert before_unix <= pair.unix_ns <= time.time_ns()


def test_a_boot_has_one_anchor_whatever_its_wall_clock_does():
    clock = RunClock()
    clock.learn("a", ClockPair(2000, 5_002_000))
    clock.learn("a", ClockPair(1000, 9_001_000))  # earlier; the wall clock was set in between
    clock.learn("b", ClockPair(70, 100))
    assert clock.offset_ns("a") == 9_000_000
    assert clock.offset_ns("b") == 30
    assert clock.offset_ns("c") is None
    clock.learn("a", ClockPair(1, 2))  # too late: times were mapped already
    assert clock.offset_ns("a") == 9_000_000


def test_now_is_this_boots_clock_where_it_has_a_part():
    clock = RunClock()
    before_unix_ns = time.time_ns()
    assert before_unix_ns <= clock.now_ns() <= time.time_ns()
    clock.learn(boot_id(), ClockPair(0, 10**18))
    before_boot_ns = now_ns()
    assert before_boot_ns <= clock.now_ns() - 10**18 <= now_ns()
