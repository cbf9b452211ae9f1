"""At which host a failure is laid, and when a host has failed too often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.exits import Exit, ExitCause, RankReport, classify
from holdfast.core.hosts.suspicion import (
    HOUR_NS,
    SECOND_NS,
    HostSuspicion,
    HostVerdict,
    SuspicionPolicy,
    laid_at,
)

S = SECOND_NS
BUG = Exit(code=1, report=RankReport("ValueError", "no", "train.py:3", ""))
ECC = Exit(code=1, report=RankReport("RuntimeError", "uncorrectable ECC error", "t.py:9", ""))
NO_MEMORY = Exit(code=1, report=RankReport("MemoryError", "", "train.py:3", ""))
SEGV, BUS, KILL, OOM = (
    Exit(signal=11),
    Exit(signal=7),
    Exit(signal=9),
    Exit(signal=9, oom_killed=True),
)
PEER = Exit(code=1, report=RankReport("RuntimeError", "gloo: connection reset by peer", "x:1", ""))
HOSTS = (0, 0, 1, 1)


@pytest.mark.parametrize(
    ("root", "others", "host"),
    [
        (BUS, {0: KILL, 1: KILL, 3: KILL}, 1),
        (KILL, {0: KILL, 1: KILL, 3: KILL}, 1),  # the others were ended by us
        (ECC, {0: PEER, 1: PEER}, 1),
        (OOM, {0: PEER}, 1),
        (SEGV, {3: SEGV}, 1),  # both on that host
        (SEGV, {0: SEGV}, None),  # the same on another host: the script's
        (ECC, {1: ECC}, None),
        (BUG, {0: PEER}, None),
        (NO_MEMORY, {0: PEER}, None),
        (PEER, {0: PEER}, None),
    ],
)
def test_a_failure_is_laid_at_one_host(
    root: Exit, others: dict[int, Exit], host: int | None
) -> None:
    found, words = laid_at(classify(root)[0], 2, {2: root, **others}, HOSTS)
    assert (found, bool(words)) == (host, True)


def test_a_hang_is_laid_where_the_last_rank_was() -> None:
    ends = dict.fromkeys(range(4), Exit(signal=9))
    assert laid_at(ExitCause.HANG, 3, ends, HOSTS)[0] == 1
    assert laid_at(ExitCause.HANG, None, ends, HOSTS)[0] is None


def test_three_within_an_hour_are_too_many() -> None:
    hosts = HostSuspicion()
    for at_s in (0, 3000, 3599):
        assert hosts.judge(at_s * S, 1, can_be_spared=True)[0] is HostVerdict.TRUSTED
        hosts.lay(at_s * S, 1, f"at {at_s}")
    verdict, words = hosts.judge(3600 * S, 1, can_be_spared=True)
    assert verdict is HostVerdict.QUARANTINE
    assert words == "lost or failed 3 times within 60 min, at last: at 3599"
    assert hosts.judge(3600 * S, 1, can_be_spared=False)[0] is HostVerdict.WAIT
    assert hosts.judge(3601 * S, 1, can_be_spared=True)[0] is HostVerdict.TRUSTED
    assert hosts.blamed(3600 * S) == (1,)


def test_a_host_that_cannot_be_replaced_waits_longer_and_longer() -> None:
    hosts = HostSuspicion()
    waits = []
    for at_s in range(12):
        hosts.lay(at_s * S, 0, "killed")
        waits.append(hosts.wait_ns(at_s * S) // S)
    assert waits == [0, 0, 5, 10, 20, 40, 80, 160, 300, 300, 300, 300]
    assert hosts.wait_ns(2 * HOUR_NS) == 0
    hosts.lay(2 * HOUR_NS, 0, "killed")
    assert hosts.wait_ns(2 * HOUR_NS) == 0  # once in this hour


def test_one_that_was_released_begins_anew_and_is_tried_out() -> None:
    hosts = HostSuspicion()
    for at_s in range(3):
        hosts.lay(at_s * S, 1, "killed")
    hosts.forget(1)
    assert hosts.judge(3 * S, 1, can_be_spared=True)[0] is HostVerdict.TRUSTED
    assert hosts.doubtful == {1}


def test_a_process_that_is_ended_once_costs_no_preflight() -> None:
    hosts = HostSuspicion()
    hosts.lay(0, 0, "killed", is_grave=False)
    hosts.lay(0, 1, "crashed")
    assert hosts.doubtful == {1}
    hosts.is_fit(1)
    hosts.lay(HOUR_NS + 1, 0, "killed", is_grave=False)
    assert not hosts.doubtful
    hosts.lay(HOUR_NS + 2, 0, "killed", is_grave=False)
    assert hosts.doubtful == {0}


def test_never_means_never() -> None:
    hosts = HostSuspicion(SuspicionPolicy(times=0))
    for at_ns in range(100):
        hosts.lay(at_ns, 1, "killed")
    assert hosts.judge(100, 1, can_be_spared=True)[0] is HostVerdict.TRUSTED
    assert hosts.wait_ns(100) == 0


@given(
    st.lists(st.integers(0, 3 * HOUR_NS), max_size=30).map(sorted),
    st.integers(1, 5),
    st.integers(0, HOUR_NS),
)
def test_it_counts_what_a_list_of_all_would_count(at: list[int], times: int, later: int) -> None:
    hosts = HostSuspicion(SuspicionPolicy(times))
    for one in at:
        hosts.lay(one, 7, "killed")
    now = (at[-1] if at else 0) + later
    is_too_often = sum(now - one <= HOUR_NS for one in at) >= times
    assert (hosts.judge(now, 7, can_be_spared=True)[0] is HostVerdict.QUARANTINE) == is_too_often
