"""One line of a history ↔ one fact. The format is described in docs/reference/history.md.

Times are decimal seconds in the text and integer nanoseconds in the facts. The decimals are read
as written, not through a binary float, so that a written history reads back to the nanosecond.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from typing import Any, NamedTuple

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

NS_PER_S = 1_000_000_000
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
    reader = _READERS.get(event) if isinstance(event, str) else None
    if reader is None:
        known = ", ".join(_READERS)
        raise HistoryError(number, f"unknown event {_quote(event)}; the events are {known}")
    return reader(Fields(number, str(event), fields))


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
            ns = value * NS_PER_S
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

    def kind(self, is_known: Callable[[str], bool], known: str) -> str:
        """What kind of time it is."""
        value = self.text("kind")
        if not is_known(value):
            raise self.wrong(f'has "kind": {_quote(value)}; it must be one of {known}')
        return value

    def attempt(self) -> int:
        """The attempt's number."""
        return self.whole("attempt", 0, MAX_ATTEMPT)

    def in_order(self, start: str, end: str, start_ns: int, end_ns: int | None) -> None:
        """Nothing ends before it starts."""
        if end_ns is not None and end_ns < start_ns:
            raise self.wrong(
                f'has "{end}": {seconds(end_ns)} before "{start}": {seconds(start_ns)}; '
                "correct one of the two"
            )

    def span_ns(self) -> tuple[int, int]:
        """Start and end, both known."""
        start_ns, end_ns = self.time_ns("start"), self.time_ns("end")
        self.in_order("start", "end", start_ns, end_ns)
        return start_ns, end_ns

    def open_span_ns(self) -> tuple[int, int | None]:
        """Start and end; null: not ended."""
        start_ns, end_ns = self.time_ns("start"), self.time_or_null_ns("end")
        self.in_order("start", "end", start_ns, end_ns)
        return start_ns, end_ns

    def wrong(self, what: str) -> HistoryError:
        """The error for this line."""
        return HistoryError(self.line, f"the {self.event} {what}")


def _run(f: Fields) -> RunFact:
    requested_ns, ended_ns = f.time_ns("requested"), f.time_or_null_ns("ended")
    f.in_order("requested", "ended", requested_ns, ended_ns)
    return RunFact(
        f.text("name"), requested_ns, ended_ns, f.whole("chips", 1, MAX_CHIPS), _notes(f)
    )


def _notes(f: Fields) -> tuple[str, ...]:
    """What is noted of the run; a value of another kind is somebody else's key, and ignored."""
    notes = f.values.get("notes")
    if not isinstance(notes, list) or not all(isinstance(note, str) for note in notes):
        return ()
    return tuple(note.encode("utf-8", "replace").decode() for note in notes)


def _attempt(f: Fields) -> AttemptFact:
    start_ns, end_ns = f.open_span_ns()
    cause = None if f.get("cause") is None else f.text("cause")
    return AttemptFact(f.attempt(), start_ns, end_ns, cause)


def _wait(f: Fields) -> WaitFact:
    return WaitFact(f.kind(WAIT_KINDS.__contains__, ", ".join(WAIT_KINDS)), *f.open_span_ns())


def _fault(f: Fields) -> FaultFact:
    at_ns, detected_ns = f.time_ns("at"), f.time_ns("detected")
    f.in_order("at", "detected", at_ns, detected_ns)
    return FaultFact(f.attempt(), at_ns, detected_ns, f.text("cause"))


def _notice(f: Fields) -> NoticeFact:
    return NoticeFact(f.time_ns("at"), f.time_or_null_ns("deadline"), f.text("source"))


def _seen(f: Fields) -> SeenFact:
    return SeenFact(f.time_ns("at"))


def _restore(f: Fields) -> RestoreFact:
    start_ns, end_ns = f.span_ns()
    source = None if f.values.get("from") is None else f.whole("from", 0, MAX_ATTEMPT)
    return RestoreFact(f.attempt(), start_ns, end_ns, f.whole("step", 0, MAX_STEP), source)


def _span(f: Fields) -> SpanFact:
    kind = f.kind(is_span_kind, f"{', '.join(SPAN_KINDS)} or {CUSTOM_PREFIX}NAME")
    return SpanFact(f.attempt(), kind, *f.open_span_ns())


def _step(f: Fields) -> StepsFact:
    step = f.whole("step", 1, MAX_STEP)
    return StepsFact(f.attempt(), step, step, *f.open_span_ns())


def _steps(f: Fields) -> StepsFact:
    first, last = f.whole("first", 1, MAX_STEP), f.whole("last", 1, MAX_STEP)
    if last < first:
        raise f.wrong(f'has "last": {last} below "first": {first}; correct one of the two')
    return StepsFact(f.attempt(), first, last, *f.span_ns())


