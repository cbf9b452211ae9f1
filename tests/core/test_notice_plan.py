"""When a run saves and leaves for what is announced: the latest moment that is safe."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.notices.board import Announcement, Board, Notice, NoticeAction
from holdfast.core.notices.plan import (
    NoticePolicy,
    NoticeView,
    OnNotice,
    SaveTime,
    What,
    identity,
    plan,
)

S = 10**9
LEAVE, STAY = NoticePolicy(), NoticePolicy(OnNotice.STAY)
MEASURED = SaveTime(S, S, 5 * S, 0, 2 * S)  # 8 s, and 2 to leave
END = NoticeAction.TERMINATE


def announced(*notices: Notice) -> tuple[Announcement, ...]:
    board = Board()
    for notice in notices:
        board, _ = board.take(notice)
    return board.announcements


def end(deadline: int | None, name: str = "a", action: NoticeAction = END) -> Notice:
    told = None if deadline is None else deadline * S
    return Notice("gce", action, 0, event_id=name, deadline_ns=told)


def test_the_latest_safe_moment_leaves_time_for_the_save_and_half_as_much_again() -> None:
    decided, reason = plan(LEAVE, announced(end(100)), NoticeView(0, MEASURED))
    assert (decided.what, decided.at_ns) == (What.STOP, (100 - 2 - 8 - 4) * S)
    assert not decided.save_first
    assert reason == "as late as is safe"
    at_that = NoticeView(86 * S, MEASURED)
    assert plan(LEAVE, announced(end(100)), at_that)[0].at_ns == at_that.now_ns
    assert plan(STAY, announced(end(100)), at_that)[0].what is What.SAVE


def test_the_earliest_end_counts_and_one_that_was_served_no_more() -> None:
    first, second = announced(end(900, "late"), end(100, "soon"))
    view = NoticeView(0, MEASURED)
    assert plan(STAY, (first, second), view)[0].about is second
    view = replace(view, served=(identity(second),))
    assert plan(STAY, (first, second), view)[0].about is first


@pytest.mark.parametrize(
    ("notice", "time", "doubt"),
    [
        (end(9000), SaveTime(), "how long a save takes is not known yet"),
        (
            Notice("gce", END, 0, lead_ns=9000 * S),
            MEASURED,
            "the deadline is not the vendor's own",
        ),
    ],
)
def test_what_cannot_be_relied_on_has_a_save_ahead_of_it_once(
    notice: Notice, time: SaveTime, doubt: str
) -> None:
    (one,) = announced(notice)
    decided, reason = plan(LEAVE, (one,), NoticeView(0, time))
    assert (decided.save_first, reason) == (True, doubt)
    for known in ({"begun": (identity(one),)}, {"is_saved": True}):
        assert not plan(LEAVE, (one,), NoticeView(0, time, **known))[0].save_first


@pytest.mark.parametrize(("left_s", "saves_first"), [(22, True), (21, False)])
def test_a_save_ahead_is_not_made_where_it_would_be_in_the_way_of_the_last(
    left_s: int, saves_first: bool
) -> None:
    """The last one is ordered 14 s before the end, and a save takes 8 s."""
    (one,) = announced(Notice("gce", END, 0, lead_ns=left_s * S))
    decided, reason = plan(LEAVE, (one,), NoticeView(0, MEASURED))
    assert (decided.what, decided.save_first) == (What.STOP, saves_first)
    assert decided.at_ns == (8 * S if saves_first else 0)
    doubt = "the deadline is not the vendor's own"
    assert reason == (doubt if saves_first else f"{doubt}, and two saves take longer")


def test_too_little_time_is_said() -> None:
    decided, reason = plan(LEAVE, announced(end(7)), NoticeView(0, MEASURED))
    assert (decided.what, decided.at_ns, decided.is_short) == (What.STOP, 0, True)
    assert reason == "a save takes longer than that"
    assert not plan(LEAVE, announced(end(9)), NoticeView(0, MEASURED))[0].is_short


def test_what_is_no_end_is_saved_at_most() -> None:
    view = NoticeView(5 * S, MEASURED)
    moves = announced(end(100, action=NoticeAction.LIVE_MIGRATION))
    assert plan(LEAVE, moves, view)[0].what is What.NOTHING
    assert plan(NoticePolicy(migration_ends=True), moves, view)[0].what is What.STOP
    for action in (NoticeAction.REBALANCE, NoticeAction.DRAIN):
        decided, _ = plan(LEAVE, announced(end(None, action=action)), view)
        assert (decided.what, decided.at_ns) == (What.SAVE, 5 * S)
    undated, _ = plan(LEAVE, announced(end(None)), view)
    assert undated.what is What.SAVE


SECONDS = st.integers(0, 300).map(lambda s: s * S)


@given(st.lists(st.integers(1, 400), min_size=1, max_size=4), SECONDS, SECONDS, SECONDS, SECONDS)
def test_a_later_moment_would_not_be_safe_and_an_earlier_one_not_needed(
    deadlines: list[int], now: int, step: int, write: int, leaving: int
) -> None:
    time = SaveTime(max(1, step), 0, max(1, write), 0, leaving)
    ends = announced(*(end(at, str(place)) for place, at in enumerate(deadlines)))
    decided, _ = plan(LEAVE, ends, NoticeView(now, time))
    assert decided.what is What.STOP
    # The dumb way: the first second at which waiting one more would not leave time and a half.
    first = min(one.deadline_ns for one in ends)
    wait = 0
    while now + wait + S + leaving + max(time.need_ns * 3 // 2, time.need_ns + S) <= first:
        wait += S
    assert now + wait <= max(now, decided.at_ns) < now + wait + S + 2
