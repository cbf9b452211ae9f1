"""An exporter that pushes: a thread, a bounded queue, and honest counts.

A target that is away costs samples, never memory, and nobody's time: the queue holds the newest
few, older ones are dropped and counted, and each delivery that fails is tried again later.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from holdfast.core.ledger.summary import RunSummary
from holdfast.export.sample import Sample

QUEUE = 32
FIRST_RETRY_S, LAST_RETRY_S = 1.0, 60.0


@dataclass(frozen=True, slots=True)
class ExportLook:
    """One look at the runs, and what came of it. `began_s`: by a clock that nobody sets."""

    samples: tuple[Sample, ...]
    runs: tuple[RunSummary, ...]
    problems: tuple[str, ...] = ()
    began_unix_s: float = 0.0
    began_s: float = 0.0
    took_s: float = 0.0
    is_fleet: bool = False


@dataclass(slots=True)
class DeliveryCounts:
    """What an exporter has done. `trouble`: why the last delivery failed; empty: it did not."""

    sent: int = 0
    dropped: int = 0
    failures: int = 0
    waiting: int = 0
    trouble: str = ""


class DeliveryTarget(Protocol):
    """Where samples go. Anything that `deliver` raises is a failed delivery."""

    name: str

    def deliver(self, look: ExportLook) -> None:
        """Write or send it; may block."""

    def close(self) -> None:
        """Nothing more will come."""


class Outlet:
    """The thread of one target. `put` returns at once."""

    def __init__(self, target: DeliveryTarget, say: Callable[[str], None]) -> None:
        self.name = target.name
        self.counts = DeliveryCounts()
        self._target = target
        self._say = say
        self._queue: deque[ExportLook] = deque()
        self._changed = threading.Condition()
        self._closing = False
        self._give_up_s = float("inf")
        self._is_delivering = self._is_closed = False
        self._thread = threading.Thread(target=self._run, name=f"export-{self.name}", daemon=True)
        self._thread.start()

    def put(self, look: ExportLook) -> None:
        """Deliver this after everything else; the oldest is dropped where there is no room."""
        with self._changed:
            if len(self._queue) >= QUEUE:
                self._queue.popleft()
                self.counts.dropped += 1
            self._queue.append(look)
            self.counts.waiting = len(self._queue)
            self._changed.notify()

    def close(self, limit_s: float) -> bool:
        """Deliver what is left, within the limit; False: some was not, and counts as dropped."""
        with self._changed:
            self._closing = True
            self._give_up_s = time.monotonic() + limit_s
            self._changed.notify()
        self._thread.join(limit_s + 0.5)
        with self._changed:
            # What is under way counts as dropped: nobody waits for what becomes of it.
            left = len(self._queue) + self._is_delivering
            self.counts.dropped += left
            self._queue.clear()
            self.counts.waiting = 0
        if self.counts.dropped:
            self._say(f"{self.name}: {self.counts.dropped} samples were dropped in all")
        elif self._thread.is_alive():
            self._say(f"{self.name}: did not end in time; its last numbers may be missing")
        return not left and self._is_closed

    def _run(self) -> None:
        retry_s = FIRST_RETRY_S
        while (look := self._next()) is not None:
            if self._deliver(look):
                self._is_delivering = False
                retry_s = FIRST_RETRY_S
                continue
            with self._changed:
                # The newest says most, and most is the same: what waited is not sent one by one.
                self._queue.appendleft(look)
                self._is_delivering = False
                if len(self._queue) > QUEUE:
                    self._queue.popleft()
                    self.counts.dropped += 1
                self.counts.waiting = len(self._queue)
                left_s = self._give_up_s - time.monotonic()
                if self._closing and left_s <= 0:
                    break
                self._changed.wait_for(lambda: self._closing, min(retry_s, max(0.0, left_s)))
                if self._closing:
                    self._changed.wait(min(0.2, max(0.0, self._give_up_s - time.monotonic())))
            retry_s = min(2 * retry_s, LAST_RETRY_S)
        self._close_target()

    def _next(self) -> ExportLook | None:
        with self._changed:
            self._changed.wait_for(lambda: self._queue or self._closing)
            if not self._queue or time.monotonic() > self._give_up_s:
                return None
            look = self._queue.popleft()
            self._is_delivering = True
            self.counts.waiting = len(self._queue)
            return look

    def _deliver(self, look: ExportLook) -> bool:
        try:
            self._target.deliver(look)
        except Exception as error:  # whatever a client library raises: it must not end the others
            self.counts.failures += 1
            words = f"{type(error).__name__}: {error}"[:300]
            if not self.counts.trouble:
                self._say(
                    f"{self.name}: {words}; it is tried again, and what finds no room dropped"
                )
            self.counts.trouble = words
            return False
        self.counts.sent += 1
        if self.counts.trouble:
            self._say(f"{self.name}: it can be delivered again")
            self.counts.trouble = ""
        return True

    def _close_target(self) -> None:
        try:
            self._target.close()
            self._is_closed = True
        except Exception as error:  # it had something left to deliver
            self.counts.failures += 1
            self.counts.dropped += 1
            self._say(f"{self.name}: {type(error).__name__}: {error}"[:300])
