"""A source that listens to an emulator, and what it has told so far."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

_HERE = str(Path(__file__).parent)  # --import-mode=importlib leaves it out; the cases import it
sys.path.insert(0, _HERE)
from listening import Listening  # noqa: E402

sys.path.remove(_HERE)


@pytest.fixture
def listening() -> Iterator[Callable[..., Listening]]:
    """`listening("gce:http://…")`: begins to listen; ends with the test."""
    begun: list[Listening] = []

    def begin(text: str, **surroundings: object) -> Listening:
        begun.append(Listening(text, **surroundings))
        return begun[-1]

    yield begin
    assert all(one.close() for one in begun), "a source did not let go"
