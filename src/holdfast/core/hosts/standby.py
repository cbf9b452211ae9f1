"""What waits for the next attempt while one runs: how far it has come, and what is done with it.

The controller says what is wanted (`StandbyOrder`). Interpreters are prepared once an attempt is
well on its way. They are woken as soon as it is certain that the attempt is over and another
follows at once: they run the script while the old ranks die, the set to restore is chosen and the
attempt is put on record. Where the user wants it hot, they are woken as soon as they are ready, and
wait at the gate for however long it takes.

Where failures come close together the second one may strike before a standby is ready. Then a
*reserve* is kept as well: interpreters that have imported, and are the standby once that is used.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum, auto

TRIES = 3  # in a row, of what came to nothing before an attempt used it
SECOND_NS = 1_000_000_000
CLOSE_NS = 120 * SECOND_NS  # between two attempts' beginnings: the next failure may come as soon
CALM_NS = 600 * SECOND_NS  # without a restart: failures are not close together any more
LATE_NS = 5 * SECOND_NS  # what gives way to a busy host for so long would for ever
SHARE_FREE = 4  # a reserve takes at most one part in so many of the memory that is free


class StandbyOrder(StrEnum):
    """What the controller wants of the processes that may become the next attempt's ranks."""

    NONE = "none"  # no attempt follows under this controller: none are kept
    AS_IS = "as is"  # between two attempts: what is there stays, nothing new is prepared
    READY = "ready"  # the attempt is well on its way: one interpreter a rank is prepared
    WOKEN = "woken"  # the attempt is being ended, and another follows at once: they may begin


class StandbyStage(IntEnum):
    """How far the processes of the next attempt have come; what they lack, it does by itself."""

    COLD = 0  # there are none
    IMPORTING = 1  # an interpreter a rank imports what the ranks had imported
    READY = 2  # all have imported what they can
    HELD = 3  # they have become ranks, and run nothing before the old ranks are gone
    AHEAD = 4  # they run the script, up to the gate


class StandbyMove(Enum):
    """What a host does with its standby now."""

    NOTHING = auto()
    PREPARE = auto()
    WAKE_BESIDE = auto()  # beside ranks that train, to which it gives way
    WAKE = auto()
    WAKE_HELD = auto()
    RENEW = auto()  # what it has read has changed: it is dropped, and prepared anew
    PREPARE_RESERVE = auto()
    LIFT = auto()  # its imports give way no more
    DROP_RESERVE = auto()
    DROP = auto()


@dataclass(slots=True)
class StandbySight:
    """What the host sees.

    `is_whole`: there is an interpreter for each rank. `changed`: a file that is another than what
    was read; "" for none. `device`: what the ranks have open and cannot share; "" for nothing.
    `restores_first`: the script begins with `run.restore()`, so that it touches nothing before it
    is told what to read. `idle_since_ns`: when interpreters were started that import still, and
    give way to everybody else; None: there are none. `takes_bytes`: the standby's memory.
    `free_bytes`: of this host's memory.
    """

    stage: StandbyStage = StandbyStage.COLD
    is_whole: bool = False
    changed: str = ""
    device: str = ""
    restores_first: bool = False
    at_ns: int = 0
    idle_since_ns: int | None = None
    has_reserve: bool = False
    takes_bytes: int = 0
    free_bytes: int = 0


