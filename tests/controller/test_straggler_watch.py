"""A host that the others wait for: said, and replaced where that is wanted. In virtual time."""

from __future__ import annotations

from care_house import CareHouse

from holdfast.controller.straggler_watch import StragglerWatch
from holdfast.core.hosts.report import HostReport, Pace, RankState
from holdfast.core.hosts.stragglers import StragglerPolicy
from holdfast.core.save.ranks import RankAnswers

S = 1_000_000_000
MS = 1_000_000


class Training:
    """Hosts that train in steps of 100 ms, and whoever watches them."""

    def __init__(self, house: CareHouse, *, replaces: bool) -> None:
        self.house = house
        policy = StragglerPolicy(10, for_ns=60 * S, replaces=replaces)
        self.watch = StragglerWatch(house.members, house.care, house.say, policy)
        self.step = 0

    def train(self, seconds: int, own_ms: dict[int, int]) -> None:
        """`own_ms`: by slot, what of each step is the rank's own."""
        for _ in range(seconds):
            self.step += 10
            self.house.passes(S)
            for slot, own in own_ms.items():
                member = self.house.members.host_of(slot)
                assert member is not None
                pace = Pace(self.house.now_ns, 0, self.step * (100 - own) * MS)
                ranks = (RankState(True, RankAnswers(step=self.step), pace=pace),)
                self.watch.heard(member.index, HostReport(attempt=0, ranks=ranks))
            self.watch.look(self.house.now_ns)


def test_a_host_that_is_behind_is_told_of_once_and_stays() -> None:
    house = CareHouse()
    training = Training(house, replaces=False)
    training.train(70, {0: 20, 1: 60})
    assert training.watch.behind[1][:2] == (40 * MS, 100 * MS)
    assert house.said == []
    training.train(60, {0: 20, 1: 60})
    (words,) = house.said
    assert words == (
        "Host 1 is behind the others by 40 ms of each step (40 %) for 60 s: they wait for it"
    )
    training.train(200, {0: 20, 1: 20})
    assert house.said[1:] == ["Host 1 keeps pace with the others again"]
    assert house.slot(1) == 1


def test_a_spare_takes_its_place_where_that_is_wanted() -> None:
    house = CareHouse()
    training = Training(house, replaces=True)
    training.train(130, {0: 20, 1: 60})
    assert (house.slot(1), house.slot(2)) == (None, 1)
    assert house.care.reasons[1].startswith("behind the others by 40 ms of each step (40 %)")


def test_without_a_spare_it_stays_until_one_comes() -> None:
    house = CareHouse()
    house.lose_host(2)
    training = Training(house, replaces=True)
    training.train(130, {0: 20, 1: 60})
    assert house.slot(1) == 1
    house.comes_back(2)
    training.train(1, {0: 20, 1: 60})
    assert (house.slot(1), house.slot(2)) == (None, 1)


def test_a_part_that_is_slow_on_any_host_takes_no_second_spare() -> None:
    house = CareHouse(spares=2)
    training = Training(house, replaces=True)
    training.train(130, {0: 20, 1: 60})
    assert house.slot(2) == 1
    training.train(130, {0: 20, 1: 60})
    assert house.slot(2) == 1
    assert (
        "Host 2 stays: so was host 1 there: it is the part that is slow, not the host" in house.said
    )
