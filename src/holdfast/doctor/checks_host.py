"""Checks of the host itself: clocks, limits, what may be looked at, what is installed. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from holdfast.core.durations import seconds_in_words
from holdfast.doctor.facts import Facts
from holdfast.doctor.finding import Finding, Severity

FILES_BASE, FILES_PER_RANK = 512, 32
SUSPENDED_S = 1.0
UNLIMITED = -1
NOBODY = 3  # of ptrace_scope: not even root
LEAST_VERSIONS = {"jax": (0, 8), "torch": (2, 4)}  # as the extras of pyproject.toml have them


def ipc(facts: Facts) -> Iterator[Finding]:
    """The RemoveIPC of logind empties /dev/shm when its owner logs out (logind.conf(5))."""
    if facts.removes_ipc and facts.memory is not None and facts.memory.buffers:
        yield Finding(
            "ipc",
            Severity.WARNING,
            "systemd-logind removes this user's files in /dev/shm at the last logout",
            "the snapshots in memory go while the run still trains",
            "RemoveIPC=no in /etc/systemd/logind.conf, or run it as a service, or --memory-dir "
            "on a tmpfs of its own",
        )


def devices(facts: Facts) -> Iterator[Finding]:
    """Accelerators that snapshots are copied from beside the next steps, or why they are not."""
    versions, tier = facts.versions, facts.memory
    if tier is None or not tier.buffers:
        return
    torch, has_jax = versions.get("torch", ""), "jax" in versions
    has_torch = bool(torch) and not torch.endswith("+cpu")
    gpus = [one for one in facts.devices if one.startswith("/dev/nvidia")]
    if gpus and (torch or has_jax):
        why_not = facts.cuda_trouble
        if not (why_not or has_torch or has_jax):
            why_not = f"torch is {torch}, which is built without CUDA"
        yield _not_beside(gpus, why_not) if why_not else _beside(gpus, has_torch=has_torch)
    tpus = [one for one in facts.devices if one not in gpus]
    if tpus and has_jax and "libtpu" in versions:
        yield _beside(tpus, has_torch=False)


def _beside(devices: Sequence[str], *, has_torch: bool) -> Finding:
    return Finding(
        "devices",
        Severity.NOTE,
        f"snapshots are copied beside the next steps from {_few(devices)}",
        "of PyTorch, a script that changes parameters elsewhere than in an optimizer's step, and "
        "does not say so, may have torn ones; of JAX, the device holds arrays twice for a moment"
        if has_torch
        else "where there is room, the device holds arrays of JAX twice for a moment",
        "run.snapshot_safe(False) before the first step has all of it copied in run.done, which "
        "takes longer",
    )


def _not_beside(devices: Sequence[str], why_not: str) -> Finding:
    return Finding(
        "devices",
        Severity.NOTE,
        f"no snapshot is copied beside the next steps from {_few(devices)}: {why_not}",
        "training waits for each copy, if it can use the device at all",
        "install NVIDIA's driver, or give it to the container (--gpus all), and a PyTorch or JAX "
        "that is built for CUDA",
    )


def _few(devices: Sequence[str]) -> str:
    return devices[0] if len(devices) == 1 else f"{devices[0]} and {len(devices) - 1} more"


def clock(facts: Facts) -> Iterator[Finding]:
    """A calendar that nobody keeps (adjtimex(2): TIME_ERROR)."""
    if facts.is_synchronised is False:
        yield Finding(
            "clock",
            Severity.NOTE,
            "this host's clock is not synchronised, as far as its kernel knows",
            "deadlines of notices are dates; and journals of several hosts are put on one calendar",
            "run a time service: chrony, systemd-timesyncd (a container shares its host's)",
        )


def suspend(facts: Facts) -> Iterator[Finding]:
    """A machine that sleeps: CLOCK_BOOTTIME is ahead of CLOCK_MONOTONIC by as much."""
    if facts.suspended_s >= SUSPENDED_S:
        yield Finding(
            "suspend",
            Severity.NOTE,
            f"this host was suspended for {seconds_in_words(facts.suspended_s)} since it booted",
            "a run does not train while it sleeps, and connections break",
            "keep it awake: systemd-inhibit --what=sleep holdfast run …",
        )


def files(facts: Facts) -> Iterator[Finding]:
    """Too few open files for the supervisor's pipes and a framework's sockets."""
    wanted = FILES_BASE + FILES_PER_RANK * facts.ranks
    if facts.open_files is not None and 0 <= facts.open_files < wanted:
        yield Finding(
            "files",
            Severity.WARNING,
            f"a process may have {facts.open_files} files open (ulimit -n)",
            "data loaders and connections between ranks run out of them in mid-training",
            f"ulimit -n {max(wanted, 4096)}, or LimitNOFILE= of the service",
        )


def core(facts: Facts) -> Iterator[Finding]:
    """Core files of ranks: their whole memory, before the restart can begin."""
    writes = facts.core_bytes not in (None, 0) and not facts.core_pattern.startswith("|")
    if writes:
        limit = "unlimited" if facts.core_bytes == UNLIMITED else f"{facts.core_bytes} bytes"
        yield Finding(
            "core",
            Severity.WARNING,
            f"a rank that crashes writes a core file (ulimit -c: {limit})",
            "that is its whole memory: minutes before it can be started again, and a full disk",
            "ulimit -c 0, unless you mean to read it",
        )


def memlock(facts: Facts) -> Iterator[Finding]:
    """InfiniBand registers memory, which the limit of locked memory bounds."""
    if facts.has_infiniband and facts.locked_bytes not in (None, UNLIMITED):
        yield Finding(
            "memlock",
            Severity.WARNING,
            f"a process may lock {facts.locked_bytes} bytes of memory (ulimit -l), and this host "
            "has InfiniBand",
            "collectives fail when they register their buffers",
            "ulimit -l unlimited, or LimitMEMLOCK=infinity of the service",
        )


def stacks(facts: Facts) -> Iterator[Finding]:
    """Whether a hung rank can be looked at from outside (ptrace_scope: Yama, in the kernel)."""
    if not facts.has_py_spy:
        yield Finding(
            "stacks",
            Severity.NOTE,
            "py-spy is not installed",
            "of a hung rank that cannot answer any more, only the kernel's view is recorded",
            "pip install 'holdfast-ml[stacks]'",
        )
    elif facts.ptrace_scope is not None and facts.ptrace_scope >= (NOBODY if facts.is_root else 1):
        yield Finding(
            "stacks",
            Severity.NOTE,
            f"kernel.yama.ptrace_scope is {facts.ptrace_scope}, so py-spy may not look at ranks",
            "of a hung rank that cannot answer any more, only the kernel's view is recorded",
            "sysctl kernel.yama.ptrace_scope=0, or the capability SYS_PTRACE in a container",
        )


def versions(facts: Facts) -> Iterator[Finding]:
    """Packages that do not go together, and settings that undo what Holdfast does."""
    jax, jaxlib = facts.versions.get("jax"), facts.versions.get("jaxlib")
    if jax and jaxlib and numbers(jax)[:2] != numbers(jaxlib)[:2]:
        yield Finding(
            "versions",
            Severity.ERROR,
            f"jax is {jax}, and jaxlib is {jaxlib}",
            "they do not work together, and fail at import or later",
            f"pip install jax=={jax} jaxlib=={jax}",
        )
    for name, least in LEAST_VERSIONS.items():
        known = facts.versions.get(name)
        if known and numbers(known) < least:
            wanted = ".".join(map(str, least))
            yield Finding(
                "versions",
                Severity.WARNING,
                f"{name} is {known}, older than {wanted}",
                "Holdfast is not tested with it",
                f"pip install '{name}>={wanted}'",
            )
    if facts.stranger:
        yield Finding(
            "versions",
            Severity.ERROR,
            facts.stranger,
            "files of the two are mixed, and each upgrade mixes them anew",
            "remove both and install one, as said, or give each an environment of its own",
        )
    if facts.jax_preemption:
        yield Finding(
            "versions",
            Severity.WARNING,
            "JAX_ENABLE_PREEMPTION_SERVICE is set",
            "jax.distributed.initialize then takes SIGTERM over, and no handler hears of it",
            "unset it: Holdfast's notices do what it is for",
        )
    if facts.torchrun_shares_store:
        yield Finding(
            "versions",
            Severity.WARNING,
            "this is below torchrun, without TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1",
            "after a kill, gloo often waits for ever on the store of the attempt before",
            "set that variable, or start the ranks with holdfast run --ranks",
        )


def numbers(version: str) -> tuple[int, ...]:
    """The numbers of a version, up to the first part that is none: (2, 13, 0) of 2.13.0+cpu."""
    found = re.match(r"\d+(?:\.\d+)*", version)
    return tuple(int(part) for part in found[0].split(".")) if found else ()
