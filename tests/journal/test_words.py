from __future__ import annotations

import os
from array import array

import pytest

from holdfast.core.save.word import Agreed, Order, pack
from holdfast.journal.layout import RankPhase, Word
from holdfast.journal.rank_page import OpenSpan, RankPage, page_values
from holdfast.journal.writer import JournalWriter


def test_each_side_reads_what_the_other_stores(make_writer):
    writer = make_writer()
    agent = RankPage.open(writer.path)
    agent.store(Word.ORDER, pack(3, 41_000, Order.STOP))
    assert writer.record_step(40_999) == pack(3, 41_000, Order.STOP)
    assert agent.load(Word.STEP) == 40_999
    writer.page.store(Word.TAKEN, pack(3, 41_000, Order.STOP))
    writer.page.store(Word.COPIED, pack(3, 41_000))
    writer.page.store(Word.PHASE, RankPhase.WAITING)
    writer.page.increment(Word.SIGTERMS)
    token = writer.open_span("save")
    values = agent.snapshot()
    assert values.step == 40_999
    assert values.taken == Agreed(3, Order.STOP, 41_000)
    assert values.copied == Agreed(3, 0, 41_000)
    assert values.order == Agreed(3, Order.STOP, 41_000)
    assert values.phase is RankPhase.WAITING
    assert values.sigterms == 1
    assert values.owner_pid == os.getpid()
    assert [span.kind for span in values.open_spans] == [2]
    assert isinstance(values.open_spans[0], OpenSpan)
    writer.close_span(token)
    agent.detach()


def test_every_word_is_in_the_snapshot(make_writer):
    page = JournalWriter.nowhere().page
    for at in Word:
        if at is not Word.OPEN_SPANS:
            page.store(at, 1 if at is Word.PHASE else 100 + at)
    snapshot = page.snapshot()
    assert snapshot.count == 100
    assert snapshot.watermark == 118
    assert snapshot.committed == 360
    assert snapshot.supervisor_alive_at_ns == 359
    assert snapshot.step_under_way_since_ns == max(103, 106)
    values = [
        value if isinstance(value, int) else value.step
        for name in snapshot.__slots__
        if name not in ("open_spans", "phase")
        for value in [getattr(snapshot, name)]
    ]
    otherwise = (Word.OPEN_SPANS, Word.COMPILING_AT, Word.PHASE, Word.DEADLINE_AT)
    assert sorted(values) == sorted(
        106 if at is Word.STEP_STARTED else 100 + at for at in Word if at not in otherwise
    )


def test_the_largest_word_is_kept_and_larger_is_refused():
    page = JournalWriter.nowhere().page
    page.store(Word.ORDER, (1 << 64) - 1)
    assert page.load(Word.ORDER) == (1 << 64) - 1
    for value in (-1, 1 << 64):
        with pytest.raises(ValueError):
            page.store(Word.ORDER, value)


def test_a_phase_of_a_later_version_is_starting():
    page = JournalWriter.nowhere().page
    page.store(Word.PHASE, 99)
    assert page.snapshot().phase is RankPhase.STARTING


def test_a_loop_that_is_seen_to_have_ended_shows_its_last_step():
    """It ends while its words are read, one after the other."""
    page = JournalWriter.nowhere().page.words
    page[Word.PHASE], page[Word.STEP] = RankPhase.TRAINING, 7

    class BeingStored:
        def __getitem__(self, key):
            found = page[key]
            if isinstance(key, int):
                return found
            later = array("Q", found)
            later[Word.PHASE] = (
                RankPhase.LOOP_ENDED
            )  # and STEP = 8 was stored after it had been read
            return memoryview(later)

    values = page_values(BeingStored())
    assert values.phase is RankPhase.TRAINING or values.step == 8


def test_after_detach_stores_go_nowhere(make_writer):
    writer = make_writer()
    agent = RankPage.open(writer.path)
    agent.store(Word.VERDICT, 5)
    agent.detach()
    agent.store(Word.VERDICT, 6)
    assert writer.page.load(Word.VERDICT) == 5


@pytest.mark.contract("page: a forked child leaves it alone")
def test_a_forked_child_does_not_touch_the_page(make_writer):
    writer = make_writer()
    agent = RankPage.open(writer.path)
    agent.store(Word.ORDER, 5)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            agent.store(Word.ORDER, 6)
            status = 10 + agent.snapshot().order.step
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 16  # its own page, not ours
    assert writer.page.load(Word.ORDER) == 5
    agent.detach()
