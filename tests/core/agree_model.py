"""A model of a house that saves by agreement, with the real decisions on both sides.

A rank publishes boundary n, loads the words, answers, maybe waits, and enters step n + 1, whose
collective blocks until every rank has entered it. A store becomes visible to its reader any time
later, in order per writer and reader; the reader may miss all values but the last. The answer
limit may pass too early (a false NACK), a rank may die, the deadline may come, a save may fail.

States are tuples of small integers: ranks and controllers are interned, their own moves are
computed once each. Ranks are interchangeable, so worlds that differ in their numbering are one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from typing import NamedTuple

from holdfast.core import agree
from holdfast.core import agree_events as ev
from holdfast.core.agree import Agreement, Phase
from holdfast.core.agree_rank import (
    Answer,
    after_loop,
    at_boundary,
    between_steps,
    while_waiting,
)
from holdfast.core.word import Agreed, Order, pack, unpack

DEADLINE_NS = 10**15
STOP = ev.StopAsked(0, "a notice", leave_by_ns=DEADLINE_NS)


class Broken(AssertionError):
    """Something that must never be."""


class Rank(NamedTuple):
    at: str  # load, wait, poll (between steps), run (it has entered step n + 1), after; see GONE
    n: int  # last boundary reached
    committed: int  # the COMMITTED word, or where it began
    out: tuple[ev.RankWords, ...]  # its words: as last read by the controller, then as stored
    epoch: int = 0  # answered last,
    answer: int = 0  # with this step
    writing: tuple[tuple[int, int], ...] = ()  # copies on their way to the disk
    order: int = 0  # as visible to this rank
    verdict: int = 0
    coming: tuple[tuple[str, int], ...] = ()  # stores of the controller not yet visible here

    def stores(self, **words: object) -> Rank:
        return self._replace(out=(*self.out, replace(self.out[-1], **words)))  # type: ignore[arg-type]


GONE = ("saved", "finished", "unsaved", "dead")


class Rest(NamedTuple):
    commits: tuple[tuple[int, int], ...]  # (epoch, step)
    saves: int  # what may still be asked, and still go wrong
    stops: int
    false_nacks: int
    deaths: int
    fails: int
    deadline: bool


class World(NamedTuple):
    ranks: tuple[int, ...]  # interned Rank
    control: int  # interned Agreement
    rest: Rest


Stores = tuple[tuple[str, int], ...]  # (word, value), in order
Move = tuple[str, World, bool]  # what happens, what then is, whether it can be relied on to happen


class House:
    """`start` and `moves` of one setup; `is_end` checks how a run may end."""

    def __init__(
        self,
        ranks: int,
        steps: int,
        *,
        saves: int = 0,
        stops: int = 0,
        false_nacks: int = 0,
        deaths: int = 0,
        fails: int = 0,
        deadline: bool = False,
        delays: bool = True,
        save_at_once: bool = False,
        save_lead: int = 1,
        polls: bool = False,
    ) -> None:
        # Step 1 is behind the ranks and not saved: an order is possible at once.
        self.last_step = 1 + steps
        self.delays = delays
        self.between = "poll" if polls else "run"
        self._save = ev.SaveAsked(0, "every 41 s", lead=save_lead)
        self.faultless = not (deaths or fails or deadline)
        self._ranks: list[Rank] = []
        self._rank_ids: dict[Rank, int] = {}
        self._rank_moves: list[list[tuple[str, int]] | None] = []
        self._controls: list[Agreement] = []
        self._control_ids: dict[Agreement, int] = {}
        self._looked: dict[tuple[int, int, int], tuple[tuple[str, int, int, Stores], ...]] = {}
        self._unheard_ids: dict[int, int] = {}
        self._permuted: dict[tuple[int, tuple[int, ...]], int] = {}
        rank = self._rank_id(Rank("run", 1, 0, (ev.RankWords(step=1),)))
        control = Agreement.start(ranks, 0)
        for number in range(ranks):
            control, _ = agree.step(control, ev.Progress(0, number, 1))
        rest = Rest((), saves, stops, false_nacks, deaths, fails, deadline)
        self.start = World((rank,) * ranks, self._control_id(control), rest)
        if save_at_once:
            self.start = self._hear(self.start, rest, self._save)

    # --- interning ------------------------------------------------------------------------------

    def _rank_id(self, rank: Rank) -> int:
        known = self._rank_ids.get(rank)
        if known is None:
            known = self._rank_ids[rank] = len(self._ranks)
            self._ranks.append(rank)
            self._rank_moves.append(None)
        return known

    def _control_id(self, control: Agreement) -> int:
        if not control.why.startswith("no step"):  # words do not decide, but they tell ranks apart
            control = replace(control, why="")
        if control.phase is Phase.OVER:  # and then nothing that it knows matters any more
            fresh = Agreement.start(len(control.ranks), 0)
            control = replace(fresh, phase=Phase.OVER, why=control.why)
        known = self._control_ids.get(control)
        if known is None:
            known = self._control_ids[control] = len(self._controls)
            self._controls.append(control)
        return known

    def _world(self, ids: tuple[int, ...], control: int, rest: Rest) -> World:
        """The one world that stands for all renumberings of its ranks."""
        if self._controls[control].phase is Phase.OVER:
            return World(tuple(sorted(self._unheard(i) for i in ids)), control, rest)
        if all(a <= b for a, b in pairwise(ids)):
            return World(ids, control, rest)
        order = tuple(sorted(range(len(ids)), key=ids.__getitem__))
        key = (control, order)
        permuted = self._permuted.get(key)
        if permuted is None:
            old = self._controls[control]
            new = replace(old, ranks=tuple(old.ranks[i] for i in order))
            permuted = self._permuted[key] = self._control_id(new)
        return World(tuple(ids[i] for i in order), permuted, rest)

    def _unheard(self, rank_id: int) -> int:
        """The rank without what it stored for a controller that does not listen any more."""
        known = self._unheard_ids.get(rank_id)
        if known is None:
            rank = self._ranks[rank_id]._replace(out=(ev.RankWords(),), writing=())
            known = self._unheard_ids[rank_id] = self._rank_id(rank)
        return known

    # --- what can happen ------------------------------------------------------------------------

    def moves(self, world: World) -> list[Move]:
        found = list(self._moves(world))
        control = self._controls[world.control]
        if control.late_since_ns is not None:
            # Time may pass too early a few times, and does pass when nothing else can happen.
            quiet = not any(fair for _, _, fair in found)
            false_nacks = world.rest.false_nacks - (not quiet)
            if false_nacks >= 0:
                rest = world.rest._replace(false_nacks=false_nacks)
                after = self._hear(world, rest, ev.Tick(answer_due_ns(control)))
                found.append(("the answer limit passes", after, quiet))
        return found

    def _moves(self, world: World) -> Iterator[Move]:
        ids, control, rest = world
        # All have entered step `entered`: nobody is at a boundary before it, or left there.
        entered = min(r.n + (r.at == "run") for r in (self._ranks[i] for i in ids))
        for number, rank_id in enumerate(ids):
            head, tail = ids[:number], ids[number + 1 :]
            for what, after in self._moves_of(rank_id):
                self._check_leaving(world, self._ranks[after])
                yield f"{number} {what}", self._world((*head, after, *tail), control, rest), True
            rank = self._ranks[rank_id]
            if rank.at == "run" and rank.n < entered:
                n = rank.n + 1
                after = self._rank_id(rank._replace(at="load", n=n).stores(step=n))
                moved = self._world((*head, after, *tail), control, rest)
                yield f"{number} publishes {n}", moved, True
            yield from self._looks(world, number)
            yield from self._mishaps(world, number)
        if self._controls[control].phase is not Phase.OVER:
            yield from self._moves_of_control(world)

    def _moves_of(self, rank_id: int) -> list[tuple[str, int]]:
        known = self._rank_moves[rank_id]
        if known is None:
            moves = [(what, self._rank_id(r)) for what, r in self._own_moves(self._ranks[rank_id])]
            known = self._rank_moves[rank_id] = moves
        return known

    def _own_moves(self, rank: Rank) -> Iterator[tuple[str, Rank]]:
        if rank.at in GONE:
            return
        if rank.coming:
            (word, value), rest = rank.coming[0], rank.coming[1:]
            yield f"sees {word}", rank._replace(**{word: value, "coming": rest})
        if rank.writing:
            (epoch, step), rest = rank.writing[0], rank.writing[1:]
            durable = Agreed(epoch, 0, step)
            yield "is durable", rank._replace(writing=rest).stores(durable=durable)
        if rank.at == "load":
            yield from self._answer(rank, at_boundary(rank.n, rank.order, rank.epoch)[0])
        elif rank.at == "wait":
            answer = while_waiting(rank.order, rank.verdict, rank.epoch, rank.n)[0]
            yield from self._answer(rank, answer)
        elif rank.at == "poll":
            # It may enter the next step at once, or look at the order once more before.
            yield "enters the step", self._runs(rank._replace(at="run"))
            answer = between_steps(rank.n, rank.order, rank.epoch)[0]
            if answer is not Answer.GO_ON:
                yield from self._answer(rank, answer)
        elif rank.at == "after":
            words = (rank.order, rank.verdict, rank.committed)
            yield from self._answer(rank, after_loop(rank.n, *words, rank.epoch)[0])

    def _answer(self, rank: Rank, answer: Answer) -> Iterator[tuple[str, Rank]]:
        after = rank.at == "after"
        if answer is Answer.SNAPSHOT:
            epoch, flags, _ = unpack(rank.order)
            at = "after" if after else "wait" if flags & Order.STOP else self.between
            writing = (*rank.writing, (epoch, rank.n))
            copied = rank._replace(at=at, epoch=epoch, answer=rank.n, writing=writing)
            copied = copied.stores(snap=Agreed(epoch, 0, rank.n))
            yield f"copies {rank.n} for {epoch}", self._runs(copied)
        elif answer is Answer.GO_ON:
            yield "goes on", self._runs(rank._replace(at=self.between))
        elif answer is Answer.LEAVE_SAVED:
            yield "leaves, saved", _gone(rank, "finished" if after else "saved")
        elif answer is Answer.LEAVE_UNSAVED:
            yield "leaves, not saved", _gone(rank, "unsaved")

    def _runs(self, rank: Rank) -> Rank:
        """It enters the next step at once; after the last there is none."""
        if rank.at == "run" and rank.n == self.last_step:
            return rank._replace(at="after").stores(loop_ended=True)
        return rank

    def _looks(self, world: World, number: int) -> Iterator[Move]:
        ids = world.ranks
        key = (world.control, number, ids[number])
        known = self._looked.get(key)
        if known is None:
            known = self._looked[key] = tuple(self._look(*key))
        for what, read, control, stores in known:
            after = (*ids[:number], read, *ids[number + 1 :])
            yield what, self._world(self._tell(after, stores), control, world.rest), True

    def _look(
        self, control: int, number: int, rank_id: int
    ) -> Iterator[tuple[str, int, int, Stores]]:
        rank = self._ranks[rank_id]
        known = self._controls[control]
        if known.phase is Phase.OVER or known.ranks[number].gone:
            return
        for index in range(1, len(rank.out)):
            read = self._rank_id(rank._replace(out=rank.out[index:]))
            events = ev.changes(0, number, rank.out[0], rank.out[index])
            yield f"controller reads {number}", read, *self._decide(control, *events)
        if rank.at in GONE:
            read = self._rank_id(rank._replace(out=rank.out[:1]))
            gone = self._decide(control, ev.RankGone(0, number))
            yield f"{number} is known to be gone", read, *gone

    def _mishaps(self, world: World, number: int) -> Iterator[Move]:
        ids, control, rest = world
        rank = self._ranks[ids[number]]
        if rank.at in GONE:
            return
        head, tail = ids[:number], ids[number + 1 :]
        dead = (*head, self._rank_id(_gone(rank, "dead")), *tail)
        if rest.deaths:
            after = self._world(dead, control, rest._replace(deaths=rest.deaths - 1))
            yield f"{number} dies", after, False
        if rest.fails and rank.writing:
            (epoch, step), left = rank.writing[0], rank.writing[1:]
            failed = rank._replace(writing=left).stores(failed=Agreed(epoch, 0, step))
            moved = (*head, self._rank_id(failed), *tail)
            after = self._world(moved, control, rest._replace(fails=rest.fails - 1))
            yield f"{number} cannot write", after, False
        if self._controls[control].phase is Phase.OVER and (
            any(self._ranks[i].at in ("dead", "unsaved") for i in ids)
        ):
            yield f"{number} is killed with its attempt", self._world(dead, control, rest), True

    def _moves_of_control(self, world: World) -> Iterator[Move]:
        rest = world.rest
        control = self._controls[world.control]
        if control.phase is Phase.COMMITTING:
            made = (control.epoch, control.step)
            self._check_commit(world, made)
            done = rest._replace(commits=(*rest.commits, made))
            yield "the manifest is durable", self._hear(world, done, ev.Committed(0, *made)), True
            if rest.fails:
                less = rest._replace(fails=rest.fails - 1)
                event = ev.CommitFailed(0, *made, "disk full")
                yield "the manifest fails", self._hear(world, less, event), False
        if rest.saves:
            less = rest._replace(saves=rest.saves - 1)
            yield "a save", self._hear(world, less, self._save), False
        if rest.stops:
            less = rest._replace(stops=rest.stops - 1)
            yield "a stop", self._hear(world, less, STOP), False
        elif rest.deadline:
            less = rest._replace(deadline=False)
            yield "the deadline", self._hear(world, less, ev.Tick(DEADLINE_NS)), False

    # --- the controller, for real ---------------------------------------------------------------

    def _hear(self, world: World, rest: Rest, event: ev.Event) -> World:
        control, stores = self._decide(world.control, event)
        return self._world(self._tell(world.ranks, stores), control, rest)

    def _decide(self, control_id: int, *events: ev.Event) -> tuple[int, Stores]:
        """What the real controller makes of it, and what it stores in the ranks' words."""
        stores: list[tuple[str, int]] = []
        for event in events:
            control, actions = agree.step(self._controls[control_id], event)
            control_id = self._control_id(control)
            for action in actions:
                if isinstance(action, ev.PublishOrder):
                    stores.append(("order", pack(action.epoch, action.step, action.flags)))
                elif isinstance(action, ev.PublishVerdict):
                    if action.flags & Order.COMMITTED:
                        stores.append(("committed", action.step))
                    stores.append(("verdict", pack(action.epoch, action.step, action.flags)))
        return control_id, tuple(stores)

    def _tell(self, ids: tuple[int, ...], stores: Stores) -> tuple[int, ...]:
        return tuple(self._told(i, stores) for i in ids) if stores else ids

    def _told(self, rank_id: int, stores: Stores) -> int:
        rank = self._ranks[rank_id]
        if rank.at in GONE:
            return rank_id
        if self.delays:
            return self._rank_id(rank._replace(coming=rank.coming + stores))
        return self._rank_id(rank._replace(**dict(stores)))

    # --- what must never be ---------------------------------------------------------------------

    def _check_commit(self, world: World, made: tuple[int, int]) -> None:
        for i in world.ranks:
            rank = self._ranks[i]
            if (rank.epoch, rank.answer) != made or made in rank.writing:
                raise Broken(f"{made} is committed without a durable copy of {rank}")
        if any(epoch >= made[0] or step >= made[1] for epoch, step in world.rest.commits):
            raise Broken(f"{made} is committed after {world.rest.commits}")

    def _check_leaving(self, world: World, rank: Rank) -> None:
        if rank.at in ("saved", "finished") and all(s != rank.n for _, s in world.rest.commits):
            raise Broken(f"left before the commit: {rank}")
        if rank.at == "unsaved":
            control = self._controls[world.control]
            if control.phase is not Phase.OVER:
                raise Broken(f"left in the middle: {rank}, {control}")
            if self.faultless and not control.why.startswith("no step"):
                raise Broken(f"left unsaved for no reason: {rank}, {control}")

    def is_end(self, world: World) -> bool:
        ranks = [self._ranks[i] for i in world.ranks]
        if not all(rank.at in GONE for rank in ranks):
            return False
        left = [rank.at for rank in ranks]
        torn = "dead" in left or len({rank.n for rank in ranks}) > 1
        if torn and self.faultless and "unsaved" not in left:
            raise Broken(f"ends in {ranks}")
        return True


def _gone(rank: Rank, how: str) -> Rank:
    """Leave; what the process had not stored is lost, what nobody will look at is forgotten."""
    return rank._replace(at=how, coming=(), order=0, verdict=0)


def answer_due_ns(control: Agreement) -> int:
    due = agree.wake_at_ns(replace(control, stop=replace(control.stop, leave_by_ns=None)))  # type: ignore[type-var]
    assert due is not None
    return due
