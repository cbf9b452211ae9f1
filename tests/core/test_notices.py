"""What several sources say together: an event is announced once, its earliest date counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.hosts.backoff import Backoff
from holdfast.core.notices import board as notices
from holdfast.core.notices.board import (
    Board,
    Change,
    News,
    Notice,
    NoticeAction,
    NoticeState,
    on_our_clock,
)

S = 10**9
END = NoticeAction.TERMINATE
STARTED, WITHDRAWN = NoticeState.STARTED, NoticeState.WITHDRAWN


def gce(at: int = 0, **told: object) -> Notice:
    return Notice("gce", END, at * S, **{"topic": "preempted", "lead_ns": 30 * S, **told})


def aws(at: int = 0, deadline: int = 120, **told: object) -> Notice:
    told = {"event_id": "spot-1", "deadline_ns": deadline * S, **told}
    return Notice("aws", END, at * S, **told)


def taken(*notes: Notice, hosts: tuple[str, ...] = ()) -> tuple[Board, list[News]]:
    board, news = Board(hosts=hosts), []
    for note in notes:
        board, told = board.take(note)
        news.append(told)
    return board, news


def changes(*notes: Notice) -> list[Change]:
    return [news.change for news in taken(*notes)[1]]


def deadlines(board: Board) -> list[int | None]:
    return [None if it.deadline_ns is None else it.deadline_ns // S for it in board.announcements]


def test_a_promised_lead_counts_from_the_first_that_is_heard() -> None:
    board, news = taken(gce(10), gce(20), gce(39))
    assert deadlines(board) == [40]
    assert [one.change for one in news] == [Change.NEW, Change.NOTHING, Change.NOTHING]
    assert news[0].reason == "gce: terminate"


def test_a_told_deadline_counts_as_told_and_may_move() -> None:
    board, _ = taken(aws(0, 120))
    assert deadlines(board) == [120]
    assert changes(aws(0, 120), aws(5, 120), aws(6, 60), aws(7, 90)) == [
        Change.NEW,
        Change.NOTHING,
        Change.SOONER,
        Change.LATER,
    ]
    wobble = replace(aws(6), deadline_ns=120 * S + 999_999_999)  # converted twice
    assert changes(aws(0, 120), wobble) == [Change.NEW, Change.NOTHING]


def test_a_deadline_in_the_past_is_a_moment_from_now_and_stays_there() -> None:
    board, _ = taken(aws(100, 50), aws(110, 50))
    assert deadlines(board) == [130]


def test_two_sources_of_one_event_are_counted_once_and_both_must_withdraw_it() -> None:
    kubernetes = Notice("kubernetes", END, 3 * S, event_id="node-1", lead_ns=25 * S)
    off = [replace(one, state=WITHDRAWN, received_ns=9 * S) for one in (gce(), kubernetes)]
    board, news = taken(gce(), kubernetes, off[0])
    # Two seconds apart are what two vendors make of one moment: the earlier counts, unannounced.
    assert [one.change for one in news] == [Change.NEW, Change.CONFIRMED, Change.NOTHING]
    assert news[1].after is not None
    assert news[1].after.words == "gce, kubernetes: terminate"
    assert deadlines(board) == [28]
    board, last = board.take(off[1])
    assert (board.announcements, last.change) == ((), Change.WITHDRAWN)


def test_who_joins_with_a_date_far_sooner_is_news_and_with_a_mere_promise_is_not() -> None:
    promised = Notice("kubernetes", END, 3 * S, event_id="node-1", lead_ns=25 * S)
    assert changes(aws(0, 60), promised) == [Change.NEW, Change.CONFIRMED]
    told = replace(promised, lead_ns=None, deadline_ns=28 * S)
    assert changes(aws(0, 60), told) == [Change.NEW, Change.SOONER]
    assert changes(promised, aws(4, 10)) == [Change.NEW, Change.SOONER]


def test_of_two_sources_a_few_seconds_are_no_news_whoever_moves_or_goes() -> None:
    first, second = aws(0, 60), replace(gce(), deadline_ns=58 * S, lead_ns=None)
    moved = replace(first, deadline_ns=57 * S, received_ns=5 * S)
    gone = replace(second, state=WITHDRAWN, received_ns=6 * S)
    assert changes(first, second, gone) == [Change.NEW, Change.CONFIRMED, Change.NOTHING]
    assert changes(first, second, moved) == [Change.NEW, Change.CONFIRMED, Change.NOTHING]
    assert changes(first, moved) == [Change.NEW, Change.SOONER]


def test_a_lead_may_have_begun_while_nobody_could_look() -> None:
    promised = Notice("gce", END, 100 * S, topic="t", lead_ns=30 * S, unseen_ns=12 * S)
    board, _ = taken(promised)
    assert deadlines(board) == [118]
    assert not board.announcements[0].is_at_hand
    board, _ = taken(replace(promised, unseen_ns=40 * S))
    assert deadlines(board) == [130]  # it is over, and the host is there: at any moment
    assert board.announcements[0].is_at_hand


def test_two_events_at_different_times_are_two_and_withdrawn_alone() -> None:
    late = aws(1, 5000, event_id="maintenance-7")
    board, news = taken(aws(0, 4000), late)
    assert [one.change for one in news] == [Change.NEW, Change.NEW]
    board, last = board.take(replace(late, state=WITHDRAWN))
    assert (deadlines(board), last.change) == ([4000], Change.WITHDRAWN)


def test_a_preemption_now_is_no_part_of_a_maintenance_next_week() -> None:
    board, _ = taken(gce(0, topic="upcoming", deadline_ns=600_000 * S), gce(5))
    assert deadlines(board) == [600_000, 35]


def test_a_vendors_two_ids_are_two_events_however_near() -> None:
    board, _ = taken(aws(0, 120), aws(0, 120, event_id="spot-2"))
    assert len(board.announcements) == 2


def test_what_starts_is_at_hand_and_what_nobody_dates_has_no_deadline() -> None:
    said = {"deadline_ns": None, "lead_ns": None}
    board, news = taken(aws(0, 900), aws(50, state=STARTED, **said))
    assert (deadlines(board), news[1].change) == ([80], Change.STARTED)
    board, _ = taken(aws(50, state=STARTED, **said))
    assert deadlines(board) == [None]


def test_a_live_migration_is_no_end_until_it_becomes_one() -> None:
    moves = replace(gce(), action=NoticeAction.LIVE_MIGRATION)
    board, news = taken(moves, gce(1))
    assert [one.action for one in board.announcements] == [END]
    assert [one.change for one in news] == [Change.NEW, Change.NEW]


def test_another_hosts_event_is_nothing_to_us() -> None:
    board, news = taken(gce(host="elsewhere"), hosts=("h0", "h1"))
    assert (board.announcements, news[0].change) == ((), Change.NOTHING)
    assert "elsewhere" in news[0].reason
    board, _ = taken(gce(host="h0"), gce(host="h1"), hosts=("h0", "h1"))
    assert len(board.announcements) == 2


NOTES = st.builds(
    Notice,
    source=st.sampled_from(["gce", "aws", "slurm"]),
    action=st.sampled_from(NoticeAction),
    received_ns=st.just(0),
    state=st.sampled_from(NoticeState),
    event_id=st.sampled_from(["", "a", "b"]),
    host=st.sampled_from(["", "h0", "h1"]),
    deadline_ns=st.none() | st.integers(-100, 1000).map(lambda s: s * S),
    lead_ns=st.none() | st.integers(0, 600).map(lambda s: s * S),
)


@given(st.lists(NOTES, max_size=12))
def test_the_board_holds_the_last_word_of_each_source_on_each_event(notes: list[Notice]) -> None:
    board, last = Board(), {}
    for at, note in enumerate(notes):
        note = replace(note, received_ns=at * S)
        board, news = board.take(note)
        last[note.key] = note
        told = [one.notice for it in board.announcements for one in it.tellings]
        standing = {k: n for k, n in last.items() if n.state is not WITHDRAWN}
        assert {one.key: one for one in told} == standing
        assert len(told) == len(standing)
        assert board.take(note)[1].change is Change.NOTHING
        assert (news.change is Change.WITHDRAWN) == (news.after is None and news.before is not None)
        for one in board.announcements:
            assert one.deadline_ns is None or one.deadline_ns >= one.since_ns


# --- clocks, and waits ---------------------------------------------------------------------------


def test_a_moment_is_put_on_our_clock_by_whichever_calendar_is_right() -> None:
    ours = {"our_unix_ns": 1000 * S, "our_ns": 7 * S}
    assert on_our_clock(1060 * S, **ours) == 67 * S
    assert on_our_clock(1060 * S, **ours, their_unix_ns=999 * S) == 67 * S  # read to the second
    assert on_our_clock(1060 * S, **ours, their_unix_ns=1030 * S) == 7 * S + 29 * S


@given(st.integers(0, 10**12), st.floats(0, 1, exclude_max=True))
def test_waits_stay_between_the_shortest_and_the_cap(before: int, jitter: float) -> None:
    waits = Backoff(S, 60 * S)
    wait = waits.next_ns(before, jitter)
    assert S <= wait <= 60 * S
    assert wait <= 3 * max(before, S)
    assert waits.next_ns(before, 0.0) == S


def test_waits_reach_their_cap_and_no_two_hosts_wait_alike() -> None:
    wait = 0
    for _ in range(20):
        wait = Backoff(S, 60 * S).next_ns(wait, 0.999)
    assert wait == pytest.approx(60 * S, rel=0.01)
    assert Backoff().next_ns(0, 0.1) != Backoff().next_ns(0, 0.9)
    assert notices.SECOND_NS == S
