"""The hot path of a journal: closures over mapped memory.

A record is published by storing its time, step and value, then its kind, then the count: a reader
that trusts only records below the count never sees half of one, whatever instruction a SIGKILL
lands on. (x86-64 keeps stores in order. Elsewhere a reader of the *live* file may meet a record
whose kind is still 0, and stops there.)

Why closures: a step costs about 0.4 µs, half of it the eight 64-bit moves, and a cell variable is
the cheapest state that CPython has next to a local. docs/decisions/0003-journal-records.md has the
figures, and what else was tried.

One thread owns a tape and is the only one to append. Any other thread hands records over; they are
written at the owner's next record. Noticing them is free: handing over lowers the limit that is
compared at each record anyway. Signal handlers may hand over too, and must do no more than that.
"""

from __future__ import annotations

import mmap
import operator
import time
from collections import deque
from collections.abc import Callable
from typing import NamedTuple

from holdfast.journal.clocks import CLOCK_ID
from holdfast.journal.layout import (
    CHUNK_BYTES,
    CHUNK_RECORDS,
    HEADER_BYTES,
    MAX_ARG,
    PAGE_BYTES,
    RECORD_BYTES,
    RECORD_WORDS,
    SIGN_OF_LIFE_NS,
    SPAN_SLOTS,
    Flag,
    Kind,
    Word,
    pack_kind,
)
from holdfast.journal.mapping import Words, map_words, private_words, reserve, unmap
from holdfast.journal.own_file import OwnFile

RETRY_DROPS = 1024  # after so many records lost for want of space, look for space again
RETRY_NS = 1_000_000_000  # and at the latest after this long
HANDED_OVER_MAX = 65_536  # records waiting for the owner; what comes on top is dropped, counted

_CHUNK_WORDS = CHUNK_RECORDS * RECORD_WORDS
_MAX_VALUE = (1 << 64) - 1


class Tape(NamedTuple):
    """The operations of one open journal. JournalWriter documents each."""

    append: Callable[[int, int, int, int, int, int], None]
    hand_over: Callable[[int, int, int, int, int, int], None]
    record_step: Callable[..., int]
    begin_step: Callable[[int, int | None], None]
    end_steps: Callable[[int | None], None]
    open_span: Callable[[str], int]
    close_span: Callable[..., int]
    count_drop: Callable[[], None]
    flush: Callable[[], None]
    detach: Callable[[], None]


