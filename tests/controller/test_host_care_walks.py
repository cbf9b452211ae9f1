"""Whatever happens to hosts, and whoever is put into quarantine: the run is able to go on."""

from __future__ import annotations

from care_house import BUS, KILL, CareHouse, S
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from holdfast.controller.host_care import MOST_LET_BACK_NS
from holdfast.core.exits import Exit
from holdfast.core.hosts.membership import MemberState

SLOTS, SPARES = 2, 1
HOSTS = st.integers(0, SLOTS + SPARES - 1)
LOST = Exit(host_lost=True)


class Walk(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.house = CareHouse(SLOTS, SPARES)
        self.attempts = 1
        self.house.next_attempt()
        self.by_hand: set[int] = set()

    @property
    def runs(self) -> bool:
        """Whether the attempt that was asked for last has begun."""
        return self.house.began == self.attempts

    def ends(self, rank: int, how: Exit) -> None:
        self.house.ends(rank, how)
        self.attempts += 1
        self.house.next_attempt()

    def is_there(self, index: int) -> bool:
        return self.house.members.members[self.house.seats[index].incarnation].is_there

    @precondition(lambda self: self.runs)
    @rule(rank=st.integers(0, SLOTS - 1), how=st.sampled_from([BUS, KILL]))
    def a_rank_fails(self, rank: int, how: Exit) -> None:
        self.ends(rank, how)

    @rule(index=HOSTS)
    def a_host_is_lost(self, index: int) -> None:
        if self.is_there(index):
            slot, ran = self.house.slot(index), self.runs
            self.house.lose_host(index)
            if slot is not None and ran:
                self.ends(slot, LOST)

    @rule(index=HOSTS)
    def a_host_comes_back(self, index: int) -> None:
        if not self.is_there(index):
            self.house.comes_back(index)
            self.house.care.look()

    @rule(is_fit=st.booleans())
    def somebody_answers(self, is_fit: bool) -> None:
        for index in self.house.tries_out()[:1]:
            self.house.answer(index, "" if is_fit else "its network is gone")

    @rule(seconds=st.sampled_from([1, 30, 120, 4000]))
    def time_passes(self, seconds: int) -> None:
        self.house.passes(seconds * S)
        self.lost_by_quarantine()

    @rule(released=st.one_of(st.none(), HOSTS))
    def the_folder_is_looked_at(self, released: int | None) -> None:
        known = released if released in self.house.file else None
        self.house.looks_at_files(released=known)
        self.by_hand.discard(-1 if known is None else known)
        self.house.care.look()
        self.lost_by_quarantine()

    @rule(index=HOSTS)
    def a_person_wants_one_out(self, index: int) -> None:
        self.house.file[index] = "to be repaired", False
        self.by_hand.add(index)
        self.the_folder_is_looked_at(None)

    def lost_by_quarantine(self) -> None:
        """An attempt that ran on a host which has lost its part is over."""
        if self.runs and not self.house.members.is_complete:
            self.ends(self.house.members.missing[0], LOST)

    @invariant()
    def what_a_person_wants_holds(self) -> None:
        for index in self.by_hand:
            seat = self.house.seats[index]
            assert self.house.members.members[seat.incarnation].slot is None
            assert self.house.state(index) is not MemberState.SPARE

    @invariant()
    def nothing_begins_without_hosts(self) -> None:
        assert self.house.began <= self.attempts
        assert not self.runs or self.house.members.is_complete

    def teardown(self) -> None:
        """All are well again, and nobody is kept out by hand: the run goes on."""
        house = self.house
        for index in list(self.by_hand):
            self.by_hand.discard(index)
            house.looks_at_files(released=index)
        for _ in range(8):
            for index in house.seats:
                if not self.is_there(index):
                    house.comes_back(index)
            for wait_ns in (0, MOST_LET_BACK_NS, S):
                house.passes(wait_ns)
                house.looks_at_files()
                for index in house.tries_out():
                    house.answer(index)
        assert self.runs
        assert house.members.is_complete


TestWalk = Walk.TestCase
# Not made short: that takes minutes.
TestWalk.settings = settings(
    max_examples=30, stateful_step_count=40, phases=[Phase.explicit, Phase.reuse, Phase.generate]
)
