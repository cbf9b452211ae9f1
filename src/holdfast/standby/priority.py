"""The standby's imports give way to the training beside them.

SCHED_IDLE is as low as it goes, but an ordinary user may not be allowed to come back from it: that
is tried in a child first. Where it is not, imports are paced instead (see `preload`).
"""

from __future__ import annotations

import os

_IDLE = os.SCHED_IDLE
_LAST = 19


def lower() -> bool:
    """Be idle, if the way back is open; whether this process is idle now by our doing."""
    if os.sched_getscheduler(0) != os.SCHED_OTHER or not _can_come_back():
        return False
    os.sched_setscheduler(0, _IDLE, os.sched_param(0))
    return True


def lower_session() -> None:
    """Where sessions are scheduled as groups, idle counts only among the members of one.

    For a process that has a session to itself, and will be no rank: an ordinary user may take this
    back only a few times a second.
    """
    try:
        with open("/proc/self/autogroup", "w", encoding="ascii") as file:
            file.write(str(_LAST))
    except OSError:
        pass  # they are not


def lower_again() -> None:
    """Be idle once more, with all threads that begin from now on: the way back is known."""
    os.sched_setscheduler(0, _IDLE, os.sched_param(0))


def restore() -> None:
    """Back to normal, threads that an import has started included."""
    for name in os.listdir("/proc/self/task"):
        try:
            if os.sched_getscheduler(int(name)) == _IDLE:
                os.sched_setscheduler(int(name), os.SCHED_OTHER, os.sched_param(0))
        except OSError:
            continue  # a thread that has ended meanwhile


def _can_come_back() -> bool:
    child = os.fork()
    if child == 0:
        try:
            os.sched_setscheduler(0, _IDLE, os.sched_param(0))
            os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitpid(child, 0)[1] == 0
