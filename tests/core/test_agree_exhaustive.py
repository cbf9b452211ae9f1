"""Every interleaving of the agreed save, for two and three ranks, with the real code on both sides.

`explore` walks every reachable state of a model, checks what must never be, and that every fair
run ends. The same walk must find what is wrong with the rule that we do not use.
"""

from __future__ import annotations

import random
import sys
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from holdfast.core.save import agree
from holdfast.core.save import agree_moves as moves
from holdfast.core.save import events as ev
from holdfast.core.save.memory import Buffers
from holdfast.core.save.ranks import Ranks
from holdfast.core.save.word import Answer, Order, unpack

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
import agree_model
from agree_model import Broken, House

sys.path.pop(0)


class Walked(NamedTuple):
    """How large a walk was."""

    states: int
    transitions: int


def explore(
    start: Any,
    moves: Callable[[Any], Iterable[tuple[str, Any, bool]]],
    is_end: Callable[[Any], bool],
) -> Walked:
    """Visit every state; returns how many there are, and how many ways from one to another.

    A state with no fair move that is no end is a deadlock. The fair moves must have no cycle: then
    every run in which they happen ends, and an end can be reached from everywhere.
    """
    number = {start: 0}
    states = [start]
    came_from: list[tuple[int, str]] = [(-1, "start")]
    fair: list[list[int]] = []
    transitions = 0
    for index, state in enumerate(states):
        nexts = []
        try:
            for what, after, is_fair in moves(state):
                transitions += 1
                known = number.get(after)
                if known is None:
                    known = number[after] = len(states)
                    states.append(after)
                    came_from.append((index, what))
                if is_fair:
                    nexts.append(known)
            if not nexts and not is_end(state):
                raise Broken(f"deadlock in {state}")
        except Broken as broken:
            raise Broken(f"{broken}\n{story(came_from, index)}") from None
        fair.append(nexts)
    assert_acyclic(fair, came_from)
    return Walked(len(states), transitions)


def assert_acyclic(graph: list[list[int]], came_from: list[tuple[int, str]]) -> None:
    """Kahn's algorithm: what cannot be taken off in topological order lies behind a cycle."""
    incoming = [0] * len(graph)
    for nexts in graph:
        for after in nexts:
            incoming[after] += 1
    ready = [node for node, count in enumerate(incoming) if count == 0]
    for node in ready:
        for after in graph[node]:
            incoming[after] -= 1
            if incoming[after] == 0:
                ready.append(after)
    if len(ready) != len(graph):
        left = next(node for node, count in enumerate(incoming) if count)
        raise Broken(f"a fair run need not end\n{story(came_from, left)}")


def story(came_from: list[tuple[int, str]], index: int) -> str:
    lines = []
    while index > 0:
        index, what = came_from[index]
        lines.append(what)
    return " → ".join(reversed(lines))


