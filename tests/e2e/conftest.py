"""The house: a folder, a store and processes that end with the test."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(
    0, str(Path(__file__).parent)
)  # --import-mode=importlib leaves it out; tests import it too
from processes import House

sys.path.pop(0)


@pytest.fixture
def house(store: Path, tmp_path: Path) -> Iterator[House]:
    folder = tmp_path / "work"
    folder.mkdir()
    house = House(folder, store)
    yield house
    house.close()
