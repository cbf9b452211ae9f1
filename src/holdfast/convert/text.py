"""Logs that are lines of text: what each line tells is said by a format's rules."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.convert.asked import ConvertOptions
from holdfast.convert.lines import head, lines
from holdfast.convert.notes import LogPlace, Notes
from holdfast.convert.seen import BAR, Seen
from holdfast.convert.stamps import ElapsedClock, StampClock, clock_of, in_order
from holdfast.core.durations import SECOND_NS

_WRITER = re.compile(
    r"\[?(?:rank|default|process|worker|host)\s?[=:_-]?\s?(\d{1,9})\b|\s*(\d{1,9}): |"
    r"\[(pod/[^\]]{1,200})\]",
    re.ASCII | re.IGNORECASE,
)
_THREAD = re.compile(r"[IWEF]\d{4} [\d:.]+\s+(\d{1,20}) ", re.ASCII)
# The training's bar is that under which a loss is printed: an evaluation before it has one, too.
_BAR_OF_TRAINING = re.compile(
    r"/(\d{1,12}) \[\d[\d:]*<(?:(?!/\d{1,12} \[\d[\d:]*<).)*?(?:'loss':|'train_runtime')",
    re.ASCII | re.DOTALL,
)


def _ns(seconds: str) -> int:
    return round(float(seconds) * SECOND_NS)


def _chips(text: str) -> int | None:
    return int(text) if 1 <= int(text) < 2**31 else None


_FIELDS: dict[str, Callable[[str], object]] = {
    "step": int, "took_ns": _ns, "wanted": int, "name": str, "chips": _chips
}  # fmt: skip


class LineRule(NamedTuple):
    """A line with these words, and the pattern after them, tells `what` of `Seen`, or of a `bar`.

    Groups of the pattern are fields of it; `name` is another.
    """

    what: str
    name: str
    words: str
    pattern: re.Pattern[str]


def rules(*rows: tuple[str, ...]) -> tuple[LineRule, ...]:
    """What a line tells (`what: name`), its words, a pattern of what follows; the first counts."""
    made = []
    for told, words, *rest in rows:
        what, _, name = told.partition(": ")
        made.append(
            LineRule(what, name, words, re.compile(re.escape(words) + "".join(rest), re.ASCII))
        )
    return tuple(made)


class TextReader:
    """Reads one file after the other; `shift` is added to steps."""

    def __init__(
        self, line_rules: tuple[LineRule, ...], asked: ConvertOptions, notes: Notes, shift: int
    ) -> None:
        self._rules = line_rules
        self._asked = asked
        self._notes = notes
        self._shift = shift
        self._elapsed = ElapsedClock(asked)  # of the bar, as is the rest
        self._total: int | None = None
        self._done = 0

    def read(self, paths: list[Path], *, have_stamps: bool) -> Iterator[Seen]:
        """What the logs tell; those without stamps in the order given."""
        for path in in_order(paths, self._asked, self._notes) if have_stamps else paths:
            yield Seen("file", LogPlace(str(path)))
            if have_stamps:
                clock = clock_of(path, self._asked)
                yield from self._read(path, clock)
                clock.say(str(path), self._notes)
            else:
                if self._total is None and path.is_file():
                    found = _BAR_OF_TRAINING.search(head(path).decode("utf-8", "replace"))
                    self._total = int(found[1]) if found else None
                yield from self._read(path, None)

    def _read(self, path: Path, clock: StampClock | None) -> Iterator[Seen]:
        for number, text in lines(path, self._notes):
            place, at_ns, line = LogPlace(str(path), number), None, text
            if clock is not None:
                line, stamp = _unpacked(text) if text.startswith("{") else (text, text)
                at_ns = clock.read(stamp)
            for what, name, words, pattern in self._rules:
                if words in line and (found := pattern.search(line)):
                    if what == "bar":
                        yield from self._bar(place, found)
                    else:
                        yield self._seen(what, name, found, place, at_ns)
                    break
            else:
                if at_ns is not None:
                    yield Seen("line", place, at_ns)

    def _seen(
        self, what: str, name: str, found: re.Match[str], place: LogPlace, at_ns: int | None
    ) -> Seen:
        fields: dict[str, Any] = {"name": name} | {
            field: _FIELDS[field](text) for field, text in found.groupdict().items() if text
        }
        if "step" in fields:
            fields["step"] += self._shift
        elif what == "pause" and self._total is not None:
            fields["step"] = self._done
        if what == "step":
            fields["first"] = fields["step"]
        return Seen(what, place, at_ns, writer=_writer_of(found.string), **fields)

    def _bar(self, place: LogPlace, found: re.Match[str]) -> Iterator[Seen]:
        """A progress bar: steps done, and whole seconds since the training began."""
        done, total, hours, minutes, seconds = map(int, found.groups("0"))
        self._total = self._total or total
        if total != self._total or not found.string[: found.start()].strip().isdecimal():
            return  # an evaluation's, usually
        elapsed_ns = (hours * 3600 + minutes * 60 + seconds) * SECOND_NS
        at_ns, began = self._elapsed.read(elapsed_ns, is_another=done < self._done)
        if began:
            self._done = 0
            yield Seen("began", place, self._elapsed.start_ns, name=BAR, is_sure=True)
        if done > self._done:
            self._done = done
            yield Seen("step", place, at_ns, done)


def _unpacked(text: str) -> tuple[str, str]:
    """The line and its stamp in a JSON object of a log service; else the text itself, twice."""
    try:
        entry = json.loads(text)
    except (ValueError, RecursionError):
        entry = None
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
