"""`holdfast submit --engine ray`: from the command to all ranks training, and a lost host.

    .venv-ray/bin/python bench/submit_ray.py --times 5 [--only submit,off]

A cluster of three nodes and a head, which are hosts of the lab (`tests/lab`) and share this
machine's cores; it is up before anything is measured, and Holdfast is compiled, as `pip` does it.
The trainer is numpy with steps of 20 ms, so what is measured is Ray and Holdfast. *By hand*: the
same run on the same hosts, started by `holdfast run` on each at once, without Ray. The numbers are
seconds.
"""

from __future__ import annotations

import argparse
import compileall
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from several_hosts import TRAINER, Progress, until

from holdfast.journal.lease import view
from holdfast.journal.store import RunStore

TESTS = Path(__file__).parents[1] / "tests"
sys.path[:0] = [str(TESTS / name) for name in ("", "e2e", "lab", "engines")]
from ray_lab import RayLab  # noqa: E402

FAR = 100_000
HOSTS, SPARES = 2, 1
LOST_S = 2.0
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]


class Trial:
    """One run of two hosts and a spare on the cluster."""

    def __init__(self, ray: RayLab, number: int) -> None:
        self.ray, self.name = ray, f"bench-{number}-{time.time_ns()}"
        self.store = ray.lab.shared / "store"
        self.progress = Progress(ray.lab.shared / f"progress-{self.name}", HOSTS)
        self.trainer = ray.lab.shared / "trainer.py"
        self.trainer.write_text(TRAINER)
        self.variables = {"PROGRESS": str(self.progress.folder), "HOLDFAST_NOTICE": "off"}
        self._words = ["--name", self.name, "--store", self.store, "--hosts", HOSTS]
        self._words += ["--spares", SPARES, "--host-lost", LOST_S, "--save-every", 50]
        self._command = ["--", sys.executable, self.trainer, FAR]

    def submit(self) -> float:
        """When it was begun."""
        began_s = time.time()
        environment = "runtime_env=" + json.dumps({"env_vars": self.variables})
        words = ["submit", "--engine", "ray", *self._words, "-o", environment]
        self.ray.start([*HOLDFAST, *words, *self._command]).wait(0)
        print(f"    submit itself {time.time() - began_s:.2f} s", flush=True)
        return began_s

    def by_hand(self) -> float:
        began_s = time.time()
        for index, host in enumerate(self.ray.lab.hosts[1:]):
            words = ["run", *self._words, "--host-index", index]
            self.ray.start([*HOLDFAST, *words, *self._command], on=host, env=self.variables)
        return began_s

    def trains(self, began_s: float) -> float:
        """Seconds until all ranks have done a step."""
        return self.progress.next_step(began_s, -1)

    def end(self) -> None:
        """Stop it, and wait until all nodes are free."""
        self.ray.start([*HOLDFAST, "stop", self.name, "--store", self.store]).wait(0)
        until(lambda: self.ray.free_cpus() == len(self.living), "the nodes are free")

    @property
    def living(self) -> list[int]:
        return [one.index for one in self.ray.lab.hosts[1:] if one.is_on]

    def off(self) -> float:
        """Seconds from the loss of a host that trains until all ranks have done a new step.

        Not of the controller's: its loss is seen after 30 s, with Ray or without.
        """
        time.sleep(3.0)  # steps are in memory on two hosts
        words = ["hosts", self.name, "--store", self.store, "--json"]
        rows = json.loads(self.ray.start([*HOLDFAST, *words]).wait(0))["hosts"]
        holder = view(RunStore.at(str(self.store)).get(self.name)).holder
        index = next(
            one.index
            for one in self.ray.lab.hosts
            for row in rows
            if row["address"] == one.address
            and row["trains_as"] is not None
            and holder is not None
            and holder.host != f"h{one.index}"
        )
        newest = max(step for rank in range(HOSTS) for step, _, _ in self.progress.steps(rank))
        struck_s = time.time()
        self.ray.power_off(index)
        return self.progress.next_step(struck_s, newest + 1)


@contextlib.contextmanager
def cluster() -> Iterator[RayLab]:
    with tempfile.TemporaryDirectory() as folder, RayLab(3, Path(folder)) as ray:
        yield ray


def show(what: str, took_s: list[float]) -> None:
    spread = f"{min(took_s):.2f} … {max(took_s):.2f}"
    print(f"{what}: {statistics.median(took_s):.2f} ({spread}), {len(took_s)} runs", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--only", default="submit,off")
    asked = parser.parse_args()
    only = asked.only.split(",")
    compileall.compile_dir(TESTS.parent / "src", quiet=2)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    if "submit" in only:
        took: dict[str, list[float]] = {"submit": [], "by hand": []}
        with cluster() as ray:
            for number in range(asked.times):
                trial = Trial(ray, number)
                took["submit"].append(trial.trains(trial.submit()))
                trial.end()
                trial = Trial(ray, number)
                took["by hand"].append(trial.trains(trial.by_hand()))
                trial.end()
        for what, seconds in took.items():
            show(f"{what} → all ranks training", seconds)
    if "off" in only:
        off = []
        for number in range(asked.times):
            with cluster() as ray:
                trial = Trial(ray, number)
                trial.trains(trial.submit())
                off.append(trial.off())
        show(f"host off → next new step (of it {LOST_S:g} s of silence)", off)
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)


if __name__ == "__main__":
    main()
