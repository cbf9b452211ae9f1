"""`holdfast run --hosts` on hosts that lose their power, their network and their time."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path

import pytest
from lab import Lab, LabProcess
from lab_run import RunInLab
from processes import EXIT_DONE, EXIT_SAVED, FAR, LIMIT_S, TRAINER, expected_digest

sys.path.insert(0, str(TRAINER.parent))
from elastic_trainer import final

sys.path.pop(0)

pytestmark = pytest.mark.real

ELASTIC_TRAINER = TRAINER.with_name("elastic_trainer.py")
STEPS = 12
MANY = 1000


def saw(agents: list[LabProcess], pattern: str) -> re.Match[str]:
    """Any of them has printed such a line: the next controller may be on each of them."""
    end_s = time.monotonic() + LIMIT_S
    while True:
        for line in [line for one in agents for line in one.lines[:]]:
            if (found := re.search(pattern, line)) is not None:
                return found
        assert time.monotonic() < end_s, f"no {pattern!r} in:\n{[one.text for one in agents]}"
        time.sleep(0.02)


def both_did(agents: list[LabProcess], step: int) -> None:
    for rank, agent in enumerate(agents[:2]):
        agent.saw(rf"\[{rank}\] did {step}$")


def all_did(agents: list[LabProcess], step: int) -> None:
    for rank, agent in enumerate(agents):
        agent.saw(rf"\[{rank}\] did {step}$")


NO_POWER = pytest.mark.contract("hosts: one loses its power, and a spare trains in its place")


@pytest.mark.parametrize("fault", [pytest.param("power off", marks=NO_POWER), "cut"])
def test_a_spare_takes_the_place_of_a_host_that_is_gone(tmp_path: Path, fault: str) -> None:
    with Lab(3, tmp_path) as lab:
        run = RunInLab(lab, spares=1, lost_s=5)
        run.allow(7)
        agents = run.start_all(STEPS)
        both_did(agents, 7)
        if fault == "cut":
            lab.cut(1)
        else:
            lab.hosts[1].power_off()
        agents[2].saw("This is host 2 of 3 in the place of host 1")
        run.allow(FAR)
        assert f"[0] final {expected_digest(STEPS)}" in agents[0].wait(EXIT_DONE)
        assert f"[1] final {expected_digest(STEPS)}" in agents[2].wait(EXIT_DONE)
        if fault == "cut":  # it reads how the run has ended from the store
            agents[1].wait(EXIT_DONE)


def test_a_pod_whose_node_is_lost_is_made_again_elsewhere_with_its_index(tmp_path: Path) -> None:
    """Kubernetes makes it on another node: it has the address, and nothing else of the first."""
    with Lab(3, tmp_path) as lab:
        run = RunInLab(lab, spares=0, lost_s=5, is_indexed_job=True)
        run.allow(7)
        agents = run.start_all(40)
        for step in (7, 20, 30):  # a save is ordered ahead
            run.allow(step)
            all_did(agents, step)
        end_s = time.monotonic() + LIMIT_S
        while not list(lab.shared.glob("store/r/ckpt/*/manifest.json")):
            assert time.monotonic() < end_s, "nothing is saved"
            time.sleep(0.02)
        lab.hosts[1].power_off()
        lab.hosts[1].power_on()
        agents[1] = run.start(1, 40)
        run.allow(FAR)
        for rank, agent in enumerate(agents):
            assert f"[{rank}] final {expected_digest(40)}" in agent.wait(EXIT_DONE)
        *_, again = re.findall(r"\[0\] from (\d+)$", agents[0].text, re.MULTILINE)
        assert 0 < int(again) <= 30


def test_a_spare_goes_on_from_the_copy_that_a_neighbour_kept_in_memory(tmp_path: Path) -> None:
    steps = 1000
    with Lab(3, tmp_path) as lab:
        run = RunInLab(lab, spares=1)
        run.allow(0)
        agents = run.start_all(steps, "--save-every", 10_000, "--snapshot-every", 2)
        step = 0
        while "is in memory on two hosts each" not in agents[0].text:
            step += 1
            run.allow(step)
            both_did(agents, step)
        lab.hosts[1].power_off()
        agents[0].saw("it is read from memory")
        run.allow(FAR)
        out = agents[0].wait(EXIT_DONE), agents[2].wait(EXIT_DONE)
        for rank, words in enumerate(out):
            assert f"[{rank}] final {expected_digest(steps)}" in words
            assert int(re.findall(rf"\[{rank}\] from (\d+)", words)[-1]) > 0


def test_a_host_that_stands_still_is_a_spare_afterwards(tmp_path: Path) -> None:
    with Lab(2, tmp_path) as lab:
        run = RunInLab(lab, spares=0)
        run.allow(7)
        agents = run.start_all(STEPS)
        both_did(agents, 7)
        lab.hosts[1].freeze()
        agents[0].saw("Host 1 is lost: nothing was heard of it")
        lab.hosts[1].thaw()
        run.allow(FAR)
        for rank, agent in enumerate(agents):
            out = agent.wait(EXIT_DONE)
            assert f"[{rank}] final {expected_digest(STEPS)}" in out
            assert len(re.findall(r"\[\d\] from (\d+)", out)) == 2


ENDS_EARLY = """
import os, pathlib, sys, holdfast as hf
run = hf.start()
state = run.restore(init=lambda: {"x": 0})
for step in run.steps(1000):
    state["x"] += 1
    run.done(step, state)
    if step == 7:
        break
