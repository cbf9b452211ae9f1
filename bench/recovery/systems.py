"""How each kind of system is started, and why like that.

Each is configured as well as its own documentation allows: monitors and heartbeats at intervals far
below the defaults, asynchronous saves, a save interval near the optimum for one fault each 20 s.
What is Holdfast's is `Holdfast` alone; it gets no line that a user would not write.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent
TRAINERS = HERE / "trainers"
BIN = Path(sys.executable).parent

# A rank that does nothing for so long is hung, for every system that can be told so.
HANG_S = 5.0
# As often as pays: the root of 2 × what a save blocks × 20 s (Young), over a step of about 0.06 s.
SAVE_EVERY_ASYNC = 20  # 0.03 to 0.05 s blocked: 1.2 s
SAVE_EVERY_SYNC = 40  # 0.15 s and more: 2.5 s


@dataclass
class Place:
    """Where one system runs: its folders and its ports."""

    folder: Path
    data: Path
    ranks: int
    options: dict[str, str] = field(default_factory=dict)
    # A folder: how the processes stood when it never came back is kept there.
    evidence: Path | None = None

    @property
    def log(self) -> Path:
        return self.folder / "output.log"

    @property
    def stamps(self) -> Path:
        return self.folder / "stamps"

    @property
    def out(self) -> Path:
        return self.folder / "out"

    @property
    def memory(self) -> Path:
        """For snapshots in memory: its own, so that it can be cleared away with the rest."""
        return Path("/dev/shm") / f"{self.folder.parent.name}-{self.folder.name}"

    def script(self, name: str, *more: str) -> list[str]:
        return [
            str(TRAINERS / name), "--out", str(self.out), "--stamps", str(self.stamps),
            "--data", str(self.data), *more,
        ]  # fmt: skip


@dataclass(frozen=True)
class Start:
    """What is started: commands side by side, each with what it adds to the environment."""

    commands: list[tuple[list[str], dict[str, str]]]


@dataclass(frozen=True)
class System:
    """One competitor. `start` is called anew whenever it has to be started from outside."""

    name: str
    title: str
    framework: str
    start: Callable[[Place], Start]
    ranks: tuple[int, ...] = (1, 2)
    # A flag and a word that this Holdfast must know, else the row is skipped.
    needs: tuple[str, str] | None = None


def free_ports(count: int) -> list[int]:
    """Ports that nobody listens on, next to one another's sockets: all held until all are found."""
    held = [socket.socket() for _ in range(count)]
    try:
        for one in held:
            one.bind(("127.0.0.1", 0))
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()


def bare(script: str, every: int) -> Callable[[Place], Start]:
    """`while ! python train.py; do sleep 1; done`, for several ranks: all are started together,
    and the first that ends takes the others with it (they would wait for it in a collective)."""

    def start(place: Place) -> Start:
        command = ["bash", str(HERE / "bare_loop.sh"), str(place.ranks), sys.executable]
        return Start([(command + place.script(script, "--save-every", str(every)), {})])

    return start


def torchrun(**extra: str) -> Callable[[Place], Start]:
    """As documented; `extra` is the environment of its work-around.

    Its agent keeps one store for all restarts. With gloo the new ranks may read what the dead ones
    wrote there, and never find each other; `TORCH_DISABLE_SHARE_RDZV_TCP_STORE` gives each restart
    a store of its own. Both are in the race.
    """

    def start(place: Place) -> Start:
        command = [
            str(BIN / "torchrun"), "--standalone", "--nproc-per-node", str(place.ranks),
            "--max-restarts", "100000",
            # Looks at its workers ten times a second; the default since 2.3 too.
            "--monitor-interval", "0.1",
            # For those that are left when it leaves itself, 30 s by default. At a restart it waits
            # for 30 s whatever is said here: a rank that is frozen costs that much.
            "--shutdown-timeout", "1",
            *place.script("torch_dcp.py", "--save-every", str(SAVE_EVERY_ASYNC)),
        ]  # fmt: skip
        return Start([(command, extra)])

    return start


