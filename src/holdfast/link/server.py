"""The controller's end of the link; the package's first words say how it is used."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import os
import secrets
import socket
import time
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from holdfast.errors import ConfigurationError
from holdfast.link.connection import LinkConnection
from holdfast.link.conversation import MESSAGE_LIMIT_BYTES, Conversation
from holdfast.link.frames import Message, pack_json
from holdfast.link.handshake import NONCE_BYTES, Terms, channel_of
from holdfast.link.strangers import HANDSHAKE_S, Strangers
from holdfast.link.thread import CLOSE_S, Bell, LoopThread
from holdfast.link.values import (
    LinkChange,
    LinkState,
    Peer,
    Refusals,
    ServerNews,
    Trust,
    give_up_after_s,
    is_measured,
    rest_s,
    silent_after_s,
)

_ACCEPTED_AT_ONCE = 128
_BACKLOG = 4096
_SWEEP_S = 0.25
_PORT_TRIES = 20


@dataclass
class _Record:
    """One peer: what it is to be sent, and its connection."""

    message: bytes | None = None
    connection: LinkConnection | None = None
    last: LinkConnection | None = None  # the newest that there was


class LinkServer:
    """It listens from the first moment; `close` ends it."""

    def __init__(
        self,
        run: str,
        term: int,
        trust: Trust,
        addresses: tuple[str, ...] = ("127.0.0.1",),
        port: int = 0,
        hosts: int = 1,
    ) -> None:
        """Raises ConfigurationError for what cannot be listened at."""
        trust.check()
        for address in addresses:
            _check_address(address, trust)
        self._certificate = trust.certificate
        channel = channel_of(trust.certificate.digest if trust.certificate else "")
        self._terms = Terms(run, term, trust.secret or b"", channel)
        self._silent_after_s = silent_after_s(hosts)
        self._give_up_after_s = give_up_after_s(hosts)
        self._records: dict[Peer, _Record] = {}
        self._lives: dict[int, set[Peer]] = defaultdict(set)  # the records' keys by index
        self._strangers: Strangers[LinkConnection] = Strangers()
        self._dirty: set[Peer] = set()
        self._messages: dict[Peer, dict[str, Any]] = {}
        self._changes: dict[Peer, LinkChange] = {}
        self._refused = Refusals()
        self._connections = 0
        self._to_leave: set[LinkConnection] = set()  # whose end is waited for
        sockets = _listen(addresses, port)
        self._bell = Bell()
        self.port: int = sockets[0].getsockname()[1]
        self._thread = LoopThread("holdfast-link-server", self._note_refused, rest_s(hosts))
        self._servers: list[asyncio.Server] = []
        self._thread.run(self._serve(sockets))

    # What the owner calls.

    def fileno(self) -> int:
        """Readable when there is something to take."""
        return self._bell.fileno()

    def put(self, peer: Peer, message: Message | bytes) -> None:
        """It replaces what the peer was not sent yet; ValueError for what is too large.

        Bytes are JSON already.
        """
        self.put_all([peer], message)

    def put_all(self, peers: Iterable[Peer], message: Message | bytes) -> None:
        """The same for several peers."""
        data = bounded_json(message)
        with self._bell.lock:
            for peer in peers:
                self._record(peer).message = data
                is_first = not self._dirty
                self._dirty.add(peer)
                if is_first:
                    self._thread.call(self._send_dirty)

    def take(self) -> ServerNews:
        """What is new since the last call."""
        with self._bell.lock:
            self._bell.hush()
            news = ServerNews(self._messages, self._changes, self._refused)
            self._messages, self._changes, self._refused = {}, {}, Refusals()
        return news

    def silence_s(self, peer: Peer) -> float | None:
        """Since it was last heard; None: it has no link."""
        record = self._records.get(peer)
        connection = None if record is None else record.connection
        if connection is None:
            return None
        return max(0.0, time.monotonic() - connection.heard_s)

    def unread_s(self) -> float:
        """For how long what has come may lie unread: so long nobody's silence means anything."""
        return self._thread.unread_s()

    def round_trip_s(self, peer: Peer) -> float | None:
        """The newest that was measured; None: there is none yet."""
        record = self._records.get(peer)
        measured = record.last.conversation.round_trip_s if record and record.last else -1.0
        return measured if is_measured(measured) else None

    def close(self) -> None:
        """What was put is sent first, within a second."""
        if self._bell.fileno() < 0:
            return
        self._thread.close(self._leave())
        self._bell.close()

    # What happens in the loop's thread.

    async def _serve(self, sockets: list[socket.socket]) -> None:
        loop = asyncio.get_running_loop()
        self._has_left = asyncio.Event()
        for sock in sockets:
            server = await loop.create_server(
                self._connection,
                sock=sock,
                backlog=_ACCEPTED_AT_ONCE,
            )
            self._servers.append(server)
            sock.listen(_BACKLOG)  # the kernel may hold more than are accepted in one turn
        loop.call_later(_SWEEP_S, self._sweep)

    def _connection(self) -> LinkConnection:
        nonce = secrets.token_bytes(NONCE_BYTES)
        channel = None
        if self._certificate is not None:
            from holdfast.link.tls import TlsChannel

            channel = TlsChannel.listening(self._certificate.context)
        return LinkConnection(self, Conversation.of_controller(self._terms, nonce), channel)

    def opened(self, connection: LinkConnection) -> None:
        """A stranger, until it has proved who it is."""
        oldest = self._strangers.admit(connection, connection.opened_s)
        if oldest is not None:
            oldest.end("too many strangers at a time")

    def proved(self, connection: LinkConnection) -> None:
        """It is a peer. The newest connection of a peer is the one that counts."""
        self._strangers.forget(connection)
        peer = _peer_of(connection)
        self._connections += 1
        connection.number = self._connections
        with self._bell.lock:
            record = self._record(peer)
            before, record.connection, record.last = record.connection, connection, connection
            for earlier in list(self._lives[peer.index]):
                if self._records[earlier].connection is None:
                    del self._records[earlier]
                    self._lives[peer.index].discard(earlier)
            message = record.message
            self._change(peer, LinkChange(LinkState.UP, connection=connection.number))
        if before is not None:
            before.end("a newer connection of the same agent")
        if message is not None:
            connection.offer(message)

    def heard(self, connection: LinkConnection, message: dict[str, Any]) -> None:
        """A register: it takes the place of what was not taken yet."""
        peer = _peer_of(connection)
        if self._records[peer].connection is connection:
            with self._bell.lock:
                if not self._messages:  # once for all that have come by now
                    asyncio.get_running_loop().call_soon(self._ring)
                self._messages[peer] = message

    def _ring(self) -> None:
        with self._bell.lock:
            if self._messages:
                self._bell.ring()

    def revived(self, connection: LinkConnection) -> None:
        """It speaks again."""
        with self._bell.lock:
            change = LinkChange(LinkState.UP, connection=connection.number)
            self._change(_peer_of(connection), change)

    def lost(self, connection: LinkConnection, why: str) -> None:
        """A stranger's end is counted, a peer's is told."""
        if connection.conversation.peer is None:
            self._strangers.forget(connection)
            self._note_refused(f"{connection.address}: {why}")
            return
        peer = connection.conversation.peer
        with self._bell.lock:
            record = self._records.get(peer)
            if record is None or record.connection is not connection:
                return
            record.connection = None
            silence_s = time.monotonic() - connection.heard_s
            self._change(peer, LinkChange(LinkState.DOWN, why, silence_s, connection.number))
        self._to_leave.discard(connection)
        if not self._to_leave:
            self._has_left.set()

    def _send_dirty(self) -> None:
        with self._bell.lock:
            dirty, self._dirty = self._dirty, set()
            records = [self._records[peer] for peer in dirty if peer in self._records]
        for record in records:
            if record.connection is not None and record.message is not None:
                record.connection.offer(record.message)

    def _sweep(self) -> None:
        """Silence is judged as of when all that had come was read: this end may be late."""
        read_s = self._thread.read_s
        with self._bell.lock:
            connected = [r.connection for r in self._records.values() if r.connection is not None]
            if self._refused.count:  # as often as this, however many strangers knock
                self._bell.ring()
        for connection in connected:
            silence_s = read_s - connection.heard_s
            if silence_s > self._give_up_after_s:
                connection.end(f"nothing came for {silence_s:.1f} s")
            elif silence_s > self._silent_after_s and not connection.is_silent:
                connection.is_silent = True
                words = f"nothing has come for {silence_s:.1f} s"
                change = LinkChange(LinkState.SILENT, words, silence_s, connection.number)
                with self._bell.lock:
                    self._change(_peer_of(connection), change)
        for connection in self._strangers.late(read_s):
            connection.end(f"it proved nothing within {HANDSHAKE_S:.0f} s")
        asyncio.get_running_loop().call_later(_SWEEP_S, self._sweep)

    def _record(self, peer: Peer) -> _Record:
        """Its record, a new one if need be; with the lock held, as the next two."""
        if peer not in self._records:
            self._records[peer] = _Record()
            self._lives[peer.index].add(peer)
        return self._records[peer]

    def _change(self, peer: Peer, change: LinkChange) -> None:
        self._changes[peer] = change
        self._bell.ring()

    def _note_refused(self, words: str) -> None:
        with self._bell.lock:
            self._refused = Refusals(self._refused.count + 1, words)

    async def _leave(self) -> None:
        for server in self._servers:
            server.close()
        self._send_dirty()
        for connection in self._strangers.all():
            connection.end("the controller ends")
        records = self._records.values()
        connected = [one.connection for one in records if one.connection is not None]
        self._to_leave.update(connected)
        self._has_left.clear()
        for connection in connected:
            connection.end("the controller ends", at_once=False)
        with contextlib.suppress(TimeoutError):
            if connected:
                await asyncio.wait_for(self._has_left.wait(), CLOSE_S)
        for connection in list(self._to_leave):
            connection.end("the controller ends")
        await asyncio.sleep(0)


