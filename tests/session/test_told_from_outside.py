"""`holdfast stop` and `holdfast save` reach a script that trains without a supervisor."""

from __future__ import annotations

import json

import pytest
from processes import EXIT_DONE, EXIT_SAVED, FAR, House

pytestmark = pytest.mark.real


def test_a_save_is_made_and_the_training_goes_on(house: House) -> None:
    house.allow(3)
    run = house.alone(steps=FAR)
    run.saw("did 3")
    house.holdfast("save", "r").wait(EXIT_DONE)
    house.eventually(lambda: not list((house.store / "r" / "control").glob("*-save.json")))
    house.allow(FAR)
    house.eventually(lambda: house.saved_step() > 3)
    house.holdfast("stop", "r").wait(EXIT_DONE)
    assert "holdfast stop by" in run.wait(EXIT_SAVED)
    house.finishes()


def test_a_stop_now_does_not_wait_for_a_step(house: House) -> None:
    house.allow(3)
    run = house.alone(steps=FAR)
    run.saw("did 3")
    house.holdfast("stop", "r", "--now").wait(EXIT_DONE)
    run.wait(EXIT_SAVED)
    again = house.alone(steps=FAR)
    again.saw("from ")
    told = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    assert told["badput_s"]["stopped"] > 0
    assert "reschedule" not in told["badput_s"]
    house.holdfast("stop", "r", "--now").wait(EXIT_DONE)
    again.wait(EXIT_SAVED)


def test_to_go_back_is_for_the_next_start(house: House) -> None:
    saved = house.trained()
    house.allow(saved + 2)
    run = house.alone(steps=FAR)
    run.saw(f"did {saved + 2}$")
    asked = house.holdfast("rollback", "r", "--to", saved).wait(EXIT_DONE)
    assert "without a supervisor, at its next start" in asked
    run.saw("the next start of the script goes back")
    house.holdfast("stop", "r", "--now").wait(EXIT_DONE)
    run.wait(EXIT_SAVED)
    again = house.alone(steps=FAR)
    again.saw(f"from {saved}$")
    house.holdfast("stop", "r", "--now").wait(EXIT_DONE)
    again.wait(EXIT_SAVED)
