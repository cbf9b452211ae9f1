"""A model of a house that saves by agreement, with the real decisions on both sides.

A rank publishes boundary n, loads the words, answers, maybe waits, and enters step n + 1, whose
collective blocks until every rank has entered it. A store becomes visible to its reader any time
later, in order per writer and reader; the reader may miss all values but the last, and may be told
once more what it knows. A rank may show itself late: until then it neither is read nor sees an
order, and then the newest. The answer
limit may pass too early (a false NACK), a rank may die, the deadline may come, a save may fail.
With a hold, the last step's save is tried again whenever nothing else can happen.

With buffers copies go into memory, by the real rules of `core.save.memory`. A copy takes time: a
rank that dies in it leaves half of one. Seals and flushes happen whenever they like, and read what
the ranks have left there; a rank whose order comes late may be writing at that very moment.

With gaps a copy that may end later does: the rank says that it has taken the step and goes on, and
the copy is over, or has failed, at any time before the rank takes another one. And that a step is
taken is always seen apart from its copy.

Together, ranks save as a framework does: whoever takes a step waits until it hears that all have
taken it, and the save itself blocks until every rank has begun it.

States are tuples of small integers: ranks and controllers are interned, their own moves are
computed once each. Ranks are interchangeable, so worlds that differ in their numbering are one.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from itertools import product
from typing import NamedTuple

from holdfast.core.save import agree
from holdfast.core.save import events as ev
from holdfast.core.save.adopted import go_on_with, newest_words
from holdfast.core.save.agree import Agreement, AgreementPhase
from holdfast.core.save.memory import Buffers
from holdfast.core.save.ranks import RankAnswers, Ranks, changes
from holdfast.core.save.tier_events import SetInBuffer
from holdfast.core.save.word import (
    WAITS,
    Agreed,
    Answer,
    Order,
    after_loop,
    at_boundary,
    between_steps,
    buffer_of,
    may_end_later,
    pack,
    unpack,
    while_agreeing,
    while_waiting,
    with_buffer,
)

DEADLINE_NS = 10**15
STOP = ev.StopDue(0, "a notice", leave_by_ns=DEADLINE_NS)
NOTHING = (0, 0)
HOLD_NS = 10**12


class Broken(AssertionError):
    """Something that must never be."""


def copy_of(state: Agreement) -> Agreement:
    """As `plain_json.copied`, in a fifth of its time."""
    ranks = state.ranks
    extremes = replace(ranks.extremes, ranks=dict(ranks.extremes.ranks))
    copied = Ranks(  # in the order of the fields
        list(ranks.steps),
        extremes,
        set(ranks.ended),
        set(ranks.gone),
        ranks.ordered,
        dict(ranks.answers),
        set(ranks.copied),
        set(ranks.durable),
        set(ranks.settled),
        set(ranks.early),
        set(ranks.late),
        dict(ranks.copying),
        dict(ranks.writers),
        ranks.first_end,
    )
    return replace(state, ranks=copied)


class Rank(NamedTuple):
    # load, wait, poll (between steps), run (it has entered step n + 1), after, copy; of a save that
    # the ranks make together, agree and gather; see GONE
    at: str
    n: int  # last boundary reached
    committed: int  # the COMMITTED word, or where it began
    out: tuple[RankAnswers, ...]  # its words: as last read by the controller, then as stored
    epoch: int = 0  # answered last,
    answer: int = 0  # with this step
    writing: tuple[tuple[int, int], ...] = ()  # copies on their way to the disk
    order: int = 0  # as visible to this rank
    verdict: int = 0
    coming: tuple[tuple[str, int], ...] = ()  # stores of the controller not yet visible here
    shards: tuple[tuple[int, int], ...] = ()  # what it has in each buffer: (epoch, step)
    copying: tuple[int, str] = (0, "")  # into which buffer, and where it is afterwards
    joined: bool = True  # the controller knows of it
    # Copies that go on beside its steps: (epoch, step, buffer). One at a time.
    under_way: tuple[tuple[int, int, int], ...] = ()

    def stores(self, **words: object) -> Rank:
        return self._replace(out=(*self.out, self.out[-1]._replace(**words)))


GONE = ("saved", "finished", "unsaved", "dead")


class Control(NamedTuple):
    """What the controller knows: `flushed` is on its way from memory to the disk.

    `told`: of each rank that it was heard to copy into a buffer, (epoch, buffer), and not heard to
    have ended that.
    """

    agreement: Agreement
    buffers: Buffers
    told: tuple[tuple[int, int] | None, ...]
    flushed: SetInBuffer | None = None

    @property
    def phase(self) -> AgreementPhase:
        return self.agreement.phase

    @property
    def pinned(self) -> tuple[int, ...]:
        return () if self.flushed is None else (self.flushed.buffer,)


class Rest(NamedTuple):
    commits: tuple[tuple[int, int], ...]  # (epoch, step)
    saves: int  # what may still be asked, and still go wrong
    stops: int
    false_nacks: int
    deaths: int
    fails: int
    deadline: bool
    copies: int = 0  # saves to memory that may still be asked,
    flushes: int = 0  # and how many may be flushed
    repeats: int = 0  # of what the controller was told
    successions: int = 0  # of another controller, which may still happen
    is_stop_ordered: bool = False  # when it was asked for: something was to be saved


class World(NamedTuple):
    ranks: tuple[int, ...]  # interned Rank
    control: int  # interned Control
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
        in_step: bool = False,
        polls: bool = False,
        buffers: int = 0,
        copies: int = 0,
        flushes: int = 0,
        repeats: int = 0,
        late: bool = False,
        hold: bool = False,
        gaps: bool = False,
        successions: int = 0,
        together: bool = False,
    ) -> None:
        # Step 1 is behind the ranks and not saved: an order is possible at once.
        self.last_step = 1 + steps
        self.delays = delays
        self.gaps = gaps
        self.together = together
        self.stops, self.successions, self.hold_ns = stops, successions, HOLD_NS if hold else 0
        self.between = "poll" if polls else "run"
        self._save = ev.SaveDue(0, "every 41 s", lead=save_lead)
        self._ask = (
            ev.SaveDue(0, "the script asked for it", in_step=True) if in_step else self._save
        )
        self.faultless = not (deaths or fails or deadline)
        self._ranks: list[Rank] = []
        self._rank_ids: dict[Rank, int] = {}
        self._rank_moves: list[list[tuple[str, int]] | None] = []
        self._taken_over_from: dict[tuple[tuple[int, ...], Rest], list[Move]] = {}
        self._controls: list[Control] = []
        self._control_ids: dict[tuple[object, ...], int] = {}
        self._decided: dict[tuple[int, tuple[ev.Event, ...]], tuple[int, Stores]] = {}
        self._looked: dict[tuple[int, int, int], tuple[tuple[str, int, int, Stores], ...]] = {}
        self._copy = ev.SaveDue(0, "every 2 steps", lead=save_lead, in_memory=True)
        self._unheard_ids: dict[int, int] = {}
        self._permuted: dict[tuple[int, tuple[int, ...]], int] = {}
        shards = (NOTHING,) * buffers
        words = (RankAnswers(step=1),)
        rank = self._rank_id(Rank("run", 1, 0, words, shards=shards, joined=not late))
        agreement = Agreement.start(ranks, 0, hold_ns=self.hold_ns)
        for number in range(ranks):
            agree.step(agreement, ev.Progress(0, number, 1))
        control = Control(agreement, Buffers(buffers), (None,) * ranks)
        rest = Rest(
            (),
            saves,
            stops,
            false_nacks,
            deaths,
            fails,
            deadline,
            copies,
            flushes,
            repeats,
            successions,
        )
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

    def _control_id(self, control: Control) -> int:
        """From then on that state stays as it is: whoever goes on from it takes a copy."""
        agreement = control.agreement
        agreement.free_buffers = ()
        if not agreement.why.startswith("no step"):  # words do not decide, but tell ranks apart
            agreement.why = ""
        if agreement.phase is AgreementPhase.OVER:  # nothing that it knows matters any more
            fresh = Agreement.start(len(agreement.ranks.steps), 0)
            agreement = replace(fresh, phase=AgreementPhase.OVER, why=agreement.why)
            control = control._replace(told=(None,) * len(control.told))
        key = (frozen(agreement), *control[1:])
        known = self._control_ids.get(key)
        if known is None:
            known = self._control_ids[key] = len(self._controls)
            self._controls.append(control._replace(agreement=agreement))
        return known

    def _world(self, ids: tuple[int, ...], control: int, rest: Rest) -> World:
        """The one world that stands for all renumberings of its ranks."""
        if self._controls[control].phase is AgreementPhase.OVER and not rest.successions:
            return World(tuple(sorted(self._unheard(i) for i in ids)), control, rest)
        in_order = tuple(sorted(ids))
        if ids == in_order:
            return World(ids, control, rest)
        order = tuple(sorted(range(len(ids)), key=ids.__getitem__))
        key = (control, order)
        permuted = self._permuted.get(key)
        if permuted is None:
            old = self._controls[control].agreement
            new = replace(old, ranks=renumbered(old.ranks, order))
            told = tuple(self._controls[control].told[before] for before in order)
            changed = self._controls[control]._replace(agreement=new, told=told)
            permuted = self._permuted[key] = self._control_id(changed)
        return World(in_order, permuted, rest)

    def _unheard(self, rank_id: int) -> int:
        """The rank without what it stored for a controller that does not listen any more."""
        known = self._unheard_ids.get(rank_id)
        if known is None:
            rank = self._ranks[rank_id]._replace(out=(RankAnswers(),), writing=())
            known = self._unheard_ids[rank_id] = self._rank_id(rank)
        return known

    # --- what can happen ------------------------------------------------------------------------

    def moves(self, world: World) -> list[Move]:
        found = list(self._moves(world))
        control = self._controls[world.control].agreement
        if control.is_held and not any(fair for _, _, fair in found):
            tick = ev.Tick(control.hold.again_ns or 0)
            after = self._hear(world, world.rest, tick)
            found.append(("the last step is tried again", after, True))
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
                self._check_copying(world, rank_id, self._ranks[after])
                yield f"{number} {what}", self._world((*head, after, *tail), control, rest), True
            rank = self._ranks[rank_id]
            if rank.at == "run" and rank.n < entered:
                n = rank.n + 1
                after = self._rank_id(rank._replace(at="load", n=n).stores(step=n))
                moved = self._world((*head, after, *tail), control, rest)
                yield f"{number} publishes {n}", moved, True
            yield from self._looks(world, number)
            yield from self._mishaps(world, number)
        yield from self._saves_together(world)
        if self._controls[control].phase is not AgreementPhase.OVER:
            yield from self._moves_of_control(world)
        yield from self._moves_in_memory(world)
        if rest.successions:
            yield from self._successions(world)

    def _saves_together(self, world: World) -> Iterator[Move]:
        """What all ranks have begun, all of them end."""
        ranks = [self._ranks[i] for i in world.ranks]
        made = {(rank.epoch, rank.answer) for rank in ranks}
        if len(made) > 1 or any(rank.at != "gather" for rank in ranks):
            return
        saved = tuple(self._rank_id(self._saved_together(rank)) for rank in ranks)
        yield f"all have saved {made}", self._world(saved, world.control, world.rest), True

    def _saved_together(self, rank: Rank) -> Rank:
        made = (rank.epoch, rank.answer)
        writing = (*rank.writing, made)
        saved = rank._replace(at=rank.copying[1], copying=(0, ""), writing=writing)
        return self._runs(saved.stores(copied=Agreed(rank.epoch, 0, rank.answer)))

    def _successions(self, world: World) -> list[Move]:
        """The controller is gone, and another one goes on: only if all ranks are there.

        Of what it has stored for a rank the last may not have come to its host, and never will. A
        host may have been heard a while ago by now. What the one that is gone knew is gone, too.
        """
        found = self._taken_over_from.get((world.ranks, world.rest))
        if found is None:
            ranks = [self._ranks[i] for i in world.ranks]
            of = [] if any(rank.at in GONE for rank in ranks) else self._last_heard(ranks)
            found = [
                (f"another takes over: came {came}, heard {heard}", after, False)
                for came, heard in of
                for after in [self._taken_over(world.rest, ranks, came, heard)]
            ]
            self._taken_over_from[world.ranks, world.rest] = found
        return found

    @staticmethod
    def _last_heard(ranks: list[Rank]) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        came = product(*(range(len(rank.coming) + 1) for rank in ranks))
        heard = product(*(range(len(rank.out)) for rank in ranks))
        return list(product(came, heard))

    def _taken_over(
        self, rest: Rest, ranks: list[Rank], came: tuple[int, ...], heard: tuple[int, ...]
    ) -> World:
        rest = rest._replace(successions=rest.successions - 1)
        whole = {rank.out[-1].durable[::2] for rank in ranks}
        if len(whole) == 1 and whole != {(0, 0)} and not whole & set(rest.commits):
            rest = rest._replace(commits=(*rest.commits, *whole))
        committed = max((step for _, step in rest.commits), default=0)
        ranks = [
            rank._replace(coming=rank.coming[:number], out=rank.out[index:])
            for rank, number, index in zip(ranks, came, heard, strict=True)
        ]
        words = [
            {"order": rank.order, "verdict": rank.verdict} | dict(rank.coming) for rank in ranks
        ]
        order, verdict = newest_words((one["order"], one["verdict"]) for one in words)
        agreement = Agreement.start(len(ranks), committed, resumed_step=0, hold_ns=self.hold_ns)
        stores = [("committed", committed)] if committed else []
        for action in go_on_with(agreement, 0, order, verdict):
            assert isinstance(action, ev.PublishOrder)
            stores.append(("order", pack(action.epoch, action.step, action.flags)))
        control = self._control_id(Control(agreement, Buffers(0), (None,) * len(ranks)))
        ids = self._tell(tuple(self._rank_id(rank) for rank in ranks), tuple(stores))
        events: list[ev.Event] = []
        for number, rank in enumerate(ranks):
            events += changes(0, number, RankAnswers(), rank.out[0])
        if rest.stops < self.stops:  # who asked for it says so for as long as the run lives
            events.append(STOP)
        after, more = self._decide(control, *events)
        is_ordered = self._controls[after].agreement.is_stop  # by what was heard
        rest = rest._replace(is_stop_ordered=is_ordered)
        return self._world(self._tell(ids, more), after, rest)

    def _moves_of(self, rank_id: int) -> list[tuple[str, int]]:
        known = self._rank_moves[rank_id]
        if known is None:
            moves = [(what, self._rank_id(r)) for what, r in self._own_moves(self._ranks[rank_id])]
            known = self._rank_moves[rank_id] = moves
        return known

    def _own_moves(self, rank: Rank) -> Iterator[tuple[str, Rank]]:
        if rank.at in GONE:
            return
        if rank.coming and rank.joined:
            (word, value), rest = rank.coming[0], rank.coming[1:]
            yield f"sees {word}", rank._replace(**{word: value, "coming": rest})
        if rank.writing:
            (epoch, step), rest = rank.writing[0], rank.writing[1:]
            durable = Agreed(epoch, 0, step)
            yield "is durable", rank._replace(writing=rest).stores(durable=durable)
        for one in rank.under_way:
            (epoch, step, buffer), made = one, one[:2]
            rest = tuple(other for other in rank.under_way if other != one)
            over = rank._replace(under_way=rest, shards=_with(rank.shards, buffer, made))
            yield f"has copied {step} for {epoch}", over.stores(copied=Agreed(epoch, 0, step))
        if rank.at == "copy":
            (buffer, at), made = rank.copying, (rank.epoch, rank.answer)
            copied = rank._replace(at=at, copying=(0, ""), shards=_with(rank.shards, buffer, made))
            copied = self._stores_copied(copied, buffer)
            yield f"has copied {rank.answer} for {rank.epoch}", self._runs(copied)
        elif rank.at == "agree":
            yield from self._agree(rank)
        elif rank.at == "load":
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
            if not may_take(rank):
                return
            epoch, flags, _ = unpack(rank.order)
            at = "after" if after else "wait" if flags & Order.STOP else self.between
            buffer = buffer_of(flags)
            if buffer is not None:
                torn = _with(rank.shards, buffer, NOTHING)
                begun = rank._replace(epoch=epoch, answer=rank.n, shards=torn)
                if self.gaps:
                    begun = begun.stores(taken=Agreed(epoch, with_buffer(0, buffer), rank.n))
                is_last = after or rank.n == self.last_step
                if self.gaps and may_end_later(flags, is_last=is_last):
                    under_way = (*rank.under_way, (epoch, rank.n, buffer))
                    begun = begun._replace(at=at, under_way=under_way)
                    yield f"takes {rank.n} for {epoch}", self._runs(begun)
                    return
                yield (
                    f"copies {rank.n} into {buffer}",
                    begun._replace(at="copy", copying=(buffer, at)),
                )
                return
            if self.together:
                taking = rank._replace(at="agree", epoch=epoch, answer=rank.n, copying=(0, at))
                taking = taking.stores(taken=Agreed(epoch, flags | WAITS, rank.n))
                yield f"takes {rank.n} for {epoch}, and waits", taking
                return
            writing = (*rank.writing, (epoch, rank.n))
            copied = rank._replace(at=at, epoch=epoch, answer=rank.n, writing=writing)
            copied = self._stores_copied(copied, None)
            yield f"copies {rank.n} for {epoch}", self._runs(copied)
        elif answer is Answer.GO_ON:
            yield "goes on", self._runs(rank._replace(at=self.between))
        elif answer is Answer.LEAVE_SAVED:
            yield "leaves, saved", _gone(rank, "finished" if after else "saved")
        elif answer is Answer.LEAVE_UNSAVED:
            yield "leaves, not saved", _gone(rank, "unsaved")

    def _agree(self, rank: Rank) -> Iterator[tuple[str, Rank]]:
        answer = while_agreeing(rank.order, rank.verdict, rank.epoch, rank.n)[0]
        if answer is Answer.SNAPSHOT:
            yield f"begins to save {rank.n} for {rank.epoch}", rank._replace(at="gather")
        elif answer is Answer.GO_ON:
            at = "after" if rank.copying[1] == "after" else "load"
            given_up = rank._replace(at=at, copying=(0, ""))
            failed = Agreed(rank.epoch, 0, rank.answer)
            yield f"gives {rank.n} for {rank.epoch} up", given_up.stores(failed=failed)
        elif answer is Answer.LEAVE_UNSAVED:
            yield from self._answer(rank, answer)

    def _stores_copied(self, rank: Rank, buffer: int | None) -> Rank:
        """Without gaps, that it has taken the step is told with the copy."""
        taken = Agreed(rank.epoch, with_buffer(0, buffer), rank.answer)
        copied = Agreed(rank.epoch, 0, rank.answer)
        if not self.gaps:
            return rank.stores(taken=taken, copied=copied)
        if buffer is None:
            rank = rank.stores(taken=taken)
        return rank.stores(copied=copied)

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
        known = self._controls[control].agreement
        if not rank.joined:
            yield f"{number} shows itself", self._rank_id(_shown(rank, self.delays)), control, ()
            return
        if known.phase is AgreementPhase.OVER or number in known.ranks.gone:
            return
        for index in range(1, len(rank.out)):
            read = self._rank_id(rank._replace(out=rank.out[index:]))
            events = changes(0, number, rank.out[0], rank.out[index])
            yield f"controller reads {number}", read, *self._decide(control, *events)
        if rank.at in GONE:
            read = self._rank_id(rank._replace(out=rank.out[:1]))
            gone = self._decide(control, ev.RankGone(0, number))
            yield f"{number} is known to be gone", read, *gone

    def _mishaps(self, world: World, number: int) -> Iterator[Move]:
        ids, control, rest = world
        rank = self._ranks[ids[number]]
        known = self._controls[control].agreement
        is_heard = (
            rank.joined
            and known.phase is not AgreementPhase.OVER
            and number not in known.ranks.gone
        )
        if rest.repeats and is_heard:
            events = changes(0, number, RankAnswers(), rank.out[0])
            after, stores = self._decide(control, *events)
            less = rest._replace(repeats=rest.repeats - 1)
            told = self._world(self._tell(ids, stores), after, less)
            yield f"controller is told again of {number}", told, False
        if rank.at in GONE:
            return
        head, tail = ids[:number], ids[number + 1 :]
        if rest.deaths:
            dead = (*head, self._rank_id(_gone(rank, "dead")), *tail)
            after = self._world(dead, control, rest._replace(deaths=rest.deaths - 1))
            yield f"{number} dies", after, False
        if rest.fails and rank.at == "copy":
            left = rank._replace(at=rank.copying[1], copying=(0, ""))
            taken = Agreed(rank.epoch, with_buffer(0, rank.copying[0]), rank.answer)
            left = left.stores(taken=taken, failed=Agreed(rank.epoch, 0, rank.answer))
            moved = (*head, self._rank_id(self._runs(left)), *tail)
            after = self._world(moved, control, rest._replace(fails=rest.fails - 1))
            yield f"{number} cannot copy", after, False
        if rest.fails and rank.under_way:
            (epoch, step, _), under_way = rank.under_way[0], rank.under_way[1:]
            left = rank._replace(under_way=under_way).stores(failed=Agreed(epoch, 0, step))
            moved = (*head, self._rank_id(left), *tail)
            after = self._world(moved, control, rest._replace(fails=rest.fails - 1))
            yield f"{number}'s copy of {step} fails", after, False
        if rest.fails and rank.writing:
            (epoch, step), left = rank.writing[0], rank.writing[1:]
            failed = rank._replace(writing=left).stores(failed=Agreed(epoch, 0, step))
            moved = (*head, self._rank_id(failed), *tail)
            after = self._world(moved, control, rest._replace(fails=rest.fails - 1))
            yield f"{number} cannot write", after, False
        if self._controls[control].phase is AgreementPhase.OVER and (
            any(self._ranks[i].at in ("dead", "unsaved") for i in ids)
        ):
            dead = (*head, self._rank_id(_gone(rank, "dead")), *tail)
            yield f"{number} is killed with its attempt", self._world(dead, control, rest), True

    def _moves_of_control(self, world: World) -> Iterator[Move]:
        rest = world.rest
        control = self._controls[world.control].agreement
        if control.phase is AgreementPhase.COMMITTING:
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
            yield "a save", self._hear(world, less, self._ask), False
        if rest.copies:
            less = rest._replace(copies=rest.copies - 1)
            yield "a save to memory", self._hear(world, less, self._copy), False
        if rest.stops:
            less = rest._replace(stops=rest.stops - 1)
            after = self._hear(world, less, STOP)
            if self._controls[after.control].agreement.is_stop:
                after = after._replace(rest=after.rest._replace(is_stop_ordered=True))
            yield "a stop", after, False
        elif rest.deadline:
            less = rest._replace(deadline=False)
            yield "the deadline", self._hear(world, less, ev.Tick(DEADLINE_NS)), False

    def _moves_in_memory(self, world: World) -> Iterator[Move]:
        """Seals and flushes, which know nothing of the ranks but what lies in the buffers."""
        rest = world.rest
        control = self._controls[world.control]
        if control.buffers.sealing:
            kept = control.buffers.sealing[0]
            self._check_kept(world, kept, "sealed")
            yield f"{kept.step} is sealed", self._sealed(world, kept), True
            if rest.fails:
                less = rest._replace(fails=rest.fails - 1)
                yield f"{kept.step} is not sealed", self._not_sealed(world, less, kept), False
        newest = control.buffers.newest
        if control.flushed is not None:
            yield f"{control.flushed.step} is flushed", self._flushed(world), True
            if rest.fails:
                less = rest._replace(fails=rest.fails - 1)
                yield (
                    f"{control.flushed.step} is not flushed",
                    self._not_flushed(world, less),
                    False,
                )
        elif newest is not None and newest.step > control.agreement.committed_step and rest.flushes:
            less = rest._replace(flushes=rest.flushes - 1)
            begun = self._replace_control(world, control._replace(flushed=newest))
            yield f"a flush of {newest.step}", begun._replace(rest=less), False

    def _sealed(self, world: World, kept: SetInBuffer) -> World:
        """What somebody waits for is flushed, as soon as the flush under way is over."""
        control = self._controls[world.control]
        control = control._replace(buffers=control.buffers.over(kept, is_sealed=True))
        world = self._replace_control(world, control)
        if not _is_awaited(control.agreement, kept):
            return world
        if control.flushed is not None and control.flushed.step != kept.step:
            world = self._flushed(world)
            control = self._controls[world.control]
        if control.agreement.committed_step >= kept.step:
            done = ev.Committed(0, control.agreement.epoch, kept.step)
            return self._hear(world, world.rest, done)
        return self._replace_control(world, control._replace(flushed=control.flushed or kept))

    def _flushed(self, world: World) -> World:
        control, rest = self._controls[world.control], world.rest
        kept = control.flushed
        assert kept is not None
        self._check_kept(world, kept, "flushed")
        made = (kept.epoch, kept.step)
        rest = rest._replace(commits=(*rest.commits, made))
        world = self._replace_control(world, control._replace(flushed=None))
        if _is_awaited(control.agreement, kept) and not control.buffers.sealing:
            return self._hear(world, rest, ev.Committed(0, control.agreement.epoch, kept.step))
        return self._hear(world, rest, ev.DurableBeside(0, kept.step))

    def _not_sealed(self, world: World, rest: Rest, kept: SetInBuffer) -> World:
        control = self._controls[world.control]
        control = control._replace(buffers=control.buffers.over(kept, is_sealed=False))
        after = self._replace_control(world, control)
        is_this = control.agreement.epoch == kept.epoch
        if not (is_this and _is_awaited(control.agreement, kept)):
            return after._replace(rest=rest)
        return self._hear(after, rest, ev.NotWritten(0, kept.epoch, kept.step, "disk full"))

    def _not_flushed(self, world: World, rest: Rest) -> World:
        """It is in memory still; what waits for it hears of that, as `run.flushing` tells it."""
        control = self._controls[world.control]
        kept, newest = control.flushed, control.buffers.newest
        assert kept is not None
        after = self._replace_control(world, control._replace(flushed=None))
        if not _is_awaited(control.agreement, kept) or control.buffers.sealing:
            return after._replace(rest=rest)
        is_sealed = newest is not None and newest.step == kept.step
        epoch = control.agreement.epoch
        failed = ev.NotWritten(0, epoch, kept.step, "disk full", is_sealed)
        return self._hear(after, rest, failed)

    def _replace_control(self, world: World, control: Control) -> World:
        return world._replace(control=self._control_id(control))

    # --- the controller, for real ---------------------------------------------------------------

    def _hear(self, world: World, rest: Rest, event: ev.Event) -> World:
        control, stores = self._decide(world.control, event)
        return self._world(self._tell(world.ranks, stores), control, rest)

    def _decide(self, control_id: int, *events: ev.Event) -> tuple[int, Stores]:
        """What the real controller makes of it, and what it stores in the ranks' words."""
        key = (control_id, events)
        known = self._decided.get(key)
        if known is None:
            known = self._decided[key] = self._decide_anew(control_id, events)
        return known

    def _decide_anew(self, control_id: int, events: tuple[ev.Event, ...]) -> tuple[int, Stores]:
        stores: list[tuple[str, int]] = []
        for event in events:
            known = self._controls[control_id]
            agreement, buffers = copy_of(known.agreement), known.buffers
            told = _heard(known.told, event)
            if buffers.in_all:
                agreement.free_buffers = buffers.free(known.pinned)
            actions = agree.step(agreement, event)
            _check_missed(known, event, actions)
            for action in actions:
                if isinstance(action, ev.SealBuffer):
                    buffers = buffers.copied(
                        SetInBuffer(0, action.epoch, action.step, action.buffer)
                    )
                elif isinstance(action, ev.PublishOrder):
                    buffer = buffer_of(action.flags)
                    if buffer is not None and any(one and one[1] == buffer for one in told):
                        raise Broken(f"buffer {buffer} is named, and a rank copies into it: {told}")
                    newest = buffers.newest
                    buffers = buffers if buffer is None else buffers.ordered(buffer)
                    if buffers.in_all > 1 and buffers.newest != newest:
                        raise Broken(f"the newest set is given away: {newest}")
            control_id = self._control_id(Control(agreement, buffers, told, known.flushed))
            if isinstance(event, ev.DurableBeside):  # PublishCommitted
                stores.append(("committed", agreement.committed_step))
            for action in actions:
                if isinstance(action, ev.LetRanksLeave):  # PublishCommitted
                    stores.append(("committed", action.step))
                elif isinstance(action, ev.PublishOrder):
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
        if not rank.joined:  # of each word the newest is what it will find
            newest = tuple(dict(rank.coming + stores).items())
            return self._rank_id(rank._replace(coming=newest))
        if self.delays:
            return self._rank_id(rank._replace(coming=rank.coming + stores))
        return self._rank_id(rank._replace(**dict(stores)))

    # --- what must never be ---------------------------------------------------------------------

    def _check_commit(self, world: World, made: tuple[int, int]) -> None:
        for i in world.ranks:
            rank = self._ranks[i]
            if (rank.epoch, rank.answer) != made or made in rank.writing:
                raise Broken(f"{made} is committed without a durable copy of {rank}")
        # The same step may be committed twice: once from memory, once by the ranks themselves.
        others = [one for one in world.rest.commits if one != made or not self.successions]
        if any(epoch >= made[0] or step > made[1] for epoch, step in others):
            raise Broken(f"{made} is committed after {world.rest.commits}")

    def _check_kept(self, world: World, kept: SetInBuffer, done: str) -> None:
        made = (kept.epoch, kept.step)
        for i in world.ranks:
            if self._ranks[i].shards[kept.buffer] != made:
                raise Broken(f"{made} is {done}, and a buffer holds {self._ranks[i].shards}")

    def _check_copying(self, world: World, before: int, after: Rank) -> None:
        """What is overwritten is no set that anybody is reading."""
        was = self._ranks[before]
        if len(after.under_way) > len(was.under_way):
            buffer = after.under_way[-1][2]
        elif after.at == "copy" != was.at:
            buffer = after.copying[0]
        else:
            return
        control = self._controls[world.control]
        if buffer in control.pinned or any(k.buffer == buffer for k in control.buffers.sealing):
            raise Broken(f"{after} overwrites what is being read: {control}")

    def _check_leaving(self, world: World, rank: Rank) -> None:
        if rank.at == "wait" and rank.under_way:
            raise Broken(f"waits for a stop, and still copies: {rank}")
        if rank.at in ("saved", "finished") and all(s != rank.n for _, s in world.rest.commits):
            newest = self._controls[world.control].buffers.newest
            if rank.at == "saved" or newest is None or newest.step != rank.n:
                raise Broken(f"left before the commit: {rank}")
        if rank.at == "unsaved":
            control = self._controls[world.control].agreement
            if control.phase is not AgreementPhase.OVER:
                raise Broken(f"left in the middle: {rank}, {control}")
            by_another = self.successions > world.rest.successions
            if self.faultless and not (control.why.startswith("no step") or by_another):
                raise Broken(f"left unsaved for no reason: {rank}, {control}")
            ordered = self.faultless and world.rest.is_stop_ordered
            if ordered and all(step < rank.n for _, step in world.rest.commits):
                raise Broken(f"a completed step is thrown away: {rank}, {control}")

    def is_end(self, world: World) -> bool:
        ranks = [self._ranks[i] for i in world.ranks]
        if not all(rank.at in GONE for rank in ranks):
            return False
        left = [rank.at for rank in ranks]
        newest = self._controls[world.control].buffers.newest
        if newest is not None:
            self._check_kept(world, newest, "the newest")
        torn = "dead" in left or len({rank.n for rank in ranks}) > 1
        if torn and self.faultless and "unsaved" not in left:
            raise Broken(f"ends in {ranks}")
        return True


