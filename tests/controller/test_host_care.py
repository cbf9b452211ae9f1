"""Hosts that fail again and again, or are not fit to train, in virtual time: what the run does."""

from __future__ import annotations

import json
from typing import Any

import pytest

from holdfast.controller.host_care import LET_BACK_NS, CarePolicy, HostCare
from holdfast.controller.remote_hosts import RemoteHosts
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.membership import HostLimits, Membership, MemberState
from holdfast.core.hosts.order import CALM, HostOrder
from holdfast.core.hosts.placement import place
from holdfast.core.hosts.preflight import ANSWER_LIMIT_NS, PreflightAnswer
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.seat import Seat
from holdfast.core.run.machine import RunMachine, RunPolicy
from holdfast.core.run.stopping import StopIntent

S = 1_000_000_000
BUS, KILL = Exit(signal=7), Exit(signal=9)


class Obeys:
    def __init__(self, _: int) -> None:
        self.order_word = self.verdict_word = 0
        self.attention = CALM

    def join(self, _: int) -> None: ...

    def obey(self, _: HostOrder) -> None: ...


class House:
    """A controller's hosts, their agents, and the folder where quarantine is on record."""

    def __init__(self, slots: int = 2, spares: int = 1, policy: CarePolicy | None = None) -> None:
        self.now_ns = 0
        self.said: list[str] = []
        self.sent: dict[str, str] = {}
        self.began = 0
        self.machine = RunMachine(RunPolicy(ranks=slots, hosts=slots))
        self.file: dict[int, tuple[str, bool]] = {}
        self.members = Membership(slots, spares, HostLimits())
        self.hosts = RemoteHosts(self, self.members, self.now, self.say)
        self.hosts.attach(self)
        self.care = HostCare(
            self.hosts,
            self.now,
            self.say,
            policy or CarePolicy(),
            quarantine=self.quarantine,
            nonce=lambda: "nonce",
        )
        self.hosts.lost = self.care.lost
        self.seats = {n: self.seat(n) for n in range(slots + spares)}
        self.lives = 0

    def now(self) -> int:
        return self.now_ns

    def say(self, _: str, words: str) -> None:
        self.said.append(words)

    def quarantine(self) -> None:
        by_hand = {n: why for n, (why, is_ours) in self.file.items() if not is_ours}
        self.hosts.set_quarantine(self.care.reasons | by_hand)

    # --- what the hosts tell, of which nothing matters here
    def hear(self, report: HostReport, host: int) -> None: ...

    def feed(self, event: ev.Event) -> None: ...

    def lose(self, host: int) -> None: ...

    def replace(self, host: int) -> bool:
        return False

    # --- agents
    def put(self, incarnation: str, message: dict[str, Any]) -> None:
        self.sent[incarnation] = json.dumps(message)

    def seat(self, index: int, name: str = "") -> Seat:
        seat = Seat(index, name or f"host {index}", Obeys)  # type: ignore[arg-type]
        seat.address, seat.ports = f"10.0.0.{index}", (1, 2, 3)
        self.up(seat)
        return seat

    def up(self, seat: Seat) -> None:
        message = json.dumps(seat.says(self.now_ns, None))
        self.hosts.take(seat.incarnation, json.loads(message))

    def down(self, index: int) -> Seat:
        seat = self.seats[index]
        seat.take(self.now_ns, json.loads(self.sent[seat.incarnation]))
        return seat

    def answer(self, index: int, failure: str = "") -> None:
        """What that host says of its preflight, which it was ordered."""
        seat = self.down(index)
        order = seat.preflight_order
        assert order is not None
        assert order.checks
        seat.preflight = PreflightAnswer(order.number, failure, "all of it", 300_000_000)
        self.up(seat)
        self.care.look()

    def tries_out(self) -> list[int]:
        """Who is told to look at itself."""
        found = []
        for index, seat in self.seats.items():
            if self.members.members[seat.incarnation].is_there:
                order = self.down(index).preflight_order
                if order is not None and order.checks:
                    found.append(index)
        return found

    # --- the run
    def ends(self, rank: int, how: Exit) -> None:
        """Another attempt, which ends so on all ranks but the first one by our hand."""
        run = self.machine.course
        run.attempt += 1
        run.placement = place(self.members.slots, list(range(self.members.slots)))
        run.ending = type(run.ending)()
        for one in range(self.members.slots):
            died_ns = self.now_ns + (one != rank)
            end = how if one == rank else KILL
            run.ending.by_rank[one] = ev.RankExited(died_ns, run.attempt, one, died_ns, end)

    def next_attempt(self) -> None:
        def begin() -> None:
            self.began += 1

        self.care.before_attempt(self.machine, begin)
        self.care.look()

    def lose_host(self, index: int) -> None:
        self.hosts.gone(self.seats[index].incarnation, "its power went")

    def comes_back(self, index: int) -> None:
        self.lives += 1
        self.seats[index] = self.seat(index, f"host {index} again {self.lives}")

    def passes(self, ns: int) -> None:
        """Time passes; the hosts that are there are heard."""
        self.now_ns += ns
        for seat in self.seats.values():
            if self.members.members[seat.incarnation].is_there:
                self.up(seat)
        self.hosts.look()
        self.care.look()

    def looks_at_files(self, *, released: int | None = None) -> None:
        """What the thread does that looks after the run's folder."""
        for index in self.care.unreleased:
            self.file.pop(index, None)
        written = dict(self.care.unwritten)
        self.file |= {n: (why, True) for n, why in written.items() if n not in self.file}
        if released is not None:
            del self.file[released]
        self.care.on_file(dict(self.file), tuple(written))
        self.quarantine()

    def state(self, index: int) -> MemberState:
        return self.members.members[self.seats[index].incarnation].state

    def slot(self, index: int) -> int | None:
        return self.members.members[self.seats[index].incarnation].slot


