"""A live run is asked where its steps' time goes, and whatever goes wrong costs it nothing."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path

import pytest
from processes import (
    EXIT_CONFIGURATION,
    EXIT_DONE,
    EXIT_SAVED,
    EXIT_UNAVAILABLE,
    FAR,
    House,
    Process,
    kill,
    ranks_of,
)

PLAIN = """
import sys, time
import holdfast as hf
run = hf.start()
for step in run.steps(int(sys.argv[1])):
    time.sleep(0.002)
    run.done(step)
    print("did", step, flush=True)
"""
# A step is over when the test says so, but for the first two; the profiler may be told to fail.
TORCH = """
import os, sys, time
from pathlib import Path
import torch
import holdfast as hf
if os.environ.get("BROKEN"):
    import torch.profiler
    torch.profiler.profile = torch.autograd.profiler.profile = None
run = hf.start()
x = torch.ones(32, 32)
for step in run.steps(int(sys.argv[1])):
    while step > 2 and os.environ.get("GO") and not Path(os.environ["GO"]).exists():
        time.sleep(0.002)
    x = torch.tanh(x @ x)
    time.sleep(0.002)
    run.done(step)
    print("did", step, flush=True)
"""


JAX = """
import sys, time
import jax, jax.numpy as jnp
import holdfast as hf
once = jax.jit(lambda x: jnp.tanh(x @ x))
run = hf.start()
x = jnp.ones((64, 64))
for step in run.steps(int(sys.argv[1])):
    x = jax.block_until_ready(once(x))
    run.done(step, x)
    print("did", step, flush=True)
"""


def start(house: House, text: str, steps: int = FAR, **env: object) -> Process:
    command = (sys.executable, house.script(text), steps)
    nothing = ("--save-every", FAR, "--snapshot-every", FAR)  # it would be left in memory
    run = house.holdfast("run", "--name", "r", *nothing, "--", *command, **env)
    run.saw("did 2$")
    return run


def ask(house: House, *words: object) -> Process:
    return house.holdfast("profile", "r", *words)


def stop(house: House, run: Process) -> None:
    house.holdfast("stop", "r", "--now").wait(EXIT_DONE)
    run.wait(EXIT_SAVED)


def stored(house: House) -> list[Path]:
    return sorted((house.store / "r" / "attempts").glob("*/profiles/*/*"))


@pytest.mark.contract("profile: a window of a live PyTorch run")
def test_a_window_of_a_live_run(house: House) -> None:
    run = start(house, TORCH)
    found = json.loads(ask(house, "--steps", 3, "--json").wait(EXIT_DONE).partition("\n")[2])
    assert len(found["steps"]) == 3
    assert sum(found["parts_ns"].values()) == found["wall_ns"]
    assert any(one["name"] == "aten::mm" for one in found["operations"])
    assert {path.stat().st_mode & 0o777 for path in stored(house)} == {0o600}
    last = ask(house, "--last").wait(EXIT_DONE)
    assert "3 steps of rank 0" in last
    after = int(run.lines[-1].split()[1])
    run.saw(f"did {after + 50}$")
    stop(house, run)


@pytest.mark.real
def test_a_window_of_jax(house: House) -> None:
    run = start(house, JAX)
    found = json.loads(ask(house, "--steps", 4, "--json").wait(EXIT_DONE).partition("\n")[2])
    assert (found["framework"], len(found["steps"])) == ("jax", 4)
    assert any(one["flops"] == 4 * 2 * 64**3 for one in found["operations"])
    report = json.loads(house.holdfast("report", "r", "--json").wait(EXIT_DONE))
    assert report["profile"] == found
    stop(house, run)


@pytest.mark.real
class TestRefused:
    def test_plain_python_has_no_profiler(self, house: House) -> None:
        run = start(house, PLAIN)
        assert "neither JAX nor PyTorch" in ask(house).wait(EXIT_CONFIGURATION)
        stop(house, run)

    def test_a_profiler_that_fails_costs_the_profile(self, house: House) -> None:
        run = start(house, TORCH, BROKEN="1")
        assert "there is no profile: " in ask(house).wait(EXIT_CONFIGURATION)
        after = int(run.lines[-1].split()[1])
        run.saw(f"did {after + 50}$")
        stop(house, run)

    def test_a_second_request_while_one_is_recorded(self, house: House) -> None:
        go = house.folder / "go"
        run = start(house, TORCH, GO=go)
        first = ask(house, "--steps", 5)
        run.saw("Profiling 5 steps")
        assert "is being profiled already" in ask(house).wait(EXIT_CONFIGURATION)
        go.touch()
        first.wait(EXIT_DONE)
        stop(house, run)

    def test_a_rank_that_there_is_not(self, house: House) -> None:
        run = start(house, PLAIN)
        assert "the run has 1 rank, counted" in ask(house, "--rank", 1).wait(EXIT_CONFIGURATION)
        stop(house, run)


@pytest.mark.real
def test_a_run_that_takes_no_steps(house: House) -> None:
    run = start(house, TORCH, GO=house.folder / "never")
    out = ask(house, "--limit", 0.5).wait(EXIT_CONFIGURATION)
    assert "no step ended in time" in out
    stop(house, run)


@pytest.mark.real
def test_a_run_that_is_killed_within_the_window(house: House) -> None:
    run = start(house, TORCH, GO=house.folder / "never")
    asked = ask(house, "--steps", 100)
    run.saw("Profiling 100 steps")
    (rank,) = ranks_of(run)
    kill(rank)
    assert "ended before the window was over" in asked.wait(EXIT_UNAVAILABLE)
    run.saw("did 2$", 2)
    stop(house, run)


@pytest.mark.real
def test_a_loop_that_ends_within_the_window(house: House) -> None:
    go = house.folder / "go"
    run = start(house, TORCH, 60, GO=go)
    asked = ask(house, "--steps", 100)
    run.saw("Profiling 100 steps")
    go.touch()
    run.wait(EXIT_DONE)
    assert "the loop ended after" in asked.wait(EXIT_DONE)


@pytest.mark.real
def test_a_script_without_a_supervisor(house: House) -> None:
    script = house.script(TORCH)
    run = house.start(sys.executable, script, FAR, HOLDFAST_NAME="r")
    run.saw("did 2")
    assert "2 steps of rank 0" in ask(house, "--steps", 2).wait(EXIT_DONE)
    run.send(signal.SIGTERM)
    run.wait(EXIT_SAVED)


@pytest.mark.real
def test_a_run_that_is_not_running(house: House) -> None:
    house.run(steps=2).wait(EXIT_DONE)
    assert "is not running" in ask(house).wait(EXIT_CONFIGURATION)
    assert "has no profile yet" in ask(house, "--last").wait(EXIT_CONFIGURATION)
