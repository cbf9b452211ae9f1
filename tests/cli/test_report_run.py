"""`holdfast report` and `export` on a run that was killed once, failed once, and is done."""

from __future__ import annotations

import json
import shutil
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from processes import EXIT_DONE, House

import holdfast
from holdfast.cli.main import main
from holdfast.journal.incidents import story_of, write_incident
from holdfast.journal.quarantine import put_in_quarantine, release
from holdfast.journal.store import RunStore
from holdfast.snapshot.sets import commit, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

sys.path.insert(0, str(Path(__file__).parents[1] / "runs"))  # --import-mode=importlib leaves it out
from made_runs import Made, make_run

sys.path.pop(0)

SCRIPT = """
import os, pathlib, signal, sys
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: np.zeros(4))
for step in run.steps(30):
    state = state + 1
    run.done(step, state)
    if step == 12 and run.attempt == 0:
        os.kill(os.getpid(), signal.SIGKILL)
    if step == 20 and run.attempt == 1:
        print("the last words", flush=True)
        raise ValueError("an error that was asked for")
"""
ERROR = "ValueError: an error that was asked for"


@pytest.mark.contract("report: of a run that really happened")
def test_of_a_run_that_really_happened(house: House) -> None:
    command = (sys.executable, house.script(SCRIPT))
    house.holdfast("run", "--name", "r", "--save-every", 5, "--", *command).wait(EXIT_DONE)
    told(house.command("report", "r"))
    report = json.loads(house.command("report", "r", "--json"))
    holds_together(report)
    assert report["incidents"][0]["lost_steps"] <= 12


def told(text: str) -> None:
    """What the screen says."""
    assert text.startswith("r · done · 3 attempts · 1 chip")
    assert "30 steps kept" in text
    assert "2 disruptions" in text
    assert "killed by SIGKILL" in text
    assert ERROR in text


def holds_together(report: dict[str, Any]) -> None:
    """The document's parts agree."""
    assert report["steps_kept"] == 30
    assert report["productive_s"] + sum(report["badput_s"].values()) == pytest.approx(
        report["elapsed_s"], abs=1e-6
    )
    killed, failed = report["incidents"]
    assert (killed["attempt"], killed["cause"], killed["exits"]) == (0, "killed", [-9])
    assert (failed["attempt"], failed["cause"], failed["exits"]) == (1, "failed", [1])
    assert "the last words" in failed["last_lines"]
    assert "an error that was asked for" in failed["traceback"]
    assert report["lost_steps"] == killed["lost_steps"] + failed["lost_steps"]
    assert report["run"]["state"] == "done"
    assert report["run"]["attempts"] == 3
    assert report["checkpoints"][-1]["step"] == 30
    assert report["notes"] == []


