"""What is said when an extra is not installed: a command to paste, for an extra that there is."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from holdfast.errors import needs_extra

ROOT = Path(__file__).parents[1]
EXTRAS = set(
    tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
)
SOURCES = [path.read_text() for path in sorted((ROOT / "src").rglob("*.py"))]


def test_the_sentence_holds_a_command_for_the_interpreter_that_lacks_it() -> None:
    said = needs_extra("pages need", "dashboard")
    command = f"{sys.executable} -m pip install 'holdfast[dashboard]'"
    assert said == f"pages need an extra that is not installed: {command}"


def test_every_extra_that_is_named_exists() -> None:
    named = {extra for text in SOURCES for extra in re.findall(r"needs_extra\(.*, \"(.*?)\"", text)}
    assert len(named) > 5
    assert named <= EXTRAS
