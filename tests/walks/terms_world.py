"""Controllers of one run that take it over from each other, with real rules and a real store.

Of each controller the run's machine, its storekeeper, its lease and the order of all its steps are
real. What is not: the network, over which a controller reaches the host that it has, or does not;
and the host, which does at once what it is ordered. A host that has answered a controller refuses
those of lower terms. `broken` mutants of the rules are planted by the tests.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from itertools import count, pairwise
from pathlib import Path
from unittest import mock

from holdfast.controller import storekeeper
from holdfast.controller.controller import Controller
from holdfast.controller.opening import opened, running
from holdfast.controller.ports import OwnHosts
from holdfast.controller.storekeeper import AttemptFacts, Storekeeper
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.adoption import LastOrdered
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.report import HostReport, RankState
from holdfast.core.run.machine import RunPolicy
from holdfast.core.save import events as news
from holdfast.core.save import policy as saves
from holdfast.core.save.ranks import RankAnswers
from holdfast.core.save.word import Agreed, Order
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN, RunHeld
from holdfast.journal import control
from holdfast.journal import lease as leases
from holdfast.journal.adopt import close_attempts
from holdfast.journal.attempts import attempts, lineage
from holdfast.journal.holder import RunHolder
from holdfast.journal.lease import LastWords, acquire, over_meanwhile
from holdfast.journal.store import RunFolder, RunStore
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.sets import list_sets, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from quiet_host import QuietHost
from stepwise import Broken, Program, at_once, step

sys.path.pop(0)

MEMORY_BASE = Path("/dev/shm")
MS = 1_000_000


class WalkedHost(QuietHost):
    """One host with one rank. `term`: the highest that it has answered."""

    def __init__(self, world: Terms, number: int) -> None:
        super().__init__()
        self.term = 0
        self.report = HostReport()
        self.is_up = False
        self.told_over: list[LastWords] = []
        self._world = world
        self._number = number
        self._step = 0
        self._taken = self._durable = Agreed(0, 0, 0)

    @property
    def state(self) -> Hashable:
        """All that matters of it."""
        orders = self.order_word, self.verdict_word, self._step, self._taken, self._durable
        told = tuple(self.told_over)
        return self.term, self.report.attempt, self.report.number, self.is_up, orders, told

    def hears(self, term: int) -> bool:
        """Whether it answers the controller of that term."""
        if term < self.term:
            return False
        if term > self.term:
            self.term = term
            self.meet_controller()
        return True

    def restart(self) -> None:
        """Its agent dies, and its rank with it; another one comes, which knows of no term."""
        self.term, self.is_up, self.report = 0, False, HostReport()
        self._step = self.order_word = self.verdict_word = 0
        self._taken = self._durable = Agreed(0, 0, 0)
        self.meet_controller()

    def _is(self, **answers: object) -> None:
        self.report.ranks = (
            RankState(
                True,
                RankAnswers(
                    step=self._step,
                    copied=self._taken,
                    taken=self._taken,
                    durable=self._durable,
                ),
            ),
        )
        self.report.number += 1

    # --- core.hosts.order.Host --------------------------------------------------------------

    def launch(self, action: act.Launch) -> None:
        if self.is_up:
            raise Broken(f"host {self._number} is to start attempt {action.attempt} beside another")
        self._world.started(self._number, action.attempt)
        self.report.begin(action.attempt, action.resume.step, 1)
        self._step, self.is_up = action.resume.step + 1, True
        self._taken = self._durable = Agreed(0, 0, 0)
        self.report.note(ev.Launched(0, action.attempt))
        self._is()

    def publish_order(self, order: news.PublishOrder, deadline_ns: int | None) -> None:
        """The rank comes to that step at once, and its shard is durable."""
        self._world.ordered(self.report.attempt, order)
        if not self.is_up:
            return
        if order.flags & Order.LEAVE:
            self._exits(EXIT_SAVED_START_ME_AGAIN)
        elif self._taken.epoch != order.epoch and order.step >= self._step:
            self._step = order.step
            self._world.write(self.report.attempt, order.step)
            self._taken = self._durable = Agreed(order.epoch, order.flags, order.step)
            self._is()

    def publish_verdict(self, verdict: news.PublishVerdict) -> None:
        self._world.judged(self.report.attempt, verdict)
        if not self.is_up or verdict.epoch != self._taken.epoch:
            return
        if verdict.flags & Order.COMMITTED:
            self._world.tell(self.report.attempt, verdict.step)
            if self._taken.flags & Order.STOP:
                self._exits(EXIT_SAVED_START_ME_AGAIN)
            elif self._step == verdict.step:
                self._step += 1
                self._is()

    def kill(self) -> None:
        if self.is_up:
            self._exits(None)

    def _exits(self, code: int | None) -> None:
        self.is_up = False
        attempt, how = self.report.attempt, Exit(signal=9) if code is None else Exit(code=code)
        self.report.note(ev.RankExited(0, attempt, 0, 0, how))
        self.report.note(ev.TreeGone(0, attempt))
        self._is()


class Inline:
    """A `controller.worker.Worker` whose jobs are done by the controller's own thread."""

    def __init__(self, _: str, failed: Callable[[BaseException], None]) -> None:
        self.jobs: deque[Callable[[], None]] = deque()
        self._failed = failed

    def submit(self, job: Callable[[], None]) -> None:
        self.jobs.append(job)

    def turn(self) -> bool:
        """Do the next one; whether there was one."""
        if not self.jobs:
            return False
        self.jobs.popleft()()
        return True

    def close(self, _: float) -> bool:
        while self.turn():
            pass
        return True


