"""An event survives the journal: `decode` of the JSON of `encode` is the event."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from written_values import write_inits

from holdfast.core import events
from holdfast.core.event_json import decode, encode
from holdfast.core.save import events as news

write_inits()


@given(event=st.from_type(events.Event))
def test_every_event_comes_back(event: events.Event) -> None:
    assert decode(json.loads(json.dumps(encode(event)))) == event


@pytest.mark.parametrize("kind", get_args(events.Event), ids=lambda kind: kind.__name__)
def test_every_kind_of_event_has_a_time_and_a_name(kind: type[events.Event]) -> None:
    assert "at_ns" in kind.__slots__
    assert kind.__doc__


@given(told=st.from_type(news.Event))
def test_every_kind_of_news_comes_back(told: news.Event) -> None:
    event = events.Heard(told.at_ns, 3, told)
    assert decode(json.loads(json.dumps(encode(event)))) == event


def test_a_newer_writers_keys_are_ignored_and_its_events_are_not_guessed() -> None:
    event = events.TreeGone(5, 1)
    assert decode({**encode(event), "mood": "calm"}) == event
    heard = encode(events.Heard(5, 1, news.Tick(5)))
    heard["news"]["mood"] = "calm"
    assert decode(heard) == events.Heard(5, 1, news.Tick(5))
    with pytest.raises(KeyError):
        decode({"event": "MoonRose", "at_ns": 5})


def test_an_older_writers_events_are_read() -> None:
    assert decode({"event": "StopNowAsked", "at_ns": 5, "source": "SIGQUIT"}) == (
        events.StopNowAsked(5, "SIGQUIT", 75)
    )
    older = {"event": "LaunchFailed", "at_ns": 5, "attempt": 0, "exit_code": 78, "words": "no"}
    assert decode(older) == events.LaunchFailed(5, 0, 78, "no", is_on_record=False)
