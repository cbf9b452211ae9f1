"""`python train.py` with no supervisor: resumed, stopped, killed, and always the same result."""

from __future__ import annotations

import json
import os
import random
import signal
import sys

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


def test_more_steps_continue_a_run_that_was_done(house: House) -> None:
    house.alone_here(5)
    out = house.alone_here(12)
    assert out.splitlines()[:2] == [
        "holdfast: Attempt 1: starting from step 5 of attempt 0, the newest checkpoint",
        "from 5",
    ]
    assert f"final {expected_digest(12)}" in out


def test_a_run_that_is_done_does_nothing_again(house: House) -> None:
    house.alone_here(5)
    out = house.alone_here(5)
    assert "did" not in out
    assert f"final {expected_digest(5)}" in out


@pytest.mark.real
@pytest.mark.parametrize("seed", range(3))
def test_sigkill_anywhere_and_the_result_is_the_same(house: House, seed: int) -> None:
    chance = random.Random(seed)
    until, reached = 60, 0
    while reached < until:
        stop_at = reached + chance.randint(1, 30)
        house.allow(min(stop_at, until))
        run = house.alone(steps=until, HOLDFAST_SAVE_EVERY_STEPS=chance.choice([1, 4, 7]))
        if stop_at >= until:
            assert f"final {expected_digest(until)}" in run.wait(EXIT_DONE)
            return
        run.saw(f"did {stop_at}$")
        run.send(signal.SIGKILL)
        run.wait(-signal.SIGKILL)
        reached = stop_at


@pytest.mark.contract("signal: SIGTERM to a script without a supervisor")
def test_sigterm_saves_the_next_step_and_ends_with_75(house: House) -> None:
    house.allow(5)
    run = house.alone(steps=FAR)
    run.saw("did 5")
    run.send(signal.SIGTERM)
    run.saw("SIGTERM: saving at the next step")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    saved = house.saved_step()
    assert saved >= 5
    out = house.alone(steps=saved + 5).wait(EXIT_DONE)
    assert out.splitlines()[1] == f"from {saved}"
    assert f"final {expected_digest(saved + 5)}" in out


@pytest.mark.real
def test_ctrl_c_once_saves_and_stops(house: House) -> None:
    house.allow(5)
    run = house.alone(steps=FAR)
    run.saw("did 5")
    run.send(signal.SIGINT)
    run.saw("Ctrl-C: saving at the next step")
    house.allow(FAR)
    run.wait(EXIT_SAVED)
    assert house.saved_step() >= 5


@pytest.mark.real
def test_ctrl_c_twice_stops_now(house: House) -> None:
    house.allow(5)
    run = house.alone(steps=FAR)
    run.saw("did 5")
    run.send(signal.SIGINT)
    run.saw("Ctrl-C: saving at the next step")
    run.send(signal.SIGINT)
    assert "KeyboardInterrupt" in run.wait(-signal.SIGINT)


@pytest.mark.real
@pytest.mark.parametrize("phase", ["restore", "step"])
def test_one_that_reaches_no_boundary_is_gone_at_the_deadline(house: House, phase: str) -> None:
    run = house.alone(steps=10, HOLD=phase, HOLDFAST_GRACE_S="0.3")
    run.saw(f"at {phase}")
    run.send(signal.SIGTERM)
    assert "reached no boundary: ending it" in run.wait(EXIT_SAVED)
    house.go()
    assert f"final {expected_digest(10)}" in house.alone(steps=10).wait(EXIT_DONE)


@pytest.mark.real
@pytest.mark.parametrize("phase", ["start", "restore", "loop", "step"])
def test_sigterm_before_the_first_step_is_done(house: House, phase: str) -> None:
    run = house.alone(steps=10, HOLD=phase)
    run.saw(f"at {phase}")
    run.send(signal.SIGTERM)
    house.go()
    run.wait()
    assert f"final {expected_digest(10)}" in house.alone(steps=10).wait(EXIT_DONE)


@pytest.mark.real
def test_a_handler_that_was_there_is_called_as_well(house: House) -> None:
    script = house.script(
        "import os, signal\n"
        "import holdfast as hf\n"
        "signal.signal(signal.SIGTERM, lambda *_: print('mine', flush=True))\n"
        "run = hf.start('r')\n"
        "state = run.restore(init=lambda: {'x': 1})\n"
        "for step in run.steps(10**6):\n"
        "    if step == 3: os.kill(os.getpid(), signal.SIGTERM)\n"
        "    run.done(step, state)\n"
    )
    out = house.start(sys.executable, script).wait(EXIT_SAVED)
    assert "mine" in out
    assert house.saved_step() >= 3


@pytest.mark.real
def test_a_held_run_names_its_holder(house: House) -> None:
    house.allow(3)
    first = house.alone(steps=5)
    first.saw("did 3")
    second = house.alone(steps=5).wait(EXIT_UNAVAILABLE)
    assert "RunHeld" in second.splitlines()[-1]
    assert str(first.pid) in second.splitlines()[-1]
    house.allow(5)
    assert f"final {expected_digest(5)}" in first.wait(EXIT_DONE)


@pytest.mark.real
def test_a_supervisor_takes_over_what_a_lone_process_began(house: House) -> None:
    house.allow(6)
    run = house.alone(steps=10, HOLDFAST_SAVE_EVERY_STEPS=2)
    run.saw("did 6")
    run.send(signal.SIGKILL)
    run.wait()
    house.allow(10)
    assert f"final {expected_digest(10)}" in house.run(steps=10).wait(EXIT_DONE)
    house.allow(15)
    assert f"final {expected_digest(15)}" in house.alone(steps=15).wait(EXIT_DONE)


