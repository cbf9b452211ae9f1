"""What a checkpoint holds beside the state: parts, data positions, random numbers, tags, bests."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest
from processes import EXIT_CONFIGURATION, House

Script = Callable[..., str]

LOOP = """
import sys
def train(run, state, data, until, each=lambda step: None):
    for step in run.steps(until):
        x = next(data)
        state["sum"] = state["sum"] * 3 + x
        each(step)
        run.done(step, state)
    return state
"""


@pytest.mark.parametrize("order", ["data first", "restore first"])
@pytest.mark.parametrize(
    "iterator",
    [
        "iter(range(1000))",  # drawn again
        "range(1000)",  # an iterable that is no iterator
        "(n * n for n in range(1000))",
        "Counter(1)",  # knows its own position
        "Loader()",  # an iterable with a state, like a data loader
    ],
)
def test_a_data_stream_goes_on_where_it_was(script: Script, iterator: str, order: str) -> None:
    text = LOOP + (
        "class Counter:\n"
        "    drawn = 0\n"
        "    def __init__(self, n): self.n = n\n"
        "    def __iter__(self): return self\n"
        "    def __next__(self): self.n += 7; Counter.drawn += 1; return self.n\n"
        "    def get_state(self): return {'n': self.n}\n"
        "    def set_state(self, state): self.n = state['n']\n"
        "class Loader:\n"
        "    at = 0\n"
        "    def __iter__(self):\n"
        "        while True:\n"
        "            self.at += 3\n"
        "            yield self.at\n"
        "    def state_dict(self): return {'at': self.at}\n"
        "    def load_state_dict(self, state): self.at = state['at']\n"
        "run = hf.start()\n"
        "until = int(sys.argv[1])\n"
        f"if {order!r} == 'data first': data = run.data({iterator})\n"
        "state = run.restore(init=lambda: {'sum': 1})\n"
        f"if {order!r} != 'data first': data = run.data({iterator})\n"
        "print(train(run, state, data, until)['sum'], Counter.drawn)\n"
    )
    script(text, 4)
    resumed = script(text, 9).split()
    straight = script(text, 9, HOLDFAST_NAME="straight").split()
    assert resumed[0] == straight[0]
    if iterator == "Counter(1)":
        assert resumed[1] == "5"  # nothing was drawn twice


def test_two_streams_keep_their_own_positions(script: Script) -> None:
    text = (
        "import sys\n"
        "run = hf.start()\n"
        "fast, slow = run.data(iter(range(10**6))), run.data(iter(range(0, -(10**6), -1)))\n"
        "state = run.restore(init=lambda: {'seen': []})\n"
        "for step in run.steps(int(sys.argv[1])):\n"
        "    state['seen'].append([next(fast), next(fast)])\n"
        "    if step % 3 == 0: state['seen'].append(next(slow))\n"
        "    run.done(step, state)\n"
        "print(state['seen'])\n"
    )
    script(text, 5)
    assert script(text, 11) == script(text, 11, HOLDFAST_NAME="straight")


def test_data_that_ends_before_the_position_is_refused(script: Script) -> None:
    text = LOOP + (
        "run = hf.start()\n"
        "data = run.data(iter(range(int(sys.argv[2]))))\n"
        "train(run, run.restore(init=lambda: {'sum': 1}), data, int(sys.argv[1]))\n"
    )
    script(text, 5, 100)
    assert "after 5 batches, but the data ended after 3" in script(text, 9, 3, code=78)


RANDOM = """
import random, sys
framework = sys.argv[2]
if framework == "torch":
    import torch
    torch.manual_seed(3)
random.seed(1); np.random.seed(2); mine = np.random.default_rng(4); own = random.Random(5)
run = hf.start()
run.track(mine=mine, own=own)
def shuffled():
    while True:
        yield 0 * random.random()  # an iterator that draws as well
if sys.argv[3] == "data first":
    data = run.data(shuffled())
