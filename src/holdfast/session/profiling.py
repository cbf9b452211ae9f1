"""A profile of a few steps, asked for while the rank trains (`holdfast profile`): who waits for it.

A thread waits at the rank's door, and costs nothing until somebody knocks; nothing of profilers is
imported before.
"""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

from holdfast.journal.profile_door import close_door, make_door, wait_at

if TYPE_CHECKING:
    from holdfast.session.attachment import Attachment
    from holdfast.session.boundary import Boundary

CLOSE_S = 1.0
_LOOK_S = 0.005


class Profiling:
    """Of one rank. `listen` is called by the training's thread, once its first step is done."""

    def __init__(self, attachment: Attachment, boundary: Boundary) -> None:
        self._attachment = attachment
        self._boundary = boundary
        self._clock: int | None = None  # tells how long the training's thread has run
        self._door: Path | None = None
        self._closing = threading.Event()
        self._idle = threading.Event()
        self._idle.set()

    def listen(self) -> None:
        """Be there for requests from now on."""
        path = self._attachment.writer.path
        if path is None or self._attachment.is_inert or self._door is not None:
            return
        self._door = make_door(path)
        if self._door is None:
            return
        with contextlib.suppress(OSError, AttributeError):
            self._clock = time.pthread_getcpuclockid(threading.get_ident())
        self._attachment.on_close(self.close)
        threading.Thread(target=self._run, name="holdfast-profile", daemon=True).start()

    def close(self) -> None:
        """The session ends: a window that is open is closed with what it has, in bounded time."""
        self._closing.set()
        if self._door is not None:
            close_door(self._door)
        give_up_s = time.monotonic() + CLOSE_S
        while not self._idle.wait(_LOOK_S) and time.monotonic() < give_up_s:
            self._boundary.run_errand()

    def _run(self) -> None:
        while self._door is not None and not self._closing.is_set():
            try:
                wishes = wait_at(self._door)
            except OSError:
                return
            self._idle.clear()
            try:
                from holdfast.session.profile_window import ProfiledRank, answer

                rank = ProfiledRank(self._attachment, self._boundary, self._clock, self._closing)
                for number, wish in enumerate(wishes):
                    answer(rank, wish, is_first=number == 0)
            finally:
                self._idle.set()
