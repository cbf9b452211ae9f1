"""Going back: asked from outside or by the script, and granted once.

What a supervisor makes of it stands in tests/scenarios: while it trains, stops or waits, with
several ranks that give up, and when it is killed around the request.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from processes import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_SAVED,
    FAR,
    House,
    Process,
    expected_digest,
    step_of,
)


def attempt(house: House, number: int, name: str = "r") -> Mapping[str, Any]:
    """What is on record of an attempt."""
    path = house.store / name / "attempts" / f"{number:04d}" / "attempt.json"
    return dict(json.loads(path.read_text()))


def end(house: House, number: int) -> Mapping[str, Any]:
    """How an attempt ended."""
    path = house.store / "r" / "attempts" / f"{number:04d}" / "end.json"
    return dict(json.loads(path.read_text()))


def requests(house: House) -> list[Path]:
    """What lies in the inbox."""
    return sorted((house.store / "r" / "control").glob("*.json"))


# Saved is what SAVE_AT says, and nothing else, in memory neither.
KEEP_ALL = ("--keep", 100, "--save-every", FAR, "--snapshot-every", FAR)
SAVE_AT = "3,5,8"


def at_step_8(house: House) -> Process:
    """A run that has saved steps 3, 5 and 8, and waits after that one; gone back, after step 5."""
    house.allow(8)
    run = house.run(*KEEP_ALL, steps=FAR, SAVE_AT=SAVE_AT)
    run.saw("did 8$")
    house.eventually(lambda: [step_of(path) for path in house.sets()] == [3, 5, 8])
    house.allow(5)  # else a new branch would come to step 8, and save it
    return run


def go_back(house: House, *words: object) -> str:
    return house.command("rollback", "r", *words)


def ends_like(house: House, run: Process, skips: Mapping[int, int]) -> None:
    """Stop the run, and let it go on to its end: as if these batches had never been there."""
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    until = house.saved_step() + 5
    out = house.run(*KEEP_ALL, steps=until).wait(EXIT_DONE)
    assert f"final {expected_digest(until, skips)}" in out


@pytest.mark.real
def test_a_run_that_trains_goes_back_and_skips(house: House) -> None:
    run = at_step_8(house)
    out = go_back(house, "--to", 5, "--skip-batches", 3)
    assert "asked run 'r' to go back to checkpoint 0000-000000000005 (step 5), skipping 3" in out
    run.saw("from 5$")
    house.allow(12)
    run.saw("did 12")
    record = attempt(house, 1)
    assert (record["parent"], record["resume_step"], record["skip_batches"]) == (0, 5, 3)
    assert "holdfast rollback by" in record["rollback"]["words"]
    assert end(house, 0)["cause"] == "rolled_back"
    house.eventually(lambda: not requests(house))
    ends_like(house, run, {5: 3})
    report = house.holdfast("report", "r").wait(EXIT_DONE)
    assert "attempt 1 rolled back to step 5 of attempt 0, skipping 3 batches" in report
    document = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    assert document["lost_steps"] == 3
    assert [d["cause"] for d in document["disruptions"]] == ["rolled_back", "preempted"]
    assert document["disruptions"][0]["lost_steps"] == 3
    assert document["rollbacks"][0] | {"why": ""} == {
        "attempt": 1,
        "step": 5,
        "of_attempt": 0,
        "skip_batches": 3,
        "why": "",
    }


# --- asked of a run that no supervisor has: the next start of its script goes back --------------

# Saved is what SAVE_AT says, and nothing else.
SAVED = {"SAVE_AT": SAVE_AT, "HOLDFAST_KEEP_LAST": 100, "HOLDFAST_SAVE_EVERY_STEPS": FAR}


def saved(house: House, steps: int = 9) -> House:
    """A run that has saved steps 3, 5, 8 and its last."""
    house.alone_here(steps, **SAVED)
    return house


def test_what_was_given_up_never_comes_back(house: House) -> None:
    go_back(saved(house), "--to", 6)
    assert "from 5\n" in house.alone_here(9, CRASH_AT=6, code=EXIT_FAILED)  # nothing is saved
    out = house.alone_here(7, **SAVED)
    assert "from 5\n" in out
    assert f"final {expected_digest(7)}" in out
    listed = json.loads(house.command("ckpt", "ls", "r", "--json"))
    states = {row["name"]: row["state"] for row in listed["checkpoints"]}
    assert states["0000-000000000005"] == "good"
    assert states["0000-000000000008"] == states["0000-000000000009"] == "abandoned"


def test_the_skip_is_repeated_until_the_branch_has_a_checkpoint(house: House) -> None:
    go_back(saved(house), "--to", 5, "--skip-batches", 2)
    house.alone_here(9, CRASH_AT=6, code=EXIT_FAILED)
    assert "from 5\n" in house.alone_here(10, **SAVED)
    assert attempt(house, 2)["skip_batches"] == 2
    assert attempt(house, 2)["rollback"] is None
    out = house.alone_here(14)
    assert f"final {expected_digest(14, {5: 2})}" in out
    assert attempt(house, 3)["skip_batches"] == 0


def before_the_last(trained: House) -> int:
    """The step of the second newest set."""
    return step_of(trained.sets()[-2])


def test_it_waits_for_the_next_start(trained: House) -> None:
    step = before_the_last(trained)
    assert "at its next start" in go_back(trained, "--to", step)
    assert f"goes back to step {step} at its next start" in trained.command("ls")
    out = trained.alone_here(step + 5)
    assert f"from {step}\n" in out
    assert f"final {expected_digest(step + 5)}" in out
    assert requests(trained) == []


def test_to_scratch_only_when_asked(trained: House) -> None:
    out = trained.command("rollback", "r", "--to", "best", code=EXIT_CONFIGURATION)
    assert "no checkpoint of the lineage is tagged best" in out
    go_back(trained, "--to", 0, "--skip-batches", 1)
    out = trained.alone_here(5)
    assert "from 0\n" in out
    assert f"final {expected_digest(5, {0: 1})}" in out


def test_to_a_tag(trained: House) -> None:
    step = before_the_last(trained)
    trained.command("ckpt", "pin", "r", step, "good")
    go_back(trained, "--to", "good")
    out = trained.alone_here(step + 5)
    assert f"from {step}\n" in out
    assert f"final {expected_digest(step + 5)}" in out


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("--to", "x/y"), "no checkpoint of the lineage is tagged x/y"),
        (("--to", "-5"), "is tagged -5"),
        (("--to", "1000", "--skip-batches", "-1"), "whole number"),
        ((), "--to"),
    ],
)
def test_bad_requests(trained: House, words: tuple[str, ...], told: str) -> None:
    out = trained.command("rollback", "r", *words, code=EXIT_CONFIGURATION)
    assert told in out
    assert len(out.splitlines()) == 1
    assert requests(trained) == []


def test_a_run_that_never_saved_has_nowhere_to_go_back_to(house: House) -> None:
    house.alone_here(5, CRASH_AT=2, HOLDFAST_SAVE_EVERY_STEPS=FAR, code=EXIT_FAILED)
    out = house.command("rollback", "r", "--to", 5, code=EXIT_CONFIGURATION)
    assert "has no checkpoint to go back to" in out


# --- the script's own wish ----------------------------------------------------------------------


def fails_once(house: House, **env: object) -> dict[str, object]:
    return {"FAIL_ONCE": house.folder / "failed", **env}


@pytest.mark.contract("rollback")
def test_the_script_gives_up_and_goes_back(house: House) -> None:
    env = fails_once(house, SAVE_AT=SAVE_AT, FAIL_AT=9, FAIL_TO=5, FAIL_SKIP=4)
    out = house.run(*KEEP_ALL, steps=14, **env).wait(EXIT_DONE)
    assert "swallowed" not in out
    assert "The script gave up: loss is NaN" in out
    assert "back to step 5, skipping 4 batches: loss is NaN" in out
    assert f"final {expected_digest(14, {5: 4})}" in out
    assert end(house, 0)["cause"] == "failed"
    assert end(house, 0)["words"] == "loss is NaN"
    report = house.holdfast("report", "r").wait(EXIT_DONE)
    assert "attempt 1 rolled back to step 5 of attempt 0, skipping 4 batches: loss is NaN" in report
    assert "trainer.py" in report
    assert "DeclaredFailure: loss is NaN" in report


def test_a_plain_failure_goes_on_from_the_newest(house: House) -> None:
    house.alone_here(8, **SAVED, **fails_once(house, FAIL_AT=6), code=EXIT_FAILED)
    out = house.alone_here(8)
    assert "from 5\n" in out
    assert f"final {expected_digest(8)}" in out


def test_nothing_old_enough_is_said_and_nothing_else_is_chosen(house: House) -> None:
    env = fails_once(house, FAIL_AT=8, FAIL_TO=2)
    house.alone_here(12, **SAVED, **env, code=EXIT_FAILED)
    for _ in range(2):
        out = house.alone_here(12, code=EXIT_CONFIGURATION)
        assert "loss is NaN: no checkpoint of the lineage is as old as step 2" in out
        assert "the lineage has steps 3, 5" in out
    go_back(house, "--to", 3)
    assert f"final {expected_digest(12)}" in house.alone_here(12)


def test_the_script_gives_up_and_its_next_start_goes_back(house: House) -> None:
    env = fails_once(house, FAIL_AT=9, FAIL_TO=5, FAIL_SKIP=2)
    out = house.alone_here(14, **SAVED, **env, code=EXIT_FAILED)
    assert "swallowed" not in out
    assert "The script gave up: loss is NaN" in out
    assert end(house, 0)["words"] == "loss is NaN"
    out = house.alone_here(14)
    assert "back to step 5, skipping 2 batches: loss is NaN" in out
    assert f"final {expected_digest(14, {5: 2})}" in out
    assert attempt(house, 1)["rollback"]["to"] == 5
    assert "from 14\n" in house.alone_here(14)


def test_a_request_is_granted_once(house: House) -> None:
    go_back(saved(house), "--to", 6, "--skip-batches", 2)
    out = house.alone_here(9)
    assert "from 5\n" in out
    assert f"final {expected_digest(9, {5: 2})}" in out
    assert requests(house) == []
    assert "from 9\n" in house.alone_here(9)
