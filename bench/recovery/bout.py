"""One system while it runs: started, struck, waited for; `phases.py` says with what and when."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import family
from ruler import NS_PER_S, Follower, Recovery, boot_ns, recovery
from schedule import Fault
from systems import Place, System, launch

LOOK_EVERY_S = 0.02
WARM_STEPS = 20
START_S = 180.0
NOT_SEEN = Recovery(None, None, None, None)


class FellError(Exception):
    """The system could not be brought to train."""


@dataclass
class Struck:
    """One fault as it happened, and what it cost once that is over."""

    what: str
    rank: int
    due_s: float
    at_ns: int
    back: bool = True
    seen: Recovery = NOT_SEEN


@dataclass
class Bout:
    """What was started, what its ranks wrote so far, and what struck it.

    `strays` counts how often it had to be started from outside though nothing had struck it;
    `trained` says that all its ranks did once.
    """

    system: System
    place: Place
    say: Callable[[str], None]
    follower: Follower = field(init=False)
    struck: list[Struck] = field(default_factory=list)
    strays: int = 0
    trained: bool = False
    commands: list[subprocess.Popen[bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.follower = Follower(self.place.stamps)

    def start(self) -> None:
        """Start it, and wait until every rank trains."""
        self.commands = launch(self.system, self.place)
        self._until(lambda: self._steps_since_start(WARM_STEPS), START_S, "start")
        self.trained = True

    def start_anew(self) -> None:
        """From outside, after whatever is left of it has been ended."""
        family.end_all()
        before_ns = boot_ns()
        self.commands = launch(self.system, self.place)
        self._until(lambda: self.all_step_after(before_ns), START_S, "start anew")

    def stands(self, rank: int, limit_s: float) -> bool:
        """Whether that rank trains, or does within the limit: it may have died by itself."""
        from_ns = boot_ns()
        if self._is_there(rank):
            return True
        try:
            self._until(lambda: self._is_there(rank) and self.all_step_after(from_ns), limit_s, "")
        except FellError:
            return False
        return True

    def _is_there(self, rank: int) -> bool:
        life = self.follower.read().newest(rank)
        return life is not None and life.pid in family.descendants()

    def wait(self, until_ns: int) -> None:
        """Let it train."""
        while (left_ns := until_ns - boot_ns()) > 0:
            time.sleep(min(0.05, left_ns / NS_PER_S))
            self.follower.read()
        self.follower.read()

    def strike(self, fault: Fault, signal_number: int, what: str) -> Struck:
        """The rank's newest process, as it wrote itself."""
        life = self.follower.read().newest(fault.rank)
        if life is None or not self._is_there(fault.rank):
            raise FellError(f"rank {fault.rank} is not there to be struck")
        at_ns = boot_ns()
        os.kill(life.pid, signal_number)
        self.struck.append(Struck(what, fault.rank, fault.at_s, at_ns))
        return self.struck[-1]

    def comes_back(self, struck: Struck, limit_s: float) -> bool:
        """Whether every rank gets past where the run was, within the limit."""
        before = self.follower.highest(struck.at_ns)

        def what_is_seen() -> Recovery:
            return recovery(self.follower.lives, struck.at_ns, struck=struck.rank)

        def is_whole() -> bool:
            # A survivor may have finished the step it was in: what is new, the ruler knows. It
            # looks at every line that there is, so it is asked when it may well say yes.
            if not self.all_step_after(struck.at_ns, before):
                return False
            struck.seen = what_is_seen()
            return struck.seen.whole_s is not None

        try:
            self._until(is_whole, limit_s, "come back")
        except FellError:
            struck.back = False
            struck.seen = what_is_seen()
        return struck.back

    def all_step_after(self, at_ns: int, above: int = 0) -> bool:
        """Whether each rank has done a step since then, of a number above that one."""
        lives = [self.follower.newest(rank) for rank in range(self.place.ranks)]
        return all(
            life is not None
            and life.steps
            and life.steps[-1].at_ns > at_ns
            and life.steps[-1].number > above
            for life in lives
        )

    def _steps_since_start(self, count: int) -> bool:
        lives = [self.follower.newest(rank) for rank in range(self.place.ranks)]
        return all(life is not None and len(life.steps) >= count for life in lives)

    def _until(self, condition: Callable[[], Any], limit_s: float, what: str) -> None:
        give_up = time.monotonic() + limit_s
        self.follower.read()
        while not condition():
            if time.monotonic() > give_up:
                raise FellError(f"{self.system.name} did not {what} within {limit_s:.0f} s")
            family.bury_but(self.commands)
            time.sleep(LOOK_EVERY_S)
            self.follower.read()
