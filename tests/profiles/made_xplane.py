"""An XSpace made by hand, field by field, as xplane.proto has them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Stat = int | float | str | bytes


def varint(number: int) -> bytes:
    number &= 2**64 - 1
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def field(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


class MadePlane:
    """One plane; names become metadata as they are met."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.lines: list[bytes] = []
        self.metas: dict[tuple[str, tuple[tuple[str, Stat], ...]], int] = {}
        self.stats: dict[str, int] = {}

    def line(self, name: str, events: Iterable[tuple[str, int, int]], **meta: Stat) -> None:
        """Events as (name, start, end) in ns, all of them with the stats `meta` of their kind."""
        data = field(2, name) + field(3, 1000)
        for event, start, end in events:
            kind = self.metas.setdefault((event, tuple(meta.items())), len(self.metas) + 1)
            one = field(1, kind) + field(2, (start - 1000) * 1000) + field(3, (end - start) * 1000)
            data += field(4, one)
        self.lines.append(data)

    def _stats(self, stats: Mapping[str, Stat], number: int) -> bytes:
        found = b""
        for name, value in stats.items():
            key = self.stats.setdefault(name, len(self.stats) + 1)
            place = {str: 5, bytes: 6}.get(type(value), 4)
            found += field(number, field(1, key) + field(place, value))  # type: ignore[arg-type]
        return found

    def encode(self) -> bytes:
        data = field(2, self.name)
        for line in self.lines:
            data += field(3, line)
        for (name, stats), key in self.metas.items():
            meta = field(1, key) + field(2, name) + self._stats(dict(stats), 5)
            data += field(4, field(1, key) + field(2, meta))
        for name, key in self.stats.items():
            data += field(5, field(1, key) + field(2, field(1, key) + field(2, name)))
        return data


def program(number: int, **opcodes: str) -> MadePlane:
    """The HLO of a program, as JAX's profiler keeps it: its operations, and which they are."""
    made = b"".join(
        field(2, field(1, name) + field(2, opcode) + field(35, at))
        for at, (name, opcode) in enumerate(opcodes.items())
    )
    hlo = field(1, field(3, field(5, 1) + made))
    plane = MadePlane("/host:metadata")
    plane.line("", [("jit_step", 0, 0)], **{"program_id": number, "Hlo Proto": hlo})
    return plane


def xspace(*planes: MadePlane) -> bytes:
    return b"".join(field(1, plane.encode()) for plane in planes)
