"""A Slurm cluster on the hosts of a lab: the last host is the head, all others are nodes.

    with SlurmLab(4, folder) as slurm:
        step = slurm.start(["srun", "-N4", "hostname"])  # on the head
        slurm.power_off(1)
        slurm.power_on(1)

Its daemons, key, state and sockets are the lab's own. Slurm itself must be installed.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from lab import Lab, LabProcess

_PROGRAMS = ("slurmctld", "slurmd", "srun", "sbatch", "scancel", "scontrol", "sinfo", "munged")
_LIMIT_S = 60.0
_LOOK_S = 0.1
_CONFIG = """\
ClusterName=lab
SlurmctldHost=h{head}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=cred_expire=5
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={own}/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=bf_interval=1,sched_interval=2,sched_min_interval=0,batch_sched_delay=0
ReturnToService=2
SlurmctldTimeout=10
SlurmdTimeout=10
InactiveLimit=0
KillWait=30
MinJobAge=300
JobRequeue=1
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
NodeName=h[0-{last}] CPUs=2 RealMemory=1000 State=UNKNOWN
PartitionName=low Nodes=h[0-{last}] Default=YES MaxTime=60 State=UP PriorityTier=1 \
GraceTime=30 PreemptMode=REQUEUE
PartitionName=high Nodes=h[0-{last}] MaxTime=60 State=UP PriorityTier=10 PreemptMode=OFF
"""


class SlurmLab:
    """So many nodes, all idle when the block begins."""

    def __init__(self, nodes: int, folder: Path) -> None:
        skip_without_slurm()
        self.nodes = nodes
        self.lab = Lab(nodes + 1, folder)
        self.head = self.lab.hosts[nodes]
        self.folder = self.lab.shared / "slurm"
        self._stack = ExitStack()
        self._daemons: dict[int, list[LabProcess]] = {}

    def __enter__(self) -> SlurmLab:
        (self.folder / "state").mkdir(parents=True)
        config = _CONFIG.format(
            head=self.nodes, last=self.nodes - 1, folder=self.folder, own=self.lab.own
        )
        (self.folder / "slurm.conf").write_text(config)
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        key = self.folder / "munge.key"
        key.touch(mode=0o600)
        key.write_bytes(os.urandom(128))
        with self._stack as stack:
            stack.enter_context(self.lab)
            for host in self.lab.hosts:
                self._start_daemons(host.index)
            self._wait_until_idle()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def env(self) -> dict[str, str]:
        return {"SLURM_CONF": str(self.folder / "slurm.conf")}

    def start(self, argv: Sequence[object], *, env: Mapping[str, object] = {}) -> LabProcess:
        """A command on the head."""
        return self.head.start(argv, cwd=self.lab.shared, env={**self.env, **env})

    def tell(self, *argv: object) -> str:
        """What a command on the head prints; it must succeed."""
        return self.start(argv).wait(0).strip()

    def node_state(self, node: int) -> str:
        """As Slurm has it, such as "alloc" or "down*"."""
        return self.tell("sinfo", "--noheader", f"--nodes=h{node}", "--format=%t")

    def power_off(self, node: int) -> None:
        self.lab.hosts[node].power_off()

    def power_on(self, node: int) -> None:
        self.lab.hosts[node].power_on()
        self._start_daemons(node)

    def _start_daemons(self, index: int) -> None:
        """Of munge, which says who somebody is, and of Slurm; in the foreground: they are ours."""
        host = self.lab.hosts[index]
        key = f"--key-file={self.folder / 'munge.key'}"
        files = [f"--{name}-file=/run/munge/{name}" for name in ("pid", "log", "seed")]
        munged = ["munged", "--foreground", "--force", "--num-threads=1", key, *files]
        socket = "/run/munge/munge.socket.2"
        host.start(["mkdir", "-m", "755", "/run/munge"]).wait(0)
        daemons = [host.start([*munged, f"--socket={socket}"])]
        wait = f"until [ -S {socket} ]; do sleep 0.05; done"
        host.start(["sh", "-c", wait]).wait(0)
        what = ["slurmctld", "-D"] if host is self.head else ["slurmd", "-D", "-N", f"h{index}"]
        daemons.append(host.start(what, env=self.env))
        self._daemons[index] = daemons

    def _wait_until_idle(self) -> None:
        end_s = time.monotonic() + _LIMIT_S
        words = ["sinfo", "--noheader", "--partition=low", "--states=idle", "--format=%D"]
        while (idle := self.start(words).wait()) != str(self.nodes):
            said = "\n".join(one.text[-1500:] for both in self._daemons.values() for one in both)
            assert time.monotonic() < end_s, f"{idle!r} of {self.nodes} nodes are idle\n{said}"
            time.sleep(_LOOK_S)


def skip_without_slurm() -> None:
    """Skip the test where Slurm is not installed."""
    missing = [name for name in _PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(
            f"no Slurm here ({missing[0]} is missing): apt-get install --no-install-recommends "
            "slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge"
        )
