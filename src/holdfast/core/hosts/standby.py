"""What waits for the next attempt while one runs: how far it has come, and what is done with it.

The controller says what is wanted (`StandbyOrder`). Interpreters are prepared once an attempt is
well on its way. They are woken as soon as it is certain that the attempt is over and another
follows at once: they run the script while the old ranks die, the set to restore is chosen and the
attempt is put on record. Where the user wants it hot, they are woken as soon as they are ready, and
wait at the gate for however long it takes.

The imports are done once, in a *fork server*, and each standby is a fork of it: the first is ready
after some seconds, and all others at once, however close together failures come. Where there can be
none (its imports have started threads, say), each interpreter imports by itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, IntEnum, StrEnum, auto

from holdfast.core.durations import SECOND_NS

TRIES = 3  # in a row, of what came to nothing before an attempt used it
LATE_NS = 5 * SECOND_NS  # what gives way to a busy host for so long would for ever


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


class ServerStage(Enum):
    """How far the fork server has come."""

    NONE = auto()
    IMPORTING = auto()
    READY = auto()


class StandbyMove(Enum):
    """What a host does with its standby now."""

    NOTHING = auto()
    START_SERVER = auto()
    PREPARE = auto()
    WAKE_BESIDE = auto()  # beside ranks that train, to which it gives way
    WAKE = auto()
    WAKE_HELD = auto()
    RENEW = auto()  # what it has read has changed: it is dropped, and prepared anew
    LIFT = auto()  # its imports give way no more
    DROP = auto()


@dataclass(slots=True)
class StandbySight:
    """What the host sees.

    `is_whole`: there is an interpreter for each rank. `changed`: a file that is another than what
    was read; "" for none. `device`: what the ranks have open and cannot share; "" for nothing.
    `restores_first`: the script begins with `run.restore()`, so that it touches nothing before it
    is told what to read. `idle_since_ns`: since when interpreters that import still, or the fork
    server, give way to everybody else; None: there are none. `is_asked`: the fork server has been
    asked for a standby.
    """

    stage: StandbyStage = StandbyStage.COLD
    is_whole: bool = False
    changed: str = ""
    device: str = ""
    restores_first: bool = False
    at_ns: int = 0
    idle_since_ns: int | None = None
    server: ServerStage = ServerStage.NONE
    is_asked: bool = False


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
    servers_ended: int = 0  # by themselves, in a row
    server_is_refused: bool = False  # for the run

    def due(self, sight: StandbySight) -> tuple[StandbyMove, str]:
        """What is to be done now, and what people are to know of it; "" for nothing."""
        move, words = self._due(sight)
        if move is StandbyMove.NOTHING and self.order is StandbyOrder.READY:
            since_ns = sight.idle_since_ns
            is_late = since_ns is not None and sight.at_ns - since_ns >= LATE_NS
            move = StandbyMove.LIFT if is_late else move
        return move, words

    def _due(self, sight: StandbySight) -> tuple[StandbyMove, str]:
        if self.order is StandbyOrder.NONE:
            return StandbyMove.DROP, ""
        if self.order is StandbyOrder.WOKEN:
            return self._woken(sight), ""
        if self.order is StandbyOrder.AS_IS:
            return StandbyMove.NOTHING, ""
        if sight.stage is StandbyStage.COLD:
            return self._cold(sight), ""
        if not self.is_hot or sight.stage is StandbyStage.IMPORTING:
            return StandbyMove.NOTHING, ""
        if sight.stage >= StandbyStage.HELD:
            return self._renewed(sight.changed) if sight.changed else (StandbyMove.NOTHING, "")
        self.is_hot = not (self.lost_ahead or obstacle(sight))
        if self.is_hot:
            return StandbyMove.WAKE_BESIDE, ""
        why = "" if self.lost_ahead else obstacle(sight)
        return StandbyMove.NOTHING, why and f"No hot standby: {why}; standbys only import ahead"

    def _cold(self, sight: StandbySight) -> StandbyMove:
        if self.ended_by_itself >= TRIES or sight.is_asked:
            return StandbyMove.NOTHING
        if self.server_is_refused or sight.server is ServerStage.READY:
            return StandbyMove.PREPARE
        is_none = sight.server is ServerStage.NONE
        return StandbyMove.START_SERVER if is_none else StandbyMove.NOTHING

    def _woken(self, sight: StandbySight) -> StandbyMove:
        if sight.stage is StandbyStage.COLD:  # a fork of a server that imports still has some of it
            may_ask = sight.server is not ServerStage.NONE and not sight.is_asked
            return StandbyMove.PREPARE if may_ask else StandbyMove.NOTHING
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

    def keeps_fork_of(self, server: ServerStage) -> bool:
        """Whether what the server has just forked is of use.

        Of one that imports still: to an attempt that is to begin. Ranks that have begun without it
        would only be held up by what it has to import, and the server is asked again once it is
        ready.
        """
        return server is ServerStage.READY or self.order is StandbyOrder.WOKEN

    def lost(self, stage: StandbyStage, why: str) -> str:
        """It came to nothing; what people are to know: once, for they may want to change it."""
        if stage >= StandbyStage.HELD:
            self.lost_ahead += 1
            return f"{why}; it starts again with its attempt" if self.lost_ahead == 1 else ""
        self.ended_by_itself += 1
        if self.ended_by_itself != TRIES:
            return ""
        return f"The standby processes ended by themselves ({why}); restarts will take longer"

    def server_lost(self, unfit: str, last_words: str = "") -> str:
        """The fork server has ended by itself; what people are to know of it: that none follows.

        `unfit`: why another one would, too.
        """
        self.servers_ended += 1
        if self.server_is_refused or not (unfit or self.servers_ended >= TRIES):
            return ""
        self.server_is_refused = True
        why = unfit or last_words or "it ended by itself, again and again"
        return f"Standbys are not forked: {why}"

    def used(self, stage: StandbyStage) -> None:
        """An attempt has begun with it."""
        self.ended_by_itself = self.servers_ended = 0
        if stage >= StandbyStage.HELD:
            self.lost_ahead = 0


def obstacle(sight: StandbySight) -> str:
    """Why the next attempt's ranks may not run the script while this one's are there; "": may."""
    if sight.device:
        return f"the ranks have {sight.device} open, which cannot be shared"
    return "" if sight.restores_first else "the script does not begin with run.restore()"
