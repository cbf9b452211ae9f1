"""Which notices are one host's affair, and which are the run's."""

from __future__ import annotations

from dataclasses import replace

import pytest

from holdfast.core import events as ev
from holdfast.core.hosts.evacuation import Evacuation
from holdfast.core.notices.board import Notice, NoticeAction, NoticeState, Scope
from holdfast.core.notices.plan import NoticePolicy, OnNotice

S = 1_000_000_000


def notice(
    action: NoticeAction = NoticeAction.TERMINATE,
    state: NoticeState = NoticeState.SCHEDULED,
    topic: str = "",
) -> Notice:
    return Notice("gce", action, 0, state, topic=topic, deadline_ns=60 * S)


def leaving(then: OnNotice = OnNotice.LEAVE, *, accelerators: bool = False) -> Evacuation:
    return Evacuation(NoticePolicy(then, accelerators))


def test_a_spare_takes_the_part_of_a_host_that_is_to_go() -> None:
    hosts = leaving()
    assert hosts.takes(1, "b", notice(), trains=True, spares=1)
    assert hosts.reasons == {1: "terminate announced by gce"}
    # News of it, and other events of that host, whether a spare is left or not.
    started = notice(state=NoticeState.STARTED)
    assert hosts.takes(1, "b", started, trains=True, spares=0)
    assert hosts.takes(1, "b", notice(topic="disk"), trains=False, spares=0)
    # Of another host.
    assert not hosts.takes(0, "a", notice(), trains=True, spares=0)
    assert list(hosts.reasons) == [1]


def test_an_attempt_ends_by_a_notice_if_one_of_its_hosts_was_announced_to_go() -> None:
    hosts = leaving()
    hosts.takes(1, "b", notice(), trains=True, spares=1)
    assert hosts.move(S, {1: hosts.reasons[1], 2: "slow"}) == ev.RestartAsked(
        S,
        "host 1 gives up its part (terminate announced by gce), host 2 gives up its part (slow)",
        is_notice=True,
    )
    many = hosts.move(S, dict.fromkeys(range(2, 8), "slow"))
    assert not many.is_notice
    assert many.words.endswith("host 5 gives up its part (slow), and 2 more")


def test_a_host_without_a_part_just_gets_none() -> None:
    hosts = leaving()
    assert hosts.takes(2, "spare", notice(), trains=False, spares=0)
    assert list(hosts.reasons) == [2]


@pytest.mark.parametrize(
    ("action", "then", "accelerators", "is_alone"),
    [
        (NoticeAction.REBOOT, OnNotice.LEAVE, False, True),
        (NoticeAction.TERMINATE, OnNotice.RELEASE, False, True),
        (NoticeAction.LIVE_MIGRATION, OnNotice.LEAVE, True, True),
        (NoticeAction.LIVE_MIGRATION, OnNotice.LEAVE, False, False),
        (NoticeAction.TERMINATE, OnNotice.STAY, False, False),
        (NoticeAction.TIME_LIMIT, OnNotice.LEAVE, False, False),
        (NoticeAction.DRAIN, OnNotice.LEAVE, False, True),
        (NoticeAction.DRAIN, OnNotice.STAY, False, False),
        (NoticeAction.REBALANCE, OnNotice.LEAVE, False, False),
        (NoticeAction.FREEZE, OnNotice.LEAVE, True, False),
    ],
)
def test_what_does_not_end_this_host_alone_is_the_runs_affair(
    action: NoticeAction, then: OnNotice, accelerators: bool, is_alone: bool
) -> None:
    hosts = leaving(then, accelerators=accelerators)
    assert hosts.takes(1, "b", notice(action), trains=True, spares=3) is is_alone
    assert bool(hosts.reasons) is is_alone


def test_a_drained_host_trains_on_where_no_spare_is() -> None:
    hosts = leaving()
    assert not hosts.takes(1, "b", notice(NoticeAction.DRAIN), trains=True, spares=0)
    assert hosts.takes(2, "spare", notice(NoticeAction.DRAIN), trains=False, spares=0)
    slice_ = replace(notice(NoticeAction.DRAIN), scope=Scope.SLICE)
    assert not hosts.takes(0, "a", slice_, trains=True, spares=1)


def test_what_is_withdrawn_lets_the_host_back_in() -> None:
    hosts = leaving()
    for topic in ("", "disk"):
        hosts.takes(1, "b", notice(topic=topic), trains=True, spares=1)
    for topic, left in (("", [1]), ("disk", [])):
        withdrawn = notice(state=NoticeState.WITHDRAWN, topic=topic)
        assert hosts.takes(1, "b", withdrawn, trains=False, spares=0)
        assert list(hosts.reasons) == left
    assert not hosts.takes(1, "b", notice(state=NoticeState.WITHDRAWN), trains=True, spares=1)


def test_another_machine_of_that_number_is_not_to_go() -> None:
    hosts = leaving()
    hosts.takes(1, "b", notice(), trains=True, spares=1)
    assert not hosts.heard(1, "b")
    assert not hosts.heard(2, "c")
    assert hosts.heard(1, "b on another machine")
    assert hosts.reasons == {}
