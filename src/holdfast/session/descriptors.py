"""Descriptors that no script can close: a table of a thread's own.

Files that a thread of ours has open for a moment have numbers like any other. A script that closes
every descriptor meanwhile closes them too, opens files of its own under their numbers, and what the
thread then maps or closes is the script's. A thread that has left the process's table shares no
number with it.
"""

from __future__ import annotations

import ctypes
import os
import signal
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_CLONE_FILES = 0x400
_MOST = 1 << 20  # numbers closed one by one by a kernel that cannot close a range (before 5.9)


def apart(work: Callable[[], T]) -> T:
    """The result of `work`, done by a thread with a table of descriptors of its own, if possible.

    What the process has open is not open for `work`, so it must say nothing (`sys.stderr` may be
    any file of the script's), and use only files that it opens; no driver of a device either, which
    has had some open since it began. What `work` raises is raised.
    Where the system refuses (filters of some containers do), the table is the process's.
    """
    results: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        # A handler that writes (a stack dump does) would run with this thread's numbers.
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            _leave_table()
            results.append(work())
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="holdfast-apart", daemon=True)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return results[0]


def _leave_table() -> bool:
    """Give this thread an empty table of descriptors; False: it shares that of the process."""
    try:
        if ctypes.CDLL(None).unshare(_CLONE_FILES):
            return False
    except (OSError, AttributeError):
        return False
    # Pipes and sockets that stayed open here would keep their other ends waiting.
    os.closerange(0, min(os.sysconf("SC_OPEN_MAX"), _MOST))
    for _ in range(3):  # what libraries write to "standard error" must meet no file of ours
        os.open(os.devnull, os.O_RDWR)
    return True
