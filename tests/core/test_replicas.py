"""What is copied to other hosts, and when; which buffers stay as they are for it."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.copies import (
    HeldPart,
    InMemory,
    has_own,
    in_memory,
    restorable,
    sources,
)
from holdfast.core.hosts.placement import place
from holdfast.core.save.choose import SealedSet
from holdfast.core.save.memory import MemoryTier
from holdfast.core.save.replicas import LONGEST_REST_NS, SECOND_NS, TRIES, Replicas
from holdfast.core.save.tier_events import SetInBuffer

A = SetInBuffer(0, 1, 10, 0)
B = SetInBuffer(0, 2, 20, 1)
TWO = place(4, [0, 1])


def told(kept: SetInBuffer, at_ns: int, why: str = "") -> ev.Replicated | ev.NotReplicated:
    of = (at_ns, kept.attempt, kept.epoch, kept.step)
    return ev.NotReplicated(*of, why) if why else ev.Replicated(*of)


def test_one_set_at_a_time_is_replicated_and_the_newest_one_that_is_stays() -> None:
    replicas = Replicas(is_on=True)
    assert replicas.next(0, None) is None
    assert replicas.next(0, A) == act.Replicate(0, 1, 10, 0, kept=None)
    assert replicas.next(1, B) is None
    assert replicas.pinned == (0,)
    assert replicas.over(told(A, 100))
    assert replicas.next(150, B) is None, "it rests as long as the last one took"
    assert replicas.next(200, A) is None
    assert replicas.next(200, B) == act.Replicate(0, 2, 20, 1, kept=(0, 10))
    assert replicas.pinned == (1, 0)
    assert replicas.over(told(B, 300, "no room"))
    assert replicas.pinned == (0,)


def test_an_attempt_from_memory_has_its_set_copied_anew_each_time() -> None:
    """The first and the second time: another host may have taken the place of one with a copy."""
    replicas, kept, at_ns = Replicas(is_on=True), A._replace(epoch=0), 0
    for _ in range(3):
        assert replicas.next(at_ns, kept) == act.Replicate(*kept, replicas.newest and kept.name)
        assert replicas.over(told(kept, at_ns))
        assert replicas.next(at_ns + LONGEST_REST_NS, kept) is None
        replicas.begin(kept, kept.step)
        assert replicas.pinned == (kept.buffer,)
        at_ns += LONGEST_REST_NS


def test_who_takes_over_overwrites_nothing_until_its_own_set_is_on_two_hosts() -> None:
    """Another set may be, by the controller before."""
    resume = ev.Resume("0000-000000000010", 10, 0, buffer=0)
    for is_copied in (True, False):
        tier, kept = MemoryTier(1, replicas=Replicas(is_on=True)), A._replace(epoch=0)
        tier.begin(0, 0, ev.SCRATCH, 1)  # before it has looked at what there is
        tier.begin(0, 1, resume, 1)
        tier.has(0, 3)
        tier.buffers, at_ns = tier.buffers.restored(), 0
        for _ in range(1 if is_copied else TRIES):
            assert tier.free == ()
            assert tier.to_replicate(at_ns) == act.Replicate(*kept, None)
            tier.replicas.over(told(kept, at_ns, "" if is_copied else "no room"))
            at_ns = tier.replicas.again_ns
        assert tier.free == (1, 2)


def test_what_fails_again_and_again_is_tried_more_and_more_seldom() -> None:
    replicas, at_ns, waits = Replicas(is_on=True), 0, []
    for _ in range(9):
        assert replicas.next(at_ns, A) is not None
        replicas.over(told(A, at_ns, "no room"))
        waits.append((replicas.again_ns - at_ns) // SECOND_NS)
        at_ns = replicas.again_ns
    assert waits[:4] == [1, 2, 4, 8]
    assert waits[-1] == LONGEST_REST_NS // SECOND_NS


def test_news_of_another_set_changes_nothing() -> None:
    replicas = Replicas(is_on=True)
    replicas.next(0, A)
    assert not replicas.over(told(B, 5))
    assert replicas.under_way == A


def test_with_one_host_nothing_is_replicated() -> None:
    assert Replicas().next(0, A) is None


def test_a_replicated_set_outlives_the_attempt_unless_it_is_off_the_lineage() -> None:
    for restored, stays in ((B, True), (A, True), (None, False), (A._replace(step=5), False)):
        replicas = Replicas(is_on=True, newest=A)
        replicas.begin(restored, 0)
        assert (replicas.newest == A) is stays, restored


def test_a_buffer_of_the_newest_replicated_set_is_named_by_no_order() -> None:
    tier = MemoryTier(1, replicas=Replicas(is_on=True))
    tier.begin(0, 0, ev.SCRATCH, 1)
    tier.has(0, 3)
    for kept in (A, B, SetInBuffer(0, 3, 30, 2)):
        assert kept.buffer in tier.free
        tier.ordered(kept.buffer)
        tier.copied(0, kept.epoch, kept.step, kept.buffer)
        tier.buffers = tier.buffers.over(kept, is_sealed=True)
        wanted = tier.to_replicate(0)
        if kept == A:
            assert wanted is not None
            tier.replicas.over(told(A, 0))
    assert tier.free == (), "B is being replicated, A is until then, and C is the newest"
    tier.replicas.over(told(B, 1))
    assert tier.free == (A.buffer,)


def test_nothing_is_replicated_while_ranks_still_read_it() -> None:
    tier = MemoryTier(1, replicas=Replicas(is_on=True))
    tier.begin(0, 1, ev.Resume("0000-000000000010", 10, 0, buffer=0), 1)
    assert tier.to_replicate(1) is None
    tier.buffers = tier.buffers.restored()
    assert tier.to_replicate(1) == act.Replicate(0, 0, 10, 0, kept=None)


def test_who_takes_over_spares_what_is_there_and_what_ranks_may_still_write() -> None:
    found = InMemory((SealedSet(1, 20, 1), SealedSet(0, 10, 0), SealedSet(7, 5, 2)))
    tier = MemoryTier(1, replicas=Replicas(is_on=True))
    tier.begin(0, 1, ev.Resume("0000-000000000010", 10, 0), 1)
    tier.adopt(replace(found, replicated=SealedSet(0, 10, 0)), ordered=2)
    tier.has(0, 3)
    assert tier.free == (2,), "a rank may be writing there, and the next order names it again"
    assert tier.newest == SetInBuffer(1, 0, 20, 1)
    tier.adopt(found, ordered=1)
    assert tier.newest == SetInBuffer(0, 0, 10, 0)
    assert tier.free == (1, 2)


# --- what lies where ------------------------------------------------------------------------


def own(step: int, ranks: tuple[int, ...], buffer: int | None = 0) -> HeldPart:
    return HeldPart(0, step, ranks, 4, buffer)


def test_a_set_restores_if_somebody_has_each_part() -> None:
    here, there, spare = own(10, (0, 1)), own(10, (2, 3)), own(10, (2, 3), None)
    ten = (SealedSet(0, 10, 0),)
    table = (
        ({"a": (here,), "b": (there,)}, ten),
        ({"a": (here, spare)}, ten),
        ({"a": (here,)}, ()),
        ({"a": (here,), "b": (own(11, (2, 3)),)}, ()),
        ({"a": (here,), "b": (own(10, (0, 1)),)}, ()),
        ({"a": (here._replace(world_size=2),), "b": (there._replace(world_size=2),)}, ()),
        ({}, ()),
    )
    for copies, wanted in table:
        assert restorable(copies, TWO) == wanted, copies


def test_the_buffer_is_that_in_which_most_hosts_have_it() -> None:
    copies = {"a": (own(10, (0, 1), 2),), "b": (own(10, (2, 3), 2), own(10, (2, 3), 1))}
    assert restorable(copies, TWO) == (SealedSet(0, 10, 2),)
    assert has_own(copies["a"], SealedSet(0, 10, 2), (0, 1))
    assert not has_own(copies["a"], SealedSet(0, 10, 1), (0, 1))


def test_a_part_comes_from_whoever_has_it() -> None:
    copies = {"a": (own(10, (0, 1)), own(10, (2, 3), None)), "b": ()}
    holders = {0: "a", 1: "b"}
    assert sources(copies, SealedSet(0, 10, 0), TWO, holders) == {1: "a"}
    assert sources(copies, SealedSet(0, 20, 0), TWO, holders) is None


def test_no_part_comes_from_a_host_that_writes_over_it() -> None:
    """Hosts a and b had these slots, and have each other's now; c, a spare, has copies."""
    first, second = own(10, (0, 1)), own(10, (2, 3))
    swapped = {0: "b", 1: "a"}
    copies = {"a": (first,), "b": (second,)}
    ten = SealedSet(0, 10, 0)
    assert sources(copies, ten, TWO, swapped) is None
    assert restorable(copies, TWO, swapped) == ()
    assert restorable(copies, TWO, {0: "a", 1: "b"}) == (ten,)
    copied = {"a": (own(10, (2, 3), None), first), "b": (second, own(10, (0, 1), None))}
    assert restorable(copied, TWO, swapped) == ()  # a copy may be made of what is written over
    copied |= {"c": (first._replace(buffer=None), second._replace(buffer=None))}
    assert restorable(copied, TWO, swapped) == (ten,)
    assert sources(copied, ten, TWO, swapped) == {0: "c", 1: "c"}
    one_side = {"a": (first,), "c": (second,)}  # b, which is new, has the slot that a had
    assert sources(one_side, ten, TWO, {0: "b", 1: "c"}) == {0: "a"}
    assert sources(one_side, ten, TWO, swapped) is None
    other = {"a": (first._replace(buffer=1),), "c": (second,)}
    assert sources(other, ten, TWO, {0: "b", 1: "a"}) == {0: "a", 1: "c"}


