"""`holdfast run --hosts` on hosts that lose their power, their network and their time."""

from __future__ import annotations

import re
import signal
import sys
from pathlib import Path

import pytest
from lab import Lab, LabProcess
from processes import EXIT_DONE, EXIT_SAVED, FAR, TRAINER, expected_digest

pytestmark = pytest.mark.real

STEPS = 12
LOST_S = 2


class RunInLab:
    """One run on all hosts of a lab, of which some are spares."""

    def __init__(self, lab: Lab, spares: int) -> None:
        self.lab = lab
        self._spares = spares
        self._allow = lab.shared / "allow"

    def allow(self, step: int) -> None:
        """Steps up to that may begin."""
        draft = self._allow.with_suffix(".new")
        draft.write_text(str(step))
        draft.replace(self._allow)

    def start(self, index: int, steps: int, *flags: object) -> LabProcess:
        """The same command on each host."""
        count = len(self.lab.hosts) - self._spares
        words = ["--hosts", count, "--spares", self._spares, "--host-index", index]
        words += ["--name", "r", "--save-every", 3, "--host-lost", LOST_S, *flags]
        host = self.lab.hosts[index]
        env = {
            "HOLDFAST_STORE": self.lab.shared / "store",
            "HOLDFAST_SCRATCH": self.lab.own / f"scratch-{index}",
            "HOLDFAST_NOTICE": "off",
            "ALLOW": self._allow,
        }
        run = [sys.executable, "-m", "holdfast.cli.main", "run", *words]
        return host.start([*run, "--", sys.executable, TRAINER, steps], env=env)

    def start_all(self, steps: int, *flags: object) -> list[LabProcess]:
        return [self.start(host.index, steps, *flags) for host in self.lab.hosts]


def both_did(agents: list[LabProcess], step: int) -> None:
    for rank, agent in enumerate(agents[:2]):
        agent.saw(rf"\[{rank}\] did {step}$")


@pytest.mark.parametrize("fault", ["power off", "cut"])
def test_a_spare_takes_the_place_of_a_host_that_is_gone(tmp_path: Path, fault: str) -> None:
    with Lab(3, tmp_path) as lab:
        run = RunInLab(lab, spares=1)
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
