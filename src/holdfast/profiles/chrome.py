"""What PyTorch's profiler writes: a Chrome trace, JSON with one object an event.

The format is that of Kineto (`export_chrome_trace`): times in microseconds, `cat` says what an
event is. Where a GPU was traced, its kernels and copies are the device's work, and each names by
its `External id` the operation that launched it: of several kernels of one operation the first has
its FLOPs. Else the operations themselves are.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from holdfast.profiles.trace import (
    MOST_EVENTS,
    NAME_CHARS,
    DeviceTrace,
    TraceEvent,
    Work,
    busy_of,
    is_collective,
)

_DEVICE_WORK = ("kernel", "gpu_memcpy", "gpu_memset")
_EVENTS = '"traceEvents"'
_LOADS_DATA = ("enumerate(DataLoader)", "DataLoader")
# Wrap other operations, and are no work of their own.
_WRAPPERS = re.compile(r"ProfilerStep|record_param_comms")
# They run others, or wait for a collective: nodes of autograd, functions of the script's own. Of
# what is compiled there may be no other event.
_CONTROL = re.compile(r"(?!.*[cC]ompiled)(autograd::|[^:]*$)")
_BYTES_OF = {
    "double": 8, "long int": 8, "float": 4, "int": 4, "c10::BFloat16": 2, "c10::Half": 2,
    "c10::Float8_e4m3fn": 1, "c10::Float8_e5m2": 1, "signed char": 1, "unsigned char": 1,
}  # fmt: skip
_PRODUCTS = {"aten::mm": 0, "aten::addmm": 1, "aten::bmm": 0, "aten::baddbmm": 1}
_ATTENTION = re.compile(r"aten::_scaled_dot_product_\w*attention(_for_cpu)?$")


class _OperationCost(NamedTuple):
    """What an operation is called, and what it takes; 0: not known."""

    name: str
    flops: int = 0
    nbytes: int = 0


def read_chrome(data: bytes) -> DeviceTrace:
    """The first device's events, when the others were busy, and the anchors of the clock.

    Raises ValueError for what is no such recording, or has too many events.
    """
    rows = list(_rows(data))
    found = DeviceTrace()
    devices = {row["pid"] for row in rows if row["cat"] in _DEVICE_WORK}
    costs: dict[int, _OperationCost] = {}
    lanes: dict[tuple[Any, Any], int] = {}
    if devices:
        found.is_host = False
        found.dispatched = [(row["start"], row["end"]) for row in rows if row["cat"] == "cpu_op"]
        costs = {row["id"]: _cost(row) for row in rows if row["cat"] == "cpu_op" and row["id"]}
    shared: list[TraceEvent] = []  # of no device, and of each
    of_device: dict[Any, list[TraceEvent]] = {pid: [] for pid in sorted(devices, key=_by_number)}
    for row in rows:
        if found.add_anchor(row["name"], row["start"]):
            continue
        event = _event(row, lanes, costs, is_host=found.is_host)
        if event is not None:
            (of_device[row["pid"]] if row["cat"] in _DEVICE_WORK else shared).append(event)
    first, *others = (each + shared for each in of_device.values() or [[]])
    found.events, found.others = first, [busy_of(each) for each in others]
    return found


def _by_number(pid: object) -> tuple[bool, int, str]:
    return isinstance(pid, str), pid if isinstance(pid, int) else 0, str(pid)


def _rows(data: bytes) -> Iterator[dict[str, Any]]:
    """The complete events, one object at a time: the whole would be ten times as large."""
    try:
        text = data.decode("utf-8", "replace")
        at = text.index("[", text.index(_EVENTS)) + 1
    except ValueError:
        raise ValueError("it has no traceEvents") from None
    decode = json.JSONDecoder(strict=False).raw_decode
    count, end = 0, len(text)
    skip = re.compile(r"[\s,]*").match
    while True:
        gap = skip(text, at)
        at = gap.end() if gap else at
        if at >= end or text[at] == "]":
            return
        try:
            raw, at = decode(text, at)
        except RecursionError:
            raise ValueError("it is nested too deep") from None
        row = _row(raw)
        if row is not None:
            count += 1
            if count > MOST_EVENTS:
                raise ValueError(f"it has more than {MOST_EVENTS:,} events")
            yield row


def _row(raw: object) -> dict[str, Any] | None:
    """What is used of an event that has a beginning and a length; None: it has not."""
    if not isinstance(raw, Mapping) or raw.get("ph") != "X":
        return None
    start, length = _ns(raw.get("ts")), _ns(raw.get("dur"))
    name, args = raw.get("name"), raw.get("args")
    if start is None or length is None or not isinstance(name, str):
        return None
    args = args if isinstance(args, Mapping) else {}
    cat, number = raw.get("cat"), args.get("External id")
    return {
        "name": name[:NAME_CHARS],
        "cat": cat if isinstance(cat, str) else "",
        "pid": _hashable(raw.get("pid")),
        "tid": _hashable(raw.get("tid")),
        "start": start,
        "end": start + max(0, length),
        "id": number if isinstance(number, int) else 0,
        "dims": args.get("Input Dims"),
        "types": args.get("Input type"),
    }


def _ns(value: object) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return round(value * 1000) if math.isfinite(value) and abs(value) < 1e15 else None


def _hashable(value: object) -> object:
    return value if isinstance(value, int | str) else ""


def _event(
    row: dict[str, Any],
    lanes: dict[tuple[Any, Any], int],
    costs: dict[int, _OperationCost],
    *,
    is_host: bool,
) -> TraceEvent | None:
    """The row as an event of the device, or as input; None: it is neither."""
    name, cat = row["name"], row["cat"]
    lane = lanes.setdefault((row["pid"], row["tid"]), len(lanes))
    cost = _OperationCost(name)
    if name.startswith(_LOADS_DATA):
        work = Work.INPUT
    elif cat in _DEVICE_WORK:
        if cat == "kernel" and row["id"] in costs:
            cost = costs[row["id"]]
            costs[row["id"]] = _OperationCost(cost.name)  # its other kernels do the rest of it
        work = Work.INPUT if "HtoD" in name else Work.COMPUTE
        if is_collective(name):
            work, cost = Work.COLLECTIVE, _OperationCost(name)
    elif is_host and is_collective(name):
        work = Work.COLLECTIVE
    elif is_host and cat == "cpu_op" and not _WRAPPERS.match(name):
        work, cost = Work.CONTROL if _CONTROL.match(name) else Work.COMPUTE, _cost(row)
    else:
        return None
    return TraceEvent(cost.name, work, lane, row["start"], row["end"], cost.flops, cost.nbytes)


def _cost(row: dict[str, Any]) -> _OperationCost:
    """FLOPs and bytes of an operation, by the shapes that the profiler has noted."""
    name = row["name"]
    dims, types = row["dims"], row["types"]
    if not isinstance(dims, list) or not isinstance(types, list):
        return _OperationCost(name)
    shapes = [_shape(one) for one in dims]
    if name in _PRODUCTS:
        return _product(name, shapes[_PRODUCTS[name] :][:2], types)
    if _ATTENTION.match(name) and len(shapes) >= 3 and len(shapes[0]) == len(shapes[1]) == 4:
        *heads, queries, size = shapes[0]
        return _OperationCost(name, 4 * math.prod(heads) * queries * size * shapes[1][-2])
    return _OperationCost(name)


def _product(name: str, shapes: list[list[int]], types: list[Any]) -> _OperationCost:
    if len(shapes) != 2 or len(shapes[0]) < 2 or len(shapes[0]) != len(shapes[1]):
        return _OperationCost(name)
    left, right = shapes
    rows, inner, columns = left[-2], left[-1], right[-1]
    many = math.prod(left[:-2])
    kind = types[_PRODUCTS[name]] if len(types) > _PRODUCTS[name] else ""
    width = _BYTES_OF.get(kind, 0) if isinstance(kind, str) else 0
    moved = rows * inner + inner * columns + rows * columns
    return _OperationCost(name, 2 * many * rows * inner * columns, width * many * moved)


def _shape(value: object) -> list[int]:
    """The dimensions of a tensor; empty for anything else, or what cannot be."""
    if not isinstance(value, list) or len(value) > 8:
        return []
    if not all(type(one) is int and 0 <= one < 2**31 for one in value):
        return []
    return value
