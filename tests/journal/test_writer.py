from __future__ import annotations

import os
import stat
import threading

import numpy as np
import pytest

from holdfast.errors import StoreUnavailable
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import (
    CHUNK_RECORDS,
    FIRST_CUSTOM_SPAN,
    SIGN_OF_LIFE_NS,
    SPAN_KINDS,
    SPAN_SLOTS,
    Flag,
    Identity,
    Kind,
    NoteType,
    Word,
)
from holdfast.journal.reader import argument, read_journal
from holdfast.journal.writer import JournalWriter


def kinds(path) -> list[int]:
    return read_journal(path).records["kind"].tolist()


def test_a_step_is_one_record_and_two_words(make_writer):
    writer = make_writer()
    before = now_ns()
    writer.begin_step(1, before)
    writer.page.store(Word.ORDER, 77)
    assert writer.record_step(1, 2048) == 77
    writer.record_step(2)
    writer.end_steps(None)
    after = now_ns()
    journal = read_journal(writer.path)
    begin, first, second, end = journal.records
    assert [r["kind"] for r in journal.records] == [
        Kind.STEP_BEGIN,
        Kind.STEP,
        Kind.STEP,
        Kind.LOOP_END,
    ]
    assert begin["time"] == first["value"] == before
    assert first["time"] == second["value"]
    assert before <= first["time"] <= second["time"] <= end["time"] <= after
    assert first["flags"] == Flag.CONTINUES
    assert argument(journal.records)[1] == 2048
    assert (first["step"], second["step"]) == (1, 2)
    assert (journal.values.step, journal.values.step_at_ns) == (2, second["time"])
    assert journal.values.count == 4


def test_the_words_say_since_when_a_step_is_under_way(make_writer):
    writer = make_writer()
    assert writer.page.snapshot().step_under_way_since_ns == 0
    writer.begin_step(1, 50)
    assert writer.page.snapshot().step_under_way_since_ns == 50
    writer.record_step(1)
    words = writer.page.snapshot()
    assert words.step_under_way_since_ns == words.step_at_ns
    writer.end_steps(None)
    assert writer.page.snapshot().step_under_way_since_ns == 0


def test_chunks_follow_one_another_without_a_seam(make_writer):
    writer = make_writer()
    steps = CHUNK_RECORDS * 2 + 5
    for step in range(1, steps + 1):
        writer.record_step(step)
    records = read_journal(writer.path).records
    assert np.array_equal(records["step"], np.arange(1, steps + 1))
    assert (np.diff(records["time"]) >= 0).all()
    assert writer.page.load(Word.DROPPED) == 0


@pytest.mark.parametrize(
    ("tokens", "kept"),
    [(-1, 0), (2.0, 2), (float("nan"), 0), ("many", 0), (1 << 60, (1 << 48) - 1), (None, 0)],
)
def test_bad_tokens_do_not_cost_the_step(make_writer, tokens, kept):
    writer = make_writer()
    writer.record_step(1, tokens)
    journal = read_journal(writer.path)
    assert journal.records["step"].tolist() == [1]
    assert argument(journal.records).tolist() == [kept]
    assert journal.values.step == 1


@pytest.mark.parametrize("step", [-1, 1.5, None, 1 << 64])
def test_a_bad_step_is_counted_and_does_not_raise(make_writer, step):
    writer = make_writer()
    writer.record_step(step)
    assert writer.page.load(Word.ERRORS) == 1
    writer.record_step(3)
    assert read_journal(writer.path).records["step"].tolist() == [3]


def test_numpy_numbers_are_taken(make_writer):
    writer = make_writer()
    writer.record_step(np.int32(7), np.int64(9))
    records = read_journal(writer.path).records
    assert (records["step"].tolist(), argument(records).tolist()) == ([7], [9])


