"""When a save is ordered, and at which boundary: against a scan of all boundaries, one by one."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.core.save import events as news
from holdfast.core.save.agree import lead_steps
from holdfast.core.save.policy import EverySeconds, EverySteps, Never, Optimal, SavePolicy, SaveView
from holdfast.core.save.saving import REACTION_NS, Saving

MS = 1_000_000
SECOND = 1_000_000_000


def orders(actions: tuple[news.Action, ...]) -> list[int]:
    return [action.step for action in actions if isinstance(action, news.PublishOrder)]


@dataclass(frozen=True, slots=True)
class Watched(SavePolicy):
    """Asks another policy, and keeps what it was asked."""

    policy: SavePolicy
    asked: list[SaveView]

    def holds(self, view: SaveView) -> bool:
        self.asked.append(view)
        return self.policy.holds(view)

    def why(self, view: SaveView) -> str:
        return self.policy.why(view)


leaves = st.one_of(
    st.just(Never()),
    st.builds(EverySteps, st.integers(1, 400)),
    st.builds(EverySeconds, st.floats(0.01, 20)),
    st.builds(Optimal, first_s=st.floats(0, 3), first_steps=st.integers(1, 50)),
)
policies = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.builds(lambda a, b: a | b, inner, inner), st.builds(lambda a, b: a & b, inner, inner)
    ),
    max_leaves=3,
)


@given(
    step_ns=st.integers(10 * MS, 3 * SECOND),
    took_ns=st.integers(5 * MS, 500 * MS),
    share=st.floats(0, 1),
)
def test_a_stop_is_ordered_at_the_first_boundary_that_it_reaches_in_time(
    step_ns: int, took_ns: int, share: float
) -> None:
    """`share` of the step under way is behind the rank when its host has answered."""
    saving = Saving(1, Never())
    saving.begin(0, 0)
    for step in range(1, 4):
        saving.hear(news.Progress(step * step_ns, 0, step))
    since_ns = int(share * (step_ns - 1))
    at_ns = 3 * step_ns + since_ns
    saving.answered = took_ns, since_ns
    (ordered,) = orders(saving.stop(at_ns, "a stop", None))
    assert at_ns + took_ns < ordered * step_ns <= at_ns + took_ns + step_ns


def test_of_a_step_that_takes_long_nobody_knows_when_it_is_over() -> None:
    saving = Saving(1, Never())
    saving.begin(0, 0)
    for step in range(1, 4):
        saving.hear(news.Progress(step * SECOND, 0, step))
    saving.answered = 10 * MS, 60 * SECOND
    assert orders(saving.stop(63 * SECOND, "a stop", None)) == [4]


@given(
    policy=policies,
    step_ns=st.integers(MS // 10, 3 * SECOND),
    polls=st.lists(st.integers(1, 2000), min_size=2, max_size=12),
    cost=st.tuples(st.integers(0, SECOND), st.integers(0, 10 * SECOND)),
    failures=st.integers(0, 5),
)
def test_the_nearest_due_boundary_is_the_one_that_a_scan_finds(
    policy: SavePolicy,
    step_ns: int,
    polls: list[int],
    cost: tuple[int, int],
    failures: int,
) -> None:
    watched = Watched(policy, [])
    saving = Saving(1, watched)
    saving.failures.seen = failures
    saving.begin(0, 0)
    saving.note_cost(cost[0])
    at_ns = step = 0
    for poll in polls:
        step += poll
        at_ns = step * step_ns
        watched.asked.clear()
        ordered = orders(saving.hear(news.Progress(at_ns, 0, step)))
        if ordered or not watched.asked:
            break
    assume(ordered or watched.asked)
    first = watched.asked[0]  # the furthest that an order may name
    furthest = first.step - step
    assert 1 <= furthest <= lead_steps(1, REACTION_NS)
    due = []
    for lead in range(1, furthest + 1):
        far_ns = at_ns + (lead - 1) * saving.step_time_ns
        view = SaveView(
            far_ns,
            step + lead,
            0,
            0,
            saving.step_time_ns,
            cost[0],
            0,
            failures,
            far_ns,
        )
        if policy.decide(view)[0]:
            due.append(step + lead)
    assert ordered == due[:1]
    assert saving.reason or not ordered


@given(
    interval=st.integers(3, 500),
    step_ns=st.integers(MS // 10, 3 * SECOND),
    committed=st.integers(0, 3),
    phase=st.floats(0, 1),
)
def test_a_multiple_is_ordered_exactly_once_the_pace_is_known(
    interval: int, step_ns: int, committed: int, phase: float
) -> None:
    saving = Saving(1, EverySteps(interval))
    start = committed * interval
    saving.begin(0, start)
    poll_ns = REACTION_NS // 2
    assume(interval * step_ns > 4 * REACTION_NS)  # or it passes before anything was measured
    step = at_ns = 0
    while not (ordered := orders(saving.hear(news.Progress(at_ns, 0, start + step)))):
        assert step < interval, "it has passed without an order"
        at_ns += poll_ns
        step = int((at_ns + phase * poll_ns) / step_ns)
    assert ordered == [start + interval]


def test_what_is_heard_late_orders_no_step_of_the_past() -> None:
    """A busy host tells of something that was before the newest progress."""
    saving = Saving(1, EverySteps(100_000), memory_policy=EverySteps(1))
    saving.begin(0, 0)
    for step in range(0, 1000, 100):
        assert not saving.hear(news.Progress(step * MS, 0, step))
    saving.tier.has(0, 3)
    assert orders(saving.look(600 * MS)) == [901]


def test_pauses_do_not_make_orders_late() -> None:
    """The mean holds an evaluation of ten minutes; the pace between evaluations counts."""
    saving = Saving(1, EverySteps(1000))
    saving.begin(0, 0)
    at_ns = step = 0
    for _ in range(10):
        step, at_ns = step + 25, at_ns + 250 * MS
        assert orders(saving.hear(news.Progress(at_ns, 0, step))) == []
    at_ns += 600 * SECOND
    while step < 925:
        step, at_ns = step + 25, at_ns + 250 * MS
        assert orders(saving.hear(news.Progress(at_ns, 0, step))) == []
    assert saving.step_time_ns > 500 * MS  # the mean alone would see one step ahead
    assert orders(saving.hear(news.Progress(at_ns + 250 * MS, 0, 950))) == [1000]


def test_the_fastest_ranks_pace_counts_when_ranks_are_out_of_step() -> None:
    saving = Saving(2, EverySteps(1000))
    saving.begin(0, 0)
    ordered = []
    for number in range(1, 4):
        for rank, step in ((0, 250 * number - 40), (1, number)):
            ordered += orders(saving.hear(news.Progress(number * 250 * MS, rank, step)))
    assert ordered == [1000]


def test_what_the_last_save_cost_is_measured() -> None:
    saving = Saving(2, Never())
    saving.begin(0, 0)
    for rank in (0, 1):
        saving.joined.add(rank)
        saving.joined.add(rank)
        saving.hear(news.Progress(SECOND, rank, 1))
    assert saving.joined == {0, 1}
    assert orders(saving.ask(SECOND, "holdfast save")) == [2]
    assert saving.agreement.is_active
    for rank in (0, 1):
        saving.hear(news.Snapped(2 * SECOND + rank, rank, 1, 2))
        saving.note_cost(300 * MS)
        saving.hear(news.Durable(3 * SECOND, rank, 1, 2))
    saving.hear(news.Committed(4 * SECOND, 1, 2))
    assert not saving.agreement.is_active
    assert saving.committed_step == 2
    view = saving.view(0)
    assert (view.save_blocked_ns, view.save_total_ns) == (300 * MS, 2 * SECOND - 1)


def test_a_script_may_ask_for_the_step_right_after_a_saved_one() -> None:
    """Others who ask wait until there is something new."""
    saving = Saving(1, Never())
    saving.begin(0, 5)
    assert orders(saving.ask(SECOND, "holdfast save")) == []
    assert orders(saving.ask(SECOND, "the script asked for it", in_step=True)) == [6]


def test_a_script_need_not_wait_for_a_save_that_is_ordered_far_ahead() -> None:
    """As `every 1000 steps` does where steps take microseconds."""
    saving = Saving(1, EverySteps(1000))
    saving.begin(0, 0)
    ordered = []
    for step in range(1, 4):
        ordered += orders(saving.hear(news.Progress(step * MS // 100, 0, step)))
    assert ordered == [1000]
    assert orders(saving.ask(MS, "the script asked for it", in_step=True)) == [4]


def test_a_slow_copy_is_given_time_when_others_wait_for_it() -> None:
    saving = Saving(1, Never())
    saving.begin(0, 0)
    saving.joined.add(0)
    saving.hear(news.Progress(1, 0, 1))
    saving.note_cost(10 * SECOND)
    saving.stop(2, "SIGTERM", None)
    assert saving.agreement.stop is not None
    assert saving.agreement.stop.answer_limit_ns == 40 * SECOND


def test_an_attempt_begins_without_the_last_ones_ranks_and_with_what_was_measured() -> None:
    saving = Saving(1, Never())
    saving.begin(0, 0)
    saving.joined.add(0)
    for step in (1, 2, 3):
        saving.hear(news.Progress(step * SECOND, 0, step))
    saving.hear(news.LoopEnded(3 * SECOND, 0, 3))
    assert saving.agreement.ranks.have_ended
    saving.failures.end(4 * SECOND)
    saving.begin(5 * SECOND, 2)
    assert (
        saving.joined,
        saving.agreement.ranks.have_ended,
        saving.fastest_step,
        saving.slowest_step,
    ) == (
        set(),
        False,
        2,
        2,
    )
    assert (saving.step_time_ns, saving.failures.observed_ns) == (SECOND, 4 * SECOND)
