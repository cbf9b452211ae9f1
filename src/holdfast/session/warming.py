"""Memory for a restore, touched while the script still builds its model.

Fresh memory costs more than reading into it. Between `holdfast.start` and `run.restore` a script
usually has seconds of other work to do; a thread uses them.
"""

from __future__ import annotations

import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.errors import HoldfastError

if TYPE_CHECKING:
    from holdfast.snapshot.restore import Room


class Warming:
    """Begins at once, for one set; `room` waits for it and hands the memory over."""

    def __init__(self, set_dir: Path, rank: int, world_size: int) -> None:
        self._set_dir = set_dir
        self._rank = rank
        self._world_size = world_size
        self._room: Room | None = None
        self._thread = threading.Thread(target=self._run, name="holdfast-warm", daemon=True)
        # Importing numpy in two threads at once is asking for trouble: only if it is there already.
        if "numpy" in sys.modules:
            self._thread.start()

    def room(self, set_dir: Path) -> Room | None:
        """The memory for this set; None if it was prepared for another one, or not at all."""
        if self._thread.ident is not None:
            self._thread.join()
        room, self._room = self._room, None
        return room if set_dir == self._set_dir else None

    def _run(self) -> None:
        try:
            from holdfast.snapshot.restore import prepare

            self._room = prepare(self._set_dir, self._rank, self._world_size)
        except (HoldfastError, OSError, MemoryError):
            return  # the restore itself meets the same trouble, and says so
