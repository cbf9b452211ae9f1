"""What this host says about itself. Each answer is optional: what cannot be read is not known."""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from holdfast.config.settings import Settings
from holdfast.doctor.facts import FolderFacts, MemoryFacts
from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import create_exclusive
from holdfast.journal.scratch import BASES, filesystem_of, is_remote
from holdfast.snapshot.ram_folder import ram_path
from holdfast.snapshot.room import find_room

PACKAGES = ("jax", "jaxlib", "libtpu", "torch", "numpy", "orbax-checkpoint")
DEVICES = ("nvidia[0-9]*", "accel[0-9]*", "vfio/[0-9]*")
PROBE = ".holdfast-doctor-"
FSYNC_BYTES, FSYNC_TIMES = 64 << 10, 3
STORE_LIMIT_S = 60.0  # a disk that is very busy answers in less
TICK_S = 0.01  # at 100 Hz, the longest that kernels have
LEAST_USER = 1000  # logind leaves system users alone
TIME_ERROR = 5  # adjtimex(2): the clock is not synchronised
TIMEX_BYTES = 512  # more than struct timex has
CONFIGURED = ("etc/systemd", "run/systemd", "usr/lib/systemd", "lib/systemd")


def host_facts(environ: Mapping[str, str], root: Path = Path("/")) -> dict[str, Any]:
    """The fields of `Facts` that hold for any run on this host."""
    return {
        "open_files": _limit(resource.RLIMIT_NOFILE),
        "core_bytes": _limit(resource.RLIMIT_CORE),
        "core_pattern": _text(root / "proc/sys/kernel/core_pattern"),
        "locked_bytes": _limit(resource.RLIMIT_MEMLOCK),
        "has_infiniband": any((root / "dev/infiniband").glob("uverbs*")),
        "devices": tuple(
            f"/dev/{path.relative_to(root / 'dev')}"
            for pattern in DEVICES
            for path in sorted((root / "dev").glob(pattern))
        ),
        "cuda_trouble": _cuda_trouble(),
        "ptrace_scope": _whole(_text(root / "proc/sys/kernel/yama/ptrace_scope")),
        "is_root": os.geteuid() == 0,
        "has_py_spy": _py_spy() is not None,
        "removes_ipc": removes_ipc(root, os.getuid()),
        "is_synchronised": _is_synchronised(),
        "suspended_s": time.clock_gettime(time.CLOCK_BOOTTIME) - time.monotonic(),
        "python": sys.version.split()[0],
        "versions": dict(_versions()),
        "jax_preemption": environ.get("JAX_ENABLE_PREEMPTION_SERVICE", "").lower()
        in ("1", "true", "yes", "on"),
        "torchrun_shares_store": "TORCHELASTIC_RUN_ID" in environ
        and environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1",
    }


def store_place(store: str, limit_s: float = STORE_LIMIT_S) -> FolderFacts | None:
    """The run store, tried out in a file without a name; None for one in an object store.

    A network filesystem whose server is away answers nothing, for ever: that is found, too.
    """
    if "://" in store and not store.startswith("file://"):
        return None
    path = Path(store.removeprefix("file://")).expanduser().absolute()
    found: list[FolderFacts] = []
    looking = threading.Thread(target=lambda: found.append(_folder(path)), daemon=True)
    looking.start()
    looking.join(limit_s)
    return found[0] if found else FolderFacts(str(path), trouble=f"no answer within {limit_s:g} s")


def _folder(path: Path) -> FolderFacts:
    there = _there(path)
    kind = filesystem_of(there)
    place = FolderFacts(str(path), kind, is_remote(kind))
    try:
        fsync_s, skew_s = _try_out(there)
        found = os.statvfs(there)
        with tempfile.TemporaryDirectory(prefix=PROBE, dir=there) as probe:
            create_exclusive(Path(probe) / "claim", b"")
    except OSError as error:
        return replace(place, trouble=error.strerror or str(error))
    except StoreUnavailable as error:
        return replace(place, trouble=str(error))
    free_bytes = found.f_bavail * found.f_frsize
    return replace(place, free_bytes=free_bytes, fsync_s=fsync_s, skew_s=skew_s)


