"""A run that is known, told as each kind of log, and converted: its goodput comes out again."""

from __future__ import annotations

import json
import struct
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from converting import START, account_of, converted, line_of, stamp
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.ledger.facts import AttemptFact, Fact, RunFact, StepsFact
from holdfast.core.ledger.incremental import Ledger

S = 10**9
T0_S = START.timestamp()


@dataclass(frozen=True)
class Attempt:
    """`took_s` of its steps, from step `first` on, `started_s` after the run's first process."""

    started_s: float
    first: int
    took_s: list[float]

    def ends(self) -> list[float]:
        ends, at_s = [], self.started_s
        for took_s in self.took_s:
            at_s += took_s
            ends.append(at_s)
        return ends


@st.composite
def runs(draw: st.DrawFn) -> list[Attempt]:
    """One to four attempts, each back at a step that was done, or going on."""
    found: list[Attempt] = []
    at_s, last = 0.0, 0
    usual_ms = draw(st.integers(200, 60_000))
    for _ in range(draw(st.integers(1, 4))):
        first = draw(st.integers(max(1, last - 20), last + 1))
        first = min(first, last - 1) if last else 1  # with times alone, only falling back is one
        count = draw(st.integers(last - first + 6, last - first + 40))
        took_s = [usual_ms * draw(st.integers(80, 120)) / 100_000 for _ in range(count)]
        found.append(Attempt(at_s, first, took_s))
        at_s = found[-1].ends()[-1] + draw(st.integers(1, 3000))
        last = max(last, first + count - 1)
    return found


def truth(run: list[Attempt]) -> dict[str, float]:
    facts: list[Fact] = []
    for number, attempt in enumerate(run):
        at_ns = round(attempt.started_s * S)
        start_ns = at_ns
        for n, end_s in enumerate(attempt.ends()):
            facts.append(
                StepsFact(number, attempt.first + n, attempt.first + n, at_ns, round(end_s * S))
            )
            at_ns = round(end_s * S)
        cause = None if number == len(run) - 1 else "unknown"
        facts.append(AttemptFact(number, start_ns, at_ns, cause))
    ledger = Ledger()
    ledger.add([RunFact("r", 0, at_ns, 1), *facts])
    found: dict[str, float] = ledger.account(None, None).to_json()
    return found


def as_maxtext(run: list[Attempt]) -> str:
    """Each line when the next step is over, as MaxText writes it."""
    text = ""
    for attempt in run:
        ends = attempt.ends()
        for n, took_s in enumerate(attempt.took_s):
            written_s = ends[min(n + 1, len(ends) - 1)] + 0.001
            text += line_of(attempt.first + n - 1, took_s, written_s)
    return text


def as_csv(run: list[Attempt]) -> str:
    return "step,seconds,time\n" + "".join(
        f"{attempt.first + n},{attempt.took_s[n]:.6f},{stamp(end_s)}\n"
        for attempt in run
        for n, end_s in enumerate(attempt.ends())
    )


def as_lines(run: list[Attempt]) -> str:
    return "".join(
        json.dumps({"step": attempt.first + n, "start": 0, "time": T0_S + end_s, "attempt": number})
        + "\n"
        for number, attempt in enumerate(run)
        for n, end_s in enumerate(attempt.ends())
    )


def as_events(run: list[Attempt], folder: Path) -> None:
    """An event file a process."""
    import google_crc32c

    def record(data: bytes) -> bytes:
        length = struct.pack("<Q", len(data))
        crcs = []
        for part in (length, data):
            value = google_crc32c.value(part)
            crcs.append(struct.pack("<I", ((value >> 15 | value << 17) + 0xA282EAD8) & 0xFFFFFFFF))
        return length + crcs[0] + data + crcs[1]

    for number, attempt in enumerate(run):
        began = struct.pack("<d", T0_S + attempt.started_s)
        data = record(b"\x09" + began + b"\x1a\x0dbrain.Event:2")
        for n, end_s in enumerate(attempt.ends()):
            value = b"\x0a\x04loss\x15" + struct.pack("<f", 1.0)
            summary = b"\x0a" + bytes([len(value)]) + value
            step = attempt.first + n
            number_of_step = bytes([step & 0x7F | 0x80, step >> 7])
            moment = struct.pack("<d", T0_S + end_s)
            data += record(
                b"\x09"
                + moment
                + b"\x10"
                + number_of_step
                + b"\x2a"
                + bytes([len(summary)])
                + summary
            )
        (folder / f"{number}.tfevents").write_bytes(data)


@pytest.mark.parametrize(
    ("kind", "render"), [("maxtext", as_maxtext), ("table", as_csv), ("table", as_lines)]
)
def test_text_comes_back(kind: str, render: Callable[[list[Attempt]], str]) -> None:
    @settings(max_examples=40)
    @given(runs())
    def comes_back(run: list[Attempt]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            found = account_of(converted(Path(folder), kind, render(run)))
        first_is_guessed = render is as_lines
        close(found, truth(run), run, first_is_guessed)

    comes_back()


def test_event_files_come_back() -> None:
    @settings(max_examples=25)
    @given(runs())
    def comes_back(run: list[Attempt]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            as_events(run, Path(folder))
            found = account_of(converted(Path(folder), "tensorboard"))
        close(found, truth(run), run, first_is_guessed=True)

    comes_back()


def close(
    found: dict[str, float], wanted: dict[str, float], run: list[Attempt], first_is_guessed: bool
) -> None:
    """As exact as the log: a millisecond a line; less than half of a step that is guessed."""
    count = sum(len(attempt.took_s) for attempt in run)
    slack_s = 0.002 * count
    if first_is_guessed:
        slack_s += sum(0.45 * max(attempt.took_s) for attempt in run)
    for key in ("steps_kept", "lost_steps"):
        assert found[key] == wanted[key], key
    for key in ("elapsed_s", "productive_s"):
        assert found[key] == pytest.approx(wanted[key], abs=slack_s), key
