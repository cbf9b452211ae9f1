"""A profiler's recording, whichever profiler made it: what ran when, and what it was for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from holdfast.profiles.divide import Interval, united

# The rank marks moments in the trace, by whose names the trace's clock is known: the number is
# CLOCK_BOOTTIME in ns at the beginning of that event.
ANCHOR = "holdfast clock "
NAME_CHARS = 120
MOST_EVENTS = 4_000_000

# What moves data between devices: XLA's operations, NCCL's kernels, PyTorch's own words for both.
COLLECTIVE = re.compile(
    r"(all-reduce|all-gather|all-to-all|reduce-scatter|collective-permute|collective-broadcast"
    r"|ragged-all-to-all|send-done|recv-done|partition-id-send)([.-]|$)"
    r"|nccl(Dev)?Kernel|rccl|oneccl|(nccl|gloo|mpi|xccl|ucc|hccl|c10d|_c10d_functional)::?",
    re.IGNORECASE,
)


class Work(StrEnum):
    """What an event is for. `CONTROL`: it runs others, which are events too (a loop, a call)."""

    COMPUTE = "compute"
    CONTROL = "control"
    COLLECTIVE = "collective"
    INPUT = "input"


class TraceEvent(NamedTuple):
    """Something that ran from `start_ns` to `end_ns`, on the trace's clock.

    `lane`: events of one lane nest, as on a thread or a stream. `flops` and `nbytes`: 0: not known.
    """

    name: str
    work: Work
    lane: int
    start_ns: int
    end_ns: int
    flops: int = 0
    nbytes: int = 0


Busy = Mapping[Work, Sequence[Interval]]


def busy_of(events: Iterable[TraceEvent]) -> Busy:
    """When they ran, by what they were for."""
    found: dict[Work, list[Interval]] = {work: [] for work in Work}
    for event in events:
        found[event.work].append((event.start_ns, event.end_ns))
    return {work: united(each) for work, each in found.items()}


@dataclass(slots=True)
class DeviceTrace:
    """The first device's events, and what the trace tells of its clock.

    `others`: when the other devices were busy. `is_host`: the device is the processor itself, and
    its operations run on threads of the script. `dispatched`: else, when the script's threads were
    at work on operations for it. `anchors`: pairs of the trace's time and CLOCK_BOOTTIME.
    """

    events: list[TraceEvent] = field(default_factory=list)
    others: list[Busy] = field(default_factory=list)
    dispatched: list[Interval] = field(default_factory=list)
    anchors: list[tuple[int, int]] = field(default_factory=list)
    is_host: bool = True

    @property
    def devices(self) -> int:
        """How many there are in the trace."""
        return 1 + len(self.others)

    def add_anchor(self, name: str, at_ns: int) -> bool:
        """Whether that is the name of one; if so it is kept."""
        if not name.startswith(ANCHOR):
            return False
        words = name[len(ANCHOR) :]
        if words.isascii() and words.isdecimal() and len(words) < 20:
            self.anchors.append((at_ns, int(words)))
        return True

    @property
    def offset_ns(self) -> int | None:
        """What is added to CLOCK_BOOTTIME for the trace's time; None: it has no anchor.

        An event begins after its name was made, so the least of the differences is the nearest.
        """
        return min((at_ns - boot_ns for at_ns, boot_ns in self.anchors), default=None)


def is_collective(name: str) -> bool:
    """Whether an operation or a kernel of that name moves data between devices."""
    return COLLECTIVE.match(name.lstrip("%")) is not None
