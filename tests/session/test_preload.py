"""A kept step is loaded while the script restores, and used only if it is the one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast.cache.entry import CacheEntry
from holdfast.cache.tier import CacheTier
from holdfast.session.compile_cache import ProgramCache

pytest.importorskip("jax")

Python = Callable[..., str]

# The devices are up before `restore`. Says "ahead True" where a call finds its program loaded.
TRAIN = """
import sys
import jax, jax.numpy as jnp
from holdfast.cache import home
from holdfast.session import compile_cache
from holdfast.session.preload import Preload
home.SEED_LIMIT_S = compile_cache.SEED_WAIT_S = 60.0  # a busy machine is not a failure
rows = int(sys.argv[1])
run = hf.start()
take = Preload.take

def told(self, key):
    found = take(self, key)
    print("ahead", found is not None)
    return found

Preload.take = told

@jax.jit
def train_step(state, batch):
    print("tracing")
    return state + jnp.tanh(batch).sum(0)

step = run.compile(train_step)
start = jnp.zeros(4)
state = run.restore(init=lambda: start)
for n in run.steps(run.resume_step + 2):
    state = step(state, jnp.full((rows, 4), n / 7))
    run.done(n, state)
print("sum", float(state.sum()).hex())
"""


class LateSeeds:
    """Stands in for the homing: what the store has is here when it is waited for."""

    def __init__(self, tier: CacheTier, entry: CacheEntry) -> None:
        self.tier, self.entry, self.waited = tier, entry, 0

    def wait_seeded(self, _limit_s: float) -> bool:
        self.waited += 1
        self.tier.put(self.entry)
        return True


def test_what_the_store_has_is_waited_for_before_it_is_looked_for(tmp_path: Path) -> None:
    tier, entry = CacheTier(tmp_path / "local"), CacheEntry("step_f-1", b"program")
    seeds = LateSeeds(tier, entry)
    cache = ProgramCache(tier, seeds)  # type: ignore[arg-type]
    assert cache.tier.get(entry.key) is None
    assert cache.seeded().get(entry.key) == entry
    assert cache.seeded() is tier
    assert seeds.waited == 1


@pytest.mark.real
def test_what_was_used_last_is_loaded_ahead(python: Python) -> None:
    first = python(TRAIN, 8)
    assert first.count("tracing") == 1
    assert "ahead True" not in first
    second = python(TRAIN, 8)
    assert "tracing" not in second
    assert second.count("ahead True") == 1


@pytest.mark.real
def test_another_program_is_not_taken_for_it(python: Python) -> None:
    python(TRAIN, 8)
    second = python(TRAIN, 16)
    assert "tracing" in second
    assert "ahead True" not in second


@pytest.mark.real
def test_a_damaged_program_is_compiled_anew(python: Python, tmp_path: Path) -> None:
    first = python(TRAIN, 8)
    for path in tmp_path.rglob("*.hfx"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
    second = python(TRAIN, 8)
    assert "tracing" in second
    assert "ahead True" not in second
    assert "sum " in first
    assert "sum " in second
