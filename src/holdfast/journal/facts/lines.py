"""What lines of a journal's text file say: parsed, checked, and brought onto the run-wide clock.

FACT notes are statements. Some are facts as they stand; others are only one side of one: that an
attempt started, that it ended. Beside them a controller journals every input of the run's machine
as a line of its own (`core.event_json`). A few of those are read here, with suspicion and without
the machine, since numbers are made of them: which set is sealed in memory, which is durable, and
that a hang is looked into.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from holdfast.core.hang.deadline import HangPolicy
from holdfast.core.ledger.facts import CapacityFact, FaultFact, NoticeFact, WaitFact
from holdfast.core.ledger.kinds import BACKOFF, WAIT_KINDS
from holdfast.core.ledger.program import MAX_FLOPS, MAX_TOKENS, Declared, Reached, ToldProgram
from holdfast.core.notices.board import MOST_ANNOUNCED
from holdfast.core.preloaded import PreloadedPart
from holdfast.core.value import value
from holdfast.journal.fields import MAX_ATTEMPT, text, texts, whole, whole_or_none
from holdfast.journal.layout import MAX_TIME_NS
from holdfast.journal.sidecar import Payload

# In the order of SavesStated. A journal calls flushes drains, as they were called at first.
_SAVES = ("memory", "memory_blocked_ns", "disk", "drains", "drained_ns")
MAX_CHIPS = 2**31 - 1
MAX_HOST = 2**20  # and rank
MOST_PRELOADED = 10  # kinds of files
MEMORY, DISK = "memory", "disk"
TIERS = (MEMORY, DISK)

_INPUT = b'{"event":"'
_WANTED = tuple(
    b'%s%s"' % (_INPUT, event)
    for event in (b"Sealed", b"FlushCommitted", b"DrainCommitted", b"Chosen", b"StacksCollected")
)
_NEWS, _COMMITTED = b'%sHeard"' % _INPUT, b'"event":"Committed"'


@value
class RunStated:
    """The run: its name, when its resources were asked for, and how many chips it has.

    `declared`: what a step should take on them, as far as somebody said. `hang`: when a step counts
    as hung.
    """

    name: str
    requested_ns: int
    chips: int
    declared: Declared = Declared()
    requested_boot: str = ""  # on whose own clock it was asked for then; "": not known
    requested_boot_ns: int = 0
    hang: HangPolicy = HangPolicy()


@value
class ProgramStated:
    """What rank 0 told of its step and its device from then on."""

    at_ns: int
    told: ToldProgram


@value
class AttemptStarted:
    """All processes of an attempt were launched."""

    attempt: int
    at_ns: int


@value
class AttemptEnded:
    """All processes of an attempt were gone."""

    attempt: int
    at_ns: int
    cause: str | None


@value
class AttemptLost:
    """Its machine was found lost then: nobody was left to record its end. `cause`: of that."""

    attempt: int
    at_ns: int
    cause: str


@value
class RunEnded:
    """The run was over; void if an attempt starts later."""

    at_ns: int


@value
class AnnouncedEvent:
    """What sources of notices tell of one event; `deadline_ns` None: nobody says when."""

    words: str
    since_ns: int
    deadline_ns: int | None


@value
class AnnouncedStated:
    """All that was announced from then on."""

    at_ns: int
    events: tuple[AnnouncedEvent, ...]


@value
class PreloadStated:
    """What was read into a host's memory before it was needed, by then."""

    at_ns: int
    host: str
    parts: tuple[PreloadedPart, ...]


@value
class JobStated:
    """A cluster's job runs from then on; `restarts`: how often the cluster has started it again."""

    at_ns: int
    job: str
    restarts: int


@value
class SavingStated:
    """How often was saved to which tier from then on, and why."""

    at_ns: int
    words: str


