"""What the run's machine (`core.run`) is made of: its states, its timers, and what users decide."""

from __future__ import annotations

from dataclasses import field
from enum import StrEnum

from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.core.hang import deadline as hang
from holdfast.core.hosts.placement import Placement, place
from holdfast.core.notices import plan as notice_plan
from holdfast.core.run import restart
from holdfast.core.save import policy as saves
from holdfast.core.save.saving import REQUEST_REACTION_NS
from holdfast.core.value import value


class State(StrEnum):
    """Where the run is in its life under this controller."""

    NEW = "new"  # nothing was decided yet
    CHOOSING = "choosing"  # the store is asked what to restore
    LAUNCHING = "launching"  # the attempt is put on record, its ranks are started
    RUNNING = "running"  # all ranks were started
    KILLING = "killing"  # killed; some process is still there
    WAITING = "waiting"  # back-off: the next attempt begins when it is over
    FLUSHING = "flushing"  # nothing runs; the newest set in memory is made durable, then over
    OVER = "over"  # the exit code is decided; nothing happens any more


class Timer(StrEnum):
    """Names of the timers the machine sets."""

    RESTART = "restart"
    SAVES = "saves"  # the agreement wants to know that time has passed
    DEADLINE = "deadline"
    LEAVE = "leave"  # told to leave, or to end, and still there
    SEAL = "seal"  # the choice waits for a set in memory
    FLUSH = "keep"  # the end waits for one; named so in journals
    HOLD = "hold"  # the last step, which is in memory, is tried again
    HANG = "hang"  # time to see whether the ranks get on
    NOTICE = ev.NOTICE_TIMER  # what is announced asks for a save, or for leaving


@value
class RunPolicy:
    """What the user decides. Times in nanoseconds. `ranks`: on all of the hosts together.

    `is_supervised`: the controller starts the ranks' processes, and ends them. Else they are
    scripts that run by themselves: nobody starts them again, and a stop before their first step
    waits for that. `has_standbys`: processes wait for the next attempt, and are told what to do.
    `replicates`: what is in the memory of one host is copied to another one.
    `request_reaction_ns` as of `saving.Saving`. `is_elastic`: an attempt may do with fewer hosts.
    `chips`: of all hosts together, while no host says what it has; 0: nobody counts them.
    """

    ranks: int
    save: saves.SavePolicy = field(default_factory=saves.Optimal)
    save_in_memory: saves.SavePolicy = saves.IN_MEMORY
    restart: restart.RestartPolicy = restart.DEFAULT
    hang: hang.HangPolicy = hang.OFF
    notice: notice_plan.NoticePolicy = field(default_factory=notice_plan.NoticePolicy)
    leave_limit_ns: int = 30 * SECOND_NS
    margin_ns: int = 2 * SECOND_NS
    relay_limit_ns: int = 30 * SECOND_NS
    store_patience_ns: int = 600 * SECOND_NS
    hold_finished_ns: int = 1800 * SECOND_NS
    hosts: int = 1
    is_supervised: bool = True
    has_standbys: bool = True
    replicates: bool = False
    request_reaction_ns: int = REQUEST_REACTION_NS
    is_elastic: bool = False
    chips: int = 0

    @property
    def all_chips(self) -> ev.CountedChips | None:
        """An attempt has all of them; None: nobody counts them."""
        return ev.CountedChips(self.chips, self.chips) if self.chips else None

    def place(self, hosts: tuple[int, ...] = ()) -> Placement:
        """An attempt on these hosts; on all of them if none is named."""
        placement = place(self.ranks, range(self.hosts))
        return placement.on_hosts(hosts) if hosts else placement
