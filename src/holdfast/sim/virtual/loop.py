"""How what happens reaches a virtual supervisor: how long each thing takes, and in which order.

The supervisor is one loop. While it does not come round (the host is busy, or it was stopped),
nothing is lost but words that are overwritten meanwhile; when it does, it reads one source after
the other, so that what happened first need not be heard first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import IntEnum
from itertools import cycle

from holdfast.sim.clock import MS, SECOND, VirtualClock

ASLEEP_NS = 3 * SECOND + 250 * MS  # as `agent.look.Wakefulness`: a turn so late is told


class Source(IntEnum):
    """What a turn of the loop reads, in this order."""

    INBOX = 0  # signals, requests, and what the store's worker has done
    MEMORY = 1  # seals and flushes
    REAPER = 2
    TIMER = 3
    WORDS = 4  # the pages of the ranks


@dataclass(frozen=True)
class Delays:
    """How long things take, one after the other, and from the beginning again. Nanoseconds.

    `words_ns`: until a rank sees what was stored for it, by rank. `looks_ns`: between two looks at
    the ranks' pages, when a save is under way and else. `seal_ns` empty: as long as the shape says.
    `look_ns`: between what is put in the store and the look at the lease that follows, and between
    that and what it is done for. `link_ns`: a message between controller and host; all 0: none are
    needed. `has_agents`: each host has an agent that must find the controller.
    """

    store_ns: tuple[int, ...] = (10 * MS,)
    spawn_ns: tuple[int, ...] = (15 * MS,)
    reap_ns: tuple[int, ...] = (1 * MS,)
    bell_ns: tuple[int, ...] = (1 * MS,)
    words_ns: tuple[int, ...] = (0,)
    seal_ns: tuple[int, ...] = ()
    look_ns: tuple[int, ...] = (0,)
    link_ns: tuple[int, ...] = (0,)
    looks_ns: tuple[int, int] = (2 * MS, 50 * MS)
    has_agents: bool = False


@dataclass
class Taking:
    """The delays of one supervisor: each call gives the next of its kind."""

    delays: Delays
    _cycles: dict[str, cycle[int]] = field(default_factory=dict)

    def next_ns(self, kind: str, default_ns: int = 0) -> int:
        """How long the next one takes."""
        if kind not in self._cycles:
            self._cycles[kind] = cycle(getattr(self.delays, kind) or (default_ns,))
        return next(self._cycles[kind])


class Inputs:
    """What waits for the loop to come round."""

    def __init__(self, clock: VirtualClock, woken: Callable[[int], None]) -> None:
        """`woken` is told how long the loop did not come round, where that is to be told."""
        self._clock = clock
        self._woken = woken
        self._held: list[tuple[Source, Callable[[], None]]] = []
        self._since_ns = self._until_ns = 0

    def give(self, source: Source, do: Callable[[], None]) -> None:
        """Handle an input now, or when the loop comes round: then in its order among the others."""
        if self._until_ns:
            self._held.append((source, do))
        else:
            do()

    def stall(self, ns: int) -> None:
        """The loop does not come round for so long."""
        now_ns = self._clock.now_ns
        if not self._until_ns:
            self._since_ns = now_ns
        self._until_ns = max(self._until_ns, now_ns + ns)
        self._clock.later(ns, self._release)

    def slept(self, gap_ns: int) -> None:
        """All machines have slept; a loop that is held tells that with the rest, and once."""
        if self._until_ns:
            self._until_ns += gap_ns
        else:
            self._woken(gap_ns)

    def _release(self) -> None:
        if not self._until_ns or self._clock.now_ns < self._until_ns:
            return  # another stall holds it on, or it came round with that one
        self._until_ns = 0
        held, self._held = self._held, []
        late_ns = self._clock.now_ns - self._since_ns
        if late_ns > ASLEEP_NS:
            self._woken(late_ns)
        for _, do in sorted(held, key=lambda item: item[0]):  # a stable sort: then in order of time
            do()
