"""A process is killed while it writes: whatever instruction that lands on, nothing is torn."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest

from holdfast.errors import JournalError
from holdfast.journal.clocks import RunClock
from holdfast.journal.facts.followed import FollowedJournal
from holdfast.journal.layout import Kind
from holdfast.journal.reader import JournalReader, read_journal

# Each record can be checked by itself: its step is known from its place, and a step's start is the
# end of the one before it.
WRITER = """
import sys
from holdfast.journal.layout import Identity, NoteType
from holdfast.journal.writer import JournalWriter
writer = JournalWriter.create(sys.argv[1], Identity("run", 0, "i", 0, "h", 0, "b"))
writer.begin_step(1, None)
record, opened, closed = writer.record_step, writer.open_span, writer.close_span
step = 0
while True:
    for _ in range(500):
        step += 1
        record(step, step & 0xFFFF)
    closed(opened("data"))
    writer.note(NoteType.MESSAGE, {"step": step})
"""


def start(path) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-c", WRITER, str(path)])


def check(records) -> None:
    assert (records["kind"] != 0).all()
    assert (records["time"] > 0).all()
    steps = records[records["kind"] == Kind.STEP]
    assert np.array_equal(steps["step"], np.arange(1, len(steps) + 1))
    assert (steps["value"][1:] == steps["time"][:-1]).all()
    assert (steps["word"] >> np.uint64(16) == (steps["step"] & 0xFFFF).astype(np.uint64)).all()


def _open(path) -> JournalReader | None:
    try:
        return JournalReader(path)
    except JournalError:
        return None


def follow(path, stop: threading.Event) -> int:
    """Read what is new as fast as can be, and check each piece; gives how many records."""
    while True:
        over = stop.is_set()
        reader = _open(path)
        if reader is not None:
            break
        assert not over, "the journal never became one"
    count, last_time, last_step = 0, 0, 0
    with reader:
        while True:
            over = stop.is_set()
            new = reader.read_new(count)
            if len(new):
                count += len(new)
                assert (new["kind"] != 0).all()
                assert new["time"][0] >= last_time
                assert (np.diff(new["time"]) >= 0).all()
                steps = new[new["kind"] == Kind.STEP]["step"]
                assert np.array_equal(steps, np.arange(last_step + 1, last_step + 1 + len(steps)))
                last_time, last_step = new["time"][-1], last_step + len(steps)
                if over:
                    assert reader.count() == count
            elif over:
                return count


@pytest.mark.real
@pytest.mark.parametrize("seed", range(8))
def test_no_record_is_torn_by_a_kill(tmp_path, seed, eventually):
    path = tmp_path / "rank-00000.hfj"
    rng = random.Random(seed)
    stop = threading.Event()
    followed: list[int] = []
    failures: list[BaseException] = []

    def reading() -> None:
        try:
            followed.append(follow(path, stop))
        except BaseException as failure:
            failures.append(failure)

    with start(path) as writer:
        reader = threading.Thread(target=reading)
        reader.start()
        eventually(path.exists)
        wanted = rng.randrange(1, 60_000)
        with eventually(lambda: _open(path)) as journal:
            eventually(lambda: journal.count() >= wanted)
        time.sleep(rng.random() / 1e4)  # anywhere within the loop, not only after a read
        writer.send_signal(signal.SIGKILL)
    stop.set()
    reader.join()
    assert not failures, failures
    journal = read_journal(path)
    check(journal.records)
    assert len(journal.records) == journal.values.count >= wanted
    assert followed == [journal.values.count]
    lines = {line.offset: line.payload for line in journal.sidecar}
    for note in journal.records[journal.records["kind"] == Kind.NOTE]:
        assert lines[note["value"]]["step"] > 0


@pytest.mark.contract("journal: what was written survives a kill")
def test_an_open_span_survives_a_kill(make_writer):
    writer = make_writer(clock=(0, 1000))
    child = os.fork()
    if child == 0:  # a process of its own, with a journal of its own
        inner = make_writer("killed/rank-00000.hfj", clock=(0, 1000))
        inner.record_step(1)
        inner.close_span(inner.open_span("data"))
        inner.open_span("evaluation")
        os.kill(os.getpid(), signal.SIGKILL)
    os.waitpid(child, 0)
    source = FollowedJournal(writer.path.parent / "killed" / "rank-00000.hfj", RunClock())
    news = source.poll()
    assert [rows.kinds for rows in news.spans] == [["data"]]
    ((kind, start_ns),) = source.open_spans()
    assert kind == "custom:evaluation"
    assert start_ns > news.spans[0].end[0]
    source.rest()


def test_a_span_that_is_both_recorded_and_in_its_slot_counts_once(make_writer):
    writer = make_writer(clock=(0, 1000))
    writer.open_span("save")
    # The kill lands between the record and the taking back of the slot.
    (slot,) = writer.page.snapshot().open_spans
    writer.append(slot.start_ns + 5, Kind.SPAN, 0, slot.kind, 0, slot.start_ns)
    source = FollowedJournal(writer.path, RunClock())
    (rows,) = source.poll().spans
    assert (rows.end - rows.start).tolist() == [5]
    assert list(source.open_spans()) == []
    source.rest()
