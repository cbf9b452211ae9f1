"""A source that listens to an emulator, and what it has told so far."""

from __future__ import annotations

import sys
import time
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
    began_s = time.monotonic()  # before anything was announced

    def begin(text: str, **surroundings: object) -> Listening:
        begun.append(Listening(text, **surroundings))
        begun[-1].began_s = began_s
        return begun[-1]

    yield begin
    assert all(one.close() for one in begun), "a source did not let go"
