"""JAX's persistent compilation cache, kept by Holdfast: on this host, for every rank.

JAX asks it for a program before it compiles one, and gives it what it compiled. The files are those
of `holdfast.cache`: checked before JAX sees them, since a damaged program can take the process
down. JAX's own rules are widened in two places: small programs are kept too, and every rank keeps
its own (JAX lets process 0 write alone; but on CPU each rank's programs differ, and on several
hosts each host has a folder of its own). A cache that the user has configured is left alone.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from holdfast.cache import traced
from holdfast.cache.entry import CacheEntry, name_of
from holdfast.cache.home import Homing, keep_in_step
from holdfast.cache.loads import Loads
from holdfast.cache.tier import CacheTier
from holdfast.config import cpu_threads
from holdfast.session.attachment import Programs
from holdfast.session.hooks import Guard, arguments, hook_into

KIND = "xla"
T = TypeVar("T")
SEED_WAIT_S = 2.0
# JAX's options that we set where they are as JAX has them: option, JAX's default, ours.
OPTIONS = (
    # A shorter compilation is not kept: a small program would be compiled at every restart.
    ("jax_persistent_cache_min_compile_time_secs", 1.0, 0.0),
    # XLA's own caches below the folder put its path into every key: another host, or another
    # --scratch, would find nothing. What they hold for a program stands in the program as well.
    ("jax_persistent_cache_enable_xla_caches", "xla_gpu_per_fusion_autotune_cache_dir", "none"),
)
# What JAX's private `_cache_write` has to take. There is no public face for a cache of one's own.
_WRITTEN = ("cache_key", "compile_time_secs", "module_name", "backend", "executable")


@dataclass(slots=True)
class LastProgram:
    """What the cache was last asked for by one thread."""

    key: str = ""
    compile_ns: int = 0  # what compiling it took; 0: it is not known, or was not found
    is_found: bool = False
    name: str = ""  # the file that it was looked for in


class ProgramCache:
    """What JAX's `compilation_cache` asks of a cache: `get` and `put`, by any thread."""

    def __init__(
        self, tier: CacheTier, homing: Homing | None = None, loads: Loads | None = None
    ) -> None:
        self.tier = tier
        self.loads = Loads(tier) if loads is None else loads
        self._path = tier.folder  # JAX prints it
        self._homing = homing
        self._last = threading.local()
        # As methods they would be JAX's to call in whatever way its next version does.
        self.get = Guard(self._get, "compiled programs are not found again")
        self.put = Guard(self._put, "compiled programs are not kept")

    @property
    def last(self) -> LastProgram:
        """What this thread asked for last."""
        if not hasattr(self._last, "program"):
            self._last.program = LastProgram()
        program: LastProgram = self._last.program
        return program

    def seeded(self) -> CacheTier:
        """The tier, with what the store had, unless that takes too long: to look for something."""
        homing = self._homing
        if homing is not None:
            homing.wait_seeded(SEED_WAIT_S)
            self._homing = None  # waited for once, by each thread that is here already
        return self.tier

    def is_void(self, entry: CacheEntry) -> bool:
        """Whether its function was found to trace to something else since it was kept."""
        return traced.is_void(self.tier.folder, entry.words.get("traced"))

    def loaded(self) -> None:
        """What this thread has got from `get` is loaded, or was refused."""
        self.loads.end(self.last.name)

    def load(self, key: str, read: Callable[[bytes], T]) -> T | None:
        """What `read` makes of the program that JAX gave to `put`; None: it is not there."""
        name = name_of(f"{KIND}-{key}")
        try:
            stored = self.tier.get(f"{KIND}-{key}") if self.loads.begin(name) else None
            return None if stored is None else read(stored.program)
        finally:
            self.loads.end(name)

    def _get(self, key: str) -> bytes | None:
        """The program as JAX gave it to `put`; None: it is not there."""
        self.loaded()
        tier, last = self.seeded(), self.last
        last.name = name_of(f"{KIND}-{key}")
        entry = tier.get(f"{KIND}-{key}") if self.loads.begin(last.name) else None
        last.key, last.is_found, last.compile_ns = key, entry is not None, 0
        if entry is None:
            self.loaded()
            return None
        took_ns = entry.words.get("compile_ns")
        last.compile_ns = took_ns if isinstance(took_ns, int) else 0
        return entry.program

    def _put(self, key: str, value: bytes) -> None:
        """Keep a program; what it took to compile was said by `compiled`."""
        self.loaded()
        words = {"compile_ns": self.last.compile_ns, "kept_unix_ns": time.time_ns()}
        entry = CacheEntry(f"{KIND}-{key}", value, words)
        if not self.loads.is_aside(entry.name):
            self.tier.put(entry)

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
        from jax._src import cache_key, compilation_cache, compiler, distributed

        _let_every_rank_write(cache, compilation_cache, compiler, distributed)
        _give(cache, compilation_cache)
        _tell_threads(cache_key)
    except (ImportError, AttributeError, TypeError, ValueError) as error:
        say(f"Compiled programs are not kept: jax {jax.__version__} has another cache ({error})")
        return False
    # Without us there would be no cache and no such warning, which `-W error` makes an exception.
    warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
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

    def with_threads(others: str) -> str:
        is_cpu = sys.modules["jax"].default_backend() == "cpu"
        return f"{others}{cpu_threads() if is_cpu else ''}"

    loss = "another number of threads finds the same compiled programs"
    hook_into(cache_key, "custom_hook", loss, after=with_threads)


