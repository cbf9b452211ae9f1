"""`holdfast submit --engine slurm` on a real Slurm of four nodes, which are hosts of the lab.

    python bench/submit_slurm.py --starts 5 --preemptions 4

*start*: from the command until the first step of all ranks (three hosts and a spare); in turn the
same by `holdfast run` on each of these hosts, past Slurm, and on one host alone. *preempted*: from
the first SIGTERM of a preemption until the first new step of all ranks. Ours of it is what lies
before the job is requeued and what follows on the first line of its script; what lies between is
Slurm's: it makes the other job's nodes free, waits (`cred_expire`), and schedules. Whose a second
is, the job's own output says, as it is read here. All hosts share this machine's cores and its
clock; the trainer is numpy. The numbers are seconds.
"""

from __future__ import annotations

import argparse
import compileall
import json
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from several_hosts import TRAINER, Progress, until

TESTS, SOURCES = (Path(__file__).parents[1] / name for name in ("tests", "src"))
sys.path[:0] = [str(TESTS / name) for name in ("", "e2e", "lab")]
from lab import LabProcess  # noqa: E402
from slurm_lab import SlurmLab  # noqa: E402

NODES, HOSTS, FAR = 4, 3, 100_000
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
STAMP = r"^begins (\d+\.\d+)$"


class Submitted:
    """One run, submitted on the head; its steps as its ranks write them down."""

    def __init__(self, slurm: SlurmLab, name: str, ranks: int) -> None:
        self.slurm, self.name = slurm, name
        self._folder = slurm.lab.shared / name
        self._folder.mkdir()
        self.progress = Progress(self._folder / "progress", ranks)
        self._trainer = self._folder / "trainer.py"
        self._trainer.write_text(TRAINER)
        self.env: dict[str, object] = {
            **slurm.env,
            "HOLDFAST_STORE": self._folder / "store",
            "HOLDFAST_MIRROR": self._folder / "mirror",
            "HOLDFAST_SCRATCH": slurm.lab.own / "scratch",
            "PROGRESS": self._folder / "progress",
        }
        self.began_s = 0.0
        self._processes: list[LabProcess] = []

    def submit(self) -> str:
        """Its job; by then the command has returned."""
        where = ["--option", f"output={self._folder}", "--option", "setup=date +begins\\ %s.%N"]
        size = ["--engine", "slurm", "--hosts", HOSTS, "--spares", NODES - HOSTS]
        said = self._told("submit", "--name", self.name, *size, *where, *self._command)
        found = re.search(r"job (\d+) of Slurm", said)
        assert found, said
        return found[1]

    def by_hand(self, hosts: int, spares: int = 0) -> None:
        """On hosts of the lab, past Slurm."""
        self.began_s = time.time()
        words: list[object] = [*HOLDFAST, "run", "--name", self.name]
        if hosts > 1:
            words += ["--hosts", hosts, "--spares", spares]
        for index in range(hosts + spares):
            place = ["--host-index", index] if hosts > 1 else []
            command = [*words, *place, *self._command]
            host = self.slurm.lab.hosts[index]
            self._processes.append(host.start(command, env=self.env))

    def stop(self, job: str = "") -> None:
        """`holdfast stop`, and wait until all is over."""
        self._told("stop", self.name)
        if job:
            until(lambda: "JobState=COMPLETED" in self.job(job), "the end of the job")
        for process in self._processes:
            process.wait()

    def job(self, job: str) -> str:
        return str(self.slurm.tell("scontrol", "--oneliner", "show", "job", job))

    def report(self) -> Mapping[str, object]:
        found: Mapping[str, object] = json.loads(self._told("report", self.name, "--json"))
        return found

    def said(self, name: str, pattern: str, count: int = 1) -> str:
        """What the `count`-th such line says, of the file of the job's script or of a host."""
        path = self._folder / f"{self.name}-{name}.out"

        def found() -> list[str]:
            text = path.read_text() if path.exists() else ""
            return re.findall(pattern, text, re.MULTILINE)

        until(lambda: len(found()) >= count, pattern)
        return found()[count - 1]

    @property
    def _command(self) -> list[object]:
        return ["--", sys.executable, self._trainer, FAR]

    def _told(self, *words: object) -> str:
        self.began_s = time.time()
        return str(self.slurm.start([*HOLDFAST, *words], env=self.env).wait(0))


