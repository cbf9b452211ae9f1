"""`holdfast ls` and `holdfast config`: the truth about each run and setting."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.config import config
from holdfast.cli.ls import ls
from holdfast.journal.attempts import AttemptEnd, AttemptRecord, create_attempt, end_attempt
from holdfast.journal.holder import RunHolder
from holdfast.journal.lease import LastWords, LeaseState, LeaseView, acquire
from holdfast.journal.store import RunStore
from holdfast.runs.state import SUPERVISOR_DIED, state_of

SCRATCH = {"parent": None, "resume_step": 0, "restore_set": None}


def run(command: object, *arguments: str) -> Result:
    result = CliRunner().invoke(command, arguments)
    assert result.exit_code == 0, result.output
    return result


@pytest.fixture
def populated(store: Path) -> Path:
    runs = RunStore(store)
    acquire(runs.create("alive"))
    for name, end in {
        "finished": AttemptEnd("done", "", (0,), 1),
        "broken": AttemptEnd("failed", "ValueError: [red]no[/]\nsecond line", (1,), 1),
        "paused": AttemptEnd("preempted", "notice from SIGTERM", (75,), 1),
        "orphan": None,
    }.items():
        folder = runs.create(name)
        create_attempt(folder, 0, **SCRATCH)
        if end:
            end_attempt(folder, 0, end)
    runs.create("fresh")
    return store


def test_every_state_is_told(populated: Path) -> None:
    found = json.loads(run(ls, "--json").stdout)
    assert found["store"] == str(populated)
    assert {row["name"]: row["state"] for row in found["runs"]} == {
        "alive": "running",
        "broken": "failed",
        "finished": "done",
        "fresh": "new",
        "orphan": "interrupted",
        "paused": "stopped",
    }
    assert found["problems"] == []
    rows = {row["name"]: row for row in found["runs"]}
    assert f"pid {os.getpid()} on host" in rows["alive"]["holder"]
    assert rows["orphan"]["attempts"] == 1
    assert rows["orphan"]["seen_unix_ns"] > 0
    assert rows["fresh"]["saved_step"] is None


def test_the_table_has_a_line_per_run(populated: Path) -> None:
    lines = run(ls).stdout.splitlines()
    broken = next(line for line in lines if line.startswith("broken"))
    assert "failed" in broken
    assert "ValueError: [red]no[/] second line" in broken
    assert sum(line.split(" ")[0] in os.listdir(populated) for line in lines) == 6  # noqa: PTH208 - names are all that is compared


def test_damage_is_said_and_hides_nothing(populated: Path) -> None:
    (populated / "fresh" / "run.json").write_text("{")
    (populated / "orphan" / "attempts" / "0000" / "attempt.json").write_text("[]")
    result = run(ls)
    assert "finished" in result.stdout
    assert result.stderr.count("is damaged") == 2
    assert len(json.loads(run(ls, "--json").stdout)["problems"]) == 2


def test_an_empty_store(tmp_path: Path) -> None:
    result = run(ls, "--store", str(tmp_path / "nothing"))
    assert f"there is no folder {tmp_path / 'nothing'};" in result.stdout
    assert not (tmp_path / "nothing").exists()
    assert "there are no runs in" in run(ls, "--store", str(tmp_path)).stdout
    assert json.loads(run(ls, "--json", "--store", str(tmp_path)).stdout)["runs"] == []


@pytest.mark.parametrize(
    ("lease", "end", "state"),
    [
        (LeaseState.HELD, None, "running"),
        (LeaseState.HELD, "failed", "running"),  # between two attempts
        (LeaseState.DEAD, None, "interrupted"),
        (LeaseState.RELEASED, "done", "done"),
        (LeaseState.RELEASED, "stopped", "stopped"),
        (LeaseState.DEAD, "killed", "failed"),
    ],
)
def test_states(lease: LeaseState, end: str | None, state: str) -> None:
    ended = AttemptEnd(end, "", (), 1) if end else None
    attempt = AttemptRecord(0, None, 0, None, 1, 1, 1, "", 0, end=ended)
    assert state_of(LeaseView(lease, 1, None, 0), attempt, 10**12)[0] == state


@pytest.mark.parametrize(
    ("restart_after_s", "alike", "words"),
    [
        (None, 0, ""),
        (0, 0, "restarting"),
        (300, 0, "restarting in 4.8 min"),
        (300, 8, "restarting in 4.8 min, 8 failures in the same way"),
        (5, 8, "restarting, 8 failures in the same way"),
    ],
)
def test_between_two_attempts_the_restart_is_told(
    restart_after_s: int | None, alike: int, words: str
) -> None:
    after_ns = None if restart_after_s is None else restart_after_s * 10**9
    ended = AttemptEnd("failed", "ValueError", (1,), 10**12, after_ns, alike)
    attempt = AttemptRecord(0, None, 0, None, 1, 1, 1, "", 0, end=ended)
    now_ns = 10**12 + 10 * 10**9
    assert state_of(LeaseView(LeaseState.HELD, 1, None, 0), attempt, now_ns) == ("running", words)
    died = "failed" if restart_after_s is None else "interrupted"
    assert state_of(LeaseView(LeaseState.DEAD, 1, None, 0), attempt, now_ns)[0] == died


@pytest.mark.parametrize(
    ("cause", "restart_after_ns", "exit_code", "state"),
    [
        ("failed", 60 * 10**9, 75, ("stopped", "Ctrl-C: nothing was running")),
        ("failed", None, 75, ("stopped", "Ctrl-C: nothing was running")),  # in its last save
        ("failed", 60 * 10**9, 69, ("failed", "Ctrl-C: nothing was running")),
        ("failed", None, 1, ("failed", "ValueError")),
        ("stopped", None, 75, ("stopped", "ValueError")),
    ],
)
def test_a_run_ended_as_its_supervisor_said(
    cause: str, restart_after_ns: int | None, exit_code: int, state: tuple[str, str]
) -> None:
    ended = AttemptEnd(cause, "ValueError", (1,), 10**12, restart_after_ns)
    attempt = AttemptRecord(0, None, 0, None, 1, 1, 1, "", 0, end=ended)
    told = LastWords(exit_code, "Ctrl-C: nothing was running")
    lease = LeaseView(LeaseState.RELEASED, 1, None, 0, told)
    assert state_of(lease, attempt, 10**12) == state


@pytest.mark.parametrize(
    ("told", "state"),
    [
        (None, ("interrupted", SUPERVISOR_DIED)),
        (LastWords(69, "make room"), ("failed", "make room")),
        (LastWords(75, "stopped"), ("stopped", "stopped")),
        (LastWords(0, "done"), ("done", "")),
    ],
)
def test_where_a_full_store_has_not_taken_the_end_the_supervisor_told_it(
    told: LastWords | None, state: tuple[str, str]
) -> None:
    attempt = AttemptRecord(0, None, 0, None, 1, 1, 1, "", 0)
    lease = LeaseView(LeaseState.RELEASED, 1, None, 0, told)
    assert state_of(lease, attempt, 10**12) == state


def test_a_supervisor_elsewhere_is_silent_after_a_while() -> None:
    far = replace(RunHolder.current(), boot_id="other")
    lease = LeaseView(LeaseState.UNKNOWN, 1, far, 10**12)
    assert state_of(lease, None, 10**12 + 5 * 10**9)[0] == "running"
    assert state_of(lease, None, 10**12 + 60 * 10**9)[0] == "silent"


def test_config_says_where_values_come_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "holdfast.toml").write_text("ranks = 2")
    monkeypatch.setenv("HOLDFAST_GRACE_S", "60")
    monkeypatch.setenv("HOLDFAST_RANK", "1")
    result = run(config)
    lines = {line.split()[0]: line for line in result.stdout.splitlines()}
    assert lines["ranks"].split("= ")[1].split() == ["2", "#", "holdfast.toml"]
    assert lines["grace_s"].endswith("# HOLDFAST_GRACE_S")
    assert "(the script's name)" in lines["name"]
    assert "HOLDFAST_RANK is not a variable of ours; did you mean HOLDFAST_RANKS?" in result.stderr
    entry = json.loads(run(config, "--json").stdout)["ranks"]
    assert entry == {"value": 2, "source": "file", "where": "holdfast.toml"}
