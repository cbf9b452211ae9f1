"""What both sides of ranks without a supervisor share: waiting for one another, and leaving."""

from __future__ import annotations

import atexit
import time
from collections.abc import Callable

from holdfast.core.durations import seconds_in_words
from holdfast.core.save.word import Order, unpack
from holdfast.errors import (
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_USER_FAILURE,
    ConfigurationError,
    HoldfastError,
)
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Word
from holdfast.journal.rank_page import RankPage
from holdfast.session.channel import RankOfWorld
from holdfast.session.leaving import end_soon
from holdfast.session.say import say

SAY_AFTER_S = 15.0
JOIN_LIMIT_S = 600.0
LOOK_S = 0.005
STUCK = "nothing more will be saved, and the script waits for a rank that has left"
LEAVE_S = 10.0  # for a script to leave its step, once it is told to

_at_exit: Callable[[], None] | None = None


def require(attached: bool, world: RankOfWorld) -> None:
    """Raise unless there is a way to the other ranks by now."""
    if not attached:
        raise ConfigurationError(
            f"this is rank {world.rank} of {world.size} ({world.source}) without a supervisor, and "
            "neither jax.distributed nor torch.distributed is initialised with as many processes: "
            "initialise one before run.restore() and run.steps(), or start the ranks with "
            f"`holdfast run --ranks {world.size} -- …`"
        )


class Waiting:
    """A wait for other ranks, which is said when it becomes long and ends when it is too long."""

    def __init__(self, whom: Callable[[], str]) -> None:
        self._whom = whom
        self._began = time.monotonic()
        self._said = False

    def look(self) -> None:
        """Sleep a little; raises HoldfastError when it is no use to wait on."""
        waited_s = time.monotonic() - self._began
        if waited_s > SAY_AFTER_S and not self._said:
            self._said = True
            say(f"Waiting for {self._whom()} to call holdfast.start and run.restore or run.steps")
        if waited_s > JOIN_LIMIT_S:
            raise HoldfastError(
                f"{self._whom()} did not come within {seconds_in_words(JOIN_LIMIT_S)}: every rank "
                "calls holdfast.start, and run.restore or run.steps"
            )
        time.sleep(LOOK_S)


class LeaveOrder:
    """Whether the script was told to leave and cannot: it waits in its step for a rank that has."""

    def __init__(self) -> None:
        self._since_ns: int | None = None

    def is_ignored(self, page: RankPage) -> bool:
        """Asked once a second."""
        if not unpack(page.load(Word.ORDER)).flags & Order.LEAVE:
            return False
        now = now_ns()
        if self._since_ns is None:
            self._since_ns = now
        is_in_step = page.snapshot().step_under_way_since_ns != 0
        return is_in_step and now - self._since_ns > int(LEAVE_S * 1e9)


def remember_exit(callback: Callable[[], None]) -> None:
    """The session's end at the interpreter's exit."""
    global _at_exit
    _at_exit = callback


def close_first() -> None:
    """Have the session end before what was registered since it began.

    JAX's own end waits for all processes, and takes the key-value store with it.
    """
    if _at_exit is not None:
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)


def leave_soon(finished: bool, stopped: bool, error: BaseException | None) -> None:
    """End soon, whatever waits for the other ranks at this one's exit, unless all have finished.

    The session is closed, everything that could be saved is. Only the exit is left.
    """
    if isinstance(error, HoldfastError):
        end_soon(error.exit_code)
    elif stopped and error is None:
        end_soon(EXIT_SAVED_START_ME_AGAIN)
    elif not finished:
        end_soon(EXIT_USER_FAILURE)
