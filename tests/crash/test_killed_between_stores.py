"""A kill between any two stores of a journal's writer: no reader ever sees half of anything.

Memory that is mapped outlives its process, store by store. So the writer is stepped line by line
(each store is a line of its own), and after each the file is read as a successor would read it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from holdfast.errors import JournalError
from holdfast.journal import rank_page, tape, writer
from holdfast.journal.layout import HEADER_BYTES, RECORD_BYTES, Identity, Kind, NoteType
from holdfast.journal.reader import Journal, argument, read_journal
from holdfast.journal.sidecar import sidecar_path
from holdfast.journal.writer import JournalWriter

WATCHED = {module.__file__ for module in (tape, rank_page, writer)}
SHOWN_RECORDS = 64


class Stepper:
    """Runs a function, and looks at a journal after each line of the writer's own code."""

    def __init__(self, live: Path, copy: Path) -> None:
        self._live, self._copy = live, copy
        self.seen: list[Journal] = []
        self.before_it_was_one = 0
        self._last = b""

    def run(self, function: Callable[[], Any]) -> Any:
        sys.settrace(self._trace)
        try:
            return function()
        finally:
            self._look()
            sys.settrace(None)  # at last, for a look ends with setting it

    def _trace(self, frame: FrameType, event: str, arg: Any) -> Any:
        if frame.f_code.co_filename not in WATCHED:
            return None
        if event in ("line", "return"):
            self._look()
        return self._trace

    def _look(self) -> None:
        sys.settrace(None)
        try:
            with self._live.open("rb") as file:
                data = file.read(HEADER_BYTES + SHOWN_RECORDS * RECORD_BYTES)
            text = sidecar_path(self._live)
            lines = text.read_bytes() if text.exists() else b""
        except FileNotFoundError:
            self.before_it_was_one += 1
            return
        finally:
            sys.settrace(self._trace)
        if data + lines == self._last:
            return
        self._last = data + lines
        sys.settrace(None)
        self._copy.write_bytes(data)
        sidecar_path(self._copy).write_bytes(lines)
        try:
            self.seen.append(read_journal(self._copy))
        except JournalError:
            assert not self.seen, "it was a journal before"
            self.before_it_was_one += 1
        finally:
            sys.settrace(self._trace)


def everything(path: Path) -> JournalWriter:
    """One of each thing that a writer does."""
    journal = JournalWriter.create(path, Identity("run", 0, "i", 0, "host", 0, "boot"))
    journal.begin_step(1, None)
    for step in (1, 2):
        journal.record_step(step, step * 256)
    outer, inner = journal.open_span("data"), journal.open_span("evaluation")
    journal.close_span(inner)
    journal.close_span(outer)
    journal.note(NoteType.MESSAGE, {"text": "a fact"})
    journal.record_restore(1, 2, 7, source_attempt=0)
    journal.record_complete(2, 5)
    journal.record_step(3, 2.5)  # what is no whole number must not cost the step
    journal.seen()
    journal.end_steps(None)
    journal.flush()
    return journal


@pytest.fixture
def stepped(tmp_path: Path) -> tuple[Stepper, Journal]:
    live, copy = tmp_path / "rank-00000.hfj", tmp_path / "copy.hfj"
    stepper = Stepper(live, copy)
    journal = stepper.run(lambda: everything(live))
    whole = read_journal(live)
    journal.close()
    return stepper, whole


def test_a_reader_sees_whole_records_in_their_order(stepped: tuple[Stepper, Journal]) -> None:
    stepper, whole = stepped
    assert stepper.before_it_was_one > 5, "the header's own stores were stepped through"
    assert len(stepper.seen) > 60
    count = 0
    for journal in stepper.seen:
        assert journal.identity == whole.identity
        assert count <= len(journal.records) <= journal.values.count
        count = len(journal.records)
        assert np.array_equal(journal.records, whole.records[:count])
        assert journal.sidecar == whole.sidecar[: len(journal.sidecar)]
        offsets = {line.offset for line in journal.sidecar}
        notes = journal.records[journal.records["kind"] == Kind.NOTE]
        assert set(notes["value"].tolist()) <= offsets, "a record points to a line not there"
        assert journal.clocks == whole.clocks[: len(journal.clocks)]


def test_words_are_never_ahead_of_what_they_stand_for(stepped: tuple[Stepper, Journal]) -> None:
    stepper, _ = stepped
    begun: set[tuple[int, int]] = set()
    for journal in stepper.seen:
        steps = journal.records[journal.records["kind"] == Kind.STEP]["step"]
        assert journal.values.step <= max(steps.tolist(), default=0)
        assert all(span.start_ns > 0 for span in journal.values.open_spans)
        spans = journal.records[journal.records["kind"] == Kind.SPAN]
        ended = set(zip(argument(spans).tolist(), spans["value"].tolist(), strict=True))
        still_open = {(span.kind, span.start_ns) for span in journal.values.open_spans}
        assert begun <= ended | still_open, "a span left its slot before it was recorded"
        begun |= still_open
    assert len(begun) == 2


def test_the_check_can_fail(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Were the count published before the record, the stepping would see it."""
    source = Path(tape.__file__).read_text()
    late = "            words[count_word] = count\n"
    early = source.replace(late, "", 1).replace(
        "                at = index\n                records[at] = now_ns\n",
        "                words[count_word] = count + 1\n"
        "                at = index\n                records[at] = now_ns\n",
        1,
    )
    assert early != source
    namespace: dict[str, Any] = {"__name__": "tape_too_early"}
    exec(compile(early, tape.__file__, "exec"), namespace)
    monkeypatch.setattr(writer, "make_tape", namespace["make_tape"])
    stepper = Stepper(tmp_path / "rank-00000.hfj", tmp_path / "copy.hfj")
    stepper.run(lambda: everything(tmp_path / "rank-00000.hfj")).close()
    ahead = [j for j in stepper.seen if j.values.count > len(j.records)]
    assert ahead, "a count that runs ahead was not seen"
