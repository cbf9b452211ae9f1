"""Runs as they may lie in a store: the list and a run's page say what is the matter, and go on."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from made_runs import Made, make_run
from under_way import UnderWay, under_way

from holdfast.cli.serve_look import Sights
from holdfast.core.alerts import AlertPolicy
from holdfast.errors import UnknownRun
from holdfast.journal.layout import CONTROLLER_RANK
from holdfast.journal.store import RunFolder, RunStore
from holdfast.serve.run_look import WAITING, RunLook
from holdfast.serve.runs_look import RunsLook

S = 1_000_000_000
VERSION_AT = 8  # of a journal's header: its lowest byte


@pytest.fixture
def made(store: Path) -> RunFolder:
    then_ns = time.time_ns() - 9000 * S
    return make_run(RunStore(store), "r", [Made(9, cause="killed"), Made(9)], requested_ns=then_ns)[
        0
    ]


def listed(store: Path) -> Any:
    return RunsLook(RunStore(store), cache=None, scratch=None)()


def page(store: Path, name: str = "r") -> RunLook:
    return RunLook(RunStore(store), name, Sights(None, None), AlertPolicy())


def make_newer(journal: Path) -> None:
    data = bytearray(journal.read_bytes())
    data[VERSION_AT] += 90
    journal.write_bytes(data)


def test_all_journals_are_of_a_newer_version(store: Path, made: RunFolder) -> None:
    for journal in made.path.rglob("*.hfj"):
        make_newer(journal)
    parts = page(store)()
    assert "format version" in parts["notes"]
    assert "0 steps kept" in parts["goodput"]
    found = listed(store)
    assert "row:r" in found
    assert "format version" in found["problems"]


def test_one_attempt_is_of_a_newer_version(store: Path, made: RunFolder) -> None:
    make_newer(next(made.attempt_journal_dir(1).glob("*.hfj")))
    parts = page(store)()
    assert "format version" in parts["notes"]
    assert "9 steps kept" in parts["goodput"]
    assert "format version" in listed(store)["problems"]


@pytest.mark.parametrize("left", [0.0, 0.3, 0.6, 0.99])
def test_a_run_half_written(store: Path, made: RunFolder, left: float) -> None:
    """A copy that is under way, in whatever order it comes."""
    for number, path in enumerate(sorted(made.path.rglob("*"))):
        if path.is_file() and path.name != "run.json" and number % 2:
            path.write_bytes(path.read_bytes()[: int(path.stat().st_size * left)])
    found = listed(store)
    assert "row:r" in found
    parts = page(store)()
    assert WAITING in parts or parts["head"]


def test_two_supervisors_that_both_write(store: Path) -> None:
    """As after a take-over that the first one did not notice: both are told, nothing is lost."""
    with under_way(store) as run:
        look = page(store)
        before = look()
        other = second_controller(run)
        run.fact("fault", attempt=0, at_ns=run.at_ns, detected_ns=run.at_ns, cause="killed")
        after = look()
        assert "30 steps kept" in before["goodput"]
        assert "30 steps kept" in after["goodput"]
        assert "row:r" in listed(store)
        other.close()


def second_controller(run: UnderWay) -> Any:
    other = run.make("journal/controller-000002.hfj", CONTROLLER_RANK)
    first, run.controller = run.controller, other
    run.fact("run", name="r", requested_ns=run.at_ns - 10 * S, chips=2)
    run.fact("attempt_start", attempt=0, at_ns=run.at_ns - 3 * S)
    run.controller = first
    return other


def test_a_run_that_becomes_another_is_read_anew(store: Path, made: RunFolder) -> None:
    look = page(store)
    assert "18 steps kept" in look()["goodput"]
    for path in sorted(made.path.rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    with pytest.raises(UnknownRun):
        look()
    made.path.rmdir()
    make_run(RunStore(store), "r", [Made(5)], requested_ns=time.time_ns() - 9000 * S)
    assert "5 steps kept" in look()["goodput"]


@pytest.mark.parametrize("name", ["a.b", "a+b", "_-", "x" * 128])
def test_names_that_are_odd_but_allowed(store: Path, name: str) -> None:
    make_run(RunStore(store), name, [Made(5)], requested_ns=time.time_ns() - 9000 * S)
    found = listed(store)
    assert json.loads(found["order"]) == [name]
    assert f'href="/run/{quote(name)}"' in found[f"row:{name}"]
    assert "5 steps kept" in page(store, name)()["goodput"]
