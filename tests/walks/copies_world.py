"""Hosts in a ring that keep copies of each other's parts, with the rules of buffers and of copies.

The memory tier, the replicas, and what is found in hosts' memories are real. The hosts are not: one
rank each, whose words come at once or late. A host may be lost in any state, and another one comes.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from pathlib import Path

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.copies import HeldPart, restorable, sources
from holdfast.core.hosts.placement import place
from holdfast.core.save.memory import MemoryTier
from holdfast.snapshot.part import COPIES

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from stepwise import Broken

sys.path.pop(0)

LATER_NS = 100_000_000_000  # longer than any rest between two replications
Move = Callable[["Copies"], None]
Name = tuple[int, int]  # of a set: attempt, step


class Copies:
    """`own`: of each host, by buffer, what is sealed there. `kept`: its copies, by place."""

    def __init__(self, hosts: int, saves: int, losses: int) -> None:
        self.at_ns = 0
        self.saves, self.losses = saves, losses
        self.attempt = self.step = 0
        self.placement = place(hosts, range(hosts))
        self.own: list[dict[int, Name]] = [{} for _ in range(hosts)]
        self.kept: list[dict[int, Name]] = [{} for _ in range(hosts)]
        self.sealing: tuple[int, Name, frozenset[int]] | None = None  # buffer, set, by whom not yet
        self.copying: tuple[act.Replicate, frozenset[int]] | None = None  # by whom not yet
        self.promised = 0  # the step that the loss of any one host goes back to
        self.tier = MemoryTier(hosts)
        self.tier.replicas.is_on = True
        self._begin(ev.SCRATCH)

    @property
    def hosts(self) -> range:
        return range(len(self.own))

    def _begin(self, resume: ev.Resume) -> None:
        self.tier.begin(self.at_ns, self.attempt, resume, len(self.own))
        for rank in self.hosts:
            self.tier.has(rank, 3)
        self.tier.buffers = self.tier.buffers.restored()

    def moves(self) -> Iterator[tuple[str, Move]]:
        """All that may happen; losses and saves are bounded."""
        yield from self.fair()
        if self.saves and self.sealing is None and self.tier.free:
            yield "a save", _save
        for host in self.hosts if self.losses else ():
            yield f"host {host} is lost", partial(_lose, host)

    def fair(self) -> Iterator[tuple[str, Move]]:
        """What happens at last."""
        if self.sealing is not None:
            for host in sorted(self.sealing[2]):
                yield f"host {host} has sealed", partial(_seal, host)
        if self.copying is None:
            if copy.deepcopy(self.tier).to_replicate(self.at_ns + LATER_NS) is not None:
                yield "copies are ordered", _replicate
        else:
            for host in sorted(self.copying[1]):
                yield f"host {host} has a copy", partial(_copied, host)

    # --- what must be -----------------------------------------------------------------------

    def held(self, but: int | None = None) -> dict[str, tuple[HeldPart, ...]]:
        """What the hosts say that they hold, without one of them."""
        ranks, found = len(self.own), {}
        for host in self.hosts:
            if host != but:
                mine = [HeldPart(*name, (host,), ranks, b) for b, name in self.own[host].items()]
                of = (self.before(host),)
                copies = [HeldPart(*name, of, ranks) for name in self._whole(host)]
                found[str(host)] = (*mine, *copies)
        return found

    def before(self, host: int) -> int:
        return (host - 1) % len(self.own)

    def _whole(self, host: int) -> list[Name]:
        """Copies that it keeps, and that are not under way."""
        busy = set() if self.copying is None else self.copying[1]
        of = None if self.copying is None else (self.copying[0].attempt, self.copying[0].step)
        return [one for one in self.kept[host].values() if not (host in busy and one == of)]

    def check(self) -> None:
        """Whichever host is lost now, what was promised is there."""
        for host in self.hosts:
            steps = [one.step for one in restorable(self.held(host), self.placement)]
            if max(steps, default=0) < self.promised:
                raise Broken(f"without host {host} {steps} is left, and {self.promised} was safe")

    def check_at_rest(self) -> None:
        """Nothing more comes by itself: the newest set is on two hosts each."""
        newest = self.tier.newest
        if newest is not None and self.promised != newest.step:
            raise Broken(f"{newest} is not safe, and nobody does anything about it")

    def key(self) -> Hashable:
        """All but the moment."""
        tier = self.tier
        hosts = [tuple(sorted(d.items())) for d in (*self.own, *self.kept)]
        replicas = tier.replicas
        mine = replicas.under_way, replicas.newest, replicas.is_sure
        of_run = self.saves, self.losses, self.attempt, self.step, self.promised
        return tuple(hosts), self.sealing, self.copying, tier.buffers, mine, of_run


def _save(world: Copies) -> None:
    """All ranks copy the next step; what lay in the buffer is gone."""
    world.saves -= 1
    world.step += 1
    buffer = world.tier.free[0]
    world.tier.ordered(buffer)
    for host in world.hosts:
        world.own[host].pop(buffer, None)
    world.tier.copied(world.at_ns, world.step, world.step, buffer)
    world.sealing = buffer, (world.attempt, world.step), frozenset(world.hosts)


def _seal(host: int, world: Copies) -> None:
    assert world.sealing is not None
    buffer, name, left = world.sealing
    world.own[host][buffer] = name
    left -= {host}
    world.sealing = (buffer, name, left) if left else None
    if not left:
        world.tier.seal_over(ev.Sealed(world.at_ns, name[0], name[1], name[1], buffer))


def _replicate(world: Copies) -> None:
    """Each host makes room, as `agent.copying` does."""
    world.at_ns += LATER_NS
    want = world.tier.to_replicate(world.at_ns)
    assert want is not None
    name, left = (want.attempt, want.step), set(world.hosts)
    for host in world.hosts:
        kept = world.kept[host]
        if name in kept.values():
            left.discard(host)
            continue
        place = next(n for n in range(COPIES) if want.kept is None or kept.get(n) != want.kept)
        kept[place] = name
    world.copying = want, frozenset(left)
    _look_whether_copied(world)


def _copied(host: int, world: Copies) -> None:
    assert world.copying is not None
    want, left = world.copying
    if (want.attempt, want.step) not in world.own[world.before(host)].values():
        raise Broken(f"the part that host {host} copies is not there any more")
    world.copying = want, left - {host}
    _look_whether_copied(world)


def _look_whether_copied(world: Copies) -> None:
    assert world.copying is not None
    want, left = world.copying
    if not left:
        world.copying = None
        done = ev.Replicated(world.at_ns, want.attempt, want.epoch, want.step)
        if world.tier.replicas.over(done):
            world.promised = want.step


def _lose(host: int, world: Copies) -> None:
    """It is gone, and the attempt with it; an empty one takes its place, and gets its part."""
    world.losses -= 1
    if world.sealing is not None:
        buffer, name, _ = world.sealing
        lost = ev.SealFailed(world.at_ns, *name, name[1], buffer, "its host is gone", is_lost=True)
        world.tier.seal_over(lost)
        world.sealing = None
    if world.copying is not None:
        want, left = world.copying
        of = want.attempt, want.epoch, want.step
        world.tier.replicas.over(ev.NotReplicated(world.at_ns, *of, "a host is gone"))
        for other in left:  # half a copy is none
            kept = world.kept[other]
            world.kept[other] = {n: one for n, one in kept.items() if one != (of[0], of[2])}
        world.copying = None
    world.own[host], world.kept[host] = {}, {}
    world.tier.host_lost()
    world.attempt += 1
    world.promised = 0  # until it is on two hosts each again
    held = world.held()
    holders = {one: str(one) for one in world.hosts}
    found = restorable(held, world.placement, holders)
    if not found:
        world.step = 0
        world._begin(ev.SCRATCH)
        return
    newest = found[-1]
    name = newest.attempt, newest.step
    had = sources(held, newest, world.placement, holders)
    for one in world.hosts:
        if world.own[one].get(newest.buffer) != name:
            if had is None or one not in had:
                raise Broken(f"nobody has the part of host {one} of {newest}")
            world.own[one][newest.buffer] = name
    world.step = newest.step
    world._begin(ev.Resume(newest.name, newest.step, newest.attempt, buffer=newest.buffer))


def moved(world: Copies, move: Move) -> Copies:
    after = copy.deepcopy(world)
    move(after)
    after.check()
    return after
