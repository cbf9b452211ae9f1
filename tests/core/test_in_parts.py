"""Copies in parts, in virtual time: replicas that part at some step are found, or never trusted."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.run.machine import RunMachine, RunPolicy, State, Timer
from holdfast.core.save import events as news
from holdfast.core.save import policy as saves
from holdfast.core.save.corruption import Replica, ReplicaDifference
from holdfast.core.save.in_parts import EVERY, PROVEN, Equality
from holdfast.core.save.saving import Saving
from holdfast.core.save.tier_events import SetInBuffer
from holdfast.core.save.word import IN_PARTS, Order, buffer_of, is_in_parts

DIFFERING = (ReplicaDifference("parts/model/w", (Replica(0, "a"), Replica(1, "b"))),)


class Ranks:
    """Two ranks that copy at each step, and who seals their sets.

    `parts_at`: from that step on their replicas differ.
    """

    def __init__(self, parts_at: int | None = None, *, declared: bool = True) -> None:
        self.saving = Saving(2, saves.Never(), memory_policy=saves.EverySteps(1))
        self.parts_at, self.declared = parts_at, declared
        self.step = self.at_ns = 0
        self.split: dict[int, bool] = {}  # by the step of a set
        self.incidents: list[int] = []
        self.order: news.PublishOrder | None = None
        self.begin()

    def begin(self, step: int = 0) -> None:
        """An attempt, from that step."""
        self.step = step
        self.saving.begin(self.at_ns, step)
        self.order = None
        for rank in range(2):
            self.saving.tier.has(rank, 3)

    def train(self, steps: int) -> None:
        for _ in range(steps):
            self.step += 1
            self.at_ns += 10**9
            for rank in range(2):
                self.hear(news.Progress(self.at_ns, rank, self.step))
            if self.order is not None and self.order.step == self.step:
                for rank in range(2):
                    of = rank, self.order.epoch, self.step
                    buffer = buffer_of(self.order.flags)
                    self.hear(news.Taken(self.at_ns, *of, buffer))
                    self.hear(news.Snapped(self.at_ns, *of))

    def hear(self, what: news.Event) -> None:
        for action in self.saving.hear(what):
            if isinstance(action, news.PublishOrder):
                self.order = action
            elif isinstance(action, news.SealBuffer):
                self.seal(action)

    def seal(self, action: news.SealBuffer) -> None:
        assert self.order is not None
        in_parts = is_in_parts(self.order.flags)
        self.split[action.step] = in_parts
        is_compared = self.declared and not in_parts
        differ = is_compared and self.parts_at is not None and action.step >= self.parts_at
        of = self.saving.tier.attempt, action.epoch, action.step, action.buffer
        sealed = ev.Sealed(self.at_ns, *of, (), is_compared, DIFFERING if differ else ())
        if is_compared and self.saving.tier.compare(sealed) is Equality.CORRUPTION:
            self.incidents.append(action.step)
        self.saving.tier.seal_over(sealed)

    def flush(self) -> None:
        """The policy has the newest set flushed."""
        tier = self.saving.tier
        assert tier.newest is not None
        tier.flushes.want_as_due(self.at_ns, tier.newest, "due")
        of = tier.newest.attempt, tier.newest.epoch, tier.newest.step
        tier.flushes.ended(ev.FlushCommitted(self.at_ns, *of))


def test_the_first_sets_are_whole_and_then_one_of_sixteen() -> None:
    ranks = Ranks()
    ranks.train(60)
    whole = [step for step, in_parts in ranks.split.items() if not in_parts]
    first = min(ranks.split)
    assert whole[:PROVEN] == list(range(first, first + PROVEN))
    assert {b - a for a, b in zip(whole[PROVEN:], whole[PROVEN + 1 :], strict=False)} == {EVERY}


def test_what_no_framework_keeps_equal_is_never_copied_in_parts() -> None:
    ranks = Ranks(declared=False)
    ranks.train(60)
    assert not any(ranks.split.values())


@given(parts_at=st.integers(1, 120), flushes=st.sets(st.integers(1, 150)))
def test_replicas_that_part_are_found_within_sixteen_sets(parts_at: int, flushes: set[int]) -> None:
    ranks = Ranks(parts_at)
    while ranks.step < parts_at + EVERY and not ranks.incidents:
        ranks.train(1)
        if ranks.step in flushes and ranks.saving.tier.newest is not None:
            ranks.flush()
    compared = ranks.saving.tier.replicas.compared_step
    trusted = [step for step, in_parts in ranks.split.items() if in_parts]
    if trusted or ranks.incidents:
        assert ranks.incidents, "they were known to be equal"
        assert compared is not None
        assert max(0, parts_at - EVERY) <= compared < parts_at <= ranks.incidents[0]
        assert ranks.incidents[0] - parts_at < EVERY
    before = len(ranks.split)
    ranks.train(EVERY)
    after = list(ranks.split.values())[before + 1 :]  # one may have been ordered already
    assert not any(after), "of what differs all is kept"
    assert len(ranks.incidents) <= 1


@given(flushes=st.sets(st.integers(10, 200)))
def test_of_the_sets_on_disk_one_at_most_is_newer_than_the_last_comparison(
    flushes: set[int],
) -> None:
    ranks, on_disk = Ranks(), []
    for _ in range(200):
        ranks.train(1)
        if ranks.step in flushes and ranks.saving.tier.newest is not None:
            on_disk.append(ranks.saving.tier.newest.step)
            ranks.flush()
        compared = ranks.saving.tier.replicas.compared_step or 0
        if compared:
            # One more where the set before the flush was ordered already.
            assert sum(step > compared for step in on_disk) <= 2


def test_each_attempt_proves_it_anew() -> None:
    ranks = Ranks()
    ranks.train(30)
    ranks.begin(30)
    ranks.split = {}
    ranks.train(10)
    assert list(ranks.split.values())[:PROVEN] == [False] * PROVEN
    assert any(ranks.split.values())


def test_nobody_is_sent_back_twice() -> None:
    """Where they part again after the run has gone back, a script does it on purpose."""
    ranks = Ranks(parts_at=40)
    ranks.train(40 + EVERY)
    assert len(ranks.incidents) == 1
    ranks.begin(32)
    ranks.split = {}
    ranks.train(40)
    assert len(ranks.incidents) == 1
    assert not any(ranks.split.values())


def test_a_set_that_cannot_be_sealed_is_the_last_in_parts() -> None:
    ranks = Ranks()
    ranks.train(10)
    assert ranks.saving.tier.may_split
    newest = ranks.saving.tier.newest
    assert newest is not None
    of = newest.attempt, newest.epoch + 1, newest.step + 1, newest.buffer
    ranks.saving.tier.seal_over(ev.SealFailed(ranks.at_ns, *of, "rank 1 finds no parts/model/w"))
    assert not ranks.saving.tier.may_split


@pytest.mark.parametrize(
    ("flags", "is_asked"),
    [
        (IN_PARTS | Order.BUFFER_1, True),
        (IN_PARTS | Order.BUFFER_1 | Order.DURABLE, False),
        (IN_PARTS | Order.BUFFER_1 | Order.STOP, False),
        (IN_PARTS, False),
        (Order.BUFFER_1, False),
    ],
)
def test_only_a_copy_that_nobody_waits_for_is_made_in_parts(flags: int, is_asked: bool) -> None:
    assert is_in_parts(flags) == is_asked


# --- the run --------------------------------------------------------------------------------


DURABLE = ev.Resume("0000-000000000001", 1, 0)


def running(resume: ev.Resume = DURABLE, alike: int = PROVEN + 1) -> RunMachine:
    """Two ranks on one host, found to be equal so many times."""
    run = RunMachine(RunPolicy(ranks=2, save=saves.Never()))
    for event in (
        ev.Opened(0, 0),
        ev.Chosen(1, resume, "starting"),
        ev.OnRecord(2, 0),
        ev.Launched(2, 0),
    ):
        run.handle(event)
    for step in range(1, alike + 1):
        run.handle(ev.Sealed(2 + step, 0, step, step, 0, (), is_compared=True))
    return run


def test_a_run_goes_back_to_the_last_set_in_which_all_ranks_were_equal() -> None:
    run = running()
    answer = run.handle(ev.Sealed(9, 0, 9, 9, 0, (), is_compared=True, differing=DIFFERING))
    assert any(isinstance(one, act.Kill) for one in answer)
    assert not any(isinstance(one, act.Distrust) for one in answer)
    assert run.state is State.KILLING
    (error,) = [one.words for one in answer if isinstance(one, act.Say) and one.level == "error"]
    assert error.startswith("Silent corruption by step 9 on rank 0 or 1: parts/model/w was the")
    (wish,) = run.course.rollbacks.standing
    assert wish.to == PROVEN + 1
    assert answer.index(act.KeepWish(wish)) < next(
        at for at, one in enumerate(answer) if isinstance(one, act.Kill)
    )


def warnings(answer: tuple[act.Action, ...]) -> list[str]:
    return [one.words for one in answer if isinstance(one, act.Say) and one.level == "warning"]


def differs(run: RunMachine, step: int, attempt: int = 0) -> tuple[act.Action, ...]:
    sealed = ev.Sealed(step, attempt, step, step, 0, (), is_compared=True, differing=DIFFERING)
    return run.handle(sealed)


def test_what_never_was_equal_is_told_once_in_an_attempt() -> None:
    run = running(alike=PROVEN - 1)
    (words,) = warnings(differs(run, 9))
    assert words.startswith("By step 9 parts/model/w is not the same on all ranks")
    assert run.state is State.RUNNING
    assert warnings(differs(run, 10)) == []


def test_what_differs_again_after_the_run_has_gone_back_is_told_and_no_more() -> None:
    run = running()
    run.course.saving.tier.in_parts.has_gone_back = True
    (words,) = warnings(differs(run, 9))
    assert "taken for the script's own will" in words
    assert run.state is State.RUNNING
    assert warnings(differs(run, 10)) == []


def test_where_nothing_is_as_old_as_that_set_a_run_starts_from_scratch() -> None:
    run = running(ev.SCRATCH)
    run.handle(ev.Sealed(9, 0, 9, 9, 0, (), is_compared=True, differing=DIFFERING))
    assert [wish.to for wish in run.course.rollbacks.standing] == [0]


def test_a_run_that_stops_leaves_the_wish_to_its_next_start() -> None:
    run = running()
    run.handle(ev.StopAsked(8, "SIGTERM", None, notice=False))
    answer = run.handle(ev.Sealed(9, 0, 9, 9, 0, (), is_compared=True, differing=DIFFERING))
    (wish,) = [one.wish for one in answer if isinstance(one, act.KeepWish)]
    assert wish.to == PROVEN + 1
    assert not any(isinstance(one, act.Kill) for one in answer)


def test_a_set_that_found_no_buffer_is_compared_as_well() -> None:
    """A stop's, as a rule: what the ranks have written themselves is durable, and wrong."""
    run = running()
    run.handle(ev.StopAsked(8, "SIGTERM", None, notice=False))
    assert run.handle(ev.Compared(8, 0, 8)) == ()
    answer = run.handle(ev.Compared(9, 0, 9, DIFFERING))
    (wish,) = [one.wish for one in answer if isinstance(one, act.KeepWish)]
    assert wish.to == 8


