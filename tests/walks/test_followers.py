"""Who starts a controller, and when not: agents that look at the lease, in every order of mishaps.

The traps that model checking had found in earlier designs: a controller that is cut off from the
others and reaches the store has the run for ever (C12), and who has not heard of the run's end
begins it again (C13). The agents' judgement is real; the lease, its heartbeat and time are not.

`python tests/walks/test_followers.py` walks more of them.
"""

from __future__ import annotations

import copy
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

from holdfast.core.hosts import succession as rules
from holdfast.core.hosts.succession import SECOND_NS, FollowStep, LeaseSight, Succession

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from stepwise import Broken

sys.path.pop(0)

TICK_NS = 5 * SECOND_NS
LONG_NS = 100 * SECOND_NS  # longer than anything that an agent waits for
NEEDED = 2  # hosts that a controller must hear
WELL_TICKS, MOST_TICKS = 3, 60
Move = Callable[["Followers"], None]


class Followers:
    """`holder`: on which host the controller is; None: nobody has the lease."""

    def __init__(self, agents: int, faults: int, kinds: str) -> None:
        self.at_ns = 0
        self.faults, self.kinds = faults, kinds
        self.agents: list[Succession | None] = [Succession(one) for one in range(agents)]
        self.epoch = self.beat = 0
        self.holder: int | None = None
        self.lives = self.is_over = False
        self.cut: int | None = None  # that host hears no other one, nor is heard
        self.away: frozenset[int] = frozenset()  # whose next look at the store fails

    def hears(self, one: int, other: int) -> bool:
        return one == other or self.cut not in (one, other)

    def tick(self) -> None:
        """The holder shows life, and each agent looks; who hears too few gives the run back."""
        self.at_ns += TICK_NS
        self.beat += self.lives
        away, self.away = self.away, frozenset()
        for index, agent in enumerate(self.agents):
            if agent is not None and index in away:
                agent.store_is_away(self.at_ns)
            elif agent is not None:
                self._look(index, agent)
        holder = self.holder
        if holder is None or not self.lives:
            return
        there = [one for one, agent in enumerate(self.agents) if agent is not None]
        if sum(self.hears(holder, one) for one in there) < NEEDED:
            self.holder, self.lives = None, False
            if (agent := self.agents[holder]) is not None:
                agent.has_given_back(self.at_ns)

    def _look(self, index: int, agent: Succession) -> None:
        holder = self.holder
        is_held = (self.lives if holder == index else None) if holder is not None else False
        linked = holder is not None and self.lives and self.hears(index, holder)
        sight = LeaseSight(self.epoch, is_held, self.is_over, b"%d" % self.beat)
        step = agent.look(self.at_ns, sight, is_linked=linked, is_starting=False)
        if step is FollowStep.LEAVE:
            self.agents[index] = None
        elif step is FollowStep.START:
            if self.lives:
                raise Broken(f"{index} starts a controller, and that on {holder} lives")
            if self.is_over:
                raise Broken(f"{index} begins the run again, and it is over")
            self.epoch += 1
            self.holder, self.lives = index, True

    # --- what may happen --------------------------------------------------------------------

    def moves(self) -> Iterator[tuple[str, Move]]:
        yield "time passes", Followers.tick
        if not self.faults:
            return
        if self.lives and "k" in self.kinds:
            yield "the controller is gone", _dies
        if self.lives and "o" in self.kinds:
            yield "the run is over", _ends
        for index, agent in enumerate(self.agents):
            if agent is None:
                continue
            if "c" in self.kinds and self.cut is None:
                yield f"{index} is cut off", partial(_cut, index)
            if "a" in self.kinds and index not in self.away:
                yield f"{index} does not reach the store", partial(_away, index)
            if "r" in self.kinds and not self.is_over:
                yield f"{index} is restarted", partial(_restart, index)

    @property
    def is_well(self) -> bool:
        """Whether a controller hears enough hosts, or all know that the run is over."""
        there = [one for one, agent in enumerate(self.agents) if agent is not None]
        if self.is_over:
            return not there
        holder = self.holder
        return holder is not None and self.lives and (
            sum(self.hears(holder, one) for one in there) >= NEEDED
        )  # fmt: skip

    def key(self) -> Hashable:
        """All but the moment, and how often the holder has shown life."""
        agents = tuple(None if one is None else self._known(one) for one in self.agents)
        lease = self.epoch, self.holder, self.lives, self.is_over
        return agents, lease, self.cut, self.away, self.faults

    def _known(self, agent: Succession) -> Hashable:
        since, still = agent._absent_since_ns, self.at_ns - agent._beat_ns
        waits = None if since is None else min(LONG_NS, self.at_ns - since)
        rests = max(0, agent._rests_until_ns - self.at_ns)
        sees = agent._beat == (self.epoch, b"%d" % self.beat), agent._beat[0]
        return agent._before, waits, min(LONG_NS, still), rests, sees


