"""A run's live page: the report's, with alerts, and what would raise goodput when that is known."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from made_runs import Made, make_run
from under_way import under_way

from holdfast.cli.report_page import gains_of
from holdfast.cli.serve_look import Sights
from holdfast.core.alerts import AlertPolicy
from holdfast.journal.gathered import gathered_run
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunStore
from holdfast.report.run_page import sections
from holdfast.serve import run_look
from holdfast.serve.run_look import ALERTS, RunLook, charts_pause_s

S = 1_000_000_000
KILLED = [Made(30, cause="killed")] * 4


@pytest.mark.real
def test_what_would_raise_goodput_follows_and_is_the_reports(
    store: Path, eventually: Callable[..., Any]
) -> None:
    make_run(RunStore(store), "rough", [*KILLED, Made(40)], requested_ns=time.time_ns() - 9000 * S)
    look = RunLook(RunStore(store), "rough", Sights(str(store), 2.5))
    assert "A plan is being fitted" in look()["gains"]
    parts = eventually(lambda: (p := look()) and "being fitted" not in p["gains"] and p)
    want = gains_of(gathered_run(load_run(store / "rough")))
    assert want.changes
    for one in want.changes:
        assert f"+{one.gain * 100:.1f} points" in parts["gains"]
    assert "in money" in parts["goodput"]
    assert "<i> money</i>" in parts["incidents"]


def test_with_few_disruptions_nothing_is_fitted(store: Path) -> None:
    make_run(RunStore(store), "calm", [Made(9)], requested_ns=time.time_ns() - 900 * S)
    parts = RunLook(RunStore(store), "calm", Sights(None, None))()
    assert "Too little was observed" in parts["gains"]
    assert "money" not in parts["goodput"]
    assert parts[ALERTS] == ""


def test_alerts_stand_above_the_run(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_look, "ALERTS_EVERY_S", 0.0)
    with under_way(store) as run:
        event = {"words": "<b>taken", "since_ns": run.at_ns, "deadline_ns": run.at_ns + 3600 * S}
        run.fact("announced", at_ns=run.at_ns, events=[event])
        look = RunLook(RunStore(store), "r", Sights(None, None), AlertPolicy(checkpoint_ns=S))
        told = look()[ALERTS]
        assert re.search(
            r"<strong>notice</strong>: <span>&lt;b&gt;taken</span> <b>in \d+ min", told
        )
        assert "nothing was saved yet" in told
        assert "/run/r" not in told  # this is its page
        run.fact("announced", at_ns=run.at_ns + 1, events=[])
        assert "notice" not in look()[ALERTS]


def test_the_charts_of_a_young_run_follow_soon_also_after_a_slow_first_drawing(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Goodput stands at the top and in the waterfall: a minute old, they told of different runs."""
    clock = [100.0]

    def slow(*asked: Any, **more: Any) -> Any:
        clock[0] += 5.0  # it loads what draws
        return sections(*asked, **more)

    now = SimpleNamespace(monotonic=lambda: clock[0], time_ns=time.time_ns)
    with under_way(store) as run:
        monkeypatch.setattr(run_look, "time", now)
        look = RunLook(RunStore(store), "r", Sights(None, None))
        monkeypatch.setattr(run_look, "sections", slow)
        first = look()["badput"]
        monkeypatch.setattr(run_look, "sections", sections)
        clock[0] += 1.0  # of the run's ten seconds and more
        run.fact("run", name="r", requested_ns=run.at_ns - 30 * S, chips=2)
        assert look()["badput"] != first
    assert charts_pause_s(10.0) == 0.5
    assert charts_pause_s(86_400.0) == run_look.CHARTS_EVERY_S


def test_commands_name_the_store_if_it_was_named(store: Path) -> None:
    make_run(RunStore(store), "bad", [Made(5, cause="failed")], requested_ns=time.time_ns() - S)
    for named, words in ((None, "holdfast logs bad --"), (str(store), f"--store {store}")):
        assert words in RunLook(RunStore(store), "bad", Sights(named, None))()["now"]
