"""The history format: what is read, what is refused, and with which words."""

from __future__ import annotations

import itertools
import json
import math

import pytest
from all_facts import all_facts
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.history.line import nanoseconds, seconds, to_lines
from holdfast.core.history.text import parse, parse_text
from holdfast.core.ledger.facts import (
    AttemptFact,
    CapacityFact,
    Fact,
    FaultFact,
    NoticeFact,
    RestoreFact,
    RunFact,
    SeenFact,
    SpanFact,
    StepsFact,
    WaitFact,
)
from holdfast.errors import HistoryError

RUN = '{"event": "run", "name": "r", "requested": 0.0, "ended": null, "chips": 8}'
ATTEMPT = '{"event": "attempt", "attempt": 0, "start": 0.0, "end": 100.0, "cause": "done"}'
S = 10**9

EVERY_FACT: list[Fact] = [
    RunFact('a "name"\n', 0, None, 8),
    WaitFact("provision", 0, 1),
    AttemptFact(0, 1, 50 * S, "failed"),
    SpanFact(0, "startup", 1, 5),
    RestoreFact(0, 5, 6, 3),
    SpanFact(0, "custom:über", 7, 8),
    StepsFact(0, 4, 4, 8, 1_500_000_001),
    SpanFact(0, "data", 8, 20),
    StepsFact(0, 5, 9, 2 * S, 3 * S),
    FaultFact(0, 4 * S, 5 * S, "hang"),
    NoticeFact(4 * S, None, "gce"),
    NoticeFact(4 * S, 9 * S, "gce"),
    SeenFact(6 * S),
    CapacityFact(7 * S, 0),
    AttemptFact(1, 60 * S, None, None),
    RestoreFact(1, 60 * S, 61 * S, 9, 0),
    SpanFact(1, "save", 62 * S, None),
    StepsFact(1, 10, 10, 62 * S, None),
]


def test_every_fact_survives_being_written_and_read() -> None:
    assert all_facts(parse_text("".join(to_lines(EVERY_FACT)))) == EVERY_FACT


def test_lines_are_what_any_json_library_reads() -> None:
    lines = [json.loads(line) for line in to_lines(EVERY_FACT)]
    assert lines[6] == {"event": "step", "attempt": 0, "step": 4, "start": 8e-9,
                        "end": 1.500000001}  # fmt: skip
    assert lines[8]["event"] == "steps"
    assert "from" not in lines[4]
    assert lines[15]["from"] == 0


@pytest.mark.parametrize("separators", [(", ", ": "), (",", ":")])
@pytest.mark.parametrize("shuffled", [False, True])
def test_how_the_json_is_spelled_does_not_matter(
    separators: tuple[str, str], shuffled: bool
) -> None:
    spelled = []
    for line in to_lines(EVERY_FACT):
        fields = json.loads(line)
        if shuffled:
            fields = dict(reversed(fields.items())) | {"extra": [1, {"deep": None}]}
        spelled.append(json.dumps(fields, separators=separators))
    assert all_facts(parse_text("\r\n".join(spelled))) == EVERY_FACT
    assert all_facts(parse_text("\n\n  " + " \n\n".join(spelled) + "\n\n")) == EVERY_FACT


def test_integers_and_exponents_are_times_too() -> None:
    history = parse_text(f'{RUN}\n{{"event": "seen", "at": 7}}\n{{"event": "seen", "at": 1.5e3}}')
    assert all_facts(history)[1:] == [SeenFact(7 * S), SeenFact(1500 * S)]


def test_lines_in_any_order_and_steps_sorted_by_time() -> None:
    steps = [f'{{"event": "step", "attempt": 0, "step": {n}, "start": {n}.0, "end": {n}.5}}'
             for n in (3, 1, 2)]  # fmt: skip
    rows = parse_text("\n".join([*steps, ATTEMPT, RUN])).steps
    assert list(rows.first) == [1, 2, 3]
    assert list(rows.line) == [2, 3, 1]


@given(st.integers(-4 * 10**18, 4 * 10**18))
def test_times_are_exact(ns: int) -> None:
    assert nanoseconds(seconds(ns)) == ns
    json.loads(seconds(ns))


@given(st.floats(-4e9, 4e9))
def test_any_float_is_rounded_to_the_nearest_nanosecond(value: float) -> None:
    ns = nanoseconds(repr(value))
    assert ns is not None
    assert math.isclose(ns / S, value, rel_tol=1e-15, abs_tol=0.5001e-9)


@pytest.mark.parametrize("absurd", ["1e-999999999", "-0.0", "0e99", "0.0000000004"])
def test_less_than_a_nanosecond_is_none(absurd: str) -> None:
    assert nanoseconds(absurd) == 0


def line(event: str, **fields: object) -> str:
    return json.dumps({"event": event, **fields})