def start(slurm: SlurmLab, name: str) -> dict[str, float]:
    """From the command on: it has returned, the script has begun, all ranks train."""
    run = Submitted(slurm, name, HOSTS)
    job = run.submit()
    began_s, returned_s = run.began_s, time.time()
    trains_s = began_s + run.progress.next_step(began_s, after=0)
    script_s = float(run.said(job, STAMP))
    run.stop(job)
    many = _by_hand(slurm, f"{name}-many", HOSTS, NODES - HOSTS)
    alone = _by_hand(slurm, f"{name}-alone", 1)
    return {
        "submit → all ranks train": trains_s - began_s,
        "  the command": returned_s - began_s,
        "  until the script begins": script_s - returned_s,
        "  script → all ranks train": trains_s - script_s,
        "the same hosts by hand": many,
        "one host by hand": alone,
        "submit less one host": trains_s - began_s - alone,
        "submit less hosts by hand": trains_s - began_s - many,
    }


def _by_hand(slurm: SlurmLab, name: str, hosts: int, spares: int = 0) -> float:
    run = Submitted(slurm, name, hosts)
    run.by_hand(hosts, spares)
    found = run.progress.next_step(run.began_s, after=0)
    run.stop()
    return found


def preempted(slurm: SlurmLab, name: str) -> dict[str, float]:
    """From the first SIGTERM on, by whose time it is."""
    run = Submitted(slurm, name, HOSTS)
    job = run.submit()
    run.progress.next_step(run.began_s, after=60)
    other = ["--partition=high", "--nodes=4", "--exclusive", "--output=/dev/null"]
    slurm.tell("sbatch", *other, "--wrap=sleep 1")
    run.said(f"{job}.0", "SIGTERM.*stopping")
    told_s = time.time()
    run.said(job, "start it again")
    left_s = time.time()
    last, _, _ = run.progress.steps(0)[-1]
    script_s = float(run.said(job, STAMP, count=2))
    trains_s = script_s + run.progress.next_step(script_s, after=last)
    again = sum(1 for step, at_s, _ in run.progress.steps(0) if step <= last and at_s > script_s)
    run.stop(job)
    lost = run.report()["lost_steps"]
    assert isinstance(lost, int | float)
    return {
        "SIGTERM → new step of all": trains_s - told_s,
        "ours": left_s - told_s + trains_s - script_s,
        "  SIGTERM → all have left": left_s - told_s,
        "  script → new step of all": trains_s - script_s,
        "Slurm's": script_s - left_s,
        "steps lost": float(lost),
        "steps done again": float(again),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--preemptions", type=int, default=4)
    asked = parser.parse_args()
    compileall.compile_dir(str(SOURCES), quiet=1)
    trials: list[tuple[Callable[[SlurmLab, str], dict[str, float]], int]] = [
        (start, asked.starts),
        (preempted, asked.preemptions),
    ]
    with tempfile.TemporaryDirectory() as folder, SlurmLab(NODES, Path(folder)) as slurm:
        for trial, times in trials:
            rows = [trial(slurm, f"{trial.__name__}-{n}") for n in range(times)]
            print(f"\n{trial.__name__}, {times} times, load {os.getloadavg()[0]:.1f}")
            for key in rows[0] if rows else ():
                every = [row[key] for row in rows]
                middle, least, most = statistics.median(every), min(every), max(every)
                print(f"  {key:<28} {middle:7.2f}   ({least:.2f} … {most:.2f})", flush=True)


if __name__ == "__main__":
    main()
