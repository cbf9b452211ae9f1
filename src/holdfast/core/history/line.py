"""One line of a history ↔ one fact. The format is described in docs/reference/history.md.

Times are decimal seconds in the text and integer nanoseconds in the facts. The decimals are read
as written, not through a binary float, so that a written history reads back to the nanosecond.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.facts import (
    AttemptFact,
    CapacityFact,
    Fact,
    FaultFact,
    NoticeFact,
    RestoreFact,
    RunFact,
    SeenFact,
    SpanFact,
    StepsFact,
    WaitFact,
)
from holdfast.core.ledger.kinds import CUSTOM_PREFIX, SPAN_KINDS, WAIT_KINDS, is_span_kind
from holdfast.core.save.word import MAX_STEP
from holdfast.errors import HistoryError

SCALE = tuple(10 ** (9 - digits) for digits in range(10))  # so many decimals → nanoseconds
MAX_TIME_S = 4_000_000_000  # either side of the origin; a difference still fits in 64-bit ns
MAX_TIME_CHARS = 400  # of a time as text; Python converts no number of 4,300 digits
MAX_ATTEMPT = 2**31 - 1
MAX_CHIPS = 2**31 - 1


class Decimals(str):
    """A JSON number with a point or an exponent (or NaN), as it was written."""

    __slots__ = ()


_decode = json.JSONDecoder(parse_float=Decimals, parse_constant=Decimals).raw_decode


def decode(line: str, number: int, *, torn: bool = False) -> Fact:
    """The fact on a line; `torn` says that the file ended before the line did.

    Raises HistoryError, which names the line, for everything that is wrong with the line itself.
    """
    try:
        fields, end = _decode(line)
    except (ValueError, RecursionError):
        if torn and line.startswith("{"):
            raise HistoryError(
                number, f"the file breaks off within the line {shorten(line)}; delete the torn line"
            ) from None
        raise HistoryError(number, f"{shorten(line)} is not JSON; write one JSON object") from None
    if line[end:].strip() or not isinstance(fields, dict):
        raise HistoryError(number, f"{shorten(line)} is not one JSON object; write one a line")
    event = fields.get("event")
    if not isinstance(event, str) or event not in _EVENTS:
        known = ", ".join(_EVENTS)
        raise HistoryError(number, f"unknown event {_quote(event)}; the events are {known}")
    return _fact(Fields(number, event, fields))


class Fields(NamedTuple):
    """The fields of one line, read with a check of each."""

    line: int
    event: str
    values: dict[str, Any]

    def get(self, key: str) -> Any:
        """A field that must be there."""
        try:
            return self.values[key]
        except KeyError:
            raise self.wrong(f'has no "{key}"; add it') from None

    def time_ns(self, key: str) -> int:
        """A time, in nanoseconds."""
        value = self.get(key)
        if type(value) is Decimals:
            ns = nanoseconds(value)
        elif type(value) is int and abs(value) <= MAX_TIME_S:
            ns = value * SECOND_NS
        else:
            ns = None
        if ns is None:
            raise self.wrong(
                f'has "{key}": {_quote(value)}, which is not a time: write seconds as a number '
                f"between -{MAX_TIME_S} and {MAX_TIME_S}"
            )
        return ns

    def time_or_null_ns(self, key: str) -> int | None:
        """A time that may be null: still open."""
        return None if self.get(key) is None else self.time_ns(key)

    def whole(self, key: str, low: int, high: int) -> int:
        """A whole number; true and false are none."""
        value = self.get(key)
        if type(value) is not int or not low <= value <= high:
            raise self.wrong(
                f'has "{key}": {_quote(value)}; write a whole number from {low} to {high}'
            )
        return value

    def text(self, key: str) -> str:
        """A string that is not empty."""
        value = self.get(key)
        if type(value) is not str or not value:
            raise self.wrong(f'has "{key}": {_quote(value)}; write a string that is not empty')
        return value

    def in_order(self, low: str, high: str, low_ns: int, high_ns: int | None) -> None:
        """Nothing ends before it starts."""
        if high_ns is not None and high_ns < low_ns:
            raise self.wrong(
                f'has "{high}": {seconds(high_ns)} before "{low}": {seconds(low_ns)}; '
                "correct one of the two"
            )

    def wrong(self, what: str) -> HistoryError:
        """The error for this line."""
        return HistoryError(self.line, f"the {self.event} {what}")


def _fact(f: Fields) -> Fact:
    fact, fields = _EVENTS[f.event]
    values = {key: kind.read(f, key) for key, kind in fields.items()}
    for low, high in _IN_ORDER:
        if low in values and high in values:
            f.in_order(low, high, values[low], values[high])
    if "last" in values and values["last"] < values["first"]:
        raise f.wrong(
            f'has "last": {values["last"]} below "first": {values["first"]}; correct one of the two'
        )
    return fact(*values.values())


def _one_step(attempt: int, step: int, start_ns: int, end_ns: int | None) -> StepsFact:
    return StepsFact(attempt, step, step, start_ns, end_ns)


# --- What each event holds ------------------------------------------------------------------------


class FieldKind(NamedTuple):
    """How a field is read, and written; one that is `optional` is not written when it is empty."""

    read: Callable[[Fields, str], Any]
    write: Callable[[Any], str] = json.dumps
    optional: bool = False


def _whole(low: int, high: int) -> FieldKind:
    return FieldKind(lambda f, key: f.whole(key, low, high))


def _kind(is_known: Callable[[str], bool], known: str) -> FieldKind:
    def read(f: Fields, key: str) -> str:
        value = f.text(key)
        if not is_known(value):
            raise f.wrong(f'has "{key}": {_quote(value)}; it must be one of {known}')
        return value

    return FieldKind(read)


def _source(f: Fields, key: str) -> int | None:
    return None if f.values.get(key) is None else f.whole(key, 0, MAX_ATTEMPT)


def _of(f: Fields, key: str) -> int | None:
    return None if f.values.get(key) is None else f.whole(key, 1, MAX_CHIPS)


def _cause(f: Fields, key: str) -> str | None:
    return None if f.get(key) is None else f.text(key)


def _notes(f: Fields, key: str) -> tuple[str, ...]:
    """What is noted of the run; a value of another kind is somebody else's key, and ignored."""
    notes = f.values.get(key)
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        return ()
    return tuple(note.encode("utf-8", "replace").decode() for note in notes)


