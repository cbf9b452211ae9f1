"""A Ray cluster on the hosts of a lab: host 0 is the head and no node that trains.

    with RayLab(3, folder) as ray:
        ray.start(["holdfast", "submit", "--engine", "ray", ...])   # on the head
        ray.kill_raylet(1); ray.power_off(2); ray.power_on(2)

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
_LIMIT_S = 120.0
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
_QUIET = {"RAY_USAGE_STATS_ENABLED": 0, "RAY_DISABLE_DOCKER_CPU_WARNING": 1}


class RayLab:
    """So many nodes that train, and a head, all alive when the block begins."""

    def __init__(self, nodes: int, folder: Path) -> None:
        skip_without_ray()
        self.nodes = nodes
        self.lab = Lab(nodes + 1, folder)
        self.head = self.lab.hosts[0]
        self.address = f"{self.head.address}:{PORT}"
        self._stack = ExitStack()
        self._daemons: dict[int, LabProcess] = {}

    def __enter__(self) -> RayLab:
        with self._stack as stack:
            stack.enter_context(self.lab)
            for host in self.lab.hosts:
                self.start_node(host.index)
            self.wait_for(self.nodes + 1)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def env(self) -> dict[str, object]:
        python_path = f"{ROOT / 'src'}"
        return {
            **_SHORT,
            **_QUIET,
            "PYTHONPATH": python_path,
            "HOLDFAST_SCRATCH": self.lab.own / "scratch",
            "RAY_ADDRESS": self.address,
        }

    def start(
        self, argv: Sequence[object], *, on: Host | None = None, env: Mapping[str, object] = {}
    ) -> LabProcess:
        """A command on a host, by itself the head."""
        host = on or self.head
        return host.start(argv, cwd=self.lab.shared, env={**self.env, **env})

    def start_node(self, index: int) -> None:
        """Ray's daemons of a host."""
        host = self.lab.hosts[index]
        place = (
            ["--head", f"--port={PORT}", "--num-cpus=0", "--include-dashboard=false"]
            if host is self.head
            else [f"--address={self.address}", "--num-cpus=1"]
        )
        words = [*place, f"--node-ip-address={host.address}", "--temp-dir=/run/ray"]
        words += [f"--object-store-memory={_STORE_BYTES}", "--disable-usage-stats", "--block"]
        start = [sys.executable, "-m", "ray.scripts.scripts", "start", *words]
        env = {name: value for name, value in self.env.items() if name != "RAY_ADDRESS"}
        self._daemons[index] = host.start(start, cwd=self.lab.shared, env=env)

    def raylet(self, index: int) -> int:
        """The process of a host's raylet, by the id that it has there."""
        return int(self._pids("raylet/raylet", index).split()[0])

    def _pids(self, pattern: str, index: int) -> str:
        host = self.lab.hosts[index]
        return host.start(["pgrep", "-f", pattern]).wait(0)

    def kill_raylet(self, index: int, number: int = signal.SIGKILL) -> None:
        self.lab.hosts[index].kill(self.raylet(index), number)

    def power_off(self, index: int) -> None:
        self.lab.hosts[index].power_off()

    def power_on(self, index: int) -> None:
        self.lab.hosts[index].power_on()
        self.start_node(index)

    def alive(self) -> dict[str, str]:
        """Of nodes that live: by address, the id."""
        out = self.start([sys.executable, HERE / "ray_nodes.py"]).wait()
        line = next((one for one in out.splitlines() if one.startswith("{")), "{}")
        return json.loads(line)

    def wait_for(self, count: int) -> None:
        """Until so many nodes live, the head among them."""
        end_s = time.monotonic() + _LIMIT_S
        while len(self.alive()) != count:
            said = "\n".join(one.text[-1500:] for one in self._daemons.values())
            assert time.monotonic() < end_s, f"not {count} nodes\n{said}"
            time.sleep(_LOOK_S)


def skip_without_ray() -> None:
    """Skip the test where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        pytest.skip("no Ray here: `make ray` has an environment with it")
