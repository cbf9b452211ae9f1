"""What a session shows of compilations under way, and what it records of them."""

from __future__ import annotations

import json
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import EXIT_DONE, House

from holdfast.journal.layout import Identity, Word
from holdfast.journal.reader import read_journal
from holdfast.journal.writer import JournalWriter
from holdfast.session import watch
from holdfast.session.watch import CompilationWatch

BUILD, LOWER, TRACE = sorted(watch.COMPILE_EVENTS)


@pytest.fixture
def journal(tmp_path: Path) -> Iterator[JournalWriter]:
    identity = Identity("r", 0, "i", 0, "host", 0, "boot")
    with JournalWriter.create(tmp_path / "rank-00000.hfj", identity) as writer:
        yield writer


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Milliseconds; the test sets them."""
    now = [100]
    monkeypatch.setattr(watch, "now_ns", lambda: now[0] * 1_000_000)
    return now


def compiling_ms(journal: JournalWriter) -> int:
    return journal.page.load(Word.COMPILING_AT) // 1_000_000


def spans_ms(journal: JournalWriter) -> list[tuple[int, int]]:
    journal.flush()
    records = read_journal(journal.path).records
    return [(int(r["value"]) // 1_000_000, int(r["time"]) // 1_000_000) for r in records]


def test_a_compilation_shows_while_it_is_under_way(
    journal: JournalWriter, clock: list[int]
) -> None:
    seen = CompilationWatch(journal)
    seen.began(TRACE, 0.0, fun_name="f")
    clock[0] = 110
    assert compiling_ms(journal) == 100
    assert [span.kind for span in journal.page.snapshot().open_spans] == [1]
    seen.began(LOWER, 0.0)
    clock[0] = 130
    seen.ended(LOWER, 0.02)
    assert compiling_ms(journal) == 100
    seen.ended(TRACE, 0.03, fun_name="f")
    assert compiling_ms(journal) == 0
    assert journal.page.snapshot().open_spans == ()
    assert spans_ms(journal) == [(110, 130), (100, 130)]
    assert journal.page.load(Word.SPANS_NS) == 30_000_000  # the outermost alone
    assert journal.page.load(Word.SPAN_ENDED_AT) == 130_000_000


def test_what_never_said_that_it_ended_ends_with_what_it_was_part_of(
    journal: JournalWriter, clock: list[int]
) -> None:
    seen = CompilationWatch(journal)
    seen.began(TRACE, 0.0)
    seen.began(BUILD, 0.0)
    clock[0] = 120
    seen.ended(TRACE, 0.02)
    assert compiling_ms(journal) == 0


def test_a_version_that_tells_no_beginnings_is_recorded_all_the_same(
    journal: JournalWriter, clock: list[int]
) -> None:
    seen = CompilationWatch(journal)
    seen.ended(BUILD, 0.05)
    seen.ended(BUILD, 0.0001)  # a cache's answer is no compilation
    assert spans_ms(journal) == [(50, 100)]
    assert compiling_ms(journal) == 0


def test_other_numbers_are_nobodys_compilation(journal: JournalWriter, clock: list[int]) -> None:
    seen = CompilationWatch(journal)
    seen.began("/jax/something/else", 5.0)
    seen.ended("/jax/something/else", 5.0)
    assert compiling_ms(journal) == 0
    assert spans_ms(journal) == []


def test_threads_that_compile_at_once_do_not_hide_one_another(
    journal: JournalWriter, clock: list[int]
) -> None:
    seen = CompilationWatch(journal)
    seen.began(BUILD, 0.0)
    begun, go = threading.Event(), threading.Event()

    def other() -> None:
        seen.began(BUILD, 0.0)
        begun.set()
        go.wait()
        seen.ended(BUILD, 0.04)

    clock[0] = 110
    thread = threading.Thread(target=other)
    thread.start()
    begun.wait()
    clock[0] = 150
    seen.ended(BUILD, 0.05)
    assert compiling_ms(journal) == 110
    go.set()
    thread.join()
    assert compiling_ms(journal) == 0
    assert spans_ms(journal) == [(100, 150), (110, 150)]


BUSY = """
import os, signal, time
from holdfast.journal.layout import Word
class Ready:
    def __init__(self, step):
        self.step = step
    def block_until_ready(self):
        time.sleep(0 if self.step < 3 else 600)
run = hf.start()
state = run.restore(init=lambda: {"n": np.zeros(3)})
dies = int(state["n"][0]) == 0
for step in run.steps(12):
    state["n"] += 1
    run.done(step, state, ready=Ready(step) if dies else None)
    while dies and step == 2 and run._attachment.writer.page.load(Word.COMPLETE) < 2:
        time.sleep(0.001)
    if dies and step == 8:
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 5:
        run.save(tag="five", wait=True)
"""


@pytest.mark.real
def test_a_step_that_was_copied_is_kept_though_the_device_was_not_seen_to_end_it(
    house: House, python: Callable[..., str]
) -> None:
    """The watching thread stamps two; the next attempt goes on from the copy all the same."""
    python(BUSY, code=-signal.SIGKILL, HOLDFAST_SAVE_EVERY_STEPS=1000)
    python(BUSY, HOLDFAST_SAVE_EVERY_STEPS=1000)
    told = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    assert told["steps_kept"] == 12