def test_a_span_shows_while_it_is_open_and_is_recorded_when_closed(make_writer):
    writer = make_writer()
    writer.record_step(4)
    outer = writer.open_span("save")
    inner = writer.open_span("evaluation")
    open_spans = writer.page.snapshot().open_spans
    assert [span.kind for span in open_spans] == [SPAN_KINDS.index("save"), FIRST_CUSTOM_SPAN]
    length_ns = writer.close_span(inner)
    writer.close_span(outer)
    assert writer.page.snapshot().open_spans == ()
    journal = read_journal(writer.path)
    inner_record, outer_record = journal.records[1:]
    assert inner_record["time"] - inner_record["value"] == length_ns
    assert outer_record["value"] == open_spans[0].start_ns
    assert outer_record["step"] == 4
    assert argument(journal.records)[1:].tolist() == [FIRST_CUSTOM_SPAN, 2]
    assert journal.sidecar[0].payload == {"span_id": FIRST_CUSTOM_SPAN, "name": "evaluation"}


def test_short_spans_leave_no_record(make_writer):
    writer = make_writer()
    writer.close_span(writer.open_span("data"), 10**12)
    assert writer.page.load(Word.COUNT) == 0
    assert writer.page.snapshot().open_spans == ()


def test_closing_an_outer_span_closes_what_an_exception_left_open(make_writer):
    writer = make_writer()
    outer = writer.open_span("save")
    inner = writer.open_span("data")
    writer.open_span("compile")
    writer.close_span(outer)
    assert argument(read_journal(writer.path).records).tolist() == [1, 3, 2]
    assert writer.page.snapshot().open_spans == ()
    assert writer.close_span(inner) == 0
    assert writer.close_span(outer) == 0
    assert writer.page.load(Word.COUNT) == 3


def test_more_open_spans_than_slots_are_all_recorded(make_writer):
    writer = make_writer()
    tokens = [writer.open_span("data") for _ in range(SPAN_SLOTS + 3)]
    assert len(writer.page.snapshot().open_spans) == SPAN_SLOTS
    for token in reversed(tokens):
        writer.close_span(token)
    assert writer.page.load(Word.COUNT) == SPAN_SLOTS + 3
    assert writer.page.snapshot().open_spans == ()
    assert writer.page.snapshot().order.epoch == 0


def test_the_words_tell_the_time_in_spans_but_not_in_spans_of_spans_or_in_short_ones(
    make_writer, monkeypatch
):
    now = [10 * SIGN_OF_LIFE_NS]
    monkeypatch.setattr("time.clock_gettime_ns", lambda _: now[0])
    writer = make_writer()

    def span(ns, *, inside=0):
        token = writer.open_span("data")
        if inside:
            span(inside)
        now[0] += ns
        writer.close_span(token)

    span(SIGN_OF_LIFE_NS - 1)
    assert writer.page.snapshot().spans_ns == writer.page.snapshot().span_ended_at_ns == 0
    span(3 * SIGN_OF_LIFE_NS, inside=2 * SIGN_OF_LIFE_NS)
    span(SIGN_OF_LIFE_NS)
    assert writer.page.snapshot().spans_ns == 6 * SIGN_OF_LIFE_NS
    assert writer.page.snapshot().span_ended_at_ns == now[0]


def test_custom_names_get_ids_of_their_own(make_writer):
    writer = make_writer()
    first = writer.span_kind("a")
    assert writer.span_kind("custom:a") == first
    assert writer.span_kind("b") == first + 1
    assert writer.span_kind("custom:save") == first + 2  # the user's own, not Holdfast's
    assert writer.span_kind("save") == SPAN_KINDS.index("save")
    names = [line.payload["name"] for line in read_journal(writer.path).sidecar]
    assert names == ["a", "b", "save"]


def test_a_note_is_a_line_and_a_record_that_points_to_it(make_writer):
    writer = make_writer()
    writer.note(NoteType.MESSAGE, {"text": "Grüße\n"}, step=3)
    writer.note(NoteType.FACT, {"path": writer.path, "number": np.int64(3)})
    journal = read_journal(writer.path)
    assert argument(journal.records).tolist() == [NoteType.MESSAGE, NoteType.FACT]
    assert journal.records["step"].tolist() == [3, 0]
    by_offset = {line.offset: line.payload for line in journal.sidecar}
    assert by_offset[journal.records["value"][0]] == {"text": "Grüße\n"}
    assert by_offset[journal.records["value"][1]]["path"] == str(writer.path)


def test_a_note_without_an_end_is_cut(make_writer):
    writer = make_writer()
    writer.note(NoteType.MESSAGE, {"text": "x" * 1_000_000})
    (line,) = read_journal(writer.path).sidecar
    assert line.payload["cut"] > 1_000_000


