"""Which hosts an elastic run trains on: on hosts that come, go and come back."""

from __future__ import annotations

from holdfast.core.hosts.membership import HostLimits, Membership
from holdfast.core.hosts.regroup import ElasticLimits, RegroupCosts, Regrouping

S = 1_000_000_000
LIMITS = HostLimits(suspect_ns=2 * S, lost_ns=10 * S, gather_ns=120 * S)
COSTS = RegroupCosts(restart_ns=30 * S, save_ns=2 * S, between_ns=10_000 * S)


class Fleet:
    """So many hosts that all have come, at a time that each call moves on to."""

    def __init__(
        self, slots: int = 3, least: int = 2, back_s: int = 60, spares: int = 0, come: int = -1
    ) -> None:
        self.members = Membership(slots, spares, LIMITS)
        self.regrouping = Regrouping(self.members, ElasticLimits(least, back_s * S, 5 * S))
        self.lives: dict[int, str] = {}
        for index in range(slots + spares)[: None if come < 0 else come]:
            self.come(0, index)

    def come(self, at_s: int, index: int) -> None:
        self.lives[index] = f"host {index} at {at_s}"
        self.members.joined(at_s * S, index, self.lives[index])
        self.look(at_s)

    def lose(self, at_s: int, index: int) -> None:
        self.members.heard(at_s * S, self.lives[index])
        self.members.gone(at_s * S, self.lives[index], "it is gone")
        self.look(at_s)

    def look(self, at_s: int) -> None:
        self.regrouping.look(at_s * S)

    def before_launch(self, at_s: int, costs: RegroupCosts = COSTS) -> tuple[bool, str]:
        self.look(at_s)
        return self.regrouping.before_launch(at_s * S, costs)

    def takes_in(self, at_s: int, costs: RegroupCosts = COSTS) -> bool:
        self.look(at_s)
        return self.regrouping.while_training(at_s * S, costs)[0]


def test_a_lost_host_that_is_far_away_is_not_waited_for() -> None:
    fleet = Fleet(back_s=60)
    fleet.lose(100, 1)
    assert fleet.before_launch(110) == (
        True,
        "on 2 of 3 hosts: the next is expected in 50 s",
    )


def test_one_that_is_back_soon_is_waited_for_and_not_for_ever() -> None:
    fleet = Fleet(back_s=20)
    fleet.lose(100, 1)
    goes_on, reason = fleet.before_launch(110)
    assert not goes_on
    assert reason == "2 of 3 hosts are there, 3 in 10 s: a restart takes 30 s"
    begins_s = next(at_s for at_s in range(110, 1000) if fleet.before_launch(at_s)[0])
    assert 120 < begins_s < 140  # when it was to be there, and as long again


def test_what_lost_hosts_of_this_run_took_counts_more_than_what_was_said() -> None:
    fleet = Fleet(back_s=600)
    for lost_s in (100, 200, 300):
        fleet.lose(lost_s, 1)
        fleet.come(lost_s + 8, 1)
    assert fleet.regrouping.back_ns == (600 + 3 * 8) * S // 4
    fleet = Fleet(back_s=10)
    fleet.lose(100, 1)
    assert not fleet.before_launch(101)[0]
    fleet.come(1000, 1)
    fleet.lose(2000, 1)
    assert fleet.before_launch(2001)[0]  # it took 15 minutes the last time


def test_fewer_than_the_least_are_never_enough() -> None:
    fleet = Fleet(least=2)
    fleet.lose(100, 1)
    fleet.lose(100, 2)
    assert fleet.before_launch(5000) == (False, "2 are needed, of which 1 is there")


def test_a_host_in_quarantine_is_not_waited_for() -> None:
    fleet = Fleet(back_s=20)
    fleet.lose(100, 1)
    fleet.members.set_quarantine(101 * S, {1: "slow"})
    assert fleet.before_launch(101)[0]


def test_at_the_start_all_are_waited_for_until_they_are_late() -> None:
    fleet = Fleet(come=2)
    assert fleet.before_launch(119) == (False, "host 2 may still come for the first time")
    assert fleet.before_launch(120)[0]


def test_who_hears_the_smaller_part_waits_for_what_the_others_say() -> None:
    fleet = Fleet(least=1, back_s=600)
    fleet.lose(100, 1)
    fleet.lose(101, 2)
    assert "cut off" in fleet.before_launch(111)[1]
    assert not fleet.before_launch(130)[0]
    assert fleet.before_launch(131)[0]


def trained_on_two(lost_s: int = 100, back_s: int = 200) -> Fleet:
    """Host 1 was lost, the others went on, and it is back."""
    fleet = Fleet()
    fleet.lose(lost_s, 1)
    assert fleet.members.close() == (0, 2)
    fleet.come(back_s, 1)
    assert fleet.members.spares == 1
    return fleet


def test_a_host_that_is_back_is_taken_in_when_it_has_stayed() -> None:
    fleet = trained_on_two()
    assert not fleet.takes_in(209)
    assert fleet.takes_in(210)  # twice five seconds, since it was lost once
    fleet.members.open(210 * S)
    assert fleet.members.close() == (0, 1, 2)


def test_not_if_a_failure_is_expected_before_a_restart_would_pay() -> None:
    fleet = trained_on_two()
    assert not fleet.takes_in(300, RegroupCosts(30 * S, 2 * S, between_ns=90 * S))


def test_one_that_comes_and_goes_is_taken_in_ever_later() -> None:
    fleet, at_s, waits_s = trained_on_two(), 200, []
    for _ in range(4):
        taken_s = next(s for s in range(at_s, at_s + 1000) if fleet.takes_in(s))
        waits_s.append(taken_s - at_s)
        fleet.members.open(taken_s * S)
        fleet.members.close()
        fleet.lose(taken_s + 1, 1)
        assert not fleet.takes_in(taken_s + 1)  # a loss is under way
        fleet.members.open(taken_s * S)
        fleet.members.close()
        at_s = taken_s + 100
        fleet.come(at_s, 1)
    assert waits_s == [10, 20, 40, 80]


def test_nobody_is_taken_in_where_all_train() -> None:
    fleet = Fleet(spares=1)
    fleet.members.close()
    assert not fleet.takes_in(1000)