# (ranks, steps after the first, what is asked and what goes wrong). The larger walks, up to
# 1.4 million states, are walked by `python tests/core/test_agree_exhaustive.py`, in minutes.
WALKS = [
    (1, 3, {"saves": 1, "stops": 1, "fails": 1, "false_nacks": 1}),
    (2, 2, {"stops": 1, "false_nacks": 1}),
    (2, 2, {"saves": 1}),
    (2, 1, {"saves": 1, "stops": 1}),
    (1, 3, {"saves": 2, "stops": 1, "in_step": True}),
    (2, 2, {"saves": 2, "in_step": True, "delays": False}),
    (1, 3, {"save_at_once": True, "save_lead": 3, "saves": 1, "in_step": True, "stops": 1}),
    (2, 2, {"save_at_once": True, "save_lead": 2, "stops": 1, "delays": False}),
    (2, 2, {"stops": 1, "deadline": True}),
    (2, 2, {"stops": 1, "deaths": 1}),
    (2, 1, {"stops": 1, "fails": 1}),
    (3, 1, {"stops": 1, "deaths": 1}),
    (1, 2, {"saves": 1, "stops": 1, "fails": 1, "polls": True}),
    (2, 2, {"stops": 1, "polls": True}),
    (2, 1, {"saves": 1, "stops": 1, "delays": False, "polls": True}),
    (2, 1, {"stops": 1, "deaths": 1, "deadline": True, "polls": True}),
    (3, 1, {"stops": 1, "delays": False, "polls": True}),
    (2, 2, {"buffers": 3, "copies": 2, "flushes": 1, "delays": False}),
    (2, 2, {"buffers": 1, "copies": 2, "flushes": 1, "delays": False}),
    (1, 3, {"buffers": 2, "copies": 1, "flushes": 1, "stops": 1}),
    (1, 2, {"fails": 4, "hold": True, "stops": 1, "saves": 1}),
    (2, 1, {"fails": 3, "hold": True, "delays": False}),
    (1, 2, {"buffers": 2, "copies": 1, "flushes": 1, "fails": 3, "hold": True}),
    (2, 1, {"buffers": 2, "copies": 1, "fails": 1, "hold": True, "delays": False}),
    (1, 3, {"buffers": 2, "copies": 1, "saves": 1, "fails": 1, "hold": True}),
    (2, 2, {"buffers": 2, "copies": 1, "flushes": 1, "stops": 1, "delays": False}),
    (2, 1, {"buffers": 2, "copies": 1, "saves": 1}),
    (2, 1, {"buffers": 2, "copies": 1, "stops": 1}),
    (2, 1, {"buffers": 2, "copies": 1, "flushes": 1, "stops": 1, "polls": True}),
    (2, 1, {"buffers": 2, "copies": 1, "stops": 1, "deaths": 1, "delays": False}),
    (1, 2, {"saves": 1, "stops": 1, "deaths": 1, "late": True, "repeats": 1}),
    (2, 1, {"stops": 1, "deaths": 1, "late": True, "repeats": 1}),
    (3, 1, {"stops": 1, "late": True, "repeats": 1, "delays": False}),
    # With gaps copies that may end after their boundary do.
    (1, 3, {"gaps": True, "buffers": 2, "copies": 2, "stops": 1}),
    (2, 2, {"gaps": True, "buffers": 2, "copies": 1}),
    (2, 2, {"gaps": True, "buffers": 1, "copies": 2, "delays": False}),
    (2, 1, {"gaps": True, "buffers": 2, "copies": 1, "stops": 1, "delays": False}),
    (2, 1, {"gaps": True, "stops": 1, "false_nacks": 1}),
    (1, 2, {"successions": 1, "saves": 1, "stops": 1}),
    (2, 1, {"successions": 1, "stops": 1}),
    (2, 1, {"successions": 1, "saves": 1, "delays": False}),
    (2, 1, {"successions": 1, "stops": 1, "deaths": 1, "deadline": True, "delays": False}),
    (2, 1, {"successions": 1, "stops": 1, "polls": True, "delays": False}),
    (1, 3, {"together": True, "saves": 1, "stops": 1, "false_nacks": 1}),
    (2, 2, {"together": True, "saves": 1}),
    (2, 1, {"together": True, "saves": 1, "stops": 1, "delays": False}),
    (2, 2, {"together": True, "stops": 1, "false_nacks": 1, "delays": False}),
    (2, 1, {"together": True, "stops": 1, "deaths": 1, "deadline": True, "delays": False}),
    (2, 1, {"together": True, "fails": 2, "saves": 1, "delays": False}),
    (3, 1, {"together": True, "saves": 1, "false_nacks": 1, "delays": False}),
    (2, 1, {"together": True, "successions": 1, "saves": 1}),
    (2, 1, {"together": True, "successions": 1, "stops": 1, "delays": False}),
]
LARGER_WALKS = [
    (2, 2, {"stops": 1, "fails": 2}),
    (2, 2, {"stops": 1, "false_nacks": 3}),
    (2, 1, {"stops": 1, "false_nacks": 1, "deaths": 1, "fails": 1, "deadline": True}),
    (2, 2, {"saves": 1, "stops": 1}),
    (2, 2, {"save_at_once": True, "stops": 1, "false_nacks": 1, "deaths": 1, "deadline": True}),
    (2, 2, {"saves": 2, "stops": 1, "delays": False}),
    (2, 2, {"save_at_once": True, "save_lead": 2, "stops": 1}),
    (3, 2, {"stops": 1}),
    (3, 1, {"save_at_once": True, "stops": 1}),
    (3, 1, {"stops": 1, "deaths": 1, "deadline": True}),
    (3, 1, {"stops": 1, "false_nacks": 1, "deaths": 1}),
    (4, 1, {"stops": 1, "delays": False}),
    (2, 2, {"stops": 1, "false_nacks": 1, "polls": True}),
    (2, 2, {"saves": 1, "stops": 1, "delays": False, "polls": True}),
    (2, 1, {"stops": 1, "fails": 2, "false_nacks": 1, "polls": True}),
    (3, 1, {"stops": 1, "polls": True}),
    (1, 3, {"buffers": 3, "copies": 2, "flushes": 1, "stops": 1, "fails": 1}),
    (2, 2, {"buffers": 2, "copies": 1, "stops": 1}),
    (2, 2, {"buffers": 2, "copies": 1, "saves": 1, "delays": False}),
    (2, 2, {"buffers": 3, "copies": 2, "flushes": 1, "stops": 1, "delays": False}),
    (2, 2, {"buffers": 2, "copies": 1, "flushes": 1, "stops": 1, "deaths": 1, "delays": False}),
    (2, 1, {"buffers": 3, "copies": 1, "flushes": 1, "stops": 1, "fails": 1, "delays": False}),
    (2, 1, {"buffers": 2, "copies": 1, "stops": 1, "false_nacks": 1, "deaths": 1, "fails": 1}),
    (3, 1, {"buffers": 2, "copies": 1, "stops": 1, "delays": False}),
    (2, 2, {"stops": 1, "deaths": 1, "deadline": True, "late": True, "repeats": 2}),
    (2, 1, {"saves": 1, "stops": 1, "deaths": 1, "late": True, "repeats": 1}),
    (2, 1, {"buffers": 2, "copies": 1, "stops": 1, "late": True, "repeats": 1, "delays": False}),
    (3, 1, {"stops": 1, "deaths": 1, "late": True, "repeats": 1}),
    (3, 2, {"stops": 1, "late": True}),
    (1, 2, {"gaps": True, "buffers": 3, "copies": 2, "flushes": 1, "stops": 1, "fails": 1}),
    (2, 2, {"gaps": True, "buffers": 2, "copies": 2, "fails": 1, "delays": False}),
    (2, 2, {"gaps": True, "buffers": 2, "copies": 1, "stops": 1, "delays": False}),
    (2, 2, {"gaps": True, "buffers": 2, "copies": 1, "stops": 1, "deaths": 1, "delays": False}),
    (2, 1, {"gaps": True, "buffers": 2, "copies": 1, "saves": 1, "fails": 1, "delays": False}),
    (2, 3, {"gaps": True, "buffers": 2, "copies": 3, "delays": False}),
    (2, 2, {"gaps": True, "buffers": 3, "copies": 2, "flushes": 1, "delays": False}),
    (2, 1, {"gaps": True, "buffers": 2, "copies": 1, "stops": 1, "late": True, "repeats": 1}),
    (3, 2, {"gaps": True, "buffers": 2, "copies": 1, "delays": False}),
    (2, 2, {"successions": 1, "stops": 1}),
    (2, 1, {"successions": 2, "saves": 1, "stops": 1, "delays": False}),
    (2, 1, {"successions": 1, "stops": 1, "fails": 1, "deaths": 1, "deadline": True}),
    (3, 1, {"successions": 1, "stops": 1, "delays": False}),
    (1, 2, {"gaps": True, "buffers": 2, "copies": 2, "flushes": 1, "stops": 1, "fails": 1}),
    (2, 2, {"save_at_once": True, "stops": 1, "delays": False}),
    (2, 3, {"buffers": 2, "copies": 2}),
    (1, 3, {"successions": 2, "stops": 1, "fails": 1}),
    (2, 2, {"save_at_once": True, "save_lead": 3, "saves": 1, "in_step": True, "delays": False}),
    (2, 2, {"together": True, "saves": 1, "stops": 1, "delays": False}),
    (2, 2, {"together": True, "saves": 1, "false_nacks": 2}),
    (2, 1, {"together": True, "saves": 1, "stops": 1}),
    (
        2,
        1,
        {"together": True, "saves": 2, "fails": 1, "deaths": 1, "deadline": True, "delays": False},
    ),
    (3, 1, {"together": True, "saves": 1, "stops": 1, "delays": False}),
    (2, 1, {"together": True, "successions": 2, "saves": 1, "stops": 1, "delays": False}),
    (2, 1, {"together": True, "saves": 1, "late": True, "repeats": 1}),
]


