"""Journals read again and again as they grow say exactly what a first reading says."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import JournalError
from holdfast.journal.recorded import RecordedLedger, load_run

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from grown_runs import Arrivals, GrownRun

sys.path.pop(0)

TEARS = ["", "", "", "", "text", "no text", "records", "header"]
S = 1_000_000_000


def told(recorded: RecordedLedger, now_ns: int) -> dict[str, Any]:
    """All that is asked of a reading."""
    facts, ledger = recorded.facts, recorded.ledger
    found: dict[str, Any] = {
        "notes": recorded.notes(),
        "saving": facts.controllers.saving,
        "saves": facts.controllers.saves(),
        "ranks": facts.ranks(),
        "hosts": facts.hosts(),
        "opening": facts.opening(),
        "sets": {
            name: (one.newest, one.interval_ns) for name, one in facts.controllers.tiers.items()
        },
    }
    try:
        for later_s in (-5, 0, 30, 200):
            at_ns = now_ns + later_s * S
            found[f"account {later_s}"] = recorded.account(at_ns)
            found[f"course {later_s}"] = ledger.course(at_ns)
            found[f"kept {later_s}"] = ledger.last_kept_step(at_ns)
    except JournalError as error:
        found["nothing"] = str(error)
    else:
        found["steps"] = [(n, *(c.tolist() for c in rows)) for n, *rows in ledger.rows()]
    return found


@settings(max_examples=max(1, settings.default.max_examples // 5))
@given(st.randoms(use_true_random=False), st.integers(1, 6), st.integers(1, 3), st.data())
def test_read_as_they_grew_is_what_a_first_reading_says(
    tmp_path_factory, random, attempts, ranks, data
):
    root = tmp_path_factory.mktemp("grown")
    with pytest.MonkeyPatch.context() as patch:
        run = GrownRun(root / "store", random, patch)
        run.live(attempts, ranks)
    run.lose_tails()
    arrivals = Arrivals(run, root / "read")
    recorded = RecordedLedger(arrivals.root)
    while left := arrivals.left():
        for _ in range(data.draw(st.integers(1, 4))):
            grown = data.draw(st.sampled_from(left))
            tear = data.draw(st.sampled_from(TEARS))
            arrivals.bring(grown, data.draw(st.integers(1, 40)), tear)
        recorded.refresh()
        assert told(recorded, run.now_ns) == told(load_run(arrivals.root), run.now_ns)
