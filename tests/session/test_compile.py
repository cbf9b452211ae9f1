"""`run.compile`: found by the next attempt, never stale, never in the way."""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest
from processes import House

from holdfast.journal.reader import JournalReader
from holdfast.program import Flops
from holdfast.session.compiled_step import _flops_in

pytestmark = pytest.mark.real

pytest.importorskip("optax")

Python = Callable[..., str]

# Says "tracing" whenever the step is traced. `shape` is a module of the script's own.
TRAIN = """
import functools, hashlib, os, sys
import jax, jax.numpy as jnp, optax
import shape
from holdfast.cache import home
from holdfast.core import kept_programs
from holdfast.session import compile_cache
home.SEED_LIMIT_S = compile_cache.SEED_WAIT_S = 60.0  # a busy machine is not a failure
kept_programs.SETTLE_S = 1e6  # nothing is traced beside the training
how, rate = sys.argv[1], float(sys.argv[2])
run = hf.start()
optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(rate))

@jax.tree_util.register_pytree_node_class
class Box:
    def __init__(self, value, label):
        self.value, self.label = value, label
    def tree_flatten(self):
        return (self.value,), self.label
    @classmethod
    def tree_unflatten(cls, label, children):
        return cls(children[0], label)

def init():
    params = {"w": jnp.linspace(-1, 1, 32).reshape(8, 4), "b": jnp.zeros(4, jnp.bfloat16)}
    return {"params": params, "opt": optimizer.init(params), "key": jax.random.key(7)}

@functools.partial(jax.jit, donate_argnums=0, static_argnames="wide")
def train_step(state, box, wide=False):
    print("tracing")
    key, use = jax.random.split(state["key"])
    def loss_of(params):
        noise = jax.random.normal(use, (4,))
        y = shape.squash(box.value @ params["w"]) + params["b"].astype(jnp.float32)
        return jnp.mean((y * (2.0 if wide else 1.0) + noise) ** 2)
    loss, grads = jax.value_and_grad(loss_of)(state["params"])
    updates, opt = optimizer.update(grads, state["opt"], state["params"])
    state = {"params": optax.apply_updates(state["params"], updates), "opt": opt, "key": key}
    return state, Box(loss, box.label)

step = train_step if how == "plain" else run.compile(train_step)
state = run.restore(init=init)
for n in run.steps(run.resume_step + int(os.environ.get("STEPS", "3"))):
    given, rows = state, 2 if n % 3 else 4
    state, box = step(given, Box(jnp.full((rows, 8), n / 7), "label"), wide=n % 3 == 1)
    assert box.label == "label" and type(state["opt"][1][0]) is type(given["opt"][1][0])
    assert given["params"]["w"].is_deleted()
    run.done(n, state)

def bits(tree):
    leaves = jax.tree_util.tree_leaves(tree | {"key": jax.random.key_data(tree["key"])})
    return hashlib.sha256(b"".join(np.asarray(x).tobytes() for x in leaves)).hexdigest()
print("bits", bits(state))
"""
SHAPE = "import jax.numpy as jnp\nGAIN = 1.0\ndef squash(x):\n    return jnp.tanh(x) * GAIN\n"


class Once(NamedTuple):
    """A script, the store after its first three steps, and what it said meanwhile."""

    script: Path
    store: Path
    said: str

    def shape(self, text: str = SHAPE) -> None:
        """The module that the script imports."""
        self.script.with_name("shape.py").write_text(text)


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Once:
    """What most tests begin with. They share the script's folder: it is a part of the program."""
    folder = tmp_path_factory.mktemp("once")
    script, store = folder / "script.py", folder / "store"
    script.write_text("import numpy as np\nimport holdfast as hf\n" + TRAIN)
    store.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_STORE", str(store))
        patch.setenv("HOLDFAST_SCRATCH", str(folder / "scratch"))
        house = House(folder, store)
        once = Once(script, store, "")
        once.shape()
        try:
            return once._replace(said=start(house, once))
        finally:
            house.close()


def start(house: House, once: Once, how: str = "compile", rate: float = 0.01, **env: object) -> str:
    """Three steps more: the output."""
    # A source may change within a second.
    fixed = {"PYTHONDONTWRITEBYTECODE": "1", "NPROC": "2", "HOLDFAST_NAME": "r"}
    return house.start(sys.executable, once.script, how, rate, **(fixed | env)).wait(0)


@pytest.fixture
def train(house: House, once: Once) -> Callable[..., str]:
    """`start` in a store of the test's own, in which it was started once before."""
    shutil.copytree(once.store, house.store, dirs_exist_ok=True)
    once.shape()
    return partial(start, house, once)


def bits(text: str) -> str:
    found = re.search(r"bits (\w+)", text)
    assert found is not None
    return found[1]


def misses(store: Path, attempt: int) -> int:
    journal = store / "r" / "attempts" / f"{attempt:04d}" / "journal" / "rank-00000.hfj"
    with JournalReader(journal) as reader:
        values = reader.values()
        assert values.errors == 0
        return values.compile_misses


