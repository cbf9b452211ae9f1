"""What the host daemon is told (events), what it does (actions), and what came of it (a report).

Times are nanoseconds on the clock of notices (CLOCK_BOOTTIME for an agent).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from holdfast.core.notices.board import Notice
from holdfast.core.value import value


@dataclass(frozen=True, slots=True, order=True)
class ProcessId:
    """One process of this boot: its pid and the kernel's start time, so that no other has both."""

    pid: int
    started_ticks: int


@value
class DeviceHolder:
    """A process that holds devices.

    `works_for`: a holder that it was forked from, and whose program it still runs: a worker, which
    has inherited the device. It is waited for, and never signalled: a data loader's worker that
    gets a SIGTERM takes its trainer down before that has saved.
    """

    process: ProcessId
    command: str
    devices: tuple[str, ...]
    uid: int = 0
    works_for: ProcessId | None = None


# --- events: what has happened ----------------------------------------------------------------


@value
class NoticeHeard:
    """A source of notices has told something."""

    at_ns: int
    notice: Notice


@value
class Looked:
    """All processes were looked at, from `began_ns` until `at_ns`.

    `is_thorough`: their mappings as well, and not their descriptors alone. `unreadable`: how many
    of them this user may not look at.
    """

    at_ns: int
    began_ns: int
    holders: tuple[DeviceHolder, ...]
    is_thorough: bool = True
    unreadable: int = 0


@value
class Ended:
    """A process that is waited for has ended."""

    at_ns: int
    process: ProcessId


@value
class Refused:
    """The signal could not be sent."""

    at_ns: int
    process: ProcessId
    words: str


@value
class TimeCame:
    """It is as late as `next_ns` has said."""

    at_ns: int


Event = NoticeHeard | Looked | Ended | Refused | TimeCame


# --- actions: what to do now, in this order ---------------------------------------------------


@value
class LookAtProcesses:
    """Look at all processes, and answer with Looked."""

    is_thorough: bool


@value
class Signal:
    """Send SIGTERM. That it was decided is on disk BEFORE it is sent: nobody gets a second one."""

    holder: DeviceHolder


@value
class Report:
    """A round is over."""

    round: RoundReport


@value
class ReleaseHost:
    """Give the host away: run the release step. Comes once a round, after its Report.

    `settled`: the notices whose events may happen at once, since nobody is left; none of them where
    somebody is, or where it is not known.
    """

    about: str
    settled: tuple[Notice, ...] = ()


@value
class TellPeople:
    """A sentence for people."""

    level: str
    words: str


Action = LookAtProcesses | Signal | Report | ReleaseHost | TellPeople


# --- a round ----------------------------------------------------------------------------------


class RoundOutcome(StrEnum):
    """How a round ended."""

    CLEAR = "clear"  # no process holds a device any more
    OVERDUE = "overdue"  # the time was over first
    WITHDRAWN = "withdrawn"  # the notice was: nothing is released


@value
class ProcessInRound:
    """One process in a round. `signalled_ns`: None where it got no signal in this round.

    `was_signalled`: it had its signal in an earlier round. `refused`: why the signal was not sent.
    """

    holder: DeviceHolder
    signalled_ns: int | None = None
    was_signalled: bool = False
    ended_ns: int | None = None
    refused: str = ""

    @property
    def fate(self) -> str:
        """For people: "ended after 12.3 s", "was left behind (permission denied)"."""
        if self.ended_ns is not None:
            if self.signalled_ns is None:
                by_signal = "ended: it was signalled in an earlier round"
                return by_signal if self.was_signalled else "ended by itself"
            return f"ended after {(self.ended_ns - self.signalled_ns) / 1e9:.1f} s"
        notes = [self.refused] if self.refused else []
        notes += ["was signalled in an earlier round"] if self.was_signalled else []
        return "was left behind" + (f" ({', '.join(notes)})" if notes else "")


@value
class RoundReport:
    """What came of a round. `unreadable`: how many processes could not be looked at."""

    about: str
    began_ns: int
    over_ns: int
    outcome: RoundOutcome
    entries: tuple[ProcessInRound, ...]
    unreadable: int = 0

    @property
    def left_behind(self) -> tuple[ProcessInRound, ...]:
        """Who still held a device, or still saved, when it was over."""
        return tuple(one for one in self.entries if one.ended_ns is None)
