"""Runs on hosts of the lab: power off, a killed rank, SIGTERM, the start; beside one host in turn.

    python bench/lab_hosts.py --times 5 --only power,rank,stop,start,torch,jax

A host is namespaces of this machine, joined by a cable in user space (`tests/lab`): one that is
powered off says nothing any more, not even that its sockets are closed. All hosts share the
machine's cores. Each trial is a run of its own. The trainer is numpy and sleeps for most of a
step, so what is measured is Holdfast; `torch` trains with DDP over gloo, `jax` within
jax.distributed, and both tell how long the framework took to meet. The numbers are seconds.
"""

from __future__ import annotations

import argparse
import compileall
import os
import random
import re
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from several_hosts import SAFE, TRAINER, Progress, until

TESTS, SOURCES = (Path(__file__).parents[1] / name for name in ("tests", "src"))
sys.path[:0] = [str(TESTS / name) for name in ("", "e2e", "lab")]
import lab as labs  # noqa: E402

FAR = 100_000
BACK_STEPS = 150
EXIT_SAVED = 75

# Ranks that train together wait for one another in each step. These keep step by the wall clock,
# which is the machine's on all hosts of the lab, and send nothing. What is written comes before
# `run.done`: at a stop nothing is left to run after it.
STOPPED_TRAINER = """
import os, sys, time
from pathlib import Path
import numpy as np
import holdfast as hf
run = hf.start()
state = run.restore(init=lambda: {"w": np.arange(100_000.0), "own": np.full(5000, run.rank)})
folder, step_s = Path(os.environ["PROGRESS"]), float(os.environ["STEP_S"])
out = open(folder / str(run.rank), "a", buffering=1)
(folder / f"ready-{run.rank}").touch()
while len(ready := list(folder.glob("ready-*"))) < run.world_size:
    time.sleep(0.01)
began_s = max(one.stat().st_mtime for one in ready) + 1.0
for step in run.steps(int(sys.argv[1])):
    state["w"] = state["w"] * 1.0001 + step
    time.sleep(max(0.0, began_s + step * step_s - time.time()))
    out.write(f"{step} {time.time()} {os.getpid()}\\n")
    run.done(step, state)
"""

# `join` is the time of PyTorch alone: to meet, and for what DDP sends to and fro at first.
TORCH_TRAINER = """
import os, sys, time
import torch
from torch.nn.parallel import DistributedDataParallel
import holdfast as hf
torch.set_num_threads(1)
run = hf.start()
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Tanh(), torch.nn.Linear(256, 8))
optimizer = torch.optim.AdamW(model.parameters())
out = open(os.environ["PROGRESS"] + f"/{run.rank}", "a", buffering=1)
began_s = time.time()
torch.distributed.init_process_group("gloo")
parallel = DistributedDataParallel(model)
parallel(torch.zeros(1, 256)).sum().backward()
model.zero_grad()
out.write(f"joined {time.time() - began_s}\\n")
run.track(model=model, optimizer=optimizer)
run.restore()
for step in run.steps(int(sys.argv[1])):
    time.sleep(0.02)
    loss = parallel(torch.ones(16, 256)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    run.done(step)
    out.write(f"{step} {time.time()} {os.getpid()}\\n")
"""

# The same of JAX; its first collective compiles a program, which is no part of meeting.
JAX_TRAINER = """
import os, sys, time
from pathlib import Path
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec as P
import holdfast as hf
run = hf.start()
out = open(os.environ["PROGRESS"] + f"/{run.rank}", "a", buffering=1)
began_s = time.time()
jax.config.update("jax_cpu_collectives_implementation", "gloo")
jax.distributed.initialize(num_processes=run.world_size, process_id=run.rank)
mesh = Mesh(jax.devices(), ("ranks",))
out.write(f"joined {time.time() - began_s}\\n")
whole, cut = NamedSharding(mesh, P()), NamedSharding(mesh, P("ranks"))
def step_of(w, batch):
    loss, gradient = jax.value_and_grad(lambda w: jnp.mean(jnp.tanh(batch @ w) ** 2))(w)
    return w - 0.1 * gradient, loss
train = run.compile(jax.jit(step_of, donate_argnums=0, out_shardings=(whole, whole)))
init = jax.jit(lambda: jnp.ones((256, 256)), out_shardings=whole)
state = run.restore(init=lambda: {"w": init()})
rows = np.ones((16, 256), np.float32)
for step in run.steps(int(sys.argv[1])):
    time.sleep(0.02)
    batch = jax.make_array_from_process_local_data(cut, rows)
    state["w"], loss = train(state["w"], batch)
    float(loss)
    run.done(step, state)
    out.write(f"{step} {time.time()} {os.getpid()}\\n")
"""


class Shape(NamedTuple):
    """Of a run. One host has no others, and no flags of several."""

    hosts: int
    spares: int = 0
    ranks: int = 1