def step(number: object = 1, start: object = 1.0, end: object = 2.0, attempt: object = 0) -> str:
    return line("step", attempt=attempt, step=number, start=start, end=end)


IMPOSSIBLE = {
    # Lines by themselves.
    "word": (["word"], 3, "is not JSON"),
    "array": (["[1]"], 3, "not one JSON object"),
    "two": (["{} {}"], 3, "not one JSON object"),
    "empty object": (["{}"], 3, "unknown event null"),
    "nested": (["[" * 100_000], 3, "is not JSON"),
    "long number": (['{"event": "seen", "at": ' + "9" * 5000 + "}"], 3, "is not JSON"),
    "control characters": (["\x00\x01\x7f"], 3, "is not JSON"),
    "unknown event": ([line("stop", at=1)], 3, 'unknown event "stop"'),
    "event not a string": ([line([])], 3, "unknown event []"),  # type: ignore[arg-type]
    "missing field": ([line("seen")], 3, 'the seen has no "at"'),
    "missing null": ([line("span", attempt=0, kind="data", start=1.0)], 3, 'has no "end"'),
    "text for time": ([line("seen", at="1.0")], 3, "is not a time"),
    "true for time": ([line("seen", at=True)], 3, "is not a time"),
    "null for time": ([line("seen", at=None)], 3, "is not a time"),
    "NaN": (['{"event": "seen", "at": NaN}'], 3, '"at": NaN, which is not a time'),
    "infinity": (['{"event": "seen", "at": -Infinity}'], 3, "is not a time"),
    "milliseconds": ([line("seen", at=1_763_683_200_123)], 3, "is not a time"),
    "huge": (['{"event": "seen", "at": 1e999}'], 3, "is not a time"),
    "hugest": (['{"event": "seen", "at": 1e999999999}'], 3, "is not a time"),
    "fractional step": ([step(1.5)], 3, "whole number"),
    "step true": ([step(True)], 3, "whole number"),
    "step zero": ([step(0)], 3, "from 1 to"),
    "step negative": ([step(-1)], 3, "from 1 to"),
    "step absurd": ([step(2**40)], 3, "from 1 to"),
    "attempt text": ([step(attempt="0")], 3, "whole number"),
    "attempt negative": ([step(attempt=-1)], 3, "whole number"),
    "no chips": ([line("capacity", at=1.0, chips=-1)], 3, "whole number"),
    "wait kind": ([line("wait", kind="lunch", start=1.0, end=2.0)], 3, "must be one of"),
    "span kind": ([line("span", attempt=0, kind="nap", start=1.0, end=2.0)], 3, "custom:NAME"),
    "custom without name": (
        [line("span", attempt=0, kind="custom:", start=1.0, end=2.0)], 3, "custom:NAME"),
    "empty cause": ([line("fault", attempt=0, at=1.0, detected=1.0, cause="")], 3, "not empty"),
    # An end before its start.
    "step backwards": ([step(1, 2.0, 1.0)], 3, '"end": 1.0 before "start": 2.0'),
    "step backwards, spelled otherwise": ([step(1, 2, 1)], 3, '"end": 1.0 before "start": 2.0'),
    "span backwards": (
        [line("span", attempt=0, kind="data", start=2.0, end=1.0)], 3, "before"),
    "restore backwards": (
        [line("restore", attempt=0, start=2.0, end=1.0, step=1)], 3, "before"),
    "wait backwards": ([line("wait", kind="queue", start=2.0, end=1.0)], 3, "before"),
    "steps backwards": (
        [line("steps", attempt=0, first=3, last=2, start=1.0, end=2.0)], 3, '"last": 2 below'),
    "fault seen before": (
        [line("fault", attempt=0, at=2.0, detected=1.0, cause="hang")], 3, '"detected": 1.0'),
    # Lines together.
    "second run": ([RUN], 3, 'second "run" line, after line 1'),
    "same attempt": ([ATTEMPT], 3, "line 2 already"),
    "attempts overlap": (
        [line("attempt", attempt=1, start=99.0, end=101.0, cause=None)], 3, "follow one another"),
    "capacity too large": ([line("capacity", at=1.0, chips=9)], 3, "9 chips, but the run has 8"),
    "capacity too large for what it is of": (
        [line("capacity", at=2.0, chips=20), line("capacity", at=1.0, chips=9, of=16)],
        3, "20 chips, but the run has 16"),
    "of no chips": ([line("capacity", at=1.0, chips=0, of=0)], 3, "whole number from 1"),
    "unknown attempt": ([step(attempt=4)], 3, "attempt 4 has no attempt line"),
    "span of unknown attempt": (
        [line("span", attempt=4, kind="data", start=1.0, end=2.0)], 3, "attempt 4 has no"),
    "open span of unknown attempt": (
        [line("span", attempt=4, kind="data", start=1.0, end=None)], 3, "attempt 4 has no"),
    "step before its attempt": ([step(1, -1.0, 2.0)], 3, "outside its attempt 0"),
    "step after its attempt": ([step(1, 99.0, 100.5)], 3, "outside its attempt 0"),
    "steps overlap": ([step(1, 1.0, 3.0), step(2, 2.0, 4.0)], 4, "steps 1 and 2 of attempt 0"),
    "steps overlap, other order": ([step(2, 2.0, 4.0), step(1, 1.0, 3.0)], 4, "overlap"),
    "same step twice": ([step(), step()], 4, "overlap"),
    "row overlaps": (
        [step(9, 5.0, 6.0), line("steps", attempt=0, first=1, last=4, start=1.0, end=5.5)],
        4, "overlap"),
    "step after the one under way": ([step(2, 5.0, 6.0), step(1, 1.0, None)], 4, "overlaps it"),
    "two under way": ([step(1, 1.0, None), step(2, 2.0, None)], 4, "so is the one in line 3"),
    "under way outside": ([step(1, 100.5, None)], 3, "outside its attempt"),
}  # fmt: skip