@value
class SavesStated:
    """A supervisor's saves so far: how many to memory and to disk, and what they cost.

    `memory_blocked_ns`: training stood still for the copies. `flushed_ns`: what taking `flushes` of
    the sets from memory to disk took, beside the training.
    """

    memory: int
    memory_blocked_ns: int
    disk: int
    flushes: int
    flushed_ns: int


@value
class BackingOff:
    """A supervisor waits before a restart; `until_ns` None: it did not say for how long."""

    start_ns: int
    until_ns: int | None


@value
class HostStated:
    """How a host stood from then on. `slot`: whose part it has; None: none.

    `offset_ns`: what brings the times of its boot to those of the controller's, to within
    `error_ns`, and `ahead_ns` how far its wall clock is ahead; None: it was not measured. `chips`:
    how many it has; None: it did not say.
    """

    at_ns: int
    host: int
    state: str
    slot: int | None
    slice: str
    boot: str
    offset_ns: int | None
    error_ns: int | None
    ahead_ns: int | None
    chips: int | None = None


@value
class HostPart:
    """That host has the ranks from the first to the last."""

    host: int
    first_rank: int
    last_rank: int


@value
class PartsStated:
    """Who has which ranks of an attempt."""

    attempt: int
    parts: tuple[HostPart, ...]


AttemptStated = AttemptStarted | AttemptEnded | AttemptLost
OtherStated = (
    RunStated
    | ProgramStated
    | RunEnded
    | PreloadStated
    | JobStated
    | SavingStated
    | SavesStated
    | WaitFact
    | BackingOff
    | FaultFact
    | NoticeFact
    | CapacityFact
    | AnnouncedStated
    | HostStated
    | PartsStated
)
Statement = AttemptStated | OtherStated


def _declared(payload: Payload) -> Declared:
    payload = {"ideal_step_ns": 0, "flops_per_step": 0, "peak_flops": 0, **payload}
    return Declared(
        whole(payload, "ideal_step_ns", high=MAX_TIME_NS),
        whole(payload, "flops_per_step", high=MAX_FLOPS),
        whole(payload, "peak_flops", high=MAX_FLOPS),
    )


def _hang(payload: Payload) -> HangPolicy:
    usual = HangPolicy()
    payload = {"hang_ns": None, "hang_least_ns": usual.floor_ns, **payload}
    set_ns = whole_or_none(payload, "hang_ns", 0, MAX_TIME_NS)
    least_ns = whole(payload, "hang_least_ns", high=MAX_TIME_NS)
    return replace(usual, is_watched=set_ns != 0, step_ns=set_ns or None, floor_ns=least_ns)


def _told(payload: Payload) -> ToldProgram:
    return ToldProgram(
        whole(payload, "flops", high=MAX_FLOPS),
        texts(payload, "left_out"),
        text(payload, "device"),
        whole(payload, "devices", high=MAX_CHIPS),
        text(payload, "dtype"),
        text(payload, "chip"),
        whole(payload, "peak_flops", high=MAX_FLOPS),
        whole({"bytes": 0, **payload}, "bytes", high=MAX_FLOPS),
        _reached(payload),
        whole({"tokens": 0, **payload}, "tokens", high=MAX_TOKENS),
        whole({"most_flops": 0, **payload}, "most_flops", high=MAX_FLOPS),
        text({"peak_source": "", **payload}, "peak_source"),
        text({"peak_as_of": "", **payload}, "peak_as_of"),
        whole({"kinds": 1, **payload}, "kinds", high=MAX_CHIPS),
    )


def _reached(payload: Payload) -> Reached:
    """What a calibration measured; nothing where there was none."""
    if "reached_flops" not in payload:
        return Reached()
    payload = {"reached_most": 0, "reached_together": 0, "reached_together_bytes": 0, **payload}
    return Reached(
        whole(payload, "reached_flops", high=MAX_FLOPS),
        text(payload, "reached_dtype"),
        whole(payload, "reached_bytes"),
        text(payload, "reached_on"),
        whole(payload, "reached_most", high=MAX_FLOPS),
        whole(payload, "reached_together", high=MAX_CHIPS),
        whole(payload, "reached_together_bytes"),
    )


