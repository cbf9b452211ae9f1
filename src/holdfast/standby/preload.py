"""Importing ahead what was learned, under watch."""

from __future__ import annotations

import importlib
import select
import sys
import time

from . import devices, priority
from .learned import SHUN, SKIP

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from types import ModuleType

    from .freshness import Freshness
    from .learned import Libraries, NeverList

BURST_S = 0.005


class Shunned(BaseException):
    """A module was asked for that must not be imported ahead.

    No Exception: who tries an import and goes on without it would be another module then.
    """


class ModuleRefused(Exception):  # noqa: N818 - it says what happened
    """The standby must begin again, with one more name on the never-list."""

    def __init__(self, name: str, kind: str, why: str) -> None:
        super().__init__(f"{name} {why}")
        self.name = name
        self.kind = kind
        self.why = why


class ImportGate:
    """First in sys.meta_path: keeps shunned modules out, and the pace down; has files looked at.

    Half of the time is left to the training, unless the process is idle anyhow. Once somebody
    wakes us there is nothing to wait for.
    """

    def __init__(
        self, never: NeverList, freshness: Freshness, wake_fd: int, *, is_lowered: bool
    ) -> None:
        self._never = never
        self._freshness = freshness
        self._wake_fd = wake_fd
        self._is_lowered = is_lowered
        self._since_s = time.monotonic()
        self.is_woken = False

    def find_spec(self, name: str, path: Sequence[str] | None, _target: object = None) -> None:
        """Called for each module that is about to be imported; leaves finding it to the others."""
        if self._never.shuns(name):
            raise Shunned(name)
        self._freshness.about_to_import(name, path)
        burst_s = time.monotonic() - self._since_s
        is_pause = burst_s > BURST_S and not self._is_lowered
        self.look(burst_s if is_pause else 0)
        if is_pause:
            self._since_s = time.monotonic()

    def look(self, wait_s: float = 0) -> bool:
        """Whether we are woken: there is something to read, or the end of it."""
        if not self.is_woken and select.select([self._wake_fd], [], [], wait_s)[0]:
            self.is_woken = True
            if self._is_lowered:
                priority.restore()
        return self.is_woken


class Missing:
    """Last in sys.meta_path: who comes here is not installed."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(self, name: str, path: Sequence[str] | None, _target: object = None) -> None:
        """Called for each module that nobody else has found."""
        if path is None:
            self.names.add(name)


def import_all(
    names: Iterable[str],
    never: NeverList,
    libraries: Libraries,
    freshness: Freshness,
    wake_fd: int,
    *,
    is_lowered: bool,
) -> bool:
    """Import these until all are there, or we are woken; whether all are.

    Raises ModuleRefused when one of them did what it must not.
    """
    gate, missing = ImportGate(never, freshness, wake_fd, is_lowered=is_lowered), Missing()
    sys.meta_path.insert(0, gate)
    sys.meta_path.append(missing)
    try:
        for name in names:
            for step in _steps(name):
                if gate.look():
                    return False
                if step in never.entries:
                    break
                _import(step, libraries)
        return True
    finally:
        sys.meta_path.remove(gate)
        sys.meta_path.remove(missing)
        freshness.imported(missing.names)


def _steps(name: str) -> Iterator[str]:
    """Of a, a.b and a.b.c what is not there yet: so that it is seen whose fault something is."""
    parts = name.split(".")
    for count in range(1, len(parts) + 1):
        step = ".".join(parts[:count])
        if step not in sys.modules:
            yield step


def _import(name: str, libraries: Libraries) -> None:
    before = set(sys.modules)
    try:
        importlib.import_module(name)
    except Shunned as error:
        raise ModuleRefused(
            name, SHUN, f"imports {error}, which must not be imported ahead"
        ) from None
    except (Exception, SystemExit) as error:
        # Half of it may be left in sys.modules, where a cold start would find nothing.
        raise ModuleRefused(
            name, SKIP, f"cannot be imported: {type(error).__name__}: {error}"
        ) from None
    new = [sys.modules[name] for name in sys.modules.keys() - before]
    files = [file for file in map(_file, new) if file]
    strange = [file for file in files if not libraries.hold(file)]
    if strange:
        raise ModuleRefused(name, SHUN, f"imports {strange[0]}, which is no library's")
    taken = devices.taken(look_at_maps=any(file.endswith(".so") for file in files))
    if taken:
        raise ModuleRefused(name, SHUN, taken)


def _file(module: ModuleType | None) -> str | None:
    """Where a module was read from. Some have a `__file__` that is none (`torch.ops`)."""
    spec = getattr(module, "__spec__", None)
    return spec.origin if spec is not None and spec.has_location else None