def _give(cache: ProgramCache, compilation_cache: Any) -> None:
    """JAX opens the cache of its configured folder: for ours it gets `cache`, else its own."""

    def ours(path: str, *_: Any, **__: Any) -> tuple[ProgramCache, str] | None:
        return (cache, path) if path == str(cache.tier.folder) else None

    loss = "JAX keeps compiled programs itself"
    hook_into(compilation_cache, "get_file_cache", loss, before=ours)


def _let_every_rank_write(
    cache: ProgramCache, compilation_cache: Any, compiler: Any, distributed: Any
) -> None:
    """JAX's `_cache_write` without "process 0 only", where the cache is ours."""
    by_name = arguments(compiler._cache_write, *_WRITTEN)

    def time_it(*args: Any, **kwargs: Any) -> None:
        result = by_name(*args, **kwargs)
        cache.compiled(result["cache_key"], int(result["compile_time_secs"] * 1e9))

    def write_too(_: None, *args: Any, **kwargs: Any) -> None:
        """What JAX does in process 0, in the others."""
        if compilation_cache._cache is not cache or distributed.global_state.process_id == 0:
            return
        result = by_name(*args, **kwargs)
        took_s = result["compile_time_secs"]
        least_s = sys.modules["jax"].config.jax_persistent_cache_min_compile_time_secs
        if result.get("host_callbacks") or took_s < least_s:
            return  # a callback's address is worth nothing to another process
        key, module, backend = result["cache_key"], result["module_name"], result["backend"]
        # A backend may not serialize this one; JAX itself only warns then.
        with contextlib.suppress(RuntimeError):
            compilation_cache.put_executable_and_time(
                key, module, result["executable"], backend, int(took_s)
            )

    loss = "compile times, and the programs of ranks other than 0, are not kept"
    hook_into(compiler, "_cache_write", loss, before=time_it, after=write_too)


def open_cache(
    programs: Programs, attempt: int, rank: int, say: Callable[[str], None]
) -> tuple[ProgramCache, Homing | None]:
    """The cache in a folder of this host; with a home, a thread that keeps the two in step.

    Under a supervisor there is no home: its agent does that.
    """
    tier = CacheTier(programs.folder, say)
    homing = None
    if programs.home is not None:
        homing = keep_in_step(tier, programs.home, programs.limit_bytes, programs.seal, say)
    return ProgramCache(tier, homing, Loads(tier, attempt, rank)), homing
