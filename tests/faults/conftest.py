"""The fault matrix has the end-to-end tests' house, and keeps its books."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))  # --import-mode=importlib leaves it out; the tests import them too
pytest.register_assert_rewrite("books")
from books import Books  # noqa: E402
from memory_limit import MemoryLimit, NoCgroup, memory_limit  # noqa: E402
from processes import House  # noqa: E402

sys.path.remove(str(HERE))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Every fault once, with one rank and two in turn; FAULTS=full (`make faults`): with each."""
    if os.environ.get("FAULTS") == "full":
        return
    rows: dict[str, int] = {}
    dropped = []
    for item in items:
        ranks = getattr(item, "callspec", None) and item.callspec.params.get("ranks")
        if item.path.parent != HERE or ranks is None:
            continue
        row = rows.setdefault(re.sub(r"\b[12]\b", "", item.nodeid), len(rows))
        if ranks != 1 + row % 2:
            dropped.append(item)
    config.hook.pytest_deselected(items=dropped)
    gone = set(dropped)
    items[:] = [item for item in items if item not in gone]


@pytest.fixture
def books(house: House) -> Books:
    return Books(house)


@pytest.fixture(name="memory_limit")
def _memory_limit(house: House) -> Iterator[MemoryLimit]:
    try:
        with memory_limit() as limit:
            yield limit
            house.close()  # a cgroup with processes in it cannot be removed
    except NoCgroup as why:
        pytest.skip(str(why))