def ft_launcher(place: Place) -> Start:
    command = [
        str(BIN / "ft_launcher"), "--standalone", "--nproc-per-node", str(place.ranks),
        "--max-restarts", "100000",
        "--monitor-interval", "0.1",  # 0.3 by default
        "--workers-stop-timeout", "1",  # 15 by default; a frozen rank takes all of it
        "--ft-workload-check-interval", "0.25",  # 5 by default
        "--ft-rank-heartbeat-timeout", str(HANG_S),  # 45 minutes by default
        "--ft-initial-rank-heartbeat-timeout", "30",  # an hour by default
        "--ft-enable-nic-monitor", "false",  # there is none
        *place.script("torch_dcp.py", "--save-every", str(SAVE_EVERY_ASYNC)),
    ]  # fmt: skip
    # It starts its ranks' store as torchrun does, and would reuse it as torchrun does.
    return Start([(command, {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"})])


def inprocess(option: str) -> Callable[[Place], Start]:
    """Ranks and warm spares as plain processes, as Slurm with --kill-on-bad-exit=0 starts them.

    The launcher keeps the store, and starts the whole job anew when the spares are used up: a dead
    rank is not replaced within a job. With a few spares that happens; with one for each fault,
    which nobody would pay for, it does not: its best.
    """

    def start(place: Place) -> Start:
        command = [
            sys.executable, str(HERE / "inprocess_job.py"),
            str(place.ranks), place.options[option], sys.executable,
            *place.script("torch_inprocess.py", "--save-every", str(SAVE_EVERY_ASYNC)),
        ]  # fmt: skip
        return Start([(command, {})])

    return start


def torchft(place: Place) -> Start:
    """A lighthouse, and each replica group under a torchrun of its own, as its guide shows.

    A rank is a replica group. One rank is one group with no other to heal from: torchrun's restart
    and the file then, which is written as often as pays; with two it is the last resort.
    """
    every = 100 if place.ranks > 1 else SAVE_EVERY_SYNC
    (port,) = free_ports(1)
    lighthouse = [
        str(BIN / "torchft_lighthouse"), "--bind", f"127.0.0.1:{port}", "--min_replicas", "1",
        "--heartbeat_timeout_ms", "500",  # 5000 by default
        "--quorum_tick_ms", "50",  # 100 by default
        "--join_timeout_ms", "1000",  # 60000 by default
    ]  # fmt: skip
    commands: list[tuple[list[str], dict[str, str]]] = [(lighthouse, {})]
    for replica in range(place.ranks):
        command = [
            str(BIN / "torchrun"), "--standalone", "--nproc-per-node", "1",
            "--max-restarts", "100000", "--monitor-interval", "0.1", "--shutdown-timeout", "1",
            *place.script("torch_ft.py", "--save-every", str(every)),
        ]  # fmt: skip
        environment = {
            "TORCHFT_LIGHTHOUSE": f"http://127.0.0.1:{port}",
            "REPLICA_GROUP_ID": str(replica),
            "NUM_REPLICA_GROUPS": str(place.ranks),
        }
        commands.append((command, environment))
    return Start(commands)


def holdfast(script: str, *flags: str, more: tuple[str, ...] = ()) -> Callable[[Place], Start]:
    """The command of the README. Everything is at its default but the deadline for a hang."""

    def start(place: Place) -> Start:
        command = [
            sys.executable, "-m", "holdfast.cli.main", "run", "--name", "race",
            "--store", str(place.folder / "store"), "--scratch", str(place.folder / "scratch"),
            "--ranks", str(place.ranks), "--chips", str(place.ranks), "--hang", str(HANG_S),
            "--memory-dir", str(place.memory), "--grace", "30",
            "--status", "off", "--log-level", "info",
            *flags, *place.options.get("holdfast", "").split(), "--",
            sys.executable, *place.script(script, *more),
        ]  # fmt: skip
        return Start([(command, {})])

    return start


def environment(extra: dict[str, str]) -> dict[str, str]:
    """This process's, less what would leak in, and what all systems get alike."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith("HOLDFAST_")}
    return {
        **kept,
        # One thread each: two ranks share the cores, and none of the libraries is to take them all.
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
        "JAX_PLATFORMS": "cpu",
        "PYTHONUNBUFFERED": "1",
        # A monitor that looks twenty times a second would write as many warnings.
        "TORCH_CPP_LOG_LEVEL": "ERROR",
        **extra,
    }


def launch(system: System, place: Place) -> list[subprocess.Popen[bytes]]:
    """Start it; what it says goes to a file."""
    place.stamps.mkdir(parents=True, exist_ok=True)
    place.out.mkdir(parents=True, exist_ok=True)
    with place.log.open("ab") as file:
        return [
            subprocess.Popen(
                command,
                env=environment(extra),
                stdin=subprocess.DEVNULL,
                stdout=file,
                stderr=subprocess.STDOUT,
                cwd=place.folder,
                start_new_session=True,
            )
            for command, extra in system.start(place).commands
        ]
