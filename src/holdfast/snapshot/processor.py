"""What work beside the training takes from it: processor time, where there is none to spare."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

_ACCOUNT = Path("/proc/thread-self/schedstat")


class ProcessorUse(NamedTuple):
    """Of one thread, from its beginning or between two looks, by the kernel's own account.

    `ran_ns`: on a processor. `waited_ns`: ready to run, while others had all of them.
    """

    ran_ns: int = 0
    waited_ns: int = 0

    @classmethod
    def of_this_thread(cls) -> ProcessorUse:
        """Until now; nothing where the kernel does not keep that account."""
        try:
            ran, waited, *_ = _ACCOUNT.read_bytes().split()
            return cls(int(ran), int(waited))
        except (OSError, ValueError):
            return cls()

    def since(self, before: ProcessorUse) -> ProcessorUse:
        """What came after that look."""
        return ProcessorUse(self.ran_ns - before.ran_ns, self.waited_ns - before.waited_ns)

    def __add__(self, other: object) -> ProcessorUse:
        if not isinstance(other, ProcessorUse):
            return NotImplemented
        return ProcessorUse(self.ran_ns + other.ran_ns, self.waited_ns + other.waited_ns)

    @property
    def taken_ns(self) -> int:
        """The part of its time on a processor that others would have had.

        Who never waits runs on processors that nobody wants, and takes nothing; who waits for as
        long as it runs shares one with somebody who wants all of it.
        """
        wanted_ns = self.ran_ns + self.waited_ns
        return self.ran_ns * self.waited_ns // wanted_ns if wanted_ns > 0 else 0