def scratch_place(scratch: str | None) -> FolderFacts:
    """Where live journals will be written: as set, else the first of the usual places."""
    places = [Path(scratch).expanduser().absolute()] if scratch else list(BASES)
    for path in places:
        there = _there(path)
        kind = filesystem_of(there)
        trouble = _trouble(there)
        if scratch or not (trouble or is_remote(kind)):
            return FolderFacts(str(path), kind, is_remote(kind), trouble)
    return FolderFacts(" and ".join(map(str, places)), trouble="neither is a local folder of ours")


def memory_tier(settings: Settings, key: str = "") -> MemoryFacts:
    """The memory tier as it would be now; `key`: of a run that may hold a part of it already."""
    folder = Path(settings.memory_dir)
    held_bytes = 0
    if key:
        for path in ram_path(folder, key).rglob("*"):
            with contextlib.suppress(OSError):
                held_bytes += path.lstat().st_blocks * 512
    try:
        room = find_room(folder, held_bytes)
    except OSError:
        return MemoryFacts(str(folder), "", settings.memory_buffers, None)
    kind = filesystem_of(folder)
    return MemoryFacts(str(folder), kind, settings.memory_buffers, room.nbytes, room.words)


def removes_ipc(root: Path, uid: int) -> bool:
    """Whether logind will empty /dev/shm of a user's files (RemoveIPC=, on where nobody says)."""
    if uid < LEAST_USER or not (root / "run/systemd/seats").exists():
        return False
    for line in reversed(list(_logind_lines(root))):
        name, _, value = line.partition("=")
        if name.strip() == "RemoveIPC":
            return value.strip().lower() in ("yes", "true", "on", "1")
    return True


def _logind_lines(root: Path) -> Iterator[str]:
    """All lines of logind's configuration, the ones that count last."""
    main = next((one for c in CONFIGURED if (one := root / c / "logind.conf").exists()), None)
    drop_ins: dict[str, Path] = {}
    for place in CONFIGURED:
        for path in (root / place / "logind.conf.d").glob("*.conf"):
            drop_ins.setdefault(path.name, path)
    for found in [*filter(None, [main]), *(drop_ins[name] for name in sorted(drop_ins))]:
        yield from _text(found).splitlines()


def _try_out(folder: Path) -> tuple[float, float]:
    """How long an fsync takes there, and how far its clock is ahead, in seconds.

    A stamp may be of any moment between the first write and the last fsync, as a remote file's is:
    only what lies outside of these is skew.
    """
    took_s = []
    with tempfile.TemporaryFile(dir=folder) as file:
        before_s = time.time()
        for _ in range(FSYNC_TIMES):
            began_s = time.perf_counter()
            file.write(bytes(FSYNC_BYTES))
            file.flush()
            os.fsync(file.fileno())
            took_s.append(time.perf_counter() - began_s)
        after_s, stamp_s = time.time(), os.fstat(file.fileno()).st_mtime
        # The kernel stamps with the time of its last tick.
        return median(took_s), outside(stamp_s, before_s - TICK_S, after_s)


def outside(stamp_s: float, before_s: float, after_s: float) -> float:
    """How far a stamp lies outside of when it was made, in seconds: below 0, it was before."""
    return min(0.0, stamp_s - before_s) + max(0.0, stamp_s - after_s)


def _trouble(folder: Path) -> str:
    """Why no file can be made there; "": one can."""
    try:
        with tempfile.TemporaryFile(dir=folder):
            return ""
    except OSError as error:
        return error.strerror or str(error)


def _there(path: Path) -> Path:
    """The path, or what of it is there already."""
    return next((one for one in (path, *path.parents) if os.path.isdir(one)), Path("/"))  # noqa: PTH112 - False also where one may not look


def _limit(which: int) -> int:
    soft = resource.getrlimit(which)[0]
    return -1 if soft == resource.RLIM_INFINITY else soft


def _is_synchronised() -> bool | None:
    with contextlib.suppress(OSError, AttributeError):
        state = ctypes.CDLL(None).adjtimex(ctypes.create_string_buffer(TIMEX_BYTES))
        return None if state < 0 else state != TIME_ERROR
    return None


def _cuda_trouble() -> str:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError as error:
        return str(error)
    return ""


def _py_spy() -> str | None:
    beside = Path(sys.executable).with_name("py-spy")
    return str(beside) if beside.exists() else shutil.which("py-spy")


def _versions() -> Iterator[tuple[str, str]]:
    for name in PACKAGES:
        with contextlib.suppress(metadata.PackageNotFoundError):
            yield name, metadata.version(name)


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""


def _whole(text: str) -> int | None:
    return int(text) if text.isdecimal() else None
