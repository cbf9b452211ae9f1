"""The race around the ruler: what strikes and when, what is kept of it, what the table tells."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

RECOVERY = Path(__file__).parents[2] / "bench" / "recovery"
sys.path.append(str(RECOVERY))

import picture  # noqa: E402
import table  # noqa: E402
from entrants import LEVELS, SYSTEMS, known  # noqa: E402
from own_report import restarts, warm  # noqa: E402
from results import CAMPAIGN, RACE, Result, Settings, read  # noqa: E402
from rows import Row, best, percentile, rows  # noqa: E402
from schedule import kills, one_after_another  # noqa: E402

SETTINGS = Settings(300.0, 20.0, 20, 30.0)
CAMPAIGN_OF_3 = Settings(0.0, 20.0, 20, 30.0, kills=3, gap=2.0)


def kill(new_s=1.0, lost=2, back=True):
    return {"rank": 0, "due_s": 1.0, "back": back, "new_s": new_s, "lost_steps": lost}


def told(system, *struck, settings=SETTINGS, phase="kills", goodput=0.9, **more):
    measured = {
        "goodput": goodput,
        "elapsed_s": 100.0,
        "never": sum(not one["back"] for one in struck),
        "kills": list(struck),
    }
    return {"system": system, "settings": vars(settings), phase: {**measured, **more}}


def put(folder, result, settings=SETTINGS):
    settings.file(folder, result["system"]).write_text(json.dumps(result))


# The schedule


def test_the_schedule_is_a_function_of_the_seed():
    assert kills(20, 300.0, 2) == kills(20, 300.0, 2)
    assert kills(20, 300.0, 2) != kills(21, 300.0, 2)


def test_the_schedule_strikes_as_often_as_was_asked_for_in_order_and_inside():
    schedule = kills(20, 300.0, 2, every_s=20.0)
    assert len(schedule) == 15
    assert [one.at_s for one in schedule] == sorted(one.at_s for one in schedule)
    assert all(0.5 <= one.at_s <= 298.0 for one in schedule)
    assert {one.rank for one in schedule} == {0, 1}


@pytest.mark.parametrize("seed", range(20))
def test_a_shorter_race_is_the_beginning_of_a_longer_one(seed):
    assert kills(seed, 300.0, 2)[:4] == kills(seed, 100.0, 2)[:4]


def test_a_race_that_is_too_short_for_one_has_one_kill_all_the_same():
    (only,) = kills(20, 3.0, 1)
    assert only.at_s <= 3.0
    assert only.rank == 0


def test_kills_in_a_row_are_as_many_as_asked_for_and_a_function_of_the_seed():
    row = list(one_after_another(7, 200, 2, 2.0))
    assert row == list(one_after_another(7, 200, 2, 2.0))
    assert len(row) == 200
    assert all(1.0 <= one.at_s <= 3.0 for one in row)
    assert {one.rank for one in row} == {0, 1}


# What is kept


def test_a_phase_that_is_over_is_not_run_again_and_one_that_was_cut_off_is(tmp_path):
    path = SETTINGS.file(tmp_path, "loop")
    first = Result.of(path, "loop", 2, SETTINGS, fresh=False)
    first.keep("kills", {"goodput": 0.5}, unfinished=True)
    cut_off = Result.of(path, "loop", 2, SETTINGS, fresh=False)
    assert not cut_off.has("kills")
    assert cut_off.told["kills"]["goodput"] == 0.5
    cut_off.keep("kills", {"goodput": 0.6})
    again = Result.of(path, "loop", 2, SETTINGS, fresh=False)
    assert again.has("kills")
    assert not again.has("stop")
    assert not again.finished(RACE)
    for phase in ("stop", "hang"):
        again.keep(phase, {})
    assert Result.of(path, "loop", 2, SETTINGS, fresh=False).finished(RACE)


def test_what_was_ruled_by_the_step_before_is_ruled_by_that_of_both_sides(tmp_path):
    result = Result.of(SETTINGS.file(tmp_path, "holdfast"), "holdfast", 2, SETTINGS, fresh=False)
    report = {"goodput": 0.9, "ruler": 0.8, "difference_points": 10.0}
    result.keep("kills", {"goodput": 0.8, "own_goodput": 0.9, "report": report})
    result.keep("stop", {"seconds": 1.0})
    for phase in RACE:
        result.rule_anew(phase, 1.1)
    ruled = result.told["kills"]
    assert ruled["own_goodput"] == 0.9
    assert [ruled["goodput"], report["ruler"]] == pytest.approx([0.88, 0.88])
    assert report["difference_points"] == pytest.approx(2.0)
    assert result.told["stop"] == {"seconds": 1.0}


def test_a_phase_that_fell_is_run_again(tmp_path):
    result = Result.of(SETTINGS.file(tmp_path, "loop"), "loop", 2, SETTINGS, fresh=False)
    result.keep("stop", {"fell": "it did not start anew within 180 s"})
    assert not result.has("stop")


def test_other_settings_are_another_result(tmp_path):
    path = SETTINGS.file(tmp_path, "loop")
    Result.of(path, "loop", 2, SETTINGS, fresh=False).keep("kills", {"goodput": 0.5})
    other = Settings(300.0, 20.0, 20, 60.0)
    assert not Result.of(path, "loop", 2, other, fresh=False).has("kills")
    assert not Result.of(path, "loop", 2, SETTINGS, fresh=True).has("kills")
    assert Settings(100.0, 20.0, 20, 30.0).file(tmp_path, "loop") != path
    assert Settings(300.0, 20.0, 21, 30.0).file(tmp_path, "loop") != path
    assert CAMPAIGN_OF_3.file(tmp_path, "loop") != path


def test_results_are_merged_by_lying_in_one_folder(tmp_path):
    put(tmp_path, told("torchrun", kill()))
    short = Settings(100.0, 20.0, 20, 30.0)
    put(tmp_path, told("holdfast", *[kill()] * 5, settings=short), short)
    put(tmp_path, told("holdfast", *[kill()] * 15))
    found = rows(tmp_path)
    assert [(row.name, len(row.struck)) for row in found] == [
        ("torchrun", 1),
        ("holdfast", 15),
        ("holdfast", 5),
    ]
    assert [len(row.struck) for row in best(found)] == [1, 15]


def test_half_a_file_is_never_read(tmp_path):
    (tmp_path / "loop.part").write_text('{"system": "lo')
    assert read(tmp_path) == []


# What is told


def test_what_never_came_back_is_counted_and_its_times_are_not(tmp_path):
    struck = [kill(1.0), kill(None, None, back=False), kill(3.0, 4)]
    row = Row(told("torchrun", *struck, strays=1))
    assert row.never == 2
    assert row.new_s == [1.0, 3.0]
    assert row.lost == [2, 4]
    put(tmp_path, row.result)
    line = table.table(tmp_path).splitlines()[1]
    assert "2 of 3" in line
    assert "2.00 s (1.00 … 3.00)" in line
    assert "300 s, 3 kills, seed 20" in line


def test_a_late_step_of_a_run_that_was_started_from_outside_is_no_recovery():
    assert Row(told("torchrun", kill(41.0, 3, back=False))).median_s is None


def test_a_system_that_fell_is_in_the_table_with_its_reason(tmp_path):
    result = told("loop", kill(), fell="rank 1 is not there to be struck")
    put(tmp_path, result)
    put(tmp_path, {"system": "torchft", "settings": vars(SETTINGS), "fell": "Traceback\nOh: no"})
    shown = table.table(tmp_path)
    assert "fell: rank 1 is not there to be struck" in shown
    assert "torchft, a replica group each (300 s, 0 kills, seed 20) fell: Oh: no" in shown


def test_what_was_not_measured_is_named(tmp_path):
    put(tmp_path, told("loop", kill()))
    (told_missing,) = [x for x in table.words(tmp_path) if x.startswith("not measured")]
    assert "NVIDIA ft_launcher" in told_missing
    assert "bare loop, torch.save" not in told_missing


def test_holdfast_is_held_to_the_ruler_and_to_its_peers(tmp_path):
    put(tmp_path, told("loop", kill(5.0), goodput=0.8))
    put(tmp_path, told("loop-jax", kill(0.1), goodput=0.999))
    report = {"goodput": 0.978, "ruler": 0.98, "difference_points": -0.2}
    put(tmp_path, told("holdfast", kill(0.5), goodput=0.98, report=report))
    shown = table.words(tmp_path)
    assert "Holdfast (PyTorch): badput 2.00%, 10.0 × less than loop" in shown
    assert "Holdfast (PyTorch): back sooner than loop 10.0 ×" in shown
    assert any("-0.20 points" in line for line in shown)


def test_many_kills_are_told_with_their_tail(tmp_path):
    struck = [kill(float(n)) for n in range(1, 101)]
    restarted = restarts(
        [
            {"restart": {"phases_s": {"detect": 0.1}, "cold": []}},
            {"restart": {"phases_s": {"detect": 0.3}, "cold": [{"rank": 1, "why": "not ready"}]}},
            {"restart": None},
        ]
    )
    assert (restarted["warm"], restarted["cold"]) == (1, 1)
    assert restarted["phases_s"] == {"detect": 0.2}
    report = {"restarts": restarted, "kills_warm": [True] * 60 + [False] * 39 + [None]}
    result = told("holdfast", *struck, settings=CAMPAIGN_OF_3, phase="campaign", report=report)
    put(tmp_path, result, CAMPAIGN_OF_3)
    cells = table.campaign_cells(rows(tmp_path)[0])
    assert dict(zip(table.CAMPAIGN, cells, strict=True)) == {
        "system": "Holdfast (PyTorch)", "kills": "100 of 3", "back": "100", "never": "0",
        "median": "50.50 s", "p95": "95.00 s", "most": "100.00 s", "lost": "2.0",
        "warm": "60: 30.50 s", "cold": "39: 80.00 s",
    }  # fmt: skip
    assert any("1 × not ready" in line for line in table.words(tmp_path))
    assert "| 100 of 3 |" in table.markdown(tmp_path)


def test_a_kill_is_warm_when_the_restart_that_followed_it_was():
    incidents = [
        {"resumed_s": 11.0, "restart": {"cold": []}},
        {"resumed_s": 21.0, "restart": {"cold": [{"rank": 0, "why": "not ready"}]}},
        {"resumed_s": 31.0, "restart": None},
        {"resumed_s": None, "restart": {"cold": []}},
    ]
    assert warm(incidents, [10.0, 20.0, 30.0, 40.0]) == [True, False, None, None]
    assert warm(incidents, [12.0]) == [False]
    assert warm([], []) == []


def test_a_percentile_is_one_of_the_values():
    assert percentile([3.0], 0.95) == 3.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 0.5) == 2.0
    assert percentile([1.0, 2.0, 3.0, 4.0], 1.0) == 4.0


def test_the_picture_has_a_dot_for_each_kill_and_a_cross_for_what_never_came(tmp_path):
    put(tmp_path, told("torchrun", kill(2.0), kill(None, None, back=False)))
    put(tmp_path, told("holdfast", kill(0.2), kill(0.3)))
    put(tmp_path, told("holdfast-cold", kill(2.0)))
    drawn = picture.picture([(2, picture.raced(tmp_path)), (1, picture.raced(tmp_path))])
    assert drawn.count("<circle") == 2 * 3
    assert drawn.count('class="cross"') == 2 * 1
    assert drawn.count("300 s, 2 kills, seed 20") == 2 * 2
    assert "One rank" in drawn
    assert "Two ranks" in drawn


def test_every_system_is_told_apart():
    names = [system.name for system in [*SYSTEMS, *LEVELS]]
    titles = [system.title for system in [*SYSTEMS, *LEVELS]]
    assert len(set(names)) == len(names)
    assert len(set(titles)) == len(titles)
    assert CAMPAIGN[0] not in RACE


@pytest.mark.real
@pytest.mark.parametrize(("word", "is_known"), [("auto", True), ("nonesuch", False)])
def test_a_row_is_skipped_when_this_holdfast_lacks_what_it_needs(word, is_known):
    needs = replace(SYSTEMS[0], needs=("--standby", word))
    assert known(needs) is is_known
