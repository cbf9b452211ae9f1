from __future__ import annotations

from holdfast.controller.tally import SaveCounts
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.save import events as news


def test_saves_are_counted_and_priced() -> None:
    tally = SaveCounts()
    assert not tally.event(ev.SaveTook(10, 0, 3))
    assert not tally.event(ev.SaveTook(11, 0, 5))  # the other rank's: the slower one blocks
    assert not tally.event(ev.Sealed(12, 0, 1, 7, 0))
    assert not tally.event(ev.SaveTook(20, 0, 2))
    assert not tally.event(ev.Sealed(22, 0, 2, 8, 1))
    tally.action(act.Flush(0, 2, 8, 1, "due"), 30)
    tally.action(act.Flush(0, 2, 8, 1, "a stop", urgent=True), 35)  # the same, hurried
    assert tally.event(ev.FlushCommitted(50, 0, 2, 8))
    assert tally.event(ev.Heard(60, 0, news.Committed(60, 3, 9)))
    assert tally.event(ev.TreeGone(70, 0))
    assert tally.fact == {
        "fact": "saves",
        "memory": 2,
        "memory_blocked_ns": 7,
        "disk": 2,
        "drains": 1,
        "drained_ns": 20,
    }


def test_a_flush_that_failed_has_no_price() -> None:
    tally = SaveCounts()
    tally.action(act.Flush(0, 2, 8, 1, "due"), 30)
    tally.event(ev.FlushFailed(40, 0, 2, 8, "the disk is full"))
    tally.action(act.Flush(0, 2, 8, 1, "due"), 100)
    tally.event(ev.FlushCommitted(110, 0, 2, 8))
    assert tally.fact["drained_ns"] == 10