def walk(ranks: int, steps: int, **asked: Any) -> Walked:
    house = House(ranks, steps, **asked)
    return explore(house.start, house.moves, house.is_end)


@pytest.mark.parametrize(("ranks", "steps", "asked"), WALKS, ids=str)
def test_every_interleaving(ranks, steps, asked):
    walked = walk(ranks, steps, **asked)
    print(f"{walked.states:,} states, {walked.transitions:,} transitions")
    assert walked.states > 1000


@pytest.mark.parametrize("ranks", [4, 5, 6, 7, 8])
def test_random_schedules_of_more_ranks(ranks):
    for seed in range(15):
        rng = random.Random(seed * 100 + ranks)
        faults = {name: rng.randrange(2) for name in ("deaths", "fails", "deadline")}
        asked = {"saves": 2, "stops": 1, "false_nacks": 2, "polls": seed % 2 == 0}
        house = House(ranks, rng.randrange(1, 7), **asked, **faults)
        run_at_random(house, rng)


def run_at_random(house: House, rng: random.Random) -> None:
    state = house.start
    for _ in range(10_000):
        moves = house.moves(state)
        fair = [after for _, after, is_fair in moves if is_fair]
        rare = [after for _, after, is_fair in moves if not is_fair]
        if not fair and house.is_end(state):
            return
        assert fair, f"deadlock in {state}"
        state = rng.choice(rare if rare and rng.random() < 0.03 else fair)
    raise AssertionError("the run does not end")


