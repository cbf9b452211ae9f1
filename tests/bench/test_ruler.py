"""The ruler of the race, on time lines that can be checked by hand: steps of 100 ms."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

RECOVERY = Path(__file__).parents[2] / "bench" / "recovery"
sys.path.append(str(RECOVERY))

from ruler import (  # noqa: E402
    Follower,
    Life,
    Stamps,
    Step,
    account,
    boot_ns,
    recovery,
    undisturbed_step_ns,
)

MS = 1_000_000


def life(rank, after, at_ms, *steps_ms, pid=None, long=100):
    """Steps after `after`, each ending at the given millisecond and `long` of them."""
    steps = [Step(after + 1 + i, (at - long) * MS, at * MS) for i, at in enumerate(steps_ms)]
    return Life(rank, pid or 1000 + at_ms, after, at_ms * MS, steps)


# Four steps, killed at 450, saved after step 2; back at 1000, and two new ones after 3 and 4.
KILLED = [life(0, 0, 0, 100, 200, 300, 400), life(0, 2, 1000, 1100, 1200, 1300, 1400)]


def test_what_a_later_life_did_not_go_on_from_is_lost():
    told = account({0: KILLED}, 0, 1400 * MS)
    assert (told.kept_steps, told.lost_steps) == (6, 2)
    assert told.goodput == pytest.approx(600 / 1400)
    assert told.step_s == pytest.approx(0.1)


def test_steps_that_were_given_up_stay_lost_when_a_third_life_is_past_them():
    third = life(0, 6, 2000, 2100)
    told = account({0: [*KILLED, third]}, 0, 2100 * MS)
    assert (told.kept_steps, told.lost_steps) == (7, 2)


def test_a_fall_back_further_than_the_life_before_loses_that_ones_steps_too():
    third = life(0, 1, 2000, 2100)
    told = account({0: [*KILLED, third]}, 0, 2100 * MS)
    assert (told.kept_steps, told.lost_steps) == (2, 7)


def test_the_first_step_of_a_life_counts_for_no_more_than_a_typical_one():
    slow = Life(0, 1, 0, 0, [Step(1, 0, 900 * MS), Step(2, 900 * MS, 1000 * MS)])
    assert account({0: [slow]}, 0, 1000 * MS).goodput == pytest.approx(0.2)


def test_goodput_goes_by_the_step_of_an_undisturbed_run():
    """Steps that became slower, by a copy inside them say, are no better for it."""
    slow = life(0, 0, 0, *range(125, 1001, 125), long=125)
    told = account({0: [slow]}, 0, 1000 * MS, 100 * MS)
    assert (told.goodput, told.own_goodput) == (pytest.approx(0.8), pytest.approx(1.0))
    calm = {rank: [life(rank, 0, 0, 300, 400, 500, 700, 800)] for rank in (0, 1)}
    assert undisturbed_step_ns(calm) == 100 * MS
    assert undisturbed_step_ns({}) == 0


def test_a_save_between_two_steps_is_not_training():
    saving = Life(0, 1, 0, 0, [Step(1, 0, 100 * MS), Step(2, 300 * MS, 400 * MS)])
    assert account({0: [saving]}, 0, 400 * MS).goodput == pytest.approx(0.5)


def test_only_what_ended_in_the_window_counts_and_only_the_part_inside():
    told = account({0: KILLED[:1]}, 150 * MS, 300 * MS)
    assert told.kept_steps == 2
    assert told.goodput == pytest.approx(150 / 150)


def test_goodput_is_the_mean_of_the_ranks():
    """A survivor that trains on while the other rank is away is paid for what it does."""
    survivor = life(0, 0, 0, *range(100, 1100, 100))
    away = [life(1, 0, 0, 100, 200), life(1, 8, 800, 900, 1000)]
    told = account({0: [survivor], 1: away}, 0, 1000 * MS)
    assert told.goodput == pytest.approx((1.0 + 0.4) / 2)
    assert told.lost_steps == 0


def test_a_rank_that_waits_in_its_step_for_another_one_does_not_train():
    """Rank 1 saves from 100 to 140; rank 0 is in the second step meanwhile, and can only wait."""
    saver = Life(1, 2, 0, 0, [Step(1, 0, 100 * MS), Step(2, 140 * MS, 240 * MS)])
    waits = Life(0, 1, 0, 0, [Step(1, 0, 100 * MS), Step(2, 100 * MS, 240 * MS)])
    told = account({0: [waits], 1: [saver]}, 0, 240 * MS)
    assert told.goodput == pytest.approx(200 / 240)


def test_a_step_that_ranks_do_together_takes_as_long_as_the_slowest():
    """Rank 1 is slower, by 20 and by 40. The first step counts as the median of the second's."""
    fast = Life(0, 1, 0, 0, [Step(1, 0, 100 * MS), Step(2, 130 * MS, 200 * MS)])
    slow = Life(1, 2, 0, 0, [Step(1, 0, 120 * MS), Step(2, 130 * MS, 240 * MS)])
    told = account({0: [fast], 1: [slow]}, 0, 240 * MS)
    assert told.goodput == pytest.approx((90 + 110) / 240)


