"""How the hosts of a run stand: for people to look at, and as facts in the controller's journal.

    {"fact": "host", "at_ns": …, "host": 1, "state": "assigned", "slot": 1, "slice": "", "chips": 4,
     "boot": …, "offset_ns": …, "error_ns": …, "ahead_ns": …}
    {"fact": "parts", "at_ns": …, "attempt": 3, "parts": [[0, 0, 7], [2, 8, 15]]}

The first says what is so of a host from then on, and what brings the times of its boot to those of
the controller's, to within `error_ns`, and how far its wall clock is ahead. The second says which
host has which ranks of an attempt, from the first to the last. Nothing is decided by them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from holdfast.controller.remote_hosts import RemoteHosts
from holdfast.core.hosts.clocks import ClockBound
from holdfast.core.hosts.members import MemberState
from holdfast.core.hosts.placement import NOWHERE, Placement
from holdfast.journal.hosts_table import ListedHost

EVERY_NS = 1_000_000_000
EACH_NS = 3_000_000  # where this is more, for all hosts
EXACT_NS = 50_000  # a bound that is closer than this is not told anew


@dataclass(frozen=True, slots=True)
class Noted:
    """What was told of a host last."""

    state: str
    slot: int | None
    slice: str
    chips: int | None
    boot: str
    clock: ClockBound | None


def noted(row: ListedHost) -> Noted:
    """What is worth a fact of it."""
    clock = None
    if row.offset_ns is not None and row.error_ns is not None:
        clock = ClockBound(row.offset_ns, row.error_ns)
    return Noted(row.state, row.trains_as, row.slice, row.chips, row.boot, clock)


def is_news(before: Noted | None, now: Noted) -> bool:
    """Whether that is to be told: of a clock only what is twice as exact, or contradicts."""
    if before is None or replace(before, clock=now.clock) != now:
        return True
    old, new = before.clock, now.clock
    if old is None or new is None:
        return old is None and new is not None
    is_better = new.error_ns * 2 <= old.error_ns and old.error_ns > EXACT_NS
    return is_better or new.contradicts(old)


class HostBook:
    """For the controller's thread; another may read `rows`, which is replaced, never changed."""

    def __init__(
        self,
        remote: RemoteHosts,
        newest: Callable[[], tuple[int, Placement]],
        own_boot: str,
        write: Callable[[Mapping[str, Any]], None],
    ) -> None:
        """`newest`: the attempt, and where its ranks are. `write`: one fact."""
        self._remote, self._newest, self._own_boot, self._write = remote, newest, own_boot, write
        self._noted: dict[int, Noted] = {}  # by index
        self._attempt = -1  # whose parts were told
        self._next_ns = 0
        self.rows: tuple[ListedHost, ...] = ()  # each host by its number, as of the last look
        self._of_slot: tuple[Placement, dict[int, tuple[int, int]]] = (NOWHERE, {})

    def _rows(self, now_ns: int, unix_ns: int) -> tuple[ListedHost, ...]:
        """Each host by its number; of one that came several times the last one."""
        members = list(self._remote.membership.members.values())  # at once
        newest = {one.index: one for one in members}
        of_slot = self._ranks_of_slot(self._newest()[1])
        found = []
        for index, one in sorted(newest.items()):
            says, clock = self._remote.heard.newest_of(one.incarnation), None
            if says is not None and says.boot != self._own_boot:
                clock = self._remote.heard.clock_of(one.incarnation)
            elif says is not None:
                clock = ClockBound(0, 0)  # it is the same one
            ahead_ns = None
            if clock is not None and says is not None:
                ahead_ns = says.wall_ns - (unix_ns - now_ns) - clock.offset_ns
                ahead_ns = 0 if says.boot == self._own_boot else ahead_ns
            ranks = None if one.slot is None else of_slot.get(one.slot)
            found.append(
                ListedHost(
                    index,
                    str(one.state),
                    "" if says is None else says.address,
                    one.slot,
                    unix_ns - max(0, now_ns - one.heard_ns),
                    slice="" if says is None else says.slice,
                    chips=None if says is None else says.chips or None,
                    first_rank=None if ranks is None else ranks[0],
                    last_rank=None if ranks is None else ranks[1],
                    boot="" if says is None else says.boot,
                    offset_ns=None if clock is None else clock.offset_ns,
                    error_ns=None if clock is None else clock.error_ns,
                    ahead_ns=ahead_ns,
                    silent_ns=now_ns - one.heard_ns if one.state is MemberState.SUSPECT else None,
                )
            )
        return tuple(found)

    def _ranks_of_slot(self, placement: Placement) -> dict[int, tuple[int, int]]:
        if self._of_slot[0] is not placement:
            ranks: dict[int, tuple[int, int]] = {}
            for rank, slot in enumerate(placement.hosts):
                ranks[slot] = ranks.get(slot, (rank, rank))[0], rank
            self._of_slot = placement, ranks
        return self._of_slot[1]

    def look(self, now_ns: int, unix_ns: int, *, is_launched: bool) -> None:
        """Write what is new, once a second; of many hosts less often.

        `is_launched`: the newest attempt has its hosts.
        """
        attempt = self._newest()[0]
        begins = is_launched and attempt != self._attempt
        if not begins and now_ns < self._next_ns:
            return
        rows = self.rows = self._rows(now_ns, unix_ns)
        self._next_ns = now_ns + max(EVERY_NS, len(rows) * EACH_NS)
        for row in rows:
            now = noted(row)
            if is_news(self._noted.get(row.index), now):
                self._noted[row.index] = now
                self._write(_host_fact(row, now_ns))
        if begins:
            self._attempt = attempt
            self._write(_parts_fact(attempt, rows, now_ns))


def _host_fact(row: ListedHost, at_ns: int) -> dict[str, Any]:
    fact = {"fact": "host", "at_ns": at_ns, "host": row.index, "state": row.state}
    fact |= {"slot": row.trains_as, "slice": row.slice, "boot": row.boot}
    fact |= {} if row.chips is None else {"chips": row.chips}
    clock = {"offset_ns": row.offset_ns, "error_ns": row.error_ns, "ahead_ns": row.ahead_ns}
    return fact | clock


def _parts_fact(attempt: int, rows: Sequence[ListedHost], at_ns: int) -> dict[str, Any]:
    known = (one for one in rows if one.last_rank is not None)
    parts = [[one.index, one.first_rank, one.last_rank] for one in known]
    return {"fact": "parts", "at_ns": at_ns, "attempt": attempt, "parts": parts}