# --- the checker must be able to fail -----------------------------------------------------------


def rank_rule(rule: str) -> Callable[..., Any]:
    """A rank that copies at any boundary from S on, instead of at S alone."""

    def at_boundary(n, order, answered_epoch, at_loop_end=False):
        epoch, flags, step = unpack(order)
        if epoch not in (0, answered_epoch) and not flags & Order.LEAVE and n >= step:
            return Answer.SNAPSHOT, rule
        return agree_model_at_boundary(n, order, answered_epoch, at_loop_end)

    return at_boundary


agree_model_at_boundary = agree_model.at_boundary


def test_finds_a_controller_that_does_not_compare_the_steps(monkeypatch):
    """Ranks that answer from S on, and a controller that trusts them: a set of two steps."""

    def judge(state, rank, at_ns):
        if not state.ranks.have_answered:
            return ()
        state.step = state.ranks.answers[0]
        return moves.written(state)

    monkeypatch.setattr(agree_model, "at_boundary", rank_rule("n >= S"))
    monkeypatch.setattr(moves, "judge", judge)
    with pytest.raises(Broken, match="committed without a durable copy"):
        walk(2, 2, saves=1)


def test_finds_a_stop_that_is_written_into_a_save_under_way(monkeypatch):
    """The same epoch and step with STOP added: one rank waits for ever, or leaves its peer."""

    def in_place(state, event):
        state.is_stop, state.stop = True, event
        return (ev.PublishOrder(state.epoch, state.step, int(Order.STOP), event.why),)

    row = {**agree.TABLE[ev.StopDue], agree.AgreementPhase.COLLECTING: in_place}
    monkeypatch.setitem(agree.TABLE, ev.StopDue, row)
    with pytest.raises(Broken):
        walk(2, 2, save_at_once=True, stops=1, delays=False)


