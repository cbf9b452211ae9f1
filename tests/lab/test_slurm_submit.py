"""`holdfast submit --engine slurm` on a real Slurm cluster, whose nodes are hosts of the lab."""

from __future__ import annotations

import json
import re
import shlex
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from lab import LabProcess
from processes import EXIT_CONFIGURATION, EXIT_DONE, FAR, TRAINER, expected_digest
from slurm_lab import SlurmLab

pytestmark = pytest.mark.real

HOSTS, SPARES, STEPS = 3, 1, 12
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
STOPS = r"SIGTERM( on host \d| to rank \d)?: (saving, then )?stopping"
LIMIT_S, LOOK_S = 90.0, 0.2


class Submitted:
    """A run that is submitted from the head to all nodes; `job` is the first of its cluster."""

    def __init__(self, slurm: SlurmLab, job: int = 1, **env: object) -> None:
        self.slurm, self.job = slurm, str(job)
        shared = slurm.lab.shared
        self._folder, self._allow = shared / "out", shared / "allow"
        self._folder.mkdir()
        self.env = {
            "HOLDFAST_STORE": shared / "store",
            "HOLDFAST_MIRROR": shared / "mirror",
            "HOLDFAST_SCRATCH": slurm.lab.own / "scratch",
            "HOLDFAST_NOTICE": "off",
            "ALLOW": self._allow,
            **env,
        }
        tasks = [self._folder / f"r-{job}.{number}.out" for number in range(HOSTS + SPARES)]
        for path in tasks:
            path.touch()
        self.out = slurm.start(["tail", "--quiet", "--lines=+1", "--follow", *tasks])

    def holdfast(self, *words: object) -> LabProcess:
        return self.slurm.start([*HOLDFAST, *words], env=self.env)

    def submit(self, steps: int, *options: str) -> LabProcess:
        size = ["--engine", "slurm", "--hosts", HOSTS, "--spares", SPARES, "--name", "r"]
        often = ["--save-every", "3", "--host-lost", "2", "--option", f"output={self._folder}"]
        command = [sys.executable, TRAINER, steps]
        return self.holdfast("submit", *size, *often, *options, "--", *command)

    def allow(self, step: int) -> None:
        """Steps up to that may begin."""
        draft = self._allow.with_suffix(".new")
        draft.write_text(str(step))
        draft.replace(self._allow)

    def all_did(self, step: int) -> None:
        for rank in range(HOSTS):
            self.out.saw(rf"\[{rank}\] did {step}$")

    def saves(self, after: int) -> int:
        """The step at which all stop and save; they are let on one by one until then."""
        step = after
        while True:
            step += 1
            self.allow(step)
            seen = self.out.saw(rf"\[0\] did {step}$|stopped; step (\d+) is saved")
            if seen[1]:
                return int(seen[1])

    def shown(self, key: str) -> str:
        """What Slurm says of the job."""
        told = self.slurm.tell("scontrol", "--oneliner", "show", "job", self.job)
        return re.search(rf" {key}=(\S*)", told)[1]

    def until(self, predicate: Callable[[], bool]) -> None:
        """Slurm tells nobody of a job's end: it is asked."""
        end_s = time.monotonic() + LIMIT_S
        while not predicate():
            assert time.monotonic() < end_s, self.out.text
            time.sleep(LOOK_S)

    def ends(self, state: str) -> None:
        self.until(lambda: self.shown("JobState") == state)
        assert self.shown("Restarts") == "0"

    def report(self) -> dict:
        return json.loads(self.holdfast("report", "r", "--json").wait(EXIT_DONE))


