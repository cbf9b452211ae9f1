"""The journal's clock, and how times of several boots come onto one run-wide clock.

Records carry CLOCK_BOOTTIME: it never steps, and it counts while the machine is suspended. It means
nothing on another boot, so each file also carries pairs (boottime_ns, unix_ns) read together, and
a controller of several hosts journals what it has measured between their clocks and its own.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

CLOCK_ID = time.CLOCK_BOOTTIME

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


def read_clock_pair() -> ClockPair:
    """Both clocks as nearly at once as can be had: the tightest of a few bracketed readings."""
    readings = [(now_ns(), time.time_ns(), now_ns()) for _ in range(5)]
    before, unix, after = min(readings, key=lambda one: one[2] - one[0])
    return ClockPair((before + after) // 2, unix)


class ClockLink(NamedTuple):
    """What brings the times of one boot to those of another, to within `error_ns`.

    `order`: of whoever has measured it among the controllers of its run.
    """

    of: str
    to: str
    offset_ns: int
    error_ns: int
    order: int


class MappedBoot(NamedTuple):
    """What brings a boot's times onto the run-wide clock, to within `error_ns` of `to`'s.

    `error_ns` None: by the wall clock of that boot, which may be anything.
    """

    offset_ns: int
    error_ns: int | None
    to: str


@dataclass(slots=True)
class RunClock:
    """Maps the boottime of each boot onto one run-wide clock, unix ns at its anchor.

    Of boots whose clocks were compared the run's first controller's has the anchor, and the others
    are mapped by what was measured, over whatever boots lie between. A boot of which nobody has
    measured anything is mapped by its own anchor: its earliest pair known when it is first needed.
    Later pairs are ignored on purpose: a wall clock that is stepped during the run must not stretch
    or fold it.
    """

    _pairs: dict[str, ClockPair] = field(default_factory=dict)
    _links: dict[tuple[str, str], set[ClockLink]] = field(default_factory=dict)
    _mapped: dict[str, MappedBoot] | None = None  # what is known; None: it is to be found anew
    _used: dict[str, int | None] = field(default_factory=dict)  # offsets as they were given
    _was_unknown: bool = False  # one that was given as unknown, and is not

    def anew(self) -> RunClock:
        """The same, as if nobody had asked for anything yet."""
        return RunClock(self._pairs, self._links)

    def learn(self, boot: str, pair: ClockPair) -> bool:
        """Take a pair of this boot into account; without effect once an offset is given.

        True: with it, what was said of this boot before would have been something else.
        """
        known = self._pairs.get(boot)
        if known is not None and known <= pair:
            return False
        self._pairs[boot] = pair
        self._mapped = None
        return boot in self._used and self._used[boot] != self._offset_now(boot)

    def link(self, link: ClockLink) -> None:
        """Take into account what somebody has measured; the most exact of one pair counts.

        The others say how far the two clocks have drifted apart.
        """
        if link.of != link.to:
            self._links.setdefault((link.of, link.to), set()).add(link)
            self._mapped = None

    def is_other(self) -> bool:
        """Whether an offset that was given would be another one by now."""
        given = self._used.items()
        return self._was_unknown or any(self._offset_now(boot) != ns for boot, ns in given)

    def offset_ns(self, boot: str) -> int | None:
        """What to add to this boot's times; None when no pair of this boot is known."""
        if self._used.get(boot) is None:
            offset_ns = self._offset_now(boot)
            self._was_unknown |= boot in self._used and offset_ns is not None
            self._used[boot] = offset_ns
        return self._used[boot]

    def mapped(self, boot: str) -> MappedBoot | None:
        """How its times are brought onto the run-wide clock, by what is known now."""
        if self._mapped is None:
            self._mapped = _mapped(self._pairs, self._links)
        return self._mapped.get(boot)

    def _offset_now(self, boot: str) -> int | None:
        found = self.mapped(boot)
        return None if found is None else found.offset_ns

    def now_ns(self) -> int:
        """Now on the run-wide clock; the wall clock where this boot has no part in the run."""
        return self.at(ClockPair(now_ns(), time.time_ns()))

    def at(self, pair: ClockPair) -> int:
        """A moment of this boot on the run-wide clock; the wall clock's as in `now_ns`."""
        boot = boot_id()
        offset = self.offset_ns(boot) if boot in self._pairs else None
        return pair.unix_ns if offset is None else pair.boottime_ns + offset


def _mapped(
    pairs: Mapping[str, ClockPair], links: Mapping[tuple[str, str], set[ClockLink]]
) -> dict[str, MappedBoot]:
    """All boots: from the anchor of each group that was compared, by the most exact way."""
    found: dict[str, MappedBoot] = {}
    ways: dict[str, list[tuple[str, int, int]]] = {}  # to a boot: of, offset, error
    roots: set[tuple[int, str]] = set()
    for (of, to), measured in links.items():
        best = min(measured, key=lambda one: (one.error_ns, one.order, one.offset_ns))
        apart_ns = (abs(one.offset_ns - best.offset_ns) - one.error_ns for one in measured)
        error_ns = max(best.error_ns, *apart_ns)
        ways.setdefault(to, []).append((of, best.offset_ns, error_ns))
        ways.setdefault(of, []).append((to, -best.offset_ns, error_ns))
        roots.add((min(one.order for one in measured), to))
    for _, root in sorted(roots):
        pair = pairs.get(root)
        if root in found or pair is None:
            continue
        nearest = [(0, root, pair.unix_ns - pair.boottime_ns)]
        while nearest:
            error_ns, boot, offset_ns = heapq.heappop(nearest)
            if boot in found:
                continue
            found[boot] = MappedBoot(offset_ns, error_ns, root)
            for other, more_ns, error_more_ns in ways.get(boot, ()):
                if other not in found:
                    way = (error_ns + error_more_ns, other, offset_ns + more_ns)
                    heapq.heappush(nearest, way)
    for boot, pair in pairs.items():
        if boot not in found:
            found[boot] = MappedBoot(pair.unix_ns - pair.boottime_ns, None, boot)
    return found