run.finish()
print(f"trained {state['x']} of 7 steps", flush=True)
try:
    pathlib.Path(os.environ["SHARED"], f"evaluated-{run.rank}").touch(exist_ok=False)
except FileExistsError:
    sys.exit()
raise RuntimeError("the evaluation failed")
"""


def test_a_training_that_its_script_ended_early_is_over_on_both_hosts(tmp_path: Path) -> None:
    trainer = tmp_path / "ends_early.py"
    trainer.write_text(ENDS_EARLY)
    with Lab(2, tmp_path) as lab:
        run = RunInLab(lab, spares=0, trainer=trainer, env={"SHARED": lab.shared}, lost_s=5)
        agents = run.start_all(FAR)
        for rank, agent in enumerate(agents):
            out = agent.wait(EXIT_DONE)
            assert f"[{rank}] holdfast: Nothing is left to train" in out
            assert out.count(f"[{rank}] trained 7 of 7") == 2


def test_a_sigterm_on_one_host_saves_one_step_on_both(tmp_path: Path) -> None:
    with Lab(2, tmp_path) as lab:
        run = RunInLab(lab, spares=0)
        run.allow(7)
        agents = run.start_all(FAR)
        both_did(agents, 7)
        agents[1].send(signal.SIGTERM)
        agents[0].saw("SIGTERM on host 1")
        run.allow(FAR)
        out = "\n".join(agent.wait(EXIT_SAVED) for agent in agents)
        assert len(set(re.findall(r"step (\d+) is saved", out))) == 1


def test_a_controller_that_is_cut_off_leaves_the_run_to_the_other_hosts(tmp_path: Path) -> None:
    with Lab(3, tmp_path) as lab:
        run = RunInLab(lab, spares=1)
        run.allow(7)
        agents = run.start_all(STEPS)
        both_did(agents, 7)
        lab.cut(0)  # where the controller is
        agents[0].saw("hosts 1, 2 cannot reach this controller: another one goes on")
        agents[2].saw("This is host 2 of 3 in the place of host 0")
        run.allow(FAR)
        assert f"[0] final {expected_digest(STEPS)}" in agents[2].wait(EXIT_DONE)
        assert f"[1] final {expected_digest(STEPS)}" in agents[1].wait(EXIT_DONE)
        agents[0].wait(EXIT_DONE)  # it reads how the run has ended from the store


@pytest.mark.parametrize("victim", [1, 0], ids=["a host", "the controller's host"])
def test_an_elastic_run_goes_on_with_fewer_hosts_and_takes_the_lost_one_in_again(
    tmp_path: Path, victim: int
) -> None:
    with Lab(3, tmp_path) as lab:
        run = RunInLab(lab, spares=0, elastic=2, trainer=ELASTIC_TRAINER)
        run.allow(7)
        agents = run.start_all(MANY)
        all_did(agents, 7)
        lab.hosts[victim].power_off()
        first, second = (agents[index] for index in range(3) if index != victim)
        # The slower the hosts answer, the further ahead a save is ordered: 5 at least was saved.
        begins = saw([first, second], r"Attempt 1: starting from step ([5-7]) of attempt 0")
        second.saw(rf"\[1\] from {begins[1]} of 2$")  # it was rank 2
        lab.hosts[victim].power_on()
        agents[victim] = run.start(victim, MANY)
        step = 7
        taken_in = "Restarting: a host is back, and the run trains on 2"
        while not any(taken_in in one.text for one in (first, second)):
            step += 1
            assert step < MANY, "it is never taken in"
            run.allow(step)
            saw(agents, rf"\[0\] did {step}$|Restarting: ")
            time.sleep(0.1)  # so that the end of the run is far away
        run.allow(FAR)
        for rank, agent in enumerate(agents):
            assert f"[{rank}] final {final(MANY)}" in agent.wait(EXIT_DONE)
            assert re.findall(r"\[\d\] from \d+ of (\d)", agent.text)[-1] == "3"
        report = json.loads(run.report())
        assert report["steps_kept"] == MANY
        *_, cause = [one["cause"] for one in report["disruptions"]]  # the first, nobody may see
        assert cause == "stopped"
        assert (
            int(re.findall(r"\[0\] from (\d+) of 3", agents[0].text)[-1]) > 7
        )  # it has saved first
        assert report["badput_s"]["reschedule"] > 0  # the chip of the host that was away


def test_a_host_that_can_only_dial_out_trains_without_copies(tmp_path: Path) -> None:
    """As behind an address translation: it has told an address at which nobody is."""
    with Lab(2, tmp_path) as lab:
        run = RunInLab(lab, spares=0)
        nobody = lab.hosts[1].address + "9"
        run.allow(1)
        agents = [run.start(0, FAR)]
        agents[0].saw("This is host 0")  # it has started the controller
        agents.append(run.start(1, FAR, "--host-address", nobody))
        step, told = 1, False
        while not told:
            step += 1
            run.allow(step)
            line = agents[0].saw(rf"\[0\] did {step}$|a neighbour cannot be reached at").string
            told = "cannot be reached" in line
        assert f"hosts alone: a neighbour cannot be reached at {nobody}, port " in line
        assert line.endswith("): let hosts reach each other, or set --host-address there")
        agents[1].send(signal.SIGTERM)
        agents[0].saw("SIGTERM on host 1")
        run.allow(FAR)
        out = "\n".join(agent.wait(EXIT_SAVED) for agent in agents)
        assert len(set(re.findall(r"step (\d+) is saved", out))) == 1
