"""Bytes between two hosts: a connection of its own, on which both ends prove the run's secret.

The handshake is the link's (`link.handshake`), for another channel, so that a proof for one is of
no use for the other. Each frame after it bears a MAC over its direction, its number and its bytes.
Blocking, with a limit for each wait: for the threads of a process that does nothing else.
"""

from __future__ import annotations

import hmac
import os
import socket
from collections.abc import Callable
from typing import Any

from holdfast.link.frames import LinkError, pack_json, unpack_json
from holdfast.link.handshake import (
    NONCE_BYTES,
    AgentHandshake,
    ControllerHandshake,
    SessionKeys,
    Terms,
)
from holdfast.link.values import Peer

CHANNEL = b"parts of sets"
BLOCK_BYTES = 1 << 20
MESSAGE_LIMIT_BYTES = 64 << 20  # of receipts, as JSON
LIMIT_S = 20.0
CONNECT_S = 5.0  # a host that is off does not refuse, it says nothing
_MAC_BYTES = 32
_LENGTH_BYTES = 4


class Exchange:
    """One end of a connection, once both are proved. Raises LinkError, OSError."""

    def __init__(self, connection: socket.socket, ours: bytes, theirs: bytes) -> None:
        # A question and its answer are small: each would wait 40 ms for more to come.
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._ours, self._theirs = ours, theirs
        self._sent = self._received = 0
        self._block = bytearray(BLOCK_BYTES)

    @classmethod
    def dial(
        cls,
        address: str,
        port: int,
        run: str,
        secret: bytes,
        me: Peer,
        opened: Callable[[socket.socket], None] = lambda _: None,
    ) -> Exchange:
        """Ask a host for something. `opened` is given what may be shut down in another thread."""
        connection = socket.create_connection((address, port), CONNECT_S)
        connection.settimeout(LIMIT_S)
        try:
            opened(connection)
            handshake = AgentHandshake(_terms(run, secret), me, os.urandom(NONCE_BYTES))
            connection.sendall(handshake.start)
            keys = _shake_hands(connection, handshake)
            return cls(connection, keys.up, keys.down)
        except BaseException:
            connection.close()
            raise

    @classmethod
    def answer(cls, connection: socket.socket, run: str, secret: bytes) -> Exchange:
        """Somebody has dialled."""
        connection.settimeout(LIMIT_S)
        handshake = ControllerHandshake(_terms(run, secret), os.urandom(NONCE_BYTES))
        keys = _shake_hands(connection, handshake)
        return cls(connection, keys.down, keys.up)

    def close(self) -> None:
        """The end."""
        self._connection.close()

    def say(self, message: dict[str, Any]) -> None:
        """Send an object."""
        self.send(memoryview(pack_json(message)))

    def hear(self) -> dict[str, Any]:
        """The next object."""
        return unpack_json(bytes(self._receive(MESSAGE_LIMIT_BYTES)))

    def send(self, payload: memoryview) -> None:
        """Send one frame."""
        self._sent += 1
        mac = _mac(self._ours, self._sent, payload)
        head = len(payload).to_bytes(_LENGTH_BYTES, "big") + mac
        sent = self._connection.sendmsg([head, payload])
        if sent < len(head):
            self._connection.sendall(head[sent:])
        self._connection.sendall(payload[max(0, sent - len(head)) :])

    def receive(self) -> memoryview:
        """The next block of bytes, in memory of which the one after it makes use again."""
        return self._receive(BLOCK_BYTES)

    def _receive(self, limit_bytes: int) -> memoryview:
        head = bytearray(_LENGTH_BYTES + _MAC_BYTES)
        self._read(memoryview(head))
        length = int.from_bytes(head[:_LENGTH_BYTES], "big")
        if length > limit_bytes:
            raise LinkError(f"a frame of {length} bytes, and {limit_bytes} are allowed")
        data = self._block if length <= BLOCK_BYTES else bytearray(length)
        payload = memoryview(data)[:length]
        self._read(payload)
        self._received += 1
        mac = _mac(self._theirs, self._received, payload)
        if not hmac.compare_digest(mac, bytes(head[_LENGTH_BYTES:])):
            raise LinkError("a frame was changed, repeated or left out on its way")
        return payload

    def _read(self, view: memoryview) -> None:
        while view:
            count = self._connection.recv_into(view)
            if not count:
                raise LinkError("the other host has closed the connection")
            view = view[count:]


def _terms(run: str, secret: bytes) -> Terms:
    return Terms(run, 0, secret, CHANNEL)


def _shake_hands(
    connection: socket.socket, handshake: AgentHandshake | ControllerHandshake
) -> SessionKeys:
    while handshake.keys is None:
        came = connection.recv(256)
        if not came:
            raise LinkError("the other host has closed the connection")
        connection.sendall(handshake.receive(came))
    if handshake.rest:
        raise LinkError("it spoke before its turn")
    return handshake.keys


def _mac(key: bytes, number: int, payload: memoryview) -> bytes:
    made = hmac.new(key, number.to_bytes(8, "big"), "sha256")
    made.update(payload)
    return made.digest()
