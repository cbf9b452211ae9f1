"""The compilation cache under real processes: found by every rank, never in the way."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest
from processes import FAR, House

from holdfast.journal.reader import JournalReader

pytestmark = pytest.mark.real

pytest.importorskip("jax")

SCRIPT = """
import os, signal, sys
import holdfast as hf
run = hf.start()                     # before JAX: what is to be done waits for its import
import jax, jax.numpy as jnp

@jax.jit
def step(x):
    return jnp.tanh(x @ x.T).sum() * jnp.arange(3.0)

run.restore(init=lambda: {"y": jnp.zeros(3)})
for n in run.steps(int(sys.argv[1])):
    y = step(jnp.eye(4) * n)
    if n == run.resume_step + int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGTERM)
    run.done(n, {"y": y})
print("value", float(y[2]), "folder", jax.config.jax_compilation_cache_dir)
"""


@pytest.fixture(autouse=True)
def nobody_stands_by(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nearly all runs have one attempt: standbys would import JAX for nobody."""
    monkeypatch.setenv("HOLDFAST_STANDBY", "off")


@pytest.fixture
def script(house: House) -> Path:
    return house.script(SCRIPT)


def counts(store: Path, attempt: int, rank: int = 0) -> tuple[int, int]:
    """(hits, misses) of a rank."""
    journal = store / "r" / "attempts" / f"{attempt:04d}" / "journal" / f"rank-{rank:05d}.hfj"
    with JournalReader(journal) as reader:
        values = reader.values()
    assert values.errors == 0
    return values.compile_hits, values.compile_misses


