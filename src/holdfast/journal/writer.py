"""A process's own journal: records into mapped memory, text into the sidecar, words for others.

Nothing here raises or blocks once the file is made: no space, a bad number, a forked child or a
closed writer cost the record (counted in `Word.DROPPED` where possible), never the training.

One thread owns a writer: the one that made it. Only that thread may call `record_step`,
`begin_step`, `end_steps`, `open_span`, `close_span` and `append`; the others find their way from
any thread, by a queue that is written at the owner's next record.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Self

from holdfast.errors import StoreUnavailable
from holdfast.journal.clocks import ClockPair, now_ns, read_clock_pair
from holdfast.journal.layout import (
    CHUNK_BYTES,
    CLOCKS_OFFSET,
    FIRST_CUSTOM_SPAN,
    HEADER_BYTES,
    IDENTITY_OFFSET,
    MAGIC,
    PAGE_BYTES,
    RECORD_BYTES,
    SPAN_KINDS,
    UNNAMED_SPAN,
    VERSION,
    WORD_BYTES,
    Identity,
    Kind,
    Word,
)
from holdfast.journal.mapping import (
    Words,
    detach_in_forked_child,
    map_words,
    private_words,
    reserve,
    unmap,
)
from holdfast.journal.metric_lines import line_of
from holdfast.journal.own_file import OwnFile
from holdfast.journal.rank_page import RankPage
from holdfast.journal.sidecar import SidecarWriter, sidecar_path
from holdfast.journal.tape import make_tape

# Waits for data shorter than this are not worth a record: a loop of 1 ms steps stays cheap. What
# is passed over stays inside its step, at most 1 % of a 1 ms step.
DATA_SPAN_MIN_NS = 10_000
OWNER_LIMIT_S = 0.05  # many steps' records take less

_PAGE_WORDS = PAGE_BYTES // WORD_BYTES
_CLOCKS_WORD = CLOCKS_OFFSET // WORD_BYTES


class BareRecord(NamedTuple):
    """One that has no text."""

    time_ns: int
    kind: int
    arg: int = 0
    step: int = 0
    value: int = 0


class JournalWriter:
    """The journal of this process. Times are CLOCK_BOOTTIME nanoseconds (`clocks.now_ns`)."""

    page: RankPage
    """Page 1, for this process's own loads and stores."""

    append: Callable[[int, int, int, int, int, int], None]
    """`append(time_ns, kind, flags, arg, step, value)`: one record of any kind."""

    record_step: Callable[..., int]
    """`record_step(step, tokens=0)`: `step` ends now and the next begins now; gives Word.ORDER.

    The hot path: the record, then Word.STEP and Word.STEP_AT, then the load, in this order. The
    step began where the last one ended, or at `begin_step`. `tokens` is an int.
    """

    begin_step: Callable[[int, int | None], None]
    """`begin_step(step, at_ns)`: `step` is under way, the first of a row; None: from now."""

    end_steps: Callable[[int | None], None]
    """`end_steps(at_ns)`: the step last recorded was the last of its row; none is under way."""

    open_span: Callable[[str], int]
    """`open_span(kind)`: a span begins now; the token closes it. Spans nest.

    Until it is closed it shows in the page, so that a SIGKILL does not lose it.
    """

    close_span: Callable[..., int]
    """`close_span(token, min_ns=0)`: the span ends now; gives its length in ns.

    So do spans inside it that were left open. Shorter than `min_ns` it leaves no record. A token
    that was closed before gives 0.
    """

    def __init__(self, path: Path | None, identity: Identity | None, header: _Header) -> None:
        self.path = path
        self.identity = identity
        self.page = header.page
        self._header = header
        self._sidecar = header.sidecar
        self._owner = threading.get_ident()
        self._kinds = {name: number for number, name in enumerate(SPAN_KINDS)}
        self._naming = threading.Lock()
        self._tape = tape = make_tape(self.page.words, header.file, self._kinds, self._name_span)
        self.append = tape.append
        self.record_step = tape.record_step
        self.begin_step = tape.begin_step
        self.end_steps = tape.end_steps
        self.open_span = tape.open_span
        self.close_span = tape.close_span
        detach_in_forked_child(self)

    @classmethod
    def create(
        cls,
        path: str | os.PathLike[str],
        identity: Identity,
        clock: Callable[[], ClockPair] | None = None,
    ) -> Self:
        """Make the journal and its sidecar, mode 0600, in a folder that exists.

        `clock` gives the header's pair of readings, where the records are not timed by this
        machine's clocks. Raises StoreUnavailable when the files exist or cannot be made (no
        space, no permission), ValueError when the identity does not fit the header; nothing is
        left behind then.
        """
        path = Path(path)
        text = identity.to_json()
        try:
            header = _Header.create(path, text)
        except OSError as problem:
            raise StoreUnavailable(
                f"cannot make the journal {path}: {problem.strerror}; "
                "point the scratch folder at a local disk or tmpfs with space"
            ) from problem
        writer = cls(path, identity, header)
        writer.page.store(Word.OWNER_PID, os.getpid())
        header.publish((clock or read_clock_pair)())
        return writer

    @classmethod
    def nowhere(cls) -> Self:
        """A writer that records nothing, for a process whose journal could not be made."""
        return cls(None, None, _Header.nowhere())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def record(
        self, time_ns: int, kind: int, arg: int = 0, step: int = 0, value: int = 0, flags: int = 0
    ) -> None:
        """One record of any kind, from any thread (another's is written with the owner's next)."""
        is_owner = threading.get_ident() == self._owner
        put = self._tape.append if is_owner else self._tape.hand_over
        put(time_ns, kind, flags, arg, step, value)

    def take_over(self) -> None:
        """The calling thread owns it from now on."""
        self._owner = threading.get_ident()

    def identify(self, identity: Identity) -> None:
        """Say who this process is after all: a rank that learns its attempt from another.

        Before anybody but this process reads the file. Raises ValueError when it does not fit.
        """
        self.identity = identity
        self._header.write_identity(identity.to_json())

    def record_complete(self, step: int, at_ns: int) -> None:
        """`step` is complete on the device: in the page at once, the record too. Any one thread."""
        self.page.store(Word.COMPLETE, step)
        self.page.store(Word.COMPLETE_AT, at_ns)
        self.record(at_ns, Kind.COMPLETE, step=step)

    def record_restore(
        self, start_ns: int, end_ns: int, step: int, source_attempt: int | None = None
    ) -> None:
        """A checkpoint was read: the last step in it (0: none) and who wrote it. Any thread."""
        arg = 0 if source_attempt is None else source_attempt + 1
        self.record(end_ns, Kind.RESTORE, arg, step, start_ns)

    def record_span(self, kind: str, start_ns: int, end_ns: int) -> None:
        """A span that was measured elsewhere. Any thread."""
        self.record(end_ns, Kind.SPAN, self.span_kind(kind), self.page.load(Word.STEP), start_ns)

    def seen(self) -> None:
        """A sign of life of the supervisor. Any thread."""
        self.record(now_ns(), Kind.SEEN)

    def span_kind(self, name: str) -> int:
        """The id of a span kind: one of SPAN_KINDS, or any other name.

        A name of the user's own (with or without `custom:` before it) is written to the sidecar at
        its first use; while that fails for want of space, its spans have no name.
        """
        number = self._kinds.get(name)
        return self._name_span(name) if number is None else number

    def _name_span(self, name: str) -> int:
        plain = name.removeprefix("custom:")
        full = f"custom:{plain}"
        with self._naming:
            number = self._kinds.get(full)
            if number is None:
                number = FIRST_CUSTOM_SPAN + sum(name.startswith("custom:") for name in self._kinds)
                if self._sidecar.write({"span_id": number, "name": plain}) is None:
                    return UNNAMED_SPAN
                self._kinds[full] = number
                self._kinds.setdefault(plain, number)
        return number

    def note(self, note: int, payload: dict[str, Any], step: int = 0) -> None:
        """A fact that needs text: its line first, then the record that points to it. Any thread.

        Not for signal handlers. One system call, no fsync. What JSON cannot hold becomes a string.
        """
        self._point_to(self._sidecar.write(payload), note, step)

    def note_all(self, noted: Sequence[tuple[int, dict[str, Any]] | BareRecord]) -> None:
        """Notes, and records that lie between them: in this order, with one system call.

        The owner only.
        """
        payloads = [one[1] for one in noted if not isinstance(one, BareRecord)]
        offsets = iter(self._sidecar.write_all(payloads))
        for one in noted:
            if isinstance(one, BareRecord):
                self.record(*one)
            else:
                self._point_to(next(offsets), one[0])

    def _point_to(self, offset: int | None, note: int, step: int = 0) -> None:
        if offset is not None:
            self.record(now_ns(), Kind.NOTE, note, step, offset)
        else:
            self._tape.count_drop()

    def record_metrics(self, step: int, values: Mapping[str, float], at_ns: int) -> None:
        """The script's own numbers of a step: a line that no record points to. Any thread."""
        if self._sidecar.write(line_of(step, values, at_ns)) is None:
            self._tape.count_drop()

    def flush(self) -> None:
        """Write what other threads have handed over. The owner only."""
        self._tape.flush()

    def flush_for_owner(self) -> None:
        """The same, where the process ends here and the owner may be stuck. Any thread.

        The owner writes it with its next record. One that has come to none meanwhile is in none.
        """
        time.sleep(OWNER_LIMIT_S)
        self._tape.flush()

    def close(self) -> None:
        """Write what was handed over and let go of the files. The owner only; again: no effect."""
        self._tape.flush()
        self.detach()

    def detach(self) -> None:
        """Let go of everything at once; from here on nothing is recorded, and nothing fails."""
        self._header.let_go()  # first: the tape's mapping goes by what it finds
        self._tape.detach()
        self._header.detach()
        self._naming = threading.Lock()  # in a forked child the old one may be held for ever