def _capacity(f: Fields) -> CapacityFact:
    return CapacityFact(f.time_ns("at"), f.whole("chips", 0, MAX_CHIPS))


_READERS: dict[str, Callable[[Fields], Fact]] = {
    "run": _run,
    "attempt": _attempt,
    "wait": _wait,
    "fault": _fault,
    "notice": _notice,
    "seen": _seen,
    "restore": _restore,
    "span": _span,
    "step": _step,
    "steps": _steps,
    "capacity": _capacity,
}


# Of each fact: its event, and key → attribute. An attribute in `_ns` is written in seconds.
_LAYOUTS: dict[type, tuple[str, dict[str, str]]] = {
    RunFact: (
        "run",
        {
            "name": "name",
            "requested": "requested_ns",
            "ended": "ended_ns",
            "chips": "chips",
            "notes": "notes",
        },
    ),
    AttemptFact: (
        "attempt",
        {"attempt": "attempt", "start": "start_ns", "end": "end_ns", "cause": "cause"},
    ),
    WaitFact: ("wait", {"kind": "kind", "start": "start_ns", "end": "end_ns"}),
    FaultFact: (
        "fault",
        {"attempt": "attempt", "at": "at_ns", "detected": "detected_ns", "cause": "cause"},
    ),
    NoticeFact: ("notice", {"at": "at_ns", "deadline": "deadline_ns", "source": "source"}),
    SeenFact: ("seen", {"at": "at_ns"}),
    RestoreFact: (
        "restore",
        {
            "attempt": "attempt",
            "start": "start_ns",
            "end": "end_ns",
            "step": "step",
            "from": "source",
        },
    ),
    SpanFact: (
        "span",
        {"attempt": "attempt", "kind": "kind", "start": "start_ns", "end": "end_ns"},
    ),
    StepsFact: (
        "steps",
        {
            "attempt": "attempt",
            "first": "first",
            "last": "last",
            "start": "start_ns",
            "end": "end_ns",
        },
    ),
    CapacityFact: ("capacity", {"at": "at_ns", "chips": "chips"}),
}


_OPTIONAL = ("from", "notes")


def encode(fact: Fact) -> str:
    """The line of a fact, without its line end; times are exact."""
    if isinstance(fact, StepsFact) and (fact.first == fact.last or fact.end_ns is None):
        # Nearly all lines of a history are this one, so it is spelled out.
        return (
            f'{{"event": "step", "attempt": {fact.attempt}, "step": {fact.first}, '
            f'"start": {seconds(fact.start_ns)}, "end": {seconds(fact.end_ns)}}}'
        )
    event, layout = _LAYOUTS[type(fact)]
    fields = [f'"event": "{event}"']
    for key, attribute in layout.items():
        value = getattr(fact, attribute)
        if key not in _OPTIONAL or value not in (None, ()):
            text = seconds(value) if attribute.endswith("_ns") else json.dumps(value)
            fields.append(f'"{key}": {text}')
    return "{" + ", ".join(fields) + "}"


def to_lines(facts: Iterable[Fact]) -> Iterator[str]:
    """The lines of a history, each with its line end. `parse` reads back the very same facts."""
    for fact in facts:
        yield encode(fact) + "\n"


def seconds(ns: int | None) -> str:
    """Nanoseconds as exact decimal seconds in JSON: 1500000000 → 1.5; None → null."""
    if ns is None:
        return "null"
    whole, rest = divmod(abs(ns), NS_PER_S)
    decimals = f"{rest:09d}".rstrip("0") or "0"
    return f"{'-' if ns < 0 else ''}{whole}.{decimals}"


def nanoseconds(text: str) -> int | None:
    """Decimal seconds, rounded to nanoseconds; None for what is not a time (NaN, far too large)."""
    whole, _, decimals = text.partition(".")
    if len(whole) <= 10 and len(decimals) <= 9 and whole.isdigit() and decimals.isdigit():
        ns = int(whole) * NS_PER_S + int(decimals) * SCALE[len(decimals)]
        return ns if ns <= MAX_TIME_S * NS_PER_S else None
    value = float(text)
    if len(text) > MAX_TIME_CHARS or not abs(value) <= MAX_TIME_S:  # NaN is on neither side
        return None
    # A float that underflows to 0 stands for less than a nanosecond; its exponent may be absurd.
    return round(Fraction(text) * NS_PER_S) if value else 0


def _quote(value: object) -> str:
    """A field's value in an error message, as JSON writes it."""
    return shorten(str(value) if isinstance(value, Decimals) else json.dumps(value))


def shorten(text: str) -> str:
    """Text that fits into one sentence, whatever it is."""
    text = "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text[:61])
    return text if len(text) <= 60 else text[:57] + "..."
