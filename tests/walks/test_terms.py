"""Controllers that take a run over from each other, in every order of their steps in the store.

The traps that model checking had found in earlier designs, asked of the real code: a manifest that
is written after a takeover (C1), an adoption of which nobody finds a trace (C2), a slow deletion
(C3), an order of an older controller after a newer one's (C6), an agent that was restarted and has
forgotten the term (C11), an end that a straggler does not hear of (C13). Each walk must find what
is wrong with the rule that is not used.

`python tests/walks/test_terms.py` walks more of them, with more of the programs left in the middle.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from unittest import mock

import pytest

from holdfast.controller import storekeeper
from holdfast.core import events as ev
from holdfast.journal import attempts, lease
from holdfast.snapshot import catalog, retention, sets, vault_folder

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
import terms_world
from stepwise import Broken, Walked, walk
from terms_world import Inline, Play, Terms, WalkedController

sys.path.pop(0)

First = Callable[[Terms, WalkedController], None]
STOP = ev.StopAsked(0, "test", None, notice=False)
SAVE = ev.SaveAsked(0, "test")


# --- what becomes of the first controller --------------------------------------------------


def wakes_up(_: Terms, controller: WalkedController) -> None:
    """Its upkeep finds out whether it has the run still."""
    controller.beats()


def stops(_: Terms, controller: WalkedController) -> None:
    controller.asks(STOP)


def saves(_: Terms, controller: WalkedController) -> None:
    controller.asks(SAVE)


def loses_its_host(_: Terms, controller: WalkedController) -> None:
    """It launches the next attempt on the other one."""
    controller.loses_host(1)


def its_host_is_restarted(_: Terms, controller: WalkedController) -> None:
    """And joins it again, though another one may have the run by then."""
    controller.sees_host_restarted()


# --- what the others do --------------------------------------------------------------------


def takes_over(world: Terms) -> None:
    """It reaches the host that trains."""
    world.take_over()


def takes_over_elsewhere(world: Terms) -> None:
    """It reaches the other host alone."""
    world.take_over(host=1)


def takes_over_and_saves(world: Terms) -> None:
    world.take_over().asks(SAVE)


def takes_over_and_stops(world: Terms) -> None:
    world.take_over().asks(STOP)


def goes_back(world: Terms) -> None:
    """Somebody wants to go back to the oldest set; it takes over, and reaches the other host."""
    world.go_back()
    world.take_over(host=1)


def takes_over_too(world: Terms) -> None:
    """From the second one, or from the first."""
    world.take_over()


# what becomes of the first, what the others do, the bound, sets that are kept
WALKS: list[tuple[First, tuple[Play, ...], int, int]] = [
    (wakes_up, (takes_over,), 2, 2),
    (wakes_up, (takes_over_elsewhere,), 2, 2),
    (saves, (takes_over,), 1, 2),
    (stops, (takes_over,), 1, 2),
    (loses_its_host, (takes_over,), 1, 2),
    (its_host_is_restarted, (takes_over,), 1, 2),
]
MORE: list[tuple[First, tuple[Play, ...], int, int]] = [
    (first, (other,), 2, 2)
    for first in (saves, stops, loses_its_host, its_host_is_restarted)
    for other in (takes_over, takes_over_elsewhere, takes_over_and_saves, takes_over_and_stops)
] + [
    (saves, (goes_back,), 1, 1),
    (wakes_up, (takes_over_and_saves, takes_over_too), 2, 2),
    (saves, (takes_over, takes_over_too), 1, 2),
    (stops, (takes_over, takes_over_too), 1, 2),
]


@pytest.fixture(autouse=True)
def inline() -> Iterator[None]:
    # Controllers are on hosts of their own: a lock of one host's keeps none of them waiting.
    without_locks = mock.patch.object(retention, "LOCK_TRIES", 0)
    with mock.patch.object(storekeeper, "Worker", Inline), without_locks:
        yield


def walked(first: First, others: tuple[Play, ...], bound: int, keep: int) -> Walked:
    saved = 2 if goes_back in others else 1
    return walk(lambda: Terms(first, *others, keep=keep, saved=saved), bound)


def words(value: object) -> str:
    plays = value if isinstance(value, tuple) else (value,)
    return " and ".join(getattr(one, "__name__", str(one)) for one in plays)


@pytest.mark.parametrize(("first", "others", "bound", "keep"), WALKS, ids=words)
def test_however_late_it_wakes_up(
    first: First, others: tuple[Play, ...], bound: int, keep: int
) -> None:
    assert walked(first, others, bound, keep).states > 20


# --- the rules that are not used -----------------------------------------------------------


def no_second_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """C1: what was written is told, whoever has the run by then. That one has not completed it."""
    nothing = sets.Finished((), (), None, ())
    monkeypatch.setattr(catalog, "finish_commits", lambda *_, **__: nothing)
    committed: set[int] = set()
    commit, check = catalog.Catalog.commit, lease.Lease.check

    def commits(self: catalog.Catalog, *args: int) -> sets.SetInfo:
        committed.add(id(self._held))
        return commit(self, *args)

    def checks(self: lease.Lease) -> None:
        if id(self) in committed:
            committed.discard(id(self))
        else:
            check(self)

    monkeypatch.setattr(catalog.Catalog, "commit", commits)
    monkeypatch.setattr(lease.Lease, "check", checks)


def no_trace_of_adoptions(monkeypatch: pytest.MonkeyPatch) -> None:
    """C2: who goes on takes no number."""
    monkeypatch.setattr(storekeeper, "adopt_attempt", lambda *_: None)


def no_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    """C3: what is being removed may be chosen."""
    monkeypatch.setattr(vault_folder.FolderVault, "doom", lambda *_: None)


def no_terms(monkeypatch: pytest.MonkeyPatch) -> None:
    """C6: a host obeys whoever speaks."""

    def hears(self: terms_world.WalkedHost, term: int) -> bool:
        if term != self.term:
            self.term = term
            self.meet_controller()
        return True

    monkeypatch.setattr(terms_world.WalkedHost, "hears", hears)


def no_look_at_the_last_words(monkeypatch: pytest.MonkeyPatch) -> None:
    """C13: who takes over a run that is over begins it again."""
    monkeypatch.setattr(terms_world, "over_meanwhile", lambda *_: None)


def an_end_is_told_in_any_case(monkeypatch: pytest.MonkeyPatch) -> None:
    """C13: also by one who has lost the run."""

    def end(self: lease.Lease, last_words: lease.LastWords | None) -> bool:
        self.release(last_words)
        return True

    monkeypatch.setattr(lease.Lease, "end", end)


def numbers_are_no_fence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who finds a number taken writes over it."""

    def create(path: Path, data: bytes) -> None:
        try:
            lease.create_exclusive(path, data)
        except FileExistsError:
            path.unlink()
            lease.create_exclusive(path, data)

    monkeypatch.setattr(attempts, "create_exclusive", create)


