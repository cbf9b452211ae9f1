"""Azure's Scheduled Events: this machine's only, each change once, and wrong answers."""

from __future__ import annotations

import pytest

from holdfast.core.notices import NoticeAction, NoticeState
from holdfast.testing.azure import AzureEmulator

S = 10**9


@pytest.fixture
def azure():
    with AzureEmulator() as emulator:
        yield emulator


def left_s(told):
    return (told.deadline_ns - told.received_ns) / S


def test_events_of_this_machine_are_told_once_started_and_withdrawn(azure, listening):
    azure.do("event", "Reboot", "900", "other", "trainer_1,trainer_2")
    ears = listening(f"azure:{azure.url}", naps=True)
    ears.answered()
    azure.do("event", "Preempt", "30", "mine", "trainer_1,TRAINER_0")
    (told,) = ears.heard(1)
    assert (told.action, told.event_id, told.words) == (NoticeAction.TERMINATE, "mine", "Preempt")
    assert left_s(told) == pytest.approx(30, abs=5)
    azure.do("event", "Freeze", "900", "pause")
    told = ears.heard(2)[1]
    assert (told.action, told.action.is_end) == (NoticeAction.FREEZE, False)
    azure.do("start", "mine")
    told = ears.heard(3)[2]
    assert (told.state, told.deadline_ns, told.lead_ns) == (NoticeState.STARTED, None, None)
    azure.do("remove", "mine")
    assert ears.heard(4)[3].state is NoticeState.WITHDRAWN
    asked = len(azure.requests)
    ears.until(lambda: len(azure.requests) > asked + 10)
    assert (len(ears.notices), ears.said, azure.approved) == (4, [], [])


def test_a_document_that_is_not_new_says_nothing(azure, listening):
    ears = listening(f"azure:{azure.url}", naps=True)
    ears.answered()
    azure.do("event", "Terminate", "600")
    azure.do("event", "Reboot", "60", "E2")
    ears.heard(2)
    azure.events.clear()  # but the incarnation stays
    asked = len(azure.requests)
    ears.until(lambda: len(azure.requests) > asked + 10)
    assert len(ears.notices) == 2


def test_dates_are_put_on_our_clock_and_where_none_is_told_the_lead_counts(azure, listening):
    azure.do("event", "Terminate", "600")
    azure.do("event", "Redeploy", "", "E2")
    ears = listening(f"azure:{azure.url}", naps=True, skew_ns=86400 * S)
    dated, undated = ears.heard(2)
    assert left_s(dated) == pytest.approx(600, abs=5)
    assert (undated.deadline_ns, undated.lead_ns) == (None, 600 * S)


@pytest.mark.parametrize("how", ["status", "html", "garbage", "giant", "redirect", "cut"])
def test_trouble_is_counted_said_once_and_over(azure, listening, how):
    ears = listening(f"azure:{azure.url}", naps=True)
    ears.answered()
    azure.do("fail", how, "3")
    ears.until(lambda: ears.standing.failures >= 2)
    ears.answered()
    assert [level for level, _ in ears.said] == ["warning", "info"]
    assert not any(request.path == "/elsewhere" for request in azure.requests)
    azure.do("event", "Preempt", "30")
    assert ears.heard(1)[0].words == "Preempt"


def test_a_service_that_hangs_is_let_go_of_when_listening_ends(azure, listening):
    azure.do("fail", "hang", "5")
    ears = listening(f"azure:{azure.url}", naps=True)
    ears.until(lambda: azure.requests)
