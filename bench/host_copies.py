"""Copies on peers: what they cost the training, and how soon a set is on two hosts.

    python bench/host_copies.py --mib 200 --seconds 60 --rounds 2 [--busy 0.83]

Two hosts of one rank each, as processes of this machine in a network namespace whose loopback is
limited to 1 GB/s (`tc`, of all together). Each rank has a state of its own, which changes in every
step, and sleeps for the rest of the step, as beside an accelerator. In turn with it the same run
with hosts that cannot be reached, which is how copies are switched off: all the rest is the same.
The hosts share the machine's cores. `--busy`: for so much of a step each rank computes, as much in
each step, so that a step is longer where something else takes its core. It needs root.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
from several_hosts import SAFE, Progress, until

from holdfast.snapshot.part import held_copies

TRAINER = """
import os, sys, time
import numpy as np
import holdfast as hf
run = hf.start()
count = int(os.environ["MIB"]) << 18
units, rest_s = int(os.environ["UNITS"]), float(os.environ["REST_S"])
work = np.ones(1 << 14, np.float32)
state = run.restore(init=lambda: {"own": np.full(count, run.rank, np.float32), "n": np.zeros(1)})
out = open(os.environ["PROGRESS"] + f"/{run.rank}", "a", buffering=1)
for step in run.steps(1_000_000):
    began_s = time.monotonic()
    state["own"] += 1
    state["n"] += 1
    for _ in range(units):
        np.multiply(work, 1.0, out=work)
    time.sleep(rest_s if units else max(0.0, 0.5 - (time.monotonic() - began_s)))
    run.done(step, state)
    out.write(f"{step} {time.time()} {os.getpid()}\\n")
"""
IN_NAMESPACE = "HOLDFAST_BENCH_NAMESPACE"
NOBODY = "192.0.2.1"  # an address for examples: no way leads there
ALONE = "hosts alone: a neighbour cannot be reached"
HOSTS = 2
STEP_S = 0.44  # with --busy
EVERY_STEPS = 4  # a snapshot: each 2 s
TICKS = os.sysconf("SC_CLK_TCK")


class Found(NamedTuple):
    """Of one run. `safe_s`: from a step until its set is on two hosts; `every_s`: between two."""

    step_s: float
    mean_s: float
    cpu_s: float
    sets: int
    safe_s: list[float]
    every_s: list[float]
    interval: str


def main() -> None:
    """Print both, and what is between them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mib", type=int, default=200, help="of each rank's own state")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each run")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--rate", default="8gbit", help="of the loopback")
    parser.add_argument("--busy", type=float, default=0.0, help="share of a step of 0.44 s")
    asked = parser.parse_args()
    if IN_NAMESPACE not in os.environ:
        words = [sys.executable, *sys.argv]
        os.execvpe("unshare", ["unshare", "--net", *words], {**os.environ, IN_NAMESPACE: "1"})
    limit = ["rate", asked.rate, "burst", "2mb", "latency", "50ms"]
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    subprocess.run(["tc", "qdisc", "add", "dev", "lo", "root", "tbf", *limit], check=True)
    os.environ["UNITS"] = str(units(asked.busy * STEP_S))
    os.environ["REST_S"] = str((1 - asked.busy) * STEP_S)
    found: dict[bool, list[Found]] = {True: [], False: []}
    for _ in range(asked.rounds):
        for has_copies, of in found.items():
            of.append(one_run(asked.mib, asked.seconds, has_copies))
            print(f"{'with' if has_copies else 'without'} copies: {told(of[-1], asked.mib)}")
    on, off = (statistics.median(one.step_s for one in found[has]) for has in (True, False))
    print(f"median step: {on:.4f} s with copies, {off:.4f} s without: {on / off - 1:+.2%}")
    on, off = (statistics.mean(one.mean_s for one in found[has]) for has in (True, False))
    print(f"mean step: {on:.4f} s with copies, {off:.4f} s without: {on / off - 1:+.2%}")


def units(busy_s: float) -> int:
    """How often the trainer's piece of work is done in so much processor time."""
    work = np.ones(1 << 14, np.float32)

    def once() -> None:
        for _ in range(1000):
            np.multiply(work, 1.0, out=work)

    return round(busy_s * 1000 / min(used_s(once) for _ in range(20)))


def used_s(do: Callable[[], None]) -> float:
    began_s = time.process_time()
    do()
    return time.process_time() - began_s


