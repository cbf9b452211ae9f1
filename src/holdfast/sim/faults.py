"""What befalls a fleet from outside, in the order of time: faults, and warnings ahead.

A stream is asked when its next event is, and gives it; it is told when a host is new, since a
host's age counts from there. Faults strike at any time, whatever the run is doing.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from holdfast.core.value import value


class FaultCause(StrEnum):
    """What failed. A process that hangs is noticed late; the others at once."""

    PROCESS = "process"
    HANG = "hang"
    HOST = "host"
    RACK = "rack"
    SLICE = "slice"


IN_PLACE = (FaultCause.PROCESS, FaultCause.HANG)  # no host is lost
TOGETHER = (FaultCause.RACK, FaultCause.SLICE)  # several are


@value
class Fault:
    """A failure. `hosts`: those that are lost, of a rack or slice all that were there.

    Of a process or a hang it is the host where it happened, which stays.
    """

    at_ns: int
    cause: FaultCause
    hosts: tuple[int, ...]


@value
class AnnouncedLoss:
    """A warning that a host will be lost at `deadline_ns`; whether it is right shows only then.

    `comes_true`: the host that is there now will be lost, unless it is replaced before.
    """

    at_ns: int
    host: int
    deadline_ns: int
    comes_true: bool


@value
class Arrival:
    """A machine has come for a host that was lost, or not there yet; only records tell of these."""

    at_ns: int
    host: int


class FaultStream(Protocol):
    """Hosts are numbered from 0; those below `hosts_at_start` are there from the beginning.

    `tells_arrivals`: whether it says itself when a lost host's place is taken.
    """

    tells_arrivals: bool

    @property
    def hosts_at_start(self) -> int:
        """How many hosts there are at time 0."""

    def next_ns(self) -> int | None:
        """When the next event is; None: never again, unless a host is renewed."""

    def pop(self) -> Fault | AnnouncedLoss | Arrival:
        """Take that event. Raises IndexError where there is none."""

    def renewed(self, host: int, at_ns: int) -> None:
        """The host is replaced or repaired: a new one from `at_ns` on, which may lie ahead.

        Whatever the one before it was to suffer or to be warned of does not happen any more.
        """
