"""Hosts on one machine: each has namespaces of its own, and a cable in user space joins them.

    with Lab(4, folder) as lab:
        process = lab.hosts[0].start(["python", "train.py"], env={...})  # a `processes.Process`
        lab.hosts[1].power_off(); lab.hosts[1].power_on()
        lab.hosts[2].freeze(); lab.hosts[2].thaw()
        lab.cut(0); lab.cut_one_way(0); lab.cut_other_way(0); lab.mend(0); lab.delay(20)

A host has its own network without a way out, /dev/shm, /run, processes, name, machine-id, boot_id
and monotonic clock. Its memory and its `folder/own`, where TMPDIR points, die with it. All other
folders are the machine's: `lab.shared` is meant for what the hosts share. A cut network cuts
nobody off from them. The wall clock is the machine's.
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from lab_cable import Cable, address
from processes import Process

_INIT = Path(__file__).with_name("lab_init.py")
_BOOT_S = 60.0
_ALL = -1


class Lab:
    """So many hosts, running; all ends with the block."""

    def __init__(self, hosts: int, folder: Path) -> None:
        skip_without_namespaces()
        self.shared = folder / "shared"
        self.own = folder / "own"
        for path in (self.shared, self.own):
            path.mkdir(parents=True, exist_ok=True)
        self._cable = Cable()
        self.hosts = [Host(n, hosts, self.own, self._cable) for n in range(hosts)]

    def __enter__(self) -> Lab:
        try:
            for host in self.hosts:
                host.power_on()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for host in self.hosts:
            host.power_off()
        self._cable.close()
        for host in self.hosts:
            host.close()

    def cut(self, index: int) -> None:
        """It hears nobody, and nobody hears it."""
        self._cable.block(index, hears=False, speaks=False)

    def cut_one_way(self, index: int) -> None:
        """It hears the others, and nobody hears it."""
        self._cable.block(index, hears=True, speaks=False)

    def cut_other_way(self, index: int) -> None:
        """It hears nobody, and the others hear it."""
        self._cable.block(index, hears=False, speaks=True)

    def mend(self, index: int) -> None:
        self._cable.block(index, hears=True, speaks=True)

    def limit(self, index: int, bytes_per_s: float) -> None:
        """It sends no faster than that."""
        self._cable.limit(index, bytes_per_s)

    def delay(self, delay_ms: float) -> None:
        """Every frame takes that long, each way."""
        self._cable.delay(delay_ms / 1e3)


class Host:
    """One host; its lives differ in all but index, address and name."""

    def __init__(self, index: int, hosts: int, own: Path, cable: Cable) -> None:
        self.index, self.address = index, address(index)
        self._hosts, self._own, self._cable = hosts, own, cable
        self._control: socket.socket | None = None  # none: it is off
        self._outer: subprocess.Popen[bytes] | None = None
        self._started: list[LabProcess] = []

    def power_on(self) -> None:
        """A new life, once it has ended or before its first."""
        assert self._control is None, f"host {self.index} is on"
        control, inner = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        control.settimeout(_BOOT_S)
        words = (inner.fileno(), self.index, self._hosts, self._own)
        clock = ["--time", f"--monotonic={5000 * (self.index + 1)}"]
        self._outer = subprocess.Popen(
            [*unshare(), *clock, sys.executable, str(_INIT), *map(str, words)],
            pass_fds=[inner.fileno()],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,  # unshare complains of how its child was killed
        )
        inner.close()
        self._control = control
        packet, ends, _, _ = socket.recv_fds(control, 64, 1)
        assert packet, f"host {self.index} did not start: {self._outer.stderr.read()}"
        self._cable.attach(self.index, ends[0])

    def power_off(self) -> None:
        """Cable first: dying sockets would say goodbye. Then all processes, and all memory."""
        if self._control is None:
            return
        end = None
        with contextlib.suppress(KeyError):  # it never came up
            end = self._cable.detach(self.index)
        for init in self._inits():
            os.kill(init, signal.SIGKILL)
        self._outer.wait()  # process 1 ends after all the others
        self._outer.stderr.close()
        self._control.close()
        self._control = None
        if end is not None:
            os.close(end)

    def freeze(self) -> None:
        """All its processes stand still; its kernel still answers."""
        self.kill(_ALL, signal.SIGSTOP)

    def thaw(self) -> None:
        self.kill(_ALL, signal.SIGCONT)

    def start(
        self, argv: Sequence[object], *, cwd: Path | None = None, env: Mapping[str, object] = {}
    ) -> LabProcess:
        """A process on this host, whose output and end can be waited for."""
        process = LabProcess(self, argv, cwd=cwd or self._own, env=env)
        self._started.append(process)
        return process

    def kill(self, pid: int, number: int) -> None:
        """A signal to one of its processes, by the id that it has there."""
        self.order({"pid": pid, "signal": number})
        assert self._control.recv(64), f"host {self.index} has died"

    def order(self, order: dict[str, object], descriptors: Sequence[int] = ()) -> None:
        """Tell process 1."""
        assert self._control is not None, f"host {self.index} is off"
        socket.send_fds(self._control, [json.dumps(order).encode()], descriptors)

    @property
    def root(self) -> Path:
        """Its file system, as long as it is on."""
        return Path(f"/proc/{self._inits()[0]}/root")

    @property
    def is_on(self) -> bool:
        """Whether it has power."""
        return self._control is not None

    @property
    def environment(self) -> dict[str, str]:
        return {**os.environ, "TMPDIR": str(self._own), "HOSTNAME": f"h{self.index}"}

    def _inits(self) -> list[int]:
        """Its process 1, as this machine knows it."""
        children = Path(f"/proc/{self._outer.pid}/task/{self._outer.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def close(self) -> None:
        for process in self._started:
            process.close()


class LabProcess(Process):
    """A process on a host."""

    def __init__(
        self, host: Host, argv: Sequence[object], *, cwd: Path, env: Mapping[str, object]
    ) -> None:
        self.argv = [str(word) for word in argv]
        self.index = host.index
        words = {name: str(value) for name, value in env.items()}
        order = {"argv": self.argv, "cwd": str(cwd), "env": {**host.environment, **words}}
        self._follow(_Remote(host, order))


class _Remote:
    """What `Process` uses of a Popen, for a process that process 1 of a host has started."""

    def __init__(self, host: Host, order: dict[str, object]) -> None:
        self._host = host
        self._code: int | None = None
        output, inner_output = os.pipe()
        status, inner_status = os.pipe()
        host.order(order, [inner_output, inner_status])
        os.close(inner_output)
        os.close(inner_status)
        self.stdout = open(output, "rb")  # noqa: SIM115, PTH123 (closed by Process.close)
        self._status = open(status, "rb", buffering=0)  # noqa: SIM115, PTH123
        self.pid = int(self._status.readline())

    def send_signal(self, number: int) -> None:
        if self._look(0) is None:
            self._host.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def wait(self, within_s: float | None = None) -> int:
        code = self._look(within_s)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), within_s)
        return code

    def poll(self) -> int | None:
        return self._look(0)

    def _look(self, within_s: float | None) -> int | None:
        """Its exit code, once it has one; a host that went off has killed it."""
        if self._code is None and select.select([self._status], [], [], within_s)[0]:
            self._code = int(self._status.readline() or -signal.SIGKILL)
            self._status.close()
        return self._code


def unshare() -> list[str]:
    """What makes a host's namespaces; they end with the process that is started so."""
    who = [] if os.geteuid() == 0 else ["--map-root-user"]
    own = ["--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc"]
    return ["unshare", *who, *own, "--fork", "--kill-child=KILL"]


@functools.cache
def has_namespaces() -> bool:
    """Whether hosts can be made here."""
    try:
        subprocess.run([*unshare(), "--time", "true"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return False
    return os.access("/dev/net/tun", os.R_OK | os.W_OK)


def skip_without_namespaces() -> None:
    """Skip the test where no host can be made."""
    if not has_namespaces():
        pytest.skip("no lab here: it needs root, unshare (namespaces) and /dev/net/tun (TAP)")