def told(one: Found, mib: int) -> str:
    line = f"step {one.step_s:.4f} s (mean {one.mean_s:.4f}), {one.sets} sets on two hosts"
    if one.sets:
        gigabytes = one.sets * HOSTS * mib * (1 << 20) / 1e9
        line += (
            f", each {statistics.median(one.safe_s):.1f} s (to {max(one.safe_s):.1f}) after its "
            f"step, one every {statistics.median(one.every_s or [0.0]):.1f} s, "
            f"{one.cpu_s / gigabytes:.2f} s of CPU per GB copied"
        )
    return f"{line}; {one.interval}; load {os.getloadavg()[0]:.1f}"


def one_run(mib: int, seconds: float, has_copies: bool) -> Found:
    with tempfile.TemporaryDirectory() as work, tempfile.TemporaryDirectory(dir="/dev/shm") as ram:
        progress = Progress(Path(work) / "progress", HOSTS)
        agents = start(Path(work), Path(ram), progress, mib, has_copies)
        logs = [Path(work) / f"{index}.log" for index in range(HOSTS)]

        def says(words: str) -> bool:
            return any(words in log.read_text(errors="replace") for log in logs)

        try:
            until(lambda: says(SAFE if has_copies else ALONE), "copies" if has_copies else ALONE)
            time.sleep(5.0)
            began_s, cpu_s = time.time(), copiers_s(agents)
            safe = follow(Path(ram), began_s + seconds)
            cpu_s = copiers_s(agents) - cpu_s
        finally:
            for agent in agents:
                agent.send_signal(signal.SIGQUIT)
            for agent in agents:
                agent.wait(60.0)
        rows = [row for row in progress.steps(0) if began_s < row[1] < began_s + seconds]
        times = {step: at_s for step, at_s, _ in progress.steps(0)}
        steps = [later[1] - one[1] for one, later in pairwise(rows)]
        said = re.findall(r"saving every [^,]* to memory", logs[0].read_text(errors="replace"))
        ats = sorted(safe.values())
        return Found(
            step_s=statistics.median(steps),
            mean_s=statistics.mean(steps),
            cpu_s=cpu_s,
            sets=len(safe),
            safe_s=[at_s - times[step] for step, at_s in safe.items()],
            every_s=[later - one for one, later in pairwise(ats)],
            interval=said[-1] if said else "",
        )


def start(
    work: Path, ram: Path, progress: Progress, mib: int, has_copies: bool
) -> list[subprocess.Popen[bytes]]:
    (work / "trainer.py").write_text(TRAINER)
    agents = []
    for index in range(HOSTS):
        (ram / str(index)).mkdir()
        words = ["--name", "r", "--store", str(work / "store"), "--notice", "off"]
        words += ["--hosts", str(HOSTS), "--host-index", str(index)]
        words += ["--memory-dir", str(ram / str(index)), "--snapshot-every", str(EVERY_STEPS)]
        words += [] if has_copies else ["--host-address", NOBODY]
        command = [sys.executable, "-m", "holdfast.cli.main", "run", *words]
        with (work / f"{index}.log").open("wb") as out:
            agents.append(
                subprocess.Popen(
                    [*command, "--", sys.executable, str(work / "trainer.py")],
                    env={**os.environ, "PROGRESS": str(progress.folder), "MIB": str(mib)},
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=subprocess.STDOUT,
                )
            )
    return agents


def follow(ram: Path, until_s: float) -> dict[int, float]:
    """By step, when its set was seen on two hosts each, of those that come from now on."""
    seen: dict[int, float] = {}
    before: set[int] | None = None
    while time.time() < until_s:
        held = []
        for index in range(HOSTS):
            folders = list((ram / str(index)).glob("holdfast-*/*/ram"))
            held.append({one.step for folder in folders for one in held_copies(folder)})
        on_both = set.intersection(*held)
        before = on_both if before is None else before
        for step in on_both - before:
            seen.setdefault(step, time.time())
        time.sleep(0.05)
    return seen


def copiers_s(agents: list[subprocess.Popen[bytes]]) -> float:
    """Processor time that all copy processes have used."""
    ticks = 0
    for agent in agents:
        for pid in below(agent.pid):
            with contextlib.suppress(OSError):
                if b"holdfast.agent.copier" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
                    ticks += int(words[11]) + int(words[12])
    return ticks / TICKS


def below(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *below(child)]
    return found


if __name__ == "__main__":
    main()
