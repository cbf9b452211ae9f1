"""A host's state machine: one attempt's processes on one host, as a table.

The controller orders (`Start`, `End`); the host's edge reports what its reaper says; the machine
answers with what to do to the processes and with the run events to pass up. It makes true that
every `Start` ends in exactly one TreeGone or HostLost, whatever order the reports come in: a kill
that crosses the launch, a reaper that is killed itself, a rank that nobody reported.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum

from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.value import value
from holdfast.errors import EXIT_CONFIGURATION, EXIT_UNAVAILABLE


class HostState(StrEnum):
    """What is on the host."""

    EMPTY = "empty"  # nothing of ours
    SPAWNING = "spawning"  # reaper and ranks are being started
    UP = "up"  # ranks run
    ENDING = "ending"  # killed, or the last rank has left: waiting until nothing is left
    SWEEPING = "sweeping"  # the reaper died: its orphans are being ended
    LOST = "lost"  # something survives SIGKILL


@value
class Start:
    """Order: start the ranks of an attempt."""

    at_ns: int
    attempt: int
    ranks: tuple[int, ...]


@value
class End:
    """Order: end every process of the attempt."""

    at_ns: int


@value
class Spawned:
    """All ranks run."""

    at_ns: int


@value
class SpawnFailed:
    """The command cannot be started at all."""

    at_ns: int
    words: str


@value
class Died:
    """A rank's process ended, and how."""

    at_ns: int
    died_at_ns: int
    rank: int
    exit: Exit


@value
class Empty:
    """Nothing of the attempt is left (from the reaper, or from the sweep)."""

    at_ns: int


@value
class ReaperLost:
    """The reaper is gone without having said that the tree is."""

    at_ns: int


@value
class Stuck:
    """Processes survive SIGKILL."""

    at_ns: int
    pids: tuple[int, ...]


HostEvent = Start | End | Spawned | SpawnFailed | Died | Empty | ReaperLost | Stuck


@value
class StartTree:
    """Start reaper and ranks."""

    attempt: int


@value
class KillTree:
    """Have the reaper end everything."""


@value
class SweepOrphans:
    """End what was reparented to us; answer Empty or Stuck."""


@value
class PassOn:
    """Pass an event up to the run's machine."""

    event: ev.Event


HostAction = StartTree | KillTree | SweepOrphans | PassOn


