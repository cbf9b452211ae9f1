"""Copies that end after their boundary: what a rank's TAKEN and COPIED mean, by example."""

from __future__ import annotations

import pytest

from holdfast.core.save.agree import Agreement, AgreementPhase, step
from holdfast.core.save.events import (
    Abort,
    Action,
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
    SealBuffer,
    Snapped,
    StopDue,
    Taken,
    Tick,
)
from holdfast.core.save.word import Order, may_end_later, with_buffer

COPY = SaveDue(0, "every step", in_memory=True)
STOP = StopDue(5, "a notice", leave_by_ns=99)
INTO_0, INTO_1 = with_buffer(0, 0), with_buffer(0, 1)


class Controller:
    """Of ranks that have done step 7, with so many buffers."""

    def __init__(self, ranks: int = 2, buffers: int = 2) -> None:
        self.state = Agreement.start(ranks, 0)
        self.buffers = tuple(range(buffers))
        self.hear(*(Progress(0, rank, 7) for rank in range(ranks)))

    def hear(self, *events: Event) -> list[Action]:
        """What it says to that."""
        said: list[Action] = []
        for event in events:
            self.state.free_buffers = self.buffers
            said += step(self.state, event)
        return said

    def take(self, *ranks: int) -> list[Action]:
        """These have taken the ordered step, and are past it."""
        state = self.state
        said = []
        for rank in ranks:
            said += self.hear(Taken(1, rank, state.epoch, state.step, state.buffer))
        return said + self.hear(*(Progress(1, rank, state.step + 1) for rank in ranks))


@pytest.fixture
def controller() -> Controller:
    one = Controller()
    assert one.hear(COPY) == [PublishOrder(1, 8, INTO_0, "every step")]
    return one


def test_a_set_is_there_when_every_copy_is(controller):
    assert controller.take(0, 1) == []
    assert controller.state.phase is AgreementPhase.COPYING
    assert controller.hear(Snapped(2, 1, 1, 8), Progress(2, 0, 20)) == []
    assert controller.hear(Snapped(3, 0, 1, 8)) == [SealBuffer(1, 8, 0)]
    assert controller.state.phase is AgreementPhase.IDLE


def test_a_rank_that_dies_in_its_copy_takes_the_set_along(controller):
    controller.take(0, 1)
    controller.hear(Snapped(2, 1, 1, 8))
    assert controller.hear(RankGone(3, 0)) == [
        Abort(1, 8, "rank 0 is gone"),
        PublishVerdict(1, 8, Order.ABORTED, "rank 0 is gone"),
    ]
    assert controller.hear(Snapped(4, 0, 1, 8)) == []


def test_a_copy_that_fails_is_a_save_that_failed(controller):
    controller.take(0, 1)
    why = "rank 1 could not save step 8"
    assert controller.hear(SaveFailed(2, 1, 1, 8)) == [
        Abort(1, 8, why),
        MakeRoom(8),
        PublishVerdict(1, 8, Order.ABORTED, why),
    ]
    # The other one copies still, so its buffer is not the next order's.
    assert controller.hear(COPY) == [PublishOrder(2, 10, INTO_1, "every step")]
    assert controller.hear(Snapped(3, 0, 1, 8)) == []


def test_a_step_that_is_taken_is_not_missed(controller):
    assert controller.take(0) == []
    assert controller.hear(Progress(2, 1, 9)) == [
        Abort(1, 8, "rank 1 was past step 8 already"),
        PublishOrder(2, 10, INTO_1, "every step"),
    ]


def test_different_steps_are_found_out_before_the_copies_are_there():
    controller = Controller(buffers=0)
    controller.hear(STOP)
    assert controller.hear(Taken(6, 0, 1, 7), Taken(6, 1, 1, 8)) == [
        Abort(1, 8, "ranks answered with steps 7 and 8"),
        PublishOrder(2, 9, int(Order.STOP), "a notice"),
    ]