state = run.restore(init=lambda: {"drawn": []})
if sys.argv[3] != "data first":
    data = run.data(shuffled())
if sys.argv[3] == "model last":  # its first values are drawn, and replaced by those restored
    random.seed(1); np.random.seed(2); random.random(); np.random.standard_normal(5)
for step in run.steps(int(sys.argv[1])):
    next(data)
    drawn = [random.random(), random.gauss(0, 1), np.random.standard_normal(), mine.random()]
    drawn.append(own.random())
    if framework == "torch":
        drawn.append(torch.rand(()).item())
    state["drawn"].append(drawn)
    run.done(step, state)
print(state["drawn"])
"""


@pytest.mark.parametrize(
    ("framework", "order"),
    [
        ("none", "data first"),
        ("none", "restore first"),
        ("none", "model last"),
        ("torch", "data first"),
    ],
)
def test_random_numbers_go_on(script: Script, framework: str, order: str) -> None:
    if framework == "torch":
        pytest.importorskip("torch")
    script(RANDOM, 3, framework, order)
    resumed = script(RANDOM, 7, framework, order)
    assert resumed == script(RANDOM, 7, framework, order, HOLDFAST_NAME="straight")


TRACKED = """
import sys
class Part:
    def __init__(self): self.n = 0; self.loaded = 0
    def state_dict(self): return {"n": self.n}
    def load_state_dict(self, state): self.n = state["n"]; self.loaded += 1
until, when, name = int(sys.argv[1]), sys.argv[2], sys.argv[3]
run = hf.start()
part = Part()
if when == "before": run.track(**{name: part})
run.restore(init=lambda: {})
if when == "after": run.track(**{name: part})
for step in run.steps(until):
    part.n = part.n * 2 + step
    run.done(step, {})
print(part.n, part.loaded)
"""


@pytest.mark.parametrize("when", ["before", "after"])
def test_tracked_objects_are_restored_in_place(script: Script, when: str) -> None:
    script(TRACKED, 4, when, "part")
    straight = script(TRACKED, 9, when, "part", HOLDFAST_NAME="straight").split()
    assert script(TRACKED, 9, when, "part").split() == [straight[0], "1"]


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_part_under_another_name_is_told(script: Script, when: str) -> None:
    """Nothing is restored in silence under half of what was saved."""
    script(TRACKED, 4, when, "optimizer")
    out = script(TRACKED, 9, when, "opt")
    assert "parts/opt is not in the checkpoint" in out
    assert "parts/optimizer" in out


def test_what_cannot_be_tracked_is_refused(script: Script) -> None:
    out = script("run = hf.start()\nrun.track(thing=object())\n", code=78)
    assert "run.track(thing=…): object has neither state_dict" in out


TAGS = """
import sys
run = hf.start(keep=hf.Keep(last=2, every=5))
state = run.restore(init=lambda: {"x": np.zeros(3)})
for step in run.steps(int(sys.argv[1])):
    state["x"] += 1
    loss = [9, 8, 7, 3, 4, 5, 6, 3, 8, 9, 9, 9, 9, 9][step - 1]
    if step <= 14: print(step, run.best("loss", loss, "min"))
    if step == 2: run.save("early on/1", wait=True)
    run.done(step, state)
