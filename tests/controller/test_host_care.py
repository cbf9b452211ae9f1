"""Hosts that fail again and again, or are not fit to train, in virtual time: what the run does."""

from __future__ import annotations

import pytest
from care_house import BUS, KILL, CareHouse, S

from holdfast.controller.host_care import LET_BACK_NS, CarePolicy
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.membership import MemberState
from holdfast.core.hosts.preflight import ANSWER_LIMIT_NS
from holdfast.core.run.stopping import StopIntent


def fails(house: CareHouse, times: int, rank: int = 1, how: Exit = KILL) -> None:
    for _ in range(times):
        house.ends(rank, how)
        house.next_attempt()
        house.now_ns += S
        for index in house.tries_out():
            house.answer(index)


def test_a_healthy_run_is_not_looked_at() -> None:
    house = CareHouse()
    house.next_attempt()
    assert house.began == 1
    assert house.tries_out() == []


def test_a_host_that_fails_three_times_leaves_its_part_to_the_spare() -> None:
    house = CareHouse()
    fails(house, 2)
    assert house.slot(1) == 1
    fails(house, 1)
    assert house.began == 3
    assert (house.slot(1), house.slot(2)) == (None, 1)
    words = "lost or failed 3 times within 2 s, at last: killed by SIGKILL"
    assert f"Host 1 goes into quarantine: {words}" in "\n".join(house.said)
    house.looks_at_files()
    assert house.file == {1: (words, True)}


def test_without_a_spare_it_is_tried_again_after_longer_and_longer_waits() -> None:
    house = CareHouse(spares=0)
    fails(house, 2)
    assert house.began == 2
    for wait_s in (5, 10, 20):
        house.ends(1, KILL)
        house.next_attempt()
        for index in house.tries_out():
            house.answer(index)
        began = house.began
        house.passes(wait_s * S - 1)
        assert house.began == began
        house.passes(1)
        assert house.began == began + 1
    assert house.slot(1) == 1
    assert any("no spare can take its place" in words for words in house.said)
    assert house.care.reasons == {}


def test_a_spare_that_comes_later_takes_the_place_then() -> None:
    house = CareHouse(spares=1)
    house.lose_host(2)
    fails(house, 3)
    assert house.slot(1) == 1
    house.comes_back(2)
    house.care.look()
    assert (house.slot(1), house.slot(2)) == (None, 1)


def test_what_fails_on_all_hosts_is_the_scripts() -> None:
    house = CareHouse()
    for _ in range(5):
        house.ends(1, BUS)
        house.machine.course.ending.by_rank[0] = ev.RankExited(9, 0, 0, 9, BUS)
        house.next_attempt()
    assert (house.began, house.care.reasons, house.tries_out()) == (5, {}, [])


def test_an_attempt_that_somebody_stopped_is_laid_at_nobody() -> None:
    house = CareHouse()
    house.ends(1, BUS)
    house.machine.course.stopping.intent = StopIntent(0, "holdfast stop", notice=False)
    house.next_attempt()
    assert house.began == 1


def test_one_that_crashed_is_tried_out_first_with_its_neighbours() -> None:
    house = CareHouse(slots=3)
    house.ends(1, BUS)
    house.next_attempt()
    assert (house.began, house.tries_out()) == (0, [1])
    order = house.down(1).preflight_order
    assert order is not None
    assert {(one.index, one.address, one.port) for one in order.dials} == {
        (0, "10.0.0.0", 3),
        (2, "10.0.0.2", 3),
    }
    for index in (0, 2):
        answering = house.down(index).preflight_order
        assert answering is not None
        assert (answering.nonce, answering.checks) == (order.nonce, False)
    house.answer(1)
    assert house.began == 1
    assert "Host 1 has passed its preflight (all of it; 0.3 s)" in house.said
    assert all(house.down(index).preflight_order is None for index in range(3))
    house.ends(0, KILL)
    house.next_attempt()
    assert house.began == 2  # host 1 is not tried again


def test_a_host_that_fails_its_preflight_leaves_its_part_to_the_spare() -> None:
    house = CareHouse()
    house.ends(1, BUS)
    house.next_attempt()
    house.answer(1, "its memory does not keep what is written there")
    assert house.began == 1
    assert (house.state(1), house.slot(2)) == (MemberState.LOST, 1)
    (why,) = house.care.reasons.values()
    assert why == "failed its preflight: its memory does not keep what is written there"


def test_a_preflight_that_hangs_has_failed() -> None:
    house = CareHouse()
    house.ends(1, BUS)
    house.next_attempt()
    house.passes(ANSWER_LIMIT_NS - 1)
    assert house.began == 0
    house.passes(1)
    assert (house.began, house.slot(2)) == (1, 1)
    assert "no answer within 30 s" in house.care.reasons[1]