def test_a_set_is_replicated_if_each_part_is_on_a_second_host() -> None:
    a = (own(10, (0, 1)), own(10, (2, 3), None))
    b = (own(10, (2, 3)), own(10, (0, 1), None), own(20, (2, 3), 1))
    holders = {0: "a", 1: "b"}
    ten = SealedSet(0, 10, 0)
    assert in_memory({"a": a, "b": b}, TWO, holders) == InMemory((ten,), ten)
    assert in_memory({"a": a[:1], "b": b}, TWO, holders) == InMemory((ten,))
    assert in_memory({"a": a[1:], "b": b}, TWO, holders) == InMemory()


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 2), st.booleans()), max_size=12))
def test_a_set_that_restores_can_be_had_part_by_part(
    held: list[tuple[int, int, bool]],
) -> None:
    three = place(3, range(3))
    copies: dict[str, list[HeldPart]] = {}
    for host, part, is_own in held:
        copies.setdefault(str(host), []).append(HeldPart(0, 1, (part,), 3, 0 if is_own else None))
    found = restorable(copies, three)
    everywhere = {part for _, part, _ in held} == {0, 1, 2}
    assert bool(found) is everywhere
    for one in found:
        assert set(sources(copies, one, three, {}) or ()) == {0, 1, 2}


