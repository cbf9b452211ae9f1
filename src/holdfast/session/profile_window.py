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
    make_place,
    trace_path,
)
from holdfast.program.device import find_device
from holdfast.session.crash import write_report
from holdfast.session.profilers import Profiler, find_profiler, guarded
from holdfast.session.say import say

if TYPE_CHECKING:
    from holdfast.session.attachment import Attachment
    from holdfast.session.boundary import Boundary

LOOK_S, LONGEST_LOOK_S = 0.002, 0.1
LOOKS = 10  # in a step that is longer: each takes the interpreter from the training for a moment
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


class _Window:
    """A window, which the training's thread opens and closes, each when a step is done.

    The script may be steps ahead of the device. So the device is waited for at both edges, and
    what it does in between is all of these steps, and of no other.
    """

    def __init__(self, profiler: Profiler, boundary: Boundary, steps: int) -> None:
        self.ran: list[tuple[int, int]] = []
        """When it was looked how long the training's thread had run, and that."""
        self.first = self.last = 0  # numbers of records of the journal, that lie within
        self.edges: list[tuple[int, int]] = []  # the step that was over, and when
        self.opening = _Act(lambda: self._open(steps))
        self.closing = _Act(self._close)
        self._profiler = profiler
        self._boundary = boundary
        self._page = boundary.writer.page

    def _open(self, steps: int) -> None:
        if self._profiler.is_of_thread:
            self._profiler.start()
        self._note_edge()
        self.first = self._page.load(Word.COUNT)
        self._boundary.at_end = self.closing
        self._boundary.at_step(self.edges[0][0] + steps, self.closing)

    def _close(self) -> None:
        try:
            self._note_edge()
            self.last = self._page.load(Word.COUNT)
        finally:
            if self._profiler.is_of_thread:
                self._profiler.stop()

    def _note_edge(self) -> None:
        guarded(self._profiler.settle)
        self.edges.append((self._page.load(Word.STEP), now_ns()))


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
        make_place(path)
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
            steps, spans = self._journalled(window)
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
        until_s = time.monotonic() + min(max(0.0, wish.limit_s), LONGEST_LIMIT_S)
        boundary, window = self._boundary, _Window(profiler, self._boundary, wish.steps)
        opening, closing = window.opening, window.closing
        if not profiler.is_of_thread:
            _check(guarded(profiler.start), profiler, "start")
        error = None
        try:
            boundary.at_next(opening, lambda: opening.has_begun or self._is_late(until_s))
            is_open = opening.is_done()
            _check(opening.error, profiler, "start")
            note = self._await(window, wish, until_s) if is_open else ""
        finally:
            # A profiler that is not stopped takes ever more memory: as late as it may be.
            if not profiler.is_of_thread:
                closing.is_done()
                error = guarded(profiler.stop)
            elif opening.over.is_set() and opening.error is None:
                boundary.at_next(closing, lambda: closing.has_begun)
                closing.over.wait()
            boundary.at_end = lambda: None
        if not is_open:
            raise _RefusedError("no step ended in time, at which the profiler could start")
        _check(error or closing.error, profiler, "stop")
        return window, note

    def _await(self, window: _Window, wish: ProfileWish, until_s: float) -> str:
        """Until it is closed; why it has to be closed before, in words."""
        page, (begun, begun_ns) = self._page, window.edges[0]
        while not window.closing.has_begun:
            if self._of.closing.is_set() or page.load(Word.PHASE) not in _TRAINING:
                break
            done = page.load(Word.STEP) - begun
            if time.monotonic() > until_s:
                return f"{done} of {wish.steps} steps came to their end in {wish.limit_s:g} s"
            self._look(window.ran)
            step_s = (now_ns() - begun_ns) / 1e9 / (done + 1)
            time.sleep(min(max(LOOK_S, step_s / LOOKS), LONGEST_LOOK_S))
        if window.closing.has_begun:
            window.closing.over.wait()
        self._look(window.ran)
        done = page.load(Word.STEP) - begun
        return "" if done >= wish.steps else f"the loop ended after {done} of {wish.steps} steps"

    def _is_late(self, until_s: float) -> bool:
        return self._of.closing.is_set() or time.monotonic() > until_s

    def _look(self, ran: list[tuple[int, int]]) -> None:
        """Note how long the training's thread has run so far."""
        if self._of.clock is None:
            return
        with contextlib.suppress(OSError):
            ran.append((now_ns(), time.clock_gettime_ns(self._of.clock)))

    def _journalled(
        self, window: _Window
    ) -> tuple[list[tuple[int, int]], list[tuple[str, int, int]]]:
        """The steps that have ended in the window, and the spans; from this rank's own journal.

        The device was waited for before the first step, and after the last one.
        """
        path = self._writer.path
        steps = window.edges[:1]
        spans: list[tuple[str, int, int]] = []
        if path is None:
            return steps, spans
        last = window.last or self._page.load(Word.COUNT)
        many = min(last - window.first, MOST_RECORDS)
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
            if kind == Kind.STEP:
                steps.append((step, at_ns))
            elif kind == Kind.SPAN and arg < len(SPAN_KINDS):
                spans.append((SPAN_KINDS[arg], value, at_ns))
        if len(steps) > 1 and window.edges[1:]:
            steps[-1] = steps[-1][0], window.edges[1][1]
        return steps, spans


class _Act:
    """Something that is done once, by whoever comes first; what went wrong is kept."""

    def __init__(self, act: Callable[[], None]) -> None:
        self.error: Exception | None = None
        self.over = threading.Event()
        self._act = act
        self._turn = threading.Lock()  # held by whoever does it, for ever

    @property
    def has_begun(self) -> bool:
        """Whether it is being done, was, or is not to be done any more."""
        return self._turn.locked()

    def is_done(self) -> bool:
        """Whether it was, once that is over; if it has not begun, it is not to be any more."""
        if self._turn.acquire(blocking=False):
            return False
        self.over.wait()
        return True

    def __call__(self) -> None:
        """Do it."""
        if self._turn.acquire(blocking=False):
            self.error = guarded(self._act)
            self.over.set()


def _check(error: Exception | None, profiler: Profiler, what: str) -> None:
    if error is not None:
        raise _RefusedError(f"the profiler of {profiler.framework} does not {what} ({error!r})")


class _RefusedError(Exception):
    """There is no profile, and this is why."""


def _store(trace: Path, path: Path, framework: str) -> int:
    """Compress a trace into the run's folder; its size. Nothing partial gets the name."""
    nbytes = trace.stat().st_size
    if nbytes > MAX_TRACE_BYTES:
        raise _RefusedError(
            f"the trace has {nbytes >> 20} MiB, more than {MAX_TRACE_BYTES >> 20}: "
            "profile fewer steps"
        )
    make_place(path)
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
