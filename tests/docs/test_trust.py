"""The tests that the page on trust names are there."""

from __future__ import annotations

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = TESTS.parent / "docs" / "explanation" / "trust.md"


def test_what_holds_it_is_there() -> None:
    named = re.findall(r"`([a-z_]+/[a-z_/]+\.py)(?:::(test_[a-z_]+))?`", PAGE.read_text("utf-8"))
    assert len(named) > 15
    for file, function in named:
        text = (TESTS / file).read_text("utf-8")
        assert f"def {function or 'test_'}" in text, f"{file}::{function}"
