"""Machines that are reached over SSH: hosts of a lab with a real sshd; host 0 is the laptop.

    with SshLab(3, folder) as ssh:
        ssh.holdfast("submit", "--engine", "ssh", "-o", f"hosts={ssh.names(1, 2, 3)}", ...)

Each life of a machine has a home, a disk and a host key of its own. Keys and configuration are the
test's; nothing listens outside the lab.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from lab import Host, Lab, LabProcess

_LIMIT_S = 60.0
_SSHD = """\
Port 22
HostKey {own}/host_key
AuthorizedKeysFile {folder}/user_key.pub
StrictModes no
UsePAM no
PidFile none
PermitRootLogin prohibit-password
PasswordAuthentication no
MaxStartups 200
PrintMotd no
SetEnv {environment}
"""
_CLIENT = """\
User root
IdentityFile {folder}/user_key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
LogLevel ERROR
"""


def skip_without_ssh() -> None:
    """Skip the test where OpenSSH is not installed."""
    for program in ("ssh", "ssh-keygen", "sshd"):
        if shutil.which(program, path="/usr/bin:/usr/sbin:/bin:/sbin") is None:
            pytest.skip(f"no {program} here")


class SshLab:
    """A laptop and so many machines; `is_on`: whether they are there from the beginning."""

    def __init__(self, machines: int, folder: Path, *, is_on: bool = True) -> None:
        skip_without_ssh()
        self.lab = Lab(machines + 1, folder)
        self.laptop = self.lab.hosts[0]
        self.folder = self.lab.shared / "ssh"
        self.store = self.lab.shared / "store"
        self.work = self.lab.shared / "work"
        self.environment: dict[str, str] = {}  # of all that runs on a machine
        self._is_on = is_on
        self._daemons: dict[int, LabProcess] = {}

    def __enter__(self) -> SshLab:
        for path in (self.folder, self.work):
            path.mkdir(parents=True)
        key = str(self.folder / "user_key")
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key], check=True)
        self.config.write_text(_CLIENT.format(folder=self.folder))
        self.lab.__enter__()
        if self._is_on:
            for host in self.machines:
                self.boot(host)
        else:
            for host in self.machines:
                host.power_off()
        return self

    def __exit__(self, *ignored: object) -> None:
        self.lab.__exit__(*ignored)

    @property
    def machines(self) -> list[Host]:
        return self.lab.hosts[1:]

    @property
    def config(self) -> Path:
        return self.folder / "config"

    def names(self, *indices: int) -> str:
        return ",".join(f"h{index}" for index in indices or range(1, len(self.lab.hosts)))

    def boot(self, host: Host) -> None:
        """Let it be reached, with a new host key; power it on first where it is off."""
        if not host.is_on:
            host.power_on()
        own = self.lab.own
        shown = {
            "HOME": str(own),
            "TMPDIR": str(own),
            "PATH": f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin",
            "HOLDFAST_SCRATCH": str(own / "scratch"),
            "HOLDFAST_NOTICE": "off",
            **self.environment,
        }
        words = " ".join(f'"{name}={value}"' for name, value in shown.items())
        config = self.folder / f"sshd-{host.index}"
        config.write_text(_SSHD.format(own=own, folder=self.folder, environment=words))
        make = f"mkdir -p /run/sshd && ssh-keygen -q -t ed25519 -N '' -f {own}/host_key"
        run = f"exec /usr/sbin/sshd -D -e -f {config}"
        self._daemons[host.index] = daemon = host.start(["sh", "-c", f"{make} && {run}"])
        daemon.saw("Server listening on")

    def holdfast(self, *words: object, env: dict[str, object] | None = None) -> LabProcess:
        """The command line tool on the laptop."""
        variables = {
            "HOLDFAST_STORE": self.store,
            "HOLDFAST_MIRROR": self.lab.own / "mirror",
            **(env or {}),
        }
        return self.laptop.start(
            [sys.executable, "-m", "holdfast.cli.main", *words], cwd=self.work, env=variables
        )

    def on(self, index: int, *words: str) -> str:
        """What a command prints on a machine, by another way than SSH."""
        return self.lab.hosts[index].start(words).wait(0)

    def submit(self, hosts: Sequence[int], *words: object, name: str = "lm") -> LabProcess:
        options = ["-o", f"hosts={self.names(*hosts)}", "-o", f"ssh-config={self.config}"]
        return self.holdfast(
            "submit", "--engine", "ssh", "--name", name, "--hosts", len(hosts), *options, *words
        )


class LabNodes:
    """Nodes of the emulator of Cloud TPU whose hosts are machines of the lab."""

    def __init__(self, ssh: SshLab, hosts: int) -> None:
        self._ssh, self._hosts = ssh, hosts
        self._of: dict[str, list[Host]] = {}

        self.booting_s: list[float] = []  # what each node's hosts took, until SSH listened

    def take(self, name: str) -> list[str]:
        busy = [host for hosts in self._of.values() for host in hosts]
        mine = [one for one in self._ssh.machines if one not in busy][: self._hosts]
        self._of[name] = mine
        began_s = time.monotonic()
        for host in mine:
            self._ssh.boot(host)
        self.booting_s.append(time.monotonic() - began_s)
        return [host.address for host in mine]

    def give_back(self, name: str) -> None:
        for host in self._of.pop(name, []):
            host.power_off()


def until(is_so: object, what: str) -> None:
    """Wait for something that a machine does."""
    end_s = time.monotonic() + _LIMIT_S
    while not is_so():
        assert time.monotonic() < end_s, what
        time.sleep(0.02)
