"""What the parts of one virtual run have in common: its clock and store, and what is to go wrong.

`VirtualWorld` is made of them; hosts, link and store see no more than this of one another.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.report import HostReport
from holdfast.core.ledger import facts
from holdfast.core.run.machine import RunMachine
from holdfast.core.run.rollback import Wish
from holdfast.sim.clock import MS, VirtualClock
from holdfast.sim.virtual.loop import Delays, Inputs, Taking
from holdfast.sim.virtual.memory import RanksByHost, VirtualMemory
from holdfast.sim.virtual.process import RankProcess
from holdfast.sim.virtual.ranks import VirtualRank
from holdfast.sim.virtual.shape import Barrier, PlannedFailure, Shape
from holdfast.sim.virtual.store import VirtualStore


class Watcher(Protocol):
    """Who checks what must be true whenever something happens."""

    def decided(self, world: Any, event: ev.Event, answer: tuple[act.Action, ...]) -> None:
        """The run's machine has answered; nothing was acted on yet."""

    def starts(self, world: Any, host: int) -> None:
        """Ranks are about to be started there."""

    def sees(self, world: Any, wish: Wish | None) -> None:
        """The store was asked what there is to start from."""

    def restored(self, world: Any, rank: RankProcess) -> None:
        """A rank is about to train on what it has read."""

    def commits(self, world: Any, attempt: int, step: int) -> None:
        """A manifest is about to be written."""

    def put(self, world: Any, what: str) -> None:
        """A manifest was written, or a set was marked as being removed."""

    def looked(self, world: Any, *, is_ours: bool) -> None:
        """The store has said whose the run is."""

    def tells(self, world: Any, attempt: int, step: int) -> None:
        """A set is said to be durable."""

    def deletes(self, world: Any, name: str) -> None:
        """A set is about to be deleted."""

    def left_saved(self, world: Any, rank: RankProcess, step: int) -> None:
        """A rank leaves, because its step is durable."""


class Unwatched:
    """A watcher that looks at nothing."""

    def __getattr__(self, _name: str) -> Callable[..., None]:
        return lambda *_, **__: None


class VirtualAttempt:
    """The ranks of the attempt that runs, on all hosts, and how far they have come together."""

    def __init__(self, attempt: int, resume: ev.Resume, ranks: int) -> None:
        self.attempt = attempt
        self.resume = resume
        self.barrier = Barrier(ranks)
        self.by_rank: dict[int, VirtualRank] = {}  # those that were started
        self.step = resume.step  # completed by all
        self.step_start_ns: int | None = None
        self._of = ranks
        self._gone: set[int] = set()

    @property
    def ranks(self) -> list[VirtualRank]:
        """Those that were started, in their order."""
        return [one for _, one in sorted(self.by_rank.items())]

    def begin(self, ranks: list[VirtualRank]) -> None:
        """Those of one host are started."""
        self.by_rank.update((one.rank, one) for one in ranks)
        self._gone -= {one.rank for one in ranks}

    def end(self, ranks: Sequence[int]) -> bool:
        """Nothing is left of those; whether all were there, and nothing is left of any."""
        self._gone |= set(ranks)
        return len(self._gone) == self._of

    @property
    def is_one_behind(self) -> bool:
        """Whether some rank is still at `step`: as a rule the last, which is asked first."""
        step = self.step
        return any(one.words.step <= step for one in reversed(self.by_rank.values()))

    @property
    def slowest(self) -> int:
        """The step that all ranks have completed by now."""
        if len(self.by_rank) < self._of:
            return self.resume.step
        return max(min([one.words.step for one in self.by_rank.values()]), self.resume.step)


