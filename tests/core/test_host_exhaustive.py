"""Every order in which the reports of a host can come, for one to three ranks, with the real code.

The reaper tells ends in any order, some twice; it may be killed itself at any moment, and then its
orphans are swept; the controller may order the end at any moment, also while ranks are started; and
a process may survive SIGKILL. Every launch must end in exactly one TreeGone or HostLost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts import machine as host
from holdfast.core.hosts.machine import HostMachine, HostState

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from test_agree_exhaustive import Broken, Walked, explore

sys.path.pop(0)


class World(NamedTuple):
    """A host; `told`: what went up of the newest attempt, in order."""

    state: HostState
    attempt: int
    unreported: tuple[int, ...]  # as the machine has it
    told: tuple[str, ...] = ()
    alive: tuple[int, ...] = ()
    dead: tuple[int, ...] = ()  # and not reported yet
    reported: tuple[int, ...] = ()
    is_spawned: bool = False  # every rank was started, and that was told
    has_reaper: bool = False
    is_sweeping: bool = False
    is_killed: bool = False
    starts: int = 1  # that are left
    repeats: int = 0
    stuck: int = 0  # ranks that may yet prove to survive SIGKILL


class Host:
    """`moves` for `explore`; a move that is not fair need not happen."""

    def __init__(self, ranks: int, *, starts: int, repeats: int, stuck: int) -> None:
        self._ranks = tuple(range(ranks))
        self.start = World(HostState.EMPTY, -1, (), starts=starts, repeats=repeats, stuck=stuck)

    def is_end(self, world: World) -> bool:
        """Nothing is left to happen: then the last launch has ended."""
        return not world.told or world.told[-1] in ENDS

    def moves(self, world: World) -> Iterator[tuple[str, World, bool]]:
        has_ended = not world.told or world.told[-1] in ENDS
        is_lost = world.state is HostState.LOST
        if world.attempt < 0 or (has_ended and world.told):
            if world.starts and not (is_lost and world.alive and not world.told):
                yield "start", self._start(world), True
            return
        if not world.is_killed:
            killed = world._replace(is_killed=True)
            yield "the controller ends it", self._hear(killed, host.End(0)), False
        if not world.is_spawned and world.has_reaper:
            spawned = world._replace(is_spawned=True, alive=self._ranks)
            yield "spawned", self._hear(spawned, host.Spawned(0)), True
        yield from self._ends(world)
        if world.has_reaper:
            yield from self._reaper(world)

    def _start(self, world: World) -> World:
        fresh = world._replace(
            told=(), alive=(), dead=(), reported=(), is_spawned=False, has_reaper=True,
            is_sweeping=False, is_killed=False, starts=world.starts - 1,
        )  # fmt: skip
        return self._hear(fresh, host.Start(0, world.attempt + 1, self._ranks))

    def _ends(self, world: World) -> Iterator[tuple[str, World, bool]]:
        for rank in world.alive:
            left = tuple(one for one in world.alive if one != rank)
            died = world._replace(alive=left, dead=(*world.dead, rank))
            yield f"{rank} ends", died, True
        if world.is_killed and world.alive and world.stuck and world.is_spawned:
            survived = world._replace(stuck=world.stuck - 1, has_reaper=False)
            yield "stuck", self._hear(survived, host.Stuck(0, world.alive)), False
        if world.is_sweeping and not world.alive:
            yield "swept", self._hear(world._replace(is_sweeping=False), host.Empty(0)), True

    def _reaper(self, world: World) -> Iterator[tuple[str, World, bool]]:
        for rank in world.dead:
            left = tuple(one for one in world.dead if one != rank)
            known = world._replace(dead=left, reported=(*world.reported, rank))
            yield f"{rank} is reported", self._hear(known, _died(rank)), True
            yield f"{rank} is never reported", world._replace(dead=left), False
        for rank in world.reported if world.repeats else ():
            again = world._replace(repeats=world.repeats - 1)
            yield f"{rank} is reported again", self._hear(again, _died(rank)), False
        if world.is_spawned and not world.alive and not world.dead:
            gone = world._replace(has_reaper=False)
            yield "empty", self._hear(gone, host.Empty(0)), True
        lost = world._replace(has_reaper=False, dead=(), is_spawned=True)
        yield "the reaper is killed", self._hear(lost, host.ReaperLost(0)), False

    def _hear(self, world: World, event: host.HostEvent) -> World:
        machine = HostMachine()
        machine.state, machine.attempt, machine._alive = (
            world.state,
            world.attempt,
            dict.fromkeys(world.unreported),
        )
        told, is_sweeping = list(world.told), world.is_sweeping
        for action in machine.handle(event):
            if isinstance(action, host.SweepOrphans):
                is_sweeping = True
            elif isinstance(action, host.PassOn):
                self._told(told, action.event, machine.attempt)
        return world._replace(
            state=machine.state, attempt=machine.attempt, unreported=tuple(machine._alive),
            told=tuple(told), is_sweeping=is_sweeping,
        )  # fmt: skip

    def _told(self, told: list[str], event: ev.Event, attempt: int) -> None:
        if told and told[-1] in ENDS:
            raise Broken(f"{event} after {told}")
        if getattr(event, "attempt", attempt) != attempt:
            raise Broken(f"{event} of another attempt than {attempt}")
        word = type(event).__name__
        if isinstance(event, ev.RankExited):
            word = f"{event.rank} exited"
            if "Launched" not in told:
                raise Broken(f"{word} before the launch: {told}")
        if word in told:
            raise Broken(f"{word} is told twice: {told}")
        if word == "TreeGone" and "Launched" in told:
            untold = [rank for rank in self._ranks if f"{rank} exited" not in told]
            if untold:
                raise Broken(f"all are gone, and nobody told of {untold}: {told}")
        told.append(word)


ENDS = ("TreeGone", "HostLost")


def _died(rank: int) -> host.Died:
    return host.Died(0, 0, rank, Exit(code=0))


def walk(ranks: int) -> Walked:
    model = Host(ranks, starts=2, repeats=2, stuck=1)
    return explore(model.start, model.moves, model.is_end)


@pytest.mark.parametrize("ranks", [1, 2, 3])
def test_every_launch_ends_once(ranks):
    walked = walk(ranks)
    print(f"{walked.states:,} states, {walked.transitions:,} transitions")
    assert walked.states > 100


def test_finds_an_end_that_is_told_twice(monkeypatch):
    monkeypatch.setattr(HostMachine, "_unreported", lambda self, at_ns, how: [])
    with pytest.raises(Broken, match="nobody told of"):
        walk(2)


if __name__ == "__main__":
    for number in (1, 2, 3):
        print(f"a host with {number} ranks", walk(number), flush=True)
