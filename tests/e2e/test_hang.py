"""Hangs of real processes: noticed, explained by where they stood, ended, and trained past."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path

import pytest
from processes import EXIT_DONE, House, Process, kill, ranks_of

from holdfast.agent.look import process_state
from holdfast.agent.stacks import py_spy
from holdfast.journal.recorded import RecordedLedger

pytestmark = pytest.mark.real

SCRIPT = Path(__file__).with_name("hanging.py")
STEPS, AT = 30, 20
SUSPENDED_S = 6.0  # longer than `--hang` there: no event tells that so much time has passed


def start(house: House, how: str, *options: object, at: int = AT, **env: object) -> Process:
    command = (sys.executable, SCRIPT, STEPS, how, at)
    options = ("--name", "r", "--save-every", 5, *options)
    return house.holdfast("run", *options, "--", *command, GO=house.go_file, **env)


def finished(run: Process) -> str:
    out = run.wait(EXIT_DONE)
    assert f"sum {STEPS * (STEPS + 1) // 2}" in out
    return out


def incident(house: House, attempt: int = 0) -> dict[str, object]:
    return json.loads((incidents(house, attempt) / "incident.json").read_text())


def incidents(house: House, attempt: int = 0) -> Path:
    return house.store / "r" / "attempts" / f"{attempt:04d}" / "incidents"


def stacks(house: House, rank: int = 0) -> str:
    name = f"rank-{rank:05d}.stacks.txt"
    assert name in incident(house)["stacks"]
    return (incidents(house) / name).read_text()


def hang_s(house: House) -> float:
    """What the ledger says was lost to hanging; its kinds add up, or it would raise."""
    recorded = RecordedLedger(house.store / "r")
    recorded.refresh()
    account = recorded.account()
    assert account.steps_kept == STEPS
    return account.kinds.get("hang", 0) / account.chips / 1e9


@pytest.mark.parametrize(
    ("how", "function"),
    [
        pytest.param(
            "sleep",
            "sleep_for_ever",
            marks=pytest.mark.contract("hang: stacks, a kill, a new attempt"),
        ),
        ("gil", "hold_the_lock_for_ever"),
    ],
)
def test_a_rank_that_hangs_is_explained_and_started_again(
    house: House, how: str, function: str
) -> None:
    out = finished(start(house, how, "--hang", 2))
    told = incident(house)
    assert told["cause"] == "hang"
    assert f"in {function} (hanging.py:" in str(told["words"])
    assert str(told["where"]).startswith(f"{function} (hanging.py:")
    assert f"in {function}" in stacks(house)
    assert f"in {function}" in str(told["traceback"]).splitlines()[-1]
    assert "hung: no step after step 19" in out
    assert f"in {function}" in house.holdfast("logs", "r", "--attempt", 0).wait(EXIT_DONE)
    assert f"in {function[:12]}" in house.holdfast("report", "r").wait(EXIT_DONE)
    assert 2.0 <= hang_s(house) < 60.0


COMPILES = """
import os, time
from pathlib import Path
import jax, jax.numpy as jnp
import holdfast as hf

@jax.jit
def slow_to_trace(x):
    print("compiles", flush=True)
    while not Path(os.environ["GO"]).exists():
        time.sleep(0.005)
    return x + 1

run = hf.start()
state = run.restore(init=lambda: jnp.zeros(3))
for step in run.steps(12):
    state = slow_to_trace(state) if step == 10 else state + 1
    run.done(step, state, ready=state)
print("sum", int(state[0]))
"""


def test_a_compilation_is_no_hang(house: House) -> None:
    script = house.script(COMPILES)
    command = (sys.executable, script)
    run = house.holdfast("run", "--name", "r", "--hang", 2, "--", *command, GO=house.go_file)
    run.saw("compiles")
    watched(house, run, looks=4)
    house.go()
    out = run.wait(EXIT_DONE)
    assert "sum 12" in out
    assert "hung" not in out


def watched(house: House, run: Process, looks: int) -> None:
    """Until the supervisor has looked at the hanging rank so many times more."""
    (live,) = Path(os.environ["HOLDFAST_SCRATCH"]).rglob("controller-*.jsonl")

    def seen() -> int:
        return live.read_text().count('"Examined"')

    before = seen()
    house.eventually(lambda: seen() >= before + looks)
    assert run.pid


def test_a_machine_that_was_suspended_did_not_hang(house: House) -> None:
    """Everything is stopped and continued, as a lid or a hypervisor does it."""
    run = start(house, "slow", "--hang", 4)
    run.saw("hangs in")
    family = [run.pid, *ranks_of(run)]
    for pid in family:
        kill(pid, signal.SIGSTOP)
    signal.sigtimedwait([], SUSPENDED_S)
    for pid in reversed(family):
        kill(pid, signal.SIGCONT)
    run_journal = next(Path(os.environ["HOLDFAST_SCRATCH"]).rglob("controller-*.jsonl"))
    house.eventually(lambda: '"Suspended"' in run_journal.read_text())
    house.go()
    assert "hung" not in finished(run)


SUSPENDED_AT_A_LOOK = """
import os, signal, sys
from pathlib import Path
from holdfast.agent import host_agent
from holdfast.cli.main import main

look_at, mark = host_agent.look_at, Path("suspended")

def stopped_at_a_look(pages, pids):
    if Path("suspend").exists() and not mark.exists():
        mark.touch()
        for pid in (*pids.values(), os.getpid()):
            os.kill(pid, signal.SIGSTOP)
    return look_at(pages, pids)

host_agent.look_at = stopped_at_a_look
sys.exit(main())
"""


def test_a_machine_that_is_suspended_at_the_very_look_did_not_hang(house: House) -> None:
    """What is late then was not late when the loop last asked whether it had been suspended."""
    script = house.script(SUSPENDED_AT_A_LOOK)
    command = (sys.executable, SCRIPT, STEPS, "slow", AT)
    options = ("--name", "r", "--hang", 4)
    run = house.start(sys.executable, script, "run", *options, "--", *command, GO=house.go_file)
    run.saw("hangs in")
    ranks = ranks_of(run)
    (live,) = Path(os.environ["HOLDFAST_SCRATCH"]).rglob("controller-*.jsonl")
    (house.folder / "suspend").touch()
    house.eventually(lambda: process_state(run.pid)[0] == "T")
    signal.sigtimedwait([], SUSPENDED_S)
    for pid in (*ranks, run.pid):
        kill(pid, signal.SIGCONT)
    house.eventually(lambda: '"Suspended"' in live.read_text())
    house.go()
    assert "hung" not in finished(run)


@pytest.mark.skipif(py_spy() is None, reason="py-spy is not installed")
def test_a_child_that_hangs_is_explained_by_py_spy(house: House) -> None:
    finished(start(house, "worker", "--hang", 2))
    text = stacks(house)
    assert "wait_for_a_child" in text
    assert "work_for_ever" in text
