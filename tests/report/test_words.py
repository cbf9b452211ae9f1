from __future__ import annotations

import pytest

from holdfast.report.words import (
    NANO,
    cause_in_words,
    chip_hours,
    counted,
    digits_for,
    duration,
    moment,
    money,
    percent,
    seconds,
    shortened,
    size,
)


@pytest.mark.parametrize(
    ("share", "words"),
    [
        (None, "—"),
        (0.0, "0.0 %"),
        (1.0, "100.0 %"),
        (0.625, "62.5 %"),
        (1e-9, "<0.1 %"),
        (0.0005, "0.1 %"),
        (0.99999, ">99.9 %"),
    ],
)
def test_percent_never_rounds_to_all_or_nothing(share: float | None, words: str) -> None:
    assert percent(share) == words


@pytest.mark.parametrize(
    ("s", "words"),
    [
        (0, "0 s"),
        (1e-6, "<1 ms"),
        (0.0213, "21 ms"),
        (0.0999, "0.10 s"),
        (0.4249, "0.42 s"),
        (12.34, "12.3 s"),
        (59.94, "59.9 s"),
        (60, "1 min"),
        (245, "4 min 05 s"),
        (3599.6, "1 h"),
        (12_060, "3 h 21 min"),
        (187_200, "2 d 04 h"),
    ],
)
def test_duration(s: float, words: str) -> None:
    assert duration(round(s * NANO)) == words


def test_seconds_fit_their_column() -> None:
    assert digits_for(1600 * NANO) == 1
    assert seconds(1600 * NANO, 1) == "1,600.0"
    assert seconds(20_000_000, 1) == "<0.1"
    assert seconds(0, 2) == "0.00"
    assert digits_for(3 * NANO) == 3


@pytest.mark.parametrize(
    ("hours", "words"),
    [(0, "0"), (1e-5, "<0.001"), (0.0123, "0.012"), (2.34, "2.3"), (1234.5, "1,234")],
)
def test_chip_hours(hours: float, words: str) -> None:
    assert chip_hours(round(hours * 3600 * NANO)) == words


def test_causes_and_counts() -> None:
    assert cause_in_words("failed") == "the command failed"
    assert cause_in_words("host_lost") == "host lost"
    assert cause_in_words("something_new") == "something new"
    assert (counted(1, "step"), counted(1200, "step")) == ("1 step", "1,200 steps")


def test_amounts_sizes_and_moments() -> None:
    assert [money(x) for x in (0, 1.234, 1234.5)] == ["0.00", "1.23", "1,234"]
    assert [size(n) for n in (0, 1023, 1536, 200 << 20, 3 << 40, 5 << 50)] == [
        "0 B", "1023 B", "1.5 KiB", "200 MiB", "3.0 TiB", "5120 TiB"
    ]  # fmt: skip
    assert moment(1_772_373_423 * NANO + 999) == "2026-03-01 13:57:03 UTC"


def test_long_words_are_cut_where_they_end() -> None:
    assert shortened("as it is", 8) == "as it is"
    assert shortened("one two three", 9) == "one two…"
