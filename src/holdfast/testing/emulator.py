"""What every emulator is: an HTTP server on the loopback that does as it is told.

    with GceEmulator() as gce:
        gce.do("preempted", "TRUE")          # what the service says from now on
        gce.do("fail", "html", "2")          # how its next two answers fail
    gce.do("refuse", "preempted", "500") # how one of its paths is answered until `recover`
        gce.play("at 0.5 preempted TRUE")    # the same later, by a script

A subclass gives `name`, a method `answer(request) -> Reply`, and its verbs (see
`holdfast.testing.scripted`). The verbs `fail` (see `FAULTS`) and `refuse` are everybody's.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from holdfast.testing.scripted import EmulatorError, ScriptedEmulator

GIANT_BYTES = 64 << 20
CHUNK_BYTES = 1 << 16


@dataclass(frozen=True, slots=True)
class HttpRequest:
    """What was asked. Header names are in lower case."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes = b""


class Pause(NamedTuple):
    """A wait until something is so, which may change whenever a verb is done, or `limit_s`."""

    is_so: Callable[[], bool]
    limit_s: float


@dataclass(frozen=True, slots=True)
class Reply:
    """What is answered; `stream`: a body in pieces, sent as they come, until they end."""

    body: str | bytes = b""
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    stream: Iterable[bytes | Pause] | None = None


@dataclass(frozen=True, slots=True)
class Later:
    """An answer that is made after a wait."""

    pause: Pause
    make: Callable[[], Reply]


