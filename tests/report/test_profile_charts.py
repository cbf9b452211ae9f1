"""A profile on a page, and its operations under the roof."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.core.ledger.program import Basis, Declared, Reached, ToldProgram
from holdfast.profiles.summary import AHEAD, Operation, ProfiledStep, ProfileSummary
from holdfast.report.overview import overview
from holdfast.report.profile_charts import (
    Roof,
    devices,
    operations,
    roofline,
    step_parts,
    title_words,
)
from holdfast.report.profile_picture import picture
from holdfast.report.run_page import SECTIONS, sections

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from sights import killed_once, sight_of

sys.path.pop(0)

PARTS = {"compute": 600, "collective": 200, "input": 100, "host": 60, "idle": 40}
FOUND = ProfileSummary(
    2, 1, "torch", "2.13", "cpu", 4, False, 10**18, "the loop ended after 2 of 5 steps",
    tuple(ProfiledStep(step, 1000, PARTS) for step in (7, 8)),
    (
        Operation("dot <b>", "compute", 2, 500, 50_000, 1_000),  # 100 GFLOP/s, 50 FLOPs a byte
        Operation("add", "compute", 2, 100, 100, 1_000),  # 1 GFLOP/s, 0.1 FLOPs a byte
        Operation("all-reduce", "collective", 2, 400, 0, 0),
    ),
)  # fmt: skip
ROOF = Roof(flops=200 * 10**9, nbytes=20 * 10**9)  # its ridge is at 10 FLOPs a byte


def test_an_operation_is_held_to_what_limits_it() -> None:
    dot, add, other = FOUND.operations
    assert ROOF.allows(dot) == 200e9
    assert ROOF.allows(add) == 2e9
    assert ROOF.allows(other) is None
    assert Roof(flops=10**14).allows(add) == 1e14
    assert Roof().allows(dot) is None


def test_uneven_steps_are_to_be_read_together() -> None:
    uneven = replace(FOUND, steps=(FOUND.steps[0], replace(FOUND.steps[1], wall_ns=3001)))
    assert AHEAD in list(picture(uneven))
    assert AHEAD in title_words(uneven)
    assert AHEAD not in [*picture(FOUND), title_words(FOUND)]


def test_what_each_reaches_of_it_stands_in_a_table() -> None:
    rows = {row[0]: row[-3:] for row in operations(FOUND, ROOF).rows}
    assert rows["dot <b>"] == ("100 GFLOP/s", "50.0", "50.0 %")
    assert rows["add"] == ("1 GFLOP/s", "0.1", "50.0 %")
    assert len(set(rows["all-reduce"])) == 1  # nothing is known


def test_the_roof_is_drawn_where_both_are_known() -> None:
    pytest.importorskip("altair")
    found = roofline(FOUND, ROOF)
    assert found is not None
    assert "10 FLOPs a byte" in found.words
    assert roofline(FOUND, Roof(flops=10**14)) is None
    assert roofline(replace(FOUND, operations=FOUND.operations[2:]), ROOF) is None


def test_each_device_has_a_row_where_there_are_several() -> None:
    assert devices(FOUND).rows == ()
    two = devices(replace(FOUND, others=({**dict.fromkeys(PARTS, 0), "idle": FOUND.wall_ns},)))
    assert two.rows[0][:2] == ("1", "60.0 %")
    assert two.rows[1] == ("2", "0.0 %", "0.0 %", "0.0 %", "0.0 %", "100.0 %")


def test_the_roof_is_the_runs_own() -> None:
    told = ToldProgram(reached=Reached(flops=10**13, dtype="bf16", bytes=10**12, on="2026-11-26"))
    assert Roof.of(Basis(told=told)) == (10**13, 10**12)
    assert Roof.of(Basis(Declared(peak_flops=10**14), told)).flops == 10**14
    assert "holdfast calibrate" in Roof.of(Basis()).words


def test_the_steps_are_bars_of_their_parts() -> None:
    pytest.importorskip("altair")
    figure = step_parts(FOUND)
    assert figure.words.startswith(
        "Steps 7 to 8 of rank 1 in attempt 2, the first of its 4 devices, 1 µs each."
    )
    assert "The loop ended after 2 of 5 steps" in figure.words
    assert [row[-1] for row in figure.numbers.rows] == [
        "60.0 %", "20.0 %", "10.0 %", "6.0 %", "4.0 %",
    ]  # fmt: skip


def test_the_page_has_a_section_and_an_operations_name_is_text() -> None:
    pytest.importorskip("altair")
    sight = sight_of(killed_once())
    without = set(SECTIONS) - {"profile"}
    assert sections(overview(sight), without)["profile"] == ""
    told = replace(sight, findings=replace(sight.findings, profile=FOUND))
    html = sections(overview(told), without)["profile"]
    assert "dot &lt;b&gt;" in html
    assert "<b>" not in html
    assert "holdfast calibrate" in html
