"""Waits for hosts, as people read them: in words, in the order in which they are gone through."""

from __future__ import annotations

from holdfast.core.ledger.kinds import BACKOFF, STOPPED, WAIT_KINDS
from holdfast.report.kinds import WAITS, place_of, words_of


def test_every_wait_has_its_words_and_its_place():
    assert [BACKOFF, STOPPED, *WAITS] == list(WAIT_KINDS)
    assert words_of(STOPPED) == "stopped by you, or done"
    kinds = ["reschedule", *(f"reschedule:{wait}" for wait in WAITS)]
    assert sorted(sorted(kinds), key=place_of) == kinds
    assert words_of("reschedule:provision") == "waiting again: being made"
    assert words_of("queued:queue") == "first wait: in a queue"
    assert words_of("custom:queue") == "queue"
    assert words_of("reschedule:new") == "waiting for a host again: new"
