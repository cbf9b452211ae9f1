"""The journal's layout: what each byte of a `.hfj` file means. Version 1.

A file is two pages and then records, all little-endian 64-bit words.

- Page 0, identity: magic, version, sizes, a JSON object (run, attempt, incarnation, slice, host,
  rank, boot id), and append-only pairs of clock readings (CLOCK_BOOTTIME, unix), nanoseconds.
- Page 1, the words: single aligned 64-bit values that one process stores and another loads. The
  owner (the rank) stores the first half; its supervisor stores the second half. No locks.
- Records of 32 bytes: time, kind with flags and argument, step, value.

A record is valid when its index is below the published count (`Word.COUNT`) and its kind is not 0.
Times are CLOCK_BOOTTIME nanoseconds of the boot named in the identity. Beside `NAME.hfj` lies its
sidecar `NAME.jsonl`: rare facts that need text, one JSON object a line.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from enum import IntEnum, IntFlag
from typing import Any

from holdfast.core.value import value
from holdfast.journal.fields import MAX_ATTEMPT, MAX_RANKS, load_json, text, whole

MAGIC = int.from_bytes(b"HOLDFAST", "little")
VERSION = 1

JOURNAL_SUFFIX = ".hfj"
SIDECAR_SUFFIX = ".jsonl"
REPORT_SUFFIX = ".report"  # beside a live journal: how the process failed, for its supervisor
STACKS_SUFFIX = ".stacks"  # beside a live journal: what the process writes when asked for stacks

WORD_BYTES = 8
PAGE_BYTES = 4096
HEADER_BYTES = 2 * PAGE_BYTES
RECORD_BYTES = 32
RECORD_WORDS = 4
CHUNK_RECORDS = 32_768  # 1 MiB: one posix_fallocate and one mmap per 32,768 steps
CHUNK_BYTES = CHUNK_RECORDS * RECORD_BYTES

# Page 0, byte offsets. Words 0..3: MAGIC, VERSION, HEADER_BYTES, RECORD_BYTES.
IDENTITY_OFFSET = 64  # u64 length, then that many bytes of UTF-8 JSON
IDENTITY_MAX_BYTES = 1984 - WORD_BYTES
CLOCKS_OFFSET = 2048  # u64 number of pairs, then pairs (boottime_ns, unix_ns)
CLOCKS_MAX_PAIRS = 127

MAX_LINE_BYTES = 65_536  # a sidecar line; what is longer is cut before it is written
MAX_TIME_NS = 4_000_000_000_000_000_000  # 126 years: no clock of ours says more, and sums fit
CONTROLLER_RANK = -1  # Identity.rank of a controller's own journal


@value
class Identity:
    """Who wrote a journal. `incarnation` is unique to one process's life."""

    run: str
    attempt: int
    incarnation: str
    slice: int
    host: str
    rank: int
    boot_id: str

    def to_json(self) -> bytes:
        """UTF-8 JSON; raises ValueError when it does not fit into the header."""
        data = json.dumps(asdict(self), separators=(",", ":")).encode()
        if len(data) > IDENTITY_MAX_BYTES:
            raise ValueError(
                f"the identity of run {self.run[:40]!r} takes {len(data)} bytes, the journal's "
                f"header has {IDENTITY_MAX_BYTES}; use a shorter run or host name"
            )
        return data

    @classmethod
    def from_json(cls, data: bytes) -> Identity:
        """The inverse of `to_json`; keys it does not know are ignored. Raises ValueError."""
        fields: Any = load_json(data)
        if not isinstance(fields, Mapping):
            raise ValueError("it is no JSON object")
        return cls(
            run=text(fields, "run"),
            attempt=whole(fields, "attempt", high=MAX_ATTEMPT),
            incarnation=text(fields, "incarnation"),
            slice=whole(fields, "slice", high=MAX_RANKS),
            host=text(fields, "host"),
            rank=whole(fields, "rank", CONTROLLER_RANK, MAX_RANKS - 1),
            boot_id=text(fields, "boot_id"),
        )


