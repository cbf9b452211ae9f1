"""Where a step's time goes: what is made of a trace and of what the rank tells beside it."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from holdfast.journal import fields
from holdfast.profiles.capture import Capture
from holdfast.profiles.divide import Interval, divided, self_times, united, without
from holdfast.profiles.trace import NAME_CHARS, Busy, DeviceTrace, TraceEvent, Work, busy_of

FORMAT = 1
MAX_BYTES = 1 << 20
MOST_OPERATIONS = 12
MOST_COUNT = 10**30  # of FLOPs and bytes: more is a mistake of the trace
PARTS = ("compute", "collective", "input", "host", "idle")
PART_WORDS = {
    "compute": "the device computes",
    "collective": "it exchanges data with others, and computes nothing meanwhile",
    "input": "it waits for data",
    "host": "it waits for the script: Python, dispatch, a save, a compilation",
    "idle": "the script waits as well, for none of these",
}
AHEAD = "Steps are uneven: a script may be ahead of its device. The steps together are exact."
UNEVEN = 3
_INPUT_SPAN = "data"


@dataclass(frozen=True, slots=True)
class ProfiledStep:
    """One step, and the parts of its time in ns, which sum up to it."""

    step: int
    wall_ns: int
    parts: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Operation:
    """All calls of an operation within the window. `flops`, `nbytes`: 0: not known.

    `self_ns`: without the operations inside of it.
    """

    name: str
    work: str
    calls: int
    self_ns: int
    flops: int
    nbytes: int


@dataclass(frozen=True, slots=True)
class ProfileSummary:
    """A profile of one rank's device. `devices`: how many the rank has, of which it is the first.

    `operations`: the longest, in order. `others`: of each of the other devices the parts of the
    window, which sum up to it; a summary of an older version has none.
    """

    attempt: int
    rank: int
    framework: str
    version: str
    device: str
    devices: int
    is_host: bool
    at_unix_ns: int
    note: str
    steps: tuple[ProfiledStep, ...]
    operations: tuple[Operation, ...]
    others: tuple[Mapping[str, int], ...] = ()

    @property
    def wall_ns(self) -> int:
        """The length of the window."""
        return sum(one.wall_ns for one in self.steps)

    @property
    def parts(self) -> dict[str, int]:
        """The parts of all steps together."""
        return {name: sum(one.parts[name] for one in self.steps) for name in PARTS}

    @property
    def is_ahead(self) -> bool:
        """Whether the script seems to be ahead of the device: single steps say little then."""
        walls = [one.wall_ns for one in self.steps]
        return bool(walls) and max(walls) > UNEVEN * min(walls)

    def to_json(self) -> dict[str, Any]:
        """As it is stored, and as it stands in a report."""
        return {
            "format": FORMAT,
            **{name: getattr(self, name) for name in _PLAIN},
            "wall_ns": self.wall_ns,
            "parts_ns": self.parts,
            "others_ns": [dict(one) for one in self.others],
            "steps": [
                {"step": one.step, "wall_ns": one.wall_ns, "parts_ns": dict(one.parts)}
                for one in self.steps
            ],
            "operations": [asdict(one) for one in self.operations],
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> ProfileSummary:
        """The inverse. Raises ValueError for what cannot be."""
        if fields.whole(raw, "format") != FORMAT:
            raise ValueError("a newer Holdfast wrote it; upgrade")
        if type(raw.get("is_host")) is not bool:
            raise ValueError("its is_host is no truth value")
        return cls(
            attempt=fields.whole(raw, "attempt", high=fields.MAX_ATTEMPT),
            rank=fields.whole(raw, "rank", high=fields.MAX_RANKS),
            framework=fields.text(raw, "framework"),
            version=fields.text(raw, "version"),
            device=fields.text(raw, "device"),
            devices=fields.whole(raw, "devices", high=fields.MAX_RANKS),
            is_host=raw["is_host"],
            at_unix_ns=fields.whole(raw, "at_unix_ns"),
            note=fields.text(raw, "note"),
            steps=tuple(_step(one) for one in _objects(raw, "steps")),
            operations=tuple(_operation(one) for one in _objects(raw, "operations")),
            others=tuple(_parts(one) for one in _objects({"others_ns": [], **raw}, "others_ns")),
        )


_PLAIN = (
    "attempt", "rank", "framework", "version", "device", "devices", "is_host", "at_unix_ns", "note",
)  # fmt: skip


def _objects(raw: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    rows = fields.field(raw, key)
    if not isinstance(rows, list) or not all(isinstance(one, dict) for one in rows):
        raise ValueError(f"its {key} are no list of objects")
    return rows


def _step(raw: Mapping[str, Any]) -> ProfiledStep:
    parts = fields.field(raw, "parts_ns")
    if not isinstance(parts, dict):
        raise ValueError("its parts_ns are no object")
    wall_ns, checked = fields.whole(raw, "wall_ns"), _parts(parts)
    if sum(checked.values()) != wall_ns:
        raise ValueError("its parts do not sum up")
    return ProfiledStep(fields.whole(raw, "step"), wall_ns, checked)


def _parts(raw: Mapping[str, Any]) -> dict[str, int]:
    return {name: fields.whole(raw, name) for name in PARTS}


def _operation(raw: Mapping[str, Any]) -> Operation:
    return Operation(
        fields.text(raw, "name")[:NAME_CHARS],
        fields.text(raw, "work")[:NAME_CHARS],
        fields.whole(raw, "calls"),
        fields.whole(raw, "self_ns"),
        fields.whole(raw, "flops", high=MOST_COUNT),
        fields.whole(raw, "nbytes", high=MOST_COUNT),
    )


def summarise(trace: DeviceTrace, capture: Capture) -> ProfileSummary:
    """The window's steps and operations. Raises ValueError where the trace's clock is not known."""
    offset_ns = trace.offset_ns
    if offset_ns is None:
        raise ValueError("the trace does not have the marks that tell its clock")
    edges = [at_ns + offset_ns for _, at_ns in capture.edges]
    told = united(
        (start + offset_ns, end + offset_ns)
        for kind, start, end in capture.spans
        if kind == _INPUT_SPAN
    )
    # PyTorch has a thread of its own for the backward pass on a GPU: the script's waits for it.
    waited = without(list(_waited(capture.ran, offset_ns)), united(trace.dispatched))

    def parts(edges: list[int], busy: Busy) -> Iterator[dict[str, int]]:
        layers = {**_layers(busy, told, is_host=trace.is_host), "idle": waited}
        for one in divided(edges, layers, "host"):
            one["compute"] += one[Work.CONTROL]
            yield {name: one[name] for name in PARTS}

    first = parts(edges, busy_of(trace.events))
    steps = [
        ProfiledStep(step, end - start, each)
        for (step, _), (start, end), each in zip(
            capture.edges[1:], pairwise(edges), first, strict=True
        )
    ]
    window = (edges[0], edges[-1]) if edges else (0, 0)
    return ProfileSummary(
        capture.attempt,
        capture.rank,
        capture.framework,
        capture.version,
        capture.device,
        trace.devices,
        trace.is_host,
        capture.at_unix_ns,
        capture.note,
        tuple(steps),
        tuple(_operations(trace.events, window)),
        tuple(one for busy in trace.others for one in parts([*window], busy)),
    )


def _layers(busy: Busy, told: list[Interval], *, is_host: bool) -> dict[str, Iterable[Interval]]:
    """What claims a moment, the first one first.

    Where the operations run on the script's own threads, those that make a batch are input. A loop
    computes as long as nothing within it exchanges data.
    """
    waited = united([*busy[Work.INPUT], *told])
    compute, control = busy[Work.COMPUTE], busy[Work.CONTROL]
    if is_host:
        compute, control = without(compute, waited), without(control, waited)
    return {
        "compute": compute,
        "collective": busy[Work.COLLECTIVE],
        Work.CONTROL: control,
        "input": waited,
    }


def _waited(ran: Iterable[tuple[int, int]], offset_ns: int) -> Iterator[Interval]:
    """From one look to the next, where the training's thread ran for less than half of that."""
    for (start, before), (end, after) in pairwise(ran):
        if 2 * (after - before) < end - start:
            yield start + offset_ns, end + offset_ns


