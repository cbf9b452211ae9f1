from __future__ import annotations

import time

from holdfast.journal.clocks import ClockLink, ClockPair, RunClock, boot_id, now_ns, read_clock_pair


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


def test_a_boot_that_was_compared_goes_by_that_and_not_by_its_wall_clock():
    clock = RunClock()
    clock.learn("a", ClockPair(1000, 9_001_000))
    clock.learn("b", ClockPair(70, 100))
    clock.link(ClockLink("b", "a", 500, 3, order=1))
    assert clock.mapped("a") == (9_000_000, 0, "a")
    assert clock.mapped("b") == (9_000_500, 3, "a")


def test_bounds_add_up_over_the_most_exact_way():
    clock = RunClock()
    clock.learn("a", ClockPair(0, 1_000_000))
    clock.link(ClockLink("b", "a", 500, 40, order=1))
    clock.link(ClockLink("c", "b", 30, 2, order=2))  # measured by a later controller, on b
    clock.link(ClockLink("a", "b", -510, 5, order=2))
    clock.link(ClockLink("c", "a", 700, 900, order=1))
    assert clock.mapped("b") == (1_000_510, 5, "a")
    assert clock.mapped("c") == (1_000_540, 7, "a")
    assert clock.mapped("d") is None


def test_clocks_that_drifted_apart_have_the_bound_that_was_seen():
    clock = RunClock()
    clock.learn("a", ClockPair(0, 1_000_000))
    clock.link(ClockLink("b", "a", 500, 40, order=1))
    clock.link(ClockLink("b", "a", 900, 50, order=1))
    assert clock.mapped("b") == (1_000_500, 350, "a")


def test_what_comes_late_is_told_where_it_would_have_mattered():
    clock = RunClock()
    clock.learn("a", ClockPair(0, 1_000_000))
    clock.learn("b", ClockPair(0, 7))
    clock.learn("c", ClockPair(0, 9))
    assert clock.offset_ns("b") == 7
    assert clock.offset_ns("d") is None
    clock.link(ClockLink("c", "a", 5, 1, order=1))
    assert not clock.is_other()  # nobody has asked for it
    assert clock.offset_ns("c") == 1_000_005
    clock.link(ClockLink("b", "a", 5, 1, order=1))
    assert clock.is_other()
    assert clock.offset_ns("b") == 7
    anew = clock.anew()
    assert anew.offset_ns("b") == 1_000_005
    assert not anew.is_other()
    clock.anew().offset_ns("d")
    late = clock.anew()
    assert late.offset_ns("d") is None
    late.link(ClockLink("d", "a", 6, 1, order=1))
    assert late.offset_ns("d") == 1_000_006
    assert late.is_other()
