"""`holdfast replay`, on a journal that was made from a scenario's own inputs."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from holdfast.cli.main import cli
from holdfast.controller.journal import ControllerJournal
from holdfast.core import events as ev
from holdfast.core.run.machine import RunMachine, RunPolicy
from holdfast.journal.sidecar import sidecar_path
from holdfast.journal.store import RunStore
from holdfast.journal.writer import JournalWriter

S = 10**9


@pytest.fixture
def night(store: Path) -> Path:
    """The journal of a supervisor that was asked to stop before anything was launched."""
    folder = RunStore(store).create("night")
    live = folder.journal_dir / "controller-000001.hfj"
    live.parent.mkdir(parents=True, exist_ok=True)
    journal = ControllerJournal(
        JournalWriter.create(live, ControllerJournal.identity(folder, 1, "abc"))
    )
    machine = RunMachine(RunPolicy(ranks=2))
    journal.policy(RunPolicy(ranks=2), "0.0.9")
    for event in (ev.Opened(5 * S, 0), ev.StopAsked(6 * S, "SIGTERM", None, notice=True)):
        journal.event(event)
        journal.answered(machine.handle(event), event.at_ns)
    journal.close()
    return live


def said(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["replay", "night", *arguments])


def test_the_same_decisions(night: Path) -> None:
    result = said()
    assert (result.exit_code, result.output) == (0, "supervisor 1: 2 inputs: the same decisions\n")


def test_what_was_decided(night: Path) -> None:
    lines = said("--trace").output.splitlines()
    assert lines[:2] == ["    0.000  Opened", "             choose a set"]
    assert lines[2] == "    1.000  StopAsked by SIGTERM, deadline none"


def test_other_decisions(night: Path) -> None:
    text = sidecar_path(night)
    text.write_text(text.read_text().replace('"SIGTERM"', '"SIGTERN"'))
    result = said()
    assert result.exit_code == 1
    words = (
        "other decisions than were recorded, between StopAsked by SIGTERN, deadline none at 1.000"
    )
    assert f"supervisor 1: 2 inputs: {words} s and the end" in result.output
    assert "(recorded by Holdfast 0.0.9, decided again by" in result.output


def test_one_that_tells_no_policy(night: Path) -> None:
    text = sidecar_path(night)
    text.write_text(text.read_text().replace('"policy":{"policy"', '"polizy":{"policy"'))
    result = said()
    assert result.exit_code == 0
    assert "not decided again: its Holdfast did not write down by which policy" in result.output


def test_there_is_no_such_supervisor(night: Path) -> None:
    result = said("--supervisor", "7")
    assert "it has 1" in str(result.exception)
