"""What JAX's profiler writes: an XSpace of planes, each with lines of events (xplane.proto of XLA).

A TPU or GPU has a plane of its own, `/device:TPU:0`. Of a TPU the line `XLA Ops` is what its core
did, and `Async XLA Ops` what went on beside that; of a GPU the lines are its streams. On a CPU the
operations are events of the host's threads, which say so (`hlo_op`).
"""

from __future__ import annotations

import contextlib
import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

from holdfast.profiles.hlo import MAX_HLO_BYTES, HloCost, hlo_costs
from holdfast.profiles.trace import (
    MOST_EVENTS,
    NAME_CHARS,
    DeviceTrace,
    TraceEvent,
    Work,
    busy_of,
    is_collective,
)
from holdfast.profiles.wire import as_bytes, as_int, as_text, message_fields

_DEVICE = re.compile(r"/device:(TPU|GPU|CUSTOM):(\d{1,6})")
_HOST, _PROGRAMS = "/host:CPU", "/host:metadata"
_HLO = "Hlo Proto"
_OPS, _ASYNC_OPS = "XLA Ops", "Async XLA Ops"
_WANTED = frozenset(
    {"hlo_op", "hlo_category", "flops", "model_flops", "bytes_accessed", "device_ordinal",
     "program_id"}
)  # fmt: skip
_INPUT = re.compile(r"%?(infeed|host-to-device)", re.IGNORECASE)
_CONTROL = re.compile(r"%?(while|conditional|call)([.-]?\d+)?")
_PS = 1000

Value = int | str


class _Meta(NamedTuple):
    """What all events of a kind have in common."""

    name: str
    stats: dict[str, Value]


@dataclass(slots=True)
class _Plane:
    """A plane, its tables read, its lines still bytes."""

    name: str = ""
    lines: list[memoryview] = field(default_factory=list)
    metas: dict[int, _Meta] = field(default_factory=dict)
    programs: dict[int, memoryview] = field(default_factory=dict)  # of `_PROGRAMS`: their HLO
    names: dict[int, str] = field(default_factory=dict)  # of stats


class _Happened(NamedTuple):
    """An event of a line."""

    meta: _Meta
    start_ns: int
    end_ns: int
    stats: dict[str, Value]


def read_xspace(data: bytes) -> DeviceTrace:
    """The first device's events, when the others were busy, and the anchors of the clock.

    Raises ValueError for what is no such recording, or has too many events.
    """
    planes = [
        _plane(as_bytes(value)) for number, value in message_fields(memoryview(data)) if number == 1
    ]
    found, programs = DeviceTrace(), _Programs(planes)
    devices = sorted(
        ((int(match[2]), plane) for plane in planes if (match := _DEVICE.fullmatch(plane.name))),
        key=lambda one: one[0],
    )
    if devices:
        found.is_host = False
        found.events = _read_device(devices[0][1], programs)
        found.others = [busy_of(_read_device(plane, programs)) for _, plane in devices[1:]]
    for plane in planes:
        if plane.name == _HOST:
            _read_host(found, plane, programs)
    return found


def _plane(data: memoryview) -> _Plane:
    plane = _Plane()
    kinds = []
    for number, value in message_fields(data):
        if number == 2:
            plane.name = as_text(value, NAME_CHARS)
        elif number == 3:
            plane.lines.append(as_bytes(value))
        elif number == 4:
            kinds.append(as_bytes(value))
        elif number == 5:
            key, entry = _entry(as_bytes(value))
            for inner, text in message_fields(entry):
                if inner == 2:
                    plane.names[key] = as_text(text, NAME_CHARS)
    for one in kinds:
        key, entry = _entry(one)
        if plane.name == _PROGRAMS:
            _add_program(plane, entry)
        else:
            plane.metas[key] = _meta(entry, plane.names)
    return plane


def _add_program(plane: _Plane, data: memoryview) -> None:
    """The HLO of a program, by the number that its operations name."""
    meta, hlo = _meta(data, plane.names), memoryview(b"")
    for number, value in message_fields(data):
        if number != 5:
            continue
        of = dict(message_fields(as_bytes(value)))
        if plane.names.get(as_int(of.get(1, 0))) == _HLO:
            hlo = as_bytes(of.get(6, 0))
    program = meta.stats.get("program_id")
    if isinstance(program, int) and 0 < len(hlo) <= MAX_HLO_BYTES:
        plane.programs[program] = hlo


class _Programs:
    """What the operations of the programs take, each read when one of its operations is met."""

    def __init__(self, planes: list[_Plane]) -> None:
        self._hlo = {key: hlo for plane in planes for key, hlo in plane.programs.items()}
        self._costs: dict[int, dict[str, HloCost]] = {}

    def cost(self, stats: dict[str, Value], name: str) -> HloCost:
        """Of the operation of that name; zeros where it is not known."""
        program = stats.get("program_id")
        if not isinstance(program, int):
            return HloCost()
        if program not in self._costs:
            self._costs[program] = {}
            with contextlib.suppress(ValueError):
                self._costs[program] = hlo_costs(self._hlo.get(program, memoryview(b"")))
        return self._costs[program].get(name, HloCost())


def _entry(data: memoryview) -> tuple[int, memoryview]:
    """An entry of a map: its key and its value."""
    key, entry = 0, memoryview(b"")
    for number, value in message_fields(data):
        if number == 1:
            key = as_int(value)
        elif number == 2:
            entry = as_bytes(value)
    return key, entry


