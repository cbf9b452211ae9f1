"""Azure's Scheduled Events: this machine's only, each change once, and wrong answers."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from listening import clocks

sys.path.pop(0)

from holdfast.core.notices.board import Notice, NoticeAction, NoticeState
from holdfast.notices.protocol import SourceSurroundings
from holdfast.notices.registry import wanted
from holdfast.notices.settle import settle
from holdfast.testing.azure import AzureEmulator

S = 10**9


NOTICE = Notice("azure", NoticeAction.REBOOT, 0, event_id="E1")


def settled(emulator, *notices: Notice, limit_s: float = 20) -> list[tuple[str, str]]:
    """What is said when these may happen."""
    said: list[tuple[str, str]] = []
    around = SourceSurroundings()
    settle(
        wanted(f"file:/nowhere,azure:{emulator.url}", around),
        around,
        notices,
        clock=clocks,
        say=lambda *words: said.append(words),
        limit_s=limit_s,
    )
    return said


def test_an_event_of_this_machine_alone_is_approved(azure):
    azure.do("event", "Reboot", "900")
    azure.do("event", "Terminate", "900", "E2")
    azure.do("fail", "html", "2")
    elsewhere = replace(NOTICE, source="file")  # which has nobody to tell
    assert settled(azure, NOTICE, elsewhere) == [
        ("info", "azure: event E1 is approved: it need not wait for its time")
    ]
    assert azure.approved == ["E1"]
    (post,) = [one for one in azure.requests if one.method == "POST"]
    assert json.loads(post.body) == {"StartRequests": [{"EventId": "E1"}]}
    assert azure.events["E1"]["EventStatus"] == "Started"


def test_an_event_of_others_or_that_has_begun_or_gone_is_not_approved(azure):
    azure.do("event", "Reboot", "900", "E1", "trainer_0,trainer_1")
    ((level, words),) = settled(azure, NOTICE)
    assert (level, words) == (
        "info",
        "azure: the event is not approved: it is about trainer_1 as well",
    )
    azure.do("event", "Reboot", "900", "E1", "trainer_1")
    assert "is about trainer_1 as well" in settled(azure, NOTICE)[0][1]
    azure.do("event", "Reboot", "900")
    azure.do("start")
    assert "the event has begun" in settled(azure, NOTICE)[0][1]
    azure.do("remove")
    assert "not scheduled any more" in settled(azure, NOTICE, replace(NOTICE, event_id=""))[0][1]
    assert azure.approved == []


@pytest.mark.parametrize("how", ["status", "garbage", "redirect", "hang"])
def test_a_service_that_does_not_take_an_approval_keeps_nobody(azure, how):
    azure.do("event", "Reboot", "900")
    azure.do("fail", how, "999")
    ((level, words),) = settled(azure, NOTICE, limit_s=0.3)
    assert level == "warning"
    assert "the event is not approved, and comes at its time" in words
    assert azure.approved == []


@pytest.fixture
def azure():
    with AzureEmulator() as emulator:
        yield emulator


def test_events_of_this_machine_are_told_once_started_and_withdrawn(azure, listening):
    azure.do("event", "Reboot", "900", "other", "trainer_1,trainer_2")
    watching = listening(f"azure:{azure.url}", naps=True)
    watching.answered()
    azure.do("event", "Preempt", "30", "mine", "trainer_1,TRAINER_0")
    (told,) = watching.heard(1)
    assert (told.action, told.event_id, told.words) == (NoticeAction.TERMINATE, "mine", "Preempt")
    assert watching.leaves(told, 30)
    azure.do("event", "Freeze", "900", "pause")
    told = watching.heard(2)[1]
    assert (told.action, told.action.is_end) == (NoticeAction.FREEZE, False)
    azure.do("start", "mine")
    told = watching.heard(3)[2]
    assert (told.state, told.deadline_ns, told.lead_ns) == (NoticeState.STARTED, None, None)
    azure.do("remove", "mine")
    assert watching.heard(4)[3].state is NoticeState.WITHDRAWN
    asked = len(azure.requests)
    watching.until(lambda: len(azure.requests) > asked + 10)
    assert (len(watching.notices), watching.said, azure.approved) == (4, [], [])


def test_a_document_that_is_not_new_says_nothing(azure, listening):
    watching = listening(f"azure:{azure.url}", naps=True)
    watching.answered()
    azure.do("event", "Terminate", "600")
    azure.do("event", "Reboot", "60", "E2")
    watching.heard(2)
    azure.events.clear()  # but the incarnation stays
    asked = len(azure.requests)
    watching.until(lambda: len(azure.requests) > asked + 10)
    assert len(watching.notices) == 2


def test_dates_are_put_on_our_clock_and_where_none_is_told_the_lead_counts(azure, listening):
    azure.do("event", "Terminate", "600")
    azure.do("event", "Redeploy", "", "E2")
    watching = listening(f"azure:{azure.url}", naps=True, skew_ns=86400 * S)
    dated, undated = watching.heard(2)
    assert watching.leaves(dated, 600)
    assert (undated.deadline_ns, undated.lead_ns) == (None, 600 * S)


@pytest.mark.parametrize("how", ["status", "html", "garbage", "giant", "redirect", "cut"])
def test_trouble_is_counted_said_once_and_over(azure, listening, how):
    watching = listening(f"azure:{azure.url}", naps=True)
    watching.answered()
    azure.do("fail", how, "3")
    watching.until(lambda: watching.standing.failures >= 2)
    watching.answered()
    assert [level for level, _ in watching.said] == ["warning", "info"]
    assert not any(request.path == "/elsewhere" for request in azure.requests)
    azure.do("event", "Preempt", "30")
    assert watching.heard(1)[0].words == "Preempt"


def test_a_page_is_not_taken_for_the_machines_name(azure, listening):
    azure.do("fail", "html", "1")
    azure.do("event", "Preempt", "30")
    watching = listening(f"azure:{azure.url}", naps=True)
    assert watching.heard(1)[0].words == "Preempt"
    assert "instead of the machine's name" in watching.said[0][1]


def test_a_service_that_hangs_is_let_go_of_when_listening_ends(azure, listening):
    azure.do("fail", "hang", "5")
    watching = listening(f"azure:{azure.url}", naps=True)
    watching.until(lambda: azure.requests)
