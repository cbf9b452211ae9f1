"""The agreed save by example: what is said to whom, and why."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.plain_json import copied
from holdfast.core.save.agree import TABLE, Agreement, AgreementPhase, lead_steps, step, wake_at_ns
from holdfast.core.save.agree_moves import EARLY_PATIENCE, MAX_LEAD
from holdfast.core.save.events import (
    Abort,
    Commit,
    CommitFailed,
    Committed,
    Durable,
    Event,
    LoopEnded,
    MakeRoom,
    Progress,
    PublishOrder,
    PublishVerdict,
    RankGone,
    Refuse,
    SaveDue,
    SaveFailed,
    Snapped,
    StopDue,
    Taken,
    Tick,
)
from holdfast.core.save.ranks import RankAnswers, changes
from holdfast.core.save.word import (
    MAX_EPOCH,
    Agreed,
    Answer,
    Order,
    after_loop,
    at_boundary,
    between_steps,
    is_settled,
    pack,
    while_waiting,
    with_buffer,
)

SECOND_NS = 1_000_000_000
STOP = StopDue(0, "a notice")
SAVE = SaveDue(0, "every 41 s")


def feed(state: Agreement, *events: Event) -> tuple[Agreement, list[object]]:
    """What becomes of a state that stays as it is, and what was said."""
    state, said = copied(state), list[object]()
    for event in events:
        said += step(state, event)
    return state, said


def at_step(*steps: int, committed: int = 0) -> Agreement:
    state = Agreement.start(len(steps), committed)
    return feed(state, *(Progress(0, rank, n) for rank, n in enumerate(steps)))[0]


def all_answer(state: Agreement, at_ns: int = 0) -> list[Event]:
    return [Snapped(at_ns, rank, state.epoch, state.step) for rank in range(len(state.ranks.steps))]


def all_durable(state: Agreement) -> list[Event]:
    return [Durable(0, rank, state.epoch, state.step) for rank in range(len(state.ranks.steps))]


# --- the usual course ---------------------------------------------------------------------------


def test_a_save_is_ordered_one_step_ahead_of_the_fastest_and_committed():
    state, said = feed(at_step(7, 8), SAVE)
    assert said == [PublishOrder(1, 9, 0, "every 41 s")]
    state, said = feed(state, Progress(0, 1, 9), *all_answer(state))
    assert (state.phase, said) == (AgreementPhase.WRITING, [])
    state, said = feed(state, *all_durable(state))
    assert (state.phase, said) == (AgreementPhase.COMMITTING, [Commit(1, 9)])
    state, said = feed(state, Committed(5, 1, 9))
    assert said == [PublishVerdict(1, 9, Order.COMMITTED, "step 9 is durable on all ranks")]
    assert (state.phase, state.committed_step) == (AgreementPhase.IDLE, 9)


def test_a_stop_ends_with_the_verdict():
    state, said = feed(at_step(7), STOP)
    assert said == [PublishOrder(1, 8, Order.STOP | Order.EARLY, "a notice")]
    state, said = feed(state, *all_durable(state), Committed(0, 1, 8))
    assert said[-1].flags == Order.COMMITTED | Order.STOP
    assert state.phase is AgreementPhase.OVER
    assert feed(state, SAVE)[1] == [
        Refuse("no more saves in this attempt: step 8 is durable on all ranks")
    ]


def test_one_rank_that_is_on_time_never_misses():
    """The step is answered before any limit can run: no timer is even set."""
    state, _ = feed(at_step(7), STOP, Progress(0, 0, 8))
    assert wake_at_ns(state) is None
    state, said = feed(state, Tick(10**15), Snapped(10**15, 0, 1, 8))
    assert (state.phase, said) == (AgreementPhase.WRITING, [])


def test_nothing_to_save():
    assert feed(at_step(7, 7, committed=7), SAVE)[1] == [
        Refuse("no step completed since the save of step 7")
    ]
    state, said = feed(at_step(7, 7, committed=7), STOP)
    assert said == [PublishOrder(1, 7, Order.LEAVE, "no step completed since the save of step 7")]
    assert state.phase is AgreementPhase.OVER


def test_a_step_under_way_is_something_to_save():
    asked = SaveDue(0, "the script asked for it", in_step=True)
    state, said = feed(at_step(7, 7, committed=7), asked)
    assert said == [PublishOrder(1, 8, 0, "the script asked for it")]
    state, said = feed(state, Progress(0, 0, 8), Progress(0, 1, 8), *all_answer(state))
    assert state.phase is AgreementPhase.WRITING


def test_one_that_is_ordered_far_ahead_gives_way_to_the_step_under_way():
    asked = SaveDue(0, "the script asked for it", in_step=True)
    state, _ = feed(at_step(7, 7), SaveDue(0, "every 1000 steps", lead=993))
    state, said = feed(state, asked)
    assert said == [
        Abort(1, 1000, "superseded by a save: the script asked for it"),
        PublishOrder(2, 8, 0, "the script asked for it"),
    ]
    near, _ = feed(at_step(7, 7), SAVE)
    assert type(feed(near, asked)[1][0]) is Refuse
    answered, _ = feed(
        at_step(7, 7), SaveDue(0, "every 41 s", lead=2), Progress(0, 0, 9), Snapped(0, 0, 1, 9)
    )
    assert type(feed(answered, asked)[1][0]) is Refuse


def test_a_save_under_way_is_not_begun_twice():
    assert feed(at_step(7), SAVE, SAVE)[1][1:] == [
        Refuse("the save of step 8 is under way (collecting)")
    ]


# --- missed steps -------------------------------------------------------------------------------


def test_a_rank_that_is_past_the_step_moves_it_under_a_new_epoch():
    state, said = feed(at_step(7, 7), SAVE, Progress(0, 1, 9))
    why = "rank 1 was past step 8 already"
    assert said[1:] == [Abort(1, 8, why), PublishOrder(2, 10, 0, "every 41 s")]
    state, said = feed(state, Snapped(0, 0, 1, 8), Durable(0, 0, 1, 8))
    assert said == []  # late news of a dead epoch
    assert state.ranks.answers == {}


def test_each_further_miss_doubles_the_lead():
    state, _ = feed(at_step(0), Progress(0, 0, 1), SAVE)
    leads = []
    for _ in range(5):
        state, said = feed(state, Progress(0, 0, state.step + 1))
        leads.append(said[-1].step - state.fastest_step)
    assert leads == [1, 2, 4, 8, 16]
    for _ in range(20):
        state, said = feed(state, Progress(0, 0, state.step + 1))
    assert said[-1].step - state.fastest_step == MAX_LEAD


def test_a_rank_that_keeps_others_waiting_is_given_a_limit_that_doubles():
    state, _ = feed(at_step(7, 7), StopDue(0, "a notice", answer_limit_ns=SECOND_NS))
    state, _ = feed(state, Progress(1, 1, 8))
    assert wake_at_ns(state) is None  # nobody waits yet: it may be copying, or will move on
    state, said = feed(state, Snapped(5, 0, 1, 8))
    assert wake_at_ns(state) == 5 + SECOND_NS
    state, said = feed(state, Tick(4 + SECOND_NS))
    assert said == []
    state, said = feed(state, Tick(5 + SECOND_NS))
    assert said == [
        Abort(1, 8, "a rank is at step 8 and has not copied it"),
        PublishOrder(2, 9, Order.STOP, "a notice"),
    ]
    state, _ = feed(state, Snapped(7, 0, 2, 9), Progress(8, 1, 9))
    assert wake_at_ns(state) == 8 + 2 * SECOND_NS
    state, _ = feed(state, Snapped(9, 1, 2, 9))
    assert wake_at_ns(state) is None


def test_ranks_between_two_steps_agree_on_the_step_they_have_done():
    state, _ = feed(at_step(7, 7), STOP, Snapped(5, 0, 1, 7))
    assert wake_at_ns(state) == 5 + EARLY_PATIENCE * SECOND_NS
    state, said = feed(state, Snapped(6, 1, 1, 7), Durable(7, 0, 1, 7), Durable(7, 1, 1, 7))
    assert said == [Commit(1, 7)]
    _, said = feed(state, Committed(8, 1, 7))
    assert said[-1].flags == Order.COMMITTED | Order.STOP


def test_a_rank_that_is_in_the_next_step_already_has_its_boundary_ordered():
    state, _ = feed(at_step(7, 7), STOP, Snapped(5, 0, 1, 7))
    state, said = feed(state, Tick(5 + EARLY_PATIENCE * SECOND_NS))
    assert said == [
        Abort(1, 8, "a rank was between two steps, and another was not"),
        PublishOrder(2, 9, Order.STOP, "a notice"),  # EARLY is tried once
    ]


def test_a_periodic_save_needs_no_limit():
    """Nobody waits for a verdict, so a rank that missed S goes on and so says that it did."""
    state, _ = feed(at_step(7, 7), SAVE, Progress(0, 0, 8), Snapped(0, 0, 1, 8), Progress(0, 1, 8))
    assert wake_at_ns(state) is None


def test_epochs_wrap_and_skip_zero():
    state = Agreement.start(1, 0, epoch=MAX_EPOCH - 1)
    state, said = feed(state, Progress(0, 0, 5), SAVE, Progress(0, 0, 9), Progress(0, 0, 99))
    assert [a.epoch for a in said if isinstance(a, PublishOrder)] == [MAX_EPOCH, 1, 2]


# --- a stop while a save is under way -----------------------------------------------------------


def test_a_stop_replaces_an_order_that_not_all_have_answered():
    state, _ = feed(at_step(7, 7), SAVE, Progress(0, 0, 8), Snapped(0, 0, 1, 8))
    state, said = feed(state, STOP)
    assert said == [
        Abort(1, 8, "superseded by a stop: a notice"),
        PublishOrder(2, 9, Order.STOP | Order.EARLY, "a notice"),
    ]


def test_a_stop_does_not_wait_for_a_step_that_was_ordered_far_ahead():
    state, said = feed(at_step(7, 7), SaveDue(0, "every 1000 steps", lead=993))
    assert said[0].step == 1000
    state, said = feed(state, STOP)
    assert said[-1] == PublishOrder(2, 8, Order.STOP | Order.EARLY, "a notice")


def test_a_stop_lets_a_set_that_is_being_written_finish_first():
    state, _ = feed(at_step(7), SAVE, Progress(0, 0, 8), Snapped(0, 0, 1, 8))
    state, said = feed(state, STOP, Progress(0, 0, 9))
    assert said == []
    state, said = feed(state, Durable(0, 0, 1, 8), Committed(1, 1, 8))
    assert [type(a) for a in said] == [Commit, PublishVerdict, PublishOrder]
    assert said[-1] == PublishOrder(2, 10, Order.STOP | Order.EARLY, "a notice")


def test_a_stop_that_waited_finds_nothing_left_to_save():
    state, _ = feed(at_step(7), SAVE, Progress(0, 0, 8), Snapped(0, 0, 1, 8), STOP)
    state, said = feed(state, Durable(0, 0, 1, 8), Committed(1, 1, 8))
    assert said[-1].flags == Order.LEAVE
    assert state.phase is AgreementPhase.OVER


def test_a_repeated_stop_tightens_the_deadline_and_no_more():
    state, _ = feed(at_step(7), StopDue(0, "SIGTERM", leave_by_ns=100))
    state, said = feed(state, StopDue(1, "SIGTERM", leave_by_ns=50), StopDue(2, "SIGTERM"))
    assert said == []
    assert wake_at_ns(state) == 50


# --- deadlines, failures, deaths ----------------------------------------------------------------


def test_the_deadline_keeps_the_newest_complete_set():
    state, _ = feed(at_step(7, 7, committed=5), StopDue(0, "a notice", leave_by_ns=100))
    state, said = feed(state, Snapped(1, 0, 1, 8), Tick(99))
    assert said == []
    state, said = feed(state, Tick(100))
    why = "the deadline came before step 8 was durable"
    assert said == [Abort(1, 8, why), PublishOrder(2, 5, Order.LEAVE, why)]
    assert state.phase is AgreementPhase.OVER


def test_a_deadline_that_is_at_hand_leaves_no_time_to_begin():
    _, said = feed(at_step(7), StopDue(100, "a notice", leave_by_ns=100))
    assert said == [PublishOrder(1, 0, Order.LEAVE, "the deadline is at hand")]


def test_a_deadline_also_ends_a_save_that_a_stop_waits_for():
    state, _ = feed(at_step(7), SAVE, Snapped(0, 0, 1, 8), StopDue(1, "SIGTERM", leave_by_ns=9))
    assert wake_at_ns(state) == 9
    assert feed(state, Tick(9))[1][-1].flags == Order.LEAVE


def test_a_manifest_that_is_being_written_is_not_abandoned():
    state, _ = feed(at_step(7), StopDue(0, "SIGTERM", leave_by_ns=9), Durable(0, 0, 1, 8))
    assert feed(state, Tick(9))[1] == []
    assert wake_at_ns(state) is None


def test_a_failed_periodic_save_is_called_off_and_training_goes_on():
    state, _ = feed(at_step(7, 7), SAVE)
    state, said = feed(state, SaveFailed(0, 1, 1, 8))
    why = "rank 1 could not save step 8"
    assert said == [Abort(1, 8, why), MakeRoom(8), PublishVerdict(1, 8, Order.ABORTED, why)]
    assert (state.phase, state.committed_step) == (AgreementPhase.IDLE, 0)


def test_a_step_that_is_still_written_does_not_make_room_for_a_later_one():
    """Ordered for step 40, answered at the end of the loop: what is older than 8 may go."""
    state, _ = feed(at_step(7, 7), SaveDue(0, "why", lead=33))
    events = LoopEnded(0, 0, 8), LoopEnded(0, 1, 8), Snapped(0, 1, 1, 8), SaveFailed(0, 1, 1, 8)
    assert MakeRoom(8) in feed(state, *events)[1]


def test_a_stops_failed_save_is_tried_once_more():
    state, _ = feed(at_step(7), STOP, Progress(0, 0, 8))
    state, said = feed(state, SaveFailed(0, 0, 1, 8))
    assert said[-1] == PublishOrder(2, 9, Order.STOP | Order.EARLY, "a notice")
    state, said = feed(state, SaveFailed(0, 0, 2, 9))
    assert said[-1] == PublishOrder(3, 0, Order.LEAVE, "rank 0 could not save step 9")


def test_a_manifest_that_cannot_be_written_is_a_failed_save():
    state, _ = feed(at_step(7), SAVE, Durable(0, 0, 1, 8))
    state, said = feed(state, CommitFailed(0, 1, 8, "disk full"))
    assert said[-1] == PublishVerdict(1, 8, Order.ABORTED, "the manifest of step 8: disk full")
    assert (state.phase, state.committed_step) == (AgreementPhase.IDLE, 0)


def test_a_death_ends_the_agreement():
    state, said = feed(at_step(7, 7), SAVE, RankGone(0, 1))
    assert said[1:] == [
        Abort(1, 8, "rank 1 is gone"),
        PublishVerdict(1, 8, Order.ABORTED, "rank 1 is gone"),
    ]
    assert state.phase is AgreementPhase.OVER
    _, said = feed(at_step(7, 7), STOP, Snapped(0, 0, 1, 8), RankGone(0, 1))
    assert said[-1] == PublishOrder(2, 0, Order.LEAVE, "rank 1 is gone")


def test_a_death_does_not_waste_a_set_that_is_safe():
    state, _ = feed(at_step(7, 7), SAVE)
    state, _ = feed(state, *all_answer(state), Durable(0, 1, 1, 8), RankGone(0, 1))
    state, said = feed(state, Durable(0, 0, 1, 8))
    assert said == [Commit(1, 8)]
    state, said = feed(state, Committed(0, 1, 8))
    assert (state.phase, state.committed_step) == (AgreementPhase.OVER, 8)


# --- the end of the loop ------------------------------------------------------------------------


def test_the_last_step_is_saved_when_all_loops_have_ended():
    state, said = feed(at_step(99, 100), LoopEnded(0, 1, 100))
    assert said == []
    state, said = feed(state, LoopEnded(0, 0, 100))
    assert said == [PublishOrder(1, 101, 0, "the last step")]
    answers = [Snapped(0, rank, 1, 100) for rank in (0, 1)]
    state, said = feed(state, *answers, Durable(0, 0, 1, 100), Durable(0, 1, 1, 100))
    assert said == [Commit(1, 100)]


def test_an_order_beyond_the_end_is_answered_with_the_last_step():
    state, _ = feed(at_step(100, 99), SAVE, LoopEnded(0, 0, 100), Snapped(0, 0, 1, 100))
    assert state.step == 101
    state, _ = feed(state, LoopEnded(0, 1, 100), Snapped(0, 1, 1, 100))
    assert (state.phase, state.step) == (AgreementPhase.WRITING, 100)


def test_answers_with_different_steps_are_no_agreement():
    state, _ = feed(at_step(98, 98), STOP, Snapped(0, 0, 1, 98))
    state, said = feed(state, Snapped(0, 1, 1, 99))
    assert said[0] == Abort(1, 99, "ranks answered with steps 98 and 99")
    assert state.epoch == 2


def test_a_rank_that_has_ended_before_another_one_ends_the_saves_at_once():
    """It may have left already, since its last step was durable: it answers nothing more."""
    state, _ = feed(at_step(98, 98), SAVE, LoopEnded(0, 1, 98))
    state, said = feed(state, Snapped(0, 0, 1, 99))
    words = "a rank ended its training at step 98, and another one has done step 99"
    assert said == [Abort(1, 99, words), PublishOrder(2, 0, Order.LEAVE, words)]


def test_nothing_more_is_saved_when_the_last_step_already_is():
    assert feed(at_step(100, committed=100), LoopEnded(0, 0, 100))[1] == []


def test_a_last_save_that_fails_twice_lets_the_ranks_go():
    state, _ = feed(at_step(100), LoopEnded(0, 0, 100), SaveFailed(0, 0, 1, 100))
    assert (state.phase, state.epoch) == (AgreementPhase.COLLECTING, 2)
    state, said = feed(state, SaveFailed(0, 0, 2, 100))
    assert said[-1].flags == Order.LEAVE


def test_loops_that_end_at_different_steps_cannot_agree():
    _, said = feed(at_step(0, 0), LoopEnded(0, 0, 5), LoopEnded(0, 1, 7))
    assert said[-1].reason == "a rank ended its training at step 5, and another one has done step 7"
    assert said[-1].flags == Order.LEAVE


# --- the table ----------------------------------------------------------------------------------


def test_the_table_is_complete():
    assert list(TABLE) == list(Event.__args__)
    for row in TABLE.values():
        assert list(row) == list(AgreementPhase)


events = st.one_of(
    st.builds(SaveDue, st.just(0), st.just("why"), st.integers(1, 3)),
    st.builds(StopDue, st.just(0), st.just("why"), st.one_of(st.none(), st.integers(0, 9))),
    st.builds(Progress, st.just(0), st.integers(0, 1), st.integers(0, 9)),
    st.builds(LoopEnded, st.just(0), st.integers(0, 1), st.integers(0, 9)),
    st.builds(Snapped, st.just(0), st.integers(0, 1), st.integers(1, 3), st.integers(1, 9)),
    st.builds(Durable, st.just(0), st.integers(0, 1), st.integers(1, 3), st.integers(1, 9)),
    st.builds(SaveFailed, st.just(0), st.integers(0, 1), st.integers(1, 3), st.integers(1, 9)),
    st.builds(RankGone, st.just(0), st.integers(0, 1)),
    st.builds(Committed, st.just(0), st.integers(1, 3), st.integers(1, 9)),
    st.builds(CommitFailed, st.just(0), st.integers(1, 3), st.integers(1, 9), st.just("why")),
    st.builds(Tick, st.integers(0, 10**10)),
)


@given(st.lists(events, max_size=40))
def test_no_news_however_absurd_breaks_it(news):
    """A confused rank must not kill the run: whatever is heard, the answers keep their form."""
    state, over = Agreement.start(2, 0), False
    for event in news:
        state, said = feed(state, event)
        for action in said:
            if isinstance(action, PublishOrder | PublishVerdict):
                pack(action.epoch, action.step, action.flags)
            if isinstance(action, Commit):
                assert state.ranks.durable == {0, 1}
                assert set(state.ranks.answers.values()) == {action.step}
        assert not over or state.phase is AgreementPhase.OVER
        over = state.phase is AgreementPhase.OVER


@pytest.mark.parametrize(
    ("step_time_s", "reaction_s", "lead"),
    [(1.0, 0.002, 1), (0.001, 0.005, 6), (0.002, 0.002, 2), (0, 1, MAX_LEAD), (0.001, -0.3, 1)],
)
def test_lead_steps(step_time_s, reaction_s, lead):
    assert lead_steps(int(step_time_s * 1e9), int(reaction_s * 1e9)) == lead


# --- the rank's side ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("order", "answer"),
    [
        (0, Answer.GO_ON),
        (pack(3, 8), Answer.SNAPSHOT),
        (pack(3, 8, Order.STOP), Answer.SNAPSHOT),
        (pack(3, 7), Answer.GO_ON),
        (pack(3, 9), Answer.GO_ON),
        (pack(2, 8), Answer.GO_ON),  # answered already
        (pack(3, 0, Order.LEAVE), Answer.LEAVE_UNSAVED),
        (pack(2, 0, Order.LEAVE), Answer.LEAVE_UNSAVED),
    ],
)
def test_at_boundary_8_having_answered_epoch_2(order, answer):
    assert at_boundary(8, order, 2)[0] is answer


@pytest.mark.parametrize(
    ("order", "answer"),
    [
        (0, Answer.GO_ON),
        (pack(3, 9), Answer.GO_ON),  # no stop: the next boundary is soon enough
        (pack(3, 9, Order.STOP), Answer.GO_ON),  # somebody is in step 9 already
        (pack(3, 9, Order.STOP | Order.EARLY), Answer.SNAPSHOT),
        (pack(3, 8, Order.STOP | Order.EARLY), Answer.SNAPSHOT),  # seen only after boundary 8
        (pack(3, 7, Order.STOP | Order.EARLY), Answer.GO_ON),  # missed: another order will come
        (pack(2, 9, Order.STOP | Order.EARLY), Answer.GO_ON),  # answered already
        (pack(3, 0, Order.LEAVE), Answer.LEAVE_UNSAVED),
    ],
)
def test_between_steps_8_and_9_having_answered_epoch_2(order, answer):
    assert between_steps(8, order, 2)[0] is answer


@pytest.mark.parametrize("ordered", [1, 8, 10**9])
def test_the_last_boundary_answers_any_step(ordered):
    assert at_boundary(8, pack(3, ordered), 2, at_loop_end=True)[0] is Answer.SNAPSHOT
    assert at_boundary(8, pack(2, ordered), 2, at_loop_end=True)[0] is Answer.GO_ON


@given(
    st.lists(
        st.tuples(
            st.integers(1, 3),
            st.integers(0, 12),
            st.sampled_from([0, 0, Order.STOP, Order.LEAVE]),
        ),
        max_size=12,
    )
)
def test_the_inlined_comparison_answers_like_the_function(orders):
    """What the trainer inlines: a settled word is skipped. It must change no answer."""
    plain, inlined = [], []
    for skips, answers in ((False, plain), (True, inlined)):
        settled, answered, epoch, word = 0, 0, 0, 0
        for n in range(1, 13):
            if n <= len(orders):
                newer, ordered, flags = orders[n - 1]
                epoch += newer - 1  # sometimes the word stays as it is
                word = pack(epoch, ordered, int(flags)) if newer > 1 else word
            if skips and word == settled:
                continue
            answer, _ = at_boundary(n, word, answered)
            if answer is Answer.SNAPSHOT:
                answered = word >> 48
            if answer is not Answer.GO_ON:
                answers.append((n, answer))
            if is_settled(n, word):
                settled = word
    assert plain == inlined


def test_while_waiting():
    def answer(order=0, verdict=0, lost=False):
        return while_waiting(order, verdict, my_epoch=3, my_step=8, supervisor_lost=lost)[0]

    assert answer(pack(3, 8, Order.STOP)) is Answer.WAIT
    assert answer(verdict=pack(3, 8, Order.COMMITTED)) is Answer.LEAVE_SAVED
    assert answer(verdict=pack(2, 8, Order.COMMITTED)) is Answer.WAIT  # of another epoch
    assert answer(verdict=pack(3, 8, Order.ABORTED)) is Answer.GO_ON
    assert answer(pack(4, 9, Order.STOP)) is Answer.GO_ON
    assert answer(pack(4, 8, Order.STOP)) is Answer.WAIT  # not a later step: nothing to go to
    assert answer(pack(1, 9, Order.STOP)) is Answer.GO_ON  # the epoch has wrapped
    assert answer(pack(4, 5, Order.LEAVE)) is Answer.LEAVE_UNSAVED
    assert answer(lost=True) is Answer.LEAVE_UNSAVED
    assert answer(verdict=pack(3, 8, Order.COMMITTED), lost=True) is Answer.LEAVE_SAVED


def test_after_the_loop():
    def answer(order=0, verdict=0, committed=0, answered=2, lost=False):
        return after_loop(8, order, verdict, committed, answered, lost)[0]

    assert answer() is Answer.WAIT
    assert answer(committed=8) is Answer.LEAVE_SAVED
    assert answer(pack(3, 5)) is Answer.SNAPSHOT
    assert answer(pack(3, 9)) is Answer.SNAPSHOT
    assert answer(pack(2, 8)) is Answer.WAIT
    assert answer(pack(2, 8), pack(2, 8, Order.COMMITTED)) is Answer.LEAVE_SAVED
    assert answer(pack(2, 5), pack(2, 5, Order.COMMITTED)) is Answer.WAIT  # the last step is not
    assert answer(pack(2, 5), pack(2, 5, Order.ABORTED)) is Answer.WAIT
    assert answer(pack(3, 5, Order.LEAVE)) is Answer.LEAVE_UNSAVED
    assert answer(lost=True) is Answer.LEAVE_UNSAVED


# --- from words to events -----------------------------------------------------------------------


def test_changes_tells_answers_before_progress():
    before = RankAnswers(step=7)
    now = RankAnswers(
        step=9,
        copied=Agreed(1, 0, 8),
        durable=Agreed(1, 0, 8),
        failed=Agreed(2, 0, 9),
        taken=Agreed(3, with_buffer(0, 1), 9),
    )
    assert changes(5, 0, before, now) == (
        Taken(5, 0, 3, 9, buffer=1),
        Snapped(5, 0, 1, 8),
        Durable(5, 0, 1, 8),
        SaveFailed(5, 0, 2, 9),
        Progress(5, 0, 9),
    )
    assert changes(5, 0, now, now) == ()


@pytest.mark.parametrize("over", ["copied", "failed"])
def test_a_copy_that_is_over_is_not_told_as_taken(over):
    before, taken = RankAnswers(step=9), Agreed(3, with_buffer(0, 1), 9)
    now = before._replace(taken=taken, **{over: Agreed(3, 0, 9)})
    (told,) = changes(5, 0, before, now)
    assert told == {"copied": Snapped, "failed": SaveFailed}[over](5, 0, 3, 9)
    # Epochs come again after 65,535 orders, and old words are still there.
    again = now._replace(taken=Agreed(3, 0, 70_000))
    assert changes(5, 0, now, again) == (Taken(5, 0, 3, 70_000),)


def test_changes_tells_the_end_of_a_loop_once_with_its_last_step():
    before, now = RankAnswers(step=7), RankAnswers(loop_ended=True, step=8)
    assert changes(5, 1, before, now) == (LoopEnded(5, 1, 8),)
    assert changes(5, 1, now, now) == ()