@pytest.mark.parametrize("state", [State.KILLING, State.WAITING, State.CHOOSING])
def test_what_is_compared_once_a_rank_has_failed_is_not_what_the_next_attempt_starts_from(
    state: State,
) -> None:
    run = running()
    kept = SetInBuffer(0, 9, 9, 0)
    run.course.saving.tier.buffers = run.course.saving.tier.buffers._replace(sealing=(kept,))
    run.handle(ev.RankExited(8, 0, 0, 0, Exit(signal=9)))
    if state is not State.KILLING:
        run.handle(ev.TreeGone(8, 0))
    if state is State.CHOOSING:
        run.handle(ev.TimerFired(8, Timer.RESTART))
    assert run.state is state
    answer = run.handle(ev.Sealed(9, *kept, (), is_compared=True, differing=DIFFERING))
    (wish,) = [one.wish for one in answer if isinstance(one, act.KeepWish)]
    assert run.course.rollbacks.standing == (wish,)
    looks = [one.wish for one in answer if isinstance(one, act.Choose)]
    assert looks == ([] if state is State.KILLING else [wish])


def test_of_three_ranks_the_one_is_named() -> None:
    run = RunMachine(RunPolicy(ranks=3, save=saves.Never()))
    for event in (
        ev.Opened(0, 0),
        ev.Chosen(1, ev.SCRATCH, "starting from scratch (no checkpoint yet)"),
        ev.OnRecord(2, 0),
        ev.Launched(2, 0),
    ):
        run.handle(event)
    for step in range(1, PROVEN + 1):
        run.handle(ev.Sealed(2 + step, 0, step, step, 0, (), is_compared=True))
    replicas = tuple(Replica(rank, "b" if rank == 2 else "a") for rank in range(3))
    differing = (ReplicaDifference("parts/model/w", replicas),)
    answer = run.handle(ev.Sealed(9, 0, 9, 9, 0, (), is_compared=True, differing=differing))
    (error,) = [one.words for one in answer if isinstance(one, act.Say) and one.level == "error"]
    assert "on rank 2: its parts/model/w differs from what all other ranks have" in error


def test_news_of_an_attempt_that_is_over_changes_nothing() -> None:
    run = running()
    run.handle(ev.Sealed(9, -5, 9, 9, 0, (), is_compared=True, differing=DIFFERING))
    assert run.state is State.RUNNING
