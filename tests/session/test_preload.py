"""A kept step is loaded while the script restores, and used only if it is the one."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("jax")

Python = Callable[..., str]

# The devices are up before `restore`. Says "ahead True" where a call finds its program loaded.
TRAIN = """
import sys
import jax, jax.numpy as jnp
from holdfast.session.preload import Preload
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


def test_what_was_used_last_is_loaded_ahead(python: Python) -> None:
    first = python(TRAIN, 8)
    assert first.count("tracing") == 1
    assert "ahead True" not in first
    second = python(TRAIN, 8)
    assert "tracing" not in second
    assert second.count("ahead True") == 1


def test_another_program_is_not_taken_for_it(python: Python) -> None:
    python(TRAIN, 8)
    second = python(TRAIN, 16)
    assert "tracing" in second
    assert "ahead True" not in second


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
