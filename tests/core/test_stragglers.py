"""Which host the others wait for."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.report import Pace, RankState
from holdfast.core.hosts.stragglers import (
    LEAST_SAMPLES,
    SECOND_NS,
    WINDOW,
    Behind,
    StragglerPolicy,
    Stragglers,
    chronic,
)
from holdfast.core.save.ranks import RankAnswers

MS = 1_000_000
STEP_NS = 100 * MS
LEAST = LEAST_SAMPLES + 1  # reports: the first one is no sample


class Ranks:
    """The ranks of one host, as their pages tell of them after each report."""

    def __init__(self, ranks: int = 1, *, is_marked: bool = True) -> None:
        self.is_marked = is_marked
        self.step = self.at_ns = 0
        self.spans_ns, self.together_ns = [0] * ranks, [0] * ranks

    def train(self, *own_ns: int, steps: int = 1) -> list[RankState]:
        """So many steps, each rank with that time of its own in each."""
        self.step += steps
        self.at_ns += steps * STEP_NS
        for rank, own in enumerate(own_ns):
            if self.is_marked:
                self.together_ns[rank] += steps * (STEP_NS - own)
            else:
                self.spans_ns[rank] += steps * own
        paces = zip(self.spans_ns, self.together_ns, strict=True)
        return [
            RankState(True, RankAnswers(step=self.step), pace=Pace(1 + self.at_ns, *pace))
            for pace in paces
        ]


class Fleet:
    """Hosts of one rank."""

    def __init__(
        self, hosts: int, policy: StragglerPolicy | None = None, *, is_marked: bool = True
    ) -> None:
        self.stragglers = Stragglers(policy)
        self.hosts = [Ranks(is_marked=is_marked) for _ in range(hosts)]
        self.now_ns = 0

    def train(
        self, own_ns: Sequence[int], reports: int = LEAST_SAMPLES + 1, steps: int = 1
    ) -> None:
        for _ in range(reports):
            self.now_ns += steps * STEP_NS
            for index, (host, own) in enumerate(zip(self.hosts, own_ns, strict=True)):
                self.stragglers.heard(index, 0, host.train(own, steps=steps))

    def judge(self) -> dict[int, Behind]:
        return self.stragglers.judge(self.now_ns, range(len(self.hosts)))


@pytest.mark.parametrize("is_marked", [True, False])
def test_the_host_that_does_more_by_itself_is_behind(is_marked: bool) -> None:
    fleet = Fleet(3, is_marked=is_marked)
    fleet.train([20 * MS, 70 * MS, 21 * MS])
    found = fleet.judge()
    assert {index: one.ns for index, one in found.items()} == {0: 0, 1: 49 * MS, 2: 0}
    assert found[1].words == "49 ms of each step (49 %)"


def test_of_two_hosts_the_faster_one_is_the_measure() -> None:
    fleet = Fleet(2)
    fleet.train([20 * MS, 60 * MS], steps=7)
    assert {index: one.ns for index, one in fleet.judge().items()} == {0: 0, 1: 40 * MS}


def test_a_script_that_marks_nothing_and_waits_for_no_data_shows_nothing() -> None:
    fleet = Fleet(2, is_marked=False)
    fleet.train([0, 0])
    assert fleet.judge() == {}


def test_a_host_is_as_late_as_its_last_rank() -> None:
    stragglers = Stragglers()
    hosts = [Ranks(2), Ranks(2)]
    for _ in range(LEAST_SAMPLES + 1):
        stragglers.heard(0, 0, hosts[0].train(10 * MS, 15 * MS))
        stragglers.heard(1, 0, hosts[1].train(10 * MS, 45 * MS))
    assert stragglers.judge(0, (0, 1))[1].ns == 30 * MS


def test_nothing_is_said_of_too_few_samples_or_of_one_host() -> None:
    fleet = Fleet(2)
    fleet.train([20 * MS, 60 * MS], LEAST_SAMPLES)
    assert fleet.judge() == {}
    fleet.train([20 * MS, 60 * MS], 1)
    assert len(fleet.judge()) == 2
    assert fleet.stragglers.judge(0, (1,)) == {}
    assert fleet.judge() == {}  # the other one has left; it begins anew


def test_a_new_attempt_begins_anew() -> None:
    fleet = Fleet(2)
    fleet.train([20 * MS, 60 * MS])
    assert len(fleet.judge()) == 2
    for index, host in enumerate(fleet.hosts):
        fleet.stragglers.heard(index, 1, host.train(0))
    assert fleet.judge() == {}


def test_chronic_is_behind_for_long_and_for_many_steps() -> None:
    policy = StragglerPolicy(10, steps=100, for_ns=60 * SECOND_NS)
    fleet = Fleet(2, policy)
    late = [20 * MS, 31 * MS]
    fleet.train(late)
    assert chronic(fleet.judge()) == {}
    fleet.train(late, 59, steps=10)
    assert chronic(fleet.judge()) == {}
    fleet.train(late, 1, steps=10)
    (one,) = chronic(fleet.judge()).values()
    assert one.late_ns == 60 * SECOND_NS
    fleet.train([20 * MS, 30 * MS], WINDOW)  # 10 % are allowed
    assert fleet.judge()[1].late_ns is None
    fleet.train(late, WINDOW)
    assert fleet.judge()[1].late_ns == 0  # counted from now on


def test_long_steps_must_be_a_hundred_too() -> None:
    fleet = Fleet(2, StragglerPolicy(10, steps=100, for_ns=1))
    late = [20 * MS, 90 * MS]
    fleet.train(late)
    fleet.judge()
    fleet.train(late, 99)
    assert chronic(fleet.judge()) == {}
    fleet.train(late, 1)
    assert list(chronic(fleet.judge())) == [1]


def test_a_host_whose_own_steps_differ_by_more_is_not_late() -> None:
    fleet = Fleet(2)
    for n in range(40):
        fleet.train([20 * MS, (20 + 40 * (n % 2)) * MS], 1)
        fleet.train([20 * MS, (30 + 40 * (n % 3)) * MS], 1)
    assert fleet.judge()[1].late_ns is None


OWN = st.lists(st.integers(1, 90), min_size=2, max_size=7)


@given(OWN, st.integers(0, 9))
def test_what_all_do_alike_changes_nothing(own: list[int], more: int) -> None:
    found = []
    for added in (0, more):
        fleet = Fleet(len(own))
        fleet.train([(one + added) * MS for one in own])
        found.append({index: one.ns for index, one in fleet.judge().items()})
    assert found[0] == found[1]


@given(OWN, st.randoms(use_true_random=False))
def test_which_number_a_host_has_changes_nothing(own: list[int], random: object) -> None:
    order = list(range(len(own)))
    random.shuffle(order)  # type: ignore[attr-defined]
    one, other = Fleet(len(own)), Fleet(len(own))
    one.train([n * MS for n in own])
    other.train([own[n] * MS for n in order])
    before, after = one.judge(), other.judge()
    assert [after[place].ns for place in range(len(own))] == [before[n].ns for n in order]


@given(OWN, st.lists(st.integers(1, 90), max_size=7), st.integers(0, 6))
def test_a_pause_now_and_then_moves_nothing(own: list[int], pauses: list[int], who: int) -> None:
    calm, shaken = Fleet(len(own)), Fleet(len(own))
    host = who % len(own)
    usual = [one * MS for one in own]
    for n in range(LEAST_SAMPLES + 1):
        calm.train(usual, 1)
        unusual = list(usual)
        if 0 < n <= len(pauses):
            unusual[host] = pauses[n - 1] * MS
        shaken.train(unusual, 1)
    ours = {index: one.ns for index, one in calm.judge().items()}
    assert {index: one.ns for index, one in shaken.judge().items()} == ours


@given(OWN)
def test_at_most_half_of_the_hosts_are_behind(own: list[int]) -> None:
    fleet = Fleet(len(own))
    fleet.train([one * MS for one in own])
    late = [one for one in fleet.judge().values() if one.ns > 0]
    assert 2 * len(late) <= len(own)
