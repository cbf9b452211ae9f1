"""`holdfast plan --html`: the page says what the JSON says, and is written whole or not at all."""

from __future__ import annotations

import io
import json
import re
import stat
import sys
import xml.etree.ElementTree as ET
from contextlib import redirect_stdout
from html import unescape
from itertools import pairwise
from pathlib import Path

import pytest

from holdfast.cli.main import main
from holdfast.cli.plan_charts import figures_of
from holdfast.cli.plan_page import page_of
from holdfast.report.charts import svg
from holdfast.sim.buying import ways_of_flags
from holdfast.sim.fitted import Fitted
from holdfast.sim.plan import plan as answer
from holdfast.sim.plan_curves import curves
from holdfast.sim.plan_input import PARAMETERS, parsed, question_of

GIVEN = {
    "hosts": "2048", "chips-per-host": "8", "failures-per-1000-node-days": "3.79",
    "host-share": "0.8", "save-stall": "10s", "save-write": "30s", "restart": "5min",
    "reschedule": "1h", "spares": "8", "repair": "1d", "interval": "20min", "memory-copy": "2s",
    "notice-recall": "0.3", "notice-lead": "10min", "days": "54",
}  # fmt: skip
FLAGS = [word for name, value in GIVEN.items() for word in (f"--{name}", value)]


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main(["plan", *arguments])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, *capsys.readouterr()


def percent(share: float) -> str:
    return f"{share * 100:.1f} %"


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict, str, dict]:
    """The JSON, the page's text, and its charts."""
    path = tmp_path_factory.mktemp("page") / "plan.html"
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit) as exit_:
        main(["plan", *FLAGS, "--json", "--html", str(path)])
    assert exit_.value.code == 0
    assert [p.name for p in path.parent.iterdir()] == ["plan.html"]
    assert path.stat().st_size < 1_200_000  # of the 2 MB that a page may have
    html = path.read_text()
    data = re.search(r'<script type="application/json" id="charts">(.*?)</script>', html)
    assert data is not None
    text = re.sub(r"<(script|style).*?</\1>", "", html, flags=re.DOTALL)
    text = " ".join(unescape(re.sub(r"<[^>]+>", " ", text)).split())
    return json.loads(out.getvalue()), text, json.loads(data[1])["charts"]


def data_of(spec: dict) -> list[dict]:
    """Of a chart and its layers."""
    own = [spec["data"]] if "data" in spec else []
    return own + [data for layer in spec.get("layer", []) for data in data_of(layer)]


def test_the_page_says_what_the_json_says(written):
    plan, text, charts = written
    for share in (
        "goodput", "goodput_low", "goodput_high", "scheduling_goodput", "runtime_goodput",
        "target", "published_runtime_goodput", "linear_goodput",
    ):  # fmt: skip
        assert percent(plan[share]) in text, share
    for note in plan["notes"]:
        assert note in text
    gains = [f"{one['change']} +{one['gain'] * 100:.1f} points" for one in plan["what_ifs"]]
    assert all(gain in text for gain in gains)
    assert [text.index(gain) for gain in gains] == sorted(text.index(gain) for gain in gains)
    assert f"{plan['best_spares']} spares" in text
    assert "the plan has 20 min" in text
    names = ["waterfall", "interval-durable", "interval-memory", "scale", "cost", "spares"]
    assert list(charts) == names


def test_every_parameter_is_on_the_page_given_or_assumed(written):
    _, text, _ = written
    asked = text[text.index("What was asked") :]
    assert [name for name in GIVEN if f" {name} " not in asked] == []
    assert "target 90.0 %" in asked
    known = {one.name for one in PARAMETERS}
    assert set(GIVEN) <= known


def test_a_chart_for_each_question(written):
    """The best interval is marked, the waterfall ends in goodput, hosts stand on a log axis."""
    plan, text, charts = written
    rows = next(data["values"] for data in data_of(charts["waterfall"]))
    assert [row["what"] for row in rows] == [
        "all time", "waiting for hosts", "blocked by saves", "lost steps", "restarts", "goodput"
    ]  # fmt: skip
    for above, below in pairwise(rows[1:]):
        assert above["from"] == pytest.approx(below["to"], abs=1e-9)
    assert rows[-1]["to"] == plan["goodput"]
    words = [
        row.get("what", "") for d in data_of(charts["interval-durable"]) for row in d["values"]
    ]
    assert "planned: 20 min" in words
    assert {"exact", "first-order formula"} <= set(words)
    assert [word for word in words if word.startswith("best: ")]
    scale = json.dumps(charts["scale"])
    assert '"scale": {"type": "log", "domain": [64.0, 65536.0]}' in scale
    assert "times as many" in text