class WalkedController(OwnHosts):
    """A controller, and its link to one host. `reaches`: whether that hears it."""

    def __init__(self, world: Terms, term: int, host: int, keep: int) -> None:
        self.world = world
        self.host = world.hosts[host]
        self.reaches = True
        self.has_given_up = False
        self._keep = keep
        self._sent = 0
        self._now_ns = count(MS, MS)
        self._later: deque[Callable[[], None]] = deque()
        self.lease = acquire(
            world.folder,
            RunHolder(f"host {term}", f"boot {term}", 1, os.getpid(), 1, "u", 0),
            clock=iter(range(0, 1000, 40)).__next__,
            sleep=lambda _: None,
        )
        self.term = self.lease.epoch

    def begin(self) -> None:
        """Take up the run, as `cli.several_hosts.control` does."""
        folder = self.world.folder
        self.world.claimed(self.term)
        if (words := over_meanwhile(self.lease, 0)) is not None:
            self.lease.release(words)
            return
        runs = running(attempts(folder))
        close_attempts(folder, None if runs is None else runs.attempt)
        self.open(opened(folder))
        self.turn()

    def open(self, start: ev.Opened) -> None:
        keeper = self.keeper = Storekeeper(
            self.world.folder,
            self.lease,
            Keep(self._keep),
            AttemptFacts(incarnation=f"C{self.term}"),
            later=self._later.append,
            feed=lambda event: self.controller.feed(event),
            say=lambda _: None,
            lost=self.lost,
        )
        self.controller = Controller(
            POLICY, link=self, store=keeper, clock=self, journal=self, say=lambda _, __: None
        )
        if start.running is not None:
            keeper.inherit(start.running.attempt)
        self.controller.feed(start)

    def turn(self) -> None:
        """Until nothing is left to do; then leave, if the run is over here."""
        worker = self.keeper._worker
        assert isinstance(worker, Inline)
        while self.controller.finish is None and (self._later or worker.turn()):
            while self._later:
                self._later.popleft()()
        if (finish := self.controller.finish) is not None:
            self._end(finish)

    def feed(self, event: ev.Event) -> None:
        if self.controller.finish is None:
            self.controller.feed(event)
            self.turn()

    def _end(self, finish: act.Finish) -> None:
        self.keeper.close(0.0, is_done=False)
        self.world.ends(self, LastWords(finish.exit_code, finish.words))

    def asks(self, what: ev.Event) -> None:
        """Somebody asks that of it, if it still has the run."""
        if hasattr(self, "controller"):
            step(f"C{self.term} is asked for {type(what).__name__}")
            self.feed(what)

    def beats(self) -> None:
        """Its upkeep shows life, and finds out whether it has the run still."""
        step(f"C{self.term} beats")
        try:
            self.lease.renew()
        except RunHeld as error:
            self.lost(str(error))
            self.turn()

    def lost(self, words: str) -> None:
        """As `agent.supervisor` has it: the hosts go on without it."""

        def leave() -> None:
            self.has_given_up = True
            self.controller.finish = act.Finish(EXIT_SAVED_START_ME_AGAIN, words)

        self._later.append(leave)

    def loses_host(self, other: int) -> None:
        """It does not hear its host any more, and has another one instead."""
        step(f"C{self.term} loses its host")
        self._replaces_host(self.world.hosts[other])

    def sees_host_restarted(self) -> None:
        """It is another host by its incarnation, and gets the part of the one that was lost."""
        step(f"the agent of C{self.term}'s host is restarted")
        self.host.restart()
        self._replaces_host(self.host)

    def _replaces_host(self, by: WalkedHost) -> None:
        self.reaches = False
        self.controller.lose(0)
        self.reaches, self.host = True, by
        launches = self.controller.replace(0)
        if self.host.hears(self.term):
            self.host.join(self.controller._order.begins_at(launches=launches))
        self.turn()

    # --- controller.ports.Link --------------------------------------------------------------

    def obey(self, order: HostOrder) -> None:
        step(f"C{self.term} sends an order")
        if self.reaches and not self.has_given_up and self.host.hears(self.term):
            self.host.obey(order)
            self.controller.hear(self.host.report, 0)

    def reports(self) -> Sequence[tuple[int, HostReport]]:
        return ()

    def ask(self, _: Callable[[], None]) -> bool:
        return False

    def when_complete(self, do: Callable[[], None]) -> None:
        """A host that runs what nobody goes on with ends that before it has a part again."""
        step(f"C{self.term} waits for its host")
        if self.host.hears(self.term):
            self.host.kill()
        do()

    def gather(self, action: act.Adopt, judged: Callable[[LastOrdered | str], None]) -> None:
        step(f"C{self.term} asks the host of attempt {action.attempt}")
        host = self.host
        is_there = self.reaches and host.hears(self.term) and host.is_up
        if is_there and host.report.attempt == action.attempt:
            judged(LastOrdered(host.order_word, host.verdict_word, host.attention))
        else:
            if self.reaches:
                host.kill()  # what it runs is of no use
            judged("it was not heard")

    def go_on(self) -> None:
        step(f"C{self.term} goes on")
        if self.host.hears(self.term):
            self.controller.hear(self.host.report, 0)

    # --- its clock and its journal ----------------------------------------------------------

    def now_ns(self) -> int:
        return next(self._now_ns)

    def set(self, name: str, at_ns: int) -> None:
        """No time passes."""

    def cancel(self, name: str) -> None:
        """The same."""

    def event(self, event: ev.Event) -> None:
        """No journal."""

    def answered(self, actions: tuple[act.Action, ...], at_ns: int) -> None:
        """The same."""

    def fact(self, fact: object) -> None:
        """The same."""


