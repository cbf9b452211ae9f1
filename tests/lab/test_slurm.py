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


class BatchJob:
    """The run as a job that asks to be started again while it is not done.

    What its tasks print goes into files: `srun` prints nothing more once it is told to end.
    """

    def __init__(self, run: RunInSlurm) -> None:
        self.run = run
        slurm, shared = run.slurm, run.slurm.lab.shared
        tasks = [shared / f"task-{number}" for number in range(4)]
        for path in tasks:
            path.touch()
        script = shared / "job.sh"
        srun = run.srun.replace("srun", f"srun --output={shared}/task-%t --open-mode=append", 1)
        lines = [
            "#!/bin/sh",
            *(f"export {name}='{value}'" for name, value in run.env.items()),
            "code=0",
            f"{srun} || code=$?",
            '[ "$code" -eq 75 ] && scontrol requeue "$SLURM_JOB_ID"',
            'exit "$code"',
        ]
        script.write_text("\n".join(lines))
        size = ["--nodes=4", "--ntasks-per-node=1", "--no-kill", "--requeue"]
        into = ["--parsable", "--open-mode=append", f"--output={shared / 'batch'}"]
        self.number = slurm.tell("sbatch", *size, *into, script)
        self.out = slurm.start(["tail", "--quiet", "--lines=+1", "--follow", *tasks])

    def saves(self, after: int) -> int:
        """The step at which all stop and save; they are let on one by one until then."""
        step = after
        while True:
            step += 1
            self.run.allow(step)
            seen = self.out.saw(rf"\[0\] did {step}$|stopped; step (\d+) is saved")
            if seen[1]:
                return int(seen[1])


def test_a_requeued_run_goes_on_from_the_step_that_it_saved(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = RunInSlurm(slurm, 60)
        run.allow(7)
        job = BatchJob(run)
        all_did(job.out, 7)
        slurm.tell("scontrol", "requeue", job.number)
        job.out.saw(STOPS)
        step = job.saves(after=7)
        job.out.saw(rf"starting from step {step} of attempt 0")
        run.allow(FAR)
        job.out.saw(f"final {expected_digest(60)}", HOSTS)


def test_a_run_that_is_held_in_a_step_is_killed_and_starts_again(tmp_path: Path) -> None:
    """It sees the notice, and cannot follow it; Slurm waits for its KillWait."""
    with SlurmLab(4, tmp_path) as slurm:
        run = RunInSlurm(slurm, 60)
        run.allow(7)
        job = BatchJob(run)
        all_did(job.out, 7)
        slurm.tell("scontrol", "requeue", job.number)
        job.out.saw(STOPS)
        job.out.saw("Attempt 1: starting from")
        run.allow(FAR)
        job.out.saw(f"final {expected_digest(60)}", HOSTS)


def test_a_preempted_run_saves_in_its_grace_time_and_asks_to_be_started_again(
    tmp_path: Path,
) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = RunInSlurm(slurm, 60)
        run.allow(7)
        job = BatchJob(run)
        all_did(job.out, 7)
        slurm.tell("sbatch", "--partition=high", "--nodes=4", "--exclusive", "--wrap=sleep 1")
        job.out.saw(STOPS)
        step = job.saves(after=7)
        job.out.saw(rf"starting from step {step} of attempt 0")
        run.allow(FAR)
        job.out.saw(f"final {expected_digest(60)}", HOSTS)


def test_a_node_that_is_drained_trains_on(tmp_path: Path) -> None:
    """Slurm tells nobody; the node takes no new job, and is free once this one has ended."""
    with SlurmLab(4, tmp_path) as slurm:
        run = RunInSlurm(slurm, STEPS)
        run.allow(7)
        step = slurm.start(run.srun.split(), env=run.env)
        all_did(step, 7)
        slurm.tell("scontrol", "update", "nodename=h1", "state=drain", "reason=repair")
        run.allow(FAR)
        out = step.wait(EXIT_DONE)
        assert out.count(f"final {expected_digest(STEPS)}") == HOSTS
        assert "drain" in slurm.node_state(1)
