"""The journal's clock, and how times of several boots come onto one run-wide clock.

Records carry CLOCK_BOOTTIME: it never steps, and it counts while the machine is suspended. It means
nothing on another boot, so each file also carries pairs (boottime_ns, unix_ns) read together.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

# Elsewhere than on Linux the monotonic clock is the nearest there is.
CLOCK_ID: int = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_BOOT_ID_FILE = Path("/proc/sys/kernel/random/boot_id")


def now_ns() -> int:
    """The journal's clock now, nanoseconds since this machine booted."""
    return time.clock_gettime_ns(CLOCK_ID)


def boot_id() -> str:
    """The id of this boot of this machine: times compare only where it is equal."""
    try:
        return _BOOT_ID_FILE.read_text(encoding="ascii").strip()
    except OSError:
        # No such file (not Linux): the boot's instant, to 10 s, tells one boot from the next.
        return f"boot-{(time.time_ns() - now_ns()) // 10_000_000_000}"


class ClockPair(NamedTuple):
    """Two clocks read at one instant, nanoseconds."""

    boottime_ns: int
    unix_ns: int


def read_clock_pair(tries: int = 5) -> ClockPair:
    """Both clocks as nearly at once as can be had: the tightest of a few bracketed readings."""
    best: ClockPair | None = None
    best_width_ns = 0
    for _ in range(tries):
        before = now_ns()
        unix = time.time_ns()
        after = now_ns()
        if best is None or after - before < best_width_ns:
            best_width_ns = after - before
            best = ClockPair((before + after) // 2, unix)
    assert best is not None, "tries is at least 1"  # noqa: S101 -- for the type checker
    return best


@dataclass(slots=True)
class RunClock:
    """Maps the boottime of each boot onto one run-wide clock, unix ns at its anchor.

    Each boot has one anchor, the earliest pair known when it is first needed. Later pairs are
    ignored on purpose: a wall clock that is stepped during the run must not stretch or fold it.
    """

    _pairs: dict[str, ClockPair] = field(default_factory=dict)
    _offsets_ns: dict[str, int] = field(default_factory=dict)
    _unknown: set[str] = field(default_factory=set)  # boots that were asked for in vain

    def learn(self, boot: str, pair: ClockPair) -> bool:
        """Take a pair of this boot into account; without effect once the boot's anchor is used.

        True: with it, what was said of this boot before would have been something else.
        """
        known = self._pairs.get(boot)
        if known is not None and known <= pair:
            return False
        self._pairs[boot] = pair
        return boot in self._offsets_ns or boot in self._unknown

    def offset_ns(self, boot: str) -> int | None:
        """What to add to this boot's times; None when no pair of this boot is known."""
        if boot not in self._offsets_ns:
            pair = self._pairs.get(boot)
            if pair is None:
                self._unknown.add(boot)
                return None
            self._offsets_ns[boot] = pair.unix_ns - pair.boottime_ns
        return self._offsets_ns[boot]

    def now_ns(self) -> int:
        """Now on the run-wide clock; the wall clock where this boot has no part in the run."""
        return self.at(ClockPair(now_ns(), time.time_ns()))

    def at(self, pair: ClockPair) -> int:
        """A moment of this boot on the run-wide clock; the wall clock's as in `now_ns`."""
        boot = boot_id()
        offset = self.offset_ns(boot) if boot in self._pairs else None
        return pair.unix_ns if offset is None else pair.boottime_ns + offset
