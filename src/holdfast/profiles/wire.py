"""Protocol buffers without their library: the fields of a message, as they are on the wire.

The format is that of protobuf.dev/programming-guides/encoding. Groups, which nobody writes, are
refused.
"""

from __future__ import annotations

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_WIDTHS = {_FIXED64: 8, _FIXED32: 4}
MAX_INT64 = 2**63 - 1


def message_fields(data: memoryview) -> Iterator[tuple[int, int | memoryview]]:
    """Each field's number and value: a whole number, or the bytes of anything else.

    Raises ValueError where the bytes are no message.
    """
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at, end)
        number, kind = key >> 3, key & 7
        if kind == _VARINT:
            value, at = _varint(data, at, end)
            yield number, value
            continue
        if kind == _BYTES:
            size, at = _varint(data, at, end)
        elif kind in _WIDTHS:
            size = _WIDTHS[kind]
        else:
            raise ValueError(f"a field of kind {kind}, which there is not")
        if size > end - at:
            raise ValueError("a field is cut short")
        yield number, data[at : at + size]
        at += size


def _varint(data: memoryview, at: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while at < end:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
        shift += 7
        if shift > 63:
            break
    raise ValueError("a number is cut short, or too long")


def as_int(value: int | memoryview) -> int:
    """A field that holds a whole number; anything else is 0."""
    if isinstance(value, memoryview):
        return 0
    return value if value <= MAX_INT64 else value - 2**64


def as_text(value: int | memoryview, most_chars: int = 1000) -> str:
    """A field that holds text, its beginning; anything else is empty."""
    if not isinstance(value, memoryview):
        return ""
    return bytes(value[: 4 * most_chars]).decode("utf-8", "replace")[:most_chars]


def as_bytes(value: int | memoryview) -> memoryview:
    """A field that holds bytes, or another message; anything else is empty."""
    return value if isinstance(value, memoryview) else memoryview(b"")


def packed_ints(value: int | memoryview) -> list[int]:
    """A repeated field of whole numbers: one of them, or many in one piece."""
    if not isinstance(value, memoryview):
        return [as_int(value)]
    found, at, end = [], 0, len(value)
    while at < end:
        number, at = _varint(value, at, end)
        found.append(as_int(number))
    return found