def seconds(ns: int | None) -> str:
    """Nanoseconds as exact decimal seconds in JSON: 1500000000 → 1.5; None → null."""
    if ns is None:
        return "null"
    whole, rest = divmod(abs(ns), SECOND_NS)
    decimals = f"{rest:09d}".rstrip("0") or "0"
    return f"{'-' if ns < 0 else ''}{whole}.{decimals}"


_TEXT, _ATTEMPT, _STEP = FieldKind(Fields.text), _whole(0, MAX_ATTEMPT), _whole(1, MAX_STEP)
_TIME = FieldKind(Fields.time_ns, seconds)
_TIME_OR_NULL = FieldKind(Fields.time_or_null_ns, seconds)
_CLOSED = {"start": _TIME, "end": _TIME}
_OPEN = {"start": _TIME, "end": _TIME_OR_NULL}
_WAIT_KIND = _kind(WAIT_KINDS.__contains__, ", ".join(WAIT_KINDS))
_SPAN_KIND = _kind(is_span_kind, f"{', '.join(SPAN_KINDS)} or {CUSTOM_PREFIX}NAME")

# Of each event its fact, and its fields in the order of the fact's.
_EVENTS: dict[str, tuple[Callable[..., Fact], dict[str, FieldKind]]] = {
    "run": (
        RunFact,
        {
            "name": _TEXT,
            "requested": _TIME,
            "ended": _TIME_OR_NULL,
            "chips": _whole(1, MAX_CHIPS),
            "notes": FieldKind(_notes, optional=True),
        },
    ),
    "attempt": (AttemptFact, {"attempt": _ATTEMPT, **_OPEN, "cause": FieldKind(_cause)}),
    "wait": (WaitFact, {"kind": _WAIT_KIND, **_OPEN}),
    "fault": (FaultFact, {"attempt": _ATTEMPT, "at": _TIME, "detected": _TIME, "cause": _TEXT}),
    "notice": (NoticeFact, {"at": _TIME, "deadline": _TIME_OR_NULL, "source": _TEXT}),
    "seen": (SeenFact, {"at": _TIME}),
    "restore": (
        RestoreFact,
        {
            "attempt": _ATTEMPT,
            **_CLOSED,
            "step": _whole(0, MAX_STEP),
            "from": FieldKind(_source, optional=True),
        },
    ),
    "span": (SpanFact, {"attempt": _ATTEMPT, "kind": _SPAN_KIND, **_OPEN}),
    "step": (_one_step, {"attempt": _ATTEMPT, "step": _STEP, **_OPEN}),
    "steps": (StepsFact, {"attempt": _ATTEMPT, "first": _STEP, "last": _STEP, **_CLOSED}),
    "capacity": (
        CapacityFact,
        {"at": _TIME, "chips": _whole(0, MAX_CHIPS), "of": FieldKind(_of, optional=True)},
    ),
}
_EVENT_OF = {fact: (event, fields) for event, (fact, fields) in _EVENTS.items()}
_IN_ORDER = (("requested", "ended"), ("start", "end"), ("at", "detected"))


