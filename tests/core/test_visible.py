"""Text from outside: what a terminal would obey is spelled out."""

from __future__ import annotations

import json
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.visible import clean, coloured, sentence

RED = "\x1b[1;31m"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain – ä 語\n\tindented", "plain – ä 語\n\tindented"),
        (f"{RED}red\x1b[0m", "red"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x1b[2J\x1b[1;1H", r"\x1b[2J\x1b[1;1H"),
        ("\x9b31m", r"\u009b31m"),
        ("a\rb\x08\x7f", r"a\rb\x08\u007f"),
        ("abc\u202edef", r"abc\u202edef"),
    ],
)
def test_what_is_shown(text: str, shown: str) -> None:
    assert clean(text) == shown


@given(st.text(st.characters() | st.sampled_from("\x1b[]m;0\x07\r\x9b")))
def test_nothing_is_left_to_obey(text: str) -> None:
    for shown in (clean(text), sentence(text)):
        assert not [c for c in shown if unicodedata.category(c) == "Cc" and c not in "\n\t"]
        assert clean(shown) == shown
    assert clean(json.dumps(text)) == json.dumps(text).replace("\x7f", "\\u007f")
    assert json.loads(clean(json.dumps(text))) == text


@given(st.text(st.characters(exclude_characters="\n") | st.sampled_from("\x1b[]m;0\x07\r\x9b")))
def test_of_a_rank_s_line_colours_alone_get_through(line: str) -> None:
    assert clean(coloured(line)) == clean(line.rstrip("\r").rpartition("\r")[2])


def test_colours_end_with_their_line() -> None:
    assert coloured(f"{RED}red") == f"{RED}red\x1b[0m"
    assert coloured(f"{RED}red\x1b]0;x\x07") == rf"{RED}red\x1b]0;x\x07" + "\x1b[0m"


def test_a_bar_is_what_was_drawn_last() -> None:
    assert coloured("10 %\r20 %\r30 %\r") == "30 %"


def test_a_further_line_is_none_of_ours() -> None:
    assert sentence("cannot\nholdfast: all is well") == "cannot\n  holdfast: all is well"