class LabRun:
    """One run on all hosts of a lab."""

    def __init__(
        self, lab: labs.Lab, shape: Shape, trainer: str = TRAINER, flags: tuple[str, ...] = ()
    ) -> None:
        self.lab, self.shape = lab, shape
        self.progress = Progress(lab.shared / "progress", shape.hosts * shape.ranks)
        script = lab.shared / "trainer.py"
        script.write_text(trainer)
        words = ["--name", "r", "--ranks", shape.ranks, "--notice", "off", *flags]
        if shape.hosts + shape.spares > 1:
            words += ["--hosts", shape.hosts, "--spares", shape.spares]
        self.began_s = time.time()
        self.agents = [self._start(host, words, script) for host in lab.hosts]

    def _start(self, host: labs.Host, words: list[object], script: Path) -> labs.LabProcess:
        env = {
            "HOLDFAST_STORE": self.lab.shared / "store",
            "HOLDFAST_SCRATCH": self.lab.own / f"scratch-{host.index}",
            "PROGRESS": self.progress.folder,
            "STEP_S": os.environ.get("STEP_S", "0.02"),
            "OMP_NUM_THREADS": "1",
        }
        index = ["--host-index", host.index] if len(self.lab.hosts) > 1 else []
        run = [sys.executable, "-m", "holdfast.cli.main", "run", *words, *index]
        return host.start([*run, "--", sys.executable, script, FAR], env=env)

    def said(self, words: str) -> int:
        return sum(agent.text.count(words) for agent in self.agents)

    def trains(self, steps: int = 1) -> bool:
        """Whether all ranks have done so many."""
        rows = [self.progress.steps(rank) for rank in range(self.progress.ranks)]
        return all(of_rank and of_rank[-1][0] >= steps for of_rank in rows)

    def settles(self, rest_s: float = 4.0, steps: int = BACK_STEPS) -> None:
        """It trains, its sets are on two hosts each, and its standbys have imported."""
        until(lambda: self.trains(steps), f"{steps} steps")
        if self.shape.hosts > 1:
            until(lambda: self.said(SAFE) > 0, SAFE)
        time.sleep(rest_s + random.random())

    def joined_s(self) -> float:
        """The longest that a rank of the newest attempt has needed to meet the others."""
        found = []
        for rank in range(self.progress.ranks):
            text = (self.progress.folder / str(rank)).read_text()
            found.append(float(re.findall(r"^joined (.+)$", text, re.M)[-1]))
        return max(found)


@contextmanager
def run_of(
    shape: Shape, trainer: str = TRAINER, flags: tuple[str, ...] = (), delay_ms: float = 0.0
) -> Iterator[LabRun]:
    """In a lab of its own, which ends with the block."""
    with (
        tempfile.TemporaryDirectory(prefix="holdfast-lab-") as work,
        labs.Lab(shape.hosts + shape.spares, Path(work)) as lab,
    ):
        lab.delay(delay_ms)
        run = LabRun(lab, shape, trainer, flags)
        try:
            yield run
        except BaseException:
            for agent in run.agents:
                print(f"--- host {agent.index}\n{agent.text[-3000:]}", file=sys.stderr)
            raise


class Struck(NamedTuple):
    """What a strike has cost. `joined_s`: of that, the framework's own meeting."""

    new_s: float
    again: int
    joined_s: float = 0.0


