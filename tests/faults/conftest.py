"""The fault matrix has the end-to-end tests' house, and keeps its books."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# --import-mode=importlib leaves them out; the tests import them too.
_PLACES = [str(Path(__file__).parent.with_name("e2e")), str(Path(__file__).parent)]
sys.path[:0] = _PLACES
pytest.register_assert_rewrite("books")
from books import Books
from processes import House

for _place in _PLACES:
    sys.path.remove(_place)


@pytest.fixture
def house(store: Path, tmp_path: Path) -> Iterator[House]:
    folder = tmp_path / "work"
    folder.mkdir()
    house = House(folder, store)
    yield house
    house.close()


@pytest.fixture
def books(house: House) -> Books:
    return Books(house)
