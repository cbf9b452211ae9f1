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

from holdfast.convert.asked import NS_PER_S, ConvertOptions
from holdfast.convert.lines import Rules, lines
from holdfast.convert.notes import Notes
from holdfast.convert.seen import (
    About,
    Began,
    LogEnded,
    LogEntry,
    LogPlace,
    NewFile,
    Paused,
    RestoreEnded,
    Restoring,
    Stepped,
)
from holdfast.convert.stamps import clock_of, in_order
from holdfast.core.ledger.facts import DONE

_STEP, _SECONDS = r"(\d{1,18})", r"(\d{1,9}(?:\.\d{1,9})?)"
_RULES = Rules(
    ("step", "completed step: ", rf"{_STEP}, seconds:\s*{_SECONDS},"),
    ("step", "completed profiler activation/deactivation step: ", rf"{_STEP}(?=,)()"),
    ("torn", "completed step:"),
    ("save", "inished blocking save in ", rf"{_SECONDS} seconds(?:.*?/{_STEP}\b[^/]*$)?"),
    ("restoring", "restoring from this run's directory ", rf"(?:latest )?step\W+{_STEP}\b"),
    ("restored", "inished ", r"(?:blocking )?(?:restoring|load\b|restore\b)"),
    ("began", "System Information: Jax Version"),
    ("began", "Updating keys from env"),
    ("eval began", "Starting eval after train step ", rf"{_STEP}\b"),
    ("eval step", "Completed eval step: ", rf"\d+, seconds:\s*{_SECONDS},"),
    ("eval over", "Completed eval after train step"),
    ("eval over", "eval metrics after step"),
    ("name", "Config param run_name: ", r"(\S+)"),
    ("wanted", "Config param steps: ", rf"{_STEP}(?!\S)"),
    ("chips", "Num_devices: ", r"(\d{1,9})\b"),
    (DONE, "Training stopped"),
    (DONE, "EXIT_CODE=0"),
    ("host_lost", "Slice down event"),
    ("preempted", "reemption ", "(?:sync|notice)"),
    ("preempted", "eached preemption"),
    ("preempted", "was preempted"),
    ("preempted", "eceived SIGTERM"),
    ("failed", "Traceback (most"),
    ("failed", "EXIT_CODE="),
)
_WRITER = re.compile(
    r"\[?(?:rank|default|process|worker|host)\s?[=:_-]?\s?(\d{1,9})\b|\s*(\d{1,9}): |"
    r"\[(pod/[^\]]{1,200})\]",
    re.ASCII | re.IGNORECASE,
)
_THREAD = re.compile(r"[IWEF]\d{4} [\d:.]+\s+(\d{1,20}) ", re.ASCII)


def read(paths: list[Path], asked: ConvertOptions, notes: Notes) -> Iterator[LogEntry]:
    """What MaxText's logs tell, in the order of the files."""
    notes.assume("MaxText counts steps from 0; here the first is 1")
    for path in in_order(paths, asked, notes):
        yield NewFile(LogPlace(str(path)))
        yield from _Log(path, asked, notes).read()


class _Log:
    """One file."""

    def __init__(self, path: Path, asked: ConvertOptions, notes: Notes) -> None:
        self._path = path
        self._notes = notes
        self._clock = clock_of(path, asked)
        self._wanted: int | None = None  # so many steps in all
        self._eval: tuple[int, int | None, int] | None = None  # after, since, what its steps took

    def read(self) -> Iterator[LogEntry]:
        name = str(self._path)
        for number, text in lines(self._path, self._notes):
            line, stamp = _unpacked(text) if text.startswith("{") else (text, text)
            at_ns = self._clock.read(stamp)
            if found := _RULES.find(line):
                yield from self._line(*found, LogPlace(name, number), line, at_ns)
            elif at_ns is not None:
                yield LogEntry(LogPlace(name, number), at_ns)
        self._clock.say(name, self._notes)

    def _line(
        self, what: str, found: re.Match[str], place: LogPlace, line: str, at_ns: int | None
    ) -> Iterator[LogEntry]:
        match what:
            case "step":
                step = int(found[1]) + 1
                took_ns = _ns(found[2]) if found[2] else None
                writer = _writer_of(line)
                yield Stepped(place, at_ns, last=step, took_ns=took_ns, first=step, writer=writer)
                if self._wanted is not None and step >= self._wanted:
                    yield LogEnded(place, at_ns, cause=DONE)
            case "torn":
                self._notes.odd(
                    place, "a step line that breaks off or is mixed with another: left out"
                )
            case "save":
                took_ns = _ns(found[1])
                if at_ns is not None:
                    yield Paused(place, at_ns, kind="save", start_ns=at_ns - took_ns)
                elif found[2] is not None:
                    yield Paused(place, kind="save", took_ns=took_ns, after=int(found[2]) + 1)
            case "restoring":
                yield Restoring(place, at_ns, step=int(found[1]) + 1)
            case "restored":
                yield RestoreEnded(place, at_ns)
            case "began":
                yield Began(place, at_ns, what=found[0])
            case "eval began" | "eval step" | "eval over":
                yield from self._evaluating(what, found, place, at_ns)
                yield LogEntry(place, at_ns)
            case "name":
                yield About(place, at_ns, name=found[1])
            case "wanted":
                self._wanted = int(found[1])
                yield LogEntry(place, at_ns)
            case "chips":
                chips = int(found[1])
                yield About(place, at_ns, chips=chips if 1 <= chips < 2**31 else None)
            case cause:
                yield LogEnded(place, at_ns, cause=cause)

    def _evaluating(
        self, what: str, found: re.Match[str], place: LogPlace, at_ns: int | None
    ) -> Iterator[LogEntry]:
        if what == "eval began":
            self._eval = (int(found[1]) + 1, at_ns, 0)
        elif self._eval is not None:
            after, since_ns, took_ns = self._eval
            if what == "eval step":
                self._eval = (after, since_ns, took_ns + _ns(found[1]))
                return
            self._eval = None
            if since_ns is not None and at_ns is not None:
                yield Paused(place, at_ns, kind="custom:eval", start_ns=since_ns)
            elif took_ns:
                yield Paused(place, kind="custom:eval", took_ns=took_ns, after=after)


def _unpacked(text: str) -> tuple[str, str]:
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


def _writer_of(line: str) -> str | None:
    """What tells the process that wrote it from the others: a rank, a pod, a thread's number."""
    found = _WRITER.match(line) or _THREAD.search(line, 0, 120)
    return None if found is None else found[found.lastindex or 0]


def _ns(seconds: str) -> int:
    whole, _, decimals = seconds.partition(".")
    return int(whole) * NS_PER_S + int(decimals.ljust(9, "0"))
