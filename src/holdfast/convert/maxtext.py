"""MaxText's log: its step lines of all versions, and what Orbax says of checkpoints.

A step's line is written when the next step is over, and its `seconds` run from the end of the step
before: they contain the blocking part of a save, an evaluation and the wait for data. MaxText
counts steps from 0; a checkpoint "at step 7" contains that step.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

from holdfast.convert.asked import NS_PER_S, Asked
from holdfast.convert.lines import lines
from holdfast.convert.notes import Notes
from holdfast.convert.seen import (
    About,
    Alive,
    Began,
    Ended,
    NewFile,
    Paused,
    Place,
    Restored,
    Restoring,
    Seen,
    Stepped,
)
from holdfast.convert.stamps import Clock, clock_of, in_order
from holdfast.core.ledger.facts import DONE

WARM_UP = "compile"
MAX_DIGITS = 18  # of a number in a log
_INTERESTING = re.compile(
    r"completed (?:step|profiler)|(?:Completed|Starting) eval|eval metrics after|Config param |"
    r"System Information: Jax V|Updating keys from env|Num_devices|"
    r"restoring from this run's|[Ff]inished |Traceback \(most|EXIT_CODE=|Training stopped|"
    r"Slice down event|preempt|SIGTERM|Preempt"
)
_STEP = re.compile(r"completed step: (\d{1,18}), seconds:\s*(\d{1,9}(?:\.\d{1,9})?),", re.ASCII)
_HIDDEN = re.compile(r"completed profiler activation/deactivation step: (\d{1,18})(?=,)", re.ASCII)
_EVAL_STEP = re.compile(r"Completed eval step: \d+, seconds:\s*(\d{1,9}(?:\.\d{1,9})?),", re.ASCII)
_EVAL_BEGAN = re.compile(r"Starting eval after train step (\d{1,18})\b", re.ASCII)
_EVAL_OVER = re.compile(r"Completed eval after train step|eval metrics after step")
_PARAM = re.compile(r"Config param (steps|run_name): (\S+)")
_DEVICES = re.compile(r"Num_devices: (\d{1,9})\b", re.ASCII)
_BANNER = re.compile(r"System Information: Jax Version|Updating keys from env")
_RESTORING = re.compile(
    r"restoring from this run's directory (?:latest )?step\W+(\d{1,18})\b", re.ASCII
)
_RESTORED = re.compile(r"[Ff]inished (?:blocking )?(?:restoring|load\b|restore\b)")
_SAVED = re.compile(
    r"[Ff]inished blocking save in (\d{1,9}(?:\.\d{1,9})?) seconds(?:.*?/(\d{1,18})\b[^/]*$)?",
    re.ASCII,
)
_PREEMPTED = re.compile(
    r"preemption (?:sync|notice)|[Rr]eached preemption|[Rr]eceived SIGTERM|was preempted"
)
_VOICE = re.compile(
    r"\[?(?:rank|default|process|worker|host)\s?[=:_-]?\s?(\d{1,9})\b|\s*(\d{1,9}): |"
    r"\[(pod/[^\]]{1,200})\]",
    re.ASCII | re.IGNORECASE,
)
_THREAD = re.compile(r"[IWEF]\d{4} [\d:.]+\s+(\d{1,20}) ", re.ASCII)


def read(paths: list[Path], asked: Asked, notes: Notes) -> Iterator[Seen]:
    """What MaxText's logs tell, in the order of the files."""
    notes.assume("MaxText counts steps from 0; here the first is 1")
    for path in in_order(paths, asked, notes):
        yield NewFile(Place(str(path), 0))
        yield from _Reader(path, asked, notes).read()