POLICY = RunPolicy(ranks=1, save=saves.Never(), save_in_memory=saves.Never(), has_standbys=False)
Play = Callable[["Terms"], None]


class Terms:
    """A run that trains under its first controller, and what others do meanwhile.

    `first(world, controller)`: what becomes of the first. `others`: each as a program of its own.
    `keep`: of how many sets. `hosts`: of one rank each; the run has one at a time.
    """

    def __init__(
        self,
        first: Callable[[Terms, WalkedController], None],
        *others: Play,
        keep: int = 2,
        saved: int = 1,
    ) -> None:
        self._base = Path(tempfile.mkdtemp(dir=MEMORY_BASE if MEMORY_BASE.is_dir() else None))
        self.folder: RunFolder = RunStore(self._base).create("r")
        self.hosts = [WalkedHost(self, 0), WalkedHost(self, 1)]
        self.told: list[tuple[int, int]] = []  # sets of which a rank was told that they are durable
        self.keep = keep
        self.goes_back = False  # somebody has asked for that
        self._starts: list[tuple[int, int]] = []  # (attempt, host)
        self._orders: dict[tuple[int, int], tuple[int, int]] = {}
        self._verdicts: dict[tuple[int, int], int] = {}
        self._over: list[tuple[int, LastWords]] = []  # of which hosts were told, by its term
        with mock.patch.object(storekeeper, "Worker", Inline):
            controller = WalkedController(self, 1, 0, saved + 1)
            controller.begin()
            for _ in range(saved):
                controller.feed(ev.SaveAsked(0, "test"))
        assert len(self.told) == saved, self.told
        controller.keeper._keep = Keep(keep)
        programs = [lambda: first(self, controller)]
        programs += [self._play(other) for other in others]
        self.programs: Sequence[Program] = programs

    def _play(self, other: Play) -> Program:
        return lambda: other(self)

    @property
    def root(self) -> Path:
        return self.folder.path

    def close(self) -> None:
        shutil.rmtree(self._base)

    def state(self) -> Hashable:
        said = tuple(self.told), tuple(self._starts), tuple(self._over)
        return tuple(host.state for host in self.hosts), said

    # --- what hosts tell --------------------------------------------------------------------

    def write(self, attempt: int, number: int) -> None:
        """The shard of the one rank."""
        with at_once():
            captured = Staging().capture({"state": number}, 0, 1)
            place = self.folder.ckpt_dir / set_name(attempt, number)
            write_shard(place, captured, attempt=attempt, step=number, rank=0, world_size=1)
            captured.release()

    def started(self, host: int, attempt: int) -> None:
        """Its ranks, with that attempt's number."""
        if any(known == attempt for known, _ in self._starts):
            raise Broken(f"attempt {attempt} is started twice: on host {host} now")
        if self._over:
            raise Broken(f"attempt {attempt} begins, and hosts were told of the end: {self._over}")
        self._starts.append((attempt, host))

    def tell(self, attempt: int, number: int) -> None:
        if (attempt, number) not in self.told:
            self.told.append((attempt, number))

    def ordered(self, attempt: int, order: news.PublishOrder) -> None:
        known = self._orders.setdefault((attempt, order.epoch), (order.step, order.flags))
        if known != (order.step, order.flags):
            raise Broken(f"epoch {order.epoch} of attempt {attempt} is another order: {order}")

    def judged(self, attempt: int, verdict: news.PublishVerdict) -> None:
        known = self._verdicts.setdefault((attempt, verdict.epoch), verdict.flags)
        if known != verdict.flags:
            raise Broken(f"epoch {verdict.epoch} of attempt {attempt} has two outcomes: {verdict}")

    # --- what controllers do ----------------------------------------------------------------

    def claimed(self, term: int) -> None:
        """The lease is that one's."""

    def ends(self, controller: WalkedController, words: LastWords) -> None:
        """As `cli.supervise.RunStart.run` does."""
        if not controller.lease.end(None if controller.has_given_up else words):
            return
        step(f"C{controller.term} tells the hosts that the run is over")
        for host in self.hosts:
            if controller.reaches and host.hears(controller.term):
                host.told_over.append(words)
                host.kill()
                self._over.append((controller.term, words))

    def go_back(self) -> None:
        """Somebody wants the run to go back to its oldest set."""
        self.goes_back = True
        step("somebody wants to go back")
        with at_once():
            control.request(self.folder, "rollback", to=min(self.told)[1], skip_batches=0)

    def take_over(self, *, host: int = 0, reaches: bool = True, term: int = 2) -> WalkedController:
        """Another controller finds that the one before shows no life."""
        controller = WalkedController(self, term, host, self.keep)
        controller.reaches = reaches
        controller.begin()
        return controller

    # --- what must be -----------------------------------------------------------------------

    def check(self) -> None:
        """After every step; cheap, since what is damaged once stays so."""

    def at_end(self) -> None:
        known = attempts(self.folder)
        if known.damage:
            raise Broken(f"damaged: {known.damage}")
        chain = dict(lineage(known.records))
        sound = {(one.attempt, one.step) for one in list_sets(self.folder.ckpt_dir)[0]}
        for attempt, number in () if self.goes_back else self.told:
            limit = chain.get(attempt, -1)
            if limit is not None and limit < number:
                raise Broken(f"step {number} of attempt {attempt} was told, and is off: {chain}")
        if self.told and not self.goes_back and max(self.told) not in sound:
            raise Broken(f"{max(self.told)} was told as durable, and is lost: {sorted(sound)}")
        newest = known.newest
        if newest is not None and newest.restore_set is not None:
            of_it = {one for one in sound if one[0] == newest.attempt}
            start = (newest.parent or 0, newest.resume_step)
            if start not in sound and not of_it:
                raise Broken(f"attempt {newest.attempt} starts from {start}, which is gone")
        lease = leases.view(self.folder)
        if lease.last_words is not None and "another supervisor" in lease.last_words.words:
            raise Broken(f"a run that goes on is over by its lease: {lease.last_words}")
        ended = {record.attempt for record in known.records if record.end is not None}
        for host in self.hosts:
            if host.is_up and host.report.attempt in ended and host.term == lease.epoch:
                raise Broken(f"attempt {host.report.attempt} goes on, and is over on record")
        for before, after in pairwise(self._epochs()):
            if before > after:
                raise Broken(f"an older lease has launched after a newer one: {self._epochs()}")

    def _epochs(self) -> list[int]:
        import json

        found = []
        for path in sorted(self.folder.attempts_dir.glob("*/attempt.json")):
            found.append(json.loads(path.read_text())["epoch"])
        return found
