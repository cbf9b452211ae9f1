"""The dashboard is what Grafana's published schema of dashboards and panels wants it to be.

Grafana itself is not here. The names below are those that the schema requires of each panel's
options; `make prometheus` runs the queries.
"""

from __future__ import annotations

import json
import re
from importlib.resources import files
from itertools import combinations
from typing import Any

import pytest

BOARD = json.loads(files("holdfast.export").joinpath("files", "dashboard.json").read_text())
PANELS = BOARD["panels"]
CHARTS = [panel for panel in PANELS if panel["type"] != "row"]
WIDTH = 24
SOURCE = {"type": "prometheus", "uid": "${datasource}"}
OPTIONS = {
    "timeseries": {"legend", "tooltip"},
    "stat": {
        "reduceOptions", "colorMode", "graphMode", "justifyMode", "textMode", "wideLayout",
        "showPercentChange", "percentChangeColorMode", "orientation",
    },
    "bargauge": {
        "displayMode", "valueMode", "namePlacement", "showUnfilled", "sizing", "minVizWidth",
        "minVizHeight", "maxVizHeight", "legend", "reduceOptions", "orientation",
    },
}  # fmt: skip


def cells(panel: dict[str, Any]) -> set[tuple[int, int]]:
    place = panel["gridPos"]
    across = range(place["x"], place["x"] + place["w"])
    down = range(place["y"], place["y"] + place["h"])
    return {(x, y) for x in across for y in down}


def test_the_board_has_what_grafana_requires() -> None:
    assert BOARD.keys() >= {"title", "uid", "schemaVersion", "templating", "annotations", "panels"}
    assert "id" not in BOARD  # a number of one Grafana's own
    assert len(BOARD["uid"]) <= 40
    assert BOARD["time"].keys() == {"from", "to"}
    assert BOARD["timezone"] in ("browser", "utc")


def test_panels_have_a_number_and_a_place_each() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for panel in PANELS:
        assert panel["gridPos"].keys() == {"x", "y", "w", "h"}
        assert cells(panel)
        assert max(x for x, _ in cells(panel)) < WIDTH
    for one, other in combinations(PANELS, 2):
        assert not cells(one) & cells(other), (one["title"], other["title"])
    tops = [panel["gridPos"]["y"] for panel in PANELS]
    assert tops == sorted(tops)  # a panel belongs to the row that stands before it


@pytest.mark.parametrize("panel", CHARTS, ids=lambda panel: panel["title"])
def test_a_panel_has_its_options_and_asks_the_chosen_source(panel: dict[str, Any]) -> None:
    assert panel["options"].keys() == OPTIONS[panel["type"]]
    assert panel["datasource"] == SOURCE
    assert panel["fieldConfig"].keys() == {"defaults", "overrides"}
    targets = panel["targets"]
    assert len({target["refId"] for target in targets}) == len(targets) > 0
    for target in targets:
        assert target["datasource"] == SOURCE
        assert target["expr"]


def test_variables_are_declared_before_they_are_used() -> None:
    known: set[str] = set()
    for one in BOARD["templating"]["list"]:
        assert one["type"] in ("datasource", "query", "custom")
        assert isinstance(one["query"], str)
        assert used(one.get("datasource"), one["query"]) <= known
        known.add(one["name"])
    assert used(PANELS, BOARD["annotations"]) == known
    for one in BOARD["annotations"]["list"]:
        assert one.keys() >= {"name", "datasource", "enable", "iconColor"}


def used(*parts: Any) -> set[str]:
    return set(re.findall(r"\$\{?(\w+)", json.dumps(parts)))
