"""Two ranks with jax.distributed and no supervisor: one step for every save and every stop."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from pairs import Pair, both_did, ends, finals, goes_on, starts
from processes import EXIT_CONFIGURATION, EXIT_DONE, EXIT_SAVED, FAR, House
from together import Together

from holdfast.agent.launch import free_ports

pytestmark = pytest.mark.real


@pytest.fixture
def pair(house: House) -> Pair:
    return Pair(house, "rank_jax.py", by_launcher=False)


def straight(steps: int) -> list[str]:
    """The digests of a run that nothing disturbs: the same arithmetic, with no Holdfast near it."""
    noises = [np.random.RandomState(rank) for rank in (0, 1)]
    weights = np.zeros(64, np.float32)
    for step in range(1, steps + 1):
        one, other = ((noise.random_sample(64) * step).astype(np.float32) for noise in noises)
        weights = weights + (one + other)
    return [weights.tobytes().hex()[:16]] * 2


def test_both_finish_and_all_is_on_record(house: House, pair: Pair) -> None:
    """Which rank it is, JAX alone says."""
    outputs = pair.run(8, HOLDFAST_SAVE_EVERY_STEPS=5)
    assert len(set(finals(outputs))) == 1
    assert house.saved_step() == 8
    report = house.holdfast("report", "r").wait(EXIT_DONE)
    assert "done · 1 attempt · 2 chips" in report
    assert "8 steps kept, 0 lost" in report


@pytest.mark.contract("commit: two ranks without a supervisor")
def test_sigterm_to_rank_1_stops_both_at_one_step(house: House, pair: Pair) -> None:
    house.allow(3)
    ranks = pair.start(FAR)
    both_did(ranks, 3)
    ranks[1].send(signal.SIGTERM)
    ranks[0].saw("SIGTERM to rank 1: saving at the next step, then stopping")
    house.allow(FAR)
    for process in ranks:
        process.wait(EXIT_SAVED)
    saved = house.saved_step()
    assert saved >= 3
    outputs = pair.run(saved + 4)
    assert starts(outputs) == [saved, saved]
    assert finals(outputs) == straight(saved + 4)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_sigterm_between_jax_and_the_loop_is_not_lost(
    house: House, pair: Pair, rank: int
) -> None:
    """JAX's preemption service would have taken it: it is declined by hf.start."""
    ranks = pair.start(
        FAR, START="before", launcher=True, SIGTERM_AFTER_INITIALIZE=rank, HOLDFAST_GRACE_S=600
    )
    for process in ranks:
        process.wait(EXIT_SAVED)
    assert house.saved_step() >= 1
    assert [end["cause"] for end in ends(house)] == ["preempted"]


WITHOUT_SERVICE = """
import sys
from holdfast.session.channel_jax import keep_sigterm
port, is_late = sys.argv[1], sys.argv[2] == "late"
if is_late:
    keep_sigterm()
import jax
if not is_late:
    keep_sigterm()
jax.distributed.initialize(f"localhost:{port}", 1, 0)
from jax._src import distributed
assert distributed.global_state.preemption_sync_manager is None
print("left out")
"""


@pytest.mark.parametrize("order", ["early", "late"])
def test_jaxs_preemption_service_is_left_out(order: str) -> None:
    """Whether JAX was imported before, and whether it has an option for that."""
    env = {name: value for name, value in os.environ.items() if "PREEMPTION" not in name}
    command = [sys.executable, "-c", WITHOUT_SERVICE, str(free_ports(1)[0]), order]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.stdout == "left out\n", done.stderr


def test_sigkill_during_a_stop_and_the_other_leaves(house: House, pair: Pair) -> None:
    ranks, _ = pair.trained()
    ranks[0].send(signal.SIGTERM)
    ranks[0].saw("saving at the next step, then stopping")
    ranks[1].send(signal.SIGKILL)
    house.allow(FAR)
    ranks[0].wait()
    saved = house.saved_step()
    outputs = pair.run(saved + 20)
    goes_on(outputs, saved)
    assert finals(outputs) == straight(saved + 20)


def test_not_initialised(pair: Pair) -> None:
    for out in pair.run(3, code=EXIT_CONFIGURATION, START="never", launcher=True):
        assert "neither jax.distributed nor torch.distributed is initialised" in out


class TestTogether(Together):
    straight = staticmethod(straight)