"""


def test_tags_and_the_best_stay(script: Script, house: House) -> None:
    told = script(TAGS, 14, HOLDFAST_SAVE_EVERY_STEPS=1)
    assert "The tag 'early on/1' is kept as early-on-1" in told
    pins = json.loads((house.store / "r" / "pins.json").read_text())["pins"]
    steps = {tag: int(name.split("-")[1]) for tag, name in pins.items()}
    assert steps["early-on-1"] == 2
    assert steps["best"] == 4
    left = {int(folder.name.split("-")[1]) for folder in house.sets()}
    assert {2, 4, 14} <= left
    assert len(left) <= 2 + 2 + 3  # tags, the last 2, the first of each 5
    out = script(
        f"print(hf.load({str(house.store)!r} + '/r@best')['x'][0],"
        f" hf.load({str(house.store)!r} + '/r@early-on-1')['x'][0],"
        f" hf.load({str(house.store)!r} + '/r@14')['x'][0],"
        f" hf.load({str(house.store)!r} + '/r')['x'][0])\n"
    )
    assert out.split() == ["4.0", "2.0", "14.0", "14.0"]
    named = script(
        "print(hf.load('r@best')['x'][0],"
        f" hf.load('r@early-on-1', store={str(house.store)!r})['x'][0])\n"
    )
    assert named.split() == ["4.0", "2.0"]


def test_the_best_is_remembered_over_a_restart(script: Script) -> None:
    text = (
        "import sys\n"
        "run = hf.start()\n"
        "state = run.restore(init=lambda: {})\n"
        "for step in run.steps(int(sys.argv[1])):\n"
        "    print(run.best('loss', float(sys.argv[2]), 'min'))\n"
        "    run.done(step, state)\n"
    )
    assert script(text, 1, 3.0) == "True"
    assert script(text, 2, 4.0) == "False"
    assert script(text, 3, 2.0) == "True"


def test_the_best_is_the_highest_or_the_lowest_and_never_nan(script: Script) -> None:
    out = script(
        "run = hf.start()\n"
        "run.restore(init=dict)\n"
        "for n in (float('nan'), 0.5, 0.7, float('nan'), 0.6, np.float32(0.75)):\n"
        "    print(run.best('accuracy', n, 'max'), run.best('loss', n, 'min'))\n"
    )
    told = [line.split() for line in out.splitlines()]
    assert [highest for highest, _ in told] == ["False", "True", "True", "False", "False", "True"]
    assert [lowest for _, lowest in told] == ["False", "True", *["False"] * 4]


def test_load_a_part_of_the_state(script: Script, house: House) -> None:
    script(
        "run = hf.start()\n"
        "state = run.restore(init=lambda: {'params': {'w': np.ones(2), 'b': np.zeros(1)},"
        " 'opt': np.ones(9)})\n"
        "for step in run.steps(1): run.done(step, state)\n"
    )
    place = f"{str(house.store)!r} + '/r'"
    out = script(f"print(hf.load({place}, only='params/**'))\n")
    assert out == "{'params': {'w': array([1., 1.]), 'b': array([0.])}}"
    refused = script(f"hf.load({place}, only='parms/**')\n", code=1)
    assert "wants what fits only='parms/**', the checkpoint has a dict with params, opt" in refused
    assert "has no tag 'none'; its tags: none" in script(f"hf.load({place} + '@none')\n", code=1)
    assert "has no checkpoint of step 77" in script(f"hf.load({place} + '@77')\n", code=1)
    assert "no run is named 'nothing'" in script("hf.load('nothing')\n", code=1)
    assert "write RUN, RUN@TAG" in script("hf.load('@best')\n", code=1)
    assert "write RUN, RUN@TAG" in script(f"hf.load({place}, store='elsewhere')\n", code=1)


def test_a_part_that_is_not_there_is_no_start_from_scratch(script: Script) -> None:
    text = (
        "import sys\n"
        "run = hf.start()\n"
        "state = run.restore(only=sys.argv[2]) or {'params': {'w': np.zeros(1)}, 'opt': 0}\n"
        "for step in run.steps(int(sys.argv[1])):\n"
        "    state['params']['w'] += 1\n"
        "    run.done(step, state)\n"
        "print(state['params']['w'], sorted(state))\n"
    )
    assert script(text, 2, "params/**") == "[2.] ['opt', 'params']"
    assert script(text, 3, "params/**") == "[3.] ['params']"
    refused = script(text, 4, "parms/**", code=EXIT_CONFIGURATION)
    assert "wants what fits only='parms/**', the checkpoint has a dict with params" in refused
    both = "run = hf.start()\nrun.restore(init=dict, only='params/**')\n"
    assert "leave one of them out" in script(both, code=EXIT_CONFIGURATION)


GROWING = """
import sys
if sys.argv[2] == "jax":
    import jax, jax.numpy as jnp
    make = jnp.zeros