@pytest.mark.parametrize(
    "arguments",
    [
        ("--mtbf", "1s", "--restart", "1h", "--save-stall", "1h"),
        ("--mtbf", "1000000d"),
        ("--hosts", "100000", "--failures-per-1000-node-days", "1000", "--reschedule", "10d"),
    ],
)
def test_no_plan_is_too_strange_for_its_charts(arguments):
    given = dict(zip((a[2:] for a in arguments[::2]), arguments[1::2], strict=True))
    question = question_of(parsed(given.items(), "--"))
    for figure in figures_of(answer(question), curves(question)):
        json.dumps(figure.spec, allow_nan=False)
        assert figure.numbers.rows


def test_the_curves_as_pictures(capsys, tmp_path):
    svg, png = tmp_path / "plan.svg", tmp_path / "plan.png"
    code, out, err = run(capsys, "--mtbf", "3h", "--svg", str(svg), "--png", str(png))
    assert (code, err) == (0, "")
    assert "what would raise it" in out
    root = ET.fromstring(svg.read_text())
    titles = [text.text for text in root.findall("{http://www.w3.org/2000/svg}text")]
    assert titles[1:] == [
        "Where the time goes", "How often to save", "The same job on more hosts",
        "What failures cost grows with the square of the scale",
    ]  # fmt: skip
    assert png.read_bytes().startswith(b"\x89PNG")


def test_without_the_extra_it_says_how_to_get_it(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "altair", None)
    code, out, err = run(capsys, "--mtbf", "3h", "--html", str(tmp_path / "plan.html"))
    assert (code, out) == (78, "")
    assert err.count("\n") == 1
    assert "pip install 'holdfast-ml[dashboard]'" in err
    assert list(tmp_path.iterdir()) == []


def test_a_page_that_cannot_be_written_leaves_what_was_there(capsys, tmp_path, monkeypatch):
    monkeypatch.setattr("holdfast.cli.plan_page.page_of", lambda *_: "page")
    folder = tmp_path / "folder"
    folder.mkdir()
    for place, words in (
        (folder, "Is a directory"),
        (tmp_path / "none" / "plan.html", "No such file"),
        (Path("/dev/null"), "No such device"),
    ):
        code, out, err = run(capsys, "--mtbf", "3h", "--html", str(place))
        assert code != 0
        assert out == ""
        assert err.startswith(f"holdfast: the page cannot be written to {place} ({words}")
        assert err.count("\n") == 1
    assert Path("/dev/null").is_char_device()
    place = tmp_path / "plan.html"
    place.symlink_to(folder / "real.html")
    code, out, _ = run(capsys, "--mtbf", "3h", "--html", str(place))
    assert code == 0
    assert "goodput" in out
    assert (folder / "real.html").read_text() == "page"
    assert stat.S_IMODE((folder / "real.html").stat().st_mode) & 0o077 != 0


def test_a_plan_that_was_fitted_says_what_the_run_tells(monkeypatch):
    monkeypatch.setattr("holdfast.report.page.javascript", lambda: "")
    question = question_of(parsed({"mtbf": "3h", "save-stall": "60s"}.items(), "--"))
    told = (Fitted("mtbf", 10_800.0, 8000.0, 15_000.0, 23, "23 failures in 3 d"),)
    html = page_of(answer(question, (), told, ("It does not say who.",)), question, {})
    assert "What the recorded run tells" in html
    assert "23 failures in 3 d" in html
    assert "It does not say who." in html
    assert "how little the recorded run tells" in html
    assert "What was asked" not in html


def test_ways_to_buy_by_what_useful_work_costs():
    names = ["<b>spot", "never"]
    flags = [f"{names[0]}:price=1.6,interruptions=40", f"{names[1]}:price=3,interruptions=1e6"]
    given = {"hosts": "512", "failures-per-1000-node-days": "4", "reschedule": "10min"}
    question = question_of(parsed(given.items(), "--") | {"buy": ways_of_flags(flags)})
    plan = answer(question)
    (figure,) = (one for one in figures_of(plan, curves(question)) if one.name == "ways")
    assert [row[0] for row in figure.numbers.rows] == names
    assert figure.numbers.rows[1][5] == "never"
    (bar,) = next(data["values"] for data in data_of(figure.spec))
    assert plan.buying is not None
    assert (bar["what"], bar["value"]) == (
        names[0], plan.buying.ways[0].money_per_useful_chip_hour
    )  # fmt: skip
    assert "<b>spot" in "".join(ET.fromstring(svg(figure.spec)).itertext())
