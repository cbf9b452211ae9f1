"""Events: past facts that the edges tell the run's machine. Every one carries its time.

The controller journals each event in the order fed, before it acts on the answer, so that a
recorded night can be replayed (`encode` and `decode` are the journal's form of an event).
Times are integer nanoseconds on one clock (CLOCK_BOOTTIME for the agent, virtual in simulation).
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields
from typing import Any

from holdfast.core.exits import Exit, RankReport


@dataclass(frozen=True, slots=True)
class Resume:
    """What an attempt starts from: the set, and its place in the lineage. `set_name` None: scratch."""

    set_name: str | None
    step: int
    parent: int | None


@dataclass(frozen=True, slots=True)
class Opened:
    """The run is ours: the lease is held, earlier attempts are closed. `next_attempt` is free."""

    at_ns: int
    next_attempt: int


@dataclass(frozen=True, slots=True)
class Chosen:
    """The store was asked which set to restore; `words` is the reason."""

    at_ns: int
    resume: Resume
    words: str


@dataclass(frozen=True, slots=True)
class ChoiceFailed:
    """No attempt can start: no good checkpoint, or the store is away."""

    at_ns: int
    exit_code: int
    words: str


@dataclass(frozen=True, slots=True)
class Launched:
    """All ranks of the attempt run."""

    at_ns: int
    attempt: int


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """A rank's command could not be started at all (it does not exist, it is not executable)."""

    at_ns: int
    attempt: int
    exit_code: int
    words: str


@dataclass(frozen=True, slots=True)
class Joined:
    """A rank's session showed itself: it answers orders from now on."""

    at_ns: int
    attempt: int
    rank: int


@dataclass(frozen=True, slots=True)
class Progressed:
    """How far the ranks are; `steps[r]` is rank r's last boundary (0: none yet)."""

    at_ns: int
    attempt: int
    steps: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Snapped:
    """A rank copied its state for the order (epoch, step)."""

    at_ns: int
    attempt: int
    rank: int
    epoch: int
    step: int
    blocked_ns: int


@dataclass(frozen=True, slots=True)
class ShardDurable:
    """A rank's shard of (epoch, step) is on disk and its receipt written."""

    at_ns: int
    attempt: int
    rank: int
    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class ShardFailed:
    """A rank could not save its shard of (epoch, step); training went on."""

    at_ns: int
    attempt: int
    rank: int
    epoch: int
    step: int


@dataclass(frozen=True, slots=True)
class LoopEnded:
    """A rank finished its last step; it answers any order with that step."""

    at_ns: int
    attempt: int
    rank: int
    step: int


@dataclass(frozen=True, slots=True)
class Committed:
    """The set's manifest is durable."""

    at_ns: int
    attempt: int
    step: int


@dataclass(frozen=True, slots=True)
class CommitFailed:
    """The manifest could not be written."""

    at_ns: int
    attempt: int
    step: int
    words: str


@dataclass(frozen=True, slots=True)
class RankExited:
    """A rank's process ended."""

    at_ns: int
    attempt: int
    rank: int
    exit: Exit


@dataclass(frozen=True, slots=True)
class TreeGone:
    """No process of the attempt is left."""

    at_ns: int
    attempt: int


@dataclass(frozen=True, slots=True)
class HostLost:
    """Processes of the attempt survive SIGKILL: their host cannot be used again."""

    at_ns: int
    attempt: int
    words: str


@dataclass(frozen=True, slots=True)
class StopAsked:
    """Save and stop: a notice, Ctrl-C, or `holdfast stop`. `deadline_ns` None: take your time."""

    at_ns: int
    source: str
    deadline_ns: int | None
    notice: bool


@dataclass(frozen=True, slots=True)
class StopNowAsked:
    """Stop now: the second Ctrl-C, SIGQUIT, or `holdfast stop --now`."""

    at_ns: int
    source: str


@dataclass(frozen=True, slots=True)
class SaveAsked:
    """Somebody wants a save at the next boundary."""

    at_ns: int
    source: str


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer that an action set has come due."""

    at_ns: int
    timer: str


Event = (
    Opened
    | Chosen
    | ChoiceFailed
    | Launched
    | LaunchFailed
    | Joined
    | Progressed
    | Snapped
    | ShardDurable
    | ShardFailed
    | LoopEnded
    | Committed
    | CommitFailed
    | RankExited
    | TreeGone
    | HostLost
    | StopAsked
    | StopNowAsked
    | SaveAsked
    | TimerFired
)

EVENT_TYPES: dict[str, type[Event]] = {t.__name__: t for t in Event.__args__}  # type: ignore[attr-defined]


def encode(event: Event) -> dict[str, Any]:
    """The event as plain JSON-able data, with its type's name under `event`."""
    return {"event": type(event).__name__, **asdict(event)}


def decode(data: dict[str, Any]) -> Event:
    """The inverse of `encode`; unknown keys are ignored, an unknown event is a KeyError."""
    kind = EVENT_TYPES[data["event"]]
    values = {f.name: data[f.name] for f in fields(kind) if f.name in data}
    if kind is Chosen:
        values["resume"] = Resume(**values["resume"])
    elif kind is Progressed:
        values["steps"] = tuple(values["steps"])
    elif kind is RankExited:
        values["exit"] = _decode_exit(values["exit"])
    return kind(**values)


def _decode_exit(data: dict[str, Any]) -> Exit:
    report = data.get("report")
    return Exit(**{**data, "report": RankReport(**report) if report else None})
