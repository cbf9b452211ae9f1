"""Lines read many at a time say what the same lines say when they are decoded one by one."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from decimal import Decimal

import pytest
from all_facts import all_facts
from hypothesis import example, given
from hypothesis import strategies as st

from holdfast.core.history import text as history
from holdfast.core.history.spelling import spelling_of
from holdfast.core.history.text import parse
from holdfast.core.ledger.facts import Fact
from holdfast.errors import HistoryError

RUN = '{"event": "run", "name": "r", "requested": 0.0, "ended": null, "chips": 8}'
ATTEMPTS = [
    f'{{"event": "attempt", "attempt": {n}, "start": {n}e3, "end": {n + 1}e3, "cause": "failed"}}'
    for n in range(3)
]
USUAL = '{"event": "step", "attempt": 0, "step": 1, "start": 1.0, "end": 2.0}'


def said_of(lines: list[str], one_by_one: bool) -> list[Fact] | str:
    """All that is read of the lines, or the sentence in which they are refused."""
    with pytest.MonkeyPatch.context() as patched:
        if one_by_one:
            patched.setattr(history, "MOST_SPELLINGS", 0)
        try:
            return all_facts(parse(["".join(f"{line}\n" for line in lines).encode()]))
        except HistoryError as error:
            return str(error)


def write(fields: list[tuple[str, str]], point: str, gap: str) -> str:
    return "{" + gap.join(f'"{key}"{point}{value}' for key, value in fields) + "}"


WHOLE = ["0", "1", "7", "12", "2147483647", "2147483648", "999999999999", "1" * 18, "1" * 19, "-1"]
ODD = ["007", "00", "-0", "1e2", "1.5", "true", "null", '"1"', "1" * 30, "[1]", "NaN", "-1.5"]
TIME = ["0.0", "1.25", "3", "12.000000001", "3999999999.999999999", "4000000000", "4000000000.0"]
FINE = ["0.1234567895", "0.1234567885", "0.12345678850000001", "2.9999999999999", "1.5e1", "01.5"]
TIME += [*FINE, "0." + "3" * 18, "0." + "3" * 19, "0." + "0" * 20 + "1", "2.99999999949999999"]
EXTRA = [("loss", "2.25"), ("lr", "1e-4"), ("host", '"node-17"'), ("n", "12345678901234567890123")]
EXTRA += [("note", '"läuft \\u0041"'), ("deep", '{"a": [1, 2]}'), ("bad", "012"), ("step", "5")]


@st.composite
def lines(draw: st.DrawFn) -> str:
    """Of a step, a row of them or a span: in any spelling, and not always possible."""
    number = st.sampled_from(WHOLE[:4] * 6 + WHOLE + ODD)
    time = st.sampled_from(TIME + ODD[:6] + [str(Decimal(n) / 8) for n in range(0, 24000, 97)])
    begin, end = sorted(draw(st.tuples(time, time)), key=rough)
    event = draw(st.sampled_from(["step", "steps", "span", "step"]))
    fields = [("event", f'"{event}"'), ("attempt", draw(st.sampled_from("0001124")))]
    if event == "span":
        kind = draw(st.sampled_from(["data", "save", "custom:x", "custom:é", "custom:a1", "nap"]))
        fields.append(("kind", json.dumps(kind, ensure_ascii=draw(st.booleans()))))
    elif event == "step":
        fields.append(("step", draw(number)))
    else:
        fields += [("first", draw(number)), ("last", draw(number))]
    fields += [("start", begin), ("end", end), *draw(st.lists(st.sampled_from(EXTRA), max_size=2))]
    if draw(st.booleans()):
        fields = draw(st.permutations(fields))
    point, gap = draw(st.sampled_from([(": ", ", "), (":", ","), (" : ", " ,\t")]))
    text = write(fields, point, gap)
    if draw(st.integers(0, 9)) == 0:  # damaged
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", "0", '"', "\x00", "}", " "])) + text[at + 1 :]
    return text + draw(st.sampled_from(["", "", "\r", " ", "\x85"]))


def rough(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return 0.0


@given(st.lists(lines(), max_size=4))
@example([USUAL.replace("1.0", "01.0")])
@example([USUAL.replace("step", "st3p")])
@example([USUAL.replace("2.0", "0.5")])
def test_read_together_and_one_by_one(found: list[str]) -> None:
    whole = [RUN, *ATTEMPTS, *found]
    assert said_of(whole, one_by_one=False) == said_of(whole, one_by_one=True)


@given(st.integers(0, 2**32), st.integers(1, 60))
def test_whole_histories_in_mixed_spellings(seed: int, steps: int) -> None:
    rng = random.Random(seed)
    found = [RUN, *ATTEMPTS]
    for n in range(steps):
        attempt = rng.randrange(3)
        start = Decimal(attempt * 1000 + n) + Decimal(rng.randrange(10**12)) / 10**13
        times = [("start", str(start)), ("end", str(start + Decimal(rng.randrange(9)) / 10))]
        what = [("event", '"step"'), ("step", str(n + 1))]
        if rng.random() < 0.3:
            what = [("event", '"span"'), ("kind", rng.choice(['"data"', '"custom:a b"']))]
        fields = [("attempt", str(attempt)), *what, *times]
        if rng.random() < 0.5:
            rng.shuffle(fields)
        if rng.random() < 0.2:
            fields.append(rng.choice(EXTRA[:6]))
        found.append(write(fields, rng.choice([": ", ":"]), ", "))
    rng.shuffle(found)
    facts = said_of(found, one_by_one=False)
    assert isinstance(facts, list), facts
    assert facts == said_of(found, one_by_one=True)


def test_the_usual_spellings_are_read_together(monkeypatch: pytest.MonkeyPatch) -> None:
    """A way back to one by one would be a fifth as fast, and nothing else would show it."""
    decoded: list[str] = []
    real: Callable = history.decode

    def counted(line: str, number: int, *, torn: bool) -> Fact:
        decoded.append(line)
        return real(line, number, torn=torn)

    monkeypatch.setattr(history, "decode", counted)
    step = {"event": "step", "attempt": 0, "step": 1, "start": 1.0, "end": 2.5}
    row = {"event": "steps", "attempt": 0, "first": 2, "last": 9, "start": 3, "end": 0.1 + 3.2}
    span = {"event": "span", "attempt": 0, "kind": "custom:a b", "start": 1.0, "end": 2.0}
    together = [json.dumps(one | {"loss": 1e-7}) for one in (step, row, span)]
    together.append(json.dumps({"host": "é 17", "kind": "data"} | span, ensure_ascii=False))
    assert isinstance(said_of([RUN, *ATTEMPTS, *together], one_by_one=False), list)
    assert decoded == [RUN, *ATTEMPTS]


@pytest.mark.parametrize(
    "other",
    [
        "",
        "[0]",
        '{"event": "step"}',
        '{"event": ["step"], "attempt": 0, "step": 0, "start": 0.0, "end": 0.0}',
        USUAL.replace("1", "-0").replace("2", "0"),
        '{"event": "seen", "at": 0.0}',
        '{"event": "span", "attempt": 0, "kind": "data", "start": 0.0, "end": null}',
        '{"event": "span", "attempt": 0, "kind": "custom:a0", "start": 0.0, "end": 0.0}',
        USUAL.replace("}", ', "note": "\\u0"}').replace("1", "0").replace("2", "0"),
        "{" + "0" * 1001 + "}",
        "[" * 100_000,
    ],
)
def test_other_lines_have_no_spelling(other: str) -> None:
    assert spelling_of(other.encode()) is None


def test_many_spellings_are_read_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history, "MOST_SPELLINGS", 3)
    steps = [
        f'{{"event": "step", "attempt": 0, "step": {n + 1}, "start": {n}.0, "end": {n}.5, '
        f'"{"x" * n}": 1}}'
        for n in range(9)
    ]
    assert len(parse(f"{line}\n".encode() for line in [RUN, *ATTEMPTS, *steps]).steps.line) == 9
