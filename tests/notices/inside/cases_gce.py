"""Google's metadata server: hanging requests, and everything that can be wrong with the answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.notices import NoticeAction, NoticeState
from holdfast.testing.gce import GceEmulator

S = 10**9


@pytest.fixture
def gce():
    with GceEmulator() as emulator:
        yield emulator


def hangs(gce):
    """Every key is being waited for: what changes from now on is told at once."""
    return sum(request.query.get("wait_for_change") == "true" for request in gce.requests) >= 3


def test_each_change_is_told_once_and_what_is_over_is_withdrawn(gce, listening):
    ears = listening(f"gce:{gce.url}")
    ears.until(lambda: hangs(gce))
    gce.do("preempted")
    (told,) = ears.heard(1)
    assert (told.action, told.words, told.lead_ns) == (NoticeAction.TERMINATE, "preempted", 30 * S)
    gce.do("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
    assert ears.heard(2)[1].action is NoticeAction.LIVE_MIGRATION
    gce.do("maintenance-event", "NONE")
    assert ears.heard(3)[2].state is NoticeState.WITHDRAWN
    assert ears.heard(3)[2].key == ears.heard(3)[1].key != told.key
    assert (len(ears.notices), ears.said) == (3, [])


def test_a_window_is_put_on_our_clock_by_the_servers_calendar(gce, listening):
    skew_ns = 3600 * S  # this host's calendar is an hour ahead; the server's answers tell the truth
    ears = listening(f"gce:{gce.url}", skew_ns=skew_ns)
    opens = datetime.now(UTC) + timedelta(hours=2)
    gce.do("upcoming", opens.isoformat())
    (told,) = ears.heard(1)
    assert ears.leaves(told, 7200)
    assert told.state is NoticeState.SCHEDULED
    gce.do("upcoming", opens.isoformat(), "ONGOING")
    assert ears.heard(2)[1].state is NoticeState.STARTED
    assert ears.heard(2)[1].deadline_ns is None


@pytest.mark.parametrize(
    "fault",
    [
        ("status", "503"), ("status", "401"), ("html", ""), ("garbage", ""), ("giant", ""),
        ("redirect", ""), ("redirect", "http://192.0.2.1/"), ("cut", ""),
    ],
)  # fmt: skip
def test_trouble_is_counted_said_once_and_over(gce, listening, fault):
    how, what = fault
    gce.do("fail", how, "3", what)
    ears = listening(f"gce:{gce.url}")
    ears.answered()
    assert ears.standing.failures >= 2
    assert [level for level, _ in ears.said] == ["warning", "info"]
    assert not any(request.path == "/elsewhere" for request in gce.requests)
    gce.do("preempted")
    assert ears.heard(1)[0].words == "preempted"


def test_a_change_while_it_was_in_trouble_is_not_lost(gce, listening):
    ears = listening(f"gce:{gce.url}")
    ears.until(lambda: hangs(gce))
    gce.do("fail", "html", "9999")
    gce.do("drop")
    gce.do("preempted")
    ears.until(lambda: ears.standing.failures > 5)
    assert ears.notices == []
    gce.do("recover")
    assert ears.heard(1)[0].words == "preempted"


def test_a_server_that_hangs_is_let_go_of_when_listening_ends(gce, listening):
    gce.do("fail", "hang", "5")
    ears = listening(f"gce:{gce.url}")
    ears.until(lambda: gce.requests)


def test_google_is_found_by_a_variable_without_a_name_being_looked_up(gce, listening):
    ears = listening("auto", environment={"GCE_METADATA_HOST": f"127.0.0.1:{gce.port}"})
    ears.answered()
    assert ears.standing.why == "GCE_METADATA_HOST is set"


def test_where_nobody_listens_training_goes_on(listening):
    ears = listening("gce:http://127.0.0.1:9")
    ears.until(lambda: ears.standing.failures > 3)
    assert [level for level, _ in ears.said] == ["warning"]
    assert "no connection to 127.0.0.1:9" in ears.said[0][1]