def _dies(world: Followers) -> None:
    world.lives = False


def _ends(world: Followers) -> None:
    """Its last words are on record, and not every agent has heard them."""
    world.is_over, world.lives, world.holder = True, False, None


def _cut(index: int, world: Followers) -> None:
    world.cut = index


def _away(index: int, world: Followers) -> None:
    world.away |= {index}


def _restart(index: int, world: Followers) -> None:
    """It looks at once: which end of a run was before its time shows by that."""
    agent = world.agents[index] = Succession(index)
    world._look(index, agent)


class Seen(NamedTuple):
    """How large a walk was."""

    states: int
    transitions: int


def walk(agents: int, faults: int, kinds: str) -> Seen:
    """Every state that is reached; and from each all is well at last, whoever stays cut off."""
    start = Followers(agents, 0, kinds)
    settle(start, set())
    start.faults = faults
    states, known, transitions = [(start, "")], {start.key()}, 0
    good: set[Hashable] = set()
    while states:
        world, story = states.pop()
        for what, move in world.moves():
            transitions += 1
            after, then = copy.deepcopy(world), f"{story} → {what}"
            try:
                after.faults -= move is not Followers.tick
                move(after)
                if (key := after.key()) in known:
                    continue
                good.update(settle(copy.deepcopy(after), good))
            except Broken as broken:
                raise Broken(f"{broken}\n{then}") from None
            known.add(key)
            states.append((after, then))
    return Seen(len(known), transitions)


def settle(world: Followers, good: set[Hashable]) -> list[Hashable]:
    """Only time passes: raises Broken unless all becomes well, and stays so for a while."""
    seen, well = [], 0
    for _ in range(MOST_TICKS):
        if (key := world.key()) in good:
            return seen
        seen.append(key)
        well = well + 1 if world.is_well else 0
        if well > WELL_TICKS:
            return seen
        world.tick()
    raise Broken("nobody leads the run, and it stays so")


# agents, mishaps, and which kinds (`Followers.moves`)
WALKS = [(3, 2, "kcoar"), (4, 2, "kcoar")]
MORE = [(3, 3, "kcoar"), (3, 4, "kcoar"), (4, 3, "kcoar"), (3, 5, "kca")]


@pytest.mark.parametrize("sizes", WALKS, ids=str)
def test_somebody_leads_at_last_and_nobody_beside_another(sizes: tuple[int, int, str]) -> None:
    assert walk(*sizes).states > 100


# --- the rules that are not used -----------------------------------------------------------


def who_gave_back_does_not_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """C12: it is the first to take it again."""
    monkeypatch.setattr(Succession, "has_given_back", lambda *_: None)


def an_end_is_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """C13: a lease that was given back is free."""
    look = Succession.look

    def looks(self: Succession, at_ns: int, sight: LeaseSight, **more: bool) -> FollowStep:
        return look(self, at_ns, sight._replace(is_over=False), **more)

    monkeypatch.setattr(Succession, "look", looks)


def a_heartbeat_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rules, "STILL_NS", 0)


MUTANTS = [who_gave_back_does_not_rest, an_end_is_no_end, a_heartbeat_is_not_waited_for]


@pytest.mark.parametrize("break_it", MUTANTS)
def test_the_walk_finds_what_is_wrong_without_the_rule(
    monkeypatch: pytest.MonkeyPatch, break_it: Callable[[pytest.MonkeyPatch], None]
) -> None:
    break_it(monkeypatch)
    with pytest.raises(Broken):
        walk(*WALKS[0])


def main() -> None:
    """The larger walks; some minutes."""
    for sizes in WALKS + MORE:
        began_s = time.monotonic()
        found = walk(*sizes)
        print(f"{sizes}: {found}, {time.monotonic() - began_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
