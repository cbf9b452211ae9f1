"""JAX in a session: keys, donated buffers, optimizer states, shapes, shardings."""

from __future__ import annotations

from collections.abc import Callable

import pytest

pytestmark = pytest.mark.real

Python = Callable[..., str]

TRAIN = """
import functools, sys
import jax, jax.numpy as jnp, optax
until, how = int(sys.argv[1]), sys.argv[2]

optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-2))
made = 0

def init(key):
    global made
    params = {"w": jax.random.normal(key, (8, 4)), "b": jnp.zeros(4, jnp.bfloat16)}
    made += not isinstance(params["w"], jax.core.Tracer)
    return {"params": params, "opt": optimizer.init(params), "key": key, "step": 0}

@functools.partial(jax.jit, donate_argnums=0)
def train_step(state, x):
    key, use = jax.random.split(state["key"])
    def loss_of(params):
        noise = jax.random.normal(use, (4,))
        return jnp.mean((x @ params["w"] + params["b"].astype(jnp.float32) + noise) ** 2)
    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    updates, opt = optimizer.update(grads, state["opt"], state["params"])
    params = optax.apply_updates(state["params"], updates)
    return {"params": params, "opt": opt, "key": key, "step": state["step"] + 1}, loss

key = jax.random.key(7)
run = hf.start()
data = run.data(jnp.full((2, 8), float(n)) for n in range(1000))
if how == "like":
    state = run.restore(like=jax.eval_shape(init, key), init=lambda: init(key))
else:
    state = run.restore(init=lambda: init(key))
print("made", made, file=sys.stderr)
for step in run.steps(until):
    state, loss = train_step(state, next(data))
    run.done(step, state, ready=loss, tokens=16)

flat, _ = jax.tree.flatten(state)
for leaf in flat:
    is_key = jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)
    raw = jax.random.key_data(leaf) if is_key else leaf
    print(leaf.dtype, leaf.shape, getattr(leaf, "weak_type", None), np.asarray(raw).tobytes().hex())
"""


def states(out: str) -> list[str]:
    return [line for line in out.splitlines() if not line.startswith("made")]


@pytest.mark.parametrize("how", ["like", "init"])
def test_training_goes_on_to_the_bit(python: Python, how: str) -> None:
    """Typed keys, bfloat16, optax's named tuples and weak types; every buffer was donated."""
    every_step = {"HOLDFAST_SAVE_EVERY_STEPS": 1}
    python(TRAIN, 3, how, **every_step)
    resumed = python(TRAIN, 6, how)
    straight = python(TRAIN, 6, how, HOLDFAST_NAME="straight")
    assert states(resumed) == states(straight)
    assert "made 0" in resumed  # the shapes tell enough: nothing was computed to find them out


SHARDED = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_num_cpu_devices", 4)
mesh = jax.make_mesh((4,), ("x",))
split, whole = NamedSharding(mesh, P("x")), NamedSharding(mesh, P())

def init():
    return {
        "w": jax.device_put(jnp.arange(16.0), split),
        "b": jax.device_put(jnp.ones(3), whole),
    }

def shape(value, sharding):
    return jax.ShapeDtypeStruct(value.shape, value.dtype, sharding=sharding)

like = {"w": shape(np.zeros(16, np.float32), split), "b": shape(np.zeros(3, np.float32), whole)}
run = hf.start()
state = run.restore(like=like, init=init)
for step in run.steps(int(sys.argv[1])):
    state = jax.tree.map(lambda leaf: leaf + 1, state)
    run.done(step, state)
print(state["w"].sharding == split, state["b"].sharding.is_fully_replicated, state["w"].committed)
print(len(state["w"].addressable_shards), len(state["b"].addressable_shards))
print(np.asarray(state["w"]).tolist(), np.asarray(state["b"]).tolist())
"""


def test_shardings_are_those_of_like(python: Python) -> None:
    python(SHARDED, 2)
    resumed = python(SHARDED, 4).splitlines()
    assert resumed[0] == "True True True"
    assert resumed[1] == "4 4"
    assert resumed[2] == f"{[float(n + 4) for n in range(16)]} {[5.0] * 3}"


JITTED = """
import sys
import jax, jax.numpy as jnp
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
jax.config.update("jax_num_cpu_devices", 4)
split = NamedSharding(jax.make_mesh((4,), ("x",)), P("x"))
run = hf.start()
state = run.restore(init=jax.jit(lambda: {"w": jnp.arange(16.0)}, out_shardings=split))
print(state["w"].sharding == split)
for step in run.steps(int(sys.argv[1])):
    state = {"w": state["w"] + 1}
    run.done(step, state)
