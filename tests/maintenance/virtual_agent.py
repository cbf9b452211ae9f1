"""A host daemon in virtual time: the real machine, virtual processes, and looks that can miss them.

As `agent.daemon.autocheckpoint`: one loop that does one thing after the other. A look takes a
while, and sees each process at some moment of it, as a walk over /proc does.
"""

from __future__ import annotations

import random
import sys
from collections import deque
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "scenarios"))
from holdfast.sim.clock import MS, SECOND, VirtualClock

sys.path.pop(0)

from holdfast.core.daemon import events as ev
from holdfast.core.daemon.autocheckpoint import Autocheckpoint, Policy
from holdfast.core.notices.board import Notice

LOOK_NS = 40 * MS
# Two in one look, which may miss both, and then none in two looks.
FIRST_NS, THEN_NS = 30 * MS, 200 * MS


@dataclass
class Process:
    """One that holds a device from `came_ns` until `gone_ns`."""

    pid: int
    came_ns: int
    save_ns: int | None  # from the signal to its end; None: it takes no notice
    boss: Process | None = None
    gone_ns: int | None = None
    hand_overs: int = 0  # so often it hands the device on once it is signalled
    signals: list[int] = field(default_factory=list)
    heirs: list[Process] = field(default_factory=list)
    held_since_ns: int = 0  # by it, or by whom it has the device from

    @property
    def id(self) -> ev.ProcessId:
        return ev.ProcessId(self.pid, self.pid * 7)

    def is_there(self, at_ns: int) -> bool:
        return self.came_ns <= at_ns and (self.gone_ns is None or at_ns < self.gone_ns)


@dataclass(frozen=True)
class Released:
    """A release, as it was: for the oracle."""

    at_ns: int
    looked_ns: int  # when the last look began
    report: ev.RoundReport


