"""What FACT notes say: parsed, checked, and brought onto the run-wide clock.

Some are facts as they stand. Others are only one side of one: that an attempt started, that it
ended. `recorded` puts those together.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core.facts import CapacityFact, FaultFact, NoticeFact, WaitFact
from holdfast.journal.sidecar import Payload


@dataclass(frozen=True, slots=True)
class RunStated:
    """The run: its name, when its resources were asked for, and how many chips it has."""

    name: str
    requested_ns: int
    chips: int


@dataclass(frozen=True, slots=True)
class AttemptStarted:
    """All processes of an attempt were launched."""

    attempt: int
    at_ns: int


@dataclass(frozen=True, slots=True)
class AttemptEnded:
    """All processes of an attempt were gone."""

    attempt: int
    at_ns: int
    cause: str | None


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run was over; void if an attempt starts later."""

    at_ns: int


Statement = (
    RunStated
    | AttemptStarted
    | AttemptEnded
    | RunEnded
    | WaitFact
    | FaultFact
    | NoticeFact
    | CapacityFact
)


def parse_statement(payload: Payload, offset_ns: int) -> Statement | None:
    """A FACT note's meaning; None when it has none (a field is missing, or of another type).

    `offset_ns` brings its CLOCK_BOOTTIME times onto the run-wide clock.
    """
    try:
        return _parse(payload, offset_ns)
    except (KeyError, TypeError, ValueError):
        return None


def _parse(payload: Payload, offset_ns: int) -> Statement | None:
    def at(key: str) -> int:
        return int(payload[key]) + offset_ns

    match payload["fact"]:
        case "run":
            return RunStated(
                str(payload["name"]), at("requested_ns"), max(1, int(payload["chips"]))
            )
        case "attempt_start":
            return AttemptStarted(int(payload["attempt"]), at("at_ns"))
        case "attempt_end":
            cause = payload["cause"]
            cause = None if cause is None else str(cause)
            return AttemptEnded(int(payload["attempt"]), at("at_ns"), cause)
        case "run_end":
            return RunEnded(at("at_ns"))
        case "wait":
            start_ns = at("start_ns")
            return WaitFact(str(payload["kind"]), start_ns, max(start_ns, at("end_ns")))
        case "fault":
            at_ns = at("at_ns")
            detected_ns = max(at_ns, at("detected_ns"))
            return FaultFact(int(payload["attempt"]), at_ns, detected_ns, str(payload["cause"]))
        case "notice":
            deadline_ns = None if payload.get("deadline_ns") is None else at("deadline_ns")
            return NoticeFact(at("at_ns"), deadline_ns, str(payload["source"]))
        case "capacity":
            return CapacityFact(at("at_ns"), int(payload["chips"]))
    return None
