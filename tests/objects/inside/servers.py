"""A real S3 server (moto's) in a process of its own, and a proxy that breaks what passes it.

`python servers.py` is the server's process: it prints its port and ends with its standard input.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import threading
import urllib.request
from pathlib import Path

LIMIT_S = 120  # generous: only a hang comes near it


class Moto:
    """The server's process. It can be stopped in its tracks, so that it answers nobody."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, Path(__file__)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
        self.port = int(self._process.stdout.readline())
        self.url = f"http://127.0.0.1:{self.port}"

    def freeze(self) -> None:
        """From now on it answers nothing, and refuses nothing."""
        os.kill(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self._process.pid, signal.SIGCONT)

    def make_bucket(self, name: str) -> None:
        request = urllib.request.Request(f"{self.url}/{name}", method="PUT")
        urllib.request.urlopen(request, timeout=LIMIT_S).close()

    def put(self, bucket: str, key: str) -> None:
        """An empty object, as other tools make them."""
        request = urllib.request.Request(f"{self.url}/{bucket}/{key}", data=b"", method="PUT")
        urllib.request.urlopen(request, timeout=LIMIT_S).close()

    def uploads(self, bucket: str) -> int:
        """How many uploads in parts are unfinished."""
        with urllib.request.urlopen(f"{self.url}/{bucket}?uploads", timeout=LIMIT_S) as answer:
            return answer.read().count(b"<UploadId>")

    def close(self) -> None:
        self._process.kill()
        self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()


class Proxy:
    """Between a client and the server, by default passing everything on.

    `down`: nobody listens. `busy`: every request is answered 503. `cut_after`: so many bytes of
    answers to one connection, and it is reset; `cuts` of them. `pause`: answers wait until it is
    set; `pause_at`: the first request with that in it clears it.
    """

    def __init__(self, upstream: int) -> None:
        self._upstream = upstream
        self._open: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._listener: socket.socket | None = None
        self.port = 0
        self.requests: list[str] = []
        self.sent_bytes = 0  # to clients
        self.cut_after: int | None = None
        self.cuts = 0
        self.busy = False
        self.pause_at = ""
        self.pause = threading.Event()
        self.pause.set()
        self.up()
        self.url = f"http://127.0.0.1:{self.port}"

    def up(self) -> None:
        """Listen, at the same port as before."""
        listener = socket.socket()
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", self.port))
        listener.listen(64)
        self.port = listener.getsockname()[1]
        with self._lock:
            self._listener = listener
        threading.Thread(target=self._accept, args=(listener,), daemon=True).start()

    def down(self) -> None:
        """Refuse connections, and break those that are open."""
        if self._listener is not None:
            with contextlib.suppress(OSError):
                self._listener.shutdown(socket.SHUT_RDWR)
            self._listener.close()
            with self._lock:
                self._listener = None
        self.drop()

    def drop(self) -> None:
        """Break the connections that are open."""
        with self._lock:
            for one in self._open:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            if self.busy:
                threading.Thread(target=self._refuse, args=(client,), daemon=True).start()
                continue
            try:
                server = socket.create_connection(("127.0.0.1", self._upstream))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._open |= {client, server}
                is_up = self._listener is listener
            if not is_up:  # since it was accepted: it is not among those that `down` has broken
                self._close(client, server)
                continue
            for pump in (self._forth, self._back):
                threading.Thread(target=pump, args=(client, server), daemon=True).start()

    def _refuse(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError), client:
            client.recv(65536)
            client.sendall(
                b"HTTP/1.1 503 Slow Down\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"
            )

    def _forth(self, client: socket.socket, server: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while block := client.recv(65536):
                verb = block.split(b" ", 2)[0]
                if verb in (b"GET", b"PUT", b"POST", b"HEAD", b"DELETE"):
                    self._noted(block.split(b"\r\n", 1)[0].decode())
                server.sendall(block)
        self._close(client, server)

    def _noted(self, request: str) -> None:
        if self.pause_at and self.pause_at in request:
            self.pause_at = ""
            self.pause.clear()
        self.requests.append(request)  # who sees it there may let it go on

    def _back(self, client: socket.socket, server: socket.socket) -> None:
        passed = 0
        with contextlib.suppress(OSError):
            while block := server.recv(65536):
                self.pause.wait()
                passed += len(block)
                limit = self.cut_after
                if limit is not None and self.cuts > 0 and passed > limit:
                    self.cuts -= 1
                    break
                client.sendall(block)
                self.sent_bytes += len(block)
        self._close(client, server)

    def _close(self, *sockets: socket.socket) -> None:
        with self._lock:
            for one in sockets:
                with contextlib.suppress(OSError):
                    one.shutdown(socket.SHUT_RDWR)
                one.close()
                self._open.discard(one)

    def close(self) -> None:
        self.pause.set()
        self.down()


def main() -> None:
    """The server."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    print(server.get_host_and_port()[1], flush=True)
    sys.stdin.read()
    server.stop()


if __name__ == "__main__":
    main()