def test_a_copy_is_to_be_there_in_three_eighths_of_the_time_between_two_sets() -> None:
    tier = MemoryTier(1, replicas=Replicas(is_on=True))
    tier.begin(0, 0, ev.SCRATCH, 1)
    tier.has(0, 3)
    orders = []
    for number, at_ns in enumerate((100, 260, 580), start=1):
        tier.copied(at_ns, number, number, number - 1)
        tier.seal_over(ev.Sealed(at_ns + 20, 0, number, number, number - 1))
        late_ns = at_ns + (170 if number == 3 else 20)
        orders.append(tier.to_replicate(late_ns))
        tier.replicas.over(ev.Replicated(at_ns + 24, 0, number, number))
    assert [one.within_ns for one in orders if one is not None] == [0, 40, 60]


def test_each_set_has_its_copy_though_copies_are_late_and_rest_for_as_long() -> None:
    tier = MemoryTier(1, replicas=Replicas(is_on=True))
    tier.begin(0, 0, ev.SCRATCH, 1)
    tier.has(0, 3)
    apart_ns, sealed_ns, late_ns = 2000, 100, 200
    replicated = []
    for number in range(1, 20):
        at_ns = number * apart_ns
        tier.copied(at_ns, number, number, number % 3)
        tier.seal_over(ev.Sealed(at_ns + sealed_ns, 0, number, number, number % 3))
        order = tier.to_replicate(at_ns + sealed_ns)
        if order is not None:
            over_ns = at_ns + sealed_ns + order.within_ns + late_ns
            tier.replicas.over(ev.Replicated(over_ns, 0, number, number))
            replicated.append(number)
    assert replicated == list(range(1, 20))
