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
    watching = listening(f"aws:{aws.url}", naps=True)
    watching.answered()
    aws.do("rebalance")
    assert watching.heard(1)[0].action is NoticeAction.REBALANCE
    aws.do("spot", "terminate", "120")
    told = watching.heard(2)[1]
    assert (told.action, told.words) == (NoticeAction.TERMINATE, "Spot interruption: terminate")
    assert watching.leaves(told, 120)
    aws.do("scheduled", "system-reboot", "7200")
    told = watching.heard(3)[2]
    assert (told.action, told.event_id) == (NoticeAction.REBOOT, "instance-event-1")
    assert watching.leaves(told, 7200)
    aws.do("scheduled", "system-reboot", "7200", "instance-event-1", "canceled")
    assert (watching.heard(4)[3].key, watching.heard(4)[3].state) == (told.key, GONE)
    aws.do("spot", "none")
    assert watching.heard(5)[4].state is GONE
    watching.until(lambda: len(aws.requests) > 60)
    assert (len(watching.notices), watching.said) == (5, [])


def test_a_token_is_kept_until_it_is_refused_or_half_its_life_is_over(aws, listening):
    def tokens():
        return sum(request.method == "PUT" for request in aws.requests)

    watching = listening(f"aws:{aws.url}", naps=True)
    watching.until(lambda: len(aws.requests) > 20)
    assert tokens() == 1
    aws.do("rotate")
    aws.do("spot")
    assert watching.heard(1)
    assert (tokens(), watching.said) == (2, [])
    watching.slept_ns += 10801 * S
    watching.until(lambda: tokens() == 3)
    aws.do("fail", "status", "9999", "401")  # whatever token it is shown
    watching.until(lambda: watching.standing.failures > 2)
    assert {level for level, _ in watching.said} == {"warning"}
    assert "status 401" in watching.said[0][1]


def test_an_event_that_is_on_and_was_never_announced_has_no_date(aws, listening):
    aws.do("scheduled", "instance-stop", "-60")
    (told,) = listening(f"aws:{aws.url}", naps=True).heard(1)
    assert (told.state, told.deadline_ns, told.lead_ns) == (NoticeState.STARTED, None, None)


def test_a_date_is_put_on_our_clock_by_the_servers_calendar(aws, listening):
    aws.do("spot")
    watching = listening(f"aws:{aws.url}", naps=True, skew_ns=-3600 * S)
    (told,) = watching.heard(1)
    assert watching.leaves(told, 120)


@pytest.mark.parametrize("how", ["status", "html", "garbage", "giant", "redirect", "cut"])
def test_trouble_is_counted_said_once_and_over(aws, listening, how):
    watching = listening(f"aws:{aws.url}", naps=True)
    watching.answered()
    aws.do("fail", how, "4")
    watching.until(lambda: watching.standing.failures >= 2)
    watching.answered()
    assert watching.trouble_was_said()
    assert not any(request.path == "/elsewhere" for request in aws.requests)
    aws.do("spot")
    assert watching.heard(1)[0].words == "Spot interruption: terminate"


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
    watching = listening(f"aws:{aws.url}", naps=True)
    watching.heard(1)
    watching.until(lambda: watching.standing.failures > 2)
    ((level, words),) = watching.said
    assert (level, item in words) == ("warning", True)


def test_a_service_that_hangs_is_let_go_of_when_listening_ends(aws, listening):
    aws.do("fail", "hang", "5")
    watching = listening(f"aws:{aws.url}", naps=True)
    watching.until(lambda: aws.requests)
