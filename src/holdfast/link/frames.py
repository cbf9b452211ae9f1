"""Frames: the length in 4 bytes, big-endian, and a body of so many bytes. Pure.

What a connection carries is cut anywhere, so a reader collects it until a frame is whole. A length
beyond the limit is refused before any of the body is kept.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from typing import Any

from holdfast.core.plain_json import packed_json

_LENGTH = struct.Struct(">I")


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no number")


_DECODER = json.JSONDecoder(parse_constant=_refuse)  # `json.loads` would make one each time

Message = Mapping[str, Any]


class LinkError(ValueError):
    """What came is not what the other end of a link sends; the words say what it is."""


def pack_frame(body: bytes) -> bytes:
    """The frame of a body."""
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Bytes as they come in, whole bodies out."""

    def __init__(self, limit_bytes: int) -> None:
        """`limit_bytes`: of one body."""
        self._limit_bytes = limit_bytes
        self._collected = bytearray()

    @property
    def is_between_frames(self) -> bool:
        """Whether the connection could end here without cutting a frame in two."""
        return not self._collected

    def feed(self, data: bytes) -> None:
        """Take what has come."""
        self._collected += data

    def next(self) -> bytes | None:
        """The next whole body; None: more must come first. Raises LinkError."""
        collected = self._collected
        if len(collected) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(collected)
        if length > self._limit_bytes:
            raise LinkError(f"a frame of {length} bytes, and {self._limit_bytes} are allowed")
        end = _LENGTH.size + length
        if len(collected) < end:
            return None
        body = bytes(collected[_LENGTH.size : end])
        del collected[:end]
        return body


def pack_json(message: Message) -> bytes:
    """An object as JSON in ASCII; raises ValueError or TypeError for what JSON has not."""
    return packed_json(message)


def unpack_json(body: bytes) -> dict[str, Any]:
    """The inverse, of whatever came; raises LinkError."""
    try:
        message = _DECODER.decode(body.decode())
    except RecursionError:
        raise LinkError("a message that is nested too deep") from None
    except ValueError as error:
        raise LinkError(f"a message that is no JSON: {error}") from None
    if not isinstance(message, dict):
        raise LinkError(f"a message that is no object, but a {type(message).__name__}")
    return message
