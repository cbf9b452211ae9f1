"""What must be true whenever something happens to a run, whatever that is, and when it is over.

One `Watch` looks at all supervisors of a run, one after the other or, where the first was cut off,
two at a time. It keeps its own plain books beside those of the machines, and raises Broken with a
sentence when the two do not agree.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path

from run_facts import facts_of

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.event_json import decode, encode
from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
from holdfast.core.ledger import facts
from holdfast.core.plain_json import copied
from holdfast.core.run import as_json, restart
from holdfast.core.run.course import RunState
from holdfast.core.run.machine import TABLE, RunMachine, RunPolicy
from holdfast.core.run.rollback import Wish
from holdfast.core.run.state import State
from holdfast.core.run.stops import STOP_NOW_LIMIT_NS
from holdfast.core.save import events as news
from holdfast.core.save.word import MAX_EPOCH, buffer_of
from holdfast.sim.clock import SECOND
from holdfast.sim.virtual.broken import Broken, require
from holdfast.sim.virtual.host import STUCK_NS
from holdfast.sim.virtual.link import AGAIN_NS, LOST
from holdfast.sim.virtual.ranks import VirtualRank
from holdfast.sim.virtual.store import VirtualStore
from holdfast.sim.virtual.world import HEARTBEAT_NS, VirtualWorld
from holdfast.snapshot.sets import set_name

sys.path.insert(0, str(Path(__file__).parents[1] / "core" / "ledger"))
from plain_ledger import account

sys.path.pop(0)

EXIT_CODES = (0, 1, 69, 75, 78)
FREE = ("preempted", "stopped")  # ends that cost nothing of the budget
# After a stop with a deadline: a tree that will not die takes ten seconds to be given up.
LATE_NS = 12 * SECOND
# What an elastic run ends with that has waited for hosts after it began; a host that is lost is
# noticed within a minute.
UNHEARD = "nothing was heard of its processes yet"
NOTICED_S = 65.0
MOST_EVENTS = 100_000
REMEMBERED = 32  # after so many events what is remembered is copied
STOPS = (ev.StopAsked, ev.StopNowAsked, ev.Interrupted)
ROUTINE = {ev.TimerFired, ev.Examined, ev.Flushing}  # looks, which go on for as long as it takes

BUSY = (facts.AttemptFact, facts.WaitFact)
STEPPED = (facts.RestoreFact, facts.StepsFact)
OF_AN_ATTEMPT = (*STEPPED, facts.FaultFact, facts.SpanFact)


class Books:
    """What is written down about one supervisor, beside what its machine remembers."""

    def __init__(self, world: VirtualWorld, policy: RunPolicy) -> None:
        self.world = world
        self.again = RunMachine(policy)  # hears what the journal has kept
        self.left: tuple[RunState, RunState] | None = None  # what it was, and a copy of that
        self.events = 0
        self.is_gone = True  # no attempt of its own is there
        self.epoch = 0  # the newest order's
        self.copying: dict[int, tuple[int, int | None]] = {}  # of a rank: epoch, into which buffer
        self.sealed: set[int] = set()  # steps that memory held, by what was heard
        self.host_lost_in = -1  # the newest attempt that has lost a host, by what was heard
        self.reached = world.machine.high_water  # by all ranks of one attempt, in truth
        self.row: list[str] = []  # causes of the ends since a step was last completed
        self.reached_before = 0
        self.has_gone_back = False  # then progress is counted otherwise, and this book is closed
        self.wish: Wish | None = None  # that the choice goes by
        self.good: set[tuple[int, int]] = set()  # (attempt, step) that may be chosen
        self.told: tuple[int, int] | None = None  # of them, the newest that was told as durable
        self.finish_by_ns: int | None = None
        self.launched_ns = world.opened_ns  # the newest attempt was ordered to begin
        self.is_interrupted = False
        # What was put in the store, and whether the lease was seen to be ours since.
        self.put: dict[str, bool] = {}


class Watch:
    """Of one run: give it to each `VirtualWorld`, and ask `at_end` when the last is over."""

    def __init__(self, most_events: int = MOST_EVENTS, *, as_text: bool | None = True) -> None:
        """`as_text`: what is replayed has been text, as in a journal; None: it is as it was."""
        self._books: list[Books] = []
        self._told: set[tuple[int, int]] = set()  # sets that were told as durable
        self._most_events, self._as_text = most_events, as_text

    def _of(self, world: VirtualWorld) -> Books:
        for books in reversed(self._books):
            if books.world is world:
                return books
        policy = world.policy if self._as_text is None else _as_written(world.policy)
        self._books.append(Books(world, policy))
        return self._books[-1]

    # --- whenever the machine has answered --------------------------------------------------

    def decided(self, world: VirtualWorld, event: ev.Event, answer: tuple[act.Action, ...]) -> None:
        """Replay, one attempt at a time, orders, and budgets."""
        books, kind = self._of(world), type(event)
        books.events += kind not in ROUTINE
        require(books.events < self._most_events, "it goes round in circles")
        if books.events % REMEMBERED == REMEMBERED // 2:
            self._goes_on_elsewhere(books)
        state = books.again.state
        again = books.again.handle(as_journaled(event, as_text=self._as_text))
        to = books.again.state
        if to is not state and to not in TABLE[state][kind].to:
            raise Broken(f"{event} led from {state} to {to}: not in the table")
        if again != answer:  # the words only then: they take longer to find than the answer
            raise Broken(f"replayed, {event} is answered with {again}, not {answer}")
        if kind is ev.Launched:
            books.is_gone = False
        elif kind is ev.TreeGone or kind is ev.HostLost:
            books.is_gone = True
        elif kind is ev.RollbackAsked or (kind is ev.Opened and event.wishes):  # type: ignore[union-attr]
            books.has_gone_back = True
        elif isinstance(event, STOPS):
            self._note_stop(books, event)
        if world.reached > books.reached:
            books.reached = world.reached
        if isinstance(event, ev.Heard):
            self._note_copies(books, event.news)
        elif isinstance(event, ev.RankExited):
            books.copying.pop(event.rank, None)
            if event.exit.host_lost:
                books.host_lost_in = event.attempt
        elif isinstance(event, ev.Sealed):
            is_whole = event.of_attempt != books.host_lost_in
            if not is_whole:
                raise Broken(f"{event}, and one of its hosts was lost")
            books.sealed.add(event.step)
        for action in answer:
            if isinstance(action, act.CarryOut):
                self._carried_out(books, event, action.what)
            elif isinstance(action, act.EndAttempt):
                self._ended(books, action, answer)
            elif isinstance(action, act.Launch):
                self._launched(books, action)
        seen = world.machine.high_water
        if seen > books.reached and seen > world.machine.resume.step:
            words = f"the machine believes in step {seen}, and all ranks have done {books.reached}"
            raise Broken(words)

    def _goes_on_elsewhere(self, books: Books) -> None:
        """What replays goes on from a copy; what was copied is not touched any more."""
        if books.left is not None:
            left, was = books.left
            require(left == was, "what was left behind has changed")
        here = books.again.course
        there = copied(here)
        require(there == here, "a copy is something else")
        books.left = here, copied(here)
        books.again = RunMachine.of(there)

    def _note_stop(
        self, books: Books, event: ev.StopAsked | ev.StopNowAsked | ev.Interrupted
    ) -> None:
        asked_ns: int | None = event.at_ns
        if isinstance(event, ev.StopAsked):
            asked_ns = event.deadline_ns
        elif isinstance(event, ev.Interrupted) and not books.is_interrupted:
            books.is_interrupted, asked_ns = True, None
        if asked_ns is not None:
            by_ns = max(event.at_ns, asked_ns) + LATE_NS
            by_ns += 2 * way_ns(books.world.delays.link_ns)  # the order there, what came of it back
            if books.world.machine.state is State.LAUNCHING:  # the store has its time first
                by_ns += STOP_NOW_LIMIT_NS
            known_ns = books.finish_by_ns
            books.finish_by_ns = by_ns if known_ns is None else min(by_ns, known_ns)

    def _note_copies(self, books: Books, heard: news.Event) -> None:
        """Who copies into which buffer, by what the ranks themselves have told."""
        if isinstance(heard, news.Taken):
            books.copying[heard.rank] = heard.epoch, heard.buffer
        elif isinstance(heard, news.Snapped | news.SaveFailed):
            epoch, _ = books.copying.get(heard.rank, (0, None))
            if heard.epoch == epoch:
                del books.copying[heard.rank]

    def _carried_out(self, books: Books, event: ev.Event, what: news.Action) -> None:
        heard = event.news if isinstance(event, ev.Heard) else None
        if isinstance(what, news.Abort) and isinstance(heard, news.Progress):
            epoch, _ = books.copying.get(heard.rank, (0, None))
            if epoch == what.epoch:
                raise Broken(f"{heard} counts as a miss, and it has taken the step")
        if isinstance(what, news.PublishOrder):
            written = {buffer for _, buffer in books.copying.values()} - {None}
            is_written = buffer_of(what.flags) in written
            if is_written:
                raise Broken(f"{what} names a buffer, and a rank copies into it")
            newer = books.epoch % MAX_EPOCH + 1
            require(what.epoch == newer, f"order {what.epoch} follows order {books.epoch}")
            books.epoch = what.epoch

    def _launched(self, books: Books, action: act.Launch) -> None:
        books.launched_ns = books.world.now_ns
        require(books.is_gone, "a new attempt while the old one is there")
        require(
            all(one.attempt < action.attempt for one in books.world.launches),
            f"attempt {action.attempt} is launched twice",
        )
        self._chosen(books, action.resume)
        self._whether_it_is_over(books.world.store, action)
        books.epoch = 0
        books.copying = {}
        books.reached_before = max(books.reached, action.resume.step)
        books.reached = books.reached_before

    def _whether_it_is_over(self, store: VirtualStore, action: act.Launch) -> None:
        """Where the script has ended its training, by the record, ranks are told so."""
        told = action.resume.ended_until
        if action.rollback is not None:
            require(told is None, "who goes back is told that the training is over")
        if not store.training_ends:
            require(told is None, "a training is over that nobody has ended")
            return
        newest, end = max(store.training_ends.items())
        since = [one for one in store.attempts if newest <= one.attempt < action.attempt]
        is_done = any(one.end is not None and one.end.done for one in since)
        went_back = any(one.rollback for one in (*since[1:], action))
        if action.resume.step == end.step and not (is_done or went_back):
            require(told == end.until, f"{end} is on record, and the ranks are told of {told}")

    def _ended(self, books: Books, action: act.EndAttempt, answer: tuple[act.Action, ...]) -> None:
        """The budget, and the pause before the next attempt, counted on fingers."""
        world = books.world
        # What a lost host's ranks did last, nobody has heard: the controller counts less.
        is_unsure = bool(world.store.wishes) or world.lost_hosts > 0
        books.has_gone_back = books.has_gone_back or is_unsure
        if world.machine.high_water > books.reached_before:
            books.row = []
        else:
            books.row.append(action.cause)
        if books.has_gone_back or not isinstance(world.policy.restart, restart.AllOf):
            return
        timers = {a.timer: a.at_ns for a in answer if isinstance(a, act.SetTimer)}
        goes_on = (
            "restart" in timers
            or "seal" in timers
            or any(isinstance(a, act.Choose) for a in answer)
        )
        if not goes_on:
            return
        for part in world.policy.restart.parts:
            if isinstance(part, restart.Budget):
                spent = sum(cause not in FREE for cause in books.row)
                require(spent < part.failures, f"{spent} failures in a row, and it goes on")
            elif isinstance(part, restart.BackOff):
                due_s = part.first_s * part.factor ** (len(books.row) - 1) if books.row else 0
                if action.cause == "bad_checkpoint":
                    due_s = 0
                waits_ns = timers.get("restart", world.now_ns) - world.now_ns
                least_ns = int(min(due_s, part.cap_s) * SECOND)
                require(waits_ns >= least_ns, f"it waits {waits_ns} ns, and should {least_ns} ns")

    # --- whenever something is done ---------------------------------------------------------

    def starts(self, world: VirtualWorld, host: int) -> None:
        """Nothing of an earlier supervisor's is left on that host."""
        for books in self._books:
            other = books.world
            is_here = other.memory is world.memory
            is_inhabited = bool(other.hosts[host].ranks_left)
            require(not (is_here and is_inhabited), "two attempts at a time on one host")

    def sees(self, world: VirtualWorld, wish: Wish | None) -> None:
        """What may be chosen: sets on the lineage with every shard that are not known to be bad."""
        store, books = world.store, self._of(world)
        stored = {
            (one.attempt, one.step)
            for one in store.usable()
            if one.name not in world.rejected and is_on_lineage(store, one.attempt, one.step)
        }
        for attempt, step in stored:
            self._is_complete(store, attempt, step)
        sealed = {
            (one.attempt, one.step)
            for _, one in world.memory.sets()
            if one.name not in world.rejected_copies and is_on_lineage(store, one.attempt, one.step)
        }
        told = max((one for one in self._told if is_on_lineage(store, *one)), default=None)
        is_known_bad = told is not None and set_name(*told) in world.rejected
        books.wish, books.good = wish, stored | sealed
        books.told = None if is_known_bad else told

    def _chosen(self, books: Books, resume: ev.Resume) -> None:
        """It is the newest of what was seen."""
        found = None if resume.set_name is None else (resume.parent, resume.step)
        if books.wish is None:
            newest = max(books.good, default=None)
            require(found == newest, f"{found} was chosen, and {newest} is the newest")
            if books.told is not None:
                is_kept = newest is not None and newest >= books.told
                require(is_kept, f"{books.told} was told as durable, and {found} is chosen")
        elif found is not None:
            require(found in books.good, f"{resume} is no set of the lineage")

    def restored(self, world: VirtualWorld, rank: VirtualRank) -> None:
        """Nothing is trained on that was not verified, or is another's."""
        resume = rank.resume
        if resume.set_name is None:
            return
        if resume.buffer is None:
            require(resume.set_name not in world.store.unreadable, "it trains on a corrupt set")
            is_there = any(one.name == resume.set_name for one in world.store.sets)
            require(is_there, f"{resume.set_name} was deleted while it is restored")
            return
        require(resume.set_name not in world.store.spoiling, "it trains on a corrupt set in memory")
        here = world.memory.shards.get((resume.buffer, rank.rank))
        if here is None or (here.attempt, here.step) != (resume.parent, resume.step):
            holds = f"buffer {resume.buffer} holds {here}"
            raise Broken(f"rank {rank.rank} restores {resume}, and {holds}")
        host = next(n for n, ranks in enumerate(world.placement) if rank.rank in ranks)
        if (host, resume.buffer) not in world.memory.seals:
            raise Broken(f"{resume} is not sealed")

    def commits(self, world: VirtualWorld, attempt: int, step: int) -> None:
        """A set has the same step of every rank."""
        self._is_complete(world.store, attempt, step)

    def put(self, world: VirtualWorld, what: str) -> None:
        """A manifest, or a mark: the lease must be looked at before it is made use of."""
        self._of(world).put.setdefault(what, False)

    def looked(self, world: VirtualWorld, *, is_ours: bool) -> None:
        """What was put before counts, or never will."""
        if is_ours:
            put = self._of(world).put
            put.update(dict.fromkeys(put, True))

    def tells(self, world: VirtualWorld, attempt: int, step: int) -> None:
        """Only what nobody can have passed over."""
        name = set_name(attempt, step)
        is_ours = self._of(world).put.get(f"manifest of {name}")
        require(is_ours, f"{name} is told as durable without a look")
        self._told.add((attempt, step))

    def deletes(self, world: VirtualWorld, name: str) -> None:
        """Only what nobody can have chosen."""
        require(world.store.is_doomed(name), f"{name} is deleted without a mark that counts")
        is_ours = self._of(world).put.pop(f"mark of {name}", False)
        require(is_ours, f"{name} is deleted without a look")
        told = {one for one in self._told if is_on_lineage(world.store, *one)}
        # Retention may: a newer one was durable. Who goes back behind that has what memory holds.
        self._told -= {one for one in told if set_name(*one) == name and one != max(told)}

    def _is_complete(self, store: VirtualStore, attempt: int, step: int) -> None:
        ranks = next(one.ranks for one in store.attempts if one.attempt == attempt)
        lacking = [rank for rank in range(ranks) if (attempt, step, rank) not in store.shards]
        require(not lacking, f"the set of step {step}, attempt {attempt}, lacks ranks {lacking}")

    def left_saved(self, world: VirtualWorld, rank: VirtualRank, step: int) -> None:
        """Nobody leaves before the commit; with the last step, before memory holds it."""
        kept = {one.step for one in world.store.sets}
        if world.shape.is_last(step):
            kept |= {one.step for _, one in world.memory.sets()}
            if world.lost_hosts or world.memory.has_vanished:
                # What is gone was there, by all that anybody knew.
                kept |= self._of(world).sealed
        require(step in kept, f"rank {rank.rank} leaves with step {step}, which is in no set")

    # --- when all is over -------------------------------------------------------------------

    def at_end(self, now_ns: int) -> None:
        """What must be true of the whole story."""
        for books in self._books:
            self._finished(books, now_ns)
        self._lineage()
        worlds = [books.world for books in self._books]
        if all(one.over_ns <= other.opened_ns for one, other in pairwise(worlds)):
            # While two are there, the later one's claim counts.
            _ledger(worlds, now_ns, as_text=self._as_text is not None)

    def _finished(self, books: Books, now_ns: int) -> None:
        world = books.world
        if world.died_ns is not None:
            return
        finish = world.finish
        require(finish is not None, "it never ends")
        assert finish is not None
        require(finish.exit_code in EXIT_CODES, f"exit code {finish.exit_code}")
        if books.finish_by_ns is not None:
            late_s = (world.finished_ns - books.finish_by_ns - world.held_ns) / SECOND
            require(late_s <= 0, f"a stop took {late_s:.3f} s too long")
        if world.machine.course.policy.is_elastic and UNHEARD in finish.words:
            waited_s = (world.finished_ns - books.launched_ns - world.held_ns) / SECOND
            require(waited_s < NOTICED_S, f"it waited for {waited_s:.3f} s, and could do without")
        if finish.exit_code == 0 and world.machine.saving.joined and world.shape.until:
            kept = {one.step for one in world.store.sets} | {step for _, step in self._told}
            require(any(map(world.shape.is_last, kept)), "done, and the last step is not saved")
        starts = [f["attempt"] for f in world.recorded if f["fact"] == "attempt_start"]
        ends = [f["attempt"] for f in world.recorded if f["fact"] == "attempt_end"]
        require(starts == ends == sorted(set(starts)), f"began: {starts}, ended: {ends}")
        on_record = [one.attempt for one in world.store.attempts if one.epoch == world.epoch]
        ended = [one.attempt for one in world.ends]
        require(ended == on_record, f"on record: {on_record}, ended: {ended}")

    def _lineage(self) -> None:
        """Each wish was granted once; each attempt has one creator, in the order of the leases."""
        launches = [one for books in self._books for one in books.world.launches]
        granted = [name for one in launches if one.rollback for name in one.rollback.ids]
        for books in self._books[-1:]:
            attempts = books.world.store.attempts
            names = [name for one in attempts if one.rollback for name in one.rollback.ids]
            require(len(names) == len(set(names)), f"a wish was granted twice: {granted}")
            numbers = [one.attempt for one in attempts]
            require(numbers == sorted(set(numbers)), f"attempts on record: {numbers}")
        for one, other in pairwise(self._books):
            taken_ns = other.world.opened_ns
            gone_by_ns = taken_ns + HEARTBEAT_NS + STUCK_NS + LATE_NS
            is_gone = one.world.over_ns <= gone_by_ns
            require(is_gone, "a supervisor whose lease was lost goes on")


