"""Whom an agent follows, and when it has a controller started."""

from __future__ import annotations

import pytest

from holdfast.core.hosts.succession import (
    BEAT_NS,
    LONGEST_TURN_NS,
    REST_NS,
    SECOND_NS,
    STILL_NS,
    TURN_NS,
    FollowStep,
    LeaseSight,
    Succession,
)
from holdfast.journal.lease import HEARTBEAT_S, SILENT_AFTER_S

FREE = LeaseSight(0, False)
HELD = LeaseSight(1, True)
OVER = LeaseSight(1, False, is_over=True)


def look(succession: Succession, at_ns: int, sight: LeaseSight) -> FollowStep:
    """By who has no link, and has started nothing."""
    return succession.look(at_ns, sight, is_linked=False, is_starting=False)


def starts_ns(index: int) -> int:
    """When a host starts a controller where there never is one, looking every 0.25 s."""
    succession = Succession(index)
    looks = range(0, 200 * SECOND_NS, SECOND_NS // 4)
    return next(at_ns for at_ns in looks if look(succession, at_ns, FREE) is FollowStep.START)


def test_an_agent_gives_up_after_three_controllers_in_a_row_that_end_by_themselves() -> None:
    succession = Succession(0)
    assert [succession.has_failed() for _ in range(3)] == [False, False, True]
    succession = Succession(0)
    for _ in range(5):
        assert not succession.has_failed()
        assert not succession.has_failed()
        succession.has_found_one()


@pytest.mark.parametrize("is_mounted", [True, False])
def test_a_controller_that_ends_while_the_store_is_away_is_no_failure(is_mounted: bool) -> None:
    """Two were killed before, and a third cannot begin: the store comes back, and so does one."""
    succession = Succession(0)
    look(succession, 0, HELD)
    succession.has_failed()
    succession.has_failed()
    if is_mounted:  # an empty folder is there in its place
        look(succession, SECOND_NS, FREE)
    else:
        succession.store_is_away(SECOND_NS)
    assert not succession.has_failed()


def test_the_first_host_starts_a_controller_at_once_and_the_others_one_after_another() -> None:
    assert [starts_ns(index) for index in range(4)] == [index * TURN_NS for index in range(4)]


def test_of_a_thousand_hosts_none_waits_for_long_and_not_all_come_at_once() -> None:
    begins = [starts_ns(index) for index in (100, 105, 999)]
    assert begins == sorted(set(begins))
    assert begins[0] <= LONGEST_TURN_NS + 11 * SECOND_NS


def test_a_host_whose_controller_has_left_the_run_to_others_leaves_them_time() -> None:
    succession = Succession(0)
    succession.has_given_back(0)
    looks = range(0, 2 * REST_NS, SECOND_NS)
    first = next(at for at in looks if look(succession, at, FREE) is FollowStep.START)
    assert first == REST_NS
    succession = Succession(0)
    succession.has_given_back(0)
    assert look(succession, SECOND_NS, HELD) is FollowStep.FOLLOW


def test_who_holds_the_run_is_followed() -> None:
    succession = Succession(0)
    looks = range(0, 100 * SECOND_NS, SECOND_NS)
    assert {look(succession, at_ns, HELD) for at_ns in looks} == {FollowStep.FOLLOW}


def test_while_one_that_was_started_begins_no_other_is_started() -> None:
    succession = Succession(0)
    assert look(succession, 0, FREE) is FollowStep.START
    for at_ns in range(0, 20 * SECOND_NS, SECOND_NS):
        step = succession.look(at_ns, FREE, is_linked=False, is_starting=True)
        assert step is FollowStep.WAIT


@pytest.mark.parametrize("beats", [True, False])
def test_a_holder_elsewhere_is_followed_for_as_long_as_its_heart_beats(beats: bool) -> None:
    succession, steps = Succession(0), []
    for at_ns in range(0, STILL_NS + SECOND_NS, SECOND_NS):
        sight = LeaseSight(1, None, beat=b"%d" % (at_ns if beats else 0))
        steps.append(look(succession, at_ns, sight))
    assert set(steps[:-1]) == {FollowStep.FOLLOW}
    assert steps[-1] is (FollowStep.FOLLOW if beats else FollowStep.START)


def test_who_is_linked_to_a_holder_does_not_judge_its_heartbeat() -> None:
    succession, still = Succession(0), LeaseSight(1, None, beat=b"1")
    for at_ns in range(0, 10 * STILL_NS, SECOND_NS):
        step = succession.look(at_ns, still, is_linked=True, is_starting=False)
        assert step is FollowStep.FOLLOW
    left = STILL_NS - BEAT_NS  # of the time with a link one beat counts
    later = 10 * STILL_NS - SECOND_NS
    assert look(succession, later + left - 1, still) is FollowStep.FOLLOW
    assert look(succession, later + left, still) is FollowStep.START


def test_time_counts_from_the_last_beat_and_not_from_when_the_link_went_down() -> None:
    """The host of the controller loses its power 3 s after the last beat that was seen."""
    succession, beat = Succession(0), LeaseSight(1, None, beat=b"7")
    succession.look(0, beat, is_linked=True, is_starting=False)
    succession.look(4 * SECOND_NS, beat, is_linked=True, is_starting=False)
    assert look(succession, STILL_NS - 1, beat) is FollowStep.FOLLOW
    assert look(succession, STILL_NS, beat) is FollowStep.START
    assert succession.watched(STILL_NS) == (1, b"7", STILL_NS)


def test_the_controller_of_the_first_in_turn_is_there_when_the_lease_is_free() -> None:
    assert STILL_NS + TURN_NS == SILENT_AFTER_S * SECOND_NS
    assert BEAT_NS == HEARTBEAT_S * SECOND_NS


def test_while_the_store_is_away_no_time_counts() -> None:
    succession, still = Succession(0), LeaseSight(1, None, beat=b"1")
    look(succession, 0, still)
    succession.store_is_away(10 * STILL_NS)
    assert look(succession, 10 * STILL_NS + SECOND_NS, still) is FollowStep.FOLLOW


def test_a_store_that_has_forgotten_a_claim_is_away() -> None:
    succession = Succession(0)
    assert look(succession, 0, HELD) is FollowStep.FOLLOW
    for at_ns in range(SECOND_NS, 60 * SECOND_NS, SECOND_NS):
        assert look(succession, at_ns, FREE) is FollowStep.WAIT
    assert look(succession, 61 * SECOND_NS, HELD) is FollowStep.FOLLOW


def test_a_run_that_was_over_before_is_begun_again_and_one_that_ends_now_is_left() -> None:
    assert look(Succession(0), 0, OVER) is FollowStep.START
    seen = Succession(0)
    look(seen, 0, HELD)
    assert look(seen, 1, OVER) is FollowStep.LEAVE


def test_a_run_that_began_and_ended_between_two_looks_is_left() -> None:
    succession = Succession(3)
    look(succession, 0, FREE)
    assert look(succession, 1, OVER) is FollowStep.LEAVE
