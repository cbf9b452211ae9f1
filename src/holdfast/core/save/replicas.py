"""Copies of sets on other hosts: which set every host copies from its neighbour, and which is safe.

A set in memory is lost with any one of its hosts, unless each part of it is on a second one. One
set at a time is replicated, and none is given up for a newer one. The buffers of the newest
replicated set stay as they are, in whichever attempt, until a newer one is replicated: it is what
the loss of a host goes back to.
"""

from __future__ import annotations

from dataclasses import dataclass

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.core.save.tier_events import SetInBuffer

RESTS = 1  # times as long as the last replication took: half of the time the network is free
LONGEST_REST_NS = 60 * SECOND_NS
TRIES = 3  # to copy the first set; then buffers are overwritten though nothing is on two hosts


@dataclass(slots=True)
class Replicas:
    """Those of one run. `is_on`: there are other hosts to copy to.

    `newest`: every part of it is on two hosts. `is_sure`: on those that the attempt has; before,
    another host may have taken the place of one that had it. `again_ns`: no other begins before.
    """

    is_on: bool = False
    under_way: SetInBuffer | None = None
    newest: SetInBuffer | None = None
    is_sure: bool = True
    again_ns: int = 0
    compared_step: int | None = None  # of the newest set in which nothing differs from host to host
    _began_ns: int = 0
    is_known: bool = False  # what is on two hosts, by copies under this controller or as told
    _is_from_memory: bool = False  # the attempt started from a set there
    _failed: int = 0  # in a row

    @property
    def pinned(self) -> tuple[int, ...]:
        """Buffers that must stay as they are."""
        wanted = (self.under_way, self.newest)
        return tuple(one.buffer for one in wanted if one is not None)

    @property
    def spares_all(self) -> bool:
        """Whether no buffer is overwritten: a controller before this one may have had one copied.

        That lasts until the set that the attempt started from is on two hosts.
        """
        return self.is_on and self._is_from_memory and not self.is_known

    def begin(self, restored: SetInBuffer | None, step: int) -> None:
        """A new attempt starts from that set, or from none in memory: none is of use then.

        On a host that took the place of another one there are no copies yet, so the set is copied
        anew; who has its copy still says so at once. `step`: of the set.
        """
        if self.compared_step is not None:
            self.compared_step = min(self.compared_step, step)
        self.under_way, self.again_ns, self.is_sure = None, 0, False
        self._is_from_memory = restored is not None
        newest = self.newest
        if restored is None or newest is None or newest.step > restored.step:
            self.newest = None

    def next(
        self, at_ns: int, sealed: SetInBuffer | None, within_ns: int = 0
    ) -> act.Replicate | None:
        """What is to be replicated now; None: nothing, or not yet.

        `within_ns`: it should be over by then.
        """
        is_due = self.is_on and self.under_way is None and at_ns >= self.again_ns
        if not is_due or sealed is None or (sealed == self.newest and self.is_sure):
            return None
        self.under_way, self._began_ns = sealed, at_ns
        kept = None if self.newest is None else self.newest.name
        return act.Replicate(*sealed, kept, within_ns)

    def is_of(self, event: ev.Replicated | ev.NotReplicated) -> bool:
        """Whether that is news of the one that is under way."""
        kept, of = self.under_way, (event.of_attempt, event.epoch, event.step)
        return kept is not None and (kept.attempt, kept.epoch, kept.step) == of

    def over(self, event: ev.Replicated | ev.NotReplicated) -> bool:
        """Take in what became of it; whether it is news of the one that is under way."""
        kept = self.under_way
        if kept is None or not self.is_of(event):
            return False
        self.under_way = None
        rest_ns = RESTS * (event.at_ns - self._began_ns)
        if isinstance(event, ev.Replicated) and not event.differing:
            self.newest, self.is_sure, self._failed = kept, True, 0
            self.compared_step = kept.step
        elif isinstance(event, ev.Replicated):
            self._failed = 0
        else:
            rest_ns = max(rest_ns, SECOND_NS << min(self._failed, 6))
            self._failed += 1
        self.is_known = self.is_known or self.is_sure or self._failed >= TRIES
        self.again_ns = event.at_ns + min(rest_ns, LONGEST_REST_NS)
        return True