def test_a_job_that_waits_says_for_what_and_the_report_knows_how_long(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        slurm.tell("sbatch", "--nodes=4", "--exclusive", "--output=/dev/null", "--wrap=sleep 4")
        run = Submitted(slurm, job=2)
        run.allow(FAR)
        said = run.submit(STEPS).wait(EXIT_DONE)
        assert "Submitted run 'r': 3 hosts and 1 spare, job 2 of Slurm" in said
        run.holdfast("hosts", "r").saw("waits.*Slurm: PENDING")
        run.submit(STEPS).saw("is submitted already .job 2 of Slurm")
        run.out.saw(f"final {expected_digest(STEPS)}", HOSTS)
        run.ends("COMPLETED")
        queued_s = run.report()["badput_s"]["queued"]
        assert queued_s >= 2.0


def test_a_node_that_loses_its_power_is_replaced_by_the_spare(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm)
        run.allow(7)
        run.submit(STEPS).wait(EXIT_DONE)
        run.all_did(7)
        slurm.power_off(1)
        run.out.saw("This is host 3 of 4 in the place of host 1")
        assert "down" not in slurm.node_state(1), "the run sees it before Slurm does"
        run.allow(FAR)
        run.out.saw(f"final {expected_digest(STEPS)}", HOSTS)
        run.ends("COMPLETED")


def test_the_job_ends_though_the_host_of_its_script_is_lost(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm)
        run.allow(7)
        run.submit(STEPS).wait(EXIT_DONE)
        run.all_did(7)
        slurm.power_off(0)
        run.out.saw("This is host 3 of 4 in the place of host 0")
        run.allow(FAR)
        run.out.saw(f"final {expected_digest(STEPS)}", HOSTS)
        run.out.saw("Job 1 is ended: the host of its script is lost")
        run.ends("CANCELLED")


def test_a_preempted_run_is_requeued_and_goes_on_where_it_was(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm)
        run.allow(7)
        run.submit(60).wait(EXIT_DONE)
        run.all_did(7)
        high = ["--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null"]
        slurm.tell("sbatch", *high, "--wrap=sleep 1")
        run.out.saw(STOPS)
        step = run.saves(after=7)
        run.out.saw(rf"starting from step {step} of attempt 0")
        run.holdfast("hosts", "r").saw("runs, requeued 1 time .Slurm: RUNNING")
        run.allow(FAR)
        run.out.saw(f"final {expected_digest(60)}", HOSTS)
        run.until(lambda: run.shown("JobState") == "COMPLETED")
        told = run.report()
        assert told["lost_steps"] == 0
        assert told["badput_s"]["reschedule:queue"] >= 1.0
        assert [(one["job"], one["times"]) for one in told["requeues"]] == [("1", 1)]


def test_a_person_s_stop_wins_over_a_preemption_that_came_first(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm)
        run.allow(7)
        run.submit(FAR).wait(EXIT_DONE)
        run.all_did(7)
        high = ["--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null"]
        slurm.tell("sbatch", *high, "--wrap=sleep 1")
        run.out.saw(STOPS)
        run.holdfast("stop", "r").wait(EXIT_DONE)
        run.out.saw("holdfast stop by .*: stopping already")
        assert run.saves(after=7) > 7
        run.ends("COMPLETED")


def test_a_run_goes_on_after_its_time_limit(tmp_path: Path) -> None:
    """As its options say, and not as sbatch's variables do in the shell that submits it."""
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm, SBATCH_TIMELIMIT=30, SBATCH_NO_REQUEUE=1, SBATCH_SIGNAL="B:USR1@9")
        run.allow(7)
        run.submit(60, "--option", "time=1", "--option", "signal=50").wait(EXIT_DONE)
        run.all_did(7)
        run.out.saw(STOPS)
        step = run.saves(after=7)
        run.out.saw(rf"starting from step {step} of attempt 0")
        run.allow(FAR)
        run.out.saw(f"final {expected_digest(60)}", HOSTS)


