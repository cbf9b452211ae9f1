"""One TCP connection: bytes between asyncio's transport and a conversation, perhaps within TLS."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING, Any, Protocol, cast

from holdfast.link.conversation import Conversation
from holdfast.link.frames import LinkError
from holdfast.link.thread import CLOSE_S

if TYPE_CHECKING:
    from holdfast.link.tls import TlsChannel

UNACKNOWLEDGED_MS = 2000  # TCP gives up by then; a frozen host acknowledges for ever
UNPROVED_BYTES = 32 << 10  # all that an end may say before it has proved itself; TLS needs 2,000
_HIGH_WATER_BYTES = 64 << 10
_READ_BYTES = 16 << 10  # at a time; nearly all that is said is less


class LinkEnd(Protocol):
    """What hears of its connections; all of it in the loop's thread."""

    def opened(self, connection: LinkConnection) -> None:
        """Somebody is there, who has proved nothing yet."""

    def proved(self, connection: LinkConnection) -> None:
        """The other end is who it says it is."""

    def heard(self, connection: LinkConnection, message: dict[str, Any]) -> None:
        """Its newest message."""

    def revived(self, connection: LinkConnection) -> None:
        """It was silent, and something has come."""

    def lost(self, connection: LinkConnection, why: str) -> None:
        """It is over."""


class LinkConnection(asyncio.BufferedProtocol):
    """A protocol of asyncio. It keeps one message at most that it cannot send yet: the newest.

    To a protocol without buffers asyncio gives what has come in 256 KiB of new memory each time,
    which takes six times as long as to read a message.
    """

    def __init__(
        self, end: LinkEnd, conversation: Conversation, channel: TlsChannel | None = None
    ) -> None:
        """`channel`: what it is said in; None: in the clear."""
        self.conversation = conversation
        self.number = 0  # the end counts those that are proved
        self.opened_s = self.heard_s = time.monotonic()
        self.is_silent = False
        self.address = "somebody"
        self.own_address = ""
        self._end = end
        self._channel = channel
        self._unproved_bytes = 0
        self._transport: asyncio.Transport | None = None
        self._is_paused = False
        self._waits: bytes | None = None
        self._came = bytearray()
        self._why = ""

    @property
    def has_heard(self) -> bool:
        """Whether the other end has said anything."""
        return self._unproved_bytes > 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """asyncio: it is there."""
        self._transport = transport = cast(asyncio.Transport, transport)
        transport.set_write_buffer_limits(high=_HIGH_WATER_BYTES)
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, UNACKNOWLEDGED_MS)
            # asyncio does that for who dials alone. Without it a message waits until the one before
            # it is acknowledged.
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with contextlib.suppress(TypeError, IndexError):  # it has gone already
            self.address = str(transport.get_extra_info("peername")[0])
            self.own_address = str(transport.get_extra_info("sockname")[0])
        self._end.opened(self)
        self._flush()

    def get_buffer(self, _: int) -> bytearray:
        """asyncio: something will be read into it."""
        self._came = bytearray(_READ_BYTES)
        return self._came

    def buffer_updated(self, nbytes: int) -> None:
        """asyncio: so many bytes of it were."""
        came, self._came = self._came, bytearray()
        self.data_received(bytes(memoryview(came)[:nbytes]))

    def data_received(self, data: bytes) -> None:
        """Something has come."""
        if self._why:
            return
        was_proved = self.conversation.is_proved
        now_s = time.monotonic()
        try:
            message = self.conversation.receive(self._opened(data), now_s)
        except LinkError as error:
            self.end(str(error))
            return
        self._flush()
        if not self.conversation.is_proved:
            return
        self.heard_s = now_s
        if not was_proved:
            self._end.proved(self)
            self._push()
        elif self.is_silent:
            self.is_silent = False
            self._end.revived(self)
        if message is not None:
            self._end.heard(self, message)

    def eof_received(self) -> bool:
        """asyncio: the other end says no more; nor do we."""
        between = self.conversation.is_between_frames
        self._why = self._why or ("end of file" if between else "end of file within a frame")
        return False

    def connection_lost(self, error: Exception | None) -> None:
        """asyncio: it is over."""
        words = self._why
        if not words and isinstance(error, OSError) and error.errno:
            words = os.strerror(error.errno)
        self._why = words or (f"{error}" if error else "end of file")
        self._end.lost(self, self._why)

    def pause_writing(self) -> None:
        """asyncio: enough is waiting to be sent."""
        self._is_paused = True

    def resume_writing(self) -> None:
        """asyncio: it has been sent."""
        self._is_paused = False
        self._push()

    def offer(self, message: bytes) -> None:
        """Send that, or a newer one, when it can be sent."""
        self._waits = message
        self._push()

    def beat(self) -> None:
        """Say that the agent lives; not behind much that waits to be sent, which says so too."""
        if not self._is_paused:
            self.conversation.beat(time.monotonic())
            self._flush()

    def end(self, why: str, at_once: bool = True) -> None:
        """Close it, without a word to the other end; `at_once`: what waits is not sent.

        Else the other end closes it, once it has all. A socket that is closed while something has
        come and is not read makes TCP throw away what is on its way to the other end.
        """
        if self._transport is None:
            self._why = self._why or why
            return
        if at_once:
            self._why = self._why or why
            self._transport.abort()
        elif not self._why:
            self._is_paused = False
            self._push()
            self._why = why
            with contextlib.suppress(OSError):  # it has just gone
                self._transport.write_eof()
            asyncio.get_running_loop().call_later(CLOSE_S, self._transport.abort)

    def _push(self) -> None:
        if self._waits is None or self._is_paused or self._why or not self.conversation.is_proved:
            return
        self.conversation.say(self._waits)
        self._waits = None
        self._flush()

    def _opened(self, data: bytes) -> bytes:
        if not self.conversation.is_proved:
            self._unproved_bytes += len(data)
            if self._unproved_bytes > UNPROVED_BYTES:
                raise LinkError("it said too much before it had proved anything")
        return data if self._channel is None else self._channel.receive(data)

    def _flush(self) -> None:
        """Write what there is to write; an end that was refused hears nothing more."""
        if self._transport is None or self._why:
            return
        data, self.conversation.outgoing = self.conversation.outgoing, b""
        if self._channel is not None:
            self._channel.send(data)
            data, self._channel.outgoing = self._channel.outgoing, b""
        if data:
            self._transport.write(data)
