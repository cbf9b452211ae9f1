"""Whose step line it is: the run's next step, the same one said again, or a restarted process.

Several processes may write into one log, and some lines say which (a rank, a pod, a thread's
number). A step below the last one is a restart where the process that says it has been further
itself; of a process that was not heard before, it is an echo only while the attempt is young.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

YOUNG_ROWS = 3
MAX_WRITERS = 100_000


class Judged(Enum):
    """What a step line is."""

    NEXT = "next"
    ECHO = "echo"
    AGAIN = "again"  # by the process that said it last
    RESTART = "restart"


def _of_known(step: int, own: int) -> Judged:
    if step == own:
        return Judged.AGAIN
    return Judged.ECHO if step > own else Judged.RESTART


@dataclass(slots=True)
class LogWriters:
    """The processes of one attempt, and how far each has been."""

    last: int | None = None
    first: int = 0
    rows: int = 0
    _by_writer: dict[str | None, int] = field(default_factory=dict)

    def judge(self, step: int, writer: str | None) -> Judged:
        """Take note of a step line, and say what it is."""
        own = self._by_writer.get(writer)
        if self.last is None or step > self.last:
            self.first = step if self.last is None else self.first
            self.last = step
            self.rows += 1
            verdict = Judged.NEXT
        elif own is not None:
            verdict = _of_known(step, own)
        elif self.rows <= YOUNG_ROWS and step >= self.first:
            verdict = Judged.ECHO
        else:
            verdict = Judged.RESTART
        if verdict is not Judged.RESTART and (
            own is not None or len(self._by_writer) < MAX_WRITERS
        ):
            self._by_writer[writer] = step
        return verdict
