"""A stop is honoured wherever the script is: what can be saved is, and what cannot is said."""

from __future__ import annotations

import json
import re
import signal
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, EXIT_SAVED, FAR, House, Process, kill, ranks_of

pytestmark = pytest.mark.real

SCRIPT = """
import os, sys, time
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
        if self.value:  # the first question only asks how large it is
            hold("save")
        return {"value": self.value}
    def load_state_dict(self, state):
        hold("restore")
        self.value = state["value"]

def batches():
    number = 0
    while True:
        if number == 3:
            hold("data")
        yield number
        number += 1

run = hf.start()
hold("build")
part = Part()
run.track(part=part)
data = run.data(batches())
state = run.restore(init=lambda: {"sum": np.zeros(1000)})
print("from", run.resume_step, flush=True)
for step in run.steps(int(os.environ.get("UNTIL", "6"))):
    batch = next(data)
    if step == 1:
        hold("first step")
    state["sum"] += batch
    part.value += batch
    if step == 2 and os.environ.get("WHERE") in ("evaluation", "data"):
        run.save(wait=True)
    run.done(step, state)
    if step == 3:
        with run.span("eval"):
            hold("evaluation")
            hold("evaluation that polls", run.poll)
print("final", int(state["sum"][0]), part.value, flush=True)
"""


@pytest.fixture
def script(house: House) -> Path:
    return house.script(SCRIPT)


def start(house: House, script: Path, where: str, *options: object, until: int = 6) -> Process:
    command = (sys.executable, script)
    return house.holdfast("run", "--name", "r", *options, "--", *command, WHERE=where,
                          GO=house.go_file, UNTIL=until)  # fmt: skip


def goes_on_from(house: House, script: Path, step: int, *options: object) -> None:
    """The next start resumes there, and ends as if nothing had happened."""
    until = step + 3
    out = start(house, script, "", *options, until=until).wait(EXIT_DONE)
    ranks = options[options.index("--ranks") + 1] if "--ranks" in options else 1
    assert re.findall(r"from (\d+)", out) == [str(step)] * int(str(ranks))
    total = sum(range(until))
    assert out.count(f"final {total} {total}") == int(str(ranks))


def incident(house: House) -> str:
    """The words of the first attempt's incident."""
    path = house.store / "r" / "attempts" / "0000" / "incidents" / "incident.json"
    return str(json.loads(path.read_text())["words"])


RANKS = pytest.mark.parametrize("ranks", [("--ranks", 1), ("--ranks", 2)], ids=["one", "two"])


@RANKS
@pytest.mark.parametrize("where", ["build", "first step"])
def test_where_there_is_nothing_to_save_it_leaves_at_once(
    house: House, script: Path, where: str, ranks: tuple[str, int]
) -> None:
    run = start(house, script, where, *ranks)
    run.saw(f"in {where}", count=ranks[1])
    run.send(signal.SIGTERM)
    out = run.wait(EXIT_SAVED)
    assert "the deadline came" not in out
    assert house.saved_step() == 0
    goes_on_from(house, script, 0, *ranks)


@RANKS
def test_an_evaluation_that_polls_saves_the_step_before_it(
    house: House, script: Path, ranks: tuple[str, int]
) -> None:
    run = start(house, script, "evaluation that polls", *ranks)
    run.saw("in evaluation that polls", count=ranks[1])
    run.send(signal.SIGTERM)
    out = run.wait(EXIT_SAVED)
    assert "the deadline came" not in out
    assert house.saved_step() == 3
    assert incident(house) == "SIGTERM: stopped; step 3 is saved"
    goes_on_from(house, script, 3, *ranks)


@RANKS
@pytest.mark.parametrize("where", ["evaluation", "data"])
def test_where_no_boundary_comes_the_newest_set_stays_and_the_rest_is_said(
    house: House, script: Path, where: str, ranks: tuple[str, int]
) -> None:
    nothing_else = ("--save-every", FAR, "--snapshot-every", FAR)  # in memory neither
    run = start(house, script, where, *ranks, "--grace", 1.5, *nothing_else)
    run.saw(f"in {where}", count=ranks[1])
    assert house.saved_step() == 2
    run.send(signal.SIGTERM)
    out = run.wait(EXIT_SAVED)
    assert "step 2 is saved, the one after it is not" in out
    assert "step 2 is saved, the one after it is not" in incident(house)
    report = house.holdfast("report", "r").wait(EXIT_DONE)
    assert "the one after it is not" in report
    goes_on_from(house, script, 2, *ranks)


@RANKS
def test_a_save_under_way_is_finished(house: House, script: Path, ranks: tuple[str, int]) -> None:
    run = start(house, script, "save", *ranks, "--save-every", 2, until=FAR)
    run.saw("in save", count=ranks[1])
    run.send(signal.SIGTERM)
    run.saw("saving, then stopping")
    house.go()
    run.wait(EXIT_SAVED)
    house.go_file.unlink()
    goes_on_from(house, script, house.saved_step(), *ranks)
    assert house.sets()


@RANKS
def test_a_restore_is_left_at_once(house: House, script: Path, ranks: tuple[str, int]) -> None:
    first = start(house, script, "evaluation that polls", *ranks)
    first.saw("in evaluation that polls", count=ranks[1])
    first.send(signal.SIGTERM)
    first.wait(EXIT_SAVED)
    run = start(house, script, "restore", *ranks)
    run.saw("in restore", count=ranks[1])
    run.send(signal.SIGTERM)
    out = run.wait(EXIT_SAVED)
    assert "the deadline came" not in out
    assert house.saved_step() == 3
    goes_on_from(house, script, 3, *ranks)


def test_without_a_supervisor_an_evaluation_that_polls_saves_as_well(
    house: House, script: Path
) -> None:
    env = {"WHERE": "evaluation that polls", "GO": house.go_file, "HOLDFAST_NAME": "r"}
    run = house.start(sys.executable, script, **env)
    run.saw("in evaluation that polls")
    run.send(signal.SIGTERM)
    run.wait(EXIT_SAVED)
    assert house.saved_step() == 3
    goes_on_from(house, script, 3)


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
