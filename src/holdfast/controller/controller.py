"""The controller of one run: the core decides on each event, and ports carry out what it says.

    controller = Controller(policy, link=..., store=..., clock=..., journal=..., say=...)
    controller.feed(event)

It has no thread, no clock and no file of its own, so that `holdfast run`, the simulator and the
scenario tests drive this very class; they differ in the ports (`controller.ports`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_args

from holdfast.controller.ports import ControllerClock, Link, Notebook, Store
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.adoption import LastOrdered
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.hosts.report import HostReport
from holdfast.core.run.machine import RunMachine, RunPolicy
from holdfast.core.save import events as news

PUBLISHED = (news.PublishOrder, news.PublishVerdict)  # in the ranks' pages


class Controller:
    """Feed events; all of this is for one thread. `finish`: how the run is over, once it is."""

    def __init__(
        self,
        policy: RunPolicy,
        *,
        link: Link,
        store: Store,
        clock: ControllerClock,
        journal: Notebook,
        say: Callable[[str, str], None],
        grace_ns: int = 0,
    ) -> None:
        """`say(level, words)`: tell the people watching. `grace_ns`: what a SIGTERM leaves."""
        self.machine = RunMachine(policy)
        self.finish: act.Finish | None = None
        self._link = link
        self._store = store
        self._clock = clock
        self._journal = journal
        self._say = say
        self._order = HostOrder()
        self._sent = 0  # of the order's wants, the newest that the host was given
        self._reader = ReportReader(policy.hosts, grace_ns, is_elastic=policy.is_elastic)
        self.is_acting = False  # on an event: what is fed meanwhile waits
        self._waiting: deque[ev.Event] = deque()
        self._informed: ev.Event | None = None  # the hosts were asked for what this is judged by

    def feed(self, event: ev.Event) -> None:
        """Decide on an event, and on those that come of carrying out what was decided.

        An event that comes while another is acted on waits until that is done.
        """
        self._waiting.append(event)
        if not self.is_acting:
            self._decide_all()

    def _feed_all(self, events: list[ev.Event]) -> None:
        """All of them before what comes of the first."""
        self._waiting += events
        if not self.is_acting:
            self._decide_all()

    def _decide_all(self) -> None:
        self.is_acting, waiting = True, self._waiting
        try:
            while waiting:
                event = waiting.popleft()
                # What waits is older than what the hosts would say now, and goes first.
                if not waiting and self._wants_progress(event):
                    if self._link.ask(partial(self._feed_informed, event)):
                        continue
                    for host, report in self._link.reports():
                        for one in self._news(host, report):
                            self._decide(one)
                self._decide(event)
        finally:
            self.is_acting = False

    def _wants_progress(self, event: ev.Event) -> bool:
        is_stopping = self._order.attention.is_stopping
        return event is not self._informed and ev.wants_progress(event, is_stopping=is_stopping)

    def _feed_informed(self, event: ev.Event, answered: ev.HostsAnswered) -> None:
        """The hosts have said how they stand, or do not answer."""
        self._informed = replace(event, at_ns=max(event.at_ns, answered.at_ns))
        self._feed_all([answered, self._informed])

    def hear(self, report: HostReport, host: int = 0) -> None:
        """The state of the host of that number may have changed."""
        self._feed_all(self._news(host, report))

    def lose(self, host: int) -> None:
        """That host is gone, with all that was on it."""
        self._feed_all(self._reader.lose(host, self._clock.now_ns(), self._ordered_step))

    def replace(self, host: int) -> bool:
        """An empty host takes the place of one that was lost; whether it is to start its ranks."""
        return self._reader.replace(host)

    def _news(self, host: int, report: HostReport) -> list[ev.Event]:
        return self._reader.read(host, report, self._clock.now_ns(), self._ordered_step)

    @property
    def _ordered_step(self) -> int:
        """The newest step that is saved, or ordered to be."""
        saving = self.machine.saving
        return max(saving.agreement.ordered_step, saving.committed_step, self.machine.resume.step)

    def _decide(self, event: ev.Event) -> None:
        """Journal first, then decide, then act."""
        self._journal.event(event)
        note = NOTE.get(type(event))
        if note is not None:
            note(self, event)
        actions = self.machine.handle(event)
        self._journal.answered(actions, event.at_ns)
        for action in actions:
            CARRY_OUT[type(action)](self, action)
        order = self._order
        if order.wants.newest != self._sent or self.machine.attention != order.attention:
            self._send()

    def _send(self) -> None:
        """Give the hosts what is new for them."""
        order = self._order
        order.attention = self.machine.attention
        order.number += 1
        self._sent = order.wants.newest
        known = self._reader.ordered(order, self._clock.now_ns())
        self._link.obey(order)
        for event in known:
            self.feed(event)

    # --- what an event is to others than the machine ------------------------------------------

    def _note_seal(self, event: ev.Sealed | ev.SealFailed) -> None:
        self._order.seal_is_over(event)

    def _note_no_flush(self, _: ev.FlushFailed) -> None:
        self._order.flush_is_over()
        self._store.protect(None)

    # --- actions ----------------------------------------------------------------------------

    def _want(self, action: act.Action) -> None:
        """Order it of the hosts."""
        self._order.want(action)

    def _choose(self, action: act.Choose) -> None:
        """What is in memory is asked of the hosts that are there then."""
        self._link.when_complete(lambda: self._store.look(action.wish, self._link.sealed()))

    def _launch(self, action: act.Launch) -> None:
        def created() -> None:
            at_ns = self._clock.now_ns()
            self.feed(ev.OnRecord(at_ns, action.attempt))
            self._order.want(action)
            self._send()

        self._store.create_attempt(action, created)

    def _adopt(self, action: act.Adopt) -> None:
        def judged(found: LastOrdered | str) -> None:
            if isinstance(found, str):
                self.feed(ev.NotAdopted(self._clock.now_ns(), action.attempt, found))
            else:
                self._store.adopt(action, partial(adopted, found))

        def adopted(found: LastOrdered, step: int) -> None:
            at_ns, stop = self._clock.now_ns(), found.attention
            if stop.is_stopping:
                asked = ev.StopAsked(at_ns, stop.source, stop.deadline_ns, notice=stop.is_notice)
                self.feed(asked)
            said = (found.order, found.verdict, found.memory)
            self.feed(ev.Adopted(at_ns, action.attempt, step, *said))
            self._reader.begin(action)
            self._link.go_on()
            self._send()

        self._link.gather(action, judged)

    def _carry_out(self, action: act.CarryOut) -> None:
        what = action.what
        if isinstance(what, news.Commit):
            self._store.keep_compared(self.machine.saving.tier.compared_step)
            self._store.commit(action.attempt, what.epoch, what.step, self.machine.saving.ranks)
        elif isinstance(what, news.MakeRoom):
            self._store.make_room(action.attempt, what.step)
        elif isinstance(what, PUBLISHED):
            self._order.want(action)

    def _flush(self, action: act.Flush) -> None:
        self._store.protect((action.attempt, action.step))
        self._order.want(action)

    def _commit_flushed(self, action: act.CommitFlushed) -> None:
        self._store.keep_compared(self.machine.saving.tier.compared_step)
        self._order.flush_is_over()
        self._store.commit_flushed(action)

    def _end_attempt(self, action: act.EndAttempt) -> None:
        self._store.end_attempt(action, self._reader.ended)

    def _finish(self, action: act.Finish) -> None:
        self.finish = action


NOTE: dict[type[ev.Event], Callable[[Controller, Any], None]] = {
    ev.Sealed: Controller._note_seal,
    ev.SealFailed: Controller._note_seal,
    ev.FlushFailed: Controller._note_no_flush,
}

DO: dict[type[act.Action], Callable[[Controller, Any], None]] = {
    act.Choose: Controller._choose,
    act.Launch: Controller._launch,
    act.Adopt: Controller._adopt,
    act.CarryOut: Controller._carry_out,
    act.Flush: Controller._flush,
    act.CommitFlushed: Controller._commit_flushed,
    act.SetTimer: lambda self, action: self._clock.set(action.timer, action.at_ns),
    act.CancelTimer: lambda self, action: self._clock.cancel(action.timer),
    act.Record: lambda self, action: self._journal.fact(action.fact),
    act.EndTraining: lambda self, action: self._store.end_training(action),
    act.EndAttempt: Controller._end_attempt,
    act.KeepWish: lambda self, action: self._store.keep_wish(action.wish),
    act.Distrust: lambda self, action: self._link.distrust(action.host, action.words),
    act.Say: lambda self, action: self._say(action.level, action.words),
    act.Finish: Controller._finish,
}

# All others are wanted of the host.
CARRY_OUT = dict.fromkeys(get_args(act.Action), Controller._want) | DO
