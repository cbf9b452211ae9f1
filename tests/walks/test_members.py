"""Membership over a network that fails, in every order, with the real code on both ends.

The traps that model checking had found in earlier designs: a restarted agent obeys what its former
life was ordered (C10), two agents of one number take turns (C17). Nobody runs a part that another
one has; and from every state that is reached all parts run again at last, if the network heals and
enough hosts live. Each walk must find what is wrong with the rule that is not used.

`python tests/walks/test_members.py` walks more of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.core.hosts.membership import Membership, Move
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.seat import Seat

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from members_world import Agent, Members, heal, moved, settle
from stepwise import Broken

sys.path.pop(0)


class Seen(NamedTuple):
    """How large a walk was. `settled`: states on the way to where all is well."""

    states: int
    transitions: int
    settled: int


def walk(
    slots: int, spares: int, faults: int, kinds: str, *, while_gathering: bool = False
) -> Seen:
    """From a run that trains on: every state that is reached, and that all is well at last.

    `while_gathering`: from the first host's first word on.
    """
    start = Members(slots, spares, 0, kinds)
    if not while_gathering:
        settle(start, set())
    start.faults = faults
    states, known = [start], {start.key()}
    came_from: list[tuple[int, str]] = [(-1, "start")]
    good: set[Hashable] = set()
    transitions = 0
    for index, world in enumerate(states):
        for what, move in [*world.fair(), *world.unfair()]:
            transitions += 1
            try:
                after = moved(world, move)
                key = after.key()
                if key in known:
                    continue
                good.update(settle(moved(after, heal), good))
            except Broken as broken:
                raise Broken(f"{broken}\n{_story(came_from, index)} → {what}") from None
            known.add(key)
            states.append(after)
            came_from.append((index, what))
        states[index] = None  # type: ignore[call-overload]
    return Seen(len(states), transitions, len(good))


def _story(came_from: list[tuple[int, str]], index: int) -> str:
    lines = []
    while index > 0:
        index, what = came_from[index]
        lines.append(what)
    return " → ".join(reversed(lines))


# slots, spares, how many faults, and which kinds (`Members._faults`)
Sizes = tuple[int, int, int, str]
WALKS: list[Sizes] = [(1, 1, 1, "kcu"), (1, 0, 1, "dl"), (2, 0, 1, "c")]
MORE: list[Sizes] = [
    (2, 0, 1, "d"),
    (1, 1, 1, "rkduocl"),
    (2, 0, 1, "rkduocl"),
    (1, 1, 2, "kc"),
    (2, 1, 1, "rc"),
]


GATHERING: list[Sizes] = [(2, 0, 0, ""), (1, 1, 1, "kcu")]
MORE_GATHERING: list[Sizes] = [(2, 0, 1, "kcu"), (1, 1, 1, "rkduocl"), (2, 1, 1, "kc")]


@pytest.mark.parametrize("sizes", GATHERING, ids=str)
def test_while_hosts_gather_all_parts_run_at_last(sizes: Sizes) -> None:
    assert walk(*sizes, while_gathering=True).states > 20


@pytest.mark.parametrize("sizes", WALKS, ids=str)
def test_all_parts_run_again_at_last_and_each_once(sizes: Sizes) -> None:
    found = walk(*sizes)
    assert found.states > 20
    assert found.settled > 20


# --- the rules that are not used -----------------------------------------------------------


def the_newest_has_the_index(monkeypatch: pytest.MonkeyPatch) -> None:
    """C17: two agents of one number displace each other."""
    joined = Membership.joined

    def joins(self: Membership, at_ns: int, index: int, incarnation: str, *more: Any) -> list[Move]:
        moves: list[Move] = []
        for one in () if incarnation in self.members else self._of_index.get(index, []):
            moves += self._lose(at_ns, one, "another one has come") if one.is_there else []
        return moves + joined(self, at_ns, index, incarnation, *more)

    monkeypatch.setattr(Membership, "joined", joins)


def orders_outlive_a_life(monkeypatch: pytest.MonkeyPatch) -> None:
    """C10: what was sent to an agent is obeyed by the one that is started after it."""

    def takes(self: Agent, _: str, message: dict[str, Any]) -> None:
        if self.is_alive:
            self.seat.take(self.world.at_ns, message)
            self.speaks()
            self.leaves_if_due()

    def who(self: Members, incarnation: str) -> Agent | None:
        index = int(incarnation.partition(".")[0])
        return next((one for one in self.agents if one.is_alive and one.index == index), None)

    monkeypatch.setattr(Agent, "takes", takes)
    monkeypatch.setattr(Members, "_who", who)


def who_was_given_up_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Seat, "must_leave", property(lambda _: False))


def who_was_given_up_keeps_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    left = Seat.has_left
    monkeypatch.setattr(Seat, "has_left", lambda self, _: left(self, self.incarnation))


def a_new_host_begins_with_the_first_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(HostOrder, "begins_at", lambda *_, **__: 0)


MUTANTS = [
    (the_newest_has_the_index, "d"),
    (orders_outlive_a_life, "r"),
    (who_was_given_up_goes_on, "c"),
    (who_was_given_up_keeps_its_name, "c"),
    (a_new_host_begins_with_the_first_order, "c"),
]


@pytest.mark.parametrize(("break_it", "kinds"), MUTANTS)
def test_the_walk_finds_what_is_wrong_without_the_rule(
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    kinds: str,
) -> None:
    break_it(monkeypatch)
    with pytest.raises(Broken):
        walk(2, 0, 1, kinds)


def main() -> None:
    """The larger walks; some minutes."""
    runs = [(sizes, False) for sizes in WALKS + MORE]
    for sizes, gathers in runs + [(sizes, True) for sizes in GATHERING + MORE_GATHERING]:
        began_s = time.monotonic()
        found = walk(*sizes, while_gathering=gathers)
        took_s = time.monotonic() - began_s
        told = f"{sizes}{' while gathering' if gathers else ''}"
        print(f"{told}: {found}, {took_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
