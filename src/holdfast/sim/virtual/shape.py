"""What the ranks of a virtual run are like, and how some of them are to fail."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from holdfast.core.exits import Exit
from holdfast.core.hosts.placement import place
from holdfast.core.hosts.regroup import ElasticLimits
from holdfast.sim.clock import MS, SECOND


@dataclass(frozen=True)
class Shape:
    """What the ranks are like. `step_ns`: one for all, or one a rank. Times in nanoseconds."""

    ranks: int = 1
    hosts: int = 1
    spares: int = 0  # hosts with an agent, and without ranks
    elastic: ElasticLimits | None = None  # None: all hosts are waited for; agents are needed
    chips: tuple[int, ...] = ()  # of each host, by its index; nothing: they do not say
    until: int = 100
    ends_at: int = 0  # the script ends its loop there, before `until`; 0: it does not
    ends_apart: int = 0  # and each rank so many steps after the one before it
    step_ns: tuple[int, ...] = (100 * MS,)
    import_ns: int = 500 * MS
    restore_ns: int = 100 * MS
    copy_ns: int = 10 * MS
    write_ns: int = 200 * MS
    leave_ns: int = 20 * MS
    buffers: int = 0  # of the memory tier; 0: there is none
    seal_ns: int = 5 * MS
    flush_ns: int = 300 * MS  # a rank's shard
    peers_ns: int = 0  # the copy of a host's part, on the host after it; 0: none is made
    later_ns: tuple[int, ...] = (0,)  # how long after its boundary a copy ends that may; in turns
    failing: int = 0  # each so-many-th copy of a rank into a buffer fails; 0: none does
    together: bool = True  # a step ends when every rank's does, as with any collective
    has_session: bool = True
    plain_ns: int = 100 * SECOND  # without a session: how long the command works
    on_sigterm: str = "exit 143"  # while there is no session: "exit CODE" or "ignore"
    pauses: Mapping[int, int] = field(default_factory=dict)  # before step → extra time
    poll_ns: tuple[int, ...] = (0,)  # how often a rank polls in a pause (0: not at all)
    spans: Mapping[int, tuple[str, int]] = field(default_factory=dict)  # the same, declared
    sees_device: bool = False  # `done` is told what to wait for on the device

    def __post_init__(self) -> None:
        if not 1 <= self.hosts <= self.ranks:
            raise ValueError(f"{self.hosts} hosts for {self.ranks} ranks: each has one or more")

    @property
    def last_step(self) -> int:
        """The one after which the script ends its loop."""
        return min(self.until, self.ends_at or self.until)

    def is_last(self, step: int, rank: int = 0) -> bool:
        """Whether it ends its loop there: one that begins behind `ends_at` goes on to `until`."""
        return step in (self.ends_at and self.ends_at + rank * self.ends_apart, self.until)

    @property
    def placement(self) -> tuple[tuple[int, ...], ...]:
        """The ranks of each host, as the core places them."""
        placed = place(self.ranks, range(self.hosts))
        return tuple(placed.on(host) for host in range(self.hosts))

    def step_time_ns(self, rank: int) -> int:
        """How long a rank works on one step."""
        return self.step_ns[rank % len(self.step_ns)]


@dataclass(frozen=True)
class PlannedFailure:
    """A rank ends so in a step (the one after `until`: when its loop is over), or hangs in it.

    `times`: in how many attempts (0: in all).
    """

    rank: int
    step: int
    how: Exit | str
    times: int = 0


class Barrier:
    """The collective of a step: all ranks end it when the last has done its part."""

    def __init__(self, ranks: int) -> None:
        self._ranks = ranks
        self._here: dict[int, list[Callable[[], None]]] = {}

    def arrive(self, step: int, go_on: Callable[[], None]) -> None:
        """A rank's part of a step is done."""
        here = self._here.setdefault(step, [])
        here.append(go_on)
        if len(here) == self._ranks:
            for go in self._here.pop(step):
                go()