def test_with_one_buffer_the_next_save_waits_for_the_copy():
    controller = Controller(buffers=1)
    controller.hear(COPY)
    controller.take(0)
    assert controller.hear(Progress(2, 1, 9)) == [Abort(1, 8, "rank 1 was past step 8 already")]
    assert controller.hear(COPY) == [Refuse("no buffer is free")]
    assert controller.hear(Snapped(3, 0, 1, 8)) == []
    assert controller.hear(COPY) == [PublishOrder(2, 10, INTO_0, "every step")]


def test_a_stop_without_a_free_buffer_has_the_ranks_write():
    controller = Controller(buffers=1)
    controller.hear(COPY)
    controller.take(0)
    stop = int(Order.STOP | Order.EARLY)
    assert controller.hear(STOP)[-1] == PublishOrder(2, 10, stop, "a notice")


def test_news_of_an_order_that_is_dead_counts_for_its_buffer(controller):
    """The rank took step 8 before it saw that another one is ordered."""
    assert controller.hear(Progress(2, 1, 9))[-1] == PublishOrder(2, 10, INTO_0, "every step")
    assert controller.hear(Taken(3, 0, 1, 8, buffer=0)) == []
    assert controller.hear(Progress(4, 1, 11))[-1] == PublishOrder(3, 13, INTO_1, "every step")


def test_a_later_step_that_is_taken_says_that_the_copy_before_is_over(controller):
    controller.hear(Progress(2, 1, 9), Taken(3, 0, 1, 8, buffer=0))
    controller.hear(Progress(4, 1, 11))
    assert controller.hear(Taken(5, 0, 3, 13, buffer=1)) == []
    assert controller.state.ranks.writers == {1: 1}


def test_a_stop_lets_the_copies_end(controller):
    controller.take(0, 1)
    assert controller.hear(STOP, SaveDue(6, "asked")) == [
        Refuse("the save of step 8 is under way (copying)")
    ]
    assert controller.hear(Snapped(7, 0, 1, 8), Snapped(8, 1, 1, 8)) == [
        SealBuffer(1, 8, 0),
        PublishOrder(2, 10, INTO_1 | Order.STOP | Order.EARLY | Order.DURABLE, "a notice"),
    ]


def test_a_copy_that_never_ends_holds_up_no_stop_beyond_its_deadline(controller):
    controller.take(0, 1)
    controller.hear(STOP)
    why = "the deadline came before step 8 was durable"
    assert controller.hear(Tick(99)) == [
        Abort(1, 8, why),
        PublishOrder(2, 0, Order.LEAVE, why),
    ]


def test_what_is_copied_after_the_last_step_is_made_durable(controller):
    """All loops have ended meanwhile: nothing comes after that step."""
    controller.hear(*(Taken(1, rank, 1, 8, buffer=0) for rank in (0, 1)))
    controller.hear(LoopEnded(2, 0, 8), LoopEnded(2, 1, 8))
    assert controller.hear(Snapped(3, 0, 1, 8), Snapped(3, 1, 1, 8)) == [SealBuffer(1, 8, 0)]
    assert controller.state.phase is AgreementPhase.WRITING
    assert controller.hear(Committed(4, 1, 8))[0].flags == Order.COMMITTED


def test_what_is_durable_was_copied():
    controller = Controller(buffers=0)
    controller.hear(SaveDue(0, "every 41 s"))
    controller.hear(Taken(1, 0, 1, 8), Taken(1, 1, 1, 8))
    assert controller.state.phase is AgreementPhase.COPYING
    controller.hear(Durable(2, 0, 1, 8), Snapped(2, 1, 1, 8))
    assert controller.state.phase is AgreementPhase.WRITING
    controller.hear(Durable(3, 1, 1, 8))
    assert controller.state.phase is AgreementPhase.COMMITTING


@pytest.mark.parametrize(
    ("flags", "is_last", "later"),
    [
        (INTO_0, False, True),
        (INTO_0, True, False),
        (INTO_0 | Order.DURABLE, False, False),  # tagged, waited for, asked for
        (INTO_0 | Order.DURABLE | Order.STOP, False, False),
        (Order.STOP, False, False),
        (0, False, False),  # the rank writes it itself
    ],
)
def test_only_what_nobody_waits_for_may_end_later(flags, is_last, later):
    assert may_end_later(int(flags), is_last=is_last) is later
