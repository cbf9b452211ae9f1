"""What is exported of made runs: names, labels and values; and what lies there may be anything."""

from __future__ import annotations

import json
import math
import os
import re
import shutil
import struct
import sys
import time
from importlib.resources import files
from pathlib import Path

import pytest
from click.testing import CliRunner

from holdfast.cli import exporting
from holdfast.cli.export import export
from holdfast.core.exits import LOSS_CAUSES
from holdfast.core.ledger.summary import ALL, RunSummary, Spent
from holdfast.export.asked import AskedExporters
from holdfast.export.loop import Exporters
from holdfast.export.metrics import CAUSES, FLEET, HOST_STATES, METRICS, OWN, PREFIX
from holdfast.export.outlet import ExportLook
from holdfast.export.prometheus import RunCollector
from holdfast.export.sample import CUSTOM_SHOWN, Sample
from holdfast.export.served import as_text
from holdfast.journal.store import RunStore
from holdfast.runs.listing import RunList

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))  # --import-mode=importlib leaves it out
from made_runs import Made, make_run

sys.path.pop(0)
S = 1_000_000_000
LINE = re.compile(r"^(\w+)(?:\{(.*)\})? (\S+)$")


@pytest.fixture(autouse=True)
def _mirror(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_MIRROR", str(tmp_path / "mirror"))


def printed(*words: str) -> dict[str, float]:
    result = CliRunner().invoke(export, ["--prometheus", "--once", *words])
    assert result.exit_code == 0, result.output
    found = {}
    for line in result.stdout.splitlines():
        if not line.startswith("#"):
            form = LINE.match(line)
            assert form is not None, line
            labels = ",".join(sorted(re.findall(r'\w+="(?:[^"\\]|\\.)*"', form[2] or "")))
            found[f"{form[1]}{{{labels}}}"] = float(form[3])
    return found


def filled(store: Path) -> RunStore:
    runs = RunStore(store)
    attempts = [Made(100, cause="killed"), Made(200)]
    now = time.time_ns()
    make_run(runs, "a", attempts, requested_ns=now - 7200 * S, chips=8, ideal_step_s=8)
    make_run(runs, "b", [Made(10)], requested_ns=now - 20 * 86_400 * S)
    return runs


def age(place: Path) -> None:
    """All files below were written an hour ago, so that a summary of them is kept."""
    at_ns = time.time_ns() - 3600 * S
    for path in (*place.rglob("*"), place):
        os.utime(path, ns=(at_ns, at_ns))


def test_numbers_of_a_store(store: Path) -> None:
    filled(store)
    found = printed()
    assert found['holdfast_run_state{run="a",state="done"}'] == 1
    assert found['holdfast_chips{run="a"}'] == 8
    assert found['holdfast_program_goodput_ratio{run="a",window="all"}'] == 0.8
    assert not any("program" in key and 'run="b"' in key for key in found)
    assert found['holdfast_incidents_total{cause="killed",run="a"}'] == 1
    assert found['holdfast_incidents_total{cause="hang",run="a"}'] == 0  # there before the first
    assert found['holdfast_step_seconds{run="b",window="all"}'] == 10
    kinds = sum(v for k, v in found.items() if "badput" in k and 'run="a",window="all"' in k)
    productive = found['holdfast_productive_seconds{run="a",window="all"}']
    elapsed = found['holdfast_elapsed_seconds{run="a",window="all"}']
    assert kinds + productive == pytest.approx(elapsed)
    assert 'holdfast_goodput_ratio{run="b",window="7d"}' not in found  # it was over before
    chip_seconds = found['holdfast_fleet_chip_seconds{window="all"}']
    b = found['holdfast_elapsed_seconds{run="b",window="all"}']
    assert chip_seconds == pytest.approx(8 * elapsed + 4 * b)
    one = printed("a")
    assert one['holdfast_chips{run="a"}'] == 8
    assert not any("fleet" in key or 'run="b"' in key for key in one)


def test_what_a_device_promises_and_what_it_reaches(store: Path) -> None:
    told = {
        "flops": 4 * 10**15, "left_out": [], "device": "chip", "devices": 4, "dtype": "bf16",
        "chip": "chip", "peak_flops": 10**15, "reached_flops": 8 * 10**14,
        "reached_dtype": "bf16", "reached_bytes": 0, "reached_on": "2026-11-26",
    }  # fmt: skip
    now = time.time_ns()
    make_run(RunStore(store), "a", [Made(10)], requested_ns=now - 3600 * S, told=told)
    found = printed()
    assert found['holdfast_peak_flops{run="a"}'] == 10**15
    assert found['holdfast_reached_flops{run="a"}'] == 8 * 10**14
    assert found['holdfast_program_goodput_ratio{run="a",window="all"}'] == 0.1
    assert found['holdfast_program_goodput_of_reached_ratio{run="a",window="all"}'] == 0.125
    assert found['holdfast_fleet_program_goodput_of_reached_ratio{window="all"}'] == 0.125


def test_names_cannot_break_out_of_a_label() -> None:
    name = 'a"}\n# HELP <script>\\\x1b[31m'
    kinds = {"step": 10, f"custom:{name}": 5}
    run = RunSummary(
        name, "1", "done", chips=1, within={ALL: Spent(kinds, steps_kept=1, wall_ns=15)}
    )
    collector = RunCollector(dict)
    collector.put(ExportLook((Sample(run, 1.0),), (run,)))
    text = as_text(collector, "this test").decode()
    values = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(LINE.match(line) for line in values)
    assert sum(line.startswith("# HELP") for line in text.splitlines()) == len(METRICS) + len(OWN)


def test_hosts_are_counted_by_state() -> None:
    run = RunSummary("r", "1", "running", chips=1)
    collector = RunCollector(dict)
    sample = Sample(run, 1.0, hosts={"assigned": 3, "lost": 1}, clock_bound_s=0.25)
    collector.put(ExportLook((sample,), (run,)))
    lines = as_text(collector, "this test").decode().splitlines()
    told = {line for line in lines if line.startswith("holdfast_host")}
    assert 'holdfast_hosts{host_state="assigned",run="r"} 3.0' in told
    assert 'holdfast_hosts{host_state="spare",run="r"} 0.0' in told
    assert 'holdfast_host_clock_bound_seconds{run="r"} 0.25' in told
    assert len(told) == len(HOST_STATES) + 1
    collector.put(ExportLook((Sample(run, 1.0),), (run,)))
    assert "holdfast_hosts{" not in as_text(collector, "this test").decode()


def test_the_scripts_own_numbers() -> None:
    """Their names may be any; what is no number is told as that."""
    run = RunSummary("r", "1", "done", metrics={'a"} loss': math.nan})
    collector = RunCollector(dict)
    collector.put(ExportLook((Sample(run, 1.0),), (run,)))
    lines = as_text(collector, "this test").decode().splitlines()
    told = [line for line in lines if line.startswith("holdfast_metric{")]
    assert told == ['holdfast_metric{name="a\\"} loss",run="r"} NaN']
    assert all(LINE.match(line) for line in told)


def test_labels_are_bounded_in_number() -> None:
    kinds = {"step": 10, **{f"custom:{number}": number + 1 for number in range(1000)}}
    run = RunSummary(
        "a", "1", "done", chips=1, within={ALL: Spent(kinds, wall_ns=sum(kinds.values()))}
    )
    shown = Sample(run, 1.0).badput_s()
    assert len(shown) == CUSTOM_SHOWN + 1
    assert sum(shown.values()) * S == pytest.approx(sum(range(1, 1001)))
    assert len(Sample(run, 1.0).badput_by_type_s()) < 30
    long = RunSummary(
        "a", "1", "done", chips=1, within={ALL: Spent({"custom:" + "x" * 9999: 5}, wall_ns=5)}
    )
    assert max(map(len, Sample(long, 1.0).badput_s())) <= 120
    assert len(CAUSES) < 30
    assert {*LOSS_CAUSES} <= {*CAUSES}  # a machine that was preempted is not `other`


def test_what_lies_there_may_be_anything(store: Path) -> None:
    runs = filled(store)
    (store / "torn").mkdir()
    (store / "torn" / "run.json").write_text("{")
    journal = next(runs.get("b").journal_dir.glob("*.hfj"))
    data = bytearray(journal.read_bytes())
    data[8:16] = struct.pack("<Q", 99)
    journal.write_bytes(data)
    said: list[str] = []
    listing = RunList(runs)
    exporters = Exporters(listing, AskedExporters(), said.append, is_fleet=True)
    try:
        look = exporters.look()
        assert look is not None
        assert {sample.run.name for sample in look.samples} == {"a", "b"}
        assert len(look.problems) >= 2
        shutil.rmtree(store / "a")
        assert {s.run.name for s in exporters.look().samples} == {"b"}  # type: ignore[union-attr]
        shutil.rmtree(store)
        (store.parent / "file").write_text("")
        (store.parent / "file").rename(store)
        assert exporters.look() is None
        assert exporters.look() is None
        assert len(said) == 1  # said once, and looked again
        store.unlink()
        store.mkdir()
        assert exporters.look() is not None
    finally:
        exporters.close()


def test_rules_and_dashboard_name_what_there_is() -> None:
    place = files("holdfast.export").joinpath("files")
    rules, board = (place.joinpath(n).read_text() for n in ("rules.yml", "dashboard.json"))
    known = {m.full_name for m in FLEET}
    for name, kind, *_ in (*METRICS, *OWN):
        known.add(f"{PREFIX}{name}{'_total' if kind == 'counter' else ''}")
    for text in (rules, " ".join(_expressions(json.loads(board)))):
        assert set(re.findall(r"\bholdfast_\w+", text)) <= known
    recorded = set(re.findall(r"record: (\S+)", rules))
    assert set(re.findall(r"\bholdfast:[\w:]+", board)) <= recorded
    for text, flag in ((rules, "--rules"), (board, "--dashboard")):
        assert CliRunner().invoke(export, [flag]).stdout == text


def _expressions(board: dict[str, list[dict[str, list[dict[str, str]]]]]) -> list[str]:
    return [t["expr"] for panel in board["panels"] for t in panel.get("targets", ())]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ((), "name what to export"),
        (("--history",), "takes one run"),
        (("--history", "--prometheus", "a"), "name what to export"),
        (("--port", "1"), "name what to export"),
        (("--tensorboard", "x", "--port", "1"), "--port is for --prometheus"),
        (("--prometheus", "--port", "70000"), "70000"),
        (("--prometheus", "--out", "x"), "--out takes"),
        (("--gcp", "p"), "project and zone"),
        (("--prometheus", "nobody"), "no run is named"),
    ],
)
def test_what_cannot_be_meant(store: Path, words: tuple[str, ...], why: str) -> None:
    result = CliRunner().invoke(export, words)
    assert result.exit_code != 0
    assert why in f"{result.output} {result.exception}"