class HostMachine:
    """Feed with `handle`; carry out the actions in order."""

    def __init__(self) -> None:
        self.state = HostState.EMPTY
        self.attempt = -1
        self._alive: dict[int, None] = {}  # ranks, in their order

    def handle(self, event: HostEvent) -> tuple[HostAction, ...]:
        """The answer to one event; what cannot matter any more is answered with nothing."""
        handler = TABLE.get((self.state, type(event)))
        return tuple(handler(self, event)) if handler else ()

    def _on_start(self, event: Start) -> list[HostAction]:
        """Start reaper and ranks."""
        self.state = HostState.SPAWNING
        self.attempt = event.attempt
        self._alive = dict.fromkeys(event.ranks)
        return [StartTree(event.attempt)]

    def _on_start_when_lost(self, event: Start) -> list[HostAction]:
        """Nothing more is started beside processes that cannot be ended."""
        words = "processes of an earlier attempt survive SIGKILL on this host: reboot it"
        self.attempt = event.attempt
        failed = ev.LaunchFailed(event.at_ns, event.attempt, EXIT_UNAVAILABLE, words, True)
        return [PassOn(failed), PassOn(ev.TreeGone(event.at_ns, event.attempt))]

    def _on_spawned(self, event: Spawned) -> list[HostAction]:
        """All ranks run."""
        self.state = HostState.UP
        return [PassOn(ev.Launched(event.at_ns, self.attempt))]

    def _on_spawn_failed(self, event: SpawnFailed) -> list[HostAction]:
        """The command cannot be started; what did start is ended."""
        self.state = HostState.ENDING
        self._alive = {}
        failed = ev.LaunchFailed(event.at_ns, self.attempt, EXIT_CONFIGURATION, event.words, True)
        return [PassOn(failed)]

    def _on_died(self, event: Died) -> list[HostAction]:
        """A rank's end is told once; the last one's ends the attempt."""
        if event.rank not in self._alive:
            return []
        del self._alive[event.rank]
        if not self._alive:
            self.state = HostState.ENDING
        return [
            PassOn(
                ev.RankExited(event.at_ns, self.attempt, event.rank, event.died_at_ns, event.exit)
            )
        ]

    def _on_end(self, _: End) -> list[HostAction]:
        """Have the reaper end everything."""
        self.state = HostState.ENDING
        return [KillTree()]

    def _on_end_while_spawning(self, _: End) -> list[HostAction]:
        """Have the reaper end what it starts; launch and deaths are still told, in that order."""
        return [KillTree()]

    def _on_reaper_lost(self, event: ReaperLost) -> list[HostAction]:
        """Its ranks cannot be watched any more: they count as killed with it."""
        ends = self._unreported(event.at_ns, Exit(signal=9))
        self.state = HostState.SWEEPING
        return [*ends, SweepOrphans()]

    def _on_empty(self, event: Empty) -> list[HostAction]:
        """Nothing is left: ends that nobody saw are told first."""
        ends = self._unreported(event.at_ns, Exit())
        self.state = HostState.EMPTY
        return [*ends, PassOn(ev.TreeGone(event.at_ns, self.attempt))]

    def _on_stuck(self, event: Stuck) -> list[HostAction]:
        """Something survives SIGKILL: the host is lost."""
        launched = self._launched_at_least(event.at_ns)
        self.state = HostState.LOST
        pids = ", ".join(map(str, event.pids))
        words = f"processes {pids} survive SIGKILL: this host is lost until it is rebooted"
        return [*launched, PassOn(ev.HostLost(event.at_ns, self.attempt, words))]

    def _unreported(self, at_ns: int, how: Exit) -> list[HostAction]:
        """The run is told of every rank's end before it is told that nothing is left."""
        actions = self._launched_at_least(at_ns)
        for rank in self._alive:
            actions.append(PassOn(ev.RankExited(at_ns, self.attempt, rank, at_ns, how)))
        self._alive = {}
        return actions

    def _launched_at_least(self, at_ns: int) -> list[HostAction]:
        """An attempt ends only after it began."""
        is_spawning = self.state is HostState.SPAWNING
        return [PassOn(ev.Launched(at_ns, self.attempt))] if is_spawning else []


TABLE: dict[tuple[HostState, type[HostEvent]], Callable[..., list[HostAction]]] = {
    (HostState.EMPTY, Start): HostMachine._on_start,
    (HostState.SPAWNING, Spawned): HostMachine._on_spawned,
    (HostState.SPAWNING, SpawnFailed): HostMachine._on_spawn_failed,
    (HostState.SPAWNING, End): HostMachine._on_end_while_spawning,
    (HostState.SPAWNING, Empty): HostMachine._on_empty,
    (HostState.SPAWNING, ReaperLost): HostMachine._on_reaper_lost,
    (HostState.SPAWNING, Stuck): HostMachine._on_stuck,
    (HostState.UP, Died): HostMachine._on_died,
    (HostState.UP, End): HostMachine._on_end,
    (HostState.UP, Empty): HostMachine._on_empty,
    (HostState.UP, ReaperLost): HostMachine._on_reaper_lost,
    (HostState.UP, Stuck): HostMachine._on_stuck,
    (HostState.ENDING, Died): HostMachine._on_died,
    (HostState.ENDING, End): HostMachine._on_end,
    (HostState.ENDING, Empty): HostMachine._on_empty,
    (HostState.ENDING, ReaperLost): HostMachine._on_reaper_lost,
    (HostState.ENDING, Stuck): HostMachine._on_stuck,
    (HostState.SWEEPING, Empty): HostMachine._on_empty,
    (HostState.SWEEPING, Stuck): HostMachine._on_stuck,
    (HostState.LOST, Start): HostMachine._on_start_when_lost,
}
