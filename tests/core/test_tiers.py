"""Two tiers, two policies: how often each is saved to, by what was measured, and why in words."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.run.course import RunState
from holdfast.core.run.flushing import tell
from holdfast.core.run.state import RunPolicy
from holdfast.core.save import events as news
from holdfast.core.save.agree import AgreementPhase
from holdfast.core.save.frequency import alone_words, saving_words
from holdfast.core.save.pace import SavePace, median
from holdfast.core.save.policy import (
    IN_MEMORY,
    EverySeconds,
    EverySteps,
    Never,
    Optimal,
    SavePolicy,
    SaveView,
    Tier,
)
from holdfast.core.save.saving import Saving
from holdfast.core.save.word import buffer_of

MS, SECOND, HOUR = 10**6, 10**9, 3600 * 10**9


def view(**known: int | Tier | None) -> SaveView:
    told: dict[str, int | Tier | None] = {
        "now_ns": 0, "step": 1, "last_committed_step": 0, "last_committed_ns": 0,
        "step_time_ns": 50 * MS, "save_blocked_ns": 1 * MS, "save_total_ns": 2 * MS,
        "tier": Tier.MEMORY, **known,
    }  # fmt: skip
    return SaveView(**told)  # type: ignore[arg-type]


# --- the interval ---------------------------------------------------------------------------------


def test_failures_in_quick_succession_bring_saves_in_quick_succession() -> None:
    calm = {f"{s} s": IN_MEMORY.interval_s(view(calm_ns=s * SECOND)) for s in (0, 60, 7200)}
    assert calm["0 s"] < 0.15 < calm["60 s"] < 0.4 < 2 < calm["7200 s"] < 4
    often = view(calm_ns=HOUR, failures_seen=200, observed_ns=HOUR)
    assert IN_MEMORY.mtbf_s(often) < 100 < HOUR


def test_failures_that_keep_coming_are_expected_to_go_on() -> None:
    """The last few came every 20 s: though the newest is 40 s ago, the next is as near as ever."""
    some = view(calm_ns=40 * SECOND, failures_seen=3, observed_ns=80 * SECOND)
    assert IN_MEMORY.mtbf_s(some) == 55
    assert IN_MEMORY.mtbf_s(some._replace(recent_ns=20 * SECOND)) == 20
    in_a_crash_loop = some._replace(recent_ns=SECOND // 100)
    assert IN_MEMORY.mtbf_s(in_a_crash_loop) == 15
    assert Optimal().mtbf_s(some._replace(recent_ns=20 * SECOND)) > 3000, "that is the memory's"


def test_the_distances_of_the_last_three_failures_are_measured() -> None:
    saving = Saving(1, Never(), memory_policy=IN_MEMORY)
    now = 0
    for number in range(1, 6):
        saving.begin(now, 0)
        saving.failures.known(number, 0)
        recent_ns = saving.memory_view(now + 10 * SECOND).recent_ns
        assert recent_ns == (25 * SECOND if number >= 3 else 0)  # 20 + 20 + the 10 since, by two
        now += 20 * SECOND
        saving.failures.end(now)


def test_a_loss_that_counts_twice_is_saved_more_often() -> None:
    once = replace(IN_MEMORY, loss_weight=1.0)
    seen = view(calm_ns=60 * SECOND)
    assert IN_MEMORY.interval_s(seen) == pytest.approx(once.interval_s(seen) / 2**0.5, rel=0.01)
    with pytest.raises(ValueError, match="at least once"):
        replace(IN_MEMORY, loss_weight=0.5)


def test_without_a_burst_the_rate_is_that_of_prior_and_observation() -> None:
    plain = Optimal()
    assert plain.mtbf_s(view(calm_ns=5 * SECOND)) == 4 * 3600


def test_behind_a_memory_tier_only_what_takes_the_memory_along_counts() -> None:
    durable = view(tier=Tier.DURABLE, save_blocked_ns=0, save_total_ns=SECOND)
    assert Optimal().mtbf_s(durable) == 24 * 3600
    alone = view(tier=Tier.ALONE, save_blocked_ns=0, save_total_ns=SECOND)
    assert Optimal().interval_s(durable) > 2 * Optimal().interval_s(alone)


def test_a_measured_slowdown_replaces_the_assumed_one() -> None:
    def interval_s(slowdown_ppm: int | None) -> float:
        flush = view(
            tier=Tier.DURABLE,
            save_blocked_ns=0,
            save_total_ns=SECOND,
            slowdown_ppm=slowdown_ppm,
        )
        return Optimal().interval_s(flush)

    assert interval_s(50_000) == interval_s(None)
    assert interval_s(200_000) == pytest.approx(2 * interval_s(None), rel=0.01)
    assert interval_s(0) == interval_s(5_000)  # what no measurement can tell from nothing


def test_a_prior_that_says_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="says nothing"):
        Optimal(prior_loss_every_s=0)


# --- what is ordered ------------------------------------------------------------------------------


class Trained:
    """One rank that answers every order, with a flush and a seal that take their time."""

    def __init__(
        self,
        memory: SavePolicy = IN_MEMORY,
        durable: SavePolicy | None = None,
        *,
        blocked_ns: int = 1 * MS,
        resume: ev.Resume | None = None,
    ) -> None:
        self.saving = Saving(1, durable or Never(), memory_policy=memory)
        self.resume = resume or ev.Resume(None, 0, None)
        self.saving.begin(0, self.resume.durable_step, attempt=0, resume=self.resume)
        self.saving.tier.has(0, 3)
        self.at_ns, self.step, self.blocked_ns = 0, self.resume.step, blocked_ns
        self.order: news.PublishOrder | None = None
        self.copied: list[tuple[int, int]] = []

    def heard(self, what: news.Event) -> None:
        for action in self.saving.hear(what):
            if isinstance(action, news.PublishOrder):
                assert action.step > self.step, "ordered too late"
                self.order = action
            elif isinstance(action, news.SealBuffer):
                self.copied.append((self.step, action.buffer))
                done = ev.Sealed(self.at_ns, 0, action.epoch, action.step, action.buffer)
                self.saving.tier.seal_over(done)

    def train(self, steps: int, step_ns: int = 50 * MS, look_every: int = 5) -> None:
        for _ in range(steps):
            self.at_ns += step_ns
            self.step += 1
            if self.order is not None and self.order.step == self.step:
                self.saving.note_cost(self.blocked_ns)
                self.heard(news.Snapped(self.at_ns, 0, self.order.epoch, self.step))
            if self.step % look_every == 0:
                self.heard(news.Progress(self.at_ns, 0, self.step))


def overdue_at_restart(steps: int) -> tuple[Saving, list[news.PublishOrder]]:
    """It resumed from memory, made so many steps of 0.5 s, and a write to disk is long due."""
    saving = Saving(1, EverySeconds(1), memory_policy=EverySteps(1))
    saving.begin(0, 40, attempt=1, resume=ev.Resume(None, 100, 0, buffer=1, committed_step=40))
    orders: list[news.Action] = []
    for number in range(1, steps + 1):
        at_ns = 5 * SECOND + number * SECOND // 2
        orders += saving.hear(news.Progress(at_ns, 0, 100 + number))
    return saving, [one for one in orders if isinstance(one, news.PublishOrder)]


def test_a_save_that_is_overdue_at_a_restart_waits_for_the_buffers() -> None:
    """A copy into none takes new memory, and the training waits for all of it."""
    saving, orders = overdue_at_restart(1)
    assert orders == []
    saving.tier.has(0, 3)
    assert saving.buffers_came(5 * SECOND + 520 * MS) == (), "how fast it steps is not known"
    saving.pace.step_time_ns = SECOND // 2  # of the attempt before
    (order,) = saving.buffers_came(5 * SECOND + 520 * MS)
    assert isinstance(order, news.PublishOrder)
    assert (order.step, buffer_of(order.flags)) == (102, 0)


def test_it_does_not_wait_for_ever() -> None:
    assert overdue_at_restart(20)[1] == []
    (order,) = overdue_at_restart(21)[1]
    assert buffer_of(order.flags) is None


def test_a_run_that_starts_from_the_store_may_never_have_buffers() -> None:
    saving = Saving(1, EverySeconds(1), memory_policy=EverySteps(1))
    saving.begin(0, 100, attempt=1, resume=ev.Resume(None, 100, 0))
    (order,) = saving.hear(news.Progress(5 * SECOND, 0, 101))
    assert isinstance(order, news.PublishOrder)
    assert (order.step, buffer_of(order.flags)) == (102, None)


def test_cheap_copies_of_a_young_run_are_made_every_few_steps() -> None:
    run = Trained()
    run.train(400)
    gaps = [b - a for (a, _), (b, _) in pairwise(run.copied)]
    assert max(gaps[5:]) <= 6
    assert sum(gaps[5:]) / len(gaps[5:]) <= 5


def test_at_every_step_if_that_is_what_is_wanted_and_each_into_another_buffer() -> None:
    run = Trained(EverySteps(1))
    run.train(100)
    assert [step for step, _ in run.copied][-50:] == list(range(51, 101))
    assert {buffer for _, buffer in run.copied} == {0, 1, 2}
    assert all(a != b for (_, a), (_, b) in pairwise(run.copied))


def test_dear_copies_are_made_seldom() -> None:
    run = Trained(blocked_ns=500 * MS)
    run.train(2000)
    gaps = [b - a for (a, _), (b, _) in pairwise(run.copied)]
    assert min(gaps[2:]) > 50


def test_a_durable_save_at_a_certain_step_is_copied_at_that_step() -> None:
    run = Trained(EverySteps(7), EverySteps(20))
    run.train(100, look_every=1)
    steps = [step for step, _ in run.copied]
    assert {20, 40, 60, 80, 100} <= set(steps)
    assert {7, 14, 21, 28} <= set(steps)
    assert run.saving.flush_due(run.at_ns, 100) == (True, "every 20 steps")


def test_no_copy_is_asked_of_the_ranks_where_a_set_in_memory_will_do() -> None:
    run = Trained(EverySteps(10), EverySeconds(2.0))
    run.train(200)
    assert all(step % 10 == 0 for step, _ in run.copied[1:])


def test_orders_that_come_too_late_are_given_earlier() -> None:
    run = Trained(EverySteps(1))
    run.train(20)
    for _ in range(6):
        order = run.order
        assert order is not None
        run.step = order.step + 3  # the rank was past it already
        run.heard(news.Progress(run.at_ns, 0, run.step))
    run.train(600)
    after = [step for step, _ in run.copied if step > 20]
    gaps = [b - a for a, b in pairwise(after)]
    assert gaps[0] > 4
    assert gaps[-1] == 1, "it is forgotten again"


def test_somebody_who_asks_does_not_wait_for_a_copy_that_is_only_ordered() -> None:
    run = Trained(EverySteps(100))
    run.train(55)
    assert run.order is None or run.order.step == 100
    for action in run.saving.ask(run.at_ns, "holdfast save"):
        if isinstance(action, news.PublishOrder):
            assert action.step <= 57
    assert not run.saving.agreement.in_memory
    assert run.saving.agreement.phase is AgreementPhase.COLLECTING


def test_nothing_is_ordered_into_what_ranks_still_read() -> None:
    resume = ev.Resume("0000-000000000040", 40, 0, buffer=1, committed_step=20)
    run = Trained(EverySteps(1), resume=resume)
    assert run.saving.tier.free == (0, 2)
    assert run.saving.committed_step == 20
    assert run.saving.slowest_step == 40
    run.train(20, look_every=1)
    assert {buffer for _, buffer in run.copied} == {0, 1, 2}
    assert run.order is None or buffer_of(run.order.flags) is not None


# --- the pace -------------------------------------------------------------------------------------


def test_what_flushes_cost_the_steps_is_measured() -> None:
    pace = SavePace()
    at_ns = step = 0
    assert pace.slowdown_ppm is None
    for block in range(20):
        for _ in range(10):
            busy = block % 2 == 1
            at_ns += (55 if busy else 50) * MS
            step += 1
            pace.note(at_ns, step, step, 0, is_flushing=busy)
    assert pace.slowdown_ppm == pytest.approx(1e6 * (1 - 50 / 55), rel=0.02)


def test_the_median_of_few_and_of_none() -> None:
    assert median([]) == 0
    assert median([5, 1, 900]) == 5


# --- the words ------------------------------------------------------------------------------------


def test_the_sentence_names_both_tiers_and_the_reason_of_each() -> None:
    memory = IN_MEMORY.pace(view(calm_ns=240 * SECOND))
    durable = Optimal().pace(
        view(
            tier=Tier.DURABLE,
            save_blocked_ns=0,
            save_total_ns=8 * SECOND,
            slowdown_ppm=31_000,
        )
    )
    assert saving_words(memory, durable) == (
        "saving every 10 steps to memory, every 3.4 min to disk, because a copy blocks 1 ms and "
        "the run began 4 min ago, and a write to disk takes 8 s, slowing the steps by 3.1 %, and "
        "memory may be lost every 24 h"
    )


@pytest.mark.parametrize(
    ("memory", "durable", "words"),
    [
        (EverySteps(2), EverySeconds(600), "saving every 2 steps to memory, every 10 min to disk"),
        (EverySteps(1), EverySteps(1), "saving every step to memory and to disk"),
        (Never(), EverySteps(3), "saving to memory only when asked, every 3 steps to disk"),
        (EverySteps(3), Never(), "saving every 3 steps to memory, to disk only when asked"),
        (Never(), Never(), "saving only when asked"),
    ],
)
def test_what_the_user_has_set_needs_no_reason(
    memory: SavePolicy, durable: SavePolicy, words: str
) -> None:
    assert saving_words(memory.pace(view()), durable.pace(view(tier=Tier.DURABLE))) == words


def test_a_slowdown_that_is_none_is_not_told() -> None:
    pace = Optimal().pace(view(tier=Tier.DURABLE, save_total_ns=8 * SECOND, slowdown_ppm=400))
    assert pace.because == "a write to disk takes 8 s and memory may be lost every 24 h"


@pytest.mark.parametrize(
    ("policy", "words"),
    [
        (EverySeconds(5) | EverySteps(10), "every 5 s, or every 10 steps"),
        (EverySeconds(5) & EverySteps(10), "every 5 s, and every 10 steps"),
    ],
)
def test_the_words_for_two_rules_do_not_change_with_which_is_due(
    policy: SavePolicy, words: str
) -> None:
    told = {
        policy.pace(view(now_ns=seconds * SECOND, last_committed_ns=0, step=step))
        for seconds in (1, 10)
        for step in (1001, 1010)
    }
    assert [pace.words for pace in told] == [words]


def test_two_rules_are_told_again_when_the_one_that_is_learned_has_changed() -> None:
    policy = Optimal() | EverySteps(10**6)
    short, like, long = (
        policy.pace(view(tier=Tier.DURABLE, save_total_ns=ms * MS)) for ms in (100, 110, 10**5)
    )
    assert short.is_like(like)
    assert not short.is_like(long)


def test_before_the_first_save_it_is_told_when_that_is() -> None:
    pace = Optimal().pace(view(save_total_ns=0))
    assert alone_words(pace) == (
        "no snapshots in memory now: saving to disk first after 30 s or 20 steps"
    )


def test_it_is_told_when_it_has_changed_and_not_for_every_wobble() -> None:
    run = Trained()
    course = RunState.start(RunPolicy(1))
    course.saving = run.saving
    assert tell(course, 0) != []
    said = 0
    for _ in range(60):
        run.train(100)
        said += sum(isinstance(action, act.Say) for action in tell(course, run.at_ns))
    assert 1 <= said <= 4
    assert course.said_frequency.words.startswith("saving every ")


def test_without_a_memory_tier_there_is_nothing_to_tell() -> None:
    assert tell(RunState.start(RunPolicy(1)), 0) == []