def _events(payload: Payload, offset_ns: int) -> Iterator[AnnouncedEvent]:
    events = payload.get("events")
    if not isinstance(events, Sequence) or not all(isinstance(one, Mapping) for one in events):
        raise ValueError("its events are no list of objects")
    for one in events[:MOST_ANNOUNCED]:
        since_ns = whole(one, "since_ns", -MAX_TIME_NS, MAX_TIME_NS) + offset_ns
        deadline_ns = whole_or_none(one, "deadline_ns", -MAX_TIME_NS, MAX_TIME_NS)
        if deadline_ns is not None:
            deadline_ns += offset_ns
        yield AnnouncedEvent(text(one, "words"), since_ns, deadline_ns)


def _preloaded(payload: Payload) -> Iterator[PreloadedPart]:
    parts = payload.get("parts")
    if not isinstance(parts, Sequence) or not all(isinstance(one, Mapping) for one in parts):
        raise ValueError("its parts are no list of objects")
    for one in parts[:MOST_PRELOADED]:
        yield PreloadedPart(
            text(one, "what"),
            whole(one, "files"),
            whole(one, "bytes"),
            whole_or_none(one, "from_disk"),
            whole(one, "took_ns", high=MAX_TIME_NS),
        )


def _host(payload: Payload, at_ns: int) -> HostStated:
    offset_ns = whole_or_none(payload, "offset_ns", -MAX_TIME_NS, MAX_TIME_NS)
    error_ns = whole_or_none(payload, "error_ns", high=MAX_TIME_NS)
    return HostStated(
        at_ns,
        whole(payload, "host", high=MAX_HOST),
        text(payload, "state"),
        whole_or_none(payload, "slot", high=MAX_HOST),
        text(payload, "slice"),
        text(payload, "boot"),
        offset_ns,
        error_ns,
        whole_or_none({"ahead_ns": None, **payload}, "ahead_ns", -MAX_TIME_NS, MAX_TIME_NS),
        whole_or_none({"chips": None, **payload}, "chips", 1, MAX_CHIPS),
    )


def _parts(payload: Payload) -> Iterator[HostPart]:
    parts = payload.get("parts")
    if not isinstance(parts, Sequence) or len(parts) > MAX_HOST:
        raise ValueError("its parts are no list")
    for one in parts:
        if not isinstance(one, Sequence) or len(one) != 3:
            raise ValueError("a part of it is no list of three")
        numbers = dict(zip(("host", "first", "last"), one, strict=True))
        yield HostPart(*(whole(numbers, name, high=MAX_HOST) for name in numbers))


def parse_statement(payload: Payload, offset_ns: int) -> Statement | None:
    """A FACT note's meaning; None when it has none (a field is missing, or of another type).

    `offset_ns` brings its CLOCK_BOOTTIME times onto the run-wide clock.
    """
    try:
        return _parse(payload, offset_ns)
    except ValueError:
        return None