"""


def test_shardings_are_those_of_a_jitted_init(python: Python) -> None:
    assert python(JITTED, 2) == "True"
    assert python(JITTED, 4) == "True"


def test_a_device_that_stays_busy_does_not_delay_the_loop(python: Python) -> None:
    """`ready` is waited for in a thread; the journal tells dispatched from complete."""
    out = python(
        "import time\n"
        "class Ready:\n"
        "    asked = 0\n"
        "    def block_until_ready(self):\n"
        "        Ready.asked += 1\n"
        "        while not released: time.sleep(0.001)\n"
        "released = []\n"
        "run = hf.start()\n"
        "run.restore(init=lambda: {})\n"
        "for step in run.steps(50): run.done(step, {}, ready=Ready())\n"
        "print('through', Ready.asked <= 1)\n"
        "released.append(1)\n"
    )
    assert "through True" in out


COMPILES = """
import jax, jax.numpy as jnp
from pathlib import Path
from holdfast.journal.layout import Word
run = hf.start()
page = run._attachment.writer.page
seen = []

def look():
    seen.append([span.kind for span in page.snapshot().open_spans])

@jax.jit
def train_step(x):
    look()  # python runs while JAX traces
    return x * 2

@jax.jit
def broken(x):
    look()
    raise ZeroDivisionError

state = run.restore(init=lambda: jnp.ones(3))
for step in run.steps(3):
    state = train_step(state)
    try:
        broken(state)
    except ZeroDivisionError:
        pass
    look()
    run.done(step, state)
assert seen == [[1], [1], [], [1], [], [1], []], seen
assert page.load(Word.SPANS_NS) > 0
assert page.load(Word.COMPILING_AT) == 0
"""


def test_a_compilation_shows_while_it_is_under_way(python: Python) -> None:
    """1 is the kind `compile`; one that ends by an exception has ended, too."""
    python(COMPILES)


MIXED = """
import sys
import jax, jax.numpy as jnp
calls = 0
def init():
    global calls
    calls += 1
    return {
        "wide": np.zeros(3), "counts": np.arange(3), "scalar": np.float64(0.5), "lr": 0.25,
        "flag": True, "name": "mixed", "jax": jnp.zeros(3), "weak": jnp.asarray(1.0),
        "taken": np.zeros(2), "pair": (np.ones(1), jnp.ones(1)), "key": jax.random.key(0),
    }
run = hf.start()
state = run.restore(init=init)
print("calls", calls, file=sys.stderr)
for step in run.steps(int(sys.argv[1])):
    state["wide"] = state["wide"] + 1 / 3
    state["counts"] += 1
    state["scalar"] = np.float64(state["scalar"] / 3)
    state["lr"] /= 3
    state["jax"] = state["jax"] + 0.1
    state["taken"] = jax.jit(lambda x: x + 0.1)(state["taken"])  # gives float32
    run.done(step, state)
for path, leaf in jax.tree_util.tree_leaves_with_path(state):
    kind = type(leaf).__name__, getattr(leaf, "dtype", ""), getattr(leaf, "weak_type", "")
    print(path, *kind, leaf)
"""


@pytest.mark.parametrize("wide", ["0", "1"])
def test_arrays_of_numpy_beside_those_of_jax_stay_what_they_are(python: Python, wide: str) -> None:
    """JAX, asked for the shape of a float64, says float32, and means its own arrays."""
    every_step = {"HOLDFAST_SAVE_EVERY_STEPS": 1, "JAX_ENABLE_X64": wide}
    python(MIXED, 3, **every_step)
    resumed = python(MIXED, 6, **every_step)
    straight = python(MIXED, 6, HOLDFAST_NAME="straight", **every_step)
    lines = [line for line in resumed.splitlines() if not line.startswith("calls")]
    assert lines == [line for line in straight.splitlines() if not line.startswith("calls")]
    assert any("'wide'" in line and "ndarray float64" in line for line in lines)
    assert "calls 1" in resumed


@pytest.mark.parametrize("imports", ["", "import jax\n"])
def test_a_state_of_numpys_does_not_care_whether_jax_is_loaded(
    python: Python, imports: str
) -> None:
    """By another library, say."""
    text = (
        "import sys\n"
        "run = hf.start()\n"
        "state = run.restore(init=lambda: {'w': np.full(2, 0.1), 'n': np.int64(0)})\n"
        "for step in run.steps(int(sys.argv[1])):\n"
        "    state = {'w': state['w'] * 1.1, 'n': state['n'] + 1}\n"
        "    run.done(step, state)\n"
        "print(repr(state['w'].tolist()), type(state['w']), type(state['n']), state['n'])\n"
    )
    python(text, 3)
    assert python(imports + text, 6) == python(text, 6, HOLDFAST_NAME="straight")
