"""Signals inside a training process: a handler leaves a mark, and nothing else.

Nobody else's handler is lost: under a supervisor SIGTERM is only reported; without one the handler
that was there is called as well. (JAX's preemption service replaces Python's SIGTERM handler
without telling Python; `install_sigterm` is therefore called again when the loop begins.)

Python runs a handler when the main thread comes back to Python, and that may be minutes later: a
compilation, a collective that waits for a peer. So a thread listens as well: Python's C handler
writes each signal's number into a pipe at once (`signal.set_wakeup_fd`). Both leave the mark, which
may then be there twice; a repeated SIGTERM says nothing new.

A forked child (a data loader's worker) gets back what was there before us. Until it has, its
signals are held back: Python forgets those that arrive between the fork and its own cleaning up,
and a worker that lost its SIGTERM is waited for in vain.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Mark = Callable[[], None]

# A script that closes all descriptors, and opens files of its own, gets the lowest numbers: never
# this one, into which a byte is written at a signal.
HIGH_FD = 500

_before_us: dict[int, Any] = {}
_forking = threading.local()


def install_sigterm(mark: Mark, *, chain: bool) -> None:
    """On SIGTERM call `mark`, then (with `chain`) the handler that was there."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python allows handlers from the main thread alone
    before = signal.getsignal(signal.SIGTERM)
    if getattr(before, "holdfast", False):
        before = _before_us[signal.SIGTERM]

    def handler(number: int, frame: FrameType | None) -> None:
        mark()
        if chain and callable(before):
            before(number, frame)

    handler.holdfast = True  # type: ignore[attr-defined]
    _install(signal.SIGTERM, handler, before)
    _listener.listen(mark)


def install_sigint(mark: Mark) -> None:
    """The first Ctrl-C calls `mark`; the second does what it did before (KeyboardInterrupt)."""
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or before is None:
        return

    def handler(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, before)
        mark()

    _install(signal.SIGINT, handler, before)


class _Listener:
    """The pipe that Python's C handler writes to, and the thread that reads it."""

    def __init__(self) -> None:
        self._mark: Mark = lambda: None
        self._fd = -1

    def listen(self, mark: Mark) -> None:
        """Have `mark` called at each SIGTERM; without effect where somebody else listens."""
        self._mark = mark
        if self._fd >= 0:
            return
        with contextlib.suppress(OSError, ValueError):
            read_fd, write_fd = os.pipe()
            high_fd = fcntl.fcntl(write_fd, fcntl.F_DUPFD_CLOEXEC, HIGH_FD)
            os.close(write_fd)
            os.set_blocking(high_fd, False)
            other = signal.set_wakeup_fd(high_fd, warn_on_full_buffer=False)
            if other >= 0:  # an event loop's: it is there to be woken
                signal.set_wakeup_fd(other)
            self._fd = high_fd
            name = "holdfast-signals"
            threading.Thread(target=self._read, args=(read_fd,), name=name, daemon=True).start()

    def _read(self, read_fd: int) -> None:
        with contextlib.suppress(OSError):
            while numbers := os.read(read_fd, 64):
                if signal.SIGTERM in numbers:
                    self._mark()

    def forget(self) -> None:
        """In a forked child: its signals are not ours."""
        if self._fd >= 0:
            now = signal.set_wakeup_fd(-1)
            if now not in (-1, self._fd):
                signal.set_wakeup_fd(now)
            self._fd = -1


_listener = _Listener()


def _install(number: int, handler: Callable[[int, FrameType | None], None], before: Any) -> None:
    if not _before_us:
        os.register_at_fork(
            before=_hold_back, after_in_parent=_let_through, after_in_child=_put_back
        )
    _before_us[number] = before
    signal.signal(number, handler)


def _hold_back() -> None:
    _forking.mask = signal.pthread_sigmask(signal.SIG_BLOCK, _before_us)


def _let_through() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, _forking.mask)


def _put_back() -> None:
    _listener.forget()
    for number, before in _before_us.items():
        # None: a handler that was not installed by Python, which cannot be put back.
        signal.signal(number, signal.SIG_DFL if before is None else before)
    _let_through()
