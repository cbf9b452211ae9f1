"""What a controller's inputs say that numbers are made of: what was saved where, and suspicions.

A controller journals every input of the run's machine as a line of its own (`core.event_json`).
Those few are read here, one by one and with suspicion, without the machine: which set is sealed in
memory, which is durable, and that a hang is looked into. What an attempt starts from is a fact that
the machine has decided.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast.journal.fields import MAX_ATTEMPT, whole
from holdfast.journal.layout import MAX_TIME_NS
from holdfast.journal.sidecar import Payload

MEMORY, DISK = "memory", "disk"
TIERS = (MEMORY, DISK)

_INPUT = b'{"event":"'
_TELLING = tuple(
    b'%s%s"' % (_INPUT, event)
    for event in (b"Sealed", b"DrainCommitted", b"Chosen", b"StacksCollected")
)
_NEWS, _COMMITTED = b'%sHeard"' % _INPUT, b'"event":"Committed"'


@dataclass(frozen=True, slots=True)
class Kept:
    """A set that restores from a tier: its step, and since when."""

    tier: str
    step: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class WentBack:
    """An attempt starts from that step: what was saved beyond it is of no lineage any more."""

    step: int


@dataclass(frozen=True, slots=True)
class Suspected:
    """Somebody looked where the ranks of an attempt stand, because they seemed to hang."""

    attempt: int
    at_ns: int


Told = Kept | WentBack | Suspected


def may_tell(line: bytes) -> bool:
    """Whether a line of a sidecar has to be read: not an input that says nothing here.

    By its first bytes, as writers write it: of a long run's inputs most are such. A line that
    begins in another way is read.
    """
    if not line.startswith(_INPUT):
        return True
    return line.startswith(_TELLING) or (line.startswith(_NEWS) and _COMMITTED in line)


def parse_input(payload: Payload, offset_ns: int) -> Told | None:
    """The meaning here of an input, or of a fact; None: it has none, or a field cannot be.

    `offset_ns` brings its CLOCK_BOOTTIME time onto the run-wide clock.
    """
    try:
        if payload.get("fact") == "attempt_start" and "resume_step" in payload:
            return WentBack(whole(payload, "resume_step"))
        return _parse(payload, offset_ns)
    except ValueError:
        return None


def _parse(payload: Payload, offset_ns: int) -> Told | None:
    match payload.get("event"):
        case "Sealed":
            return Kept(MEMORY, whole(payload, "step"), _at(payload, offset_ns))
        case "DrainCommitted":
            return Kept(DISK, whole(payload, "step"), _at(payload, offset_ns))
        case "Heard":
            news = payload.get("news")
            if isinstance(news, Mapping) and news.get("event") == "Committed":
                return Kept(DISK, whole(news, "step"), _at(payload, offset_ns))
        case "Chosen":  # in what earlier versions have written
            resume = payload.get("resume")
            if isinstance(resume, Mapping):
                return WentBack(whole(resume, "step"))
        case "StacksCollected":
            attempt = whole(payload, "attempt", high=MAX_ATTEMPT)
            return Suspected(attempt, _at(payload, offset_ns))
    return None


def _at(payload: Payload, offset_ns: int) -> int:
    return whole(payload, "at_ns", high=MAX_TIME_NS) + offset_ns