def way_ns(link_ns: tuple[int, ...]) -> int:
    """How long news takes to the other end at most, where messages go astray like that in turn."""
    if not link_ns:
        return 0
    worst = streak = 0
    for takes_ns in link_ns * 2:
        streak = streak + 1 if takes_ns == LOST else 0
        worst = max(worst, streak)
    return worst * AGAIN_NS + max(0, *link_ns)


@lru_cache  # the supervisors of a run have the same
def _as_written(policy: RunPolicy) -> RunPolicy:
    return as_json.read_policy(json.loads(json.dumps(as_json.write_policy(policy))))


def as_journaled(event: ev.Event, *, as_text: bool | None) -> ev.Event:
    """What a reader of the controller's journal gets of this event (`controller.replay`)."""
    if as_text is None:
        return event
    said = event.news if isinstance(event, ev.Heard) else None
    if isinstance(event, ev.Heard) and isinstance(said, news.Progress):  # 32 bytes, no JSON
        at_ns = event.at_ns
        return ev.Heard(at_ns, event.attempt, news.Progress(at_ns, said.rank, said.step))
    plain = encode(event)
    return decode(json.loads(json.dumps(plain)) if as_text else plain)


def is_on_lineage(store: VirtualStore, attempt: int, step: int) -> bool:
    """Whether the newest attempt comes from that step: from child to parent, one by one."""
    by_number = {one.attempt: one for one in store.attempts}
    if not by_number:
        return False
    number, up_to = max(by_number), None
    while number is not None:
        if number == attempt:
            return up_to is None or step <= up_to
        number, up_to = by_number[number].parent, by_number[number].resume_step
    return False


