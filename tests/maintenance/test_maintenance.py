"""A few random stories of maintenance; and mistakes that are planted, which they find."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
import maintenance_campaign
from maintenance_story import story

sys.path.pop(0)

from holdfast.core.daemon import autocheckpoint
from holdfast.core.daemon.autocheckpoint import Autocheckpoint
from holdfast.core.notices import board as notices
from holdfast.core.notices.plan import SaveTime
from holdfast.notices.said import SourceMemory

STORIES = range(8)


def test_stories_of_maintenance_lose_nothing_that_could_be_saved():
    came = maintenance_campaign.run_batch(STORIES, with_tpu=False)
    assert came.broken == ()
    assert came.taken
    assert came.saved


def test_a_story_that_cloud_tpu_tells():
    told = story(688)
    assert "tpu" in told.sources
    assert maintenance_campaign.wrong_with(told) == []


@pytest.mark.parametrize(
    ("seed", "words", "holder", "name", "planted"),
    [
        (16, "steps lost", SaveTime, "need_ns", property(lambda _: 1)),
        (41, "held the device", autocheckpoint, "CLEAR_LOOKS", 1),
        (2, "not heard", SourceMemory, "news", lambda *_, **__: []),
        (9, "4 warnings of 2 changes", notices, "is_same", lambda *_: False),
        (12, "was signalled 3 times", Autocheckpoint, "signalled", property(lambda _: ())),
    ],
)
def test_a_mistake_that_is_planted_is_found(seed, words, holder, name, planted, monkeypatch):
    monkeypatch.setattr(holder, name, planted)
    assert words in maintenance_campaign.wrong_with(story(seed, with_tpu=False))[0]
