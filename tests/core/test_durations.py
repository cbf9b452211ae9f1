"""Durations in sentences."""

from __future__ import annotations

import pytest

from holdfast.core.durations import in_words, seconds_in_words


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (-1, "0 s"),
        (0, "0 s"),
        (12e-6, "12 µs"),
        (0.0421, "42 ms"),
        (0.0996, "0.1 s"),
        (1, "1 s"),
        (9.94, "9.9 s"),
        (9.96, "10 s"),
        (119.4, "119 s"),
        (119.6, "2 min"),
        (120, "2 min"),
        (150, "2.5 min"),
        (1800, "30 min"),
        (7169, "119 min"),
        (7171, "2 h"),
        (13_680, "3.8 h"),
        (24 * 3600, "24 h"),
        (2 * 86_400, "2 days"),
        (400 * 86_400, "400 days"),
    ],
)
def test_a_duration_in_words(seconds: float, words: str) -> None:
    assert seconds_in_words(seconds) == in_words(round(seconds * 1e9)) == words
