"""Copies on other hosts, in every order of saves, seals, copies and losses.

The traps that model checking had found in earlier designs: what is sealed and not copied yet
overwrites the last set that is safe (C14), a second loss soon after the first finds no copy (C15),
a copy that was promised makes room for another one (C16). Each walk must find what is wrong with
the rule that is not used.

`python tests/walks/test_copies.py` walks more of them.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.core import actions as act
from holdfast.core.save.replicas import Replicas

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from copies_world import Copies, moved
from stepwise import Broken

sys.path.pop(0)


class Seen(NamedTuple):
    """How large a walk was."""

    states: int
    transitions: int


def walk(hosts: int, saves: int, losses: int) -> Seen:
    """Every state that is reached; where nothing happens by itself any more, all is safe."""
    start = Copies(hosts, saves, losses)
    states, known = [(start, "start")], {start.key()}
    transitions = 0
    while states:
        world, story = states.pop()
        then = story
        try:
            if not list(world.fair()):
                world.check_at_rest()
            for what, move in world.moves():
                transitions += 1
                then = f"{story} → {what}"
                after = moved(world, move)
                if (key := after.key()) not in known:
                    known.add(key)
                    states.append((after, then))
        except Broken as broken:
            raise Broken(f"{broken}\n{then}") from None
    return Seen(len(known), transitions)


# hosts, saves, hosts that are lost
WALKS = [(2, 3, 1), (2, 2, 2)]
MORE = [(2, 5, 2), (2, 3, 3), (3, 3, 2), (3, 2, 3), (4, 2, 2)]


@pytest.mark.parametrize("sizes", WALKS, ids=str)
def test_what_was_safe_survives_the_loss_of_any_host(sizes: tuple[int, int, int]) -> None:
    assert walk(*sizes).states > 200


# --- the rules that are not used -----------------------------------------------------------


def what_is_sealed_may_overwrite(monkeypatch: pytest.MonkeyPatch) -> None:
    """C14: the newest sealed set is kept, as on one host, and no other."""
    monkeypatch.setattr(Replicas, "pinned", property(lambda _: ()))


def what_was_safe_counts_as_safe(monkeypatch: pytest.MonkeyPatch) -> None:
    """C15: after a launch from memory nobody copies anew."""
    begin = Replicas.begin

    def begins(self: Replicas, *args: object) -> None:
        begin(self, *args)  # type: ignore[arg-type]
        self.is_sure = True

    monkeypatch.setattr(Replicas, "begin", begins)


def a_promised_copy_makes_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """C16: whatever lies in the first place is replaced."""
    following = Replicas.next

    def follows(self: Replicas, *args: Any) -> act.Replicate | None:
        wanted = following(self, *args)
        return None if wanted is None else replace(wanted, kept=None)

    monkeypatch.setattr(Replicas, "next", follows)


MUTANTS = [
    (what_is_sealed_may_overwrite, (2, 3, 1)),
    (what_was_safe_counts_as_safe, (2, 1, 2)),
    (a_promised_copy_makes_room, (2, 3, 1)),
]


@pytest.mark.parametrize(("break_it", "sizes"), MUTANTS)
def test_the_walk_finds_what_is_wrong_without_the_rule(
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    sizes: tuple[int, int, int],
) -> None:
    break_it(monkeypatch)
    with pytest.raises(Broken):
        walk(*sizes)


def main() -> None:
    """The larger walks; some minutes."""
    for sizes in WALKS + MORE:
        began_s = time.monotonic()
        found = walk(*sizes)
        print(f"{sizes}: {found}, {time.monotonic() - began_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
