"""One journal of a run being followed: its new records, as facts on the run-wide clock."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np

from holdfast.core.save.word import MAX_STEP
from holdfast.journal.clocks import RunClock
from holdfast.journal.facts.lines import (
    FromInputs,
    Statement,
    is_wanted,
    parse_input,
    parse_statement,
)
from holdfast.journal.facts.rank_steps import ClosedSpans, Ints, RankTrack
from holdfast.journal.fields import printable
from holdfast.journal.layout import (
    CONTROLLER_RANK,
    FIRST_CUSTOM_SPAN,
    MAX_ARG,
    MAX_TIME_NS,
    SPAN_KINDS,
    SPAN_SLOTS,
    Kind,
    NoteType,
)
from holdfast.journal.reader import JournalReader, Records, argument
from holdfast.journal.sidecar import Payload, sidecar_path

# An open or failed restore is time before the first step, or between steps; the RESTORE record
# counts what was read.
_NOT_COUNTED = SPAN_KINDS.index("restore")
# Two writes within one tick of the file system's clock look like one, and what is written through a
# map shows in a file's times only after a while.
_SETTLED_NS = 60_000_000_000


Place = tuple[int, str]
"""Of a journal among those of its run: see `FollowedJournal.place`."""


class _Line(NamedTuple):
    """A line of the text file that a record points to: the record's number, where the line is."""

    number: int
    offset: int


@dataclass(slots=True)
class Polled:
    """What a poll found: records, statements, closed spans, when the supervisor was seen.

    `inputs`: what of a controller's inputs numbers are made of.
    """

    records: int = 0
    inputs: list[FromInputs] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)
    spans: list[ClosedSpans] = field(default_factory=list)
    seen_ns: list[Ints] = field(default_factory=list)


