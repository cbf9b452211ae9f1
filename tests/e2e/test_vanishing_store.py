"""The store's folder vanishes under a supervised run, as an unmounted disk does, and may return."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from processes import EXIT_DONE, EXIT_SAVED, FAR, House, Process, go_on_until, step_of

pytestmark = pytest.mark.real

AWAY = "away"
NOT_SAVED = re.compile("could not be (saved|written to the run store)|does not count yet")


def vanish(house: House) -> Path:
    """The store is gone from its place; where it is now."""
    return house.store.rename(house.store.with_name(AWAY))


def come_back(house: House) -> None:
    """The store is where it was."""
    house.store.with_name(AWAY).rename(house.store)


def test_a_store_that_vanishes_and_returns(house: House) -> None:
    """Training goes on; nothing is begun anew in the empty place; afterwards nothing is missing."""
    house.allow(1)
    run = house.run("--save-every", 1, "--keep", 100, steps=FAR)
    step = go_on_until(house, run, 1, house.saved_step)
    away = vanish(house)
    step = go_on_until(house, run, step, lambda: NOT_SAVED.search(run.text))
    run.saw("its journal is kept on this host meanwhile")
    step = go_on_until(house, run, step, lambda: step_after(run) >= step)
    assert not house.store.exists(), "a store was begun in the empty place"
    before = max(map(step_of, (p.parent for p in (away / "r" / "ckpt").glob("*/manifest.json"))))
    come_back(house)
    go_on_until(house, run, step, lambda: house.saved_step() > before)
    run.saw("The run store can be written again; nothing was lost")
    run.send(signal.SIGTERM)
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    house.finishes()
    assert house.recorded_steps() == house.saved_step()
    assert "every byte" in house.holdfast("ckpt", "verify", "r", "--all").wait(EXIT_DONE)


def test_a_store_that_vanishes_for_good_before_a_stop(house: House) -> None:
    """Nothing can be saved or told any more: the run is gone by its deadline, and says what is."""
    house.allow(1)
    run = house.run("--save-every", 1, "--grace", 3, steps=FAR)
    step = go_on_until(house, run, 1, lambda: len(house.sets()) >= 2)
    told = step_of(house.sets()[0])  # that of the newest may still be under way
    vanish(house)
    go_on_until(house, run, step, lambda: NOT_SAVED.search(run.text))
    run.send(signal.SIGTERM)
    house.allow(FAR)
    out = run.wait(EXIT_SAVED)
    assert "Traceback" not in out
    assert not house.store.exists()
    come_back(house)
    saved = house.saved_step()
    said = re.search(r"step (\d+) is saved", out.splitlines()[-1])
    assert said is not None, out
    assert told <= int(said[1]) <= saved
    held = max(saved, house.step_in_memory())
    assert f"from {held}\n" in house.finishes()


def test_a_store_that_is_gone_when_an_attempt_ends(house: House) -> None:
    """It cannot be known what to restore: that is waited for, and never begun from scratch."""
    house.allow(1)
    once = house.folder / "crashed"
    run = house.run("--save-every", 1, steps=FAR, CRASH_AT=3000, CRASH_ONCE=once)
    go_on_until(house, run, 1, house.saved_step)
    vanish(house)
    house.allow(FAR)
    run.saw("waiting up to .* for the run store")
    assert not house.store.exists()
    away = house.store.with_name(AWAY)
    saved = max(step_of(path.parent) for path in (away / "r" / "ckpt").glob("*/manifest.json"))
    come_back(house)
    assert int(run.saw("from ([0-9]+)$", count=2)[1]) >= saved  # memory may have held more
    run.send(signal.SIGTERM)
    run.wait(EXIT_SAVED)
    house.finishes()


def step_after(run: Process) -> int:
    """The last step that the trainer has printed."""
    return max(int(line.split()[-1]) for line in run.lines if line.split()[-2:-1] == ["did"])