def test_finds_a_rank_that_leaves_before_the_commit(monkeypatch):
    monkeypatch.setattr(
        agree_model, "while_waiting", lambda *_: (Answer.LEAVE_SAVED, "I have copied mine")
    )
    with pytest.raises(Broken, match="left before the commit"):
        walk(2, 2, stops=1)


def test_finds_a_controller_that_never_gives_up_on_a_step(monkeypatch):
    """Without the NACK a rank that missed S waits in a collective for those that wait at S."""
    monkeypatch.setattr(moves, "miss", lambda *_: ())
    with pytest.raises(Broken, match=r"deadlock|need not end"):
        walk(2, 2, stops=1)


def test_finds_a_controller_that_waits_for_ever_for_an_answer_between_steps(monkeypatch):
    """One rank answers before its next step, the other is in it already and waits for the first."""
    monkeypatch.setattr(Ranks, "is_one_late", property(lambda ranks: bool(ranks.late)))
    with pytest.raises(Broken, match=r"deadlock|need not end"):
        walk(2, 2, stops=1, polls=True)


def test_finds_a_rank_that_begins_to_save_before_all_have_taken_the_step(monkeypatch):
    """It saves, and one that has missed the step is in the next one's collective."""
    eager = lambda *_: (Answer.SNAPSHOT, "the others will come")  # noqa: E731
    monkeypatch.setattr(agree_model, "while_agreeing", eager)
    with pytest.raises(Broken, match=r"deadlock|need not end"):
        walk(2, 2, together=True, saves=1)


def test_finds_a_controller_that_lets_ranks_wait_for_one_that_missed_a_save(monkeypatch):
    """No stop is under way, and still they wait."""
    monkeypatch.setattr(moves, "miss", lambda *_: ())
    with pytest.raises(Broken, match=r"deadlock|need not end"):
        walk(2, 2, together=True, saves=1)


def test_finds_a_controller_that_takes_over_and_takes_agreed_for_decided(monkeypatch):
    """A rank that has not heard of it waits for ever, and the others in their save for it."""
    real = agree_model.go_on_with

    def hasty(state, at_ns, order, verdict):
        if unpack(verdict).epoch == unpack(order).epoch:
            verdict |= Order.COMMITTED << 40
        return real(state, at_ns, order, verdict)

    monkeypatch.setattr(agree_model, "go_on_with", hasty)
    with pytest.raises(Broken, match="deadlock"):
        walk(2, 1, together=True, successions=1, saves=1)


def test_finds_a_controller_that_takes_over_and_counts_epochs_from_the_beginning(monkeypatch):
    """Its first order looks like one that some rank has answered already."""
    monkeypatch.setattr(agree_model, "go_on_with", lambda *_: ())
    with pytest.raises(Broken):
        walk(2, 1, successions=1, saves=1, delays=False)


def test_finds_a_controller_that_takes_over_and_forgets_that_ranks_were_told_to_leave(monkeypatch):
    """It orders a stop anew, at a step that not all of them come to."""

    def forget(state, _, order, __):
        epoch, flags, step = unpack(order)
        state.epoch, state.step = epoch, step if flags & Order.STOP else 0
        return ()

    monkeypatch.setattr(agree_model, "go_on_with", forget)
    with pytest.raises(Broken, match="deadlock"):
        walk(2, 1, successions=1, stops=1, deadline=True, delays=False)


def test_finds_a_buffer_that_is_overwritten_while_it_is_sealed(monkeypatch):
    free = Buffers.free

    def careless(buffers, pinned=()):
        return free(buffers._replace(sealing=()), pinned)

    monkeypatch.setattr(Buffers, "free", careless)
    with pytest.raises(Broken, match="overwrites what is being read"):
        walk(2, 2, buffers=2, copies=2, delays=False)


def test_finds_a_buffer_that_is_overwritten_while_it_is_flushed(monkeypatch):
    free = Buffers.free
    monkeypatch.setattr(Buffers, "free", lambda buffers, pinned=(): free(buffers))
    with pytest.raises(Broken, match="overwrites what is being read"):
        walk(2, 3, buffers=2, copies=3, flushes=1, delays=False)