def test_ranks_that_do_a_step_of_one_number_at_other_times_do_not_wait_for_each_other():
    early, late = life(0, 0, 0, 100, 200), life(1, 0, 500, 600, 700)
    told = account({0: [early], 1: [late]}, 0, 700 * MS)
    assert told.goodput == pytest.approx(200 / 700)


def test_nothing_done_is_nothing_kept():
    assert account({}, 0, MS).goodput == 0
    assert account({0: [life(0, 0, 0)]}, 0, MS).goodput == 0


def test_the_price_of_a_kill():
    seen = recovery({0: KILLED}, 450 * MS)
    assert seen.lost_steps == 2
    assert seen.again_s == pytest.approx(0.65)  # step 3 for the second time
    assert seen.new_s == pytest.approx(0.85)  # step 5, which nobody had done before
    assert seen.whole_s == pytest.approx(0.85)


def test_new_is_what_any_rank_does_first_and_whole_is_when_all_have():
    other = [life(1, 0, 0, 100, 200, 300, 400), life(1, 2, 1000, 1150, 1250, 1350, 1450)]
    seen = recovery({0: KILLED, 1: other}, 450 * MS)
    assert seen.new_s == pytest.approx(0.85)
    assert seen.whole_s == pytest.approx(0.90)


def test_a_step_that_the_survivor_was_in_is_no_recovery():
    """It ends 10 ms after the kill, and what it did is lost with all the rest."""
    hit = [life(0, 0, 0, 100, 200, 300, 400), life(0, 2, 1000, 1100, 1200, 1300, 1400)]
    survivor = [life(1, 0, 0, 100, 200, 300, 400, 460), life(1, 2, 1000, *range(1100, 1600, 100))]
    seen = recovery({0: hit, 1: survivor}, 450 * MS)
    assert seen.new_s == pytest.approx(0.95)  # step 6: step 5 had been reached
    assert seen.lost_steps == 3


def test_a_survivor_that_trains_on_is_a_recovery():
    hit = [life(0, 0, 0, 100, 200), life(0, 6, 800, 900, 1000)]
    survivor = [life(1, 0, 0, 100, 200, 400, 500, 600, 700, 900, 1000)]
    seen = recovery({0: hit, 1: survivor}, 250 * MS)
    assert seen.new_s == pytest.approx(0.15)
    assert seen.whole_s == pytest.approx(0.65)
    assert seen.lost_steps == 0


def test_a_run_that_did_not_come_back_has_no_times():
    seen = recovery({0: KILLED[:1]}, 450 * MS)
    assert (seen.again_s, seen.new_s, seen.whole_s, seen.lost_steps) == (None, None, None, None)


def test_what_came_after_the_next_fault_is_not_this_ones():
    seen = recovery({0: KILLED}, 450 * MS, until_ns=900 * MS)
    assert seen.new_s is None


def test_lines_of_two_ranks_are_read_as_they_come(tmp_path):
    one, two = Stamps(tmp_path, 0), Stamps(tmp_path, 1)
    follower = Follower(tmp_path)
    one.begin(0)
    two.begin(0)
    before_ns = boot_ns()
    one.step(1, before_ns)
    assert follower.read().highest() == 1
    two.step(1, before_ns)
    two.step(2, before_ns)
    assert follower.read().highest() == 2
    assert [len(follower.newest(rank).steps) for rank in (0, 1)] == [1, 2]
    assert follower.newest(0).pid == os.getpid()


def test_half_a_line_is_left_until_it_is_whole(tmp_path):
    Stamps(tmp_path, 0).begin(7)
    path = tmp_path / "rank-00000.jsonl"
    whole = path.read_bytes()
    path.write_bytes(whole[:20])
    follower = Follower(tmp_path)
    assert follower.read().newest(0) is None
    path.write_bytes(whole)
    assert follower.read().newest(0).after == 7


@pytest.mark.real
def test_a_line_is_whole_though_its_writer_is_killed(tmp_path):
    script = (
        f"import os, sys; sys.path.append({str(RECOVERY)!r})\n"
        f"from ruler import Stamps, boot_ns\n"
        f"stamps = Stamps({str(tmp_path)!r}, 0); stamps.begin(0); stamps.step(1, boot_ns())\n"
        "os.kill(os.getpid(), 9)\n"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -9
    assert Follower(tmp_path).read().highest() == 1


def test_a_step_of_a_process_that_never_began_is_an_error(tmp_path):
    Stamps(tmp_path, 0).step(1, 0)
    with pytest.raises(ValueError, match="never began"):
        Follower(tmp_path).read()
