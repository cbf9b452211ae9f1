"""What this process has imported by its first step: what a standby for the next attempt imports.

By then everything is there that training needs, what is imported late included (PyTorch's first
optimizer imports `torch._dynamo`). What restores a checkpoint is not, where this attempt had none
to restore; the next one will.
"""

from __future__ import annotations

import contextlib
import importlib.util
import sys
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from holdfast.session.crash import write_report

FORMAT = 1
RESTORE = "holdfast.snapshot.restore"
IMPORTED_BY_IT = "numpy"  # only where it is there anyway


def tell(path: Path, *, restores: bool) -> None:
    """Write the list, in a thread: training does not wait for it, and can do without it.

    `restores`: the script begins with what the supervisor chose, and reads nothing of its own.
    """
    modules = list(sys.modules.items())
    thread = threading.Thread(
        target=_write, args=(path, modules, restores), name="holdfast-imports", daemon=True
    )
    thread.start()


def _write(path: Path, modules: Iterable[tuple[str, object]], restores: bool = False) -> None:
    named = dict(_named(modules))
    if RESTORE not in named and IMPORTED_BY_IT in named:
        spec = importlib.util.find_spec(RESTORE)
        named[RESTORE] = None if spec is None else spec.origin
    document = {
        "format": FORMAT,
        "restores": restores,
        "modules": list(named.items()),
        "mapped": mapped_libraries(),
    }
    write_report(path, document)


def mapped_libraries() -> list[str]:
    """The shared objects that this process has loaded, modules or not: what a preload reads."""
    found: dict[str, None] = {}
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/maps").read_text(errors="surrogateescape").splitlines():
            path = line.partition("/")[1] + line.partition("/")[2]
            if ".so" in path and not path.endswith(" (deleted)"):
                found[path] = None
    return sorted(found)


def _named(modules: Iterable[tuple[str, object]]) -> Iterator[tuple[str, str | None]]:
    """Names with their files, in the order in which their imports were complete.

    What has no spec cannot be imported by its name.
    """
    for name, module in modules:
        spec = _spec(module)
        if spec is not None and isinstance(name, str):
            yield name, spec.origin if spec.has_location else None


def _spec(module: object) -> Any:
    try:
        # Past a module's own way to look things up: a lazy one would be loaded by being looked at.
        return object.__getattribute__(module, "__dict__").get("__spec__")
    except AttributeError:
        return None
