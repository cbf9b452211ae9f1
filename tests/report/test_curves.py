"""The script's own numbers in a report: what was kept, what was lost, and how it is drawn."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from holdfast.core.ledger.incremental import Ledger
from holdfast.core.ledger.lineage import ALL_STEPS as ALL
from holdfast.journal.metric_log import MetricLog, Values
from holdfast.runs.curves import Curve, curves_of, thinned

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from sights import S, killed_once

sys.path.pop(0)
pytest.importorskip("altair")
from holdfast.report.curve_charts import DRAWN_POINTS, curve_figure


def told(tmp_path: Path, by_attempt: Mapping[int, Mapping[int, float]]) -> MetricLog:
    """What was read of a run: by attempt, values of `loss` by step."""
    log = MetricLog(tmp_path)
    for attempt, values in by_attempt.items():
        of = log.by_name.setdefault("loss", {}).setdefault(attempt, Values())
        for step, value in values.items():
            of.add(step, value, 1000.0 * attempt + step)
    return log


def curve(tmp_path: Path, by_attempt: Mapping[int, Mapping[int, float]], **kept: int) -> Curve:
    until = {int(name[1:]): step for name, step in kept.items()}
    (one,) = curves_of(told(tmp_path, by_attempt), until)
    return one


def test_which_steps_are_kept_is_the_ledgers_word() -> None:
    ledger = Ledger()
    ledger.add(killed_once())
    assert ledger.kept_by_attempt() == {0: 45, 1: ALL}
    assert ledger.kept_by_attempt(70 * S) == {0: ALL}


def test_steps_that_were_lost_are_apart(tmp_path: Path) -> None:
    """Attempt 1 made nothing that was kept; attempt 2 went on after step 2 of attempt 0."""
    one = curve(
        tmp_path, {0: {1: 0.5, 2: 0.4, 3: 9.0}, 1: {3: 8.0}, 2: {3: 0.3, 4: 0.2}}, a0=2, a2=ALL
    )
    assert one.kept.step.tolist() == [1, 2, 3, 4]
    assert one.kept.value.tolist() == [0.5, 0.4, 0.3, 0.2]
    assert [points.value.tolist() for points in one.lost] == [[9.0], [8.0]]
    told_ = {"step": 4, "value": 0.2, "least": 0.2, "greatest": 0.5, "values": 4}
    assert one.to_json() == {**told_, "not_finite": 0, "lost": 2}


def test_what_is_no_finite_number_is_told_and_breaks_the_line(tmp_path: Path) -> None:
    one = curve(tmp_path, {0: {1: 0.5, 2: math.nan, 3: 0.25, 4: math.inf}}, a0=ALL)
    assert one.to_json()["value"] == "inf"
    assert one.to_json()["greatest"] == 0.5
    figure = curve_figure(one, 0)
    assert "2 values (crosses), the first at step 2, are no finite number" in figure.words
    spec = json.dumps(figure.spec, allow_nan=False)
    assert '"value": null' in spec
    assert figure.numbers.rows[1] == ("2", "nan")


@pytest.mark.parametrize(
    ("values", "kept"),
    [({1: 0.5}, ALL), ({1: math.nan}, ALL), ({1: 1e308, 2: -1e308}, ALL), ({5: 1.0, 6: 2.0}, 4)],
)
def test_the_smallest_curves_can_be_drawn(
    tmp_path: Path, values: Mapping[int, float], kept: int
) -> None:
    from holdfast.report.charts import svg

    figure = curve_figure(curve(tmp_path, {0: values}, a0=kept), 0)
    assert svg(figure.spec).startswith("<svg")


def test_long_ones_keep_their_extremes(tmp_path: Path) -> None:
    values = {step: float(step % 7) for step in range(1, 20_001)}
    values[7_777] = 1e6
    values[12_345] = math.nan
    one = curve(tmp_path, {0: values}, a0=ALL)
    shown = thinned(one.kept, DRAWN_POINTS)
    assert len(shown) <= DRAWN_POINTS + 2
    assert (shown.step[0], shown.step[-1]) == (1, 20_000)
    assert 1e6 in shown.value
    assert "the first at step 12,345, is no finite number" in curve_figure(one, 0).words
