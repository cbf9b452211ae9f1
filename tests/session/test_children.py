"""Processes that a training script starts: none of them is the run, and none disturbs it."""

from __future__ import annotations

import sys
from collections.abc import Callable

import pytest
from processes import EXIT_DONE, House

pytestmark = pytest.mark.real

Python = Callable[..., str]

WORKERS = """
import multiprocessing, sys

def square(n):
    return n * n

run = hf.start()  # imported again by each spawned worker: there it must do nothing
state = run.restore(init=lambda: {"sum": 0})

if __name__ == "__main__":
    with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
        for step in run.steps(5):
            state["sum"] += sum(pool.map(square, range(step)))
            run.done(step, state)
    print("sum", state["sum"])
"""


@pytest.mark.parametrize("how", ["spawn", "fork", "forkserver"])
@pytest.mark.parametrize("supervised", [False, True])
def test_workers_are_inert(house: House, python: Python, how: str, supervised: bool) -> None:
    if supervised:
        script = house.script("import numpy as np\nimport holdfast as hf\n" + WORKERS)
        run = house.holdfast("run", "--name", "r", "--", sys.executable, script, how)
        out = run.wait(EXIT_DONE)
    else:
        out = python(WORKERS, how)
    assert "sum 50" in out
    assert house.saved_step() == 5
    assert len(list((house.store / "r" / "attempts").iterdir())) == 1


FORKED = """
import os, sys
run = hf.start()
state = run.restore(init=lambda: {"x": 0})
for step in run.steps(6):
    state["x"] += 1
    run.done(step, state)
    pid = os.fork()
    if pid == 0:  # a child that goes on as if it were the trainer, and leaves in every way
        state["x"] = -1
        try:
            for more in range(step + 1, step + 4):
                run.done(more, state)
            run.save("wrong")
        finally:
            if step == 2: os._exit(0)
            if step == 3: os.kill(os.getpid(), 9)
            sys.exit(3)
    os.waitpid(pid, 0)
print("x", state["x"])
"""


def test_a_forked_child_cannot_disturb_the_run(house: House, python: Python) -> None:
    assert python(FORKED, HOLDFAST_SAVE_EVERY_STEPS=1).endswith("x 6")
    assert house.saved_step() == 6
    place = f"{str(house.store)!r} + '/r'"
    assert python(f"print(hf.load({place}))\n") == "{'x': 6}"


def test_a_forked_child_can_be_ended(python: Python) -> None:
    """Its SIGTERM is its own, and so is its Ctrl-C."""
    out = python(
        "import multiprocessing, os, signal, time\n"
        "context = multiprocessing.get_context('fork')\n"
        "run = hf.start()\n"
        "run.restore(init=lambda: {})\n"
        "def wait(pipe):\n"
        "    os.write(pipe, b'.')\n"
        "    while True: time.sleep(1)\n"
        "for step in run.steps(2):\n"
        "    for number in (signal.SIGTERM, signal.SIGKILL):\n"
        "        read_fd, write_fd = os.pipe()\n"
        "        child = context.Process(target=wait, args=(write_fd,))\n"
        "        child.start()\n"
        "        os.read(read_fd, 1)\n"
        "        os.kill(child.pid, number)\n"
        "        child.join()\n"
        "        print(child.exitcode)\n"
        "    run.done(step, {})\n"
    )
    assert out.split() == ["-15", "-9", "-15", "-9"]


@pytest.mark.contract("session: a forked child does nothing")
def test_a_forked_child_cannot_disturb_a_supervised_run(house: House) -> None:
    script = house.script("import numpy as np\nimport holdfast as hf\n" + FORKED)
    run = house.holdfast("run", "--name", "r", "--save-every", 1, "--", sys.executable, script)
    assert "x 6" in run.wait(EXIT_DONE)
    assert house.saved_step() == 6


@pytest.mark.parametrize("supervised", [False, True])
def test_a_script_that_a_script_starts_is_a_run_of_its_own(house: House, supervised: bool) -> None:
    house.script(
        "import holdfast as hf\n"
        "run = hf.start('inner')\n"
        "state = run.restore(init=lambda: {})\n"
        "for step in run.steps(3): run.done(step, state)\n",
        "inner.py",
    )
    outer = house.script(
        "import subprocess, sys\n"
        "import holdfast as hf\n"
        "run = hf.start('outer')\n"
        "state = run.restore(init=lambda: {})\n"
        "for step in run.steps(5): run.done(step, state)\n"
        "subprocess.run([sys.executable, 'inner.py'], check=True)\n"
    )
    start = house.holdfast if supervised else house.start
    options = ("run", "--name", "outer", "--") if supervised else ()
    start(*options, sys.executable, outer).wait(EXIT_DONE)
    assert house.saved_step("outer") == 5
    assert house.saved_step("inner") == 3