def _operations(events: list[TraceEvent], window: Interval) -> list[Operation]:
    """The longest of those that began within the window."""
    by_lane: dict[int, list[TraceEvent]] = {}
    for event in events:
        if window[0] <= event.start_ns < window[1]:
            by_lane.setdefault(event.lane, []).append(event)
    sums: dict[tuple[str, str], list[int]] = {}
    for lane in by_lane.values():
        own = self_times([(one.start_ns, one.end_ns) for one in lane])
        for event, ns in zip(lane, own, strict=True):
            work = Work.COMPUTE if event.work is Work.CONTROL else event.work
            into = sums.setdefault((event.name, str(work)), [0, 0, 0, 0])
            for place, more in enumerate((1, ns, event.flops, event.nbytes)):
                into[place] = min(into[place] + more, MOST_COUNT)
    found = [Operation(name, work, *numbers) for (name, work), numbers in sums.items()]
    found.sort(key=lambda one: (-one.self_ns, one.name))
    return found[:MOST_OPERATIONS]


def read_summary(data: bytes) -> ProfileSummary:
    """Raises ValueError for what is none."""
    raw = fields.load_json(data)
    if not isinstance(raw, dict):
        raise ValueError("it is no JSON object")
    return ProfileSummary.from_json(raw)


def summary_bytes(summary: ProfileSummary) -> bytes:
    """As it is stored."""
    return json.dumps(summary.to_json(), indent=1).encode() + b"\n"
