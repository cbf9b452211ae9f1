"""Signals inside a training process: a handler leaves a mark, and nothing else.

Nobody else's handler is lost: under a supervisor SIGTERM is only reported; without one the handler
that was there is called as well. (JAX's preemption service replaces Python's SIGTERM handler
without telling Python; `install_sigterm` is therefore called again when the loop begins.)

A forked child (a data loader's worker) gets back what was there before us. Until it has, its
signals are held back: Python forgets those that arrive between the fork and its own cleaning up,
and a worker that lost its SIGTERM is waited for in vain.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Mark = Callable[[], None]

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
    for number, before in _before_us.items():
        # None: a handler that was not installed by Python, which cannot be put back.
        signal.signal(number, signal.SIG_DFL if before is None else before)
    _let_through()