def bounded_json(message: Message | bytes) -> bytes:
    """The message as bytes; raises ValueError for what the other end would not take."""
    data = message if isinstance(message, bytes) else pack_json(message)
    if len(data) > MESSAGE_LIMIT_BYTES:
        raise ValueError(f"a message of {len(data)} bytes: {MESSAGE_LIMIT_BYTES} can be sent")
    return data


def _peer_of(connection: LinkConnection) -> Peer:
    peer = connection.conversation.peer
    if peer is None:
        raise RuntimeError("a connection that has proved nothing is no peer's")
    return peer


def _check_address(address: str, trust: Trust) -> None:
    try:
        is_loopback = ipaddress.ip_address(address).is_loopback
    except ValueError:
        raise ConfigurationError(
            f"the controller cannot listen at {address!r}: that is no IP address; name one of this "
            "host's, or 0.0.0.0 for all"
        ) from None
    if trust.is_none and not is_loopback:
        raise ConfigurationError(
            f"the controller does not listen at {address}, where others could command the run, "
            "without a secret: give every host the same --secret-file"
        )


def _listen(addresses: tuple[str, ...], port: int) -> list[socket.socket]:
    """A socket for each address, of one port."""
    for _ in range(_PORT_TRIES):
        sockets: list[socket.socket] = []
        try:
            for address in addresses:
                family = socket.AF_INET6 if ":" in address else socket.AF_INET
                at = sockets[0].getsockname()[1] if sockets else port
                sockets.append(socket.create_server((address, at), family=family))
        except OSError as error:
            for sock in sockets:
                sock.close()
            if port or not sockets:
                words = os.strerror(error.errno) if error.errno else str(error)
                raise ConfigurationError(
                    f"the controller cannot listen at {address}, port {port}: {words}; name "
                    "another address of this host, or another port"
                ) from error
        else:
            return sockets
    raise ConfigurationError(f"no port is free at all of {', '.join(addresses)}: name one")