def entries(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.hfx"))


def train(
    house: House, script: Path, steps: int, *options: object, leave_at: int = 0, **env: object
) -> str:
    words = ("--name", "r", "--scratch", house.folder / "scratch", *options)
    command = (sys.executable, "-W", "error", script, steps, leave_at)
    return house.holdfast("run", *words, "--", *command, **env).wait(75 if leave_at else 0)


def test_the_second_attempt_compiles_nothing_anew(house: House, script: Path, store: Path) -> None:
    train(house, script, 2)
    hits, misses = counts(store, 0)
    assert (hits, misses) == (0, misses)
    assert misses > 0
    train(house, script, 4)
    hits, misses = counts(store, 1)
    assert (hits > 0, misses) == (True, 0)
    assert list(house.folder.glob("scratch/**/*.hfx")) == []  # the run is done


def test_every_rank_has_its_programs(house: House, script: Path, store: Path) -> None:
    train(house, script, 2, "--ranks", 2)
    train(house, script, 4, "--ranks", 2)
    for rank in (0, 1):
        hits, misses = counts(store, 1, rank)
        assert (hits > 0, misses) == (True, 0)
    told = json.loads(house.holdfast("report", "r", "--json").wait(0))["compile_cache"]
    ranks = [(attempt, rank) for attempt in (0, 1) for rank in (0, 1)]
    assert told["hits"] == sum(counts(store, *where)[0] for where in ranks)
    assert told["misses"] == sum(counts(store, *where)[1] for where in ranks)
    assert told["saved_s"] > 0
    assert re.search(
        r"compile +\d+ hits, \d+ misses, .* saved", house.holdfast("report", "r").wait(0)
    )


def test_another_number_of_threads_is_another_program(
    house: House, script: Path, store: Path
) -> None:
    """XLA divides the work among them when it compiles, and a sum comes out otherwise."""
    train(house, script, 2, NPROC=2)
    train(house, script, 4, NPROC=3)
    hits, misses = counts(store, 1)
    assert (hits, misses > 0) == (0, True)


def test_a_fresh_host_is_seeded_from_the_store(house: House, script: Path, store: Path) -> None:
    train(house, script, 2)
    assert len(entries(store / "r" / "cache")) > 0
    train(house, script, 4, "--scratch", house.folder / "another host")
    hits, misses = counts(store, 1)
    assert (hits > 0, misses) == (True, 0)


@pytest.mark.parametrize("where", ["scratch/*/*/cache", "../store/r/cache"])
def test_a_damaged_program_is_compiled_again(
    house: House, script: Path, store: Path, where: str
) -> None:
    train(house, script, FAR, leave_at=1)
    assert store == house.folder.parent / "store"
    (here,), home = (house.folder / "scratch").glob("*/*/cache"), store / "r" / "cache"
    assert {path.name for path in entries(here)} == {path.name for path in entries(home)}
    if where.endswith("r/cache"):
        for entry in entries(here):
            entry.unlink()
    (damaged,) = house.folder.glob(where)
    for number, entry in enumerate(entries(damaged)):
        data = bytearray(entry.read_bytes())
        data[len(data) // 2] ^= 4
        entry.write_bytes(data[: len(data) - number % 3])
    assert "is damaged" in train(house, script, FAR, leave_at=1)
    hits, misses = counts(store, 1)
    assert (hits, misses > 0) == (0, True)
    train(house, script, FAR, leave_at=1)
    hits, misses = counts(store, 2)
    assert (hits > 0, misses) == (True, 0)


def test_a_bare_script_keeps_its_programs_too(house: House, script: Path, store: Path) -> None:
    env = {"HOLDFAST_NAME": "r", "HOLDFAST_SCRATCH": house.folder / "scratch"}
    house.start(sys.executable, script, 2, 0, **env).wait(0)
    assert len(entries(store / "r" / "cache")) > 0
    env["HOLDFAST_SCRATCH"] = house.folder / "another host"
    house.start(sys.executable, script, 4, 0, **env).wait(0)
    hits, misses = counts(store, 1)
    assert (hits > 0, misses) == (True, 0)


def test_a_cache_of_the_users_own_is_left_alone(house: House, script: Path, store: Path) -> None:
    theirs = house.folder / "theirs"
    said = train(house, script, 2, JAX_COMPILATION_CACHE_DIR=theirs)
    assert f"folder {theirs}" in said
    assert not (store / "r" / "cache").exists()


def test_it_can_be_switched_off(house: House, script: Path, store: Path) -> None:
    assert "folder None" in train(house, script, 2, "--compile-cache", "off")
    assert not (store / "r" / "cache").exists()
    assert counts(store, 0) == (0, 0)


def test_an_unwritable_cache_does_not_stop_a_run(house: House, script: Path, store: Path) -> None:
    (store / "r").mkdir(parents=True, mode=0o700)
    (store / "r" / "cache").write_text("in the way")
    train(house, script, 2)
    assert counts(store, 0)[1] > 0


def test_two_ranks_find_their_compiled_step_and_train_to_the_same_bit(
    house: House, store: Path
) -> None:
    pytest.importorskip("optax")
    text = house.folder / "text"
    text.write_text("the quick brown fox jumps over the lazy dog. " * 200)
    lm = Path(__file__).parents[2] / "examples" / "lm" / "train.py"
    small = ("--layers", 1, "--width", 16, "--heads", 2, "--context", 8, "--batch", 2)
    common = (*small, "--steps", 8, "--eval-every", 0, "--threads", 1, "--data", text)

    def result(name: str, *options: object, more: tuple[object, ...] = ()) -> str:
        out = house.folder / f"{name}.json"
        words = ("--name", name, "--ranks", 2, *options, "--", sys.executable, lm, *common)
        said = house.holdfast("run", *words, "--out", out, *more).wait(0)
        assert ("is traced and compiled" in said) == (name == "plain")
        return out.read_text()

    once = house.folder / "once"
    broken = result("r", more=("--fail-at", 4, once))
    assert once.exists()
    assert [counts(store, 1, rank)[1] for rank in (0, 1)] == [0, 0]
    assert broken == result("plain", "--compile-cache", "off")


CRASHES = """
import os, signal, sys
from pathlib import Path
import holdfast as hf
run = hf.start()
import jax, jax.numpy as jnp
from jax._src import compilation_cache

read = compilation_cache.extract_executable_and_time  # on the way from the bytes to the program

def crash(data):
    if armed:
        os.kill(os.getpid(), signal.SIGSEGV)
    return read(data)

armed = False
compilation_cache.extract_executable_and_time = crash

def step(x):
    return jnp.tanh(x) + 1

step = run.compile(step) if sys.argv[1] == "run.compile" else jax.jit(step)
state = run.restore(init=lambda: jnp.ones(3))
for n in run.steps(3):
    armed = True
    state = step(state)
    if not Path("once").exists():
        Path("once").touch()
        os.kill(os.getpid(), signal.SIGKILL)
    run.done(n, state)
print("trained to the end")
"""


@pytest.mark.parametrize("how", ["run.compile", "jit"])
def test_a_program_that_ends_who_loads_it_is_loaded_twice_and_no_more(
    house: House, how: str
) -> None:
    script = house.script(CRASHES)
    env = {"HOLDFAST_NAME": "r", "HOLDFAST_SCRATCH": house.folder / "scratch"}

    def start(code: int) -> str:
        return house.start(sys.executable, script, how, **env).wait(code)

    start(-signal.SIGKILL)
    for _ in range(2):
        start(-signal.SIGSEGV)
    said = start(0)
    assert said.count("is put aside, and compiled at every start") == 1
    assert "trained to the end" in said


# What its step is traced to depends on a name that nobody sees.
UNSEEN = """
import builtins, os, signal, sys
import holdfast as hf
from holdfast.core import kept_programs
kept_programs.SETTLE_S = kept_programs.SHARE = 0
run = hf.start()
import jax, jax.numpy as jnp
builtins.GAIN = float(os.environ["GAIN"])

def step(state, x):
    print("tracing")
    return state + GAIN * x

step = run.compile(step)
state = run.restore(init=lambda: jnp.zeros(2))
last = int(sys.argv[1]) if run.attempt != 1 else 10**9
for n in run.steps(last):
    state = step(state, jnp.ones(2))
    if n == int(sys.argv[2]):
        os.kill(os.getpid(), signal.SIGTERM)
    run.done(n, state)
print("state", state.tolist())
"""


def test_what_one_rank_finds_sends_all_of_them_back(house: House, store: Path) -> None:
    """Rank 1 does not look, and uses the program no more either."""
    script = house.script(UNSEEN)
    train(house, script, FAR, "--ranks", 2, leave_at=3, GAIN=1)
    said = train(house, script, 100, "--ranks", 2, GAIN=2)
    assert said.count("step is not what its kept program was compiled from") >= 1
    first = json.loads((store / "r" / "attempts" / "0001" / "attempt.json").read_bytes())
    again = json.loads((store / "r" / "attempts" / "0002" / "attempt.json").read_bytes())
    step = first["resume_step"]
    assert again["resume_step"] == step
    assert said.count(f"state {[step + 2.0 * (100 - step)] * 2}") == 2
