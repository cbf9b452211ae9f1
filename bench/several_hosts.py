"""Runs of several hosts that are struck: how long until the next new step, and what it costs.

    python bench/several_hosts.py --times 5

All hosts are on this machine, on loopback, with a store in a folder: no network is between them. A
strike is SIGKILL, to all processes of a host at once (as a loss of power, but that its sockets are
closed), to one rank, or to the controller. Each trial is a run of its own. The trainer is numpy, so
what is measured is Holdfast, and not a framework's rendezvous. The numbers are seconds.
"""

from __future__ import annotations

import argparse
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TRAINER = """
import os, sys, time
import numpy as np
import holdfast as hf
run = hf.start()
state = run.restore(init=lambda: {"w": np.arange(100_000.0), "own": np.full(5000, run.rank)})
out = open(os.environ["PROGRESS"] + f"/{run.rank}", "a", buffering=1)
for step in run.steps(int(sys.argv[1])):
    time.sleep(0.02)
    state["w"] = state["w"] * 1.0001 + step
    run.done(step, state)
    out.write(f"{step} {time.time()} {os.getpid()}\\n")
"""
SAFE = "is in memory on two hosts each"
LIMIT_S = 120.0
STEPS = 100_000
LOOK_S = 0.005


class Progress:
    """What the ranks of a run have written of their steps, a file each."""

    def __init__(self, folder: Path, ranks: int) -> None:
        self.ranks = ranks
        self.folder = folder
        folder.mkdir()

    def steps(self, rank: int) -> list[tuple[int, float, int]]:
        """What a rank has done: the step, when, and its process."""
        try:
            lines = (self.folder / str(rank)).read_text().splitlines()
        except FileNotFoundError:
            return []
        rows = [line.split() for line in lines if line.count(" ") == 2]
        return [(int(step), float(at_s), int(pid)) for step, at_s, pid in rows]

    def next_step(self, since_s: float, after: int) -> float:
        """Seconds from then until every rank has done a step that is newer than `after`."""
        found: dict[int, float] = {}

        def all_did() -> bool:
            for rank in set(range(self.ranks)) - found.keys():
                new = [
                    at_s for step, at_s, _ in self.steps(rank) if at_s > since_s and step > after
                ]
                if new:
                    found[rank] = new[0] - since_s
            return len(found) == self.ranks

        until(all_did, "the next new step")
        return max(found.values())

    def resumed_at(self, since_s: float) -> int:
        """The step before the first one that a restarted rank 0 has done since."""
        before = {pid for _, at_s, pid in self.steps(0) if at_s <= since_s}

        def new() -> list[int]:
            return [step for step, _, pid in self.steps(0) if pid not in before]

        until(lambda: bool(new()), "a step of another process")
        return new()[0] - 1


def until(reached: Callable[[], bool], what: str) -> None:
    """Wait for that."""
    give_up_s = time.monotonic() + LIMIT_S
    while not reached():
        if time.monotonic() > give_up_s:
            sys.exit(f"{what}: not within {LIMIT_S:.0f} s")
        time.sleep(LOOK_S)


class StruckRun:
    """One run on hosts of this machine, until `close`."""

    def __init__(self, work: Path, hosts: int, spares: int, ranks: int, lost_s: float) -> None:
        self.progress = Progress(work / "progress", hosts * ranks)
        script = work / "trainer.py"
        script.write_text(TRAINER)
        self._logs = [work / f"{index}.log" for index in range(hosts + spares)]
        self.agents = []
        for index, log in enumerate(self._logs):
            words = ["--name", "r", "--store", str(work / "store"), "--ranks", str(ranks)]
            if hosts + spares > 1:
                words += [
                    "--hosts",
                    str(hosts),
                    "--spares",
                    str(spares),
                    "--host-index",
                    str(index),
                ]
                words += ["--host-lost", str(lost_s)]
            command = [sys.executable, "-m", "holdfast.cli.main", "run", *words, "--notice", "off"]
            command += ["--", sys.executable, str(script), str(STEPS)]
            with log.open("wb") as out:
                self.agents.append(
                    subprocess.Popen(
                        command,
                        env={**os.environ, "PROGRESS": str(self.progress.folder)},
                        stdin=subprocess.DEVNULL,
                        stdout=out,
                        stderr=subprocess.STDOUT,
                    )
                )

    def said(self, words: str) -> int:
        """How often these words were printed."""
        return sum(log.read_text(errors="replace").count(words) for log in self._logs)

    def close(self) -> None:
        """End all of it."""
        for agent in self.agents:
            agent.send_signal(signal.SIGQUIT)
        for agent in self.agents:
            agent.wait(LIMIT_S)


def tree(pid: int) -> list[int]:
    """A process and all below it, but for a controller."""
    found, left = [], [pid]
    while left:
        one = left.pop()
        command = Path(f"/proc/{one}/cmdline")
        if command.exists() and b"--as-controller" in command.read_bytes():
            continue
        found.append(one)
        for task in Path(f"/proc/{one}/task").glob("*/children"):
            left += map(int, task.read_text().split())
    return found


def controller_of(pid: int) -> int:
    """The controller that this agent has started."""
    words = ["pgrep", "-P", str(pid), "-f", "as-controller"]
    return int(subprocess.run(words, check=True, capture_output=True, text=True).stdout)


def strike(what: str, run: StruckRun) -> tuple[float, int]:
    """Strike it once; seconds to the next new step, and how many steps are done again."""
    is_alone, steps = len(run.agents) == 1, run.progress.steps
    until(lambda: bool(steps(0)) and steps(0)[-1][0] > 150, "150 steps")
    if not is_alone:
        until(lambda: run.said(SAFE) > 0, SAFE)
    time.sleep(2.0)
    now_s, (step, _, _) = time.time(), steps(0)[-1]
    if what == "controller":
        os.kill(controller_of(run.agents[0].pid), signal.SIGKILL)
        until(lambda: run.said("goes on: all its hosts are there") > 0, "another controller")
        return time.time() - now_s, 0
    if what == "host":
        pids = tree(run.agents[1].pid)
        for number in (signal.SIGSTOP, signal.SIGKILL):
            for pid in pids:
                os.kill(pid, number)
    else:
        os.kill(steps(run.progress.ranks - 1)[-1][2], signal.SIGKILL)
    took_s = run.progress.next_step(now_s, step)
    return took_s, step - run.progress.resumed_at(now_s)


def main() -> None:
    """Print a row for each strike."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--hosts", type=int, default=2)
    parser.add_argument("--host-lost", type=float, default=2.0)
    asked = parser.parse_args()
    rows = {
        f"a host of {asked.hosts}, and a spare": ("host", asked.hosts, 1, 1),
        f"a rank on one of {asked.hosts} hosts": ("rank", asked.hosts, 0, 1),
        f"one of {asked.hosts} ranks on one host": ("rank", 1, 0, asked.hosts),
        f"the controller of {asked.hosts} hosts": ("controller", asked.hosts, 0, 1),
    }
    for name, (what, hosts, spares, ranks) in rows.items():
        took, lost = [], []
        for _ in range(asked.times):
            with tempfile.TemporaryDirectory() as work:
                run = StruckRun(Path(work), hosts, spares, ranks, asked.host_lost)
                try:
                    took_s, again = strike(what, run)
                finally:
                    run.close()
            took.append(took_s)
            lost.append(again)
        print(
            f"{name}: median {statistics.median(took):.2f} s ({min(took):.2f} … {max(took):.2f}), "
            f"steps again {statistics.median(lost):.0f} ({min(lost)} … {max(lost)}); "
            f"load {os.getloadavg()[0]:.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