class VirtualAgent:
    """One agent after the other on one host."""

    def __init__(self, clock: VirtualClock, rng: random.Random, grace_ns: int) -> None:
        self._clock, self._rng = clock, rng
        self.policy = Policy(grace_ns)
        self.processes: list[Process] = []
        self.releases: list[Released] = []
        self.is_up = True
        self._machine = Autocheckpoint(self.policy)
        self._queue: deque[ev.Event] = deque()
        self._is_busy = False
        self.deaths = 0  # one that comes before a signal is sent costs that signal
        self._life = 0
        self._looked_ns = 0
        self._last: ev.RoundReport | None = None
        self._on_disk: tuple[ev.ProcessId, ...] = ()
        self._standing: dict[tuple[str, str, str], Notice] = {}

    # --- what happens to it -----------------------------------------------------------------

    def come(self, save_ns: int | None, boss: Process | None = None) -> Process:
        """A process opens the device."""
        one = Process(100 + len(self.processes), self._clock.now_ns, save_ns, boss)
        one.held_since_ns = one.came_ns
        self.processes.append(one)
        return one

    def go(self, process: Process) -> None:
        """It ends, and its workers with it."""
        if process.gone_ns is None:
            process.gone_ns = self._clock.now_ns
            self._clock.later(MS, lambda: self._give(ev.Ended(self._clock.now_ns, process.id)))
            for other in self.processes:
                if other.boss is process:
                    self.go(other)

    def hand_on(self, process: Process, times: int) -> None:
        """It forks, and the parent ends at once; and so on, so many times, signalled or not."""
        if process.gone_ns is None and times:
            heir = self.come(process.save_ns)
            process.heirs.append(heir)
            heir.held_since_ns = process.held_since_ns
            self.go(process)
            wait_ns = THEN_NS if process.held_since_ns < process.came_ns else FIRST_NS
            self._clock.later(wait_ns, lambda: self.hand_on(heir, times - 1))

    def heard(self, notice: Notice) -> None:
        """A source has told something."""
        if notice.state == "withdrawn":
            self._standing.pop(notice.key, None)
        else:
            self._standing[notice.key] = notice
        self._give(ev.NoticeHeard(self._clock.now_ns, notice))

    def killed(self) -> None:
        """SIGKILL; another one is up two seconds later, and hears what stands."""
        self.is_up, self._is_busy = False, False
        self.deaths += 1
        self._life += 1
        self._queue.clear()
        self._clock.later(2 * SECOND, self._again)

    def _again(self) -> None:
        self._machine = Autocheckpoint(self.policy, self._on_disk)
        self.is_up = True
        for notice in list(self._standing.values()):
            self._give(ev.NoticeHeard(self._clock.now_ns, notice))

    # --- its loop ---------------------------------------------------------------------------

    def _give(self, event: ev.Event) -> None:
        if self.is_up:
            self._queue.append(event)
            self._turn()

    def _turn(self) -> None:
        while self._queue and not self._is_busy:
            actions = self._machine.handle(self._queue.popleft())
            if any(isinstance(one, ev.Signal) for one in actions):
                self._on_disk = self._machine.signalled
                if self._rng.random() < 0.03:
                    self.killed()  # written down, and not sent
                    return
            for place, action in enumerate(actions):
                assert not isinstance(action, ev.LookAtProcesses) or place == len(actions) - 1
                self._do(action)
        self._set_timer()

    def _do(self, action: ev.Action) -> None:
        now_ns = self._clock.now_ns
        if isinstance(action, ev.LookAtProcesses):
            self._look(action.is_thorough)
        elif isinstance(action, ev.Signal):
            found = [one for one in self.processes if one.id == action.holder.process]
            if found[0].is_there(now_ns):
                self._signal(found[0])
        elif isinstance(action, ev.Report):
            self._last = action.round
        elif isinstance(action, ev.ReleaseHost):
            assert self._last is not None
            self.releases.append(Released(now_ns, self._looked_ns, self._last))

    def _signal(self, process: Process) -> None:
        process.signals.append(self._clock.now_ns)
        if process.hand_overs:
            times, process.hand_overs = process.hand_overs, 0
            self._clock.later(MS, lambda: self.hand_on(process, times))
        if process.save_ns is not None and len(process.signals) == 1:
            self._clock.later(process.save_ns, lambda: self.go(process))

    def _look(self, is_thorough: bool) -> None:
        began_ns, life = self._clock.now_ns, self._life
        self._looked_ns = began_ns
        self._is_busy, known = True, len(self.processes)
        there = [one for one in self.processes if one.gone_ns is None]
        seen_at = {one.pid: began_ns + self._rng.randrange(LOOK_NS) for one in there}

        def done() -> None:
            if life != self._life:
                return
            self._is_busy = False
            later_ns = self._rng.randrange(LOOK_NS)  # of those that have come since it began
            found = [
                one
                for one in (*there, *self.processes[known:])
                if one.is_there(seen_at.get(one.pid, began_ns + later_ns))
                and one.is_there(self._clock.now_ns)  # its descriptor is opened, and it still lives
            ]
            ids = {one.pid: one for one in found}
            holders = tuple(
                ev.DeviceHolder(
                    one.id,
                    "job",
                    ("/dev/accel0",),
                    works_for=one.boss.id if one.boss and one.boss.pid in ids else None,
                )
                for one in found
            )
            looked = ev.Looked(self._clock.now_ns, began_ns, holders, is_thorough)
            self._queue.appendleft(looked)
            self._turn()

        self._clock.later(LOOK_NS, done)

    def _set_timer(self) -> None:
        at_ns, life = self._machine.next_ns(), self._life
        if at_ns is None or self._is_busy:
            return

        def fire() -> None:
            is_due = life == self._life and not self._is_busy and self._machine.next_ns() == at_ns
            if is_due:
                self._give(ev.TimeCame(self._clock.now_ns))

        self._clock.later(max(MS, at_ns - self._clock.now_ns), fire)
