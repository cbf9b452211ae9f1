"""How a long write to a store gets on: its writer asks after every block whether to go on."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Flow:
    """Of one write, or of several after one another. Used by the writer and by who waits for it."""

    def __init__(self, told: Callable[[int], None] | None = None) -> None:
        """`told` is called with the bytes so far, by the writer's thread, after every block."""
        self._told = told
        self._stop = threading.Event()
        self._nbytes = 0

    def stop(self) -> None:
        """It is not wanted any more."""
        self._stop.set()

    def goes_on(self, nbytes: int = 0) -> bool:
        """The store was given so many bytes more. False: give up, and leave nothing of it."""
        self._nbytes += nbytes
        if self._told is not None and nbytes:
            self._told(self._nbytes)
        return not self._stop.is_set()