def test_a_run_that_is_named_is_read_whatever_is_kept_of_it(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(store)
    monkeypatch.setattr(exporting, "summaries_folder", lambda: pytest.fail("has no curves"))
    assert 'holdfast_step{run="a"}' in printed("a")


def test_all_runs_have_the_scripts_own_numbers_where_summaries_are_kept(
    store: Path, tmp_path: Path
) -> None:
    filled(store)
    age(store)
    first, again = printed(), printed()
    assert any((tmp_path / "mirror").rglob("summaries/*.json"))
    for found in (first, again):
        assert found['holdfast_metric{name="loss",run="a"}'] == pytest.approx(1 / 300)
        assert found['holdfast_metric{name="loss",run="b"}'] == pytest.approx(1 / 10)
    words = ["--tensorboard", str(tmp_path / "board"), "--once"]
    assert CliRunner().invoke(export, words).exit_code == 0
    told = {path.parent.parent.name for path in (tmp_path / "board").glob("*/metrics/events*")}
    assert told == {"a", "b"}


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    words = ["--prometheus", "--once", "--store", str(tmp_path / "nowhere")]
    result = CliRunner().invoke(export, words)
    assert (result.exit_code, result.stderr) == (
        0, f"holdfast: ! there is no folder {tmp_path / 'nowhere'}\n"
    )  # fmt: skip


def test_once_says_whether_it_was_delivered(store: Path, tmp_path: Path) -> None:
    filled(store)
    assert (
        CliRunner().invoke(export, ["--tensorboard", str(tmp_path / "a"), "--once"]).exit_code == 0
    )
    assert sorted(path.name for path in (tmp_path / "a").iterdir()) == ["a", "b"]
    (tmp_path / "file").write_text("")
    words = ["--tensorboard", str(tmp_path / "file"), "--once"]
    assert CliRunner().invoke(export, words).exit_code == 69
