"""The loop of `holdfast run` never touches the run store itself."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, TRAINER, House

pytestmark = pytest.mark.real

SPY = Path(__file__).with_name("loop_spy.py")


@pytest.mark.parametrize("memory", ["off", "auto"])
def test_the_loop_leaves_the_store_to_other_threads(house: House, memory: str) -> None:
    """Saves, retention, a script that gives up and is started again from an older checkpoint."""
    house.go()
    run = house.start(
        sys.executable, SPY, "run", "--name", "r", "--memory", memory, "--keep", 3,
        "--save-every", 2, "--", sys.executable, TRAINER, 12,
        FAIL_AT=9, FAIL_TO=4, FAIL_ONCE=house.folder / "failed",
    )  # fmt: skip
    out = run.wait(EXIT_DONE)
    assert "the loop touches" not in out, out
    assert "back to step 4" in out  # told by the rank's report, which lies on this host
    told = re.search(r"other threads touched the store (\d+) times", out)
    assert told is not None
    assert int(told[1]) > 100
