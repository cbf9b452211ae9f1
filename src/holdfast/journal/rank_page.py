"""A rank's page: single 64-bit values that one process stores and another loads, without locks.

Page 1 of a rank's journal. The rank maps it and stores the first half; its agent maps the same file
and stores the second half. Each store or load is one aligned 64-bit move: never torn.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path
from typing import NamedTuple

from holdfast.core.save.word import MAX_STEP, Agreed, unpack
from holdfast.core.value import value
from holdfast.errors import JournalError
from holdfast.journal.layout import (
    HEADER_BYTES,
    MAGIC,
    MAX_TIME_NS,
    PAGE_BYTES,
    RECORD_BYTES,
    SPAN_KINDS,
    SPAN_SLOTS,
    VERSION,
    WORD_BYTES,
    RankPhase,
    Word,
)
from holdfast.journal.mapping import Words, detach_in_forked_child, map_words, private_words, unmap
from holdfast.journal.regular import open_regular

_PAGE_WORDS = PAGE_BYTES // WORD_BYTES
_LAST_STEP = MAX_STEP // 2  # so that an order ahead of it still fits into an agreement word


class OpenSpan(NamedTuple):
    """A span that had begun and not ended. `kind` is a span kind id."""

    kind: int
    start_ns: int


@value
class PageValues:
    """All words of a rank, loaded one after the other. Times: CLOCK_BOOTTIME ns, 0 for never.

    `open_spans` are in the order in which they were opened, but for a compilation, which is last.
    `step_under_way_since_ns` is derived: with no step under way it is 0, else the later of the
    row's start and the last boundary.
    """

    count: int
    dropped: int
    step: int
    step_at_ns: int
    complete: int
    complete_at_ns: int
    step_under_way_since_ns: int
    phase: RankPhase
    taken: Agreed
    copied: Agreed
    durable: Agreed
    failed: Agreed
    sigterms: int
    errors: int
    save_blocked_ns: int
    save_total_ns: int
    save_asked: int
    owner_pid: int
    owner_alive_at_ns: int
    watermark: int
    spans_ns: int
    span_ended_at_ns: int
    together_ns: int
    until: int
    awaited: int
    awaited_at_ns: int
    stacks: int
    buffers: int
    compile_hits: int
    compile_misses: int
    compile_saved_ns: int
    open_spans: tuple[OpenSpan, ...]
    order: Agreed
    verdict: Agreed
    supervisor_alive_at_ns: int
    committed: int


def page_values(page: Words) -> PageValues:
    """The words of a mapped page 1.

    The page is another process's memory, and a program can write anywhere in its own: a step or a
    time that cannot be counts as never said. PHASE is loaded first, and the others in the order of
    their numbers, STEP before TAKEN; what that proves, `core.save.ranks.RankAnswers` says.
    """
    phase = _phase(page[Word.PHASE])
    owner = page[: Word.OPEN_SPANS + 2 * SPAN_SLOTS].tolist()
    started_ns, step_at_ns = _time(owner[Word.STEP_STARTED]), _time(owner[Word.STEP_AT])
    slots = owner[Word.OPEN_SPANS :]
    return PageValues(
        count=owner[Word.COUNT],
        dropped=owner[Word.DROPPED],
        step=_step(owner[Word.STEP]),
        step_at_ns=step_at_ns,
        complete=_step(owner[Word.COMPLETE]),
        complete_at_ns=_time(owner[Word.COMPLETE_AT]),
        step_under_way_since_ns=max(started_ns, step_at_ns) if started_ns else 0,
        phase=phase,
        taken=unpack(owner[Word.TAKEN]),
        copied=unpack(owner[Word.COPIED]),
        durable=unpack(owner[Word.DURABLE]),
        failed=unpack(owner[Word.FAILED]),
        sigterms=owner[Word.SIGTERMS],
        errors=owner[Word.ERRORS],
        save_blocked_ns=_time(owner[Word.SAVE_BLOCKED_NS]),
        save_total_ns=_time(owner[Word.SAVE_TOTAL_NS]),
        save_asked=owner[Word.SAVE_ASKED],
        owner_pid=owner[Word.OWNER_PID],
        owner_alive_at_ns=_time(owner[Word.OWNER_ALIVE_AT]),
        watermark=_step(owner[Word.WATERMARK]),
        spans_ns=_time(owner[Word.SPANS_NS]),
        span_ended_at_ns=_time(owner[Word.SPAN_ENDED_AT]),
        together_ns=_time(owner[Word.TOGETHER_NS]),
        until=_step(owner[Word.UNTIL]),
        awaited=_step(owner[Word.AWAITED]),
        awaited_at_ns=_time(owner[Word.AWAITED_AT]),
        stacks=owner[Word.STACKS],
        buffers=owner[Word.BUFFERS],
        compile_hits=owner[Word.COMPILE_HITS],
        compile_misses=owner[Word.COMPILE_MISSES],
        compile_saved_ns=_time(owner[Word.COMPILE_SAVED_NS]),
        open_spans=_open_spans(slots, _time(owner[Word.COMPILING_AT])),
        order=unpack(page[Word.ORDER]),
        verdict=unpack(page[Word.VERDICT]),
        supervisor_alive_at_ns=_time(page[Word.SUPERVISOR_ALIVE_AT]),
        committed=_step(page[Word.COMMITTED]),
    )


def _open_spans(slots: list[int], compiling_ns: int) -> tuple[OpenSpan, ...]:
    """Those of the slots, and the compilation: it may be another thread's, so it has no slot."""
    spans = [
        OpenSpan(kind - 1, _time(start_ns))
        for kind, start_ns in zip(slots[::2], slots[1::2], strict=True)
        if kind
    ]
    if compiling_ns:
        spans.append(OpenSpan(SPAN_KINDS.index("compile"), compiling_ns))
    return tuple(spans)


