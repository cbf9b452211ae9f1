"""How a long write to a store gets on: its writer asks after every block whether to go on.

A write that nobody waits for is spread out: after every block its thread rests for a multiple of
the processor time that the process has used meanwhile. What it takes from the training beside it
it takes in small pieces then, and never more than a small share of a core. Time in which it only
waited, for a disk or for its turn on a busy host, is no reason to rest.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

LONGEST_REST_S = 1.0


class Flow:
    """Of one write, or of several after one another. Used by the writer and by who waits for it."""

    def __init__(
        self, progress: Callable[[int], None] | None = None, *, share: float = 1.0
    ) -> None:
        """`progress` is called with the bytes so far, by the writer's thread, after every block.

        `share`: of the time of one core that it may use, which may change; 1: it never rests.
        """
        self._progress = progress
        self.share = share
        self._stop = threading.Event()
        self._nbytes = 0
        self._used_s = time.process_time()

    def stop(self) -> None:
        """It is not wanted any more."""
        self._stop.set()

    @property
    def is_stopped(self) -> bool:
        """Whether it is not wanted any more."""
        return self._stop.is_set()

    def goes_on(self, nbytes: int = 0) -> bool:
        """The store was given so many bytes more. False: give up, and leave nothing of it."""
        self._nbytes += nbytes
        if self._progress is not None and nbytes:
            self._progress(self._nbytes)
        self.rest()
        return not self._stop.is_set()

    def rest(self) -> None:
        """After a piece of work: for as long as the share says, or until it is stopped."""
        if self.share < 1.0:
            used_s = time.process_time() - self._used_s
            self._stop.wait(min(used_s * (1.0 / self.share - 1.0), LONGEST_REST_S))
            self._used_s = time.process_time()

    def beside(self) -> Flow:
        """One for another thread of the same work: it rests as long, and stops with this one."""
        other = Flow(share=self.share)
        other._stop = self._stop
        return other