def test_finds_the_newest_set_overwritten(monkeypatch):
    def free(buffers, pinned=()):
        sealing = [kept.buffer for kept in buffers.sealing]
        return tuple(b for b in range(buffers.in_all) if b not in (*pinned, *sealing))

    monkeypatch.setattr(Buffers, "free", free)
    with pytest.raises(Broken, match="the newest set is given away"):
        walk(2, 3, buffers=2, copies=2, delays=False)


def test_finds_a_controller_that_seals_what_not_all_have_copied(monkeypatch):
    def judge(state, rank, at_ns):
        if rank not in state.ranks.answers:
            return ()
        state.step = state.ranks.answers[rank]
        return moves.agreed(state, at_ns)

    monkeypatch.setattr(moves, "judge", judge)
    with pytest.raises(Broken, match="is sealed, and a buffer holds"):
        walk(2, 2, buffers=2, copies=1, delays=False)


def test_finds_a_rank_that_joins_and_does_not_find_the_order(monkeypatch):
    """It goes on, and the order for a step that it has not reached waits for it."""
    monkeypatch.setattr(
        agree_model, "_shown", lambda rank, _: rank._replace(joined=True, coming=())
    )
    with pytest.raises(Broken, match=r"deadlock|need not end"):
        walk(2, 1, stops=1, late=True)


def test_finds_a_controller_that_counts_what_it_is_told_again(monkeypatch):
    """An answer for an epoch that is over is taken for one of this."""
    answered = agree.TABLE[ev.Snapped][agree.AgreementPhase.COLLECTING]

    def careless(state, event):
        return answered(state, replace(event, epoch=state.epoch))

    row = {**agree.TABLE[ev.Snapped], agree.AgreementPhase.COLLECTING: careless}
    monkeypatch.setitem(agree.TABLE, ev.Snapped, row)
    with pytest.raises(Broken):
        walk(2, 2, saves=1, stops=1, repeats=1, delays=False)


# --- copies that end after their boundary -------------------------------------------------------


def walk_with_gaps(**asked: Any) -> None:
    walk(2, 2, gaps=True, buffers=2, delays=False, **asked)


def test_finds_a_step_that_is_taken_and_counts_as_copied(monkeypatch):
    monkeypatch.setattr(Ranks, "have_copied", Ranks.have_answered)
    with pytest.raises(Broken, match="is sealed, and a buffer holds"):
        walk_with_gaps(copies=1)


def test_finds_a_step_that_is_taken_and_counts_as_missed(monkeypatch):
    real = moves.judge

    def judge(state, rank, at_ns):
        if state.ranks.steps[rank] > state.step and rank not in state.ranks.copied:
            return moves.miss(state, at_ns, "past it, and not copied")
        return real(state, rank, at_ns)

    monkeypatch.setattr(moves, "judge", judge)
    with pytest.raises(Broken, match="counts as a miss, and it has taken the step"):
        walk_with_gaps(copies=1)


def test_finds_a_buffer_that_is_named_while_a_rank_copies_into_it(monkeypatch):
    monkeypatch.setattr(Ranks, "unwritten", lambda self, buffers: buffers)
    with pytest.raises(Broken, match="is named, and a rank copies into it"):
        walk_with_gaps(copies=1)


def test_finds_an_order_that_forgets_who_copies(monkeypatch):
    ask = Ranks.ask

    def forgetful(self, ordered):
        ask(self, ordered)
        self.copying, self.writers = {}, {}

    monkeypatch.setattr(Ranks, "ask", forgetful)
    with pytest.raises(Broken, match="is named, and a rank copies into it"):
        walk_with_gaps(copies=2)


def test_finds_a_rank_with_two_copies_under_way(monkeypatch):
    monkeypatch.setattr(agree_model, "may_take", lambda _: True)
    with pytest.raises(Broken, match="is sealed, and a buffer holds"):
        walk_with_gaps(copies=2)


def test_finds_a_stop_whose_copy_ends_later(monkeypatch):
    monkeypatch.setattr(agree_model, "may_end_later", lambda _, *, is_last: not is_last)
    with pytest.raises(Broken, match="waits for a stop, and still copies"):
        walk_with_gaps(stops=1)