def test_a_node_that_is_drained_is_left_to_its_repair(tmp_path: Path) -> None:
    """Slurm tells nobody: the hosts ask it, each for its own node."""
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm, HOLDFAST_NOTICE="slurm:@0.2")
        run.allow(7)
        run.submit(FAR).wait(EXIT_DONE)
        run.all_did(7)
        told = run.holdfast("hosts", "r", "--replace", "h1", "--reason", "repair").wait(EXIT_DONE)
        assert "h1 is drained: a spare takes its part" in told
        run.holdfast("hosts", "r").saw("h1.*draining.*repair")
        run.allow(40)  # it saves at one of these
        run.out.saw(r"Restarting: host 1 gives up its part \(drain announced by slurm\)")
        run.out.saw("This is host 3 of 4 in the place of host 1")
        run.out.saw(r"starting from step \d+ of attempt 0")


def test_what_a_person_stops_is_not_started_again(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm)
        run.allow(7)
        run.submit(FAR).wait(EXIT_DONE)
        run.all_did(7)
        run.holdfast("stop", "r").wait(EXIT_DONE)
        run.out.saw("holdfast stop by .*stopping")
        assert run.saves(after=7) > 7
        run.ends("COMPLETED")


def test_what_is_released_saves_and_is_not_started_again(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm)
        run.allow(7)
        run.submit(FAR).wait(EXIT_DONE)
        run.all_did(7)
        run.holdfast("release", "r").saw("job 1 of Slurm is cancelled")
        run.out.saw(STOPS)
        assert run.saves(after=7) > 7
        run.ends("CANCELLED")


def test_what_slurm_can_never_start_is_said_at_once(tmp_path: Path) -> None:
    with SlurmLab(2, tmp_path) as slurm:
        run = Submitted(slurm)
        many = run.submit(STEPS).wait(EXIT_CONFIGURATION)
        assert many.endswith("are 4 nodes, and a job of partition low gets 2 at most")
        fits = ["--hosts", "1", "--spares", "0", "--option"]
        said = run.submit(STEPS, *fits, "partition=gpu").wait(EXIT_CONFIGURATION)
        assert said.endswith("there is no partition 'gpu' here; there are low, high")
        said = run.submit(STEPS, *fits, "time=2:00:00").wait(EXIT_CONFIGURATION)
        assert "time=2:00:00 is above the limit of partition low, 60 min" in said


def test_a_maintenance_reservation_is_a_notice(tmp_path: Path) -> None:
    """Slurm lets the job run into it, as `ignore_jobs` says, and tells nobody."""
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm, HOLDFAST_NOTICE="slurm:@0.2")
        run.allow(7)
        run.submit(FAR).wait(EXIT_DONE)
        run.all_did(7)
        when = ["starttime=now+60", "duration=60", "nodes=h1"]
        made = ["reservationname=repair", "user=root", "flags=maint,ignore_jobs", *when]
        slurm.tell("scontrol", "create", "reservation", *made)
        run.allow(400)  # it saves at one of these
        run.out.saw(r"Restarting: host 1 gives up its part \(terminate announced by slurm\)")
        run.out.saw("This is host 3 of 4 in the place of host 1")
        run.out.saw(r"starting from step \d+ of attempt 0")


def test_each_node_reads_ahead_before_the_run_s_own_step(tmp_path: Path) -> None:
    with SlurmLab(4, tmp_path) as slurm:
        run = Submitted(slurm)
        run.allow(FAR)
        size = ["--hosts", HOSTS, "--spares", SPARES]
        words = ["preload", "r", *size, "--", sys.executable, TRAINER]
        setup = f"srun --ntasks-per-node=1 {shlex.join(map(str, [*HOLDFAST, *words]))} || true"
        run.submit(STEPS, "--option", f"setup={setup}").wait(EXIT_DONE)
        run.out.saw(f"final {expected_digest(STEPS)}", HOSTS)
        run.ends("COMPLETED")
        preloads = run.report()["preloads"]
        assert {one["host"] for one in preloads} == {f"h{index}" for index in range(4)}
        assert all("packages" in {part["what"] for part in one["parts"]} for one in preloads)