class Emulator(ScriptedEmulator):
    """One service. It listens from the start, and until `close`."""

    def __init__(self, *, tls: ssl.SSLContext | None = None) -> None:
        super().__init__()
        self.requests: list[HttpRequest] = []
        self.delay_s = 0.0
        self._faults: deque[tuple[Fault, str]] = deque()
        self._refused: dict[str, str] = {}  # part of a path: the status
        self._listen(tls)

    def _listen(self, tls: ssl.SSLContext | None) -> None:
        """Be there for whoever asks; a simulation has a network of its own."""
        handler = type("Handler", (_Handler,), {"emulator": self})
        self._server = _Server(("127.0.0.1", 0), handler)
        self.port: int = self._server.server_address[1]
        self.url = f"http{'s' if tls else ''}://127.0.0.1:{self.port}"
        if tls is not None:  # the handshake is for the request's own thread
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self._thread.daemon = True
        self._thread.start()

    def close(self) -> None:
        """Answer nobody any more; what hangs is let go."""
        super().close()
        self._server.shutdown()
        self._server.server_close()
        self._server.hang_up()
        self._thread.join()

    # --- what a subclass gives, and uses ----------------------------------------------------

    def answer(self, request: HttpRequest) -> Reply | Later:
        """What the service says to that; it does not wait itself."""
        raise NotImplementedError

    def next_fault(self, request: HttpRequest) -> tuple[Fault | None, str]:
        """How the answer to that fails, and what that is told; None: it does not."""
        with self.changed:
            for part, status in self._refused.items():
                if part in request.path:
                    return _status, status
            return self._faults.popleft() if self._faults else (None, "")

    # --- what it is told --------------------------------------------------------------------

    def verb_fail(self, how: str, times: str = "1", what: str = "") -> None:
        """Answer the next `times` requests with a fault of `FAULTS`, instead of answering."""
        if how not in FAULTS:
            raise EmulatorError(f"{how!r} is no fault; {', '.join(FAULTS)} are")
        self._faults.extend([(FAULTS[how], what)] * int(times))

    def verb_refuse(self, part: str, status: str = "500") -> None:
        """Answer each path with that part in it with a status, until it recovers."""
        self._refused[part] = status

    def verb_drop(self) -> None:
        """Break the connections that are open."""
        self._server.hang_up()

    def verb_delay(self, seconds: str) -> None:
        """Answer that late from now on."""
        self.delay_s = float(seconds)

    def verb_recover(self) -> None:
        """Answer in time, and forget the faults to come."""
        self.delay_s = 0.0
        self._faults.clear()
        self._refused.clear()

    # --- the server -------------------------------------------------------------------------

    def serve(self, handler: _Handler, request: HttpRequest) -> None:
        """Answer one request, or fail it as told."""
        self.requests.append(request)
        fault, what = self.next_fault(request)
        if self.delay_s:
            self.wait_for(lambda: False, self.delay_s)
        if fault is not None:
            fault(handler, what)
            return
        reply = self.answer(request)
        if isinstance(reply, Later):
            self.wait_for(*reply.pause)
            reply = reply.make()
        handler.reply(reply)


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self._lock = threading.Lock()
        self._open: list[socket.socket] = []

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._lock:
            self._open.append(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        with self._lock, contextlib.suppress(ValueError):
            self._open.remove(request)
        super().shutdown_request(request)

    def hang_up(self) -> None:
        """Break the connections that are open."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Clients go away in mid-answer: that is no error here."""


class _Handler(BaseHTTPRequestHandler):
    emulator: Emulator
    protocol_version = "HTTP/1.1"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("do_"):
            return self._handle
        raise AttributeError(name)

    def version_string(self) -> str:
        return f"Holdfast {self.emulator.name}"

    def log_message(self, format: str, *args: Any) -> None:
        pass

    @property
    def url(self) -> str:
        """The emulator's."""
        return self.emulator.url

    def _handle(self) -> None:
        parts = urlsplit(self.path)
        size = int(self.headers.get("Content-Length") or 0)
        self.emulator.serve(
            self,
            HttpRequest(
                self.command,
                unquote(parts.path),
                dict(parse_qsl(parts.query, keep_blank_values=True)),
                {name.lower(): value for name, value in self.headers.items()},
                self.rfile.read(size) if size else b"",
            ),
        )

    def reply(self, reply: Reply) -> None:
        """Send it."""
        body = reply.body.encode() if isinstance(reply.body, str) else reply.body
        self.send_response(reply.status)
        for name, value in reply.headers.items():
            self.send_header(name, value)
        if reply.stream is None:
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in reply.stream:
            if isinstance(chunk, Pause):
                self.emulator.wait_for(*chunk)
                continue
            self.wfile.write(b"%x\r\n%b\r\n" % (len(chunk), chunk))
            self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def raw(self, *blocks: bytes) -> None:
        """Send these bytes, whatever they are, and break the connection."""
        for block in blocks:
            self.wfile.write(block)
        self.close_connection = True

    def hang(self) -> None:
        """Until the emulator is closed."""
        with self.emulator.changed:
            self.emulator.changed.wait_for(lambda: self.emulator.is_closed)
        self.close_connection = True


# --- how answers fail ---------------------------------------------------------------------------


class Handler(Protocol):
    """Whoever holds the connection that is to be answered."""

    @property
    def url(self) -> str:
        """Where the emulator is."""

    def reply(self, reply: Reply) -> None:
        """Send it."""

    def raw(self, *blocks: bytes) -> None:
        """Send these bytes, whatever they are, and break the connection."""

    def hang(self) -> None:
        """Send nothing, and keep the connection."""


Fault = Callable[[Handler, str], None]
HTML = "<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1></body></html>"


def _status(handler: Handler, what: str) -> None:
    # The header is Google's own, without which its answers are nobody's.
    handler.reply(Reply("it does not work now", int(what or 500), {"Metadata-Flavor": "Google"}))


def _html(handler: Handler, what: str) -> None:
    del what
    handler.reply(Reply(HTML, 200, {"Content-Type": "text/html"}))


def _garbage(handler: Handler, what: str) -> None:
    del what
    handler.raw(bytes(range(256)))


def _redirect(handler: Handler, what: str) -> None:
    handler.reply(Reply("", 302, {"Location": what or f"{handler.url}/elsewhere"}))


def _giant(handler: Handler, what: str) -> None:
    del what
    head = b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: %d\r\n\r\n" % GIANT_BYTES
    handler.raw(head, *([bytes(CHUNK_BYTES)] * (GIANT_BYTES // CHUNK_BYTES)))


def _hang(handler: Handler, what: str) -> None:
    del what
    handler.hang()


def _cut(handler: Handler, what: str) -> None:
    del what
    handler.raw(b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 99\r\n\r\n", b"{")


FAULTS: dict[str, Fault] = {
    "status": _status,  # of that number, 500 if none is given
    "html": _html,
    "garbage": _garbage,  # no HTTP at all
    "redirect": _redirect,  # to that address
    "giant": _giant,  # a body that no service would send
    "hang": _hang,
    "cut": _cut,  # the connection breaks in mid-answer
}
