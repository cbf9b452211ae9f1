"""Signals inside a training process: a handler leaves a mark, and nothing else.

Nobody else's handler is lost: under a supervisor SIGTERM is only reported; without one the handler
that was there is called as well. (JAX's preemption service replaces Python's SIGTERM handler
without telling Python; `install` is therefore called again when the loop begins.)
"""

from __future__ import annotations

import contextlib
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

Mark = Callable[[], None]


def install_sigterm(mark: Mark, *, chain: bool) -> None:
    """On SIGTERM call `mark`, then (with `chain`) the handler that was there."""
    if threading.current_thread() is not threading.main_thread():
        return  # Python allows handlers from the main thread alone
    before = signal.getsignal(signal.SIGTERM)
    if getattr(before, "holdfast", False):
        before = getattr(before, "before", None)

    owner = os.getpid()

    def handler(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            _as_before(number, frame, before)
            return
        mark()
        if chain and callable(before):
            before(number, frame)

    handler.holdfast = True  # type: ignore[attr-defined]
    handler.before = before  # type: ignore[attr-defined]
    signal.signal(signal.SIGTERM, handler)


def install_sigint(mark: Mark) -> None:
    """The first Ctrl-C calls `mark`; the second does what it did before (KeyboardInterrupt)."""
    if threading.current_thread() is not threading.main_thread():
        return
    before = signal.getsignal(signal.SIGINT)
    if before is signal.SIG_IGN or before is None:
        return

    owner = os.getpid()

    def handler(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            _as_before(number, frame, before)
            return
        signal.signal(signal.SIGINT, before)
        mark()

    with contextlib.suppress(ValueError):
        signal.signal(signal.SIGINT, handler)


def _as_before(number: int, frame: FrameType | None, before: Any) -> None:
    """In a forked child (a data loader's worker) a signal does what it did before we came."""
    if callable(before):
        before(number, frame)
    elif before != signal.SIG_IGN:
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