def test_the_next_attempt_neither_traces_nor_compiles(
    train: Callable[..., str], once: Once, store: Path
) -> None:
    # Three programs: another shape, another static argument. Nothing is said against keeping them.
    assert once.said.count("tracing") == 3
    assert "is traced and compiled" not in once.said
    assert "tracing" not in train()
    assert misses(store, 1) == 0


def test_the_results_are_those_of_plain_jit_to_the_bit(train: Callable[..., str]) -> None:
    third = [train(), train()][-1]
    plain = train("plain", HOLDFAST_NAME="p", STEPS=9)
    assert bits(third) == bits(plain)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("jnp.tanh(x) * GAIN", "jnp.sin(x) * GAIN"),  # the code of a function that it calls
        ("GAIN = 1.0", "GAIN = 1.5"),  # a number that one reads
        ("jnp\n", "jnp\n# a remark: whatever is in a file of the user's counts\n"),
    ],
)
def test_changed_code_is_traced_anew(
    train: Callable[..., str], once: Once, before: str, after: str
) -> None:
    once.shape(SHAPE.replace(before, after, 1))
    assert train().count("tracing") == 3


def test_a_changed_value_that_it_closes_over_is_noticed(train: Callable[..., str]) -> None:
    assert train(rate=0.02).count("tracing") == 3
    assert "tracing" not in train(rate=0.01)


@pytest.mark.parametrize(
    "change",
    [
        {"JAX_THREEFRY_PARTITIONABLE": "0"},
        {"JAX_DEFAULT_MATMUL_PRECISION": "float32"},
        {"XLA_FLAGS": "--xla_force_host_platform_device_count=2"},
        {"XLA_FLAGS": "--xla_cpu_enable_fast_math=true"},
        {"NPROC": "3"},
    ],
)
def test_other_options_and_devices_are_another_program(
    train: Callable[..., str], change: dict[str, str]
) -> None:
    assert train(**change).count("tracing") == 3