class _Reader:
    """One file."""

    def __init__(self, path: Path, asked: Asked, notes: Notes) -> None:
        self._path = path
        self._notes = notes
        self._clock: Clock = clock_of(path, asked)
        self._steps: int | None = None  # so many are wanted in all
        self._eval: tuple[int, int | None, int] | None = None  # after, since, what its steps took

    def read(self) -> Iterator[Seen]:
        name = str(self._path)
        for number, text in lines(self._path, self._notes):
            line, stamp = unpacked(text) if text.startswith("{") else (text, text)
            at_ns = self._clock.read(stamp)
            if _INTERESTING.search(line):
                yield from self._line(Place(name, number), line, at_ns)
            elif at_ns is not None:
                yield Alive(at_ns)
        self._clock.say(name, self._notes)

    def _line(self, place: Place, line: str, at_ns: int | None) -> Iterator[Seen]:
        if "completed " in line and (found := _STEP.search(line) or _HIDDEN.search(line)):
            yield from self._step(place, found, writer_of(line), at_ns)
        elif "completed step:" in line:
            self._notes.odd(place, "a step line that breaks off or is mixed with another: left out")
        elif found := _SAVED.search(line):
            took_ns = _ns(found[1])
            if at_ns is not None:
                yield Paused(place, "save", at_ns - took_ns, at_ns)
            elif found[2] is not None:
                yield Paused(place, "save", took_ns=took_ns, after=int(found[2]) + 1)
        elif found := _RESTORING.search(line):
            yield Restoring(place, at_ns, int(found[1]) + 1)
        elif _RESTORED.search(line):
            yield Restored(at_ns)
        elif found := _BANNER.search(line):
            yield Began(place, at_ns, found[0])
        elif "eval" in line:
            yield from self._evaluating(place, line, at_ns)
        else:
            yield from self._other(place, line, at_ns)

    def _step(
        self, place: Place, found: re.Match[str], writer: str | None, at_ns: int | None
    ) -> Iterator[Seen]:
        step = int(found[1]) + 1
        took_ns = _ns(found[2]) if found.re is _STEP else None
        yield Stepped(place, step, at_ns, took_ns, step, writer)
        if self._steps is not None and step >= self._steps:
            yield Ended(place, at_ns, DONE)

    def _evaluating(self, place: Place, line: str, at_ns: int | None) -> Iterator[Seen]:
        if found := _EVAL_BEGAN.search(line):
            self._eval = (int(found[1]) + 1, at_ns, 0)
        elif self._eval is not None and (found := _EVAL_STEP.search(line)):
            after, since_ns, took_ns = self._eval
            self._eval = (after, since_ns, took_ns + _ns(found[1]))
        elif self._eval is not None and _EVAL_OVER.search(line):
            after, since_ns, took_ns = self._eval
            self._eval = None
            if since_ns is not None and at_ns is not None:
                yield Paused(place, "custom:eval", since_ns, at_ns)
            elif took_ns:
                yield Paused(place, "custom:eval", took_ns=took_ns, after=after)
        if at_ns is not None:
            yield Alive(at_ns)

    def _other(self, place: Place, line: str, at_ns: int | None) -> Iterator[Seen]:
        if at_ns is not None:
            yield Alive(at_ns)
        if found := _PARAM.search(line):
            if found[1] == "run_name":
                yield About(name=found[2])
            elif found[2].isascii() and found[2].isdigit() and len(found[2]) <= MAX_DIGITS:
                self._steps = int(found[2])
        elif found := _DEVICES.search(line):
            if 1 <= int(found[1]) < 2**31:
                yield About(chips=int(found[1]))
        elif "Training stopped" in line or "EXIT_CODE=0" in line:
            yield Ended(place, at_ns, DONE)
        elif "Slice down event" in line:
            yield Ended(place, at_ns, "host_lost")
        elif _PREEMPTED.search(line):
            yield Ended(place, at_ns, "preempted")
        elif "Traceback (most" in line or "EXIT_CODE=" in line:
            yield Ended(place, at_ns, "failed")


def unpacked(text: str) -> tuple[str, str]:
    """The line and its stamp in a JSON object of a log service; else the text itself, twice."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        return text, text
    if not isinstance(entry, dict):
        return text, text
    line = next((entry[k] for k in ("textPayload", "message", "log", "msg") if k in entry), None)
    stamp = next((entry[k] for k in ("timestamp", "time", "ts") if k in entry), None)
    if not isinstance(line, str):
        return text, text
    return line, stamp if isinstance(stamp, str) else line


def writer_of(line: str) -> str | None:
    """What tells the process that wrote it from the others: a rank, a pod, a thread's number."""
    if found := _VOICE.match(line):
        return next(group for group in found.groups() if group is not None)
    found = _THREAD.search(line, 0, 120)
    return None if found is None else found[1]


def _ns(seconds: str) -> int:
    whole, _, decimals = seconds.partition(".")
    return int(whole) * NS_PER_S + int(decimals.ljust(9, "0"))
