"""`holdfast run` with a training script: what ends it, and with what."""

from __future__ import annotations

import contextlib
import signal
import sys

import pytest
from processes import (
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_SAVED,
    FAR,
    House,
    expected_digest,
    is_alive,
    kill,
    ranks_of,
)

pytestmark = pytest.mark.real


@pytest.mark.contract("end to end: plain Python, to the last step")
def test_done(house: House) -> None:
    out = house.run(steps=10).wait(EXIT_DONE)
    assert f"\nfinal {expected_digest(10)}" in out


@pytest.mark.contract("signal: SIGTERM to a supervisor")
def test_a_signal_saves_a_step_and_ends_with_75(house: House) -> None:
    """SIGTERM; tests/faults sends the others too, and looks at more."""
    house.allow(5)
    run = house.run(steps=FAR)
    run.saw("did 5")
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.allow(FAR)
    out = run.wait(EXIT_SAVED)
    assert f"step {house.saved_step()} is saved" in out.splitlines()[-1]
    assert f"from {house.saved_step()}" in house.finishes()


@pytest.mark.parametrize("phase", ["import", "start"])
def test_sigterm_before_the_first_step(house: House, phase: str) -> None:
    run = house.run(steps=10, HOLD=phase)
    run.saw(f"at {phase}")
    run.send(signal.SIGTERM)
    run.wait(EXIT_SAVED)
    house.finishes()


@pytest.mark.contract("signal: Ctrl-C twice")
def test_ctrl_c_twice_stops_now(house: House) -> None:
    house.allow(5)
    run = house.run(steps=FAR)
    run.saw("did 5")
    run.send(signal.SIGINT)
    run.saw("saving, then stopping")
    run.send(signal.SIGINT)
    assert "second Ctrl-C: stopping now" in run.wait(EXIT_SAVED)
    house.finishes()


@pytest.mark.contract("end to end: plain Python, SIGKILL of a rank")
def test_a_killed_rank_is_started_again(house: House) -> None:
    house.allow(7)
    run = house.run("--save-every", 3, steps=10)
    run.saw("did 7")
    (rank,) = ranks_of(run)
    kill(rank)
    house.allow(10)
    out = run.wait(EXIT_DONE)
    assert "killed by SIGKILL" in out
    assert f"final {expected_digest(10)}" in out


@pytest.mark.contract("takeover: of a killed supervisor")
def test_a_killed_supervisor_leaves_nothing_and_is_succeeded(house: House) -> None:
    house.allow(7)
    run = house.run("--save-every", 3, steps=10)
    run.saw("did 7")
    (rank,) = ranks_of(run)
    run.send(signal.SIGKILL)
    run.wait(-signal.SIGKILL)
    house.eventually(lambda: not is_alive(rank))
    house.allow(10)
    assert f"final {expected_digest(10)}" in house.run(steps=10).wait(EXIT_DONE)


@pytest.mark.contract("end to end: an exception that comes again")
def test_a_bug_at_the_same_place_twice_ends_it_with_the_traceback(house: House) -> None:
    out = house.run("--save-every", 3, steps=10, CRASH_AT=5).wait(EXIT_FAILED)
    assert "ValueError: the loss is not a number at step 5" in out
    assert out.count("Traceback (most recent call last)") >= 2
    assert "failed in the same way" in out


def test_a_syntax_error_ends_with_1(house: House) -> None:
    script = house.script("def f(:\n")
    out = house.holdfast("run", "--", sys.executable, script).wait(EXIT_FAILED)
    assert "SyntaxError" in out


def test_a_signal_after_the_end_changes_nothing(house: House) -> None:
    """Whoever stops all that runs may come when the run is done: it stays done."""
    run = house.run(steps=3)
    run.saw("run 'r': done")
    while is_alive(run.pid):
        with contextlib.suppress(ProcessLookupError):
            run.send(signal.SIGTERM)
    run.wait(EXIT_DONE)
