"""JAX's persistent compilation cache, kept by Holdfast: on this host, for every rank.

JAX asks it for a program before it compiles one, and gives it what it compiled. The files are those
of `holdfast.cache`: checked before JAX sees them, since a damaged program can take the process
down. JAX's own rules are widened in two places: small programs are kept too, and every rank keeps
its own (JAX lets process 0 write alone; but on CPU each rank's programs differ, and on several
hosts each host has a folder of its own). A cache that the user has configured is left alone.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.cache.entry import Entry
from holdfast.cache.home import Homing
from holdfast.cache.tier import Tier
from holdfast.config import cpu_threads

KIND = "xla"
SEED_WAIT_S = 2.0
# JAX's options that we set where they are as JAX has them: option, JAX's default, ours.
OPTIONS = (
    # A shorter compilation is not kept: a small program would be compiled at every restart.
    ("jax_persistent_cache_min_compile_time_secs", 1.0, 0.0),
    # XLA's own caches below the folder put its path into every key: another host, or another
    # --scratch, would find nothing. What they hold for a program stands in the program as well.
    ("jax_persistent_cache_enable_xla_caches", "xla_gpu_per_fusion_autotune_cache_dir", "none"),
)
# What this module relies on inside JAX, which has no public face for a cache of one's own.
_READER = ["path"]
_WRITER = ["cache_key", "compile_time_secs", "module_name", "backend", "executable"]


@dataclass(slots=True)
class LastProgram:
    """What the cache was last asked for by one thread."""

    key: str = ""
    compile_ns: int = 0  # what compiling it took; 0: it is not known, or was not found
    is_found: bool = False


class ProgramCache:
    """What JAX's `compilation_cache` asks of a cache: `get` and `put`, by any thread."""

    def __init__(self, tier: Tier, homing: Homing | None = None) -> None:
        self.tier = tier
        self._path = tier.folder  # JAX prints it
        self._homing = homing
        self._last = threading.local()

    @property
    def last(self) -> LastProgram:
        """What this thread asked for last."""
        if not hasattr(self._last, "program"):
            self._last.program = LastProgram()
        program: LastProgram = self._last.program
        return program

    def seeded(self) -> Tier:
        """The tier, with what the store had, unless that takes too long: to look for something."""
        homing = self._homing
        if homing is not None:
            homing.wait_seeded(SEED_WAIT_S)
            self._homing = None  # waited for once, by each thread that is here already
        return self.tier

    def get(self, key: str) -> bytes | None:
        """The program as JAX gave it to `put`; None: it is not there."""
        entry = self.seeded().get(f"{KIND}-{key}")
        last = self.last
        last.key, last.is_found, last.compile_ns = key, entry is not None, 0
        if entry is None:
            return None
        took_ns = entry.words.get("compile_ns")
        last.compile_ns = took_ns if isinstance(took_ns, int) else 0
        return entry.program

    def put(self, key: str, value: bytes) -> None:
        """Keep a program; what it took to compile was said by `compiled`."""
        words = {"compile_ns": self.last.compile_ns, "kept_unix_ns": time.time_ns()}
        self.tier.put(Entry(f"{KIND}-{key}", value, words))

    def compiled(self, key: str, compile_ns: int) -> None:
        """The calling thread has compiled a program that was not found."""
        last = self.last
        last.key, last.is_found, last.compile_ns = key, False, compile_ns


def point_jax_at(cache: ProgramCache, say: Callable[[str], None]) -> bool:
    """Have JAX use this cache; False when the user has another one, or JAX is not one we know."""
    jax: Any = sys.modules["jax"]
    if jax.config.jax_compilation_cache_dir:
        return False  # the user's own choice
    try:
        from jax._src import cache_key, compilation_cache, compiler

        readers = list(inspect.signature(compilation_cache.get_file_cache).parameters)
        writers = list(inspect.signature(compiler._cache_write).parameters)
        if readers != _READER or writers[:5] != _WRITER:
            raise AttributeError
        _tell_threads(cache_key)
        _give(cache, compilation_cache)
        _let_every_rank_write(cache, compilation_cache, compiler)
    except (ImportError, AttributeError):
        say(f"jax {jax.__version__} has another compilation cache than 0.10: it is left alone")
        return False
    jax.config.update("jax_compilation_cache_dir", str(cache.tier.folder))
    for option, default, ours in OPTIONS:
        if getattr(jax.config, option, None) == default:
            jax.config.update(option, ours)
    return True


def _tell_threads(cache_key: Any) -> None:
    """Have a program's key depend on the number of threads, as the program does on a CPU.

    XLA divides loops and sums among them when it compiles; JAX's key says nothing of that. JAX
    gives others' additions to the key a place of their own, which is used here.
    """
    others = cache_key.custom_hook

    def custom_hook() -> str:
        is_cpu = sys.modules["jax"].default_backend() == "cpu"
        return f"{others()}{cpu_threads() if is_cpu else ''}"

    cache_key.custom_hook = custom_hook


def _give(cache: ProgramCache, compilation_cache: Any) -> None:
    """JAX opens the cache of its configured folder: for ours it gets `cache`, else its own."""
    files = compilation_cache.get_file_cache

    def get_file_cache(path: str) -> Any:
        return (cache, path) if path == str(cache.tier.folder) else files(path)

    compilation_cache.get_file_cache = get_file_cache


def _let_every_rank_write(cache: ProgramCache, compilation_cache: Any, compiler: Any) -> None:
    """JAX's `_cache_write` without "process 0 only", where the cache is ours."""
    write = compiler._cache_write

    def cache_write(
        cache_key: str,
        compile_time_secs: float,
        module_name: str,
        backend: Any,
        executable: Any,
        host_callbacks: Any,
    ) -> None:
        if compilation_cache._cache is not cache:
            write(cache_key, compile_time_secs, module_name, backend, executable, host_callbacks)
            return
        config = sys.modules["jax"].config
        least_s = config.jax_persistent_cache_min_compile_time_secs
        if host_callbacks or compile_time_secs < least_s:
            return  # a callback's address is worth nothing to another process
        cache.compiled(cache_key, int(compile_time_secs * 1e9))
        # A backend may not serialize this one; JAX itself only warns then.
        with contextlib.suppress(Exception):
            compilation_cache.put_executable_and_time(
                cache_key, module_name, executable, backend, int(compile_time_secs)
            )

    compiler._cache_write = cache_write


def open_cache(
    folder: Path, home: Path | None, limit_bytes: int, say: Callable[[str], None]
) -> tuple[ProgramCache, Homing | None]:
    """The cache in a folder of this host; with a home, a thread that keeps the two in step.

    Under a supervisor there is no home: its agent does that.
    """
    tier = Tier(folder, say)
    if home is None:
        return ProgramCache(tier), None
    homing = Homing(tier, Tier(home, say), limit_bytes)
    return ProgramCache(tier, homing), homing