def _parse(payload: Payload, offset_ns: int) -> Statement | None:
    def at(key: str) -> int:
        return whole(payload, key, -MAX_TIME_NS, MAX_TIME_NS) + offset_ns

    def attempt() -> int:
        return whole(payload, "attempt", high=MAX_ATTEMPT)

    match payload.get("fact"):
        case "run":
            return RunStated(
                text(payload, "name"),
                at("requested_ns"),
                max(1, whole(payload, "chips", high=MAX_CHIPS)),
                _declared(payload),
                text({"requested_boot": "", **payload}, "requested_boot"),
                whole({"requested_boot_ns": 0, **payload}, "requested_boot_ns", high=MAX_TIME_NS),
                _hang(payload),
            )
        case "program":
            return ProgramStated(at("at_ns"), _told(payload))
        case "attempt_start":
            return AttemptStarted(attempt(), at("at_ns"))
        case "attempt_end":
            cause = None if payload.get("cause") is None else text(payload, "cause")
            return AttemptEnded(attempt(), at("at_ns"), cause)
        case "attempt_lost":
            return AttemptLost(attempt(), at("at_ns"), text(payload, "cause"))
        case "host":
            return _host(payload, at("at_ns"))
        case "parts":
            return PartsStated(attempt(), tuple(_parts(payload)))
        case "run_end":
            return RunEnded(at("at_ns"))
        case "preload":
            return PreloadStated(at("at_ns"), text(payload, "host"), tuple(_preloaded(payload)))
        case "job":
            return JobStated(at("at_ns"), text(payload, "job"), whole(payload, "restarts"))
        case "saving":
            return SavingStated(at("at_ns"), text(payload, "words"))
        case "announced":
            return AnnouncedStated(at("at_ns"), tuple(_events(payload, offset_ns)))
        case "saves":
            return SavesStated(*(whole(payload, key) for key in _SAVES))
        case "wait":
            start_ns, kind = at("start_ns"), text(payload, "kind")
            if kind not in WAIT_KINDS:
                return None
            is_open = payload.get("end_ns") is None
            if is_open and kind == BACKOFF:
                is_planned = payload.get("until_ns") is not None
                return BackingOff(start_ns, at("until_ns") if is_planned else None)
            return WaitFact(kind, start_ns, None if is_open else max(start_ns, at("end_ns")))
        case "fault":
            at_ns = at("at_ns")
            detected_ns = max(at_ns, at("detected_ns"))
            return FaultFact(attempt(), at_ns, detected_ns, text(payload, "cause"))
        case "notice":
            deadline_ns = None if payload.get("deadline_ns") is None else at("deadline_ns")
            return NoticeFact(at("at_ns"), deadline_ns, text(payload, "source"))
        case "capacity":
            of = whole_or_none({"of": None, **payload}, "of", 1, MAX_CHIPS)
            return CapacityFact(at("at_ns"), whole(payload, "chips", high=MAX_CHIPS), of)
    return None


# --- Inputs of a controller's machine -------------------------------------------------------------


@value
class SavedSet:
    """A set that restores from a tier: its step, and since when."""

    tier: str
    step: int
    at_ns: int


@value
class WentBack:
    """An attempt starts from that step: what was saved beyond it is of no lineage any more."""

    step: int


@value
class Suspected:
    """Somebody looked where the ranks of an attempt stand, because they seemed to hang."""

    attempt: int
    at_ns: int


FromInputs = SavedSet | WentBack | Suspected


def is_wanted(line: bytes) -> bool:
    """Whether a line of a sidecar has to be read: not an input that says nothing here.

    By its first bytes, as writers write it: of a long run's inputs most are such. A line that
    begins in another way is read.
    """
    if not line.startswith(_INPUT):
        return True
    return line.startswith(_WANTED) or (line.startswith(_NEWS) and _COMMITTED in line)


def parse_input(payload: Payload, offset_ns: int) -> FromInputs | None:
    """The meaning here of an input, or of a fact; None: it has none, or a field cannot be.

    `offset_ns` brings its CLOCK_BOOTTIME time onto the run-wide clock.
    """
    try:
        if payload.get("fact") == "attempt_start" and "resume_step" in payload:
            return WentBack(whole(payload, "resume_step"))
        return _parse_input(payload, offset_ns)
    except ValueError:
        return None


def _parse_input(payload: Payload, offset_ns: int) -> FromInputs | None:
    match payload.get("event"):
        case "Sealed":
            return SavedSet(MEMORY, whole(payload, "step"), _at(payload, offset_ns))
        case (
            "FlushCommitted" | "DrainCommitted"
        ):  # the second in what earlier versions have written
            return SavedSet(DISK, whole(payload, "step"), _at(payload, offset_ns))
        case "Heard":
            news = payload.get("news")
            if isinstance(news, Mapping) and news.get("event") == "Committed":
                return SavedSet(DISK, whole(news, "step"), _at(payload, offset_ns))
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
