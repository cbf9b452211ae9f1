"""`holdfast run --hosts` as a step of a real Slurm cluster, whose nodes are hosts of the lab."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from lab import LabProcess
from processes import EXIT_DONE, EXIT_SAVED, FAR, TRAINER, expected_digest
from slurm_lab import SlurmLab

pytestmark = pytest.mark.real

HOSTS, SPARES = 3, 1
STEPS = 12
STOPS = r"SIGTERM( on host \d| to rank \d)?: (saving, then )?stopping"  # all processes get it
SRUN = "srun --nodes 4 --ntasks-per-node 1 --no-kill --kill-on-bad-exit=0 --unbuffered"


class RunInSlurm:
    """One run on all nodes; nobody tells a host its index."""

    def __init__(self, slurm: SlurmLab, steps: int) -> None:
        self.slurm = slurm
        shared, own = slurm.lab.shared, slurm.lab.own
        self._allow = shared / "allow"
        options = f"--hosts {HOSTS} --spares {SPARES} --name r --save-every 3 --host-lost 2"
        holdfast = f"{sys.executable} -m holdfast.cli.main run {options}"
        self.srun = f"{SRUN} {holdfast} -- {sys.executable} {TRAINER} {steps}"
        self.env = {
            "HOLDFAST_STORE": shared / "store",
            "HOLDFAST_SCRATCH": own / "scratch",
            "HOLDFAST_NOTICE": "off",
            "ALLOW": self._allow,
        }

    def allow(self, step: int) -> None:
        """Steps up to that may begin."""
        draft = self._allow.with_suffix(".new")
        draft.write_text(str(step))
        draft.replace(self._allow)


def step_saved(out: str) -> int:
    """The one step that was saved last, on all hosts."""
    (step,) = set(re.findall(r"step (\d+) is saved", out))
    return int(step)


def all_did(out: LabProcess, step: int) -> None:
    for rank in range(HOSTS):
        out.saw(rf"\[{rank}\] did {step}$")


def test_srun_tells_each_host_its_number(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = RunInSlurm(slurm, STEPS)
        run.allow(FAR)
        out = slurm.start(run.srun.split(), env=run.env).wait(EXIT_DONE)
        for index in range(4):
            assert f"host {index}: done" in out
        assert out.count(f"final {expected_digest(STEPS)}") == HOSTS


def test_a_node_that_loses_its_power_is_replaced_by_the_spare(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = RunInSlurm(slurm, STEPS)
        run.allow(7)
        step = slurm.start(run.srun.split(), env=run.env)
        all_did(step, 7)
        slurm.power_off(1)
        step.saw("This is host 3 of 4 in the place of host 1")
        run.allow(FAR)
        step.saw("final", HOSTS)
        out = step.wait()
        assert out.count(f"final {expected_digest(STEPS)}") == HOSTS
        assert [n for n in range(4) if f"host {n}: done" in out] == [0, 2, 3]


@pytest.mark.parametrize("how", ["--signal=TERM", "--full"])
def test_scancel_has_all_hosts_save_one_step(tmp_path: Path, how: str) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = RunInSlurm(slurm, FAR)
        run.allow(7)
        step = slurm.start(run.srun.split(), env=run.env)
        all_did(step, 7)
        job = slurm.tell("squeue", "--noheader", "--format=%i")
        slurm.tell("scancel", how, job)
        step.saw(STOPS)
        run.allow(FAR)
        out = step.wait(EXIT_SAVED)
        assert step_saved(out) >= 7


def test_a_time_limit_is_told_ahead(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = RunInSlurm(slurm, FAR)
        run.allow(7)
        limit = ["--time=1", "--signal=TERM@50"]  # seconds before the end of that minute
        step = slurm.start(["srun", *limit, *run.srun.split()[1:]], env=run.env)
        all_did(step, 7)
        step.saw(STOPS)
        run.allow(FAR)
        assert step_saved(step.wait(EXIT_SAVED)) >= 7
