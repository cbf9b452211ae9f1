"""`holdfast simulate`: what scripts rely on, the screen, and what is said of bad input."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, House

from holdfast.cli.main import main

RSC_1 = (
    "--hosts", "2048", "--chips-per-host", "8", "--failures-per-1000-node-days", "6.5",
    "--save-stall", "0", "--restart", "300", "--days", "54",
)  # fmt: skip
SMALL = ("--mtbf", "3h", "--save-stall", "20s", "--days", "5")


def simulate(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as exit_:
        main(["simulate", *arguments])
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, *capsys.readouterr()


@pytest.mark.real
def test_the_json_that_scripts_rely_on(house: House) -> None:
    """On all cores, and the runs are those of one core."""
    command = ("simulate", *RSC_1, "--interval", "3600", "--seed", "1", "--json")
    found = json.loads(house.holdfast(*command, "--replications", 8).wait(EXIT_DONE))
    assert found["goodput"]["mean"] == pytest.approx(0.714, abs=0.015)
    assert found["goodput"]["low"] < found["goodput"]["mean"] < found["goodput"]["high"]
    assert found["disruptions"]["mean"] == pytest.approx(719, abs=50)
    assert found["replications"] == 8
    assert found["events"] > 10_000
    assert found["wall_s"] > 0
    alone = json.loads(house.holdfast(*command, "--replications", 1).wait(EXIT_DONE))
    assert alone["goodput_of_each"] == found["goodput_of_each"][:1]


def test_policies_stand_side_by_side(capsys):
    policies = ("--policy", "interval=1h,restart=10min", "--policy", "interval=10min")
    code, out, _ = simulate(capsys, *SMALL, *policies, "--json")
    hourly, often = json.loads(out)
    assert code == 0
    assert (hourly["policy"], often["policy"]) == ("interval=1h,restart=10min", "interval=10min")
    assert hourly["goodput"]["mean"] < often["goodput"]["mean"]
    _, out, _ = simulate(capsys, *SMALL, *policies)
    assert "interval=10min" in out


def test_a_run_that_fails_all_the_time_lasts_as_long_as_tells_something(capsys, monkeypatch):
    monkeypatch.setattr("holdfast.cli.simulate.ENOUGH_FAILURES", 40)
    often = ("--mtbf", "1min", "--restart", "2s", "--json")
    code, out, err = simulate(capsys, *often)
    assert code == 0
    assert "note: The run lasts 40 min here, in which it fails some 40 times" in err
    assert 20 < json.loads(out)["disruptions"]["mean"] < 60
    code, out, err = simulate(capsys, *often, "--days", "2h")
    assert (code, err) == (0, "")
    assert json.loads(out)["disruptions"]["mean"] > 80
    code, _, err = simulate(capsys, "--mtbf", "20h", "--json")
    assert (code, err) == (0, "")


def on_a_terminal(monkeypatch):
    """Of 80 columns, without colours."""
    monkeypatch.setenv("TERM", "dumb")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)


def test_the_screen(capsys, monkeypatch):
    on_a_terminal(monkeypatch)
    code, out, err = simulate(capsys, *SMALL, "--replications", "2")
    assert (code, err) == (0, "")
    assert "2 runs" in out
    assert "where the rest went" in out
    assert " – " in out  # two runs say something of the others, one does not:
    assert " – " not in simulate(capsys, *SMALL)[1]
    assert max(map(len, out.splitlines())) <= 80


def test_a_run_that_its_supervisor_gives_up(capsys):
    _, out, _ = simulate(capsys, "--mtbf", "5min", "--restart", "1h", "--days", "1")
    assert "its supervisor gave up and left it to a person" in out
    assert "10 failures in a row" in " ".join(out.split())


def test_a_run_for_the_ordinary_report(capsys, tmp_path):
    history = tmp_path / "one.jsonl"
    _, out, _ = simulate(capsys, *SMALL, "--journal", str(history), "--json")
    with pytest.raises(SystemExit):
        main(["report", "--history", str(history), "--now", str(5 * 86_400), "--json"])
    reported = json.loads(capsys.readouterr().out)
    assert reported["goodput"] == pytest.approx(json.loads(out)["goodput"]["mean"], abs=1e-12)


def test_a_recorded_fleet(capsys):
    """uclasystem/bamboo, traces: a day of 64 spot instances, 32 of them at once at most."""
    trace = Path(__file__).parents[1] / "sim" / "data" / "bamboo-p3-trace.csv"
    command = ("--hosts", "20", "--trace", str(trace), "--restart", "2min", "--json")
    found = json.loads(simulate(capsys, *command)[1])
    assert found["disruptions"]["mean"] > 3
    assert found["scheduling_goodput"]["mean"] < 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((), "says how often the run fails"),
        (("--mtbf", "-1"), "--mtbf"),
        (("--mtbf", "nan"), "--mtbf"),
        (("--mtbf", "1h", "--hosts", "0"), "--hosts: 0 is too few"),
        (("--mtbf", "1h", "--step", "soon"), "--step"),
        (("--mtbf", "1h", "--step", "0"), "--step: 0 is not a time"),
        (("--mtbf", "1h", "--replications", "0"), "--replications"),
        (("--mtbf", "1h", "--policy", "interval"), "say NAME=VALUE"),
        (("--mtbf", "1h", "--policy", "intervall=3"), "did you mean interval?"),
        (("--trace", "nowhere.csv"), "nowhere.csv"),
        (("--trace", "nowhere.csv", "--mtbf", "1h"), "nowhere.csv"),
    ],
)
def test_bad_input_is_named_in_one_sentence(capsys, arguments, words):
    code, out, err = simulate(capsys, *arguments)
    assert (code, out) == (78, "")
    assert words in err
    assert len(err.splitlines()) == 1


def test_a_trace_and_a_rate(capsys, tmp_path):
    trace = tmp_path / "t.csv"
    trace.write_text("start,end,node,cause\n10,20,a,host\n")
    code, _, err = simulate(capsys, "--trace", str(trace), "--mtbf", "1h")
    assert code == 78
    assert "--mtbf and --trace both say what fails" in err


def test_a_trace_wins_over_the_failures_of_a_run(capsys, tmp_path):
    history, trace = tmp_path / "one.jsonl", tmp_path / "t.csv"
    simulate(capsys, *SMALL, "--journal", str(history))
    trace.write_text("start,end,node,cause\n10,20,a,host\n")
    told = ("--from-run", str(history), "--trace", str(trace), "--days", "0.01")
    for count in ("1", "2"):
        code, out, err = simulate(capsys, *told, "--replications", count, "--json")
        assert (code, err, json.loads(out)["disruptions"]["mean"]) == (0, "", 1)


def test_what_is_odd_about_a_trace_is_said(capsys, tmp_path):
    trace, written = tmp_path / "t.csv", ("--journal", "-")
    trace.write_text("0,add,a\n5,add,b\n5,add,b\n60000,remove,a\n")
    words = "line 3 repeats line 2; it is left out"
    code, out, _ = simulate(capsys, "--trace", str(trace))
    assert (code, words in out) == (0, True)
    for as_data in (("--json",), written):
        code, out, err = simulate(capsys, "--trace", str(trace), *as_data)
        assert (code, words in out) == (0, False)
        assert err == f"holdfast: note: {words}\n"
