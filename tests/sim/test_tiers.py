"""Which sets a simulated run may start from."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.placement import Placement
from holdfast.core.save.choose import choose
from holdfast.journal.attempts import AttemptRecord
from holdfast.sim.clock import VirtualClock
from holdfast.sim.tiers import Tiers
from holdfast.sim.virtual.memory import CopiedShard, VirtualMemory
from holdfast.sim.virtual.store import VirtualStore

HERE = Placement((0,))


def test_a_set_that_is_durable_too_late_is_on_no_lineage() -> None:
    """Attempt 1 has started from an older one by then: a real run would never go back to it."""
    told: list[ev.Event] = []
    tiers = Tiers(VirtualClock(), told.append, 10, peers=False)
    tiers.launched(act.Launch(0, ev.SCRATCH, HERE))
    tiers.committed(0, 20)
    tiers.launched(act.Launch(1, ev.Resume("0000-000000000020", 20, 0), HERE))
    tiers.committed(0, 33)
    assert choose(tiers.seen())[0] == ev.Resume("0000-000000000020", 20, 0)
    tiers.committed(1, 30)
    assert choose(tiers.seen())[0] == ev.Resume("0001-000000000030", 30, 1)


def test_a_set_that_an_attempt_was_restored_from_memory_of_counts_when_it_is_durable() -> None:
    tiers = Tiers(VirtualClock(), lambda _: None, 10, peers=False)
    tiers.launched(act.Launch(0, ev.SCRATCH, HERE))
    tiers.launched(act.Launch(1, ev.Resume("0000-000000000033", 33, 0, buffer=1), HERE))
    tiers.committed(0, 33)
    assert choose(tiers.seen())[0] == ev.Resume("0000-000000000033", 33, 0)


def test_a_set_of_an_attempt_that_was_left_behind_whole_is_on_no_lineage() -> None:
    """The next one began from scratch, and came to the same step."""
    tiers = Tiers(VirtualClock(), lambda _: None, 10, peers=False)
    tiers.launched(act.Launch(0, ev.SCRATCH, HERE))
    tiers.launched(act.Launch(1, ev.SCRATCH, HERE))
    tiers.launched(act.Launch(2, ev.Resume("0001-000000000001", 1, 1, buffer=0), HERE))
    tiers.committed(0, 1)
    assert choose(tiers.seen())[0] == ev.SCRATCH
    tiers.committed(1, 1)
    assert choose(tiers.seen())[0] == ev.Resume("0001-000000000001", 1, 1)


# --- held to the store and the memory of the scenario tests ---------------------------------------

S = 1_000_000_000
deeds = st.lists(
    st.tuples(
        st.sampled_from(["copy", "copy", "save", "flush", "late", "lose memory", "end", "end"]),
        st.integers(1, 4),
    ),
    max_size=40,
)


class Both:
    """The simulator's tiers beside a virtual store and memory; told the same."""

    def __init__(self) -> None:
        self.tiers = Tiers(VirtualClock(), lambda _: None, S, peers=False)
        self.store, self.memory = VirtualStore(), VirtualMemory(((0,),), 3)
        self.attempt, self.step, self.resume = -1, 0, ev.SCRATCH
        self.copied: list[tuple[int, int]] = []
        self.launch()

    def seen(self) -> tuple[ev.Resume, ev.Resume]:
        """What each of them would have the next attempt start from."""
        found = [choose(seen)[0] for seen in (self.tiers.seen(), self.store.seen(self.memory))]
        one, other = (replace(one, committed_step=None) for one in found)
        return one, other

    def launch(self) -> None:
        one, other = self.seen()
        assert one == other
        self.attempt, self.resume, self.step = self.attempt + 1, other, other.step
        resume = self.resume
        self.tiers.launched(act.Launch(self.attempt, resume, HERE))
        self.memory.launch(self.attempt, resume.buffer, (resume.parent, resume.step))
        record = AttemptRecord(
            self.attempt, resume.parent, resume.step, resume.set_name, 1, 1, 1, "", 0
        )
        self.store.attempts.append(record)

    def do(self, what: str, steps: int) -> None:
        self.step += steps
        if what == "copy":
            self.copy()
        elif what == "save":
            self.commit(self.attempt, self.step)
        elif what == "flush" and (newest := self.newest) is not None:
            self.commit(newest.attempt, newest.step)
        elif what == "late" and self.copied:  # a flush that its attempt has left behind
            self.commit(*self.copied[-steps:][0])
        elif what == "lose memory":
            self.memory.lose()
            self.tiers.lose_memory()
        elif what == "end":
            self.launch()

    @property
    def newest(self) -> CopiedShard | None:
        """In memory, of the lineage."""
        counting = [one for one in self.memory.counting if one in self.memory.seals.values()]
        return max(counting, key=lambda one: (one.attempt, one.step), default=None)

    def copy(self) -> None:
        kept = [n for n in range(3) if self.memory.sealed(n) == self.newest is not None]
        buffer = next(n for n in range(3) if n not in kept)
        shard = CopiedShard(self.attempt, 1, self.step)
        self.memory.copying(0, 0, buffer)
        self.memory.copied(0, buffer, shard)
        self.memory.seal(0, buffer, shard)
        self.copied.append((self.attempt, self.step))
        self.tiers.seal(act.Seal(self.attempt, 1, self.step, buffer))

    def commit(self, attempt: int, step: int) -> None:
        self.store.shards.add((attempt, step, 0))
        self.store.add(attempt, step, 1)
        self.tiers.committed(attempt, step)


@given(deeds)
def test_the_newest_set_of_each_tier_is_all_that_a_choice_needs(
    told: list[tuple[str, int]],
) -> None:
    both = Both()
    for what, steps in told:
        both.do(what, steps)
        one, other = both.seen()
        assert one == other, what