def test_finds_a_copy_that_failed_and_is_waited_for(monkeypatch):
    monkeypatch.setitem(agree.TABLE[ev.SaveFailed], agree.AgreementPhase.COPYING, agree._note_over)
    with pytest.raises(Broken, match=r"deadlock|need not end"):
        walk_with_gaps(copies=1, fails=1)


def test_finds_a_rank_that_died_in_its_copy_and_is_waited_for(monkeypatch):
    monkeypatch.setitem(agree.TABLE[ev.RankGone], agree.AgreementPhase.COPYING, agree._note_gone)
    with pytest.raises(Broken, match=r"deadlock|need not end"):
        walk_with_gaps(copies=1, deaths=1)


# --- why not `progress >= S` on a margin --------------------------------------------------------


class NaiveHouse:
    """The rule that we do not use: order S = fastest + margin; a rank that is at S or beyond saves
    and leaves. A world is (S or 0, ranks); a rank (at, n, entered, sees the order, known n)."""

    def __init__(self, ranks: int, last_step: int, margin: int) -> None:
        self.last_step = last_step
        self.margin = margin
        self.start = (0, (("run", 0, 0, False, 0),) * ranks)

    def moves(self, world):
        ordered, ranks = world
        slowest = min(rank[2] for rank in ranks)
        for number, (at, n, entered, sees, known) in enumerate(ranks):

            def then(*rank, number=number):
                return ordered, (*ranks[:number], rank, *ranks[number + 1 :])

            if known < n:
                yield f"{number}'s progress is read", then(at, n, entered, sees, n), True
            if ordered and not sees:
                yield f"{number} sees {ordered}", then(at, n, entered, True, known), True
            if at == "load":
                goes = "left" if sees and n >= ordered else "run"
                yield f"{number} {goes} at {n}", then(goes, n, entered, sees, known), True
            elif at == "run" and n == self.last_step:
                yield f"{number} ends", then("left", n, entered, sees, known), True
            elif at == "run" and entered == n:
                yield f"{number} enters {n + 1}", then(at, n, n + 1, sees, known), True
            elif at == "run" and n < slowest:
                yield f"{number} at {n + 1}", then("load", n + 1, entered, sees, known), True
        if not ordered:
            step = max(rank[4] for rank in ranks) + self.margin
            yield f"order {step}", (step, ranks), False

    def is_end(self, world):
        _, ranks = world
        if len({n for at, n, *_ in ranks if at == "left"}) > 1:
            raise Broken("two ranks saved different steps")
        return all(at == "left" for at, *_ in ranks)


@pytest.mark.parametrize("margin", [1, 2, 3])
def test_the_naive_rule_fails_on_every_margin(margin):
    house = NaiveHouse(2, last_step=6, margin=margin)
    with pytest.raises(Broken, match=r"deadlock|different steps") as found:
        explore(house.start, house.moves, house.is_end)
    print(found.value)


def test_the_naive_rule_saves_different_steps_even_if_nobody_leaves():
    """Ranks without collectives, or that go on after the save: the set would be torn."""
    house = NaiveHouse(2, last_step=6, margin=2)

    def free(world):
        for what, (ordered, ranks), fair in house.moves(world):
            yield what, (ordered, tuple((a, n, 9, s, k) for a, n, _, s, k in ranks)), fair

    ordered, ranks = house.start
    start = (ordered, tuple((a, n, 9, s, k) for a, n, _, s, k in ranks))
    with pytest.raises(Broken, match="different steps"):
        explore(start, free, house.is_end)


def print_walks() -> None:
    """Every walk there is, and how large it was."""
    states = transitions = 0
    for ranks, steps, asked in WALKS + LARGER_WALKS:
        walked = walk(ranks, steps, **asked)
        states, transitions = states + walked.states, transitions + walked.transitions
        print(
            f"{ranks} ranks, {steps} steps, {asked}: "
            f"{walked.states:,} states, {walked.transitions:,} transitions",
            flush=True,
        )
    print(f"{len(WALKS + LARGER_WALKS)} walks: {states:,} states, {transitions:,} transitions")


if __name__ == "__main__":
    print_walks()