@dataclass(slots=True)
class StandbyRules:
    """Decides what becomes of a host's standby.

    `is_hot`: it is to run ahead of its attempt. `runs_ahead`: it may, once the attempt is certain.
    """

    is_hot: bool = False
    order: StandbyOrder = StandbyOrder.AS_IS
    attempt: int = 0  # that it would be
    runs_ahead: bool = True
    ended_by_itself: int = 0  # in a row, before it was woken
    lost_ahead: int = 0  # in a row, once it was woken
    changes: int = 0  # how often it was made anew for `changes_of`
    changes_of: int = 0
    began_ns: tuple[int, ...] = ()  # the last two attempts

    def due(self, sight: StandbySight) -> tuple[StandbyMove, str]:
        """What is to be done now, and what people are to know of it; "" for nothing."""
        move, words = self._due(sight)
        if move is StandbyMove.NOTHING and self.order is StandbyOrder.READY:
            since_ns = sight.idle_since_ns
            is_late = since_ns is not None and sight.at_ns - since_ns >= LATE_NS
            move = StandbyMove.LIFT if is_late else self._reserve(sight)
        return move, words

    def _due(self, sight: StandbySight) -> tuple[StandbyMove, str]:
        if self.order is StandbyOrder.NONE:
            return StandbyMove.DROP, ""
        if self.order is StandbyOrder.WOKEN:
            return self._woken(sight), ""
        if self.order is StandbyOrder.AS_IS:
            return StandbyMove.NOTHING, ""
        if sight.stage is StandbyStage.COLD:
            may_try = self.ended_by_itself < TRIES
            return StandbyMove.PREPARE if may_try else StandbyMove.NOTHING, ""
        if not self.is_hot or sight.stage is StandbyStage.IMPORTING:
            return StandbyMove.NOTHING, ""
        if sight.stage >= StandbyStage.HELD:
            return self._renewed(sight.changed) if sight.changed else (StandbyMove.NOTHING, "")
        self.is_hot = not (self.lost_ahead or obstacle(sight))
        if self.is_hot:
            return StandbyMove.WAKE_BESIDE, ""
        why = "" if self.lost_ahead else obstacle(sight)
        return StandbyMove.NOTHING, why and f"No hot standby: {why}; standbys only import ahead"

    def _reserve(self, sight: StandbySight) -> StandbyMove:
        is_wanted = self.fails_often(sight.at_ns)
        if sight.has_reserve:
            return StandbyMove.NOTHING if is_wanted else StandbyMove.DROP_RESERVE
        may_try = sight.stage >= StandbyStage.READY and self.ended_by_itself < TRIES
        has_room = 0 < sight.takes_bytes * SHARE_FREE <= sight.free_bytes
        if is_wanted and may_try and has_room:
            return StandbyMove.PREPARE_RESERVE
        return StandbyMove.NOTHING

    def fails_often(self, at_ns: int) -> bool:
        """Whether failures have come close together, and not long ago."""
        if len(self.began_ns) < 2:
            return False
        before_ns, last_ns = self.began_ns
        return last_ns - before_ns <= CLOSE_NS and at_ns - last_ns <= CALM_NS

    def began(self, at_ns: int) -> None:
        """An attempt has begun, with a standby or without."""
        self.began_ns = (*self.began_ns, at_ns)[-2:]

    def _woken(self, sight: StandbySight) -> StandbyMove:
        is_asleep = sight.stage in (StandbyStage.IMPORTING, StandbyStage.READY)
        may_run = self.runs_ahead and self.lost_ahead < TRIES
        if not is_asleep or not sight.is_whole or not may_run:
            return StandbyMove.NOTHING
        return StandbyMove.WAKE_HELD if obstacle(sight) else StandbyMove.WAKE

    def _renewed(self, path: str) -> tuple[StandbyMove, str]:
        """A script that writes what it imports would have it made anew for ever."""
        self.changes = self.changes + 1 if self.changes_of == self.attempt else 1
        self.changes_of = self.attempt
        if self.changes == TRIES:
            self.is_hot = False
            return StandbyMove.RENEW, f"No hot standby any more: {path} changes again and again"
        return StandbyMove.RENEW, ""

    def lost(self, stage: StandbyStage, why: str) -> str:
        """It came to nothing; what people are to know: once, for they may want to change it."""
        if stage >= StandbyStage.HELD:
            self.lost_ahead += 1
            return f"{why}; it starts again with its attempt" if self.lost_ahead == 1 else ""
        self.ended_by_itself += 1
        if self.ended_by_itself != TRIES:
            return ""
        return f"The standby processes ended by themselves ({why}); restarts will take longer"

    def used(self, stage: StandbyStage) -> None:
        """An attempt has begun with it."""
        self.ended_by_itself = 0
        if stage >= StandbyStage.HELD:
            self.lost_ahead = 0


def obstacle(sight: StandbySight) -> str:
    """Why the next attempt's ranks may not run the script while this one's are there; "": may."""
    if sight.device:
        return f"the ranks have {sight.device} open, which cannot be shared"
    return "" if sight.restores_first else "the script does not begin with run.restore()"
