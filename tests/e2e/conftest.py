"""Stores of runs that were trained before; and which framework is asked what."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from distributed import FULL
from processes import FAR, House, house_in

sys.path.pop(0)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A row that one framework leaves to the other is not asked of it; FAULTS=full: all are."""
    names = {} if FULL else {item: getattr(item, "cls", None) for item in items}
    dropped = {
        item for item, cls in names.items() if item.name in getattr(cls, "left_to_the_other", ())
    }
    config.hook.pytest_deselected(items=list(dropped))
    items[:] = [item for item in items if item not in dropped]


@pytest.fixture(scope="module")
def _trained_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of 8 steps with sets of 3, 5, 7 and 8, without a supervisor: copied for each test."""
    folder = tmp_path_factory.mktemp("trained")
    with house_in(folder) as house:
        house.alone_here(8, SAVE_AT="3,5,7", HOLDFAST_KEEP_LAST=100, HOLDFAST_SAVE_EVERY_STEPS=FAR)
    return folder / "store"


@pytest.fixture
def trained(house: House, _trained_store: Path) -> House:
    """A house whose run `r` was done after it had saved several sets."""
    shutil.copytree(_trained_store, house.store, dirs_exist_ok=True)
    return house
