"""Many runs that nothing is known of, read by several processes."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, ProcessPoolExecutor
from multiprocessing import get_context
from typing import TypeVar

T = TypeVar("T")
SHARES = 8  # for each process: one may get the long runs


def side_by_side(
    workers: int, read: Callable[[Sequence[str]], dict[str, T]], names: Sequence[str]
) -> dict[str, T]:
    """What `read`, a function of a module, says of all these names, by so many processes.

    Less, or nothing, where no processes are to be had (limits, no /dev/shm).
    """
    parts = [names[first :: workers * SHARES] for first in range(workers * SHARES)]
    found: dict[str, T] = {}
    with (
        contextlib.suppress(OSError, ImportError, BrokenExecutor),
        ProcessPoolExecutor(workers, get_context("forkserver"), _leave_signals) as pool,
    ):
        for part in pool.map(read, parts):
            found |= part
    return found


def _leave_signals() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C is for the process that asks