def make_tape(
    page: Words, own: OwnFile | None, kinds: dict[str, int], name_span: Callable[[str], int]
) -> Tape:
    """Operations that append to the file `own` and store into the words of `page`.

    `kinds` gives the id of a span kind; `name_span` finds one for a name that is not in it.
    Without a file nothing is recorded; words are stored all the same.
    """
    words = page
    file = own
    chunk: mmap.mmap | None = None
    records: Words = private_words(0)
    index = _CHUNK_WORDS  # where in `records` the next one goes
    limit = 0  # at or above it, `make_room` is called first
    count = 0
    dropped = 0
    stopped = False  # no space: recording is off
    tried_ns = 0
    started_ns = 0  # start of the step under way
    handed_over: deque[tuple[int, int, int, int, int, int]] = deque()
    spans: list[tuple[int, int]] = []  # (kind, start) of open spans, innermost last

    clock = time.clock_gettime_ns
    clock_id = CLOCK_ID
    step_continues = pack_kind(Kind.STEP, Flag.CONTINUES)
    # Plain ints: an IntEnum member as an index costs 20 ns each.
    count_word, step_word, step_at_word = int(Word.COUNT), int(Word.STEP), int(Word.STEP_AT)
    order_word, started_word = int(Word.ORDER), int(Word.STEP_STARTED)
    span_kind = int(Kind.SPAN)
    spans_word, span_ended_word = int(Word.SPANS_NS), int(Word.SPAN_ENDED_AT)
    sign_of_life_ns = SIGN_OF_LIFE_NS
    first_slot = free_slot = int(Word.OPEN_SPANS)
    last_slot = first_slot + 2 * SPAN_SLOTS - 2

    def record_step(step: int, tokens: int = 0) -> int:
        nonlocal index, count, started_ns
        now_ns = clock(clock_id)
        try:
            if index < limit or make_room(now_ns):
                at = index
                records[at] = now_ns
                records[at + 2] = step
                records[at + 3] = started_ns
                records[at + 1] = step_continues | tokens << 16
                index = at + 4
                count += 1
                words[count_word] = count
            words[step_word] = step
        except (TypeError, ValueError):
            # Nothing was published. A float for tokens must not cost the step.
            whole = _whole(tokens, MAX_ARG)
            if whole is not tokens:
                return record_step(step, whole)
            words[Word.ERRORS] += 1
        words[step_at_word] = started_ns = now_ns
        order: int = words[order_word]
        return order

    def append(time_ns: int, kind: int, flags: int, arg: int, step: int, value: int) -> None:
        if index >= limit and not make_room(time_ns):
            return
        put(time_ns, kind, flags, arg, step, value)

    def put(time_ns: int, kind: int, flags: int, arg: int, step: int, value: int) -> None:
        nonlocal index, count
        at = index
        try:
            records[at] = time_ns
            records[at + 2] = step
            records[at + 3] = value
            records[at + 1] = kind | flags << 8 | arg << 16
        except (TypeError, ValueError):
            records[at] = _whole(time_ns, _MAX_VALUE)
            records[at + 2] = _whole(step, _MAX_VALUE)
            records[at + 3] = _whole(value, _MAX_VALUE)
            records[at + 1] = pack_kind(kind, flags, _whole(arg, MAX_ARG))
        index = at + RECORD_WORDS
        count += 1
        words[count_word] = count

    def make_room(now_ns: int) -> bool:
        """Write what was handed over, then see that there is a place; False: dropped, counted."""
        drain(now_ns)
        return index < _CHUNK_WORDS or next_chunk(now_ns)

    def drain(now_ns: int) -> None:
        nonlocal limit
        # First the limit, then the queue: what is handed over meanwhile lowers the limit again.
        limit = _CHUNK_WORDS
        while handed_over:
            record = handed_over.popleft()
            if index < _CHUNK_WORDS or next_chunk(now_ns):
                put(*record)

    def next_chunk(now_ns: int) -> bool:
        nonlocal chunk, records, index, stopped, tried_ns
        is_time = not stopped or dropped % RETRY_DROPS == 0 or now_ns - tried_ns >= RETRY_NS
        if file is not None and is_time:
            tried_ns = now_ns
            try:
                offset = HEADER_BYTES + count * RECORD_BYTES
                fd = file.descriptor()
                reserve(fd, offset, CHUNK_BYTES)
                fresh, fresh_records = map_words(fd, offset, CHUNK_BYTES)
            except (OSError, ValueError, MemoryError):
                pass
            else:
                old, old_records = chunk, records
                chunk, records, index, stopped = fresh, fresh_records, 0, False
                if old is not None:
                    unmap(old, old_records, is_shaken=file.is_shaken)
                return True
        stopped = True
        count_drop()
        return False

    def count_drop() -> None:
        nonlocal dropped
        dropped += 1
        words[Word.DROPPED] = dropped

    def hand_over(time_ns: int, kind: int, flags: int, arg: int, step: int, value: int) -> None:
        nonlocal limit
        if len(handed_over) >= HANDED_OVER_MAX:
            count_drop()
            return
        handed_over.append((time_ns, kind, flags, arg, step, value))
        limit = -1

    def begin_step(step: int, at_ns: int | None) -> None:
        nonlocal started_ns
        started_ns = clock(clock_id) if at_ns is None else _whole(at_ns, _MAX_VALUE)
        append(started_ns, Kind.STEP_BEGIN, 0, 0, step, 0)
        words[started_word] = started_ns

    def end_steps(at_ns: int | None) -> None:
        nonlocal started_ns
        append(
            clock(clock_id) if at_ns is None else at_ns, Kind.LOOP_END, 0, 0, words[step_word], 0
        )
        words[started_word] = started_ns = 0

    def open_span(kind: str) -> int:
        nonlocal free_slot
        try:
            number = kinds[kind]
        except KeyError:
            number = name_span(kind)
        start_ns = clock(clock_id)
        token = free_slot
        if token <= last_slot:
            words[token + 1] = start_ns
            words[token] = number + 1
        spans.append((number, start_ns))
        free_slot = token + 2
        return token

    def close_span(token: int, min_ns: int = 0) -> int:
        nonlocal free_slot
        end_ns = clock(clock_id)
        if token != free_slot - 2:
            if not first_slot <= token < free_slot:
                return 0  # closed before
            while free_slot > token + 2:  # an exception left these open
                close_span(free_slot - 2)
        number, start_ns = spans.pop()
        free_slot = token
        # Recorded first, then taken out of its slot: a reader that meets both drops the slot.
        lasted_ns = end_ns - start_ns
        if lasted_ns >= min_ns and (index < limit or make_room(end_ns)):
            put(end_ns, span_kind, 0, number, words[step_word], start_ns)
        if token <= last_slot:
            words[token] = 0
        if lasted_ns >= sign_of_life_ns and token == first_slot:
            words[spans_word] += lasted_ns
            words[span_ended_word] = end_ns
        return lasted_ns

    def flush() -> None:
        drain(clock(clock_id))

    def detach() -> None:
        nonlocal words, records, chunk, file, index, limit
        old, old_records = chunk, records
        words, records, chunk = private_words(PAGE_BYTES), private_words(0), None
        is_shaken = file is not None and file.is_shaken
        file, index, limit = None, _CHUNK_WORDS, 0
        handed_over.clear()
        if old is not None:
            unmap(old, old_records, is_shaken=is_shaken)

    return Tape(
        append=append,
        hand_over=hand_over,
        record_step=record_step,
        begin_step=begin_step,
        end_steps=end_steps,
        open_span=open_span,
        close_span=close_span,
        count_drop=count_drop,
        flush=flush,
        detach=detach,
    )


def _whole(number: int, most: int) -> int:
    """`number` itself when it is an int of 0..most, else the nearest such int; 0 for the rest."""
    if type(number) is int and 0 <= number <= most:
        return number
    try:
        return min(max(operator.index(number), 0), most)
    except TypeError:
        pass
    try:
        return min(max(int(number), 0), most)
    except (TypeError, ValueError, OverflowError):
        return 0