def _ledger(worlds: list[VirtualWorld], now_ns: int, *, as_text: bool) -> None:
    """What was recorded is a legal history; every nanosecond and every step counts once."""
    by_world = [facts_of(world) for world in worlds]
    told = list(_facts(by_world, now_ns, worlds[0].shape.ranks))
    if as_text:
        require(parse_text("".join(to_lines(told))).facts, "nothing is on record")
    is_legal(told)
    for found in by_world:  # one that was overtaken may wait on for a moment, which counts for none
        _follow_one_another(fact for fact in found if isinstance(fact, BUSY))
    result = account(told, now_ns)  # which raises unless the kinds add up
    last = [f for f in told if isinstance(f, STEPPED)]
    if last:
        number = max(fact.attempt for fact in last)
        mine = [fact for fact in last if fact.attempt == number]
        reached = max(f.step if isinstance(f, facts.RestoreFact) else f.last for f in mine)
        kept = result.steps_kept
        require(
            kept == reached, f"{kept} steps are kept, and the last attempt has come to {reached}"
        )


def is_legal(told: list[facts.Fact]) -> None:
    """What facts say together can be, as a reader of their text finds it (`core.history.check`)."""
    attempts = [fact for fact in told if isinstance(fact, facts.AttemptFact)]
    _follow_one_another(attempts)
    by_number = {one.attempt: one for one in attempts}
    require(len(by_number) == len(attempts), f"an attempt is told twice: {attempts}")
    steps: dict[int, list[facts.StepsFact]] = {}
    chips = next(fact.chips for fact in told if isinstance(fact, facts.RunFact))
    for fact in told:
        if isinstance(fact, OF_AN_ATTEMPT) and fact.attempt not in by_number:
            raise Broken(f"{fact}, and nothing is told of that attempt")
        if isinstance(fact, facts.StepsFact):
            steps.setdefault(fact.attempt, []).append(fact)
        elif isinstance(fact, facts.CapacityFact):
            require(fact.chips <= (fact.of or chips), f"{fact} of {chips}")
    for number, rows in steps.items():
        of = by_number[number]
        bounds = [at_ns or 0 for row in rows for at_ns in (row.start_ns, row.end_ns)]
        if bounds != sorted(bounds) or bounds[0] < of.start_ns or bounds[-1] > (of.end_ns or 0):
            raise Broken(f"steps out of order, or outside of {of}: {rows}")


def _follow_one_another(of: Iterable[facts.AttemptFact | facts.WaitFact]) -> None:
    busy = sorted([(fact.start_ns, fact.end_ns or 0) for fact in of])
    if any(one[1] > other[0] for one, other in pairwise(busy)):
        raise Broken(f"they overlap: {busy}")


def _facts(by_world: list[list[facts.Fact]], now_ns: int, ranks: int) -> Iterator[facts.Fact]:
    run_ended_ns = None
    for found in by_world:
        for fact in found:
            if isinstance(fact, facts.RunFact):
                run_ended_ns = fact.ended_ns
            elif not isinstance(fact, facts.SeenFact):
                yield fact
    yield facts.RunFact("virtual", 0, run_ended_ns, ranks)
    yield facts.SeenFact(now_ns)
