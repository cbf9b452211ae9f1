"""Bytes between two hosts: a connection of its own, on which both ends prove the run's secret.

The handshake is the link's (`link.handshake`), for another channel, so that a proof for one is of
no use for the other. It is made within TLS where the end that listens has a certificate, which it
has made for itself: nobody knows it beforehand, but both proofs cover the digest of the one that
was shown, so whoever stands between the two has none that fits both. Where it has none, each frame
bears a MAC over its direction, its number and its bytes; that takes longer, and encrypts nothing.
An end with a certificate hears nobody in the clear. Blocking, with a limit for each wait: for the
threads of a process that does nothing else.
"""

from __future__ import annotations

import hmac
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from holdfast.link.frames import LinkError, pack_json, unpack_json
from holdfast.link.handshake import (
    NONCE_BYTES,
    AgentHandshake,
    ControllerHandshake,
    SessionKeys,
    Terms,
    channel_of,
)
from holdfast.link.streams import GONE, ClearStream, TlsStream
from holdfast.link.values import Peer

if TYPE_CHECKING:
    from holdfast.link.certificate import Certificate

Stream = ClearStream | TlsStream
NOTHING = memoryview(b"")

CHANNEL = b"parts of sets"
BLOCK_BYTES = 1 << 20
MESSAGE_LIMIT_BYTES = 64 << 20  # of receipts, as JSON
LIMIT_S = 20.0
CONNECT_S = 5.0  # a host that is off does not refuse, it says nothing
_MAC_BYTES = 32
_LENGTH_BYTES = 4


class Exchange:
    """One end of a connection, once both are proved. Raises LinkError, OSError."""

    def __init__(
        self, connection: socket.socket, stream: Stream, ours: bytes, theirs: bytes
    ) -> None:
        self._connection, self._stream = connection, stream
        self._has_macs = isinstance(stream, ClearStream)
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
        for makes in (TlsStream.dialling, ClearStream):
            connection = socket.create_connection((address, port), CONNECT_S)
            _set_up(connection)
            try:
                opened(connection)
                try:
                    stream: Stream = makes(connection)
                except (LinkError, ConnectionError):  # that one has no certificate
                    connection.close()
                    continue
                terms = _terms(run, secret, stream)
                handshake = AgentHandshake(terms, me, os.urandom(NONCE_BYTES))
                stream.write(handshake.start, NOTHING)
                keys = _shake_hands(stream, handshake)
                return cls(connection, stream, keys.up, keys.down)
            except BaseException:
                connection.close()
                raise
        raise LinkError(GONE)

    @classmethod
    def answer(
        cls,
        connection: socket.socket,
        run: str,
        secret: bytes,
        certificate: Certificate | None = None,
    ) -> Exchange:
        """Somebody has dialled. How long all of that may take is limited by `link.reception`."""
        _set_up(connection)
        stream: Stream = ClearStream(connection)
        if certificate is not None:
            stream = TlsStream(connection, certificate.context, certificate.digest)
        handshake = ControllerHandshake(_terms(run, secret, stream), os.urandom(NONCE_BYTES))
        keys = _shake_hands(stream, handshake)
        return cls(connection, stream, keys.down, keys.up)

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
        head = len(payload).to_bytes(_LENGTH_BYTES, "big")
        if self._has_macs:
            head += _mac(self._ours, self._sent, payload)
        self._stream.write(head, payload)

    def receive(self) -> memoryview:
        """The next block of bytes, in memory of which the one after it makes use again."""
        return self._receive(BLOCK_BYTES)

    def _receive(self, limit_bytes: int) -> memoryview:
        head = bytearray(_LENGTH_BYTES + (_MAC_BYTES if self._has_macs else 0))
        self._stream.read_into(memoryview(head))
        length = int.from_bytes(head[:_LENGTH_BYTES], "big")
        if length > limit_bytes:
            raise LinkError(f"a frame of {length} bytes, and {limit_bytes} are allowed")
        data = self._block if length <= BLOCK_BYTES else bytearray(length)
        payload = memoryview(data)[:length]
        self._stream.read_into(payload)
        self._received += 1
        if not self._has_macs:
            return payload
        mac = _mac(self._theirs, self._received, payload)
        if not hmac.compare_digest(mac, bytes(head[_LENGTH_BYTES:])):
            raise LinkError("a frame was changed, repeated or left out on its way")
        return payload


def _set_up(connection: socket.socket) -> None:
    connection.settimeout(LIMIT_S)
    # A question and its answer are small: each would wait 40 ms for more to come.
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def _terms(run: str, secret: bytes, stream: Stream) -> Terms:
    digest = stream.digest if isinstance(stream, TlsStream) else ""
    return Terms(run, 0, secret, CHANNEL + channel_of(digest))


def _shake_hands(stream: Stream, handshake: AgentHandshake | ControllerHandshake) -> SessionKeys:
    while handshake.keys is None:
        said = handshake.receive(stream.read(256))
        if said:
            stream.write(said, NOTHING)
    if handshake.rest:
        raise LinkError("it spoke before its turn")
    return handshake.keys


def _mac(key: bytes, number: int, payload: memoryview) -> bytes:
    made = hmac.new(key, number.to_bytes(8, "big"), "sha256")
    made.update(payload)
    return made.digest()
