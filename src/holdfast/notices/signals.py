"""Signals as notices that say how much time there is: `--notice signal:USR1=120`.

`holdfast run` takes SIGTERM, SIGHUP and SIGUSR1 as a notice of `--grace` seconds in any case, upon
which it saves and leaves at once. A signal that is named here means its own number of seconds
instead: what Slurm sends long before a job's end (`--signal=B:USR1@120`) need not stop the run now.
"""

from __future__ import annotations

import asyncio
import signal
from collections import deque
from collections.abc import Collection, Sequence

from holdfast.core.durations import SECOND_NS
from holdfast.core.notices.board import Notice, NoticeAction
from holdfast.errors import ConfigurationError
from holdfast.notices.protocol import News, SourceSurroundings, Tools, Watch

NAMES = ("SIGTERM", "SIGUSR1", "SIGUSR2", "SIGHUP")


class Signals:
    """One signal, which comes `lead_ns` before the end."""

    name = "signal"

    def __init__(self, number: int, lead_ns: int, tools: Tools) -> None:
        self._number, self._lead_ns, self._tools = number, lead_ns, tools
        self._arrived_ns: deque[int] = deque()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._more: asyncio.Event | None = None
        self._last_ns: int | None = None

    @property
    def numbers(self) -> Collection[int]:
        """The signal."""
        return (self._number,)

    def arrived(self, number: int) -> None:
        """It has come; called from any thread."""
        del number
        self._arrived_ns.append(self._tools.now_ns())
        if self._loop is not None and self._more is not None:
            self._loop.call_soon_threadsafe(self._more.set)

    @property
    def watches(self) -> Sequence[Watch]:
        """A notice for each; one that comes again while its time runs says nothing new."""
        return (self._watch,)

    async def _watch(self) -> News:
        self._loop, self._more = asyncio.get_running_loop(), asyncio.Event()
        yield ()
        while True:
            self._more.clear()
            while self._arrived_ns:
                at_ns = self._arrived_ns.popleft()
                if self._last_ns is not None and at_ns < self._last_ns + self._lead_ns:
                    continue
                self._last_ns = at_ns
                name = signal.Signals(self._number).name
                notice = Notice(
                    self.name,
                    NoticeAction.TERMINATE,
                    at_ns,
                    event_id=f"{name}-{at_ns}",
                    deadline_ns=at_ns + self._lead_ns,
                    words=name,
                )
                yield (notice,)
            await self._more.wait()


def make(option: str, tools: Tools, around: SourceSurroundings) -> Signals:
    """Of `NAME=SECONDS`; raises ConfigurationError for anything else."""
    del around
    name, _, seconds = option.partition("=")
    name = name.upper() if name.upper().startswith("SIG") else f"SIG{name.upper()}"
    try:
        lead_ns = int(float(seconds) * SECOND_NS)
    except (ValueError, OverflowError):
        lead_ns = 0
    if name not in NAMES or lead_ns <= 0:
        known = ", ".join(one.removeprefix("SIG") for one in NAMES)
        raise ConfigurationError(
            f"signal:{option} is no signal and time: write signal:USR1=120 for a SIGUSR1 that "
            f"comes 120 s ahead; there are {known}"
        )
    return Signals(int(signal.Signals[name]), lead_ns, tools)
