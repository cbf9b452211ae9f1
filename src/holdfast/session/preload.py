"""Kept steps, loaded before they are called: in a thread, while the rank waits or restores.

Most of finding a kept step is XLA reading its program. Which program a function will need is only
certain at its first call, when the arguments are known; but it will be the one that this rank used
last. So that one is read ahead, and given to the call only if it asks for that very key.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from dataclasses import dataclass
from functools import partial
from typing import Any

from holdfast.cache.entry import stem
from holdfast.session import executables
from holdfast.session.compile_cache import ProgramCache

MOST_LOOKED_AT = 8  # entries of one function, the last used first: other ranks' lie among them


@dataclass(frozen=True, slots=True)
class Loaded:
    """XLA's program, on the devices of this process."""

    backend: Any
    executable: Any


class Preload:
    """Of one session. Nothing here ever raises: what was not loaded ahead is loaded when called."""

    def __init__(self, cache: ProgramCache) -> None:
        self._cache = cache
        self._names: list[str] = []
        self._loaded: dict[str, Loaded] = {}
        self._thread: threading.Thread | None = None

    def add(self, key_stem: str) -> None:
        """A function that will be called; `key_stem`: how the keys of its programs begin."""
        self._names.append(key_stem)

    def begin(self) -> None:
        """Load what the functions needed last, beside what the script does now."""
        if self._names and _has_devices():
            names, self._names = self._names, []
            before = self._thread
            self._thread = threading.Thread(
                target=self._load, args=(names, before), name="holdfast-preload", daemon=True
            )
            self._thread.start()

    def take(self, key: str) -> Loaded | None:
        """That program, if it was loaded; one that is being loaded is waited for."""
        thread = self._thread
        if thread is not None:
            thread.join()
        return self._loaded.pop(key, None)

    def _load(self, names: list[str], before: threading.Thread | None) -> None:
        if before is not None:
            before.join()
        for name in names:
            with contextlib.suppress(Exception):  # the call itself will find out, and say it
                self._load_newest(name)

    def _load_newest(self, name: str) -> None:
        import jax

        backend = jax.devices()[0].client
        tier = self._cache.seeded()
        kept = [one for one in tier.entries() if one.name.startswith(f"{stem(name)}-")]
        for one in kept[:MOST_LOOKED_AT]:
            entry = tier.look(one.name)
            if entry is None or entry.words.get("process") != backend.process_index():
                continue
            read = partial(executables.load, entry.words["program"], backend=backend)
            if self._cache.is_void(entry):
                return
            executable = self._cache.load(str(entry.words.get("xla_key")), read)
            if executable is not None:
                self._loaded[entry.key] = Loaded(backend, executable)
            return


def _has_devices() -> bool:
    """Whether the script has used devices already: nobody else decides when that begins."""
    bridge = sys.modules.get("jax._src.xla_bridge")
    try:
        return bridge is not None and bool(bridge.backends_are_initialized())
    except Exception:  # another version of JAX
        return False
