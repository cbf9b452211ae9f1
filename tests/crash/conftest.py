"""Where the crash tests work: in memory, for they write and throw away thousands of stores."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

# --import-mode=importlib leaves the folder out: what tests import from it is loaded here.
sys.path.insert(0, str(Path(__file__).parent))
import examine
import life
import power_cut

sys.path.pop(0)
del examine, life, power_cut

LONG = os.environ.get("CRASH") == "long"


@pytest.fixture
def jail(tmp_path: Path) -> Iterator[Path]:
    """An empty folder, in memory where there is room."""
    shared = Path("/dev/shm")
    folder = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else tmp_path))
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def long() -> bool:
    """Whether to look at more than CI has time for: `make crash`."""
    return LONG
