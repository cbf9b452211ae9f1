"""Who is heard, who is gone: nothing of a dead attempt counts, and no order of arrival matters."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core import events as ev
from holdfast.core.exits import Exit, RankReport
from holdfast.core.hosts.messages import encode_order, encode_report
from holdfast.core.hosts.order import Attention, HostOrder
from holdfast.core.hosts.report import HostReport
from holdfast.session.messages import FollowerSays, LeaderSays, Welcome
from holdfast.session.roster import GONE_AFTER_NS, LeaderView, Roster

SECOND_NS = 1_000_000_000
FOLLOWER = FollowerSays(rank=1, me="f", to="lead", number=1, run="r", world_size=3, holder={})
LEADER = LeaderSays(me="lead", number=1, run="r", world_size=3, attempt=4, lease_epoch=2, holder={})


def report(*facts: ev.Event) -> dict[str, object]:
    """Of a host on which that has happened."""
    told = HostReport()
    for fact in facts:
        told.note(fact)
    return encode_report(told)


def order(number: int) -> dict[str, object]:
    return encode_order(HostOrder(number, Attention(is_stopping=True, deadline_ns=60 * SECOND_NS)))


def roster(*says: FollowerSays, at_ns: int = 0) -> Roster:
    found = Roster("lead", "r", 3)
    for one in says:
        found.hear(at_ns, one.rank, one.to_bytes())
    return found


@given(st.permutations(range(1, 9)))
def test_the_newest_word_stands_however_they_arrive(numbers: list[int]) -> None:
    told = [replace(FOLLOWER, number=number, choice=10 * number) for number in numbers]
    assert roster(*told).members[1].says.choice == 80


@given(st.lists(st.tuples(st.sampled_from(["f", "g"]), st.sampled_from(["lead", "old", ""]))))
def test_only_the_first_life_that_speaks_to_us_counts(told: list[tuple[str, str]]) -> None:
    found = roster()
    for number, (me, to) in enumerate(told, start=1):
        found.hear(0, 1, replace(FOLLOWER, me=me, to=to, number=number).to_bytes())
    ours = [me for me, to in told if to == "lead"]
    assert [member.says.me for member in found.members.values()] == ours[:1]
    if told:  # whoever speaks is told who leads, so that it may speak to us
        assert found.welcomes()[1].leader == "lead"


@given(
    st.lists(st.integers(0, 5 * SECOND_NS), min_size=1, max_size=6),
    st.integers(0, 60 * SECOND_NS),
    st.integers(-(10**15), 0),
)
def test_the_grace_period_counts_from_the_first_sigterm(
    delays_ns: list[int], came_ns: int, clock_ns: int
) -> None:
    """On whatever clock it came; what is sent arrives later, never earlier."""
    found = roster()
    stop = ev.StopAsked(came_ns - clock_ns, "SIGTERM to rank 1", came_ns - clock_ns + 30, True)
    for number, delay_ns in enumerate(delays_ns, start=1):
        sent_ns = came_ns + number * SECOND_NS
        told = report(stop) if number == len(delays_ns) else {}
        says = replace(FOLLOWER, number=number, sent_ns=sent_ns - clock_ns, report=told)
        found.hear(sent_ns + delay_ns, 1, says.to_bytes())
    (heard,) = found.members[1].report.facts.after(0)
    late_ns = min(delays_ns)
    assert heard == replace(stop, at_ns=came_ns + late_ns, deadline_ns=came_ns + 30 + late_ns)


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
    failed = Exit(code=1, report=RankReport("ValueError", "no", "train.py:3", ""))
    left = report(ev.RankExited(5, -1, 2, 5, failed))
    found = roster(FOLLOWER, replace(FOLLOWER, rank=2, me="g", report=left))
    assert found.newly_gone(0, frozenset({1}), None) == (1,)
    assert found.newly_gone(GONE_AFTER_NS * 2, frozenset({1}), 0) == ()
    assert found.still_here() == ()
    assert found.left() == {2: failed}


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
    view.hear(0, replace(LEADER, me="old", number=99, order=order(7)).to_bytes())
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


@given(st.lists(st.integers(0, 5 * SECOND_NS), min_size=1, max_size=6), st.integers(0, 10**15))
def test_a_deadline_is_never_later_than_any_message_said(
    delays_ns: list[int], clock_ns: int
) -> None:
    """The leader's clock is ahead by that."""
    view = LeaderView("f")
    for number, delay_ns in enumerate(delays_ns, start=2):
        sent_ns = number * SECOND_NS
        told = replace(LEADER, number=number, sent_ns=sent_ns + clock_ns, order=order(number))
        view.hear(sent_ns + delay_ns, told.to_bytes())
    view.hear_welcome(0, welcome())
    assert view.offset_ns == min(delays_ns) - clock_ns
    assert view.order is not None
    assert view.order.attention.deadline_ns == 60 * SECOND_NS


def test_an_order_that_is_none_is_named() -> None:
    view = LeaderView("f")
    assert not view.hear(0, replace(LEADER, order={"number": "x"}).to_bytes())
    assert "what rank 0 says cannot be read" in view.trouble
