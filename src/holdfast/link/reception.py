"""A port that is served by threads: whoever proves nothing keeps nobody out, and is soon gone.

Each connection has a thread. Until it has proved itself it is a stranger: it gets `HANDSHAKE_S`,
whatever it says meanwhile, and where there are too many strangers the oldest goes for the next.
Only those who are proved count against the number that is served at once.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator

from holdfast.link.frames import LinkError
from holdfast.link.strangers import Strangers

MOST_STRANGERS = 256  # each has a thread
MOST_PROVED = 16  # are served at once; others wait
LOOK_S = 0.25  # for strangers that are late, while there are any
PAUSE_S = 0.1  # where nobody can be let in: there are no descriptors left, say


class Reception:
    """The connections of one port. `talk` has one in a thread, and is over when it returns."""

    def __init__(
        self,
        listening: socket.socket,
        talk: Callable[[socket.socket], None],
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._listening, self._talk, self._now_s = listening, talk, now_s
        self._strangers: Strangers[socket.socket] = Strangers(MOST_STRANGERS)
        self._lock = threading.Lock()
        self._room = threading.BoundedSemaphore(MOST_PROVED)

    def serve(self) -> None:
        """For ever."""
        while True:
            try:
                self._end_late()
                self._listening.settimeout(LOOK_S if len(self._strangers) else None)
                connection, _ = self._listening.accept()
            except TimeoutError:
                continue
            except OSError:
                time.sleep(PAUSE_S)
                continue
            self._admit(connection)

    @contextlib.contextmanager
    def proved(self, connection: socket.socket) -> Iterator[None]:
        """It is no stranger any more; what follows waits until there is room for it."""
        with self._lock:
            self._strangers.forget(connection)
        with self._room:
            yield

    def _admit(self, connection: socket.socket) -> None:
        with self._lock:
            oldest = self._strangers.admit(connection, self._now_s())
            if oldest is not None:
                _end(oldest)
        try:
            threading.Thread(target=self._run, args=(connection,), daemon=True).start()
        except RuntimeError:  # there are too many threads
            self._forget(connection)

    def _run(self, connection: socket.socket) -> None:
        try:
            with contextlib.suppress(LinkError, OSError):
                self._talk(connection)
        finally:
            self._forget(connection)

    def _forget(self, connection: socket.socket) -> None:
        with self._lock:
            self._strangers.forget(connection)
            connection.close()

    def _end_late(self) -> None:
        with self._lock:
            for one in self._strangers.late(self._now_s()):
                self._strangers.forget(one)
                _end(one)


def _end(connection: socket.socket) -> None:
    """Its thread waits for it, and hears of its end; it alone closes it."""
    with contextlib.suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
