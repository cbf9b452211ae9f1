"""TensorBoard's event files: the scalars in them, each with the moment at which it was written.

An event file is a row of records: length (8 bytes, little-endian), masked CRC32C of those, the
data, masked CRC32C of the data. The data are a protocol buffer, whose fields stand in TensorFlow's
event.proto and summary.proto; the few that matter are read here, by their numbers.
"""

from __future__ import annotations

import struct
from collections.abc import Generator, Iterator
from itertools import count
from pathlib import Path
from typing import IO, NamedTuple

from holdfast.convert.asked import MAX_NS
from holdfast.convert.lines import opened
from holdfast.convert.notes import LogPlace, Notes
from holdfast.core.durations import SECOND_NS
from holdfast.errors import ConfigurationError

LARGEST_BYTES = 1 << 16  # a record of scalars is far smaller; pictures and the like are larger
MAX_TAG_BYTES = 300
_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
# Keys of fields: eight times their number, and how they are written (0: a number; 1 and 5: eight
# and four bytes; 2: a length, and so many bytes). Of an event:
_WALL_TIME, _STEP, _FILE_VERSION, _SUMMARY = 0x09, 0x10, 0x1A, 0x2A
_VALUE = 0x0A  # of a summary
_TAG, _SIMPLE_VALUE, _TENSOR = 0x0A, 0x15, 0x42  # of a value
_DTYPE, _CONTENT, _FLOATS, _FLOAT = 0x08, 0x22, 0x2A, 0x2D  # of a tensor
_DT_FLOAT = 1


class Scalar(NamedTuple):
    """One value; `tag` is empty for what only says that the file was begun."""

    place: LogPlace
    at_ns: int
    step: int
    tag: str
    value: float


def scalars(path: Path, notes: Notes) -> Generator[Scalar, None, None]:
    """The scalars of an event file, in its order. What is damaged is noted, and left out.

    Raises ConfigurationError when it is no event file.
    """
    for number, data in _records(path, notes):
        place = LogPlace(str(path), number)
        try:
            at_s, step, found = _event(data)
        except (ValueError, IndexError, struct.error):
            notes.odd(place, "a record that is not an event: left out")
            continue
        if not abs(at_s) <= MAX_NS / SECOND_NS:  # NaN is on neither side
            notes.odd(place, "a record with a time that cannot be: left out")
            continue
        for tag, value in found:
            yield Scalar(place, round(at_s * SECOND_NS), step, tag, value)


def _event(data: bytes) -> tuple[float, int, list[tuple[str, float]]]:
    """Its time in seconds, its step, and what it tells: tags and values."""
    at_s, step = 0.0, 0
    found: list[tuple[str, float]] = []
    for key, number, content in _fields(data):
        if key == _WALL_TIME:
            (at_s,) = struct.unpack("<d", content)
        elif key == _STEP:
            step = number
        elif key == _FILE_VERSION:
            found.append(("", 0.0))
        elif key == _SUMMARY:
            found += [v for k, _, value in _fields(content) if k == _VALUE for v in _value(value)]
    return at_s, step, found


def _value(data: bytes) -> Iterator[tuple[str, float]]:
    """A tag and its number, in its older or newer form; nothing for what is none."""
    tag, number = "", None
    for key, _, content in _fields(data):
        if key == _TAG:
            tag = content[:MAX_TAG_BYTES].decode("utf-8", "replace")
        elif key == _SIMPLE_VALUE:
            number = content
        elif key == _TENSOR and number is None:
            tensor = {k: (n, c) for k, n, c in _fields(content)}
            if tensor.get(_DTYPE, (0, b""))[0] == _DT_FLOAT:
                numbers = (tensor[k][1] for k in (_FLOAT, _FLOATS, _CONTENT) if k in tensor)
                number = next((content for content in numbers if len(content) == 4), None)
    if tag and number is not None:
        yield tag, struct.unpack("<f", number)[0]


def _fields(data: bytes) -> Iterator[tuple[int, int, bytes]]:
    """Key, number, content of each field; raises ValueError or IndexError where it breaks off."""
    at = 0
    while at < len(data):
        key, at = _number(data, at)
        number = {1: 8, 5: 4}.get(key & 7)
        if number is None:
            number, at = _number(data, at)
        end = at if key & 7 == 0 else at + number
        if key & 7 not in (0, 1, 2, 5) or not key >> 3 or end > len(data):
            raise ValueError("no field")
        yield key, number, data[at:end]
        at = end


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of seven bits a byte, the lowest first, and where it ends."""
    number = 0
    for shift in range(0, 70, 7):
        byte = data[at + shift // 7]
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at + shift // 7 + 1
    raise ValueError("no number")


def _records(path: Path, notes: Notes) -> Iterator[tuple[int, bytes]]:
    """Each record's number and data; after a damaged length nothing more can be found."""
    with opened(path) as file:
        for number in count(1):
            place = LogPlace(str(path), number)
            start = file.read(_HEAD.size)
            if not start:
                return
            trouble = "the file breaks off within a record: left out"
            if len(start) == _HEAD.size:
                length, length_crc = _HEAD.unpack(start)
                if _masked_crc(start[:8]) != length_crc:
                    trouble = "a damaged record: the file's rest is left out"
                elif length > LARGEST_BYTES:
                    if _skip(file, length + _CRC.size):
                        continue
                else:
                    data, data_crc = file.read(length), file.read(_CRC.size)
                    if len(data_crc) == _CRC.size:
                        if _CRC.pack(_masked_crc(data)) == data_crc:
                            yield number, data
                        else:
                            notes.odd(place, "a damaged record: left out")
                        continue
            if number == 1:
                raise ConfigurationError(f"{path} is not a TensorBoard event file")
            notes.odd(place, trouble)
            return


def _skip(file: IO[bytes], length: int) -> bool:
    """Whether the file had so many bytes more."""
    while length and (gone := file.read(min(length, LARGEST_BYTES))):
        length -= len(gone)
    return not length


def _masked_crc(data: bytes) -> int:
    """CRC32C (Castagnoli), turned and shifted as TensorFlow does."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC_OF[(crc ^ byte) & 0xFF] ^ crc >> 8
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _crc_of(byte: int) -> int:
    for _ in range(8):
        byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC_OF = tuple(map(_crc_of, range(256)))