def _meta(data: memoryview, names: dict[int, str]) -> _Meta:
    name = display = ""
    stats: dict[str, Value] = {}
    for number, value in message_fields(data):
        if number == 2:
            name = as_text(value, NAME_CHARS)
        elif number == 4:
            display = as_text(value, NAME_CHARS)
        elif number == 5:
            _add_stat(stats, as_bytes(value), names)
    return _Meta(display or name, stats)


def _add_stat(stats: dict[str, Value], data: memoryview, names: dict[int, str]) -> None:
    name = ""
    for number, value in message_fields(data):
        if number == 1:
            name = names.get(as_int(value), "")
            if name not in _WANTED:
                return
        elif number == 2 and isinstance(value, memoryview) and len(value) == 8:
            stats[name] = _whole(struct.unpack("<d", value)[0])
        elif number in (3, 4):
            stats[name] = as_int(value)
        elif number == 5:
            stats[name] = as_text(value, NAME_CHARS)
        elif number == 7:
            stats[name] = names.get(as_int(value), "")


def _whole(value: float) -> int:
    return int(value) if 0 <= value < 2**63 else 0


def _line(data: memoryview, plane: _Plane, room: int) -> tuple[str, Iterator[_Happened]]:
    """A line's name, and its events."""
    name, base_ns, events = "", 0, []
    for number, value in message_fields(data):
        if number == 2:
            name = as_text(value, NAME_CHARS)
        elif number == 3:
            base_ns = as_int(value)
        elif number == 4:
            events.append(as_bytes(value))
    if len(events) > room:
        raise ValueError(f"it has more than {MOST_EVENTS:,} events")
    return name, (_event(one, base_ns, plane) for one in events)


def _event(data: memoryview, base_ns: int, plane: _Plane) -> _Happened:
    kind = offset_ps = duration_ps = 0
    stats: dict[str, Value] = {}
    for number, value in message_fields(data):
        if number == 1:
            kind = as_int(value)
        elif number == 2:
            offset_ps = as_int(value)
        elif number == 3:
            duration_ps = as_int(value)
        elif number == 4:
            _add_stat(stats, as_bytes(value), plane.names)
    start_ns = base_ns + offset_ps // _PS
    end_ns = base_ns + (offset_ps + max(0, duration_ps)) // _PS
    return _Happened(plane.metas.get(kind, _Meta("", {})), start_ns, end_ns, stats)


def _read_device(plane: _Plane, programs: _Programs) -> list[TraceEvent]:
    room, found = MOST_EVENTS, list[TraceEvent]()
    is_gpu = "GPU" in plane.name
    for lane, data in enumerate(plane.lines):
        name, events = _line(data, plane, room)
        if is_gpu and not name.startswith("Stream"):
            continue
        if not is_gpu and name not in (_OPS, _ASYNC_OPS):
            continue
        is_beside = name == _ASYNC_OPS
        for one in events:
            event = _of_device(one, lane, programs)
            # What goes on beside the core counts where it is a collective: the rest is its copies.
            if not is_beside or event.work in (Work.COLLECTIVE, Work.INPUT):
                found.append(event)
        room = MOST_EVENTS - len(found)
    return found


def _of_device(one: _Happened, lane: int, programs: _Programs) -> TraceEvent:
    stats = one.meta.stats | one.stats
    name = str(stats.get("hlo_op") or one.meta.name)
    flops = _count(stats, "flops") or _count(stats, "model_flops")
    nbytes = _count(stats, "bytes_accessed")
    cost = HloCost() if flops or nbytes else programs.cost(stats, name)
    # JAX names operations by its own words ("psum.7"): what they are, their program tells.
    kinds = (name, str(stats.get("hlo_category", "")), cost.opcode)
    work = Work.COMPUTE
    if any(map(is_collective, (*kinds, one.meta.name))):
        work = Work.COLLECTIVE
    elif any(map(_INPUT.match, kinds)) or "H2D" in one.meta.name:
        work = Work.INPUT
    elif any(map(_CONTROL.fullmatch, kinds)):
        work = Work.CONTROL
    elif not (flops or nbytes):
        flops, nbytes = cost.flops, cost.nbytes
    return TraceEvent(name, work, lane, one.start_ns, one.end_ns, flops, nbytes)


def _count(stats: dict[str, Value], name: str) -> int:
    value = stats.get(name, 0)
    return value if isinstance(value, int) and value > 0 else 0


def _read_host(found: DeviceTrace, plane: _Plane, programs: _Programs) -> None:
    """Anchors; and where there is no other device, the operations of the CPU's."""
    room = MOST_EVENTS
    by_device: dict[int, list[TraceEvent]] = {}
    for lane, data in enumerate(plane.lines):
        _, events = _line(data, plane, room)
        for one in events:
            if found.add_anchor(one.meta.name, one.start_ns):
                continue
            if found.is_host and "hlo_op" in one.stats:
                device = _count(one.stats, "device_ordinal")
                by_device.setdefault(device, []).append(_of_device(one, lane, programs))
        room = MOST_EVENTS - sum(map(len, by_device.values()))
    if by_device:
        found.events, *others = (by_device[device] for device in sorted(by_device))
        found.others = [busy_of(events) for events in others]
