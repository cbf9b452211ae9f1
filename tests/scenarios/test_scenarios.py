"""The scenarios: what the machines do, event by event, in virtual time.

`REWRITE_SCENARIOS=1 pytest tests/scenarios` writes today's traces into the files; read the
difference before it is committed.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from script import rerun

sys.path.pop(0)

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", sorted(HERE.glob("*.txt")), ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    text = path.read_text()
    now = rerun(text)
    if os.environ.get("REWRITE_SCENARIOS"):
        path.write_text(now)
    else:
        assert now == text, f"{path.name}: if this is meant, run with REWRITE_SCENARIOS=1"
    assert "!!! " not in now, "something that must never be"
