"""One virtual run under one supervisor: its controller, and what happens to it from outside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.controller.controller import Controller
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.report import HostReport
from holdfast.core.run.machine import RunMachine, RunPolicy
from holdfast.core.run.rollback import Target, Wish
from holdfast.core.save.choose import newest_first
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN
from holdfast.journal.attempts import lineage
from holdfast.sim.clock import SECOND, VirtualClock
from holdfast.sim.timers import VirtualTimers
from holdfast.sim.virtual.host import REAP_NS, VirtualHost
from holdfast.sim.virtual.keeper import VirtualKeeper
from holdfast.sim.virtual.link import VirtualLink
from holdfast.sim.virtual.loop import Delays, Inputs, Source
from holdfast.sim.virtual.memory import VirtualMemory
from holdfast.sim.virtual.remote_link import RemoteLink
from holdfast.sim.virtual.shape import Shape
from holdfast.sim.virtual.shared import Shared, Watcher
from holdfast.sim.virtual.store import VirtualStore

HEARTBEAT_NS = 5 * SECOND  # how often a holder looks whether the lease is still its own

REPLICA_NEWS = (ev.Replicated, ev.NotReplicated)

Tell = Callable[[int, Any, tuple[Any, ...], str], None]


class VirtualWorld(Shared):
    """The controller is `holdfast run`'s own. `tell` hears every event and its answer.

    Several may share a clock and a store: a supervisor that is gone, and its successors. On the
    same host they share its memory as well.
    """

    def __init__(
        self,
        shape: Shape,
        policy: RunPolicy | None = None,
        *,
        grace_ns: int = 30 * SECOND,
        tell: Tell = lambda *_: None,
        store: VirtualStore | None = None,
        memory: VirtualMemory | None = None,
        clock: VirtualClock | None = None,
        delays: Delays | None = None,
        watch: Watcher | None = None,
        as_text: bool = True,
    ) -> None:
        """`as_text`: what goes over a wire does so as text; else it is copied."""
        super().__init__(
            shape,
            clock=clock,
            delays=delays,
            store=store,
            memory=memory,
            watch=watch,
            as_text=as_text,
        )
        self.policy = policy or RunPolicy(
            ranks=shape.ranks, hosts=shape.hosts, is_elastic=shape.elastic is not None
        )
        self.grace_ns = grace_ns
        self.opened_ns = self.clock.now_ns
        self.held_ns = 0  # for so long it could do nothing: stalled, or asleep
        self.finished_ns = 0
        self.lost_hosts = 0  # so far
        self.recorded: list[dict[str, Any]] = []
        self.inputs: list[ev.Event] = []
        self.said: list[str] = []
        self._tell = tell
        self._timers = VirtualTimers(
            self.clock, self.feed, lambda fire: self.heard.give(Source.TIMER, fire)
        )
        self.hosts = [self._new_host(number) for number in range(shape.hosts)]
        self.former: list[VirtualHost] = []  # that had one of these numbers
        self._link = self._new_link()
        self.controller = Controller(
            self.policy,
            link=self._link,
            store=VirtualKeeper(self),
            clock=self._timers,
            journal=self,
            say=lambda _, words: self.said.append(words),
            grace_ns=grace_ns,
        )

    @property
    def machine(self) -> RunMachine:
        """What decides."""
        return self.controller.machine

    @property
    def finish(self) -> act.Finish | None:
        """How the run is over for this supervisor, once it is."""
        return self.controller.finish

    def _new_link(self) -> VirtualLink | RemoteLink:
        link_ns = self.delays.link_ns
        if not self.delays.has_agents:
            return VirtualLink(self, self.hosts, link_ns, self._renew_host)
        return RemoteLink(self, link_ns, self._renew_host, self.said.append)

    def _renew_host(self, number: int, is_same: bool) -> VirtualHost:
        """An empty host has that number from now on; the one that had it may live."""
        before = self.hosts[number]
        before.give_up(keeps_memory=is_same)
        self.former.append(before)
        host = self.hosts[number] = self._new_host(number)
        return host

    def _new_host(self, number: int) -> VirtualHost:
        """Host 0 is where the controller is: one loop reads both."""
        if number == 0:
            return VirtualHost(self, 0, self.heard)
        heard = Inputs(self.clock, lambda late_ns: host.woken(late_ns))
        host = VirtualHost(self, number, heard)
        return host

    # --- time -------------------------------------------------------------------------------

    def open(self) -> None:
        """The lease is held: begin."""
        store = self.store
        store.epoch += 1
        self.epoch = store.epoch
        known = [*store.sets, *(one for _, one in self.memory.sets())]
        of_lineage = newest_first(known, lineage(store.attempts))
        high_water = max((one.step for one in of_lineage), default=0)
        self.feed(
            ev.Opened(
                self.now_ns,
                len(store.attempts),
                high_water,
                failures_seen=store.failures,
                memory_lost=store.memory_lost,
                wishes=store.standing(),
            )
        )

    def run_for(self, ns: int) -> None:
        """Let so much time pass, or less if the run is over."""
        self.run_until(lambda: False, self.now_ns + ns)

    def run_until(self, reached: Callable[[], bool], limit_ns: int) -> bool:
        """Let time pass until it is so; False when the limit or the run's end came first."""
        advance = self.clock.advance
        while not reached():
            if self.is_over or not advance(limit_ns):
                return reached()
        return True

    @property
    def step(self) -> int:
        """The step that all ranks have completed."""
        return self.live.step if self.live else self.machine.high_water

    # --- its end ----------------------------------------------------------------------------

    def die(self, *, with_tree: bool = True, with_host: bool = False) -> None:
        """SIGKILL to the supervisor. Its tree goes down with it, or lives on until the fence.

        `with_host`: all hosts are gone.
        """
        if self.is_over:
            return
        self.died_ns = self.now_ns
        if with_host:
            for host in self.hosts:
                host.lose()
            self.memory.lose()
            self.store.memory_lost += 1
        elif with_tree:
            for host in (*self.hosts, *self.former):
                self.clock.later(REAP_NS, host.kill_all)
        if self.store.attempts and self.store.attempts[-1].attempt not in {
            one.attempt for one in self.ends
        }:
            self.store.failures += 1  # the successor closes it

    def fence(self) -> bool:
        """End what is left of the ranks, before a successor starts any; False: it cannot be."""
        for host in (*self.hosts, *self.former):
            host.kill_all()
        return not self.is_inhabited

    @property
    def is_inhabited(self) -> bool:
        """Whether some rank of this supervisor's is still there."""
        return any(host.ranks_left for host in (*self.hosts, *self.former))

    @property
    def over_ns(self) -> int:
        """When the supervisor was gone; now, if it is not."""
        if self.died_ns is not None:
            return self.died_ns
        return self.now_ns if self.finish is None else self.finished_ns

    @property
    def is_over(self) -> bool:
        """Whether the supervisor is gone, by itself or by force."""
        return self.controller.finish is not None or self.died_ns is not None

    # --- what comes from outside ------------------------------------------------------------

    def stall(self, ns: int) -> None:
        """The supervisor's loop does not come round for so long; the ranks train on."""
        self.held_ns += ns
        self.heard.stall(ns)

    def _woken(self, late_ns: int) -> None:
        self._link.slept(late_ns)
        self.hosts[0].woken(late_ns)

    def slept(self, gap_ns: int) -> None:
        """All machines have slept: their timers are long due."""
        self.held_ns += gap_ns
        for host in self.hosts:
            host.slept(gap_ns)
        self.heard.give(Source.TIMER, self._timers.slept)

    def notice(self, source: str = "SIGTERM", grace_ns: int | None = None) -> None:
        """The supervisor's host goes away when the grace period is over."""
        grace_ns = self.grace_ns if grace_ns is None else grace_ns
        self._ask(lambda at_ns: ev.StopAsked(at_ns, source, self.now_ns + grace_ns, notice=True))

    def interrupt(self) -> None:
        """Ctrl-C."""
        self._ask(lambda at_ns: ev.Interrupted(at_ns, "Ctrl-C"))

    def stop_now(self, source: str, exit_code: int = EXIT_SAVED_START_ME_AGAIN) -> None:
        """SIGQUIT, `holdfast stop --now`, or a lost lease."""
        self._ask(lambda at_ns: ev.StopNowAsked(at_ns, source, exit_code))

    def save(self) -> None:
        """`holdfast save`."""
        self._ask(lambda at_ns: ev.SaveAsked(at_ns, "holdfast save"))

    def roll_back(self, to: Target, skip_batches: int) -> None:
        """`holdfast rollback`: it lies in the store, and a supervisor that lives hears of it.

        Scripts that nobody supervises train on; their next start goes back.
        """
        name = f"asked-{len(self.store.wishes)}"
        wish = Wish(name, to, skip_batches, "holdfast rollback", is_from_script=False)
        self.store.wishes.append(wish)
        if self.policy.is_supervised:
            self._ask(lambda at_ns: ev.RollbackAsked(at_ns, wish))

    def _ask(self, asked: Callable[[int], ev.Event]) -> None:
        """The controller hears of it when its loop comes round."""
        self.heard.give(Source.INBOX, lambda: self.feed(asked(self.now_ns)))

    def end_rank(self, number: int, how: Exit) -> None:
        """A process ends, or is ended by somebody else. What it wished for is in its report."""
        if self.live is not None:
            self.live.by_rank[number].end(how)

    def stall_host(self, number: int, ns: int) -> None:
        """The agent of a host without the controller does not come round for so long."""
        self.held_ns += ns
        self.hosts[number].heard.stall(ns)

    def cut_off_host(self, number: int, ns: int) -> None:
        """Nothing goes between the controller and another host for so long; its ranks train on."""
        self.held_ns += ns
        self._link.cut(number, ns)

    def lose_host(self, number: int, noticed_ns: int, replaced_ns: int) -> None:
        """A host without the controller is gone; that is noticed, and an empty one comes."""
        host = self.hosts[number]
        if host.is_lost or self.is_over:
            return
        self.lost_hosts += 1
        host.lose()

        def noticed() -> None:
            if not self.is_over:
                self.heard.give(Source.INBOX, lambda: self._link.lost(host))

        def replaced() -> None:
            self.heard.give(Source.INBOX, joins)

        def joins() -> None:
            if not self.is_over:  # it is of no use to a supervisor that is gone
                self._link.join(host)

        self.clock.later(noticed_ns, noticed)
        self.clock.later(replaced_ns, replaced)

    def kill_reaper(self) -> None:
        """Somebody kills the reaper: its ranks are orphans now."""
        self.hosts[0].kill_reaper()

    # --- the controller ---------------------------------------------------------------------

    def feed(self, event: ev.Event) -> None:
        """Tell the controller, as long as there is one."""
        if self.is_over:
            return
        self.controller.feed(event)
        self._look_whether_it_is_over()

    def hear(self, report: HostReport, host: int) -> None:
        """The controller gets a report of that host, as long as there is a controller."""
        if not self.is_over:
            self.controller.hear(report, host)
            self._look_whether_it_is_over()

    def lose(self, host: int) -> None:
        """The controller is told that a host is gone, and it may be."""
        self.lost_hosts += 1
        if not self.is_over:
            self.controller.lose(host)
            self._look_whether_it_is_over()

    def replace(self, host: int) -> bool:
        """It is told that an empty one takes its place; whether that is to start its ranks."""
        return self.controller.replace(host)

    def _look_whether_it_is_over(self) -> None:
        if self.finish is not None and not self.controller.is_acting:
            self.finished_ns = self.now_ns
            # It may not have heard that they have started ranks.
            for host in (*self.hosts, *self.former):
                if host.ranks_left:
                    self.clock.later(REAP_NS, host.kill_all)
            if not self.finish.leaves_memory:
                self.memory.lose()

    # --- controller.ports.Notebook ----------------------------------------------------------

    def event(self, event: ev.Event) -> None:
        """What the controller writes down before it decides."""
        self.inputs.append(event)
        if isinstance(event, REPLICA_NEWS):
            self.memory.hear(event)
        self._state = self.machine.state

    def answered(self, actions: tuple[act.Action, ...], _: int) -> None:
        """What it has decided, and not acted on yet."""
        for action in actions:
            if type(action) is act.Replicate:
                self.memory.wanted = action.attempt, action.step
        event, before, after = self.inputs[-1], self._state, self.machine.state
        change = f" [{before} → {after}]" if before is not after else ""
        self._tell(self.now_ns, event, actions, change)
        self.watch.decided(self, event, actions)

    def fact(self, fact: Mapping[str, Any]) -> None:
        """A fact for the ledger."""
        self.recorded.append(dict(fact))
