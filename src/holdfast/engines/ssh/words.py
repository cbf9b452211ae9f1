"""How a host is reached: the words of OpenSSH's client, or of gcloud, and what they complain of.

Nothing is put into a shell's line unquoted. A host that is seen for the first time is believed, and
one whose key has changed is not (`StrictHostKeyChecking=accept-new`), unless the user's own
configuration says otherwise for him: what stands here goes before that.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable
from dataclasses import dataclass, field

from holdfast.core.hosts.engine import EngineWait
from holdfast.core.hosts.reach import Unreached

ALIVE_S, ALIVE_MISSES = 5, 3
CONNECT_S = 10
PYTHON = "python3"
WAITS_VARIABLE = "HOLDFAST_SSH_WAITS"
# Reads the program's length, then the program, from the connection itself.
BOOT = (
    "import sys;n=int(sys.stdin.buffer.readline());"
    "exec(compile(sys.stdin.buffer.read(n),'holdfast','exec'))"
)
_SAFE = re.compile(r"[A-Za-z0-9_@.:%\[\]-]+")


@dataclass(frozen=True, slots=True)
class Reach:
    """How to come to a host: `config`, `user` and `key` as OpenSSH has them; "": its own ways.

    `known_hosts`: a file of its own for machines that are made again. `gcloud`: words before
    those of the worker, as of `gcloud compute tpus tpu-vm ssh`; empty: OpenSSH is used itself.
    """

    config: str = ""
    user: str = ""
    key: str = ""
    known_hosts: str = ""
    gcloud: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Target:
    """One host. `destination`: as `ssh` takes it. `alias`: under which its key is known.

    `node` and `worker`: as gcloud names it. `slice`: "": of none.
    """

    name: str
    index: int
    destination: str
    alias: str = ""
    slice: str = ""
    node: str = ""
    worker: int = 0
    is_new: bool = field(default=False, compare=False)


def is_destination(text: str) -> bool:
    """Whether it can be a host for `ssh`, and is no option of it."""
    return _SAFE.fullmatch(text) is not None and not text.startswith("-")


def connect_words(reach: Reach, target: Target) -> list[str]:
    """The command that runs `host_side` over there."""
    remote = shlex.join([PYTHON, "-u", "-c", BOOT])
    if reach.gcloud:
        worker = f"--worker={target.worker}"
        node = f"{reach.user}@{target.node}" if reach.user else target.node
        return ["gcloud", "compute", "tpus", "tpu-vm", "ssh", node, worker, *reach.gcloud,
                f"--command={remote}"]  # fmt: skip
    options = {
        "BatchMode": "yes",
        "ConnectTimeout": str(CONNECT_S),
        "ServerAliveInterval": str(ALIVE_S),
        "ServerAliveCountMax": str(ALIVE_MISSES),
        "StrictHostKeyChecking": "accept-new",
    }
    if target.alias:
        options["HostKeyAlias"] = target.alias
    if reach.known_hosts:
        options["UserKnownHostsFile"] = reach.known_hosts
    words = ["ssh", "-T"]
    words += ["-F", reach.config] if reach.config else []
    words += ["-i", reach.key] if reach.key else []
    words += ["-l", reach.user] if reach.user else []
    for name, value in options.items():
        words += ["-o", f"{name}={value}"]
    # Brackets are for addresses with a port behind them: the client looks for a name with them.
    return [*words, "--", target.destination.translate({ord("["): "", ord("]"): ""}), remote]


def told_waits(found: Iterable[EngineWait]) -> dict[str, str]:
    """For a start's environment, where `engines.ssh.waits` finds them."""
    words = (f"{one.kind}:{one.start_unix_ns}:{one.end_unix_ns}" for one in found)
    return {WAITS_VARIABLE: ",".join(words)}


UNKNOWN_NAME = "Could not resolve hostname"
_COMPLAINTS = (
    ("HOST IDENTIFICATION HAS CHANGED", "its host key has changed: if it was made again, remove "
     "the old one with ssh-keygen -R, else somebody may be in its place", True),
    ("Host key verification failed", "its host key is not known: connect once by hand", True),
    ("Permission denied", "it refuses this user's key", True),
    ("Too many authentication failures", "it refuses this user's keys", True),
    (UNKNOWN_NAME, "there is no host of that name", True),
    ("Bad configuration option", "the SSH configuration is not valid", True),
    ("No such file or directory", "", True),
    ("Connection refused", "nothing listens there", False),
    ("No route to host", "there is no way to it", False),
    ("timed out", "it does not answer", False),
)  # fmt: skip


def complaint(code: int, said: str, *, has_answered: bool = False) -> Unreached:
    """What the client's end means, by its exit code and what it wrote on standard error.

    `has_answered`: the host has let us in, so what is in `said` may be of a shell over there, and
    trying again may help.
    """
    last = " ".join((said.strip().splitlines() or [""])[-1].split())
    if has_answered:
        return Unreached(last or f"the connection ended ({code})")
    if code == 127 or "python3: not found" in said or "python3: command not found" in said:
        return Unreached(f"there is no {PYTHON}: it needs Python 3.11 or later", needs_person=True)
    for mark, words, needs_person in _COMPLAINTS:
        if mark in said:
            told = f"{words} ({last})" if words and last else words or last
            return Unreached(told, needs_person, may_be_here=UNKNOWN_NAME in said)
    return Unreached(last or f"the connection ended ({code})")