def fails(house: House, times: int, rank: int = 1, how: Exit = KILL) -> None:
    for _ in range(times):
        house.ends(rank, how)
        house.next_attempt()
        house.now_ns += S
        for index in house.tries_out():
            house.answer(index)


def test_a_healthy_run_is_not_looked_at() -> None:
    house = House()
    house.next_attempt()
    assert house.began == 1
    assert house.tries_out() == []


def test_a_host_that_fails_three_times_leaves_its_part_to_the_spare() -> None:
    house = House()
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
    house = House(spares=0)
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
    house = House(spares=1)
    house.lose_host(2)
    fails(house, 3)
    assert house.slot(1) == 1
    house.comes_back(2)
    house.care.look()
    assert (house.slot(1), house.slot(2)) == (None, 1)


def test_what_fails_on_all_hosts_is_the_scripts() -> None:
    house = House()
    for _ in range(5):
        house.ends(1, BUS)
        house.machine.course.ending.by_rank[0] = ev.RankExited(9, 0, 0, 9, BUS)
        house.next_attempt()
    assert (house.began, house.care.reasons, house.tries_out()) == (5, {}, [])


def test_an_attempt_that_somebody_stopped_is_laid_at_nobody() -> None:
    house = House()
    house.ends(1, BUS)
    house.machine.course.stopping.intent = StopIntent(0, "holdfast stop", notice=False)
    house.next_attempt()
    assert house.began == 1


def test_one_that_crashed_is_tried_out_first_with_its_neighbours() -> None:
    house = House(slots=3)
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
    house = House()
    house.ends(1, BUS)
    house.next_attempt()
    house.answer(1, "its memory does not keep what is written there")
    assert house.began == 1
    assert (house.state(1), house.slot(2)) == (MemberState.LOST, 1)
    (why,) = house.care.reasons.values()
    assert why == "failed its preflight: its memory does not keep what is written there"


def test_a_preflight_that_hangs_has_failed() -> None:
    house = House()
    house.ends(1, BUS)
    house.next_attempt()
    house.passes(ANSWER_LIMIT_NS - 1)
    assert house.began == 0
    house.passes(1)
    assert (house.began, house.slot(2)) == (1, 1)
    assert "no answer within 30 s" in house.care.reasons[1]


def test_a_host_that_comes_back_is_tried_out_before_it_has_a_part() -> None:
    house = House(spares=0)
    house.lose_host(1)
    house.next_attempt()
    assert house.began == 0
    house.comes_back(1)
    house.care.look()
    assert (house.began, house.tries_out()) == (0, [1])
    house.answer(1)
    assert house.began == 1


def test_a_host_lost_during_its_preflight_is_waited_for_again() -> None:
    house = House(spares=0)
    house.ends(1, BUS)
    house.next_attempt()
    house.lose_host(1)
    house.care.look()
    assert house.hosts.is_waiting
    house.comes_back(1)
    house.care.look()
    assert (house.began, house.tries_out()) == (0, [1])
    house.answer(1)
    assert house.began == 1


def test_without_a_spare_an_unfit_host_is_tried_again_after_a_while() -> None:
    house = House(spares=0)
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


def test_whoever_is_released_by_hand_is_counted_anew() -> None:
    house = House()
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
    house = House(spares=0)
    house.file[1] = "to be repaired", False
    house.looks_at_files()
    house.comes_back(1)
    house.next_attempt()
    house.passes(100 * LET_BACK_NS)
    assert (house.began, house.care.reasons) == (0, {})
    assert house.state(1) is MemberState.QUARANTINED


def test_a_quarantine_of_an_earlier_controller_holds() -> None:
    house = House()
    house.file[1] = "lost or failed 3 times", True
    house.looks_at_files()
    house.next_attempt()
    assert (house.began, house.slot(2)) == (1, 1)
    assert house.care.reasons == {1: "lost or failed 3 times"}


@pytest.mark.parametrize("policy", [CarePolicy(has_preflight=False)])
def test_without_preflight_nobody_is_tried_out(policy: CarePolicy) -> None:
    house = House(policy=policy)
    house.ends(1, BUS)
    house.next_attempt()
    assert (house.began, house.tries_out()) == (1, [])