@pytest.mark.parametrize("pattern", ["step_*", "xla_jit_train_step*"])
def test_a_damaged_program_is_made_again(
    train: Callable[..., str], store: Path, pattern: str
) -> None:
    files = list((store / "r" / "cache").glob(pattern))
    assert len(files) == 3
    for file in files:
        data = bytearray(file.read_bytes())
        data[len(data) // 2] ^= 8
        file.write_bytes(data)
    text = train()
    assert "is damaged" in text
    assert text.count("tracing") == 3
    assert "tracing" not in train()


def test_without_a_cache_it_is_plain_jit(train: Callable[..., str]) -> None:
    text = train(HOLDFAST_COMPILE_CACHE="off")
    assert "train_step is traced and compiled at every start: compiled programs are not" in text
    assert train(HOLDFAST_COMPILE_CACHE="off").count("tracing") == 3


REFUSED = """
import random, time, sys
import jax, jax.numpy as jnp
run = hf.start()
table = jnp.arange(4.0)
handle = open(sys.argv[0])
class Opaque:
    __slots__ = ("held",)
    def __init__(self): self.held = iter([1])
opaque = Opaque()

def f_time(x): return x + time.time() * 0
def f_random(x): return x + random.random() * 0
def f_numpy(x): return x + np.random.rand() * 0
def f_array(x): return x + table
def f_file(x): return x + len(handle.name)
def f_open(x): return x + len(open(sys.argv[0]).name)
def f_import(x):
    import os
    return x + len(os.sep)
def f_opaque(x): return x + len(str(opaque.held)) * 0
def f_module(x): return x + len(vars(np))
def f_eval(x): return x + eval("1")
def f_callback(x):
    jax.debug.print("seen {x}", x=x)
    return x

state = run.restore(init=lambda: {"x": np.zeros(4)})
for name in [name for name in dict(globals()) if name.startswith("f_")]:
    y = run.compile(globals()[name])(np.zeros(4))
    print(name, "gave", np.asarray(y).shape)
for n in run.steps(1):
    run.done(n, state)
"""


def test_what_cannot_be_told_is_compiled_and_said(python: Python, store: Path) -> None:
    text = python(REFUSED)
    for name, why in {
        "f_time": "uses the module time",
        "f_random": "uses the module random",
        "f_numpy": "numpy.random",
        "f_array": "it holds an array",
        "f_file": "whose answers may change",
        "f_open": "calls open()",
        "f_import": "imports os inside",
        "f_opaque": "cannot be looked into",
        "f_module": "calls vars()",
        "f_eval": "calls eval()",
        "f_callback": "it has",
    }.items():
        assert re.search(f"{name} is traced and compiled at every start: .*{re.escape(why)}", text)
        assert f"{name} gave (4,)" in text
    assert list((store / "r" / "cache").glob("step_*")) == []


OTHERS = """
import jax, jax.numpy as jnp
run = hf.start()
step = run.compile(lambda x, n: x * n, static_argnums=1)
x = np.ones(3, np.float32)
assert step(x, 2).tolist() == [2, 2, 2]
assert step(x, 3).tolist() == [3, 3, 3]
assert step(x, 2).tolist() == [2, 2, 2]
assert jax.jit(lambda x: step(x, 5))(x).tolist() == [5, 5, 5]    # inside another program
assert jax.grad(lambda x: step(x, 5).sum())(x).tolist() == [5, 5, 5]
double = run.compile(lambda x: x * 2)
half = jnp.bfloat16(1.5)
assert double(1.5).weak_type and not double(half).weak_type      # as jit has it
assert double(half).dtype == jnp.bfloat16
assert double(jnp.float32(1.5)).dtype == jnp.float32
assert not double(jnp.asarray(1.5, jnp.float32)).weak_type and double(1.5).weak_type
assert double.lower(1.0).as_text()
try:
    run.compile(lambda x, y: x @ y)(np.ones((2, 3)), np.ones((2, 3)))
except TypeError as error:
    print("error:", "dot" in str(error))
run.restore()
for n in run.steps(1):
    run.done(n)
"""


def test_it_is_called_as_the_function(python: Python) -> None:
    assert "error: True" in python(OTHERS)
    assert "error: True" in python(OTHERS)


COUNTED = """
import sys
import jax, jax.numpy as jnp
run = hf.start()

def train_step(w):
    print("tracing")
    return jnp.tanh(w @ w)

step = run.compile(train_step, flops=True)
w = run.restore(init=lambda: jnp.ones((8, 8)))
for n in run.steps(int(sys.argv[1])):
    w = step(w)
    run.done(n, w)
print("at", n)
"""


def test_flops_are_kept_with_the_program(python: Python, house: House) -> None:
    assert "tracing" in python(COUNTED, 3)
    assert "tracing" not in python(COUNTED, 6)
    report = json.loads(house.holdfast("report", "r", "--json").wait(0))
    assert report["program"]["flops_per_step"] == 2 * 8**3
    assert report["program"]["bytes_per_step"] == 3 * 4 * 8**2
    for attempt in (house.store / "r" / "attempts").iterdir():
        told = b"".join(one.read_bytes() for one in attempt.glob("journal/rank-00000*"))
        assert b'"flops": 1024' in told or b'"flops":1024' in told, attempt.name


def test_words_of_a_kept_program_that_are_rubbish() -> None:
    good = {"model": 1, "executed": 2, "left_out": ["x"], "model_bytes": 3, "executed_bytes": 4}
    assert _flops_in({"flops": good}) == Flops(1, 2, ("x",), 3, 4)
    for wrong in ({"model": -1}, {"left_out": 1}, {"executed": True}, {"model_bytes": None}):
        assert _flops_in({"flops": good | wrong}) is None
    for nothing in (None, 3, {}):
        assert _flops_in({"flops": nothing}) is None


# Its step reads what nobody sees: a name among Python's own.
UNSEEN = """
import builtins, os, sys
import jax, jax.numpy as jnp
from holdfast.core import kept_programs
kept_programs.SETTLE_S = kept_programs.SHARE = 0
until, builtins.GAIN = int(sys.argv[1]), float(os.environ["GAIN"])
run = hf.start()

@jax.jit
def train_step(state, x):
    print("tracing")
    return {"w": state["w"] + GAIN * x.sum(0)}

step = run.compile(train_step)
state = run.restore(init=lambda: {"w": jnp.zeros(2)})
x = jnp.ones((3, 2))
if sys.argv[2] == "context":
    jax.default_matmul_precision("float32").__enter__()
for n in run.steps(until):
    state = step(state, x)
    run.done(n, state)
print("w", state["w"].tolist(), "at", n)
"""


@pytest.mark.parametrize("where", ["plain", "context"])
def test_what_nobody_sees_is_found_and_the_run_goes_back(
    python: Python, store: Path, where: str
) -> None:
    assert "w [9.0, 9.0] at 3" in python(UNSEEN, 3, where, GAIN=1)
    text = python(UNSEEN, 10**9, where, code=1, GAIN=2)
    assert "train_step is not what its kept program was compiled from: it is traced to" in text
    text = python(UNSEEN, 5, where, GAIN=2)
    assert "starting from step 3 of attempt 0, the newest checkpoint up to step 3" in text
    assert "w [21.0, 21.0] at 5" in text
    assert "tracing" in text
    assert len(list((store / "r" / "cache").glob("*.void"))) == 1


def test_what_is_the_same_is_trained_on(python: Python) -> None:
    python(UNSEEN, 3, "context", GAIN=1)
    text = python(UNSEEN, 300, "context", GAIN=1)
    assert "w [900.0, 900.0] at 300" in text
    assert "tracing" in text  # beside, or in the loop


OPTIONS = """
import jax, jax.numpy as jnp, sys
run = hf.start()
def scaled(x): return x.astype(float) / 3
kept, jitted, x = run.compile(scaled), jax.jit(scaled), jnp.ones(3)
for is_wide in (False, True, False):
    with jax.enable_x64(is_wide):
        of_both = [(one.dtype, bytes(one)) for one in (kept(x), jitted(x))]
        assert of_both[0] == of_both[1], of_both
print("alike")
"""


def test_options_of_jax_around_a_call_are_heeded(python: Python) -> None:
    assert python(OPTIONS) == "alike"
    assert python(OPTIONS) == "alike"  # with what was kept
