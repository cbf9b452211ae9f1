"""Durations, as people give them."""

from __future__ import annotations

import pytest

from holdfast.sim.durations import in_words, seconds_of


@pytest.mark.parametrize(
    ("given", "value_s"),
    [
        (0, 0), (90, 90), (1.5, 1.5), ("90", 90), ("90s", 90), ("5min", 300), ("2h", 7200),
        ("54d", 54 * 86_400), ("250ms", 0.25), (" 1.5 h ", 5400), ("1e3", 1000), (".5min", 30),
    ],
)  # fmt: skip
def test_a_duration(given, value_s):
    assert seconds_of(given) == pytest.approx(value_s)


def test_a_number_may_count_another_unit():
    assert seconds_of("54", unit="d") == seconds_of("54d", unit="d") == 54 * 86_400


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ("nan", "'nan' is not a duration"), (float("nan"), "'nan' is not a duration"),
        ("inf", "is not a duration"), ("-5", "-5 is less than zero"), (-1, "less than zero"),
        ("3weeks", "there is no unit 'weeks'"), ("5 m", "there is no unit 'm'"),
        ("", "is not a duration"), ("s", "is not a duration"), ("1e99", "too long"),
        (True, "is not a duration"), (None, "is not a duration"), ([1], "is not a duration"),
        ("5min30s", "is not a duration"),
        ("\u0661", "is not a duration"), ("9" * 9999, "is too long"),
    ],
)  # fmt: skip
def test_what_is_none_is_named(given, words):
    with pytest.raises(ValueError, match=words) as error:
        seconds_of(given)
    assert len(str(error.value)) < 200


@pytest.mark.parametrize(
    ("value_s", "words"),
    [
        (0, "0 s"), (0.02, "20 ms"), (45.81, "45.8 s"), (300, "5 min"), (1115.72, "18.6 min"),
        (11_124, "3.09 h"), (54 * 86_400, "54 d"), (1e9, "11,574 d"),
    ],
)  # fmt: skip
def test_in_words(value_s, words):
    assert in_words(value_s) == words
