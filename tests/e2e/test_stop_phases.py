"""A stop is honoured wherever the script is.

Where a save is under way, or no boundary comes, stands in tests/scenarios.
"""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, EXIT_SAVED, House, Process, kill, ranks_of

pytestmark = pytest.mark.real

SCRIPT = """
import itertools, os, time
from pathlib import Path
import numpy as np
import holdfast as hf

def hold(where, poll=None):
    if os.environ.get("WHERE") == where:
        print(f"in {where}", flush=True)
        while not Path(os.environ["GO"]).exists():
            time.sleep(0.005)
            if poll:
                poll()

class Part:
    value = 0
    def state_dict(self):
        return {"value": self.value}
    def load_state_dict(self, state):
        hold("restore")
        self.value = state["value"]

run = hf.start()
hold("build")
part = Part()
run.track(part=part)
data = run.data(itertools.count())
state = run.restore(init=lambda: {"sum": np.zeros(1000)})
print("from", run.resume_step, flush=True)
for step in run.steps(int(os.environ.get("UNTIL", "6"))):
    batch = next(data)
    if step == 1:
        hold("first step")
    state["sum"] += batch
    part.value += batch
    run.done(step, state)
    if step == 3:
        with run.span("eval"):
            hold("evaluation that polls", run.poll)
print("final", int(state["sum"][0]), part.value, flush=True)
"""


@pytest.fixture
def script(house: House) -> Path:
    return house.script(SCRIPT)


def start(house: House, script: Path, where: str, *, until: int = 6) -> Process:
    """Two ranks; what one of them does is what both agree on."""
    command = (sys.executable, script)
    return house.holdfast("run", "--name", "r", "--ranks", 2, "--", *command, WHERE=where,
                          GO=house.go_file, UNTIL=until)  # fmt: skip


def goes_on_from(house: House, script: Path, step: int) -> None:
    """The next start resumes there, and ends as if nothing had happened."""
    until = step + 3
    out = start(house, script, "", until=until).wait(EXIT_DONE)
    assert re.findall(r"from (\d+)", out) == [str(step)] * 2
    total = sum(range(until))
    assert out.count(f"final {total} {total}") == 2


def incident(house: House) -> str:
    """The words of the first attempt's incident."""
    path = house.store / "r" / "attempts" / "0000" / "incidents" / "incident.json"
    return str(json.loads(path.read_text())["words"])


@pytest.mark.parametrize("where", ["build", "first step"])
def test_where_there_is_nothing_to_save_it_leaves_at_once(
    house: House, script: Path, where: str
) -> None:
    run = start(house, script, where)
    run.saw(f"in {where}", count=2)
    run.send(signal.SIGTERM)
    out = run.wait(EXIT_SAVED)
    assert "the deadline came" not in out
    assert house.saved_step() == 0
    goes_on_from(house, script, 0)


def test_an_evaluation_that_polls_saves_the_step_before_it(house: House, script: Path) -> None:
    run = start(house, script, "evaluation that polls")
    run.saw("in evaluation that polls", count=2)
    run.send(signal.SIGTERM)
    out = run.wait(EXIT_SAVED)
    assert "the deadline came" not in out
    assert house.saved_step() == 3
    assert incident(house) == "SIGTERM: stopped; step 3 is saved"
    goes_on_from(house, script, 3)


def test_a_restore_is_left_at_once(house: House, script: Path) -> None:
    first = start(house, script, "evaluation that polls")
    first.saw("in evaluation that polls", count=2)
    first.send(signal.SIGTERM)
    first.wait(EXIT_SAVED)
    run = start(house, script, "restore")
    run.saw("in restore", count=2)
    run.send(signal.SIGTERM)
    out = run.wait(EXIT_SAVED)
    assert "the deadline came" not in out
    assert house.saved_step() == 3
    goes_on_from(house, script, 3)


def test_without_a_supervisor_an_evaluation_that_polls_saves_as_well(
    house: House, script: Path
) -> None:
    env = {"WHERE": "evaluation that polls", "GO": house.go_file, "HOLDFAST_NAME": "r"}
    run = house.start(sys.executable, script, **env)
    run.saw("in evaluation that polls")
    run.send(signal.SIGTERM)
    run.wait(EXIT_SAVED)
    assert house.saved_step() == 3
    assert "from 3\nfinal 15 15" in house.here(script, HOLDFAST_NAME="r")


IN_C = """
import ctypes, threading, time
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {"sum": np.zeros(10)})
lock = ctypes.create_string_buffer(64)
libc = ctypes.CDLL(None)
libc.pthread_mutex_lock(lock)
for step in run.steps(10):
    threading.Timer(0.05, print, ("in C",), {"flush": True}).start()
    libc.pthread_mutex_lock(lock)  # for ever, as a compiler or a collective might: no handler runs
"""


def test_a_rank_that_is_in_c_reports_its_signal(house: House) -> None:
    script = house.script(IN_C)
    run = house.holdfast("run", "--name", "r", "--", sys.executable, script)
    run.saw("in C")
    kill(ranks_of(run)[0], signal.SIGTERM)
    assert "SIGTERM to rank 0" in run.wait(EXIT_SAVED)


def test_without_a_supervisor_a_script_that_is_in_c_is_gone_at_the_deadline(house: House) -> None:
    script = house.script(IN_C)
    run = house.start(sys.executable, script, HOLDFAST_NAME="r", HOLDFAST_GRACE_S="0.5")
    run.saw("in C")
    run.send(signal.SIGTERM)
    assert "reached no boundary: ending it" in run.wait(EXIT_SAVED)