class Word(IntEnum):
    """Index of a 64-bit word in page 1. Each half has one writer, so stores never race."""

    # Stored by the owner of the file (the rank).
    COUNT = 0  # records published
    DROPPED = 1  # records not written: no space left
    STEP = 2  # last step dispatched (the last boundary passed)
    STEP_AT = 3  # its time, CLOCK_BOOTTIME ns
    COMPLETE = 4  # last step known complete on the device
    COMPLETE_AT = 5  # its time
    STEP_STARTED = 6  # start of the row of steps under way; 0: no step is (see PageValues)
    PHASE = 7  # Phase
    COPIED = 8  # agreement word: the (epoch, step) this rank has copied
    DURABLE = 9  # agreement word: the (epoch, step) whose shard is durable, receipt written
    FAILED = 10  # agreement word: the (epoch, step) that could not be saved
    SIGTERMS = 11  # SIGTERMs this rank has received
    ERRORS = 12  # errors of Holdfast's own that were counted instead of raised
    SAVE_BLOCKED_NS = 13  # how long the last save blocked training
    SAVE_TOTAL_NS = 14  # from order to durable shard
    SAVE_ASKED = 15  # the script asked for a save: a counter
    OWNER_PID = 16
    OWNER_ALIVE_AT = 17  # helper thread's heartbeat
    WATERMARK = 18  # step of the newest set this rank restored from (resume step)
    COMPILING_AT = 19  # a compilation that JAX reports is under way since then; 0: none
    SPANS_NS = 20  # time in outermost spans that were closed, each of SIGN_OF_LIFE_NS or more
    SPAN_ENDED_AT = 21  # when the last of them was, or the script polled
    AWAITED = 22  # the step whose completion on the device is being waited for
    AWAITED_AT = 23  # since then; 0: for none
    STACKS = 24  # bits 0..7: a signal that writes this process's stacks; 8..: the descriptor; 0: no
    BUFFERS = 25  # buffers of the memory tier that this rank has allocated and touched; 0: none
    COMPILE_HITS = 26  # programs that were found compiled: in JAX's cache, or by run.compile
    COMPILE_MISSES = 27  # programs that were looked for there, and had to be compiled
    COMPILE_SAVED_NS = 28  # what compiling the found ones had taken, less what finding them took
    TAKEN = 29  # agreement word: the order that this rank answers, with the step it takes for it
    TOGETHER_NS = 30  # time in collectives, as far as the script marks them
    UNTIL = 31  # the last step that the script wants; the highest number: it does not say
    # Open spans, innermost last: SPAN_SLOTS pairs (kind id + 1, start); 0 in the first: free.
    OPEN_SPANS = 32
    # Stored by the supervisor (or by the session's own conductor thread when there is none).
    ORDER = 256  # agreement word: (epoch, flags, step) to save at
    VERDICT = 257  # agreement word: (epoch, flags, step) decided
    DEADLINE_AT = 258  # CLOCK_BOOTTIME ns by which a stop must be over; 0: none
    SUPERVISOR_ALIVE_AT = 259  # heartbeat
    COMMITTED = 260  # newest committed step of this attempt


SPAN_SLOTS = 8
SIGN_OF_LIFE_NS = 1_000_000  # shorter spans are part of the step that they stand in


class RankPhase(IntEnum):
    """What the rank is doing, coarsely; for the supervisor's decisions and the status block."""

    STARTING = 0
    TRAINING = 1
    WAITING = 2  # snapshot taken for a stop; waits for the verdict
    LOOP_ENDED = 3  # the last step is done; answers any order
    FINISHED = 4  # final set durable: exit code 0 means done
    FAILING = 5  # an exception is on its way out
    RECORDING = 6  # a goodput recorder tells steps; there is no session, and no order is answered


class Kind(IntEnum):
    """Record kinds. Numbers are for ever: old journals must read; unknown kinds are skipped."""

    STEP = 1  # time: end; arg: tokens; step; value: start (0: unknown)
    STEP_BEGIN = 2  # time: start of a step that no STEP record with CONTINUES announced; step
    SPAN = 3  # time: end; arg: span kind id; step: last step done; value: start
    RESTORE = 4  # time: end; arg: source attempt + 1 (0: from scratch); step; value: start
    NOTE = 5  # time; arg: note type; step; value: byte offset of its line in the sidecar
    SEEN = 6  # time: a sign of life of the supervisor
    PROGRESS = 7  # controller input: time; arg: rank; step; value: attempt
    COMPLETE = 8  # time: device completion of `step`, stamped by a watcher; value: 0
    LOOP_END = 9  # time: from here on no step is under way, CONTINUES notwithstanding; step: last


class Flag(IntFlag):
    """Flags of a record: bits 8..15 of word 1."""

    CONTINUES = 1  # STEP: the next step began where this one ended


class NoteType(IntEnum):
    """Types of NOTE records (their argument)."""

    FACT = 1  # {"fact": ...}: an event of the history format; times are CLOCK_BOOTTIME ns
    INPUT = 2  # an input that the controller fed to the core, in the order fed
    MESSAGE = 3  # for people: a warning, a traceback
    CONTROLLER = 4  # by which policy the controller decides; a checksum of what it decided


SPAN_KINDS: tuple[str, ...] = ("startup", "compile", "save", "data", "restore")
UNNAMED_SPAN = 15  # a custom span whose name could not be written to the sidecar
FIRST_CUSTOM_SPAN = 16  # custom span ids from here on are named by a sidecar line before their use

MAX_ARG = 0xFFFF_FFFF_FFFF


def pack_kind(kind: int, flags: int = 0, arg: int = 0) -> int:
    """Word 1 of a record: kind in bits 0..7, flags in 8..15, argument in 16..63."""
    return kind | flags << 8 | (arg & MAX_ARG) << 16
