"""What a restore needs, while the script still builds its model: the manifest, and warm memory.

Fresh memory costs more than reading into it. Between `holdfast.start` and `run.restore` a script
usually has seconds of other work to do; a thread uses them.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.snapshot.manifest import Manifest
    from holdfast.snapshot.restore import Room


class Warm(NamedTuple):
    """What was prepared for a set: its manifest, and touched memory for its arrays."""

    manifest: Manifest
    room: Room


class Warming:
    """Begins at once, for one set; `take` waits for it and hands over what it has prepared."""

    def __init__(self, set_dir: Path, rank: int, world_size: int) -> None:
        self._set_dir = set_dir
        self._rank = rank
        self._world_size = world_size
        self._warm: Warm | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-warm", daemon=True)
        # Importing numpy in two threads at once is asking for trouble: only if it is there already.
        if "numpy" in sys.modules:
            self._thread.start()

    def take(self, set_dir: Path) -> Warm | None:
        """What was prepared for this set, once; None: nothing was, or for another one."""
        if self._thread.ident is not None:
            self._thread.join()
        warm, self._warm = self._warm, None
        return warm if set_dir == self._set_dir else None

    def _run(self) -> None:
        try:
            from holdfast.snapshot.part import await_part
            from holdfast.snapshot.restore import prepare
            from holdfast.snapshot.sets import read_manifest

            await_part(self._set_dir)
            manifest = read_manifest(self._set_dir)
            room = prepare(self._set_dir, self._rank, self._world_size, manifest)
            self._warm = Warm(manifest, room)
        except (HoldfastError, OSError, MemoryError):
            return  # the restore itself meets the same trouble, and says so
