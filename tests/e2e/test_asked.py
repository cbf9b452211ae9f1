"""What people ask of a run from another terminal: stop, save, logs."""

from __future__ import annotations

import signal

import pytest
from processes import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    EXIT_SAVED,
    EXIT_UNAVAILABLE,
    FAR,
    House,
    expected_digest,
)

pytestmark = pytest.mark.real


def test_stop(house: House) -> None:
    house.allow(5)
    run = house.run(steps=FAR)
    run.saw("did 5")
    assert "asked run 'r'" in house.holdfast("stop", "r").wait(EXIT_DONE)
    run.saw("holdfast stop by .*: saving, then stopping")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    assert house.saved_step() >= 5
    house.finishes()


@pytest.mark.contract("asked: a stop now")
def test_stop_now_does_not_wait_for_a_step(house: House) -> None:
    house.allow(5)
    nothing = ("--save-every", FAR, "--snapshot-every", FAR)  # it would be left in memory
    run = house.run(*nothing, steps=FAR)
    run.saw("did 5")
    house.holdfast("stop", "r", "--now").wait(EXIT_DONE)
    assert "stopping now" in run.wait(EXIT_SAVED)


def test_a_stop_with_a_short_grace_ends_what_does_not_step(house: House) -> None:
    house.allow(5)
    run = house.run(steps=FAR)
    run.saw("did 5")
    house.holdfast("stop", "r", "--grace", "0.2").wait(EXIT_DONE)
    run.wait(EXIT_SAVED)


def test_save(house: House) -> None:
    house.allow(5)
    run = house.run(steps=FAR)
    run.saw("did 5")
    assert "asked run 'r' for a save" in house.holdfast("save", "r").wait(EXIT_DONE)
    house.eventually(lambda: not list((house.store / "r" / "control").glob("*.json")))
    house.allow(FAR)
    house.eventually(house.saved_step)
    run.send(signal.SIGKILL)
    run.wait()
    held = max(house.saved_step(), house.step_in_memory())
    assert f"from {held}\n" in house.finishes()


def test_nobody_there_to_ask(house: House) -> None:
    house.run(steps=2).wait(EXIT_DONE)
    for command in ("stop", "save"):
        out = house.holdfast(command, "r").wait(EXIT_CONFIGURATION)
        assert "run 'r' is not running" in out
        assert len(out.splitlines()) == 1


def test_logs_while_it_runs_and_after(house: House) -> None:
    house.allow(5)
    run = house.run("--ranks", 2, steps=10)
    run.saw(r"\[0\] did 5")
    run.saw(r"\[1\] did 5")
    house.eventually(lambda: "[1] did 5" in house.holdfast("logs", "r").wait(EXIT_DONE))
    house.allow(10)
    run.wait(EXIT_DONE)
    out = house.holdfast("logs", "r", "--rank", 1, "--tail", 2).wait(EXIT_DONE)
    assert out.splitlines() == ["did 10", f"final {expected_digest(10)}"]


def test_logs_of_an_earlier_attempt(house: House) -> None:
    once = house.folder / "once"
    house.run("--save-every", 2, steps=6, CRASH_AT=4, CRASH_ONCE=once).wait(EXIT_DONE)
    first = house.holdfast("logs", "r", "--attempt", 0).wait(EXIT_DONE)
    assert first.rstrip().endswith("ValueError: the loss is not a number at step 4")
    assert "final " in house.holdfast("logs", "r").wait(EXIT_DONE)
    out = house.holdfast("logs", "r", "--attempt", 7).wait(EXIT_CONFIGURATION)
    assert "no attempt 7; it has 0..1" in out
    assert "no output of rank 9" in house.holdfast("logs", "r", "--rank", 9).wait(
        EXIT_CONFIGURATION
    )


def test_a_run_that_is_held_names_its_holder(house: House) -> None:
    house.allow(3)
    first = house.run(steps=5)
    first.saw("did 3")
    second = house.run(steps=5).wait(EXIT_UNAVAILABLE)
    assert f"process {first.pid}" in second or f"pid {first.pid}" in second, second
    assert len(second.splitlines()) == 1
    alone = house.alone(steps=5)
    assert str(first.pid) in alone.wait()
    house.allow(5)
    assert f"final {expected_digest(5)}" in first.wait(EXIT_DONE)