def _gone(rank: Rank, how: str) -> Rank:
    """Leave; what the process had not stored is lost, what nobody will look at is forgotten."""
    return rank._replace(at=how, coming=(), order=0, verdict=0, joined=True, under_way=())


def _check_missed(known: Control, event: ev.Event, actions: tuple[ev.Action, ...]) -> None:
    """A rank that has taken the step may go on."""
    if not isinstance(event, ev.Progress):
        return
    if any(isinstance(one, ev.Abort) for one in actions) and (
        (known.told[event.rank] or NOTHING)[0] == known.agreement.epoch
    ):
        raise Broken(f"{event} counts as a miss, and it has taken the step: {known}")


def may_take(rank: Rank) -> bool:
    """Whether it may take a step: not before its last copy is over."""
    return not rank.under_way


def _heard(
    told: tuple[tuple[int, int] | None, ...], event: ev.Event
) -> tuple[tuple[int, int] | None, ...]:
    """Who copies into which buffer, by what the ranks themselves have told."""
    if isinstance(event, ev.Taken):
        now = None if event.buffer is None else (event.epoch, event.buffer)
    elif isinstance(event, ev.Snapped | ev.SaveFailed | ev.RankGone):
        before = told[event.rank]
        is_other = not isinstance(event, ev.RankGone) and before and before[0] != event.epoch
        now = before if is_other else None
    else:
        return told
    return (*told[: event.rank], now, *told[event.rank + 1 :])


