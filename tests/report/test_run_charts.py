"""The charts of a run: what they are made of, and that kinds can be told apart."""

from __future__ import annotations

import sys
from pathlib import Path

from holdfast.core.ledger.facts import RunFact
from holdfast.report.kinds import STYLES, hatch_of
from holdfast.report.overview import overview
from holdfast.report.run_charts import lost_time, step_times, time_line
from holdfast.report.run_page import figures_of
from holdfast.report.sheet import sheet
from holdfast.report.still import drawn

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from sights import fewer_chips, killed_once, sight_of

sys.path.pop(0)


def test_no_two_kinds_look_alike_unless_they_come_third() -> None:
    looks = [(style.colour, hatch_of(kind)) for kind, style in STYLES.items()]
    assert len(set(looks)) == len(looks)
    assert hatch_of("reschedule:queue") == hatch_of("reschedule")
    assert hatch_of("a kind of tomorrow") == 0


def test_the_time_line_has_every_moment_once() -> None:
    sight = sight_of(killed_once())
    course, account = sight.course, sight.findings.account
    rows = time_line(course, account, dated=False).spec["layer"][0]["data"]["values"]
    areas = sum((row["to"] - row["from"]) * (row["high"] - row["low"]) for row in rows)
    assert round(areas, 6) == 112
    assert {"queued", "startup", "step", "lost", "save", "detect", "drain"} <= {
        row["what"] for row in rows
    }
    marks = time_line(course, account, dated=False).spec["layer"][1]["data"]["values"]
    assert marks == [{"from": 50.0}]


def test_the_numbers_stand_beside_the_charts() -> None:
    sight = sight_of(killed_once())
    rows = {row[0]: row[-1] for row in lost_time(sight.findings.account).numbers.rows}
    assert rows["step"] == "65.2 %"
    figure = step_times(sight.course, sight.steps, dated=False)
    assert "71 steps" in figure.words
    assert "1 step took three times as long or longer" in figure.words
    assert sum(int(row[1]) for row in figure.numbers.rows) == 71
    assert figure.numbers.rows[-1][-1] == "8.00 s"


def test_each_table_says_what_its_shares_are_of() -> None:
    """Of an elastic run they differ: the time line counts time, the account chips."""
    for facts, is_elastic in ((killed_once(), False), (fewer_chips(), True)):
        sight = sight_of(facts)
        line = time_line(sight.course, sight.findings.account, dated=False)
        lost = lost_time(sight.findings.account)
        assert line.numbers.heads[-1] == "of the time"
        assert lost.numbers.heads[-1] == "of all chip-hours"
        shares = [{row[0]: row[-1] for row in one.numbers.rows} for one in (line, lost)]
        assert (shares[0]["step"] != shares[1]["step"]) is is_elastic
        assert ("however many chips" in line.words) is is_elastic


def test_a_run_of_no_time_has_a_picture_of_some_size() -> None:
    sight = sight_of([RunFact("r", 0, 0, 4)])
    picture = drawn(time_line(sight.course, sight.findings.account, dated=False), 400)
    assert "Infinity" not in picture
    assert 'height="' in picture


def test_one_chart_may_take_the_whole_width() -> None:
    figures = figures_of(overview(sight_of(killed_once())))
    assert [figure.name for figure in figures] == ["timeline", "badput", "step-times"]
    picture = sheet(figures, "r", across=("timeline",))
    assert picture.count('x="28"') >= 2  # the time line and the waterfall below it


def test_a_drawing_follows_the_page() -> None:
    sight = sight_of(killed_once())
    picture = drawn(time_line(sight.course, sight.findings.account, dated=True), 400)
    assert "var(--" in picture
    assert "style=" not in picture
    assert "aria-label" not in picture.partition(">")[2]