else:
    make = np.zeros
run = hf.start()
state = run.restore(init=lambda: {
    "w": make(4), "history": [], "best": None, "notes": {}, "epoch": 0, "lr": 0.5,
    "pairs": [(0, 1.5)],
})
for step in run.steps(int(sys.argv[1])):
    state["w"] = state["w"] + 1
    state["history"].append(step / 10)
    state["best"] = 0.1 * step
    state["notes"][f"step {step}"] = ["as", "it", {"comes": b"\\xff" * 300}]
    state["epoch"] += 1
    state["lr"] *= 0.7
    state["pairs"].append((step, 0.1 * step))
    run.done(step, state)
print(type(state["w"]).__name__, [float(w) for w in state["w"]], state["history"], state["best"])
print(state["notes"], state["epoch"], state["lr"], state["pairs"])
"""


@pytest.mark.parametrize("framework", ["numpy", "jax"])
def test_plain_values_may_grow(script: Script, framework: str) -> None:
    """Histories, counters and bests that start empty come back as they were, to the bit."""
    script(GROWING, 3, framework)
    assert script(GROWING, 5, framework) == script(GROWING, 5, framework, HOLDFAST_NAME="straight")


def test_an_array_where_a_plain_value_was_is_refused(script: Script) -> None:
    script(
        "run = hf.start()\nrun.restore(init=lambda: {})\n"
        "for step in run.steps(1): run.done(step, {'a': np.ones(3)})\n"
    )
    text = "run = hf.start()\nrun.restore(init=lambda: {'a': 0.5})\n"
    out = script(text, code=EXIT_CONFIGURATION)
    assert "at state/a: the program wants plain values, the checkpoint has float64[3]" in out


PARTS = """
import sys
class Counter:
    count = 0
    def state_dict(self): return {"count": self.count}
    def load_state_dict(self, state): self.count = state["count"]
run, counter = hf.start(), Counter()
run.track(counter=counter)
data = run.data(range(100))
for step in run.steps(int(sys.argv[1])):
    counter.count += next(data)
    run.done(step, {"a": 1} if sys.argv[2] == "state" else None)
print(counter.count)
"""


def test_parts_are_restored_where_nobody_has_called_restore(script: Script) -> None:
    assert script(PARTS, 4, "parts").split() == ["6"]
    assert script(PARTS, 6, "parts").split() == ["15"]


def test_a_state_that_nobody_has_taken_is_not_lost_in_silence(script: Script) -> None:
    script(PARTS, 2, "state")
    out = script(PARTS, 4, "state", code=EXIT_CONFIGURATION)
    assert "the checkpoint of step 2 has a state: take it" in out


def test_what_lies_beside_a_checkpoint_of_ones_own_is_not_lost_in_silence(script: Script) -> None:
    text = (
        "import sys\n"
        "run = hf.start()\n"
        "if sys.argv[3] == 'data': data = run.data(range(100))\n"
        "if sys.argv[2] == 'restores': run.restore()\n"
        "first = int(sys.argv[1])\n"
        "for step in run.steps(first + 3, after=first):\n"
        "    print(next(data) if sys.argv[3] == 'data' else step)\n"
        "    run.done(step, commit=lambda step: None)\n"
    )
    told = "begin anew, as run.restore() was not called"
    assert script(text, 0, "none", "data").split() == ["0", "1", "2"]
    again = script(text, 3, "none", "data")
    assert told in again
    assert again.splitlines()[-3:] == ["0", "1", "2"]
    assert told not in script(text, 6, "none", "nothing")
    restored = script(text, 9, "restores", "data")
    assert told not in restored
