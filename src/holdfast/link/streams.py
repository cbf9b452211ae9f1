"""Bytes over one connection, in the clear or within TLS, for threads that may wait.

Within TLS the records are made and opened in memory: a socket of Python's `ssl` reads and writes 16
KiB at a time, for which the kernel takes half as long again as for all the rest.
"""

from __future__ import annotations

import hashlib
import socket
import ssl
from typing import cast

from holdfast.link.frames import LinkError
from holdfast.link.tls import dialling_context

GONE = "the other host has closed the connection"
UNPROVED_BYTES = 32 << 10  # all that a stranger may say; a handshake needs 2,000
_RAW_BYTES = 256 << 10


class ClearStream:
    """As it is. Raises LinkError, OSError, as the other one."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def write(self, head: bytes, payload: memoryview) -> None:
        """All of both."""
        sent = self._connection.sendmsg([head, payload])
        if sent < len(head):
            self._connection.sendall(head[sent:])
        self._connection.sendall(payload[max(0, sent - len(head)) :])

    def read(self, most: int) -> bytes:
        """What comes next, so many bytes at most."""
        came = self._connection.recv(most)
        if not came:
            raise LinkError(GONE)
        return came

    def read_into(self, view: memoryview) -> None:
        """Until it is full."""
        while view:
            count = self._connection.recv_into(view)
            if not count:
                raise LinkError(GONE)
            view = view[count:]


class TlsStream:
    """Within TLS 1.3. `digest`: of the certificate that the end which listens has shown."""

    def __init__(
        self, connection: socket.socket, context: ssl.SSLContext, digest: str | None = None
    ) -> None:
        """`digest`: of its own certificate, where this end listens; None: this one has dialled."""
        self._connection = connection
        self._raw = memoryview(bytearray(_RAW_BYTES))
        self._came, self._goes = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._came, self._goes, server_side=digest is not None)
        self._shake_hands()
        if digest is None:
            shown = self._tls.getpeercert(binary_form=True) or b""
            digest = hashlib.sha256(shown).hexdigest()
        self.digest = digest

    @classmethod
    def dialling(cls, connection: socket.socket) -> TlsStream:
        """Whatever certificate is shown: what is proved within covers its digest."""
        return cls(connection, dialling_context())

    def write(self, head: bytes, payload: memoryview) -> None:
        """All of both."""
        try:
            self._tls.write(head)
            while payload:
                payload = payload[self._tls.write(payload) :]
        except ssl.SSLError as error:
            raise LinkError(f"what was to be sent cannot be sealed: {error.reason}") from None
        self._connection.sendall(self._goes.read())

    def read(self, most: int) -> bytes:
        """What comes next, so many bytes at most."""
        view = memoryview(bytearray(most))
        return bytes(view[: self._read_some(view)])

    def read_into(self, view: memoryview) -> None:
        """Until it is full."""
        while view:
            view = view[self._read_some(view) :]

    def _read_some(self, view: memoryview) -> int:
        while True:
            try:
                count = cast(int, self._tls.read(len(view), view))  # into a buffer: how many
            except ssl.SSLWantReadError:
                self._receive(_RAW_BYTES)
                continue
            except ssl.SSLError as error:
                raise LinkError(f"what came was changed on its way: {error.reason}") from None
            if not count:
                raise LinkError(GONE)
            return count

    def _receive(self, most: int) -> int:
        count = self._connection.recv_into(self._raw[:most])
        if not count:
            raise LinkError(GONE)
        self._came.write(self._raw[:count])
        return count

    def _shake_hands(self) -> None:
        left = UNPROVED_BYTES
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._send()
                left -= self._receive(max(1, min(left, _RAW_BYTES)))
                if left <= 0:
                    raise LinkError("it said too much before it had proved anything") from None
                continue
            except ssl.SSLError as error:
                raise LinkError(f"it does not speak TLS as agreed: {error.reason}") from None
            self._send()
            return

    def _send(self) -> None:
        if data := self._goes.read():
            self._connection.sendall(data)