def test_other_threads_records_are_written_at_the_owners_next(make_writer):
    writer = make_writer()

    def others() -> None:
        for step in range(100):
            writer.record_complete(step, step + 1)
        writer.record_span("save", 5, 9)
        writer.note(NoteType.MESSAGE, {"from": "a thread"})

    thread = threading.Thread(target=others)
    thread.start()
    thread.join()
    assert writer.page.load(Word.COUNT) == 0
    assert writer.page.load(Word.COMPLETE) == 99
    writer.record_step(1)
    written = kinds(writer.path)
    assert written == [Kind.COMPLETE] * 100 + [Kind.SPAN, Kind.NOTE, Kind.STEP]


def test_threads_handing_over_while_the_owner_steps_lose_nothing(make_writer):
    writer = make_writer()
    go = threading.Event()

    def others() -> None:
        go.wait()
        for step in range(3000):
            writer.record(step + 1, Kind.COMPLETE, step=step)

    threads = [threading.Thread(target=others) for _ in range(3)]
    for thread in threads:
        thread.start()
    go.set()
    step = 0
    while any(thread.is_alive() for thread in threads):
        step += 1
        writer.record_step(step)
    writer.flush()
    records = read_journal(writer.path).records
    completions = records[records["kind"] == Kind.COMPLETE]["step"]
    assert np.array_equal(np.sort(completions), np.repeat(np.arange(3000), 3))
    steps = records[records["kind"] == Kind.STEP]["step"]
    assert np.array_equal(steps, np.arange(1, step + 1))


def test_files_are_private_and_never_overwritten(make_writer):
    writer = make_writer()
    for path in (writer.path, writer.path.with_suffix(".jsonl")):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    identity = Identity("run", 1, "other", 0, "host", 0, "boot")
    with pytest.raises(StoreUnavailable, match="cannot make the journal"):
        JournalWriter.create(writer.path, identity)
    assert read_journal(writer.path).identity.attempt == 0


def test_a_journal_that_cannot_be_made_leaves_nothing(tmp_path):
    identity = Identity("run", 1, "i", 0, "host", 0, "boot")
    with pytest.raises(StoreUnavailable, match="No such file"):
        JournalWriter.create(tmp_path / "missing" / "r.hfj", identity)
    (tmp_path / "r.jsonl").write_text("")
    with pytest.raises(StoreUnavailable, match="File exists"):
        JournalWriter.create(tmp_path / "r.hfj", identity)
    assert [path.name for path in tmp_path.iterdir()] == ["r.jsonl"]
    with pytest.raises(ValueError, match="use a shorter run"):
        JournalWriter.create(tmp_path / "s.hfj", Identity("x" * 3000, 0, "", 0, "", 0, ""))


def test_a_writer_to_nowhere_takes_everything():
    writer = JournalWriter.nowhere()
    _use_everything(writer)
    assert writer.page.load(Word.STEP) == 5
    assert writer.page.load(Word.COUNT) == 0


def test_a_closed_writer_takes_everything_and_writes_nothing(make_writer):
    writer = make_writer()
    writer.record_step(1)
    writer.close()
    size = writer.path.stat().st_size
    _use_everything(writer)
    journal = read_journal(writer.path)
    assert journal.values.step == 1
    assert len(journal.records) == 1
    assert writer.path.stat().st_size == size


@pytest.mark.real
def test_a_forked_child_is_inert(make_writer):
    writer = make_writer()
    writer.open_span("save")
    writer.record_step(1)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            _use_everything(writer)
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(child, 0)[1] == 0
    writer.record_step(2)
    journal = read_journal(writer.path)
    assert journal.records["step"].tolist() == [1, 2]
    assert journal.sidecar == ()
    assert journal.values.step == 2
    assert len(journal.values.open_spans) == 1


def _use_everything(writer: JournalWriter) -> None:
    writer.begin_step(5, None)
    writer.record_step(5, 1)
    writer.end_steps(None)
    writer.close_span(writer.open_span("evaluation"))
    writer.record_restore(1, 2, 3, 4)
    writer.record_span("another", 1, 2)
    writer.record_complete(5, 6)
    writer.note(NoteType.FACT, {"fact": "run"})
    writer.append(1, Kind.SEEN, 0, 0, 0, 0)
    writer.seen()
    writer.flush()
