"""A file or a FIFO as a source: `--notice file:PATH`, for scripts and schedulers of any kind.

`touch PATH` is a warning with `--grace` seconds; what is written into it says more (`read_text`).
Removing the file withdraws it. A FIFO takes one notice a line.
"""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from holdfast.config.trusted import Untrusted, check_folders, open_trusted
from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import Notice, NoticeAction, NoticeState
from holdfast.errors import ConfigurationError
from holdfast.notices.protocol import News, SourceSurroundings, Tools, Trouble, Watch

POLL_S = 0.5
READ_LIMIT_BYTES = 4096
FIFO_LIMIT_BYTES = 1 << 20  # as large as pipes are; at each look
WITHDRAWN = NoticeState.WITHDRAWN.value


class WrittenNotice(NamedTuple):
    """What was written: a deadline as unix nanoseconds, None: none was."""

    deadline_unix_ns: int | None = None
    action: NoticeAction = NoticeAction.TERMINATE
    state: NoticeState = NoticeState.SCHEDULED
    event_id: str = ""
    words: str = ""


def read_text(text: str, written_unix_ns: int) -> WrittenNotice:
    """What a line or a whole file means: nothing, `withdrawn`, a deadline, or JSON with more.

    A deadline is a number of seconds from when it was written, or a date and time with its zone
    (2026-11-20T21:00:00Z). JSON may have `deadline`, `action` and `state` (as in
    `core.notices.board`), `id` and `words`. Raises ValueError for anything else.
    """
    text = text.strip()
    if text.startswith("{"):
        fields = json.loads(text)
        unknown = sorted(set(fields) - {"deadline", "action", "state", "id", "words"})
        if unknown:
            raise ValueError(f"unknown key {unknown[0]!r}")
        return _of_fields(fields, written_unix_ns)
    if text == WITHDRAWN:
        return WrittenNotice(state=NoticeState.WITHDRAWN)
    return WrittenNotice(_moment(text, written_unix_ns) if text else None)


def _of_fields(fields: Mapping[str, Any], written_unix_ns: int) -> WrittenNotice:
    deadline = fields.get("deadline")
    return WrittenNotice(
        None if deadline is None else _moment(str(deadline), written_unix_ns),
        NoticeAction(fields.get("action", NoticeAction.TERMINATE)),
        NoticeState(fields.get("state", NoticeState.SCHEDULED)),
        str(fields.get("id", "")),
        str(fields.get("words", "")),
    )


def _moment(text: str, written_unix_ns: int) -> int:
    try:
        seconds = float(text)
    except ValueError:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is None:
            raise ValueError("a date without its zone") from None
        seconds = moment.timestamp()
        return int(seconds * SECOND_NS)
    if not 0 <= seconds < 1e9:
        raise ValueError("a number of seconds that is not valid")
    return written_unix_ns + int(seconds * SECOND_NS)


