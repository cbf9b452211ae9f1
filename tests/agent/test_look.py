"""A look at processes and words, and whether anything ran since the last turn."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.agent.look import LATE_NS, LONGEST_QUEUE, Wakefulness, look_at, process_state
from holdfast.agent.ranks import RankPages
from holdfast.core.hosts.report import Pace
from holdfast.journal.layout import Identity, RankPhase, Word
from holdfast.journal.writer import JournalWriter

WAIT, SECOND = 250_000_000, 1_000_000_000


@pytest.mark.parametrize(
    ("boot_ns", "mono_ns", "gap_ns"),
    [
        (WAIT, WAIT, 0),
        (WAIT + LATE_NS, WAIT + LATE_NS, 0),
        (WAIT + LATE_NS + 1, WAIT + LATE_NS + 1, WAIT + LATE_NS + 1),  # stopped, or starved
        (3600 * SECOND, WAIT, 3600 * SECOND),  # suspended
        (SECOND, SECOND, 0),
    ],
)
def test_a_turn_that_comes_late(boot_ns: int, mono_ns: int, gap_ns: int) -> None:
    watch = Wakefulness(WAIT)
    boot_at, mono_at = 10**12, 10**11  # it was suspended before we began: that is no news
    assert watch.gap_ns(boot_at, mono_at) == 0
    assert watch.gap_ns(boot_at + boot_ns, mono_at + mono_ns) == gap_ns
    assert watch.gap_ns(boot_at + boot_ns + WAIT, mono_at + mono_ns + WAIT) == 0


@pytest.mark.real
def test_the_state_of_a_process(eventually: Callable[..., object]) -> None:
    assert process_state(os.getpid())[0] == "R"
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    try:
        child.send_signal(signal.SIGSTOP)
        eventually(lambda: process_state(child.pid)[0] == "T")
        child.kill()
        eventually(lambda: process_state(child.pid)[0] == "Z")
    finally:
        child.kill()
        child.wait()
    assert process_state(child.pid) == ("", "")


def test_words_are_looked_at(tmp_path: Path) -> None:
    paths = {rank: tmp_path / f"rank-{rank:05d}.hfj" for rank in (0, 1)}
    writer = JournalWriter.create(paths[0], Identity("r", 0, "i", 0, "host", 0, "boot"))
    pages = RankPages(0, 5, paths)
    pages.read(with_progress=True)
    writer.page.store(Word.PHASE, RankPhase.TRAINING)
    writer.page.store(Word.WATERMARK, 5)
    writer.begin_step(6, None)
    for step in (6, 7, 8):
        writer.record_step(step)
        pages.read(with_progress=True)
    first, second = look_at(pages, {0: 1, 1: 0})
    assert (first.doing, first.step, first.samples, first.span) == ("training", 8, 2, "")
    assert first.step_ns == writer.page.load(Word.STEP_AT)
    assert first.process == "R"  # the page's own process, whatever was spawned
    assert (second.doing, second.process) == ("", "")
    assert first.longest_ns >= first.median_ns > 0
    assert look_at(pages, {})[0].longest_ns == 0  # since the last look

    data = writer.open_span("data")
    assert look_at(pages, {})[0].span == "data"
    evaluation = writer.open_span("evaluation")
    assert look_at(pages, {})[0].span == "custom"
    writer.close_span(evaluation)
    writer.close_span(data)
    writer.page.store(Word.AWAITED, 9)
    writer.page.store(Word.AWAITED_AT, 77)
    look = look_at(pages, {})[0]
    assert (look.span, look.awaited_ns, look.behind) == ("", 77, 4)
    writer.page.store(Word.AWAITED, 1000)
    assert look_at(pages, {})[0].behind == LONGEST_QUEUE
    writer.page.store(Word.COMPILING_AT, 99)
    assert (look_at(pages, {})[0].span, look_at(pages, {})[0].span_ns) == ("compile", 99)
    pages.close()
    writer.close()


def test_a_ranks_pace_is_told_with_its_steps(tmp_path: Path) -> None:
    """As it was when the step that is told was done."""
    path = tmp_path / "rank-00000.hfj"
    writer = JournalWriter.create(path, Identity("r", 0, "i", 0, "host", 0, "boot"))
    pages = RankPages(0, 5, {0: path})
    (before,) = pages.read(with_progress=True)
    assert before.pace == Pace()
    writer.begin_step(6, None)
    writer.page.store(Word.SPANS_NS, 3)
    writer.page.store(Word.TOGETHER_NS, 4)
    writer.record_step(6)
    assert pages.read(with_progress=False) == (before,)
    (told,) = pages.read(with_progress=True)
    assert told.pace == Pace(writer.page.load(Word.STEP_AT), 3, 4)
    writer.page.store(Word.TOGETHER_NS, 5)  # in the step under way
    assert pages.read(with_progress=True) == (told,)
    pages.close()
    writer.close()