@pytest.mark.parametrize("name", IMPOSSIBLE)
def test_the_impossible_is_refused_and_the_line_named(name: str) -> None:
    lines, number, words = IMPOSSIBLE[name]
    padding = [line("span", attempt=0, kind="data", start=10.0 + n, end=11.0 + n) for n in range(5)]
    for text in ("\n".join([RUN, ATTEMPT, *lines]) + "\n",
                 "\n".join([RUN, ATTEMPT, *lines, *padding])):  # fmt: skip
        with pytest.raises(HistoryError) as caught:
            parse_text(text)
        assert caught.value.line == number
        assert str(caught.value).startswith(f"line {number}: ")
        assert words in str(caught.value)
        assert len(str(caught.value)) < 300
        assert str(caught.value).isprintable()


def test_an_open_attempt_overlaps_later_ones() -> None:
    lines = [
        RUN,
        line("attempt", attempt=0, start=0.0, end=None, cause=None),
        line("attempt", attempt=1, start=5.0, end=6.0, cause="done"),
    ]
    with pytest.raises(HistoryError, match=r"line 3: .*attempt 0 has not ended"):
        parse_text("\n".join(lines))


def test_a_run_that_ended_before_its_request() -> None:
    bad = line("run", name="r", requested=5.0, ended=4.0, chips=1)
    with pytest.raises(HistoryError, match=r'line 1: .*"ended": 4.0 before "requested": 5.0'):
        parse_text(bad)


def test_touching_is_not_overlapping() -> None:
    lines = [
        RUN,
        line("attempt", attempt=1, start=5.0, end=9.0, cause="done"),
        line("attempt", attempt=0, start=0.0, end=5.0, cause="failed"),
        step(1, 0.0, 2.0),
        step(2, 2.0, 2.0),
        step(3, 2.0, 5.0),
        step(4, 5.0, 9.0, attempt=1),
    ]
    assert parse_text("\n".join(lines)).steps.attempt.tolist() == [0, 0, 0, 1]


def test_a_torn_last_line_is_called_torn() -> None:
    with pytest.raises(HistoryError, match=r"line 3: the file breaks off within the line"):
        parse_text(f"{RUN}\n{ATTEMPT}\n{step()[:-9]}")
    with pytest.raises(HistoryError, match=r"line 3: .* is not JSON"):
        parse_text(f"{RUN}\n{ATTEMPT}\n{step()[:-9]}\n{step()}")
    assert len(parse_text(f"{RUN}\n{ATTEMPT}\n{step()}").steps.line) == 1


@pytest.mark.parametrize("text", ["", "\n", "  \n\n"])
def test_an_empty_history(text: str) -> None:
    with pytest.raises(HistoryError, match="the file is empty"):
        parse_text(text)


def test_a_history_without_a_run_line() -> None:
    with pytest.raises(HistoryError, match='line 1: the file ends without a "run" line'):
        parse_text(ATTEMPT)


@given(st.integers(1, 5000), st.data())
def test_blocks_may_be_cut_anywhere_between_lines(seed: int, data: st.DataObject) -> None:
    """Whole blocks of usual lines take another way than single lines, to the same facts."""
    lines = [RUN + "\n", ATTEMPT + "\n"]
    for n in range(20):
        lines.append(step(n + 1, n * 4 + 0.25, n * 4 + 3.5) + "\n")
        if seed >> (n % 12) & 1:
            kind = ["data", "startup", "custom:a b"][n % 3]
            span = line("span", attempt=0, kind=kind, start=n * 4 + 0.5, end=n * 4 + 1.0)
            lines.append(span + "\n")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(lines)), max_size=4)))
    bounds = [0, *cuts, len(lines)]
    blocks = ["".join(lines[a:b]).encode() for a, b in itertools.pairwise(bounds) if a < b]
    assert all_facts(parse(blocks)) == all_facts(parse(line.encode() for line in lines))
