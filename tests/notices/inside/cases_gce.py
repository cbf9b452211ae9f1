"""Google's metadata server: hanging requests, and everything that can be wrong with the answers."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from holdfast.core.notices.board import NoticeAction, NoticeState
from holdfast.testing.gce import GceEmulator

S = 10**9


@pytest.fixture
def gce():
    with GceEmulator() as emulator:
        yield emulator


def hangs(gce):
    """Both keys that there are from the start are waited for: what changes is told at once."""
    waiting = {one.path for one in gce.requests if one.query.get("wait_for_change") == "true"}
    return len(waiting) >= 2


def test_each_change_is_told_once_and_what_is_over_is_withdrawn(gce, listening):
    watching = listening(f"gce:{gce.url}")
    watching.until(lambda: hangs(gce))
    gce.do("preempted")
    (told,) = watching.heard(1)
    assert (told.action, told.words, told.lead_ns) == (NoticeAction.TERMINATE, "preempted", 30 * S)
    gce.do("maintenance-event", "MIGRATE_ON_HOST_MAINTENANCE")
    assert watching.heard(2)[1].action is NoticeAction.LIVE_MIGRATION
    gce.do("maintenance-event", "NONE")
    assert watching.heard(3)[2].state is NoticeState.WITHDRAWN
    assert watching.heard(3)[2].key == watching.heard(3)[1].key != told.key
    assert (len(watching.notices), watching.said) == (3, [])


def test_a_window_is_put_on_our_clock_by_the_servers_calendar(gce, listening):
    gce.do("upcoming")
    skew_ns = 3600 * S  # this host's calendar is an hour ahead; the server's answers tell the truth
    watching = listening(f"gce:{gce.url}", skew_ns=skew_ns)
    opens = datetime.now(UTC) + timedelta(hours=2)
    gce.do("upcoming", opens.isoformat())
    (told,) = watching.heard(1)
    assert watching.leaves(told, 7200)
    assert told.state is NoticeState.SCHEDULED
    gce.do("upcoming", opens.isoformat(), "ONGOING")
    assert watching.heard(2)[1].state is NoticeState.STARTED
    assert watching.heard(2)[1].deadline_ns is None


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
    watching = listening(f"gce:{gce.url}")
    watching.until(lambda: watching.standing.failures >= 2)  # another key may be answered first
    watching.answered()
    assert watching.trouble_was_said()
    assert not any(request.path == "/elsewhere" for request in gce.requests)
    gce.do("preempted")
    assert watching.heard(1)[0].words == "preempted"


def test_a_machine_that_has_never_had_a_notice_is_in_no_trouble(gce, listening):
    watching = listening(f"gce:{gce.url}", naps=True)
    watching.until(lambda: sum("upcoming" in request.path for request in gce.requests) > 3)
    assert (watching.standing.failures, watching.said) == (0, [])
    gce.do("upcoming", (datetime.now(UTC) + timedelta(hours=2)).isoformat())
    assert watching.leaves(watching.heard(1)[0], 7200)
    gce.do("upcoming")
    assert watching.heard(2)[1].state is NoticeState.WITHDRAWN


@pytest.mark.parametrize(
    ("key", "verb"),
    [
        ("upcoming-maintenance", "preempted"),
        ("maintenance-event", "preempted"),
        ("stop-state", "preempted"),
        ("on-host-maintenance", "upcoming"),
        ("preempted", "maintenance-event"),
        ("preempted", "stop-state"),
    ],
)
@pytest.mark.parametrize("status", ["503", "403"])
def test_one_key_in_trouble_stops_no_other(gce, listening, key, verb, status):
    gce.do("refuse", key, status)
    gce.do(verb, *([datetime.now(UTC).isoformat()] if verb == "upcoming" else []))
    watching = listening(f"gce:{gce.url}")
    assert watching.heard(1)[0].action is NoticeAction.TERMINATE
    if key != "on-host-maintenance":  # without which the worst is assumed
        watching.until(lambda: watching.standing.failures > 2)
        ((level, words),) = watching.said
        assert level == "warning"
        assert f"{key} with status {status}" in words


def test_a_server_without_any_of_the_keys_is_none_that_warns(gce, listening):
    for key in ("maintenance-event", "preempted", "upcoming-maintenance"):
        gce.do("unset", key)
    watching = listening(f"gce:{gce.url}", naps=True)
    watching.until(lambda: watching.standing.has_answered and watching.standing.failures > 2)
    ((level, words),) = watching.said
    assert level == "warning"
    assert "does not tell of this machine's maintenance and preemption (404)" in words
    gce.do("maintenance-event", "NONE")
    watching.answered()


def test_what_maintenance_does_is_taken_for_the_worst_where_it_is_not_told(gce, listening):
    gce.do("set", "scheduling/on-host-maintenance", "MIGRATE")
    gce.do("upcoming", (datetime.now(UTC) + timedelta(hours=2)).isoformat())
    watching = listening(f"gce:{gce.url}")
    assert watching.heard(1)[0].action is NoticeAction.LIVE_MIGRATION
    gce.do("refuse", "on-host-maintenance")
    watching = listening(f"gce:{gce.url}")
    assert watching.heard(1)[0].action is NoticeAction.TERMINATE
    gce.do("recover")
    gce.do("upcoming", (datetime.now(UTC) + timedelta(hours=3)).isoformat())
    assert watching.heard(2)[1].action is NoticeAction.LIVE_MIGRATION


def test_a_change_while_it_was_in_trouble_is_not_lost(gce, listening):
    watching = listening(f"gce:{gce.url}")
    watching.until(lambda: hangs(gce))
    gce.do("fail", "html", "9999")
    gce.do("drop")
    gce.do("preempted")
    watching.until(lambda: watching.standing.failures > 5)
    assert watching.notices == []
    gce.do("recover")
    assert watching.heard(1)[0].words == "preempted"


def test_a_server_that_hangs_is_let_go_of_when_listening_ends(gce, listening):
    gce.do("fail", "hang", "5")
    watching = listening(f"gce:{gce.url}")
    watching.until(lambda: gce.requests)


def test_google_is_found_by_a_variable_without_a_name_being_looked_up(gce, listening):
    watching = listening("auto", environment={"GCE_METADATA_HOST": f"127.0.0.1:{gce.port}"})
    watching.answered()
    assert watching.standing.why == "GCE_METADATA_HOST is set"


def test_where_nobody_listens_training_goes_on(listening):
    watching = listening("gce:http://127.0.0.1:9")
    watching.until(lambda: watching.standing.failures > 3)
    assert [level for level, _ in watching.said] == ["warning"]
    assert "no connection to 127.0.0.1:9" in watching.said[0][1]