def test_a_preflight_in_which_a_neighbour_falls_silent_tells_nothing() -> None:
    house = CareHouse(slots=2)
    house.ends(1, BUS)
    house.next_attempt()
    house.now_ns += 3 * S
    house.up(house.seats[1])  # host 0 is not heard
    house.hosts.look()
    assert house.state(0) is MemberState.SUSPECT
    house.answer(1, "host 0 (10.0.0.0) does not answer it within 5 s")
    assert (house.began, house.care.reasons, house.tries_out()) == (0, {}, [1])
    house.passes(S)
    house.answer(1)
    assert house.began == 1


def test_a_store_that_is_away_for_the_controller_too_is_no_hosts_fault() -> None:
    house = CareHouse(slots=2)
    house.ends(1, BUS)
    house.next_attempt()
    house.care.has_store = lambda: False
    house.answer(1, "the run store cannot be written", of_store=True)
    assert (house.began, house.care.reasons, house.tries_out()) == (0, {}, [1])
    house.care.has_store = lambda: True
    house.answer(1, "the run store cannot be written", of_store=True)  # by this host alone
    assert set(house.care.reasons) == {1}


def test_a_host_that_comes_back_is_tried_out_before_it_has_a_part() -> None:
    house = CareHouse(spares=0)
    house.lose_host(1)
    house.next_attempt()
    assert house.began == 0
    house.comes_back(1)
    house.care.look()
    assert (house.began, house.tries_out()) == (0, [1])
    house.answer(1)
    assert house.began == 1


def test_a_host_lost_during_its_preflight_is_waited_for_again() -> None:
    house = CareHouse(spares=0)
    house.ends(1, BUS)
    house.next_attempt()
    house.lose_host(1)
    house.care.look()
    assert house.hosts.awaited.is_waiting
    house.comes_back(1)
    house.care.look()
    assert (house.began, house.tries_out()) == (0, [1])
    house.answer(1)
    assert house.began == 1


def test_without_a_spare_an_unfit_host_is_tried_again_after_a_while() -> None:
    house = CareHouse(spares=0)
    house.ends(1, BUS)
    house.next_attempt()
    for wait_ns in (LET_BACK_NS, 2 * LET_BACK_NS, 4 * LET_BACK_NS):
        house.answer(1, "its network is gone")
        house.comes_back(1)
        house.looks_at_files()
        assert house.file.keys() == {1}
        house.passes(0)
        house.passes(wait_ns - 1)
        assert (house.began, house.state(1)) == (0, MemberState.QUARANTINED)
        house.passes(1)
        house.looks_at_files()
        assert house.file == {}
        assert house.tries_out() == [1]
    house.answer(1)
    assert house.began == 1


def test_what_was_read_before_a_host_was_let_back_changes_nothing() -> None:
    house = CareHouse(spares=0)
    house.ends(1, BUS)
    house.next_attempt()
    house.answer(1, "its network is gone")
    house.comes_back(1)
    house.looks_at_files()
    before = dict(house.file)
    house.passes(0)
    house.passes(LET_BACK_NS)
    assert house.tries_out() == [1]
    house.care.on_file(before, ())
    assert house.care.reasons == {}
    assert house.care.unreleased == (1,)
    house.answer(1)
    house.looks_at_files()
    assert (house.began, house.file, house.care.unreleased) == (1, {}, ())


def test_whoever_is_released_by_hand_is_counted_anew() -> None:
    house = CareHouse()
    fails(house, 3)
    house.comes_back(1)
    house.looks_at_files()
    assert house.state(1) is MemberState.QUARANTINED
    house.looks_at_files(released=1)
    assert house.state(1) is MemberState.SPARE
    house.lose_host(2)
    house.ends(1, KILL)
    house.next_attempt()
    assert house.tries_out() == [1]
    house.answer(1)
    assert (house.slot(1), house.care.reasons) == (1, {})


def test_what_a_person_wants_is_not_undone() -> None:
    house = CareHouse(spares=0)
    house.file[1] = "to be repaired", False
    house.looks_at_files()
    house.comes_back(1)
    house.next_attempt()
    house.passes(100 * LET_BACK_NS)
    assert (house.began, house.care.reasons) == (0, {})
    assert house.state(1) is MemberState.QUARANTINED


def test_a_quarantine_of_an_earlier_controller_holds() -> None:
    house = CareHouse()
    house.file[1] = "lost or failed 3 times", True
    house.looks_at_files()
    house.next_attempt()
    assert (house.began, house.slot(2)) == (1, 1)
    assert house.care.reasons == {1: "lost or failed 3 times"}


@pytest.mark.parametrize("policy", [CarePolicy(has_preflight=False)])
def test_without_preflight_nobody_is_tried_out(policy: CarePolicy) -> None:
    house = CareHouse(policy=policy)
    house.ends(1, BUS)
    house.next_attempt()
    assert (house.began, house.tries_out()) == (1, [])
