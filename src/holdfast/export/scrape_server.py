"""The server of numbers: a small number of connections, little time for each, and its own names.

Everybody on the host can connect. So who asks for nothing is closed after `READ_S`, or sooner where
others need the place, and who lets a browser ask by another name (DNS rebinding) is refused.
"""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

MOST = 16  # who have not asked yet: the oldest goes for the next; and as many are answered at once
READ_S = 5.0  # from a connection's start to the end of its request's head
ANSWER_S = 30.0
PAUSE_S = 0.1  # where no connection can be had: there are no descriptors left, say
LOCAL_NAMES = ("localhost", "127.0.0.1", "[::1]")
_HOST = re.compile(r"(\[[^\]]*\]|[^:]*)(:[0-9]*)?")

App = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


class ScrapeServer(ThreadingMixIn, WSGIServer):
    """Serves an application at an address; raises OSError, OverflowError."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: str, port: int, app: App) -> None:
        self._lock = threading.Lock()
        self._asking: dict[socket.socket, float] = {}  # since when, the oldest first
        self._answered: dict[socket.socket, float] = {}
        super().__init__((address, port), _ScrapeHandler)
        self.set_app(for_names((*LOCAL_NAMES, address), app))

    def asks(self, connection: socket.socket) -> bool:
        """It has asked; whether it is answered."""
        with self._lock:
            is_here = self._asking.pop(connection, None) is not None
            if not is_here or len(self._answered) >= MOST:
                return False
            self._answered[connection] = time.monotonic()
            return True

    def get_request(self) -> tuple[socket.socket, Any]:
        """As the library's, with a pause where it would be asked again at once."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(PAUSE_S)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """In a thread of its own."""
        with self._lock:
            self._asking[request] = time.monotonic()
            if len(self._asking) > MOST:
                self._end(self._asking, next(iter(self._asking)))
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """It is over."""
        with self._lock:
            self._asking.pop(request, None)
            self._answered.pop(request, None)
            super().shutdown_request(request)

    def service_actions(self) -> None:
        """Called twice a second, and after each connection."""
        now_s = time.monotonic()
        with self._lock:
            for those, limit_s in ((self._asking, READ_S), (self._answered, ANSWER_S)):
                for one in [one for one, since_s in those.items() if now_s - since_s > limit_s]:
                    self._end(those, one)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A connection that breaks is nobody's trouble."""

    @staticmethod
    def _end(those: dict[socket.socket, float], one: socket.socket) -> None:
        """Its thread waits for it, hears of its end, and closes it."""
        del those[one]
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


class _ScrapeHandler(WSGIRequestHandler):
    server: ScrapeServer

    def parse_request(self) -> bool:
        return super().parse_request() and self.server.asks(self.connection)

    def log_message(self, format: str, *args: object) -> None:
        del format, args


def for_names(names: Iterable[str], app: App) -> App:
    """The application, for who asks for it by one of these names, or by none (HTTP/1.0)."""
    known = frozenset(names)

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        found = _HOST.fullmatch(environ.get("HTTP_HOST", "localhost"))
        if found is not None and found[1].lower() in known:
            return app(environ, start_response)
        start_response("403 Forbidden", [("Content-Type", "text/plain")])
        return [b"not served: this server does not have that name\n"]

    return guarded
