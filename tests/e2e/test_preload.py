"""A host is made ready for a run that has trained elsewhere."""

from __future__ import annotations

import json

import pytest
from processes import EXIT_DONE, House

pytestmark = pytest.mark.real


def test_what_a_run_has_learned_is_read_before_its_next_start(house: House) -> None:
    house.run(steps=5).wait(EXIT_DONE)
    learned = json.loads((house.store / "r" / "imports.json").read_bytes())
    assert "numpy" in dict(learned["modules"])
    assert any("libpython" in path or "numpy" in path for path in learned["mapped"])
    told = house.holdfast("preload", "r").wait(EXIT_DONE)
    assert "packages: " in told
    assert "checkpoint: 1 file" in told
    (preloaded,) = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))["preloads"]
    packages, checkpoint = (one for one in preloaded["parts"] if one["what"] != "programs")
    assert packages["files"] > 100
    assert checkpoint["bytes"] > 0
    assert "preloaded on " in house.holdfast("report", "r").wait(EXIT_DONE)
