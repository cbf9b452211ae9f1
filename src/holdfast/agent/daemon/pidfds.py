"""Processes held by descriptors: what is signalled and waited for is what was looked at.

A pid alone may be another's by the time that it is used. The descriptor of a process
(pidfd_open(2)) stays its own for ever: it is opened first, the process is looked at then, and if
the descriptor says that its process still lives after the look, that one was looked at and nobody
else.
"""

from __future__ import annotations

import os
import select
import signal
from collections.abc import Callable

from holdfast.core.daemon.events import ProcessId


class Pidfds:
    """At most one descriptor for each process."""

    def __init__(self) -> None:
        self._of: dict[ProcessId, int] = {}

    def __contains__(self, process: ProcessId) -> bool:
        return process in self._of

    def take(self, process: ProcessId, is_same: Callable[[], bool]) -> bool:
        """Open a descriptor for a process that `is_same` tells to be the one that was seen.

        False: it has ended since, or its pid has become another's.
        """
        try:
            fd = os.pidfd_open(process.pid)
        except OSError:
            return False
        if not is_same() or has_ended(fd):
            os.close(fd)
            return False
        self._of[process] = fd
        return True

    def ended(self) -> list[ProcessId]:
        """Whose process has ended."""
        return [process for process, fd in self._of.items() if has_ended(fd)]

    def terminate(self, process: ProcessId) -> str:
        """Send SIGTERM; "" if it was sent or nobody is there any more, else why it was not."""
        try:
            signal.pidfd_send_signal(self._of[process], signal.SIGTERM)
        except ProcessLookupError:
            return ""  # its end is told by its descriptor
        except OSError as error:
            return f"SIGTERM cannot be sent: {(error.strerror or str(error)).lower()}"
        return ""

    def descriptor(self, process: ProcessId) -> int:
        """Readable once its process has ended."""
        return self._of[process]

    def drop(self, process: ProcessId) -> None:
        """Close its descriptor."""
        os.close(self._of.pop(process))

    @property
    def processes(self) -> tuple[ProcessId, ...]:
        """Whose descriptors are open."""
        return tuple(self._of)


def has_ended(pidfd: int) -> bool:
    """Whether its process has ended: then the descriptor is readable."""
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    return bool(poll.poll(0))
