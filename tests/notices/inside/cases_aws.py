"""Amazon's metadata service: tokens that end, items that come and go, and wrong answers."""

from __future__ import annotations

import pytest

from holdfast.core.notices.board import NoticeAction, NoticeState
from holdfast.testing.aws import AwsEmulator

S = 10**9
GONE = NoticeState.WITHDRAWN


@pytest.fixture
def aws():
    with AwsEmulator() as emulator:
        yield emulator


def test_what_spot_and_the_calendar_say_is_told_once_and_withdrawn(aws, listening):
    ears = listening(f"aws:{aws.url}", naps=True)
    ears.answered()
    aws.do("rebalance")
    assert ears.heard(1)[0].action is NoticeAction.REBALANCE
    aws.do("spot", "terminate", "120")
    told = ears.heard(2)[1]
    assert (told.action, told.words) == (NoticeAction.TERMINATE, "Spot interruption: terminate")
    assert ears.leaves(told, 120)
    aws.do("scheduled", "system-reboot", "7200")
    told = ears.heard(3)[2]
    assert (told.action, told.event_id) == (NoticeAction.REBOOT, "instance-event-1")
    assert ears.leaves(told, 7200)
    aws.do("scheduled", "system-reboot", "7200", "instance-event-1", "canceled")
    assert (ears.heard(4)[3].key, ears.heard(4)[3].state) == (told.key, GONE)
    aws.do("spot", "none")
    assert ears.heard(5)[4].state is GONE
    ears.until(lambda: len(aws.requests) > 60)
    assert (len(ears.notices), ears.said) == (5, [])


def test_a_token_is_kept_until_it_is_refused_or_half_its_life_is_over(aws, listening):
    def tokens():
        return sum(request.method == "PUT" for request in aws.requests)

    ears = listening(f"aws:{aws.url}", naps=True)
    ears.until(lambda: len(aws.requests) > 20)
    assert tokens() == 1
    aws.do("rotate")
    aws.do("spot")
    assert ears.heard(1)
    assert (tokens(), ears.said) == (2, [])
    ears.slept_ns += 10801 * S
    ears.until(lambda: tokens() == 3)
    aws.do("fail", "status", "9999", "401")  # whatever token it is shown
    ears.until(lambda: ears.standing.failures > 2)
    assert {level for level, _ in ears.said} == {"warning"}
    assert "status 401" in ears.said[0][1]


def test_an_event_that_is_on_and_was_never_announced_has_no_date(aws, listening):
    aws.do("scheduled", "instance-stop", "-60")
    (told,) = listening(f"aws:{aws.url}", naps=True).heard(1)
    assert (told.state, told.deadline_ns, told.lead_ns) == (NoticeState.STARTED, None, None)


def test_a_date_is_put_on_our_clock_by_the_servers_calendar(aws, listening):
    aws.do("spot")
    ears = listening(f"aws:{aws.url}", naps=True, skew_ns=-3600 * S)
    (told,) = ears.heard(1)
    assert ears.leaves(told, 120)


@pytest.mark.parametrize("how", ["status", "html", "garbage", "giant", "redirect", "cut"])
def test_trouble_is_counted_said_once_and_over(aws, listening, how):
    ears = listening(f"aws:{aws.url}", naps=True)
    ears.answered()
    aws.do("fail", how, "4")
    ears.until(lambda: ears.standing.failures >= 2)
    ears.answered()
    assert ears.trouble_was_said()
    assert not any(request.path == "/elsewhere" for request in aws.requests)
    aws.do("spot")
    assert ears.heard(1)[0].words == "Spot interruption: terminate"


@pytest.mark.parametrize(
    ("item", "verb"),
    [
        ("spot/", ("scheduled", "instance-stop", "600")),
        ("rebalance", ("spot", "terminate", "120")),
        ("rebalance", ("scheduled", "instance-stop", "600")),
        ("scheduled", ("spot", "terminate", "120")),
        ("scheduled", ("rebalance",)),
    ],
)
def test_one_item_in_trouble_stops_no_other(aws, listening, item, verb):
    aws.do("refuse", item)
    aws.do(*verb)
    ears = listening(f"aws:{aws.url}", naps=True)
    ears.heard(1)
    ears.until(lambda: ears.standing.failures > 2)
    ((level, words),) = ears.said
    assert (level, item in words) == ("warning", True)


def test_a_service_that_hangs_is_let_go_of_when_listening_ends(aws, listening):
    aws.do("fail", "hang", "5")
    ears = listening(f"aws:{aws.url}", naps=True)
    ears.until(lambda: aws.requests)