def _time(value: int) -> int:
    return value if value <= MAX_TIME_NS else 0


def _step(value: int) -> int:
    return value if value <= _LAST_STEP else 0


def _phase(value: int) -> RankPhase:
    try:
        return RankPhase(value)
    except ValueError:
        return RankPhase.STARTING


class RankPage:
    """One mapped page: `load`, `store` and `snapshot`.

    In a forked child, and after `detach`, loads give 0 and stores go nowhere.
    """

    __slots__ = ("__weakref__", "_mapped", "words")

    words: Words
    """The page itself, 512 words; another view takes its place at `detach`."""

    def __init__(self, mapped: mmap.mmap | None, page: Words) -> None:
        self._mapped = mapped
        self.words = page
        detach_in_forked_child(self)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> RankPage:
        """Map page 1 of an existing journal, for loads and stores.

        Raises JournalError when the file is missing, not (yet) a journal, or of a newer version.
        """
        try:
            fd = open_regular(path, os.O_RDWR)
            try:
                if os.fstat(fd).st_size < HEADER_BYTES:
                    raise JournalError(
                        f"{Path(path)} is not a journal yet: its header is cut short"
                    )
                mapped, words = map_words(fd, 0, HEADER_BYTES)
            finally:
                os.close(fd)
        except OSError as problem:
            raise JournalError(
                f"cannot open the journal {Path(path)}: {problem.strerror}"
            ) from None
        try:
            check_header(words, path)
        except JournalError:
            unmap(mapped, words)
            raise
        return cls(mapped, words[_PAGE_WORDS:])

    def load(self, word: int) -> int:
        """The word's value now."""
        value: int = self.words[word]
        return value

    def store(self, word: int, value: int) -> None:
        """Store a value of 0 to 2**64 - 1; raises ValueError for any other."""
        self.words[word] = value

    def increment(self, word: int) -> None:
        """Add one. Only the word's one writer may: load and store are two moves."""
        self.words[word] += 1

    def snapshot(self) -> PageValues:
        """All words, for decisions and the status block."""
        return page_values(self.words)

    def detach(self) -> None:
        """Unmap; from here on loads give 0 and stores go nowhere."""
        page, self.words = self.words, private_words(PAGE_BYTES)
        mapped, self._mapped = self._mapped, None
        if mapped is not None:
            unmap(mapped, page)


def check_header(words: Words, path: str | os.PathLike[str]) -> None:
    """Raise JournalError unless these are the first words of a journal that this version reads."""
    name = Path(path)
    magic, version, header_bytes, record_bytes = words[:4].tolist()
    if magic != MAGIC:
        raise JournalError(f"{name} is not a Holdfast journal: its first bytes are wrong")
    if version > VERSION:
        raise JournalError(
            f"{name} was written by format version {version}; "
            f"this Holdfast reads up to {VERSION}; upgrade"
        )
    if header_bytes != HEADER_BYTES or record_bytes != RECORD_BYTES:
        raise JournalError(
            f"{name} is damaged: its header claims {header_bytes} bytes of header "
            f"and {record_bytes} bytes a record"
        )
