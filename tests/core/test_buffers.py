"""Buffers and flushes, whatever happens to them: what must be there is never given away."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.save.flushes import Flushes, Wanted
from holdfast.core.save.memory import Buffers, MemoryTier
from holdfast.core.save.tier_events import SetInBuffer

A = SetInBuffer(0, 1, 10, 0)
B = SetInBuffer(0, 2, 20, 1)
C = SetInBuffer(0, 3, 30, 2)


def three() -> Buffers:
    return Buffers(3)


def sealed(buffers: Buffers, *kept: SetInBuffer) -> Buffers:
    for one in kept:
        buffers = buffers.ordered(one.buffer).copied(one).over(one, is_sealed=True)
    return buffers


def test_a_rank_without_buffers_means_no_memory_tier() -> None:
    tier = MemoryTier(2)
    in_all = []
    for rank, count in ((0, 3), (1, 2), (1, 99), (0, -1), (0, 1)):
        tier.has(rank, count)
        in_all.append((tier.buffers.in_all, tier.is_there, tier.is_lost))
    there, lost = (True, False), (False, True)
    assert in_all == [(0, False, False), (2, *there), (3, *there), (0, *lost), (1, *there)]
    tier.begin(0, 1, ev.Resume(None, 0, None), 2)
    assert (tier.free, tier.is_there) == ((), False)
    tier.has(0, 3)
    assert not tier.is_there


def test_the_newest_sealed_set_is_kept_and_so_is_what_waits_for_its_seal() -> None:
    buffers = sealed(three(), A, B)
    assert buffers.newest == B
    assert buffers.free() == (0, 2)
    copied = buffers.ordered(2).copied(C)
    assert copied.free() == (0,)
    assert copied.over(C, is_sealed=True).free() == (0, 1)
    assert copied.over(C, is_sealed=False).newest == B
    assert copied.over(C, is_sealed=False).free() == (0, 2)


def test_a_flush_takes_one_more_and_with_two_buffers_it_pauses_the_saves() -> None:
    two = sealed(Buffers(2), A, B)
    assert two.free(pinned=(0,)) == ()
    assert two.free(pinned=(1,)) == (0,)
    assert sealed(three(), A, B).free(pinned=(0,)) == (2,)


def test_a_single_buffer_is_overwritten_unless_somebody_reads_it() -> None:
    one = sealed(Buffers(1), A)
    assert one.free() == (0,)
    assert one.free(pinned=(0,)) == ()
    assert one.begin(A)._replace(in_all=1).free() == ()
    assert one.begin(A)._replace(in_all=1).restored().free() == (0,)
    assert one.ordered(0).newest is None


def test_a_buffer_that_ranks_may_still_write_into_is_ordered_again() -> None:
    buffers = sealed(three(), A).ordered(2)
    assert buffers.free() == (2, 1)
    assert buffers.ordered(2).copied(C).free() == (1,)


def test_an_attempt_keeps_what_it_starts_from_and_nothing_else() -> None:
    buffers = sealed(three(), A, B).begin(A)
    assert buffers.sealed == (A,)
    assert buffers.in_all == 0
    assert buffers._replace(in_all=3).free() == (1, 2)
    assert three().ordered(2).copied(C).begin(None)._replace(in_all=3).free() == (0, 1)


# --- flushes -------------------------------------------------------------------------------------


def committed(kept: SetInBuffer) -> ev.FlushCommitted:
    return ev.FlushCommitted(9, kept.attempt, kept.epoch, kept.step)


def test_one_flush_at_a_time_and_a_newer_set_takes_the_place_of_the_one_that_waits() -> None:
    flushes = Flushes()
    actions = flushes.want(0, Wanted(A, "every 10 steps"))
    assert actions == (act.Flush(0, 1, 10, 0, "every 10 steps", False),)
    assert flushes.want(0, Wanted(B, "later")) == ()
    flushes.want(0, Wanted(C, "SIGTERM", is_urgent=True))
    assert flushes.pinned == (0, 2)
    assert flushes.flushed(ev.Flushed(5, 0, 0, 1, 10, 1)) == (act.CommitFlushed(0, 1, 10, 1),)
    assert flushes.flushed(ev.Flushed(5, 0, 0, 1, 10, 1)) == (), "it is told again"
    over, actions = flushes.ended(committed(A))
    assert over == A
    assert actions == (act.Flush(0, 3, 30, 2, "SIGTERM", True),)


def test_what_all_hosts_hold_alike_goes_with_the_order_to_flush_it() -> None:
    tier, alike = MemoryTier(1), (("model", "a"),)
    tier.begin(0, 0, ev.Resume(None, 0, None), 1)
    tier.has(0, 3)
    for epoch, (kept, said) in enumerate(((A, alike), (B, ())), 1):
        tier.ordered(kept.buffer)
        tier.copied(0, epoch, kept.step, kept.buffer)
        assert tier.seal_over(ev.Sealed(1, 0, epoch, kept.step, kept.buffer, said))
    assert tier.flushes.want(2, Wanted(A, "due")) == (act.Flush(0, 1, 10, 0, "due", alike=alike),)
    hurried = act.Flush(0, 1, 10, 0, "SIGTERM", urgent=True, alike=alike)
    assert tier.flushes.want(2, Wanted(A, "SIGTERM", is_urgent=True)) == (hurried,)
    tier.flushes.want(2, Wanted(B, "later"))
    assert tier.flushes.ended(committed(A))[1] == (act.Flush(0, 2, 20, 1, "later"),)


def test_a_flush_that_becomes_urgent_is_hurried_once() -> None:
    flushes = Flushes()
    flushes.want(0, Wanted(A, "every 10 steps"))
    actions = flushes.want(0, Wanted(A, "SIGTERM", is_urgent=True))
    assert actions == (act.Flush(0, 1, 10, 0, "SIGTERM", True),)
    assert flushes.want(0, Wanted(A, "SIGTERM", is_urgent=True)) == ()
    elsewhere = SetInBuffer(0, 7, 10, 2)  # a copy of the same step: what is under way will do
    assert flushes.want(0, Wanted(elsewhere, "the last step", is_urgent=True)) == ()


def test_news_of_another_flush_changes_nothing() -> None:
    flushes = Flushes()
    flushes.want(0, Wanted(B, "now"))
    before = replace(flushes)
    assert flushes.flushed(ev.Flushed(5, 0, 0, 1, 10, 1)) == ()
    assert flushes.ended(committed(A)) == (None, ())
    assert flushes == before


def test_what_seals_take_is_the_median_of_those_that_were_sealed() -> None:
    tier = MemoryTier(1)
    tier.begin(0, 0, ev.Resume(None, 0, None), 1)
    tier.has(0, 3)
    for step, taken_ns in enumerate((7, 90, 8), start=1):
        buffer = tier.free[0]
        tier.ordered(buffer)
        tier.copied(step, step, step, buffer)
        assert tier.seal_over(ev.Sealed(step, 0, step, step, buffer, taken_ns=taken_ns))
    assert tier.taken_ns == 8


def test_a_flush_that_fails_is_tried_later_and_later() -> None:
    tier = MemoryTier(1)
    tier.begin(0, 0, ev.Resume(None, 0, None), 1)
    tier.has(0, 3)
    tier.ordered(0)
    tier.copied(1, 1, 10, 0)
    assert tier.seal_over(ev.Sealed(2, 0, 1, 10, 0))
    at_ns, waits = 10**9, []
    for _ in range(8):
        kept = tier.to_flush(at_ns, 0)
        assert kept is not None
        tier.flushes.want(at_ns, Wanted(kept, "due"))
        assert tier.to_flush(at_ns, 0) is None
        tier.flushes.ended(ev.FlushFailed(at_ns, 0, 1, 10, "disk full"))
        failed_ns = at_ns
        while tier.to_flush(at_ns, 0) is None:
            at_ns += 10**9
        waits.append((at_ns - failed_ns) // 10**9)
    assert waits == [1, 2, 4, 8, 16, 32, 60, 60]
    assert tier.to_flush(at_ns, 10) is None  # durable by now


def test_a_set_that_was_gone_when_it_was_flushed_counts_no_more() -> None:
    tier = MemoryTier(1)
    tier.begin(0, 0, ev.Resume(None, 0, None), 1)
    tier.has(0, 3)
    for number in (0, 1):
        tier.ordered(number)
        tier.copied(1, 1 + number, 10 + number, number)
        assert tier.seal_over(ev.Sealed(2, 0, 1 + number, 10 + number, number))
    newest = tier.newest
    assert newest is not None
    tier.flushes.want(3, Wanted(newest, "due"))
    tier.flush_over(ev.FlushFailed(4, 0, 2, 11, "it is gone", is_gone=True))
    assert tier.newest is not None
    assert tier.newest.step == 10


class Shaken:
    """A memory tier under random news, and what may never be so."""

    def __init__(self, ranks: int, count: int) -> None:
        self.tier = MemoryTier(ranks)
        self.tier.begin(0, 0, ev.Resume(None, 0, None), ranks)
        for rank in range(ranks):
            self.tier.has(rank, count)
        self.count, self.step, self.at_ns = count, 0, 0
        self.flushes: list[act.Flush] = []

    def do(self, what: str, choice: int) -> None:
        tier = self.tier
        self.at_ns += 1
        match what:
            case "save" if tier.free:
                newest, buffer = tier.newest, tier.free[0]
                assert buffer not in tier.flushes.pinned
                assert all(buffer != kept.buffer for kept in tier.buffers.sealing)
                tier.ordered(buffer)
                assert self.count == 1 or tier.newest == newest, "the newest set was given away"
                if choice % 3:  # else it is called off, and the next order names it again
                    self.step += 1
                    tier.copied(self.at_ns, self.step, self.step, buffer)
                else:
                    assert tier.free[0] == buffer
            case "seal" if tier.buffers.sealing:
                kept = tier.buffers.sealing[0]
                names = (kept.attempt, kept.epoch, kept.step, kept.buffer)
                event = ev.SealFailed(self.at_ns, *names, "no") if choice == 0 else None
                counts = tier.seal_over(event or ev.Sealed(self.at_ns, *names))
                assert counts == (event is None)
                if counts:
                    assert tier.newest == kept, "seals come in order"
            case "flush" if tier.newest is not None:
                wanted = Wanted(tier.newest, "due", is_urgent=choice > 2)
                self.note(tier.flushes.want(self.at_ns, wanted))
            case "flushed" if tier.flushes.under_way is not None:
                kept = tier.flushes.under_way.kept
                names = (kept.attempt, kept.epoch, kept.step)
                done = ev.FlushCommitted(self.at_ns, *names)
                failed = ev.FlushFailed(self.at_ns, *names, "no")
                over, actions = tier.flushes.ended(failed if choice == 0 else done)
                assert over is not None
                self.flushes.clear()
                self.note(actions)

    def note(self, actions: tuple[act.Action, ...]) -> None:
        self.flushes += [action for action in actions if isinstance(action, act.Flush)]
        assert len({(one.attempt, one.step) for one in self.flushes}) <= 1, "two flushes at a time"


things = st.tuples(st.sampled_from(["save", "save", "seal", "flush", "flushed"]), st.integers(0, 5))


@given(ranks=st.integers(1, 3), count=st.integers(1, 3), happening=st.lists(things, max_size=60))
def test_whatever_happens_the_newest_set_stays(
    ranks: int, count: int, happening: list[tuple[str, int]]
) -> None:
    shaken = Shaken(ranks, count)
    for what, choice in happening:
        shaken.do(what, choice)