def encode(fact: Fact) -> str:
    """The line of a fact, without its line end; times are exact."""
    if isinstance(fact, StepsFact) and (fact.first == fact.last or fact.end_ns is None):
        # Nearly all lines of a history are this one, so it is spelled out.
        return (
            f'{{"event": "step", "attempt": {fact.attempt}, "step": {fact.first}, '
            f'"start": {seconds(fact.start_ns)}, "end": {seconds(fact.end_ns)}}}'
        )
    event, fields = _EVENT_OF[type(fact)]
    written = [f'"event": "{event}"']
    for (key, kind), name in zip(fields.items(), fact.__match_args__, strict=True):
        value = getattr(fact, name)
        if not kind.optional or value not in (None, ()):
            written.append(f'"{key}": {kind.write(value)}')
    return "{" + ", ".join(written) + "}"


def to_lines(facts: Iterable[Fact]) -> Iterator[str]:
    """The lines of a history, each with its line end. `parse` reads back the very same facts."""
    for fact in facts:
        yield encode(fact) + "\n"


def nanoseconds(text: str) -> int | None:
    """Decimal seconds, rounded to nanoseconds; None for what is not a time (NaN, far too large)."""
    whole, _, decimals = text.partition(".")
    if len(whole) <= 10 and len(decimals) <= 9 and whole.isdigit() and decimals.isdigit():
        ns = int(whole) * SECOND_NS + int(decimals) * SCALE[len(decimals)]
        return ns if ns <= MAX_TIME_S * SECOND_NS else None
    value = float(text)
    if len(text) > MAX_TIME_CHARS or not abs(value) <= MAX_TIME_S:  # NaN is on neither side
        return None
    # A float that underflows to 0 stands for less than a nanosecond; its exponent may be absurd.
    return round(Fraction(text) * SECOND_NS) if value else 0


def _quote(value: object) -> str:
    """A field's value in an error message, as JSON writes it."""
    return shorten(str(value) if isinstance(value, Decimals) else json.dumps(value))


def shorten(text: str) -> str:
    """Text that fits into one sentence, whatever it is."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:61])
    return text if len(text) <= 60 else text[:57] + "..."
