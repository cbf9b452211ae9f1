"""How each system is started on hosts: three that train and a spare, on each the same command.

As in `systems.py` each is configured as well as its own documentation allows, and as there a
collective fails after 5 s. What the ranks of PyTorch meet at, and torchft's lighthouse, is on host
0. What is Holdfast's has its defaults but for the deadline of a hang; how long a host is silent
before it is lost is 10 s by default, and in the other rows as long as a collective of the others.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from systems import BIN, HANG_S, Place

HOSTS = 3
SPARES = 1
ALL = HOSTS + SPARES
PORT = 29511
# All hosts share the machine's cores: a small model, and most of a step is a pause, as beside an
# accelerator that does the work.
TRAINED = ("--layers", "2", "--width", "128", "--heads", "4", "--pause", "0.1")
# The root of 2 × 0.04 s that a save blocks × 40 s from cut to cut, over a step of 0.12 s.
SAVE_EVERY = 15
Command = tuple[list[str], dict[str, str]]
# The store of dead ranks is not used again (`systems.torchrun`).
OWN_STORE = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}


@dataclass(frozen=True)
class Seat:
    """One host as its commands know it. `own`: a folder that is lost with the host."""

    place: Place
    index: int
    addresses: list[str]
    own: Path

    @property
    def address(self) -> str:
        return self.addresses[self.index]

    @property
    def first(self) -> str:
        """Where all meet."""
        return self.addresses[0]

    def script(self, name: str, *more: str) -> list[str]:
        return self.place.script(name, *TRAINED, *more)


@dataclass(frozen=True)
class HostsSystem:
    """One competitor. `start` says what a host starts, also after it was off."""

    name: str
    title: str
    start: Callable[[Seat], list[Command]]


def elastic(
    nodes: str, *flags: str, launcher: str = "torchrun", timings: str = ""
) -> Callable[[Seat], list[Command]]:
    """torchrun, or what is made of it, with its rendezvous on host 0.

    Of more nodes than `nodes` says those that came last wait: torch calls that redundancy.
    """

    def start(seat: Seat) -> list[Command]:
        is_first = "1" if seat.index == 0 else "0"
        command = [
            str(BIN / launcher), "--nnodes", nodes, "--nproc-per-node", "1",
            "--rdzv-backend", "c10d", "--rdzv-id", "race",
            "--rdzv-endpoint", f"{seat.first}:{PORT}", "--local-addr", seat.address,
            # With more nodes than the least, 30 s by default are waited for one more.
            "--rdzv-conf", f"is_host={is_first},last_call_timeout=1{timings}",
            "--max-restarts", "100000", "--monitor-interval", "0.1", *flags,
            *seat.script("torch_dcp.py", "--save-every", str(SAVE_EVERY)),
        ]  # fmt: skip
        return [(command, OWN_STORE)]

    return start


def torchrun(nodes: str) -> Callable[[Seat], list[Command]]:
    # A node is lost after three beats; a beat is 5 s by default.
    beats = ",keep_alive_interval=1,keep_alive_max_attempt=3"
    return elastic(nodes, "--shutdown-timeout", "1", timings=beats)


FT_LAUNCHER = elastic(
    str(HOSTS),
    "--workers-stop-timeout", "1",  # 15 by default
    "--ft-workload-check-interval", "0.25",  # 5 by default
    "--ft-rank-heartbeat-timeout", str(HANG_S),  # 45 minutes by default
    "--ft-initial-rank-heartbeat-timeout", "30",  # an hour by default
    "--ft-enable-nic-monitor", "false",  # there is none
    launcher="ft_launcher",
)  # fmt: skip


def torchft(seat: Seat) -> list[Command]:
    """A replica group on each host, of which the spare's counts for nothing until it is needed."""
    lighthouse = [
        str(BIN / "torchft_lighthouse"), "--bind", f"0.0.0.0:{PORT}", "--min_replicas", str(HOSTS),
        "--heartbeat_timeout_ms", "500",  # 5000 by default
        "--quorum_tick_ms", "50",  # 100 by default
        "--join_timeout_ms", "1000",  # 60000 by default
    ]  # fmt: skip
    group = [
        str(BIN / "torchrun"), "--nnodes", "1", "--nproc-per-node", "1",
        "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{seat.address}:{PORT + 1}",
        "--local-addr", seat.address,
        "--max-restarts", "100000", "--monitor-interval", "0.1", "--shutdown-timeout", "1",
        *seat.script("torch_ft.py", "--save-every", "100"),
    ]  # fmt: skip
    environment = {
        "TORCHFT_LIGHTHOUSE": f"http://{seat.first}:{PORT}",
        "REPLICA_GROUP_ID": str(seat.index),
        "NUM_REPLICA_GROUPS": str(ALL),
        "RACE_SPARES": str(SPARES),
    }
    return [*([(lighthouse, {})] if seat.index == 0 else []), (group, environment)]


def holdfast(*flags: str) -> Callable[[Seat], list[Command]]:
    """The command of the how-to page."""

    def start(seat: Seat) -> list[Command]:
        command = [
            sys.executable, "-m", "holdfast.cli.main", "run", "--name", "race",
            "--store", str(seat.place.folder / "store"),
            "--scratch", str(seat.own / f"scratch-{seat.index}"),
            "--hosts", str(HOSTS), "--spares", str(SPARES), "--host-index", str(seat.index),
            "--hang", str(HANG_S), *flags, "--",
            sys.executable, *seat.script("torch_holdfast.py"),
        ]  # fmt: skip
        return [(command, {})]

    return start


SYSTEMS = [
    HostsSystem("torchrun", "torchrun, 3 nodes and one redundant", torchrun(str(HOSTS))),
    HostsSystem("torchrun-elastic", "torchrun, 3 to 4 nodes", torchrun(f"{HOSTS}:{ALL}")),
    HostsSystem("ft_launcher", "NVIDIA ft_launcher, 3 nodes and a spare", FT_LAUNCHER),
    HostsSystem("torchft", "torchft, 3 replica groups and a spare", torchft),
    HostsSystem("holdfast", "Holdfast, as it comes (lost after 10 s)", holdfast()),
    HostsSystem("holdfast-5", "Holdfast, `--host-lost 5`", holdfast("--host-lost", "5")),
    HostsSystem("holdfast-2", "Holdfast, `--host-lost 2`", holdfast("--host-lost", "2")),
]
NAMES = {system.name: system for system in SYSTEMS}