@dataclass(frozen=True)
class Happened:
    """A store with one finished run in it, named r."""

    store: Path
    folder: Path

    def call(self, capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as exit_:
            main([*map(str, words), "--store", str(self.store)])
        assert isinstance(exit_.value.code, int)
        return exit_.value.code, *capsys.readouterr()


@pytest.fixture(scope="module")
def happened(tmp_path_factory: pytest.TempPathFactory) -> Happened:
    """The same, as its processes would have written it."""
    folder = tmp_path_factory.mktemp("happened")
    attempts = [Made(12, cause="killed", lost=2), Made(10, cause="failed", lost=5), Made(15)]
    run, _ = make_run(
        RunStore(folder / "store"), "r", attempts, chips=1, requested_ns=time.time_ns() - 10**13
    )
    write_incident(run, 0, story_of(0, "killed", "killed by SIGKILL", exits=(-9,), rank=0))
    where = f'File "{folder}/train.py", line 16'
    story = story_of(
        1,
        "failed",
        f"{ERROR} at {folder}/train.py:16",
        exits=(1,),
        rank=0,
        last_lines=("did 20", "the last words"),
        traceback=f"Traceback (most recent call last):\n  {where}, in <module>\n{ERROR}",
    )
    write_incident(run, 1, story)
    place = run.ckpt_dir / set_name(2, 30)
    captured = Staging().capture({"state": 30}, 0, 1)
    write_shard(place, captured, attempt=2, step=30, rank=0, world_size=1)
    captured.release()
    commit(place, 1)
    return Happened(folder / "store", folder)


def test_the_report_tells_what_happened(
    happened: Happened, capsys: pytest.CaptureFixture[str]
) -> None:
    code, text, err = happened.call(capsys, "report", "r")
    assert (code, err) == (0, "")
    told(text)
    report = json.loads(happened.call(capsys, "report", "r", "--json")[1])
    holds_together(report)
    assert report["lost_steps"] == 7


def test_hosts_in_quarantine_are_told_of(
    happened: Happened, capsys: pytest.CaptureFixture[str]
) -> None:
    run = RunStore(happened.store).get("r")
    put_in_quarantine(run, 1, "lost or failed 3 times", is_automatic=True)
    try:
        _, text, _ = happened.call(capsys, "report", "r")
        _, data, _ = happened.call(capsys, "report", "r", "--json")
    finally:
        release(run, 1)
    words = "host 1 is in quarantine (lost or failed 3 times), by the run itself"
    assert words in " ".join(text.split())
    assert json.loads(data)["notes"] == [words]


def test_paths_are_shown_from_where_one_stands(
    happened: Happened, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert str(happened.folder) in happened.call(capsys, "report", "r")[1]
    monkeypatch.chdir(happened.folder)
    text = happened.call(capsys, "report", "r")[1]
    assert str(happened.folder) not in text
    assert 'File "train.py", line' in text
    assert str(happened.folder) in happened.call(capsys, "report", "r", "--json")[1]


def test_an_exported_history_says_the_same(
    happened: Happened, capsys: pytest.CaptureFixture[str]
) -> None:
    file = happened.folder / "history.jsonl"
    assert happened.call(capsys, "export", "r", "--history", "--out", file)[0] == 0
    assert not list(happened.folder.glob("*.part"))
    _, of_run, _ = happened.call(capsys, "report", "r", "--json")
    with pytest.raises(SystemExit):
        main(["report", "--history", str(file), "--json"])
    of_file = json.loads(capsys.readouterr().out)
    run = json.loads(of_run)
    for key in ("goodput", "elapsed_s", "productive_s", "steps_kept", "lost_steps", "badput_s"):
        assert of_file[key] == pytest.approx(run[key], abs=1e-6), key
    assert [d["cause"] for d in of_file["disruptions"]] == ["killed", "failed"]
    _, printed, _ = happened.call(capsys, "export", "r", "--history")
    assert sorted(printed.splitlines()) == sorted(file.read_text().splitlines())


def test_now_is_the_past_and_a_window_its_end(
    happened: Happened, capsys: pytest.CaptureFixture[str]
) -> None:
    _, text, _ = happened.call(capsys, "report", "r", "--json")
    whole = json.loads(text)
    end_s = whole["disruptions"][0]["at_s"] - whole["start_s"]
    _, text, _ = happened.call(capsys, "report", "r", "--json", "--now", end_s)
    before = json.loads(text)
    assert before["elapsed_s"] == pytest.approx(end_s, abs=1e-6)
    assert before["steps_kept"] == 12
    _, text, _ = happened.call(capsys, "report", "r", "--json", "--window", "0.25")
    assert json.loads(text)["elapsed_s"] == pytest.approx(0.25)
    code, _, err = happened.call(capsys, "report", "r", "--now", "2026-13-01")
    assert (code, err.count("\n")) == (78, 1)


@pytest.mark.parametrize("command", [["report", "nope"], ["export", "nope", "--history"]])
def test_an_unknown_run(
    command: list[str], happened: Happened, capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = happened.call(capsys, *command)
    assert (code, out) == (78, "")
    assert "no run is named 'nope'" in err


def test_a_damaged_incident_is_a_note(
    happened: Happened, capsys: pytest.CaptureFixture[str]
) -> None:
    incident = next((happened.store / "r/attempts/0000/incidents").glob("*.json"))
    whole = incident.read_bytes()
    try:
        incident.write_bytes(whole[:-20])
        code, text, _ = happened.call(capsys, "report", "r")
    finally:
        incident.write_bytes(whole)
    assert code == 0
    assert "note: " in text
    assert "incident" in text[text.index("note: ") :]
    assert "30 steps kept" in text


def test_a_run_that_recorded_nothing(
    happened: Happened, capsys: pytest.CaptureFixture[str]
) -> None:
    RunStore.at(happened.store).create("empty")
    commands = ["report empty", "export empty --history", "plan --from-run empty"]
    for command in map(str.split, commands):
        code, out, err = happened.call(capsys, *command)
        assert (code, out) == (69, "")
        assert err.count("\n") == 1


def test_a_plan_from_what_happened(
    happened: Happened, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    code, text, err = happened.call(capsys, "plan", "--from-run", "r", "--json")
    plan = json.loads(text)
    fitted = {one["name"]: one for one in plan["fitted"]}
    assert (code, err, plan["hosts"], plan["chips"]) == (0, "", 1, 1)
    assert fitted["mtbf"]["words"].startswith("2 failures in ")
    assert fitted["mtbf"]["low"] < plan["mtbf_s"] < fitted["mtbf"]["high"]
    assert fitted["host-share"]["words"] == "0 of 2 failures"
    assert fitted["restart"]["observed"] == 2
    assert 0 < fitted["restart"]["value"] < plan["mtbf_s"] * 2
    assert plan["goodput_low"] < plan["goodput"] < plan["goodput_high"]
    # On a quick machine it was over before any save was due.
    assert plan["assumed"] in ([], ["It made no save: saves are taken to block nothing."])
    given = ("--mtbf", "3h", "--restart", "60", "--step", "1")
    text = happened.call(capsys, "plan", "--from-run", "r", *given)[1]
    assert "failures in" not in text
    assert "0 of 2 failures" in text
    asked = ("simulate", "--from-run", "r", *given, "--days", "0.1", "--json")
    simulated = json.loads(happened.call(capsys, *asked)[1])
    assert "host-share" in {one["name"] for one in simulated["fitted"]}
    history = tmp_path / "r.jsonl"
    happened.call(capsys, "export", "r", "--history", "--out", history)
    again = json.loads(happened.call(capsys, "plan", "--from-run", history, "--json")[1])
    assert again["mtbf_s"] == pytest.approx(plan["mtbf_s"], rel=1e-6)
    assert {one["name"] for one in again["fitted"]} >= {"restart", "step"}


def test_a_plan_from_no_run_there_is(
    happened: Happened, capsys: pytest.CaptureFixture[str]
) -> None:
    assert happened.call(capsys, "plan", "--from-run", "nope")[0] == 78
    nothing = happened.folder / "nothing.jsonl"
    nothing.write_text('{"event": "run", "name": "r", "requested": 0, "ended": null, "chips": 1}\n')
    code, out, err = happened.call(capsys, "plan", "--from-run", nothing)
    assert (code, out) == (78, "")
    assert "says how often the run fails" in err
    assert "there is no history file" in happened.call(capsys, "plan", "--from-run", "n.jsonl")[2]


def test_a_page_of_a_run(
    happened: Happened, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    page = tmp_path / "r.html"
    assert happened.call(capsys, "report", "r", "--html", page) == (0, "", "")
    text = page.read_text()
    assert "ValueError: an error that was asked for" in text
    assert "the last words" in text
    assert "step 30" in text  # what the newest checkpoint holds
    assert "rank 0" in text


def test_journals_that_are_too_new_are_named(
    happened: Happened, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    store = tmp_path / "store"
    shutil.copytree(happened.store, store)
    for path in store.glob("r/attempts/*/journal/*.hfj"):
        data = bytearray(path.read_bytes())
        data[8:16] = (99).to_bytes(8, "little")
        path.write_bytes(data)
    page = tmp_path / "r.html"
    code, _, err = Happened(store, tmp_path).call(capsys, "report", "r", "--html", page)
    assert (code, err) == (0, "")
    assert "was written by format version 99; this Holdfast reads up to" in page.read_text()


def test_a_notebook_shows_the_same_charts(happened: Happened) -> None:
    run = holdfast.look("r", store=str(happened.store))
    assert run.account.steps_kept == 30
    assert repr(run).startswith("<Look at r: goodput ")
    timeline = run.timeline().to_dict()
    assert timeline["params"][0]["bind"] == "scales"  # it zooms
    kinds = {row["what"] for rows in timeline["datasets"].values() for row in rows}
    assert {"step", "lost", "startup"} <= kinds
    assert run.badput().to_dict()["title"]["text"] == "Where the time went"
    assert run.step_times().to_dict()["title"]["text"] == "Step time"