class Shared(ABC):
    """What the parts share, of one run under one supervisor. `died_ns`: when that was killed."""

    def __init__(
        self,
        shape: Shape,
        *,
        clock: VirtualClock | None,
        delays: Delays | None,
        store: VirtualStore | None,
        memory: VirtualMemory | None,
        watch: Watcher | None,
        as_text: bool,
    ) -> None:
        self.shape = shape
        self.placement: RanksByHost = shape.placement
        self.clock = clock or VirtualClock()
        self.delays = delays or Delays()
        self.taking = Taking(self.delays)
        self.heard = Inputs(self.clock, self._woken)
        self.store = store or VirtualStore()
        self.memory = memory or VirtualMemory(shape.placement, shape.buffers)
        self.memory.busy = {}  # seals and flushes end with the supervisor that they are children of
        self.watch: Any = watch or Unwatched()
        self.as_text = as_text  # what goes over a wire
        self.epoch = 0  # of the lease
        self.died_ns: int | None = None
        self.live: VirtualAttempt | None = None
        self.reached = 0  # the highest step that all ranks of one attempt have done
        self.history: list[facts.RestoreFact | facts.StepsFact] = []
        self.launches: list[act.Launch] = []
        self.ends: list[act.EndAttempt] = []
        self.rejected: set[str] = set()  # sets that ranks found to be bad
        self.rejected_copies: set[str] = set()  # in memory
        # What is to go wrong.
        self.failures: list[PlannedFailure] = []
        self.command_exists = True
        self.host_sticks = False
        self.seals_fail = False
        self.flush_starves = False  # until it is urgent
        self.stacks_ns: int | None = 50 * MS  # None: they never come

    @property
    def now_ns(self) -> int:
        """Virtual nanoseconds since the beginning."""
        return self.clock.now_ns

    @property
    @abstractmethod
    def machine(self) -> RunMachine:
        """What decides."""

    @property
    @abstractmethod
    def is_over(self) -> bool:
        """Whether the supervisor is gone, by itself or by force."""

    @abstractmethod
    def feed(self, event: ev.Event) -> None:
        """Tell the controller, as long as there is one."""

    @abstractmethod
    def hear(self, report: HostReport, host: int) -> None:
        """The controller gets a report of that host, as long as there is a controller."""

    @abstractmethod
    def lose(self, host: int) -> None:
        """The controller is told that a host is gone."""

    @abstractmethod
    def replace(self, host: int) -> bool:
        """It is told that an empty one takes its place; whether that is to start its ranks."""

    @abstractmethod
    def _woken(self, late_ns: int) -> None:
        """The supervisor's loop has not come round for so long."""

    def ranks_gone(self, attempt: int, ranks: Sequence[int]) -> None:
        """Nothing is left of that attempt on their host."""
        live = self.live
        if live is not None and live.attempt == attempt and live.end(ranks):
            self.live = None

    def failure(self, rank: int, step: int) -> Exit | str | None:
        """Whether this rank fails in this step."""
        for place, failure in enumerate(self.failures):
            if (failure.rank, failure.step) == (rank, step):
                if failure.times == 1:
                    del self.failures[place]
                elif failure.times:
                    self.failures[place] = replace(failure, times=failure.times - 1)
                return failure.how
        return None

    def rank_stepped(self) -> None:
        """Some rank has passed a boundary; a step is complete when all ranks have passed it."""
        live = self.live
        if live is None or live.step_start_ns is None:
            return
        slowest = live.step if live.is_one_behind else live.slowest
        # A host that was given up trains on until it hears so: no step of the attempt any more.
        is_over = bool(self.ends) and self.ends[-1].attempt >= live.attempt
        if slowest > live.step and not is_over:
            self.history.append(
                facts.StepsFact(
                    live.attempt, live.step + 1, slowest, live.step_start_ns, self.now_ns
                )
            )
            live.step, live.step_start_ns = slowest, self.now_ns
            self.reached = max(self.reached, slowest)

    def rank_restored(self, rank: RankProcess) -> None:
        """A rank has read its set: steps begin with the last; rank 0's reading is recorded."""
        live = self.live
        if live is None:
            return
        self.watch.restored(self, rank)
        live.step_start_ns = self.now_ns
        if rank.rank == 0:
            start_ns = self.now_ns - self.shape.restore_ns
            self.history.append(
                facts.RestoreFact(
                    live.attempt, start_ns, self.now_ns, live.resume.step, live.resume.parent
                )
            )
