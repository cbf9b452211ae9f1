"""`holdfast report --fleet`: all runs of a store together, on a screen and as JSON."""

from __future__ import annotations

import io
import json
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.report import report
from holdfast.errors import ConfigurationError
from holdfast.journal.incidents import story_of, write_incident
from holdfast.journal.rank_reports import report_path
from holdfast.journal.store import RunStore

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))  # --import-mode=importlib leaves it out
from made_runs import Made, make_run

sys.path.pop(0)
S = 1_000_000_000
DAY = 86_400 * S


@pytest.fixture(autouse=True)
def _mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MIRROR", str(tmp_path / "mirror"))


@pytest.fixture
def filled(store: Path) -> Path:
    runs, now = RunStore(store), time.time_ns()
    steps = [Made(100, cause="killed"), Made(200)]
    make_run(runs, "big", steps, requested_ns=now - DAY // 2, chips=64, ideal_step_s=7.5)
    make_run(runs, "small", [Made(300, cause="hang"), Made(30)], requested_ns=now - 9 * DAY)
    runs.create("new")
    return store


def run(*words: str) -> Result:
    return CliRunner().invoke(report, words)


def document(*words: str) -> dict[str, object]:
    result = run("--fleet", "--json", *words)
    assert result.exit_code == 0, result.output
    told: dict[str, object] = json.loads(result.output)
    return told


class Terminal(io.StringIO):
    """What a terminal has been sent."""

    def isatty(self) -> bool:
        return True


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("columns", ["60", "80"])
def test_no_cell_is_cut_on_a_narrow_terminal(columns: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", columns)
    monkeypatch.setenv("TERM", "dumb")
    wide = run("--fleet").output
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    report.main(["--fleet"], standalone_mode=False)
    assert "…" not in terminal.getvalue()
    # Without blanks: a sentence is folded, in a long path of a store too.
    assert "".join(terminal.getvalue().split()) == "".join(wide.split())


def test_the_whole_and_its_parts(filled: Path) -> None:
    told = document()
    whole, week, day = (told["fleet"][name] for name in ("all", "7d", "1d"))
    big, new, small = told["runs"]
    assert [one["name"] for one in told["runs"]] == ["big", "new", "small"]
    assert set(big["windows"]) == {"all", "7d", "1d"}  # over since hours
    assert (set(small["windows"]), set(new["windows"])) == ({"all"}, set())
    hours = [one["windows"]["all"]["chip_hours"] for one in (big, small)]
    assert whole["chip_hours"] == pytest.approx(sum(hours))
    assert week["chip_hours"] == day["chip_hours"] == pytest.approx(hours[0])
    for factors in (whole, day, big["windows"]["all"]):
        product = factors["scheduling_goodput"] * factors["runtime_goodput"]
        assert factors["goodput"] == pytest.approx(product)
    assert whole["program_goodput"] == big["windows"]["all"]["program_goodput"] == 0.75
    assert (whole["runs_with_ideal"], small["windows"]["all"]["program_goodput"]) == (1, None)
    assert {row["cause"]: row["disruptions"] for row in told["causes"]} == {"killed": 1, "hang": 1}
    assert told["causes"][0]["cause"] == "killed"  # sixteen times the chips
    lost = sum(row["chip_hours"] for row in told["badput"])
    assert lost + whole["productive_chip_hours"] == pytest.approx(whole["chip_hours"])
    assert (told["states"], told["problems"]) == ({"done": 2, "new": 1}, [])


def test_one_window_is_broken_down(filled: Path) -> None:
    for words in (("--window", "7d"), ("--last", "7d")):
        told = document(*words)
        assert (told["window"], [row["cause"] for row in told["causes"]]) == ("7d", ["killed"])
    told = document("--since", "2001-01-01T00:00:00Z")
    assert told["window"] == "since 2001-01-01T00:00:00Z"
    assert told["fleet"][told["window"]]["chip_hours"] == told["fleet"]["all"]["chip_hours"]
    assert document("--last", "1ms")["causes"] == []


def test_of_a_known_capacity_the_idle_chips_count(filled: Path) -> None:
    told = document("--capacity", "128")
    day = told["fleet"]["1d"]
    assert told["capacity_chips"] == 128
    assert day["scheduling_goodput"] < 64 * 1.0 / 128 / 20  # an hour of half the chips
    assert day["goodput"] == pytest.approx(day["scheduling_goodput"] * day["runtime_goodput"])


def test_on_a_screen(filled: Path) -> None:
    text = run("--fleet").output
    assert "3 runs: 2 done, 1 new" in text
    lines = text.splitlines()
    row = next(line for line in lines if line.lstrip().startswith("big"))
    assert "done" in row
    assert "75.0 %" in row
    assert any("killed by a signal from outside" in line for line in lines)
    assert "since the beginning" in text
    assert "last 7 days" in text
    assert "n/a" in next(line for line in lines if line.lstrip().startswith("small"))


def test_what_was_calibrated_has_a_column(filled: Path) -> None:
    assert "of reached" not in run("--fleet").output
    told = {
        "flops": 4 * 10**15, "left_out": [], "device": "chip", "devices": 4, "dtype": "bf16",
        "chip": "chip", "peak_flops": 10**15, "reached_flops": 8 * 10**14,
        "reached_dtype": "bf16", "reached_bytes": 0, "reached_on": "2026-11-26",
    }  # fmt: skip
    now = time.time_ns()
    make_run(RunStore(filled), "told", [Made(10)], requested_ns=now - 3600 * S, told=told)
    lines = run("--fleet").output.splitlines()
    assert any("program   of reached" in line for line in lines)
    row = next(line for line in lines if line.lstrip().startswith("told"))
    assert "10.0 %" in row
    assert "12.5 %" in row
    assert "n/a" in next(line for line in lines if line.lstrip().startswith("big"))
    found = document()
    (one,) = (one for one in found["runs"] if one["name"] == "told")
    assert (one["device"], one["peak_flops"], one["reached_flops"]) == (
        "chip", 10**15, 8 * 10**14
    )  # fmt: skip
    assert one["windows"]["all"]["program_goodput_of_reached"] == 0.125
    assert found["fleet"]["all"]["program_goodput_of_reached"] == 0.125


def raised(store: Path, run: str, attempt: int, *errors: tuple[str, str]) -> None:
    """What ranks of an attempt said that their scripts raised, and where."""
    folder = RunStore(store).get(run)
    folder.ranks_dir(attempt).mkdir()
    for rank, (kind, where) in enumerate(errors):
        said = {
            "type": kind,
            "message": "secret",
            "where": where,
            "traceback": "",
            "declared": False,
        }
        report_path(folder, attempt, rank).write_text(json.dumps(said))


def test_hangs_are_told_apart_by_their_place(store: Path) -> None:
    now = time.time_ns()
    for name in ("a", "b"):
        hung = [Made(10, cause="hang"), Made(20, cause="hang")]
        make_run(RunStore(store), name, [*hung, Made(9)], requested_ns=now - DAY)
        raised(store, name, 0, ("ConnectionError", "/home/me/lm/train.py:9"))  # of who waited
        story = story_of(0, "hang", "rank 1 hung", exits=(1, -9), rank=1, where="load (data.py:41)")
        write_incident(RunStore(store).get(name), 0, story)
    found = {(row["cause"], row["error"]): row["disruptions"] for row in document()["errors"]}
    assert found == {("hang", "load (data.py:41)"): 2, ("hang", None): 2}
    assert "hung: load (data.py:41) " in run("--fleet").output


def test_failures_are_told_apart_by_error_and_place(store: Path) -> None:
    now = time.time_ns()
    for name in ("a", "b"):
        broken = [Made(10, cause="failed"), Made(20, cause="failed"), Made(5, cause="killed")]
        make_run(RunStore(store), name, [*broken, Made(9)], requested_ns=now - DAY)
        raised(store, name, 0, ("ValueError", "/home/me/lm/data.py:17"))
        away = ("ConnectionError", "/home/me/lm/train.py:9")
        raised(store, name, 1, away, ("RuntimeError", "/home/me/lm/train.py:41"))
        story = story_of(1, "failed", "it failed", exits=(1, 1), rank=1)
        write_incident(RunStore(store).get(name), 1, story)  # rank 0 only lost contact with it
    told = document()
    found = {(row["cause"], row["error"]): row["disruptions"] for row in told["errors"]}
    assert found == {
        ("failed", "ValueError at /home/me/lm/data.py:17"): 2,
        ("failed", "RuntimeError at /home/me/lm/train.py:41"): 2,
        ("killed", None): 2,
    }
    assert {row["cause"]: row["disruptions"] for row in told["causes"]} == {
        "failed": 4,
        "killed": 2,
    }
    text = run("--fleet").output
    assert "the command failed: ValueError at lm/data.py:17" in text
    assert "the command failed: RuntimeError at lm/train.py:41" in text
    again = document()  # as kept from the look before
    assert [row["error"] for row in again["errors"]] == [row["error"] for row in told["errors"]]


def test_a_price_tells_what_it_cost(filled: Path) -> None:
    told = document("--price-per-chip-hour", "2.5")
    assert told["price_per_chip_hour"] == 2.5
    for row in [*told["causes"], *told["errors"], *told["badput"]]:
        assert row["cost"] == pytest.approx(2.5 * row["chip_hours"])
    assert document()["causes"][0]["cost"] is None
    text = run("--fleet", "--price-per-chip-hour", "1000").output
    assert text.count("cost") == 4
    assert "cost" not in run("--fleet").output


def test_as_a_page(filled: Path, tmp_path: Path) -> None:
    page = tmp_path / "fleet.html"
    make_run(RunStore(filled), "odd", [Made(3, cause="<b>no</b>"), Made(3)], requested_ns=S)
    result = run("--fleet", "--html", str(page), "--price-per-chip-hour", "1000")
    assert (result.exit_code, result.output) == (0, "")
    html = page.read_text()
    assert "4 runs: 3 done, 1 new" in html
    for words in ("big", "small", "killed by a signal from outside", "cost", "last 7 days"):
        assert words in html
    assert "&lt;b&gt;no&lt;/b&gt;" in html
    assert "<b>no</b>" not in html
    assert "<script" not in html
    assert "script-src &#39;none&#39;" in html


def test_names_and_causes_cannot_drive_the_terminal(store: Path) -> None:
    cause = "\x1b[31mred\x1b]0;title\x07[bold]</script>"
    make_run(
        RunStore(store), "a", [Made(3, cause=cause), Made(3)], requested_ns=time.time_ns() - DAY
    )
    text = run("--fleet").output
    assert "\x1b" not in text
    assert "\x07" not in text
    assert "[bold]</script>" in text


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--fleet", "--last", "soon"), "not a duration"),
        (("--fleet", "--last", "0"), "more than 0 s"),
        (("--fleet", "--since", "yesterday"), "--since yesterday"),
        (("--fleet", "--last", "7d", "--since", "2026-01-01"), "not both"),
        (("--fleet", "--history", "x"), "--fleet takes a store"),
        (("--fleet", "--picture", "x.svg"), "a picture is of one run"),
        (("--fleet", "--price-per-chip-hour", "dear"), "give a number"),
        (("--capacity", "4", "x"), "for --fleet"),
        (("--fleet", "--capacity", "0"), "capacity"),
    ],
)
def test_what_cannot_be_meant(store: Path, words: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(report, words)
    assert result.exit_code != 0
    assert why in f"{result.output} {result.exception}"


def test_an_empty_store_and_none(store: Path, tmp_path: Path) -> None:
    assert "no runs in" in run("--fleet").output
    nowhere = tmp_path / "nowhere"
    assert f"there is no folder {nowhere};" in run("--fleet", str(nowhere)).output
    assert document()["runs"] == []


def test_time_in_which_a_person_kept_it_stopped_is_left_out_on_request(store: Path) -> None:
    now = time.time_ns()
    night = [Made(100, cause="stopped", pause_s=36_000.0), Made(100)]
    make_run(RunStore(store), "r", night, requested_ns=now - DAY)
    for _ in range(2):  # from the journals, and from what is kept of them
        whole, rest = document(), document("--without-stopped")
        shares = [told["fleet"]["all"]["goodput"] for told in (whole, rest)]
        assert shares == pytest.approx([2000 / 38_072, 2000 / 2_072], rel=1e-6)
        hours = [told["fleet"]["all"]["left_out_chip_hours"] for told in (whole, rest)]
        assert hours == [0, 40]
        assert [row["kind"] for row in whole["badput"]][:1] == ["stopped"]
        assert "stopped" not in {row["kind"] for row in rest["badput"]}
        (cost,), (less,) = whole["causes"], rest["causes"]
        assert cost["chip_hours"] - less["chip_hours"] == pytest.approx(4 * 10)
    assert "stopped by you, or done" in run("--fleet").output
    shown = run("--fleet", "--without-stopped").output
    assert "stopped by you, or done" not in shown
    assert "note: 40.0 chip-hours of being stopped are left out (--without-stopped)\n" in shown
    day = run("--fleet", "--without-stopped", "--last", "1h").output
    assert "being stopped" not in day  # in the last hour it was over
    page = store.parent / "fleet.html"
    assert run("--fleet", "--without-stopped", "--html", str(page)).exit_code == 0
    assert "40.0 chip-hours of being stopped are left out" in page.read_text()
    assert "being stopped" not in run("--fleet").output


def test_so_it_is_of_one_run(store: Path) -> None:
    night = [Made(100, cause="stopped", pause_s=36_000.0), Made(100)]
    make_run(RunStore(store), "r", night, requested_ns=time.time_ns() - DAY, ideal_step_s=5.0)
    whole, rest = (
        json.loads(run("r", "--json", *words).output) for words in ((), ("--without-stopped",))
    )
    assert whole["badput_s"].pop("stopped") == 36_000
    assert rest["badput_s"] == whole["badput_s"]
    assert rest["elapsed_s"] == pytest.approx(whole["elapsed_s"] - 36_000)
    assert rest["goodput"] == pytest.approx(2000 / 2_072, rel=1e-6)
    assert rest["program_goodput"] == whole["program_goodput"] == pytest.approx(0.5)
    assert whole["productivity_goodput"] == pytest.approx(1000 / 38_072, rel=1e-6)
    assert rest["productivity_goodput"] == pytest.approx(1000 / 2_072, rel=1e-6)
    shown = run("r", "--without-stopped").output
    assert "with program: 48.3 %, 16 min 40 s at best of 34 min 32 s paid" in shown
    assert "without 10 h of being stopped" in shown
    assert "being stopped" not in run("r").output


@pytest.mark.parametrize("after_s", [0, 1, 3 * 86_400])
def test_a_run_that_was_over_by_then_has_nothing_to_report(store: Path, after_s: int) -> None:
    _, end_ns = make_run(RunStore(store), "r", [Made(100)], requested_ns=time.time_ns() - 9 * DAY)
    asked = datetime.fromtimestamp(end_ns // S + 1 + after_s, UTC).isoformat()
    refused = run("r", "--since", asked)
    assert isinstance(refused.exception, ConfigurationError)
    assert f"--since {asked}: the run's time line is over by then: it ends at 20" in str(
        refused.exception
    )
    before = datetime.fromtimestamp(end_ns // S - 1000, UTC).isoformat()
    told = json.loads(run("r", "--since", before, "--json").output)
    assert 1000 <= told["elapsed_s"] <= 1001