class File:
    """Looks at a path twice a second."""

    name = "file"

    def __init__(self, path: Path, tools: Tools) -> None:
        self._path, self._tools = path, tools
        self._seen: tuple[int, int, int] | None = None  # the file whose content was read
        self._told: dict[str, Notice] = {}
        self._lines: deque[tuple[str, int]] = deque()  # of a FIFO, and when they were written
        self._is_first_look = True

    @property
    def watches(self) -> Sequence[Watch]:
        """A notice whenever the file has changed, or a line came through the FIFO."""
        return (self._watch,)

    async def _watch(self) -> News:
        fifo = -1
        try:
            while True:
                if fifo >= 0 and not self._is_still(fifo):
                    os.close(fifo)
                    fifo = -1
                self._check_folders()
                if fifo < 0 and self._path.is_fifo():
                    fifo = self._open(os.O_RDWR)  # so it never ends
                if fifo >= 0:
                    self._take_in(fifo)
                while self._lines:  # also those behind one that was no notice
                    yield self._read(*self._lines.popleft())
                yield await self._file() if fifo < 0 else []
                await self._tools.sleep(POLL_S)
        except OSError as error:
            raise Trouble(f"{self._path} cannot be read: {error.strerror}") from None
        finally:
            if fifo >= 0:
                os.close(fifo)

    def _is_still(self, descriptor: int) -> bool:
        """Whether the FIFO that is open is the one at the path."""
        try:
            known = self._path.stat()
        except FileNotFoundError:
            return False
        return os.path.samestat(known, os.fstat(descriptor))

    def _take_in(self, descriptor: int) -> None:
        """All lines that the FIFO holds."""
        data = bytearray()
        with contextlib.suppress(BlockingIOError):
            while len(data) < FIFO_LIMIT_BYTES:
                data += os.read(descriptor, FIFO_LIMIT_BYTES)
        unix_ns = self._tools.clock().unix_ns
        self._lines += [(line, unix_ns) for line in data.decode("utf-8", "replace").splitlines()]

    async def _file(self) -> list[Notice]:
        first, self._is_first_look = self._is_first_look, False
        now = self._look()
        if now == self._seen:
            return []
        if now is None:
            self._seen = None
            return self._gone()
        await self._tools.sleep(POLL_S)  # who writes it may be at it
        if self._look() != now:
            return []
        with open(self._open(os.O_RDONLY), "rb") as file:  # noqa: PTH123 - a descriptor
            text = file.read(READ_LIMIT_BYTES).decode("utf-8", "replace")
        self._seen = now
        if not first:
            return self._read(text, now[1])
        now_ns, unix_ns = self._tools.clock()
        since_unix_ns = self._tools.since_unix_ns
        if not text.strip() and (since_unix_ns is None or now[1] < since_unix_ns):
            return []  # touched for an earlier run
        heard_ns = max(0, unix_ns - (unix_ns if since_unix_ns is None else since_unix_ns))
        found = self._read(text, now[1], unseen_ns=max(0, unix_ns - now[1]))
        return [one for one in found if not _was_over(one, now_ns - heard_ns)]

    def _open(self, flags: int) -> int:
        """A descriptor; raises Trouble for what is not to be believed, OSError."""
        uids = self._tools.trusted_uids
        if uids is None:
            return os.open(self._path, flags | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            return open_trusted(self._path, uids, flags)
        except Untrusted as error:
            raise Trouble(f"{error}: no notice is taken from there") from None

    def _check_folders(self) -> None:
        """Raises Trouble, also while there is no file: it would be too late when there is one."""
        if self._tools.trusted_uids is None:
            return
        try:
            check_folders(self._path, self._tools.trusted_uids)
        except Untrusted as error:
            raise Trouble(f"{error}: no notice is taken from {self._path}") from None
        except (FileNotFoundError, NotADirectoryError):
            return  # nobody has made it yet

    def _look(self) -> tuple[int, int, int] | None:
        """Which file it is, when it was written, and its size; None: there is none."""
        try:
            known = self._path.stat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        if not stat.S_ISREG(known.st_mode):
            raise Trouble(f"{self._path} is neither a file nor a FIFO")
        return known.st_ino, known.st_mtime_ns, known.st_size

    def _read(self, text: str, written_unix_ns: int, *, unseen_ns: int = 0) -> list[Notice]:
        try:
            found = read_text(text, written_unix_ns)
        except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            raise Trouble(
                f"{self._path} says {text.strip()[:40]!r}, which is no notice ({error}): write "
                "nothing, seconds, a date with its zone, `withdrawn`, or JSON"
            ) from None
        if found.state is NoticeState.WITHDRAWN and not found.event_id:
            return self._gone()
        tools, now_ns = self._tools, self._tools.now_ns()
        unix_ns = found.deadline_unix_ns
        lead_ns = tools.grace_ns if unix_ns is None and found.action.is_end else None
        notice = Notice(
            self.name,
            found.action,
            now_ns,
            found.state,
            found.event_id,
            str(self._path),
            deadline_ns=None if unix_ns is None else tools.on_our_clock(unix_ns),
            lead_ns=lead_ns,
            words=found.words or str(self._path),
            unseen_ns=unseen_ns if lead_ns is not None else 0,
        )
        self._told[found.event_id] = notice
        return [notice]

    def _gone(self) -> list[Notice]:
        """All that it has told is withdrawn."""
        notices, self._told = list(self._told.values()), {}
        return [_withdrawn(notice, self._tools.now_ns) for notice in notices]


def _was_over(notice: Notice, at_ns: int) -> bool:
    """Whether its time had come by then: it was written for an earlier run."""
    by_ns = notice.deadline_ns
    if by_ns is None and notice.lead_ns is not None:
        by_ns = notice.received_ns - notice.unseen_ns + notice.lead_ns
    return by_ns is not None and by_ns <= at_ns


def _withdrawn(notice: Notice, now_ns: Callable[[], int]) -> Notice:
    return Notice(
        notice.source,
        notice.action,
        now_ns(),
        NoticeState.WITHDRAWN,
        notice.event_id,
        notice.topic,
        words=notice.words,
    )


def make(option: str, tools: Tools, around: SourceSurroundings) -> File:
    """Of the path; raises ConfigurationError where there is none."""
    del around
    if not option:
        raise ConfigurationError("file needs a path: write file:PATH, for example file:/tmp/notice")
    return File(Path(option).expanduser(), tools)
