"""Whom an agent of several hosts follows, and when it has a controller started. Pure.

    succession = Succession(index=2)
    step = succession.look(at_ns, sight, is_linked=False, is_starting=False)

Whoever holds the run's lease is its controller. Where nobody does, each host leaves it to those
with lower numbers first, so that not all start one; of several that are started, one gets the
lease. A holder on another machine is known by its heartbeat alone: it is followed until that has
stood still for a while, and only who has no link to it judges that. Time counts from the last beat
on, and not from when the link went down; but of the time with a link no more than one beat counts,
since a holder that is linked lives, be its way to the store ever so slow.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from holdfast.core.durations import SECOND_NS

TURN_NS = 2 * SECOND_NS
LONGEST_TURN_NS = 10 * SECOND_NS
# A turn before the lease is free (journal.lease.SILENT_AFTER_S): who is first in turn has its
# controller there by then, which watches the heart on, and who is second begins. Not sooner: hosts
# that are first in turn look each two seconds, so one may know of a beat that much later.
STILL_NS = 28 * SECOND_NS
BEAT_NS = 5 * SECOND_NS  # between two beats (journal.lease.HEARTBEAT_S)
REST_NS = 60 * SECOND_NS  # of a host whose controller had no link to the others
MOST_FAILURES = 3  # of controllers that were started here, one after another


class FollowStep(StrEnum):
    """What to do now."""

    FOLLOW = "follow"  # the holder of the lease
    START = "start"  # a controller
    LEAVE = "leave"  # the run is over
    WAIT = "wait"


class LeaseSight(NamedTuple):
    """The newest lease. `is_held` None: only its heartbeat can tell.

    `is_over`: it was given back, with the last words of a run. `beat`: another one each time that
    the holder has shown life.
    """

    epoch: int
    is_held: bool | None
    is_over: bool = False
    beat: bytes = b""


class Succession:
    """For one agent, from its start on."""

    def __init__(self, index: int) -> None:
        self._patience_ns = min(TURN_NS * index, LONGEST_TURN_NS + SECOND_NS * index // 10)
        self._before: int | None = None  # terms up to that were over before this began
        self._absent_since_ns: int | None = None
        self._beat: tuple[int, bytes] = (0, b"")
        self._beat_ns = 0
        self._rests_until_ns = 0
        self._failures = 0

    def store_is_away(self, at_ns: int) -> None:
        """Nothing is known: no time counts, and no controller could have begun."""
        self._failures = 0
        self._absent_since_ns = None
        self._beat_ns = at_ns

    def has_given_back(self, at_ns: int) -> None:
        """The controller that was started here has left the run to others."""
        self._rests_until_ns = at_ns + REST_NS

    def has_failed(self) -> bool:
        """The controller that was started here has ended by itself; whether no other will do."""
        self._failures += 1
        return self._failures >= MOST_FAILURES

    def has_found_one(self) -> None:
        """There is a controller that listens."""
        self._failures = 0

    def watched(self, at_ns: int) -> tuple[int, bytes, int]:
        """Of which lease the heartbeat is watched, the last beat, and how long ago that was."""
        return *self._beat, at_ns - self._beat_ns

    @property
    def over_before(self) -> int:
        """A run that was over by a lease up to this one is begun again; no newer one is."""
        return self._before or 0

    def look(
        self, at_ns: int, sight: LeaseSight, *, is_linked: bool, is_starting: bool
    ) -> FollowStep:
        """What follows from a look at the lease. `is_starting`: one that was started here lives."""
        if (
            sight.epoch < self._beat[0]
        ):  # a folder that is not mounted looks like one without claims
            self.store_is_away(at_ns)
            return FollowStep.WAIT
        if self._before is None:
            self._before = sight.epoch if sight.is_held is False else sight.epoch - 1
        if sight.is_over and sight.epoch > self._before:
            return FollowStep.LEAVE
        if self._is_held(at_ns, sight, is_linked=is_linked):
            self._absent_since_ns = None
            return FollowStep.FOLLOW
        if is_starting or at_ns < self._rests_until_ns:
            return FollowStep.WAIT
        if self._absent_since_ns is None:
            self._absent_since_ns = at_ns
        if at_ns - self._absent_since_ns < self._patience_ns:
            return FollowStep.WAIT
        self._absent_since_ns = at_ns
        return FollowStep.START

    def _is_held(self, at_ns: int, sight: LeaseSight, *, is_linked: bool) -> bool:
        beat = sight.epoch, sight.beat
        if beat != self._beat:
            self._beat, self._beat_ns = beat, at_ns
        elif is_linked:
            self._beat_ns = max(self._beat_ns, at_ns - BEAT_NS)
        if sight.is_held is not None:
            return sight.is_held
        return at_ns - self._beat_ns < STILL_NS