def strike(run: LabRun, victim: int | None) -> Struck:
    """Power that host off; without one, kill the last rank."""
    run.settles()
    (step, _, _), now_s = run.progress.steps(0)[-1], time.time()
    if victim is None:
        last = run.progress.ranks - 1
        host = run.lab.hosts[last // run.shape.ranks]
        host.kill(run.progress.steps(last)[-1][2], signal.SIGKILL)
    else:
        run.lab.hosts[victim].power_off()
    struck_s = time.time()  # until now the one that was struck may have done a step
    new_s = run.progress.next_step(struck_s, step) + struck_s - now_s
    return Struck(new_s, step - run.progress.resumed_at(struck_s))


def stop(run: LabRun, step_s: float) -> Struck:
    """SIGTERM on the last host: how much longer than a step until all have done the agreed one."""
    run.settles(steps=round(4.0 / step_s))
    time.sleep(random.random() * step_s)
    now_s = time.time()
    run.agents[-1].send(signal.SIGTERM)
    for agent in run.agents:
        agent.wait(EXIT_SAVED)
    (agreed,) = {int(one) for one in re.findall(r"step (\d+) is saved", run.agents[0].text)}
    ranks = [run.progress.steps(rank)[-1] for rank in range(run.progress.ranks)]
    assert {step for step, _, _ in ranks} == {agreed}, (agreed, ranks)
    return Struck(max(at_s for _, at_s, _ in ranks) - now_s - step_s, 0)


def start(run: LabRun) -> Struck:
    """From the first agent's start until all ranks have done a step."""
    until(run.trains, "a step of all ranks")
    ranks = range(run.progress.ranks)
    return Struck(max(run.progress.steps(rank)[0][1] for rank in ranks) - run.began_s, 0)


Trial = Callable[[], Struck]


def struck(shape: Shape, victim: int | None, lost_s: float, trainer: str = TRAINER) -> Trial:
    flags = ("--host-lost", str(lost_s)) if shape.hosts > 1 else ()

    def trial() -> Struck:
        with run_of(shape, trainer, flags) as run:
            found = strike(run, victim)
            return found if trainer == TRAINER else found._replace(joined_s=run.joined_s())

    return trial


def stopped(step_s: float, delay_ms: float) -> Trial:
    def trial() -> Struck:
        os.environ["STEP_S"] = str(step_s)
        with run_of(Shape(4), STOPPED_TRAINER, delay_ms=delay_ms) as run:
            return stop(run, step_s)

    return trial


def started(shape: Shape) -> Trial:
    def trial() -> Struck:
        with run_of(shape) as run:
            return start(run)

    return trial


def rows(hosts: int) -> dict[str, dict[str, Trial]]:
    """By subject. Those of one subject are tried in turn."""
    many, spared = Shape(hosts), Shape(hosts, spares=1)
    of_two = Shape(2, spares=1)
    return {
        "power": {
            f"{what} of {hosts} powered off, --host-lost {lost_s:g}": struck(spared, victim, lost_s)
            for what, victim, lost_s in (
                ("a host", 1, 2.0),
                ("a host", 1, 10.0),
                ("the controller's host", 0, 2.0),
            )
        },
        "rank": {
            f"a rank killed on one of {hosts} hosts": struck(many, None, 10.0),
            f"one of {hosts} ranks killed on one host": struck(Shape(1, ranks=hosts), None, 10.0),
        },
        "stop": {
            f"SIGTERM on one of 4 hosts → the agreed step done on all, less a step of "
            f"{step_s * 1e3:g} ms; cable {delay_ms:g} ms": stopped(step_s, delay_ms)
            for step_s in (0.02, 0.2)
            for delay_ms in (0.0, 10.0)
        },
        "start": {
            f"first agent → training, {hosts} hosts": started(many),
            "… one host, a rank": started(Shape(1)),
            f"… one host, {hosts} ranks": started(Shape(1, ranks=hosts)),
        },
        "torch": {
            "PyTorch, a rank killed on one of 2 hosts": struck(
                Shape(2), None, 10.0, TORCH_TRAINER
            ),
            "PyTorch, one of 2 ranks killed on one host": struck(
                Shape(1, ranks=2), None, 10.0, TORCH_TRAINER
            ),
            "PyTorch, a host of 2 powered off, --host-lost 2": struck(
                of_two, 1, 2.0, TORCH_TRAINER
            ),
            "PyTorch, the host of rank 0 and the controller, --host-lost 2": struck(
                of_two, 0, 2.0, TORCH_TRAINER
            ),
        },
        "jax": {
            "JAX, a host of 2 powered off, --host-lost 2": struck(
                of_two, 1, 2.0, JAX_TRAINER
            ),
        },
    }  # fmt: skip


def told(name: str, found: list[Struck], loads: list[float]) -> str:
    """A line of what was found."""
    took = [one.new_s for one in found]
    line = f"{name}: median {statistics.median(took):.3f} s ({min(took):.3f} … {max(took):.3f})"
    if any(one.again for one in found):
        again = [one.again for one in found]
        line += f", steps again {statistics.median(again):.0f} ({min(again)} … {max(again)})"
    if any(one.joined_s for one in found):
        joined = [one.joined_s for one in found]
        line += f", of that the framework's meeting {statistics.median(joined):.3f} s"
        line += f" ({min(joined):.3f} … {max(joined):.3f})"
    return f"{line}; {len(found)} times, load {min(loads):.1f} to {max(loads):.1f}"


def main() -> None:
    """Print a row for each figure."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--hosts", type=int, default=4)
    parser.add_argument("--only", default="power,rank,stop,start,torch")
    asked = parser.parse_args()
    if not labs.has_namespaces():
        sys.exit("no lab here: it needs root, unshare (namespaces) and /dev/net/tun (TAP)")
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # what is installed is compiled
    compileall.compile_dir(SOURCES, quiet=2)
    subjects = rows(asked.hosts)
    for subject in asked.only.split(","):
        trials = subjects[subject]
        found: dict[str, list[Struck]] = {name: [] for name in trials}
        loads: dict[str, list[float]] = {name: [] for name in trials}
        for _ in range(asked.times):
            for name, trial in trials.items():
                loads[name].append(os.getloadavg()[0])
                found[name].append(trial())
                print(f"  {name}: {found[name][-1]}, load {loads[name][-1]:.1f}", file=sys.stderr)
        for name in trials:
            print(told(name, found[name], loads[name]), flush=True)


if __name__ == "__main__":
    main()