def test_how_it_ended_is_on_record(house: House) -> None:
    house.alone_here(3)
    house.alone_here(9, CRASH_AT=5, code=1)
    ends = [
        json.loads((house.store / "r" / "attempts" / number / "end.json").read_text())
        for number in ("0000", "0001")
    ]
    assert [end["cause"] for end in ends] == ["done", "failed"]
    assert "the loss is not a number at step 5" in ends[1]["words"]
    report = house.command("report", "r")
    assert "the loss is not a number" in report


def test_an_exit_before_the_end_is_not_done(house: House) -> None:
    script = house.script(
        "import holdfast as hf\n"
        "run = hf.start('r')\n"
        "state = run.restore(init=lambda: {'x': 1})\n"
        "for step in run.steps(10):\n"
        "    run.done(step, state)\n"
        "    if step == 4: break\n"
    )
    house.here(script)
    end = json.loads((house.store / "r" / "attempts" / "0000" / "end.json").read_text())
    assert end["cause"] == "failed"


LEAVES = """
import sys
import holdfast as hf
run = hf.start('r')
state = run.restore(init=lambda: {'x': 0})
for step in run.steps(int(sys.argv[1])):
    if step == 6 and sys.argv[2] == 'in the step': break
    state = {'x': state['x'] * 2 + step}
    if step == 5 and sys.argv[2] == 'saved already': run.save(wait=True)
    run.done(step, state)
    if step == 5 and sys.argv[2] == 'after it': break
    if step == 5 and sys.argv[2] == 'saved already': break
    if step == 5 and sys.argv[2] == 'by finish': run.finish()
    if step == 5 and sys.argv[2] == 'twice': run.finish({'x': 1}); run.finish({'x': 2})
state = {} if sys.argv[3] == 'its own' else state
run.finish(*[{'x': 7}] if sys.argv[3] == 'given' else [])
print('x', hf.load(str(run._attachment.folder.path))['x'])
"""


@pytest.mark.parametrize(
    ("leaves", "state", "saved"),
    [
        ("after it", "its own", 57),
        ("after it", "given", 7),
        ("by finish", "its own", 57),
        ("in the step", "given", 7),
        ("twice", "its own", 1),
        ("saved already", "given", 57),
    ],
)
def test_a_loop_left_early_saves_the_last_step_done(
    house: House, leaves: str, state: str, saved: int
) -> None:
    script = house.script(LEAVES)
    out = house.here(script, 10, leaves, state)
    assert f"x {saved}" in out
    said = "step 5 was saved before: the state given to run.finish is not kept" in out
    assert said == (leaves == "saved already")
    assert house.saved_step() == 5
    # And the run goes on from there, with as many steps as it had left, or with none.
    expected = saved
    for step in range(6, 9):
        expected = expected * 2 + step
    assert f"x {expected}" in house.here(script, 8, "not", "-")
    assert f"x {expected}" in house.here(script, 8, "not", "-")


def test_in_the_middle_of_a_step_finish_needs_its_state(house: House) -> None:
    """The last state may be changed already, or its memory given away."""
    script = house.script(LEAVES)
    out = house.here(script, 10, "in the step", "-", code=EXIT_CONFIGURATION)
    assert "run.finish() was called in the middle of step 6: leave the loop right" in out
    assert house.saved_step() == 0


def test_finish_before_any_step_saves_nothing(house: House) -> None:
    script = house.script(
        "import holdfast as hf\n"
        "run = hf.start('r')\n"
        "run.restore(init=lambda: {'x': 1})\n"
        "run.finish()\n"
        "print('over')\n"
    )
    assert "over" in house.here(script)
    assert house.sets() == []


def test_a_last_state_that_was_given_away_is_the_scripts_fault(house: House) -> None:
    pytest.importorskip("jax")
    script = house.script(
        "import jax, jax.numpy as jnp\n"
        "import holdfast as hf\n"
        "run = hf.start('r')\n"
        "state = run.restore(init=lambda: {'x': jnp.zeros(2)})\n"
        "for step in run.steps(10):\n"
        "    run.done(step, state)\n"
        "    if step == 3: break\n"
        "jax.jit(lambda s: s['x'] + 1, donate_argnums=0)(state)\n"
        "run.finish()\n"
    )
    out = house.here(script, code=EXIT_CONFIGURATION)
    assert "Unstorable: state/x: a jax array that was donated" in out.splitlines()[-1]


def test_each_step_may_be_saved_under_a_name(house: House) -> None:
    """Also the one right after a step that is saved already."""
    script = house.script(
        "import holdfast as hf\n"
        "run = hf.start('r')\n"
        "state = run.restore(init=lambda: {'x': 1})\n"
        "for step in run.steps(5):\n"
        "    run.save(tag=f'after-{step}', wait=True)\n"
        "    run.done(step, state)\n"
    )
    house.here(script, HOLDFAST_SAVE_EVERY_STEPS=1000)
    assert [int(path.name.split("-")[-1]) for path in house.sets()] == [1, 2, 3, 4, 5]


@pytest.mark.real
def test_nothing_of_it_is_left_on_this_host(house: House) -> None:
    """The scratch of a process that was killed goes home with the next start."""
    house.allow(5)
    run = house.alone(steps=10)
    run.saw("did 5")
    run.send(signal.SIGKILL)
    run.wait()
    house.allow(10)
    house.alone(steps=10).wait(EXIT_DONE)
    scratch = os.environ["HOLDFAST_SCRATCH"]
    left = [name for _, _, names in os.walk(scratch) for name in names]
    assert left == []
    assert "1 disruption" in house.holdfast("report", "r").wait(EXIT_DONE)