MUTANTS: list[tuple[Callable[[pytest.MonkeyPatch], None], First, Play, int]] = [
    (no_second_look, saves, takes_over_elsewhere, 2),
    (no_trace_of_adoptions, loses_its_host, takes_over_and_saves, 2),
    (no_marks, saves, goes_back, 1),
    (no_terms, stops, takes_over_and_saves, 2),
    (no_look_at_the_last_words, stops, takes_over, 2),
    (an_end_is_told_in_any_case, stops, takes_over, 2),
    (numbers_are_no_fence, loses_its_host, takes_over, 2),
    (numbers_are_no_fence, its_host_is_restarted, takes_over_elsewhere, 2),
]


@pytest.mark.parametrize(("break_it", "first", "other", "keep"), MUTANTS, ids=words)
def test_the_walk_finds_what_is_wrong_without_the_rule(
    monkeypatch: pytest.MonkeyPatch,
    break_it: Callable[[pytest.MonkeyPatch], None],
    first: First,
    other: Play,
    keep: int,
) -> None:
    break_it(monkeypatch)
    with pytest.raises(Broken):
        walked(first, (other,), 2, keep)


def main() -> None:
    """The larger walks; some minutes."""
    storekeeper.Worker = Inline  # type: ignore[assignment, misc]
    retention.LOCK_TRIES = 0
    for first, others, bound, keep in WALKS + MORE:
        began_s = time.monotonic()
        found = walked(first, others, bound, keep)
        took_s = time.monotonic() - began_s
        told = f"{words(first)}, {words(others)}, left {bound} times in the middle"
        print(f"{told}: {found.states:,} states in {found.runs:,} runs, {took_s:.0f} s", flush=True)


if __name__ == "__main__":
    main()
