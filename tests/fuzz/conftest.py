from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out


@pytest.fixture(scope="session", autouse=True)
def _good_run_is_removed() -> Iterator[None]:
    yield
    from fuzz_seeds import good_run

    if good_run.cache_info().currsize:
        shutil.rmtree(good_run().parent)