class FollowedJournal:
    """Follows one journal. `poll` may be called for ever; it costs little when nothing is new.

    The file is kept open between polls until `rest`; a poll opens it again.
    """

    def __init__(
        self, path: str | os.PathLike[str], clock: RunClock, home: Path | None = None
    ) -> None:
        """Reads the header, so that `clock` knows this boot; raises JournalError.

        `home`: where this live file is copied to, byte for byte, before it is removed; it is
        followed there from then on.
        """
        self.path = Path(path)
        self.home = home or self.path
        self.is_wrong = False
        """What was given is no longer right: something came late that belongs before it."""
        self._awaited: list[_Line] = []
        self._clock = clock
        with JournalReader(path) as reader:
            self.identity = reader.identity
            self.values = reader.values()
            pairs = reader.clocks()
        self._first_boot_ns = pairs[0].boottime_ns if pairs else None
        if pairs:
            self.is_wrong = clock.learn(self.identity.boot_id, pairs[0])
        is_rank = self.identity.rank != CONTROLLER_RANK
        self.track = RankTrack(self.identity.attempt) if is_rank else None
        self.fresh = True  # not polled yet
        self.seen_ns = 0  # the last sign of life in the records
        self.tokens = self.token_steps = 0  # of the steps that told how many they had
        self._damaged_lines = 0
        self.damaged_records = 0
        self._reader: JournalReader | None = None
        self._count = 0
        self._taken = 0  # the records that are sound
        self._last_record_ns = 0
        self._text_offset = 0
        self._has_text = False
        self._stated_number = -1  # of the last record whose statement was given
        self._lines: dict[int, Payload] = {}
        self._inputs: list[FromInputs] = []
        self._span_names = dict(enumerate(SPAN_KINDS))
        self._unnamed: set[int] = set()  # kinds of spans that were given before their names came
        self._closed: deque[tuple[int, int]] = deque(maxlen=SPAN_SLOTS)
        self._touched = Touched(self.path, sidecar_path(self.path))

    @property
    def place(self) -> Place:
        """Its place among the journals of its run: where they contradict, the last one counts."""
        return (-1 if self.track is None else self.identity.attempt), self.home.name

    @property
    def damaged_lines(self) -> int:
        """Facts that cannot be read. A live file's may be on their way."""
        return self._damaged_lines + (0 if self._is_live else len(self._awaited))

    def may_have_grown(self) -> bool:
        """Whether it is worth a poll though nobody should write it any more."""
        return self.fresh or self._touched.again()

    @property
    def offset_ns(self) -> int:
        """What brings this file's times onto the run-wide clock (0: no clock was ever read)."""
        return self._clock.offset_ns(self.identity.boot_id) or 0

    @property
    def first_ns(self) -> int | None:
        """When the file was made."""
        return None if self._first_boot_ns is None else self._first_boot_ns + self.offset_ns

    def poll(self) -> Polled:
        """What is new; steps go to `track`. Raises JournalError when the file has gone."""
        self.fresh = False
        self._come_home()
        reader = self._reader = self._reader or JournalReader(self.path)
        news = Polled()
        before = self._count
        self.is_wrong = self.is_wrong or reader.count() < before  # it was cut short since
        if self._has_text:
            self._read_text(reader)
        awaited, self._awaited = self._awaited, []
        news.statements.extend(self._stated(awaited, self.offset_ns))
        for records in reader.read_all(self._count):
            self._count += len(records)
            sound = _sound(records)
            self.damaged_records += len(records) - len(sound)
            if len(sound):
                self._take(reader, sound, news)
        # After the records: a span that was closed meanwhile is then merely still open.
        values = reader.values()
        if any(span.kind not in self._span_names for span in values.open_spans):
            self._read_text(reader)
        self.values = values
        news.inputs, self._inputs = self._inputs, []
        news.records = self._count - before
        return news

    def _come_home(self) -> None:
        if self._is_live and not self.path.exists() and self.home.exists():
            self.rest()
            self.path = self.home

    @property
    def _is_live(self) -> bool:
        return self.path is not self.home

    def rest(self) -> None:
        """Close the file until the next poll."""
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def supervised_ns(self) -> int:
        """The supervisor's last sign of life in the page; 0: none."""
        at_ns = self.values.supervisor_alive_at_ns
        return at_ns + self.offset_ns if at_ns else 0

    def alive_ns(self) -> int:
        """The last sign of life in records and words."""
        values = self.values
        beat = max(values.step_at_ns, values.owner_alive_at_ns, values.supervisor_alive_at_ns)
        newest = beat + self.offset_ns if beat else 0
        return max(self._last_record_ns, self.first_ns or 0, newest)

    def open_spans(self) -> Iterator[tuple[str, int]]:
        """Kind and start of the spans that had begun and not ended at the last poll."""
        for span in self.values.open_spans:
            if span.kind != _NOT_COUNTED and span not in self._closed:
                yield self._span_name(span.kind), span.start_ns + self.offset_ns

    def _take(self, reader: JournalReader, records: Records, news: Polled) -> None:
        first, self._taken = self._taken, self._taken + len(records)
        offset_ns = self.offset_ns
        self._last_record_ns = max(self._last_record_ns, int(records["time"].max()) + offset_ns)
        kinds = records["kind"]
        if self.track is not None:
            self.track.consume(records, offset_ns)
            if self.identity.rank == 0:
                told = argument(records[kinds == Kind.STEP])
                self.tokens += int(told.sum(dtype=np.float64))
                self.token_steps += int(np.count_nonzero(told))
            if (kinds == Kind.STEP).all():
                return
        spans, notes = records[kinds == Kind.SPAN], records[kinds == Kind.NOTE]
        if len(notes) or (len(spans) and (argument(spans) >= FIRST_CUSTOM_SPAN).any()):
            self._has_text = True
            self._read_text(reader)
        if len(spans):
            # A slot is taken back right after its record: only the newest can be in both.
            newest = spans[-SPAN_SLOTS:]
            self._closed.extend(
                zip(argument(newest).tolist(), newest["value"].tolist(), strict=True)
            )
            news.spans.append(self._spans(spans, offset_ns))
        is_fact = (kinds == Kind.NOTE) & (argument(records) == NoteType.FACT)
        numbers = np.flatnonzero(is_fact) + first
        lines = zip(numbers.tolist(), records["value"][is_fact].tolist(), strict=True)
        news.statements.extend(self._stated(map(_Line._make, lines), offset_ns))
        signs = (kinds == Kind.SEEN) | (kinds == Kind.PROGRESS)
        if signs.any():
            seen_ns = records["time"][signs] + offset_ns
            news.seen_ns.append(seen_ns)
            self.seen_ns = max(self.seen_ns, int(seen_ns.max()))

    def _spans(self, spans: Records, offset_ns: int) -> ClosedSpans:
        ids = argument(spans)
        if (ids == _NOT_COUNTED).any():
            spans, ids = spans[ids != _NOT_COUNTED], ids[ids != _NOT_COUNTED]
        known, kind = np.unique(ids, return_inverse=True)
        end = spans["time"] + offset_ns
        start = np.minimum(spans["value"] + offset_ns, end)
        return ClosedSpans([self._span_name(number) for number in known.tolist()], kind, start, end)

    def _span_name(self, kind: int) -> str:
        if kind not in self._span_names:
            self._unnamed.add(kind)
        return self._span_names.get(kind, "custom:unnamed")

    def _stated(self, lines: Iterable[_Line], offset_ns: int) -> Iterator[Statement]:
        for line in lines:
            payload = self._lines.pop(line.offset, None)
            if payload is None and line.offset >= self._text_offset:
                self._awaited.append(line)
                continue
            statement = None if payload is None else parse_statement(payload, offset_ns)
            if statement is None:
                self._damaged_lines += 1
                continue
            self.is_wrong = self.is_wrong or line.number < self._stated_number
            self._stated_number = line.number
            yield statement

    def _read_text(self, reader: JournalReader) -> None:
        lines, self._text_offset = reader.read_sidecar(self._text_offset, is_wanted)
        for line in lines:
            is_fact = "fact" in line.payload
            if is_fact:
                self._lines[line.offset] = line.payload
            if self.track is None and (is_fact or "event" in line.payload):
                said = parse_input(line.payload, self.offset_ns)
                self._inputs += [said] if said is not None else []
                continue
            if is_fact:
                continue
            number, name = line.payload.get("span_id"), line.payload.get("name")
            if type(number) is int and FIRST_CUSTOM_SPAN <= number <= MAX_ARG:
                self.is_wrong = self.is_wrong or number in self._unnamed
                self._span_names[number] = f"custom:{printable(str(name))}"


