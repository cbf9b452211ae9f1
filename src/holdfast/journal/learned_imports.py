"""What the run's ranks import, for a host that is made ready before they start (`imports.json`).

A rank leaves the list in its host's scratch (`holdfast.session.imports`); one copy is kept in the
run's folder, since a host that has never run it has nothing there. It is names of files to read,
and never code: standbys import from the host's own list alone.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.errors import HoldfastError
from holdfast.journal.atomic import write_atomic
from holdfast.journal.regular import read_regular
from holdfast.journal.store import RunFolder

FILE = "imports.json"
FORMAT = 1
MAX_BYTES = 16 << 20
MOST = 100_000  # modules, and files that are mapped


class LearnedImports(NamedTuple):
    """The modules, each with its file, in the order of their imports; and what else was loaded."""

    modules: Sequence[tuple[str, str | None]]
    mapped: Sequence[str] = ()


def learned_imports(folder: RunFolder) -> LearnedImports | None:
    """What the run's store has learned; None: nothing, or nothing that can be read."""
    with contextlib.suppress(OSError):
        return parse(read_regular(folder.path / FILE, MAX_BYTES))
    return None


def parse(data: bytes) -> LearnedImports | None:
    """The list that a rank has left; None for one that was guessed, and for anything else."""
    try:
        raw = json.loads(data)
        if len(data) > MAX_BYTES or raw["format"] != FORMAT:
            return None
        modules = tuple((str(name), file) for name, file in raw["modules"][:MOST])
        mapped = tuple(raw.get("mapped", ())[:MOST])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    files = [file for _, file in modules if file is not None] + list(mapped)
    return LearnedImports(modules, mapped) if all(isinstance(one, str) for one in files) else None


class ImportsKeeper:
    """Brings a rank's list into the run's folder, once it is new; for the upkeep thread."""

    def __init__(self, folder: RunFolder, local: Path) -> None:
        self._folder = folder
        self._local = local
        self._looked_at = (0, 0)

    def __call__(self) -> None:
        """Look; a store that is away is tried again with the next list."""
        try:
            info = self._local.stat()
            mark = info.st_mtime_ns, info.st_size
            if mark == self._looked_at:
                return
            self._looked_at = mark
            found = parse(read_regular(self._local, MAX_BYTES))
            if found is not None and found != learned_imports(self._folder):
                document = {"format": FORMAT, "modules": found.modules, "mapped": found.mapped}
                write_atomic(self._folder.path / FILE, json.dumps(document).encode())
        except (OSError, HoldfastError):
            return