class _Header:
    """The two header pages of a journal being written, its file and its sidecar."""

    __slots__ = ("_mapped", "_pages", "file", "page", "sidecar")

    def __init__(
        self, file: OwnFile | None, sidecar: SidecarWriter, mapped: Any, pages: Words
    ) -> None:
        self.file = file
        self.sidecar = sidecar
        self._mapped = mapped
        self._pages = pages
        self.page = RankPage(None, pages[_PAGE_WORDS:])

    @classmethod
    def create(cls, path: Path, identity: bytes) -> _Header:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            reserve(fd, 0, HEADER_BYTES + CHUNK_BYTES)
            _write_identity(fd, identity)
            mapped, pages = map_words(fd, 0, HEADER_BYTES)
            sidecar = SidecarWriter(sidecar_path(path))
        except OSError:
            os.close(fd)
            path.unlink(missing_ok=True)
            raise
        return cls(OwnFile(path, fd, os.O_RDWR | os.O_CLOEXEC), sidecar, mapped, pages)

    @classmethod
    def nowhere(cls) -> _Header:
        return cls(None, SidecarWriter(None), None, private_words(HEADER_BYTES))

    def write_identity(self, identity: bytes) -> None:
        if self.file is not None:
            _write_identity(self.file.descriptor(), identity)

    def publish(self, pair: ClockPair) -> None:
        """The file becomes a journal: its magic word is stored last."""
        pages = self._pages
        pages[_CLOCKS_WORD + 1], pages[_CLOCKS_WORD + 2] = pair
        pages[_CLOCKS_WORD] = 1
        pages[1], pages[2], pages[3] = VERSION, HEADER_BYTES, RECORD_BYTES
        pages[0] = MAGIC

    def let_go(self) -> None:
        """Close the file; whether it was still ours says what became of the mappings' own."""
        if self.file is not None:
            self.file.close()

    def detach(self) -> None:
        self.page.detach()
        pages, self._pages = self._pages, private_words(HEADER_BYTES)
        mapped, self._mapped = self._mapped, None
        if mapped is not None:
            unmap(mapped, pages, is_shaken=self.file is not None and self.file.is_shaken)
        self.sidecar.close()


def _write_identity(fd: int, identity: bytes) -> None:
    os.pwrite(fd, len(identity).to_bytes(WORD_BYTES, "little") + identity, IDENTITY_OFFSET)
