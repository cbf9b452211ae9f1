"""Lines of a history that are spelled alike, read many at a time into columns of numbers.

The spelling of a line is what is left when each run of digits is replaced by a single 0:
`{"event": "step", "attempt": 0, "step": 0, "start": 0.0, "end": 0.0}`. That is JSON again, so it is
decoded once and says which run of digits is which field. Whoever wrote a history spelled its
millions of steps and spans in a few ways, whatever the order of the keys and whatever else he wrote
beside them; all lines of one spelling are then a few array operations.

Lines that hold anything else, or numbers out of the ordinary, are left to `decode`.
"""

from __future__ import annotations

import itertools
import json
import re
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from holdfast.core.durations import SECOND_NS
from holdfast.core.history.line import MAX_ATTEMPT, MAX_TIME_S
from holdfast.core.ledger.columns import Ints
from holdfast.core.ledger.kinds import is_span_kind
from holdfast.core.save.word import MAX_STEP

Bools = NDArray[np.bool_]
MAX_DIGITS = 18  # such a number fits into 64 bits; a longer one is left to `decode`
_POWERS = 10 ** np.arange(MAX_DIGITS + 1, dtype=np.int64)
_NS_DIGITS = 9  # decimals of a second in nanoseconds
_ZERO = ord("0")

# To see which is which, the runs of digits of a spelling are counted up from here.
_FIRST_RUN, _MOST_RUNS = 1000, 1000
_PLAIN = re.compile(r"\d{4}(\.\d{4})?")  # neither a sign nor an exponent
_DIGIT = re.compile(r"[0-9]")
_KEYS_OF_STEPS = {"step": ("step",), "steps": ("first", "last"), "span": ()}


class Number(NamedTuple):
    """A number of a line: which run of digits it begins with, and whether decimals follow."""

    run: int
    decimals: bool


@dataclass(frozen=True, slots=True)
class Spelling:
    """Where lines that are spelled alike have their numbers.

    `steps` are the first and the last of a row of completed steps; a closed span has its `kind`
    instead. Of all the `runs` of digits, `wholes` must not begin with a 0, since JSON knows no such
    number.
    """

    attempt: Number
    start: Number
    end: Number
    steps: tuple[Number, Number] | None
    kind: str
    wholes: tuple[int, ...]
    runs: int


def spelling_of(text: bytes) -> Spelling | None:
    """What lines with this spelling say; None: other than one completed step or closed span."""
    runs = text.count(b"0")
    if runs > _MOST_RUNS or b"\\" in text:  # digits after a backslash are no digits
        return None
    of_run = itertools.count(_FIRST_RUN)
    wholes: list[int] = []

    def number(written: str) -> Number | None:
        wholes.append(int(written.removeprefix("-")[:4]) - _FIRST_RUN)
        return Number(wholes[-1], "." in written) if _PLAIN.fullmatch(written) else None

    decoder = json.JSONDecoder(parse_float=number, parse_int=number)
    try:
        fields = decoder.decode(re.sub("0", lambda _: str(next(of_run)), text.decode()))
    except (ValueError, RecursionError):
        return None
    if not isinstance(fields, dict):
        return None
    event, kind = fields.get("event"), fields.get("kind")
    keys = _KEYS_OF_STEPS.get(event) if isinstance(event, str) else None
    if keys is None or (event == "span" and not _is_one_kind(kind)):
        return None
    found = [fields.get(key) for key in ("attempt", *keys, "start", "end")]
    numbers = [one for one in found if isinstance(one, Number)]
    if len(numbers) < len(found) or any(one.decimals for one in numbers[:-2]):
        return None
    attempt, *steps, start, end = numbers
    row = (steps[0], steps[-1]) if steps else None
    return Spelling(attempt, start, end, row, str(kind), tuple(wholes), runs)


def _is_one_kind(kind: object) -> bool:
    """Whether it is a kind of span, and the same one on all lines of this spelling."""
    return isinstance(kind, str) and is_span_kind(kind) and _DIGIT.search(kind) is None


class Digits:
    """The runs of digits of a block of lines."""

    def __init__(self, block: bytes) -> None:
        self._bytes = np.frombuffer(block, dtype=np.uint8)
        is_digit = self._bytes - _ZERO < 10  # unsigned: what is below 0 is far above 9
        goes_on = np.zeros(len(block) + 1, dtype=np.bool_)  # a digit, right after a digit
        np.logical_and(is_digit[1:], is_digit[:-1], out=goes_on[1:-1])
        self.starts = np.flatnonzero(is_digit & ~goes_on[:-1])
        self.lengths = np.flatnonzero(is_digit & ~goes_on[1:]) + 1 - self.starts
        spelled = np.where(is_digit, np.uint8(_ZERO), self._bytes)[~goes_on[:-1]]
        self.spellings = spelled.tobytes().split(b"\n")  # of each line

    def columns(self, spelling: Spelling, before: Ints) -> tuple[list[Ints], Bools]:
        """The numbers of lines that are spelled so, and which of the lines are ordinary.

        Of steps: attempt, first, last, start and end; of spans: attempt, start and end. `before`:
        how many runs of digits precede each line. Lines that are not ordinary hold anything.
        """
        fine = np.ones(len(before), dtype=np.bool_)
        for run in spelling.wholes:
            at = before + run
            fine &= (self.lengths[at] == 1) | (self._bytes[self.starts[at]] != _ZERO)
        attempt = self._whole(before + spelling.attempt.run, fine)
        start, end = (self._time_ns(before, of, fine) for of in (spelling.start, spelling.end))
        fine &= (attempt <= MAX_ATTEMPT) & (start <= end)
        if spelling.steps is None:
            return [attempt, start, end], fine
        first, last = (self._whole(before + of.run, fine) for of in spelling.steps)
        fine &= (first >= 1) & (first <= last) & (last <= MAX_STEP)
        return [attempt, first, last, start, end], fine

    def _time_ns(self, before: Ints, of: Number, fine: Bools) -> Ints:
        """Seconds as decimals, in nanoseconds; the last digit is rounded half to even."""
        at = before + of.run
        whole = self._whole(at, fine)
        np.logical_and(fine, whole < MAX_TIME_S, out=fine)
        ns: Ints = np.minimum(whole, MAX_TIME_S) * SECOND_NS
        if not of.decimals:
            return ns
        decimals, digits = self._whole(at + 1, fine), np.minimum(self.lengths[at + 1], MAX_DIGITS)
        if int(digits.max()) > _NS_DIGITS:
            unit = _POWERS[np.maximum(digits - _NS_DIGITS, 0)]
            decimals, rest = np.divmod(decimals, unit)
            decimals += (2 * rest > unit) | ((2 * rest == unit) & (decimals % 2 == 1))
        ns += decimals * _POWERS[np.maximum(_NS_DIGITS - digits, 0)]
        return ns

    def _whole(self, at: Ints, fine: Bools) -> Ints:
        """The runs of digits at these places, as numbers; one that is too long is not ordinary."""
        start, length = self.starts[at], self.lengths[at]
        np.logical_and(fine, length <= MAX_DIGITS, out=fine)
        least, most = int(length.min()), min(int(length.max()), MAX_DIGITS)
        value: Ints = np.zeros(len(at), dtype=np.int64)
        for place in range(most):
            if place < least:
                value = value * 10 + (self._bytes[start + place] - _ZERO)
            else:
                here = length > place
                value[here] = value[here] * 10 + (self._bytes[start[here] + place] - _ZERO)
        return value
