"""Who is heard, who is gone: nothing of a dead attempt counts, and no order of arrival matters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.session.messages import FollowerSays, LeaderSays, Welcome
from holdfast.session.roster import GONE_AFTER_NS, LeaderView, Roster

SECOND_NS = 1_000_000_000
FOLLOWER = FollowerSays(rank=1, me="f", to="lead", number=1, run="r", world_size=3, holder={})
LEADER = LeaderSays(me="lead", number=1, run="r", world_size=3, attempt=4, lease_epoch=2, holder={})


def roster(*says: FollowerSays, at_ns: int = 0) -> Roster:
    found = Roster("lead", "r", 3)
    for one in says:
        found.hear(at_ns, one.rank, one.to_bytes())
    return found


@given(st.permutations(range(1, 9)))
def test_the_newest_word_stands_however_they_arrive(numbers: list[int]) -> None:
    told = [replace(FOLLOWER, number=number, step=10 * number) for number in numbers]
    assert roster(*told).members[1].says.step == 80


@given(st.lists(st.tuples(st.sampled_from(["f", "g"]), st.sampled_from(["lead", "old", ""]))))
def test_only_the_first_life_that_speaks_to_us_counts(told: list[tuple[str, str]]) -> None:
    found = roster()
    for number, (me, to) in enumerate(told, start=1):
        found.hear(0, 1, replace(FOLLOWER, me=me, to=to, number=number).to_bytes())
    ours = [me for me, to in told if to == "lead"]
    assert [member.says.me for member in found.members.values()] == ours[:1]
    assert (1 in found.missing()) == (not ours)
    if told:  # whoever speaks is told who leads, so that it may speak to us
        assert found.welcomes()[1].leader == "lead"


@given(
    st.lists(st.integers(0, 5 * SECOND_NS), min_size=1, max_size=6), st.integers(0, 60 * SECOND_NS)
)
def test_the_grace_period_counts_from_the_first_sigterm(delays_ns: list[int], came_ns: int) -> None:
    """Each message says how old it is when it is sent; it arrives later, never earlier."""
    found = roster()
    for number, delay_ns in enumerate(delays_ns, start=1):
        sent_ns = came_ns + number * SECOND_NS
        says = replace(FOLLOWER, number=number, sigterm_age_ns=sent_ns - came_ns)
        found.hear(sent_ns + delay_ns, 1, says.to_bytes())
    assert found.first_sigterm() == (came_ns + min(delays_ns), 1)


def test_the_first_of_several_ranks_counts() -> None:
    both = (
        replace(FOLLOWER, sigterm_age_ns=3),
        replace(FOLLOWER, rank=2, me="g", sigterm_age_ns=5),
    )
    assert roster(*both, at_ns=100).first_sigterm() == (95, 2)


@pytest.mark.parametrize(
    ("waited_since_s", "at_s", "is_gone"),
    [
        (None, 10_000, False),  # nobody waits: silence does no harm
        (0, 30, False),
        (0, 31, True),
        (100, 130, False),  # it was silent before, but nobody waited
        (100, 131, True),
    ],
)
def test_silence_counts_while_somebody_waits(
    waited_since_s: int | None, at_s: int, is_gone: bool
) -> None:
    found = roster(FOLLOWER)
    since_ns = None if waited_since_s is None else waited_since_s * SECOND_NS
    gone = found.newly_gone(at_s * SECOND_NS, frozenset(), since_ns)
    assert gone == ((1,) if is_gone else ())


def test_gone_is_told_once() -> None:
    found = roster(FOLLOWER, replace(FOLLOWER, rank=2, me="g", left="ValueError: no"))
    assert found.newly_gone(0, frozenset({1}), None) == (1, 2)
    assert found.newly_gone(GONE_AFTER_NS * 2, frozenset({1}), 0) == ()
    assert found.still_here() == ()
    assert found.left() == {2: "ValueError: no"}


def test_all_have_dealt_with_a_choice_or_one_refuses_it() -> None:
    one = replace(FOLLOWER, choice=2)
    assert roster(one).waiting_for(2) == (2,)
    both = roster(one, replace(FOLLOWER, rank=2, me="g", choice=2, refused="a flipped bit"))
    assert both.waiting_for(2) == ()
    assert both.refused(2) == "rank 2: a flipped bit"
    assert both.refused(1) is None


def test_a_rank_of_another_run_is_named() -> None:
    found = roster(replace(FOLLOWER, run="other"))
    assert "give all ranks the same name" in found.trouble[1]
    found = roster(replace(FOLLOWER, world_size=2))
    assert "one of 2 ranks, and rank 0 one of 3" in found.trouble[1]
    found.hear(0, 2, b"{}")
    assert "cannot be read" in found.trouble[2]


# --- the other end ---


def welcome(leader: str = "lead", follower: str = "f") -> bytes:
    return Welcome(leader, follower).to_bytes()


def test_a_leader_of_an_earlier_attempt_is_passed_over() -> None:
    view = LeaderView("f")
    view.hear(0, replace(LEADER, me="old", number=99, order=7).to_bytes())
    assert not view.hear_welcome(0, welcome("old", "another life"))
    assert view.address == "old"
    view.hear(0, LEADER.to_bytes())
    assert not view.hear_welcome(0, welcome("old"))
    assert view.hear_welcome(0, welcome())
    assert view.address == "lead"


def test_a_leader_that_comes_later_is_not_ours() -> None:
    view = LeaderView("f")
    view.hear(0, LEADER.to_bytes())
    view.hear_welcome(0, welcome())
    assert not view.hear(1, replace(LEADER, me="new", number=5).to_bytes())
    assert view.address == "lead"
    assert view.heard_at_ns == 0


@given(st.lists(st.integers(0, 5 * SECOND_NS), min_size=1, max_size=6))
def test_a_deadline_is_never_later_than_any_message_said(delays_ns: list[int]) -> None:
    view = LeaderView("f")
    view.hear(0, LEADER.to_bytes())
    view.hear_welcome(0, welcome())
    deadline_ns = 60 * SECOND_NS
    for number, delay_ns in enumerate(delays_ns, start=2):
        sent_ns = number * SECOND_NS
        told = replace(LEADER, number=number, deadline_in_ns=deadline_ns - sent_ns)
        view.hear(sent_ns + delay_ns, told.to_bytes())
    assert view.deadline_at_ns == deadline_ns + min(delays_ns)