def _sound(records: Records) -> Records:
    """Without the records whose times or steps cannot be: their sums would mean nothing."""
    time, step, value = records["time"], records["step"], records["value"]
    highest = max(int(time.max()), int(value.max())), int(step.max())
    lowest = min(int(time.min()), int(value.min()), int(step.min()))
    if lowest >= 0 and highest[0] <= MAX_TIME_NS and highest[1] <= MAX_STEP:
        return records
    low = (time >= 0) & (value >= 0) & (step >= 0)
    return records[low & (time <= MAX_TIME_NS) & (value <= MAX_TIME_NS) & (step <= MAX_STEP)]


class Touched:
    """Whether files may have changed since the last look; a look costs less than a reading.

    By their sizes, times and inodes; or folders, whose times tell of new names.
    """

    __slots__ = ("_looked", "_paths")

    def __init__(self, *paths: Path) -> None:
        """Nothing is looked at yet."""
        self._paths = paths
        self._looked: tuple[tuple[int, ...], ...] | None = None

    def again(self) -> bool:
        """Look: whether any of them may have changed since the last look. The first is True."""
        before, self._looked = self._looked, tuple(map(_look, self._paths))
        newest_ns = max(look[0] for look in self._looked)
        return self._looked != before or time.time_ns() - newest_ns < _SETTLED_NS


def _look(path: Path) -> tuple[int, ...]:
    try:
        info = os.stat(path, follow_symlinks=False)  # noqa: PTH116 - of some thousand files
    except OSError:
        return (0,)
    return info.st_mtime_ns, info.st_size, info.st_ino
