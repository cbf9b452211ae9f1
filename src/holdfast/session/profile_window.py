"""The window of a profile: the framework's profiler on, a few steps, off, and what it has written.

All of it in a thread of the rank's own, but for what a profiler wants to be done by the training's
thread. What comes of it is read elsewhere. Whatever fails costs the profile: the rank says why in
its answer, and trains on.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import shutil
import struct
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.errors import HoldfastError
from holdfast.journal.atomic import make_part
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import (
    HEADER_BYTES,
    RECORD_BYTES,
    SPAN_KINDS,
    Kind,
    RankPhase,
    Word,
)
from holdfast.journal.profile_door import ProfileWish
from holdfast.journal.regular import open_regular
from holdfast.profiles.capture import (
    MAX_STEPS,
    MAX_TRACE_BYTES,
    Capture,
    capture_path,
    trace_path,
)
from holdfast.program.device import find_device
from holdfast.session.crash import write_report
from holdfast.session.profilers import Profiler, find_profiler, guarded
from holdfast.session.say import say

if TYPE_CHECKING:
    from holdfast.session.attachment import Attachment
    from holdfast.session.boundary import Boundary

LOOK_S = 0.002
MOST_RECORDS = 100_000
LONGEST_LIMIT_S = 3600.0
PLAIN = "the rank uses neither JAX nor PyTorch: there is no profiler for plain Python here"
_RECORD = struct.Struct("<4Q")
_TRAINING = (RankPhase.TRAINING, RankPhase.WAITING)


class ProfiledRank(NamedTuple):
    """Who is profiled. `clock`: tells how long the training's thread has run; None: nothing does.

    `closing`: set once the session ends.
    """

    attachment: Attachment
    boundary: Boundary
    clock: int | None
    closing: threading.Event


class _Window(NamedTuple):
    """What of the journal lies in the window, and what was seen until it was over.

    `first` and `last`: numbers of records. `ran`: when it was looked how long the training's thread
    had run, and that.
    """

    first: int
    last: int
    ran: list[tuple[int, int]]


def answer(rank: ProfiledRank, wish: ProfileWish, *, is_first: bool) -> None:
    """Record what was asked for, and tell of it in the store. Never raises.

    `is_first`: of those that came together; the others are refused.
    """
    attachment = rank.attachment
    path = capture_path(attachment.folder, attachment.attempt, wish.name, attachment.rank)
    told = Capture(attachment.attempt, attachment.rank, wish.steps, at_unix_ns=time.time_ns())
    try:
        if not is_first:
            raise _RefusedError("another profile is being recorded: ask again when it is there")
        made = _Recorder(rank).record(wish, path, told)
    except _RefusedError as refused:
        made = replace(told, refused=str(refused))
    except (HoldfastError, OSError) as error:
        made = replace(told, refused=f"the trace cannot be written: {error}")
    except Exception as error:
        made = replace(told, refused=f"the profiler failed ({error!r})")
    with contextlib.suppress(HoldfastError, OSError):
        _make_place(path)
    is_written = write_report(path, made.to_json())
    if made.refused or not is_written:
        why = made.refused or f"{path} cannot be written"
        say(f"No profile: {why}; training goes on")


class _Recorder:
    """Of one window."""

    def __init__(self, rank: ProfiledRank) -> None:
        self._of = rank
        self._boundary = rank.boundary
        self._writer = rank.attachment.writer
        self._page = self._writer.page

    def record(self, wish: ProfileWish, path: Path, told: Capture) -> Capture:
        """The profiler's trace beside `path`, and what is told of it. Raises what went wrong."""
        live = self._writer.path
        if live is None or not 1 <= wish.steps <= MAX_STEPS:
            raise _RefusedError(f"{wish.steps} steps cannot be profiled: ask for 1 to {MAX_STEPS}")
        work = live.with_suffix(".profiling")
        shutil.rmtree(work, ignore_errors=True)
        work.mkdir(mode=0o700)
        try:
            profiler = find_profiler(work)
            if profiler is None:
                raise _RefusedError(PLAIN)
            window, note = self._capture(profiler, wish)
            steps, spans = self._journalled(window, wish.steps)
            if len(steps) < 2:
                raise _RefusedError(note or "no step came to its end in the window")
            trace = work / "trace"
            profiler.write(trace)
            nbytes = _store(trace, path, profiler.framework)
        finally:
            shutil.rmtree(work, ignore_errors=True)
        return replace(
            told,
            framework=profiler.framework,
            version=profiler.version,
            device=find_device().name,
            trace_bytes=nbytes,
            note=note,
            edges=tuple(steps),
            spans=tuple(spans),
            ran=tuple(window.ran),
        )

    def _capture(self, profiler: Profiler, wish: ProfileWish) -> tuple[_Window, str]:
        """Record until the steps are done; what the window is short of, in words."""
        limit_s = min(max(0.0, wish.limit_s), LONGEST_LIMIT_S)
        until_s = time.monotonic() + limit_s
        page, boundary = self._page, self._boundary
        self._do(_Act(profiler, profiler.start), lambda: self._is_late(until_s), "start")
        stop = _Act(profiler, profiler.stop)
        if profiler.is_of_thread:
            boundary.at_end = stop
        first, step = page.load(Word.COUNT), page.load(Word.STEP)
        ran: list[tuple[int, int]] = []
        note = ""
        # The window begins with the first step that ends within it.
        while (done := page.load(Word.STEP) - step - 1) < wish.steps:
            if self._of.closing.is_set() or page.load(Word.PHASE) not in _TRAINING:
                note = f"the loop ended after {max(0, done)} of {wish.steps} steps"
            elif time.monotonic() > until_s:
                note = f"{max(0, done)} of {wish.steps} steps came to their end in {limit_s:g} s"
            if note:
                break
            self._look(ran)
            time.sleep(LOOK_S)
        self._look(ran)
        last = page.load(Word.COUNT)
        try:
            # A profiler that is not stopped takes ever more memory: as late as it may be.
            self._do(stop, lambda: False, "stop")
        finally:
            boundary.at_end = lambda: None
        return _Window(first, last, ran), note

    def _is_late(self, until_s: float) -> bool:
        return self._of.closing.is_set() or time.monotonic() > until_s

    def _do(self, act: _Act, give_up: Callable[[], bool], what: str) -> None:
        """Start or stop the profiler, in the thread that it is to be done by."""
        profiler = act.profiler
        if profiler.is_of_thread:
            self._boundary.at_next(act, lambda: act.has_begun or give_up())
            if not act.withdraw():
                act.over.wait()
        else:
            act()
        if not act.over.is_set():
            raise _RefusedError(f"no step ended in time, at which the profiler could {what}")
        if act.error is not None:
            raise _RefusedError(
                f"the profiler of {profiler.framework} does not {what} ({act.error!r})"
            )

    def _look(self, ran: list[tuple[int, int]]) -> None:
        """Note how long the training's thread has run so far."""
        if self._of.clock is None:
            return
        with contextlib.suppress(OSError):
            ran.append((now_ns(), time.clock_gettime_ns(self._of.clock)))

    def _journalled(
        self, window: _Window, most: int
    ) -> tuple[list[tuple[int, int]], list[tuple[str, int, int]]]:
        """The steps that have ended in the window, and the spans; from this rank's own journal."""
        path = self._writer.path
        steps: list[tuple[int, int]] = []
        spans: list[tuple[str, int, int]] = []
        if path is None:
            return steps, spans
        many = min(window.last - window.first, MOST_RECORDS)
        fd = open_regular(path)
        try:
            offset = HEADER_BYTES + window.first * RECORD_BYTES
            data = os.pread(fd, max(0, many) * RECORD_BYTES, offset)
        finally:
            os.close(fd)
        for at_ns, packed, step, value in _RECORD.iter_unpack(
            data[: len(data) // RECORD_BYTES * RECORD_BYTES]
        ):
            kind, arg = packed & 0xFF, packed >> 16
            if kind == Kind.STEP and len(steps) <= most:
                steps.append((step, at_ns))
            elif kind == Kind.SPAN and arg < len(SPAN_KINDS):
                spans.append((SPAN_KINDS[arg], value, at_ns))
        return steps, spans


class _Act:
    """Something that is done once, by whoever comes first; what went wrong is kept."""

    def __init__(self, profiler: Profiler, act: Callable[[], None]) -> None:
        self.profiler = profiler
        self.error: Exception | None = None
        self.over = threading.Event()
        self._act = act
        self._turn = threading.Lock()  # held by whoever does it, for ever

    @property
    def has_begun(self) -> bool:
        """Whether it is being done, was, or is not to be done any more."""
        return self._turn.locked()

    def withdraw(self) -> bool:
        """Not any more; False: it has begun."""
        return self._turn.acquire(blocking=False)

    def __call__(self) -> None:
        """Do it."""
        if self._turn.acquire(blocking=False):
            self.error = guarded(self._act)
            self.over.set()


class _RefusedError(Exception):
    """There is no profile, and this is why."""


def _make_place(path: Path) -> None:
    for folder in (path.parent.parent, path.parent):
        if not folder.is_dir():
            make_part(folder)


def _store(trace: Path, path: Path, framework: str) -> int:
    """Compress a trace into the run's folder; its size. Nothing partial gets the name."""
    nbytes = trace.stat().st_size
    if nbytes > MAX_TRACE_BYTES:
        raise _RefusedError(
            f"the trace has {nbytes >> 20} MiB, more than {MAX_TRACE_BYTES >> 20}: "
            "profile fewer steps"
        )
    _make_place(path)
    final = trace_path(path, framework)
    draft = final.with_name(f".{final.name}.tmp")
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    try:
        with (
            trace.open("rb") as source,
            os.fdopen(open_regular(draft, flags), "wb") as file,
            gzip.GzipFile("", "wb", 1, file, mtime=0) as packed,
        ):
            shutil.copyfileobj(source, packed, 1 << 20)
        draft.replace(final)
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    return nbytes