def _shown(rank: Rank, delays: bool) -> Rank:
    """The controller knows of it, and has stored into its page what it stored for the others."""
    if delays:
        return rank._replace(joined=True)
    return rank._replace(joined=True, coming=(), **dict(rank.coming))


def _with(
    shards: tuple[tuple[int, int], ...], place: int, made: tuple[int, int]
) -> tuple[tuple[int, int], ...]:
    return (*shards[:place], made, *shards[place + 1 :])


def _is_awaited(agreement: Agreement, kept: SetInBuffer) -> bool:
    """As `core.run.flushing` has it: the agreement waits for this set to become durable."""
    is_written = agreement.phase is AgreementPhase.WRITING and agreement.buffer is not None
    return is_written and agreement.step == kept.step


def answer_due_ns(control: Agreement) -> int:
    stop = control.stop and replace(control.stop, leave_by_ns=None)
    due = agree.wake_at_ns(replace(control, stop=stop))
    assert due is not None
    return due


SCALARS = [one.name for one in fields(Agreement) if one.name != "ranks"]


def frozen(agreement: Agreement) -> tuple[object, ...]:
    """All that it knows, to be compared and looked up: what is counted follows from it."""
    scalars = (getattr(agreement, name) for name in SCALARS)
    return *scalars, views(agreement.ranks), copies(agreement.ranks)


def copies(ranks: Ranks) -> tuple[tuple[object, ...], ...]:
    """Of each rank: whether its copy is there, and into which buffer another one goes."""
    return tuple((n in ranks.copied, ranks.copying.get(n)) for n in range(len(ranks.steps)))


def views(ranks: Ranks) -> tuple[tuple[object, ...], ...]:
    """Of each rank: step, ended, gone, answer, durable."""
    return tuple(
        (step, n in ranks.ended, n in ranks.gone, ranks.answers.get(n), n in ranks.durable)
        for n, step in enumerate(ranks.steps)
    )


def renumbered(ranks: Ranks, order: tuple[int, ...]) -> Ranks:
    """The same ranks, of which number `order[n]` is now number n."""
    numbers = {before: after for after, before in enumerate(order)}
    named = ("ended", "gone", "copied", "durable", "settled", "early", "late")
    return replace(
        ranks,
        steps=[ranks.steps[before] for before in order],
        answers={numbers[before]: step for before, step in ranks.answers.items()},
        copying={numbers[before]: copy for before, copy in ranks.copying.items()},
        **{name: {numbers[before] for before in getattr(ranks, name)} for name in named},
    )
