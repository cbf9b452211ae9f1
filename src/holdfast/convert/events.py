"""TensorBoard's event files: the scalars in them, each with the moment at which it was written.

An event file is a row of records: length (8 bytes, little-endian), masked CRC32C of those, the
data, masked CRC32C of the data. The data are a protocol buffer; its fields, of which few are named
here, stand in TensorFlow's event.proto and summary.proto. The libraries are `holdfast-ml[logs]`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Generator, Iterator
from functools import cache
from itertools import count
from pathlib import Path
from typing import IO, Any, NamedTuple

from holdfast.convert.asked import MAX_NS, NS_PER_S
from holdfast.convert.lines import opened
from holdfast.convert.notes import Notes
from holdfast.convert.seen import LogPlace
from holdfast.errors import ConfigurationError, needs_extra

LARGEST_BYTES = 1 << 16  # a record of scalars is far smaller; pictures and the like are larger
MAX_TAG_BYTES = 300
_HEAD = struct.Struct("<QI")
_CRC = struct.Struct("<I")
_DOUBLE, _FLOAT, _INT64, _INT32, _MESSAGE, _BYTES = 1, 2, 3, 5, 11, 12
_MESSAGES = {
    "Event": (("wall_time", 1, _DOUBLE), ("step", 2, _INT64), ("file_version", 3, _BYTES),
              ("summary", 5, "Summary")),
    "Summary": (("value", 1, "Value*"),),
    "Value": (("tag", 1, _BYTES), ("simple_value", 2, _FLOAT), ("tensor", 8, "Tensor")),
    "Tensor": (("dtype", 1, _INT32), ("tensor_content", 4, _BYTES), ("float_val", 5, f"{_FLOAT}*")),
}  # fmt: skip


class Scalar(NamedTuple):
    """One value; `tag` is empty for what only says that the file was begun."""

    place: LogPlace
    at_ns: int
    step: int
    tag: str
    value: float


def scalars(path: Path, notes: Notes) -> Generator[Scalar, None, None]:
    """The scalars of an event file, in its order. What is damaged is noted, and left out.

    Raises ConfigurationError when it is no event file, or the libraries are missing.
    """
    parse = _parser()
    for number, data in _records(path, notes):
        place = LogPlace(str(path), number)
        try:
            event = parse(data)
        except Exception as error:
            if type(error).__name__ != "DecodeError":  # of protobuf, which is imported lazily
                raise
            notes.odd(place, "a record that is not an event: left out")
            continue
        at_s = event.wall_time
        if not abs(at_s) <= MAX_NS / NS_PER_S:  # NaN is on neither side
            notes.odd(place, "a record with a time that cannot be: left out")
            continue
        at_ns = round(at_s * NS_PER_S)
        if event.file_version:
            yield Scalar(place, at_ns, 0, "", 0.0)
        for value in event.summary.value:
            number_of = _number(value)
            if number_of is not None and value.tag:
                tag = value.tag[:MAX_TAG_BYTES].decode("utf-8", "replace")
                yield Scalar(place, at_ns, event.step, tag, number_of)


def _number(value: Any) -> float | None:
    """The number in a summary's value, in its older or newer form."""
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if not value.HasField("tensor") or value.tensor.dtype != 1:  # DT_FLOAT
        return None
    if len(value.tensor.float_val) == 1:
        return float(value.tensor.float_val[0])
    content = value.tensor.tensor_content
    return float(struct.unpack("<f", content)[0]) if len(content) == 4 else None


def _records(path: Path, notes: Notes) -> Iterator[tuple[int, bytes]]:
    """Each record's number and data; after a damaged length nothing more can be found."""
    crc = _crc()
    with opened(path) as file:
        for number in count(1):
            place = LogPlace(str(path), number)
            start = file.read(_HEAD.size)
            if not start:
                return
            trouble = "the file breaks off within a record: left out"
            if len(start) == _HEAD.size:
                length, length_crc = _HEAD.unpack(start)
                if _masked(crc(start[:8])) != length_crc:
                    trouble = "a damaged record: the file's rest is left out"
                elif length > LARGEST_BYTES:
                    if _skip(file, length + _CRC.size):
                        continue
                else:
                    data, data_crc = file.read(length), file.read(_CRC.size)
                    if len(data_crc) == _CRC.size:
                        if _masked(crc(data)) == _CRC.unpack(data_crc)[0]:
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


def _masked(crc: int) -> int:
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


def _missing(error: ImportError) -> ConfigurationError:
    return ConfigurationError(needs_extra(f"TensorBoard's event files ({error.name}) need", "logs"))


def _crc() -> Callable[[bytes], int]:
    try:
        from google_crc32c import value
    except ImportError as error:
        raise _missing(error) from None
    found: Callable[[bytes], int] = value
    return found


@cache
def _parser() -> Callable[[bytes], Any]:
    """What reads an event; unknown fields are skipped."""
    try:
        from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    except ImportError as error:
        raise _missing(error) from None
    file = descriptor_pb2.FileDescriptorProto(name="holdfast_events.proto", syntax="proto2")
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            many = str(kind).endswith("*")
            kind = kind.removesuffix("*") if isinstance(kind, str) else kind
            added = message.field.add(name=field, number=number, label=3 if many else 1)
            if str(kind).isdigit():
                added.type = int(kind)
            else:
                added.type, added.type_name = _MESSAGE, f".{kind}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    event: Any = message_factory.GetMessageClass(pool.FindMessageTypeByName("Event"))
    parse: Callable[[bytes], Any] = event.FromString
    return parse
