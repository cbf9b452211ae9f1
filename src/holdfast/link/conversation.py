"""One connection from its first byte to its last: the handshake, then frames with proofs.

The body of each frame is a MAC (32 bytes, HMAC-SHA256 with the direction's key over the number of
the frame and what follows), one byte that says what it is, and that:

    "M"  a message, as JSON
    "P"  a heartbeat of the agent: its clock, and the round trip that it measured last (nan: none)
    "Q"  the controller's answer to it: the agent's clock, as it came

A frame that is changed, repeated, left out, out of order or sent back has a wrong MAC. It ends the
connection. Pure: bytes and times in, bytes and messages out.
"""

from __future__ import annotations

import hmac
import math
import struct
from typing import Any

from holdfast.link.frames import FrameReader, LinkError, pack_frame, unpack_json
from holdfast.link.handshake import (
    NONCE_BYTES,
    AgentHandshake,
    ControllerHandshake,
    SessionKeys,
    Terms,
)
from holdfast.link.values import Peer, is_measured

MAC_BYTES = 32
LIMIT_BYTES = 16 << 20  # of a frame
MESSAGE_LIMIT_BYTES = LIMIT_BYTES - MAC_BYTES - 1
_MESSAGE, _PING, _PONG = b"M", b"P", b"Q"
_PING_FORM = struct.Struct(">dd")
_PONG_FORM = struct.Struct(">d")


class Conversation:
    """Either end's part of one connection.

    `outgoing` is what is to be written; whoever writes it empties it.
    """

    def __init__(self, handshake: AgentHandshake | ControllerHandshake) -> None:
        self.outgoing = handshake.start
        self.peer: Peer | None = None  # the agent, at both ends; None: nobody has proved anything
        self.round_trip_s = math.nan
        self._handshake: AgentHandshake | ControllerHandshake | None = handshake
        self._is_agent = isinstance(handshake, AgentHandshake)
        self._reader = FrameReader(LIMIT_BYTES)
        self._sealer = self._opener = _Numbered(b"")

    @classmethod
    def of_agent(cls, terms: Terms, me: Peer, nonce: bytes) -> Conversation:
        """The dialling end."""
        return cls(AgentHandshake(terms, me, _fresh(nonce)))

    @classmethod
    def of_controller(cls, terms: Terms, nonce: bytes) -> Conversation:
        """The listening end."""
        return cls(ControllerHandshake(terms, _fresh(nonce)))

    @property
    def is_proved(self) -> bool:
        """Whether both ends know who the other is."""
        return self._handshake is None

    @property
    def is_between_frames(self) -> bool:
        """Whether an end of file now would cut nothing in two."""
        return self._reader.is_between_frames

    def receive(self, data: bytes, now_s: float) -> dict[str, Any] | None:
        """The newest message in what came; raises LinkError, and then the connection is over."""
        if self._handshake is not None:
            self.outgoing += self._handshake.receive(data)
            if self._handshake.keys is None:
                return None
            self._begin(self._handshake.keys)
            self.peer, data = self._handshake.peer, self._handshake.rest
            self._handshake = None
        newest = None
        self._reader.feed(data)
        while (body := self._reader.next()) is not None:
            message = self._opened(self._opener.open(body), now_s)
            newest = newest if message is None else message
        return None if newest is None else unpack_json(newest)

    def say(self, message: bytes) -> None:
        """Send a message that is JSON already, so that one for many is written once."""
        self._send(_MESSAGE + message)

    def beat(self, now_s: float) -> None:
        """Say that the agent lives, and ask for an answer."""
        self._send(_PING + _PING_FORM.pack(now_s, self.round_trip_s))

    def _begin(self, keys: SessionKeys) -> None:
        ours, theirs = (keys.up, keys.down) if self._is_agent else (keys.down, keys.up)
        self._sealer, self._opener = _Numbered(ours), _Numbered(theirs)

    def _send(self, payload: bytes) -> None:
        if not self.is_proved:
            raise RuntimeError("nothing is sent before both ends are proved")
        self.outgoing += pack_frame(self._sealer.seal(payload))

    def _opened(self, payload: bytes, now_s: float) -> bytes | None:
        """Take one payload; the JSON, if it is a message."""
        kind, content = payload[:1], payload[1:]
        if kind == _MESSAGE:
            return content
        if kind == _PING and not self._is_agent and len(content) == _PING_FORM.size:
            stamp, round_trip_s = _PING_FORM.unpack(content)
            if is_measured(round_trip_s):
                self.round_trip_s = round_trip_s
            self._send(_PONG + _PONG_FORM.pack(stamp))
        elif kind == _PONG and self._is_agent and len(content) == _PONG_FORM.size:
            round_trip_s = now_s - _PONG_FORM.unpack(content)[0]
            if is_measured(round_trip_s):
                self.round_trip_s = round_trip_s
        else:
            raise LinkError(f"it sent a frame of a kind that is not known: {kind!r}")
        return None


class _Numbered:
    """The frames of one direction, each with the MAC of its number and its bytes."""

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._number = 0

    def seal(self, payload: bytes) -> bytes:
        return self._next(payload) + payload

    def open(self, body: bytes) -> bytes:
        payload = body[MAC_BYTES:]
        if not hmac.compare_digest(body[:MAC_BYTES], self._next(payload)):
            raise LinkError("a frame was changed, repeated or left out on its way")
        return payload

    def _next(self, payload: bytes) -> bytes:
        self._number += 1
        numbered = self._number.to_bytes(8, "big") + payload
        return hmac.digest(self._key, numbered, "sha256")


def _fresh(nonce: bytes) -> bytes:
    if len(nonce) != NONCE_BYTES:
        raise ValueError(f"a nonce of {len(nonce)} bytes: it must have {NONCE_BYTES}")
    return nonce
