from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from lab import Lab


@pytest.fixture
def make_lab(tmp_path: Path) -> Iterator[Callable[[int], Lab]]:
    """A lab of so many hosts, which ends with the test."""
    with ExitStack() as stack:
        yield lambda hosts: stack.enter_context(Lab(hosts, tmp_path / "lab"))
