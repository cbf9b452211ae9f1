"""Ten nights that happened: on what was told then, the same is decided today.

`REWRITE_SCENARIOS=1 pytest tests/nights` writes today's decisions into the files; read the
difference before it is committed. A night whose inputs no longer fit the decisions (the machine
would have been elsewhere) is recorded anew, and the commit says why.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from record import NIGHTS, read, trace

sys.path.pop(0)

HERE = Path(__file__).parent


@pytest.mark.parametrize("path", sorted(HERE.glob("*.jsonl")), ids=lambda path: path.stem)
def test_a_night_is_decided_again(path: Path) -> None:
    now, expected = trace(*read(path)), path.with_suffix(".txt")
    if os.environ.get("REWRITE_SCENARIOS"):
        expected.write_text(now)
    assert now == expected.read_text(), "if this is meant, run with REWRITE_SCENARIOS=1"


def test_every_night_is_there() -> None:
    names = {path.stem.rpartition("-")[0] for path in HERE.glob("*.jsonl")}
    assert names == {night.__name__ for night in NIGHTS}
