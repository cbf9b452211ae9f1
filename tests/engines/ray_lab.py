"""A Ray cluster on the hosts of a lab: host 0 is the head and no node that trains.

    with RayLab(3, folder) as ray:
        ray.start(["holdfast", "submit", "--engine", "ray", ...])   # on the head
        ray.kill_raylet(1); ray.power_off(2); ray.mend()

Ray must be installed in this Python. Nothing reaches outside: a host has no way out.
"""

from __future__ import annotations

import importlib.util
import json
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from lab import Host, Lab, LabProcess

PORT = 6379
JOBS_PORT = 8265
RAYLET = "[^ ]*/raylet/raylet "
_LIMIT_S = 300.0
# Said by a node that is up. Ray waits for its own processes for a quarter of a minute each, and not
# for longer where others want the cores: one that was never up is started again.
_UP = "Ray runtime started"
_LOOK_S = 0.2
_STORE_BYTES = 80 << 20
HERE = Path(__file__).parent
ROOT = HERE.parents[1]
# Ray's shortest: a raylet that is killed is seen after 1 s, a host without power after 4 s.
_SHORT = {
    "RAY_health_check_initial_delay_ms": 0,
    "RAY_health_check_period_ms": 500,
    "RAY_health_check_timeout_ms": 1000,
    "RAY_health_check_failure_threshold": 3,
}
# Ray gives its workers niceness 15, and this machine has other work.
_QUIET = {
    "RAY_worker_niceness": 0,
    "RAY_USAGE_STATS_ENABLED": 0,
    "RAY_DISABLE_DOCKER_CPU_WARNING": 1,
}


class RayLab:
    """So many nodes that train, and a head, all alive when the block begins.

    `takes_jobs`: the head has Ray's server for jobs.
    """

    def __init__(self, nodes: int, folder: Path, *, takes_jobs: bool = False) -> None:
        skip_without_ray()
        self.nodes = nodes
        self._takes_jobs = takes_jobs
        self.lab = Lab(nodes + 1, folder)
        self.head = self.lab.hosts[0]
        self.address = f"{self.head.address}:{PORT}"
        self._stack = ExitStack()
        self._daemons: dict[int, LabProcess] = {}

    def __enter__(self) -> RayLab:
        with self._stack as stack:
            stack.enter_context(self.lab)
            self.start_node(self.head.index)
            self.wait_for(1)  # a node gives up on a head that takes long
            for host in self.lab.hosts[1:]:
                self.start_node(host.index)
            self.wait_for(self.nodes + 1)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def scratch(self) -> Path:
        """Where a host's agents have their folders."""
        return self.lab.own / "scratch"

    @property
    def env(self) -> dict[str, object]:
        python_path = f"{ROOT / 'src'}"
        return {
            **_SHORT,
            **_QUIET,
            "PYTHONPATH": python_path,
            "HOLDFAST_SCRATCH": self.scratch,
            "RAY_ADDRESS": self.address,
        }

    def start(
        self, argv: Sequence[object], *, on: Host | None = None, env: Mapping[str, object] = {}
    ) -> LabProcess:
        """A command on a host, by itself the head."""
        host = on or self.head
        return host.start(argv, cwd=self.lab.shared, env={**self.env, **env})

    def job(self, verb: str, *words: object) -> LabProcess:
        """`ray job` on the head."""
        ray = [sys.executable, "-m", "ray.scripts.scripts"]
        return self.start([*ray, "job", verb, "--address", f"http://127.0.0.1:{JOBS_PORT}", *words])

    def start_node(self, index: int) -> None:
        """Ray's daemons of a host."""
        host = self.lab.hosts[index]
        place = (
            ["--head", f"--port={PORT}", "--num-cpus=0", f"--include-dashboard={self._takes_jobs}"]
            if host is self.head
            else [f"--address={self.address}", "--num-cpus=1"]
        )
        words = [*place, f"--node-ip-address={host.address}", "--temp-dir=/run/ray"]
        words += [f"--object-store-memory={_STORE_BYTES}", "--disable-usage-stats", "--block"]
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", *words]
        env = {name: value for name, value in self.env.items() if name != "RAY_ADDRESS"}
        self._daemons[index] = host.start(start, cwd=self.lab.shared, env=env)

    def pids(self, pattern: str, index: int) -> list[int]:
        """Processes of a host whose command has that, by the ids that they have there."""
        found = self.lab.hosts[index].start(["pgrep", "-f", f"^{pattern}"]).wait()
        return [int(pid) for pid in found.split()]

    def find(self, pattern: str) -> tuple[int, int]:
        """The one host with such a process, and its id."""
        found = [
            (one.index, pid) for one in self.lab.hosts for pid in self.pids(pattern, one.index)
        ]
        (only,) = found
        return only

    def kill_raylet(self, index: int, number: int = signal.SIGKILL) -> None:
        (pid,) = self.pids(RAYLET, index)
        self.lab.hosts[index].kill(pid, number)

    def drain(self, index: int, deadline_s: int) -> None:
        """Tell Ray that the node will be taken."""
        node = self.alive()[self.lab.hosts[index].address]
        words = ["--address", self.address, "--node-id", node]
        words += ["--reason", "DRAIN_NODE_REASON_PREEMPTION", "--reason-message", "maintenance"]
        words += ["--deadline-remaining-seconds", deadline_s]
        self.start([sys.executable, "-m", "ray.scripts.scripts", "drain-node", *words]).wait(0)

    def free_cpus(self) -> int:
        """Of all nodes that live, as Ray counts them."""
        return int(self._asked()["free_cpus"])

    def power_off(self, index: int) -> None:
        self.lab.hosts[index].power_off()

    def alive(self) -> dict[str, str]:
        """Of nodes that live and are not drained: by address, the id."""
        return self._asked()["nodes"]

    def drained(self) -> list[str]:
        """Ids of nodes that live and are drained."""
        return self._asked()["drained"]

    def left(self) -> dict[str, str]:
        """Of nodes that are gone: by id, why."""
        return self._asked()["left"]

    def takes_tasks(self) -> dict[str, bool]:
        """Of all nodes that live, by id: whether a task that wants none but that one begins."""
        return self._json("ray_takes.py")

    def _asked(self) -> dict:
        unknown = {"nodes": {}, "drained": [], "left": {}, "free_cpus": 0}
        return unknown | self._json("ray_nodes.py")

    def _json(self, script: str) -> dict:
        out = self.start([sys.executable, HERE / script]).wait()
        line = next((one for one in out.splitlines() if one.startswith("{")), "")
        return json.loads(line) if line else {}

    def wait_for(self, count: int) -> None:
        """Until so many nodes live, the head among them."""
        end_s = time.monotonic() + _LIMIT_S
        while len(self.alive()) != count:
            said = "\n".join(one.text[-1500:] for one in self._daemons.values())
            assert time.monotonic() < end_s, f"not {count} nodes\n{said}"
            for index, daemon in list(self._daemons.items()):
                if daemon.code() is not None and _UP not in daemon.text:
                    self.start_node(index)
            time.sleep(_LOOK_S)

    def mend(self) -> None:
        """Have a node on every host that has power, whatever befell it; none is drained."""
        alive, on = self.alive(), [one for one in self.lab.hosts if one.is_on]
        for host in on:
            if host.address not in alive:
                for pid in self.pids(RAYLET, host.index):  # one that was stopped, or drained
                    host.kill(pid, signal.SIGKILL)
                self.start_node(host.index)
        self.wait_for(len(on))


def skip_without_ray() -> None:
    """Skip the test where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no Ray here: `make ray` has an environment with it")
