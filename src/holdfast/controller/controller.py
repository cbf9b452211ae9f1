"""The controller of one run: the core decides on each event, and ports carry out what it says.

    controller = Controller(policy, link=..., store=..., clock=..., journal=..., say=...)
    controller.feed(event)

It has no thread, no clock and no file of its own, so that `holdfast run`, the simulator and the
scenario tests drive this very class; they differ in the ports (`controller.ports`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from holdfast.controller.ports import Attention, Clock, Link, Notebook, Store
from holdfast.controller.restart_log import RestartLog
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.run.machine import RunMachine, RunPolicy, State
from holdfast.core.save import agree_events as news


class Controller:
    """Feed events; all of this is for one thread. `finish`: how the run is over, once it is."""

    def __init__(
        self,
        policy: RunPolicy,
        *,
        link: Link,
        store: Store,
        clock: Clock,
        journal: Notebook,
        say: Callable[[str, str], None],
    ) -> None:
        """`say(level, words)`: tell the people watching."""
        self.machine = RunMachine(policy)
        self.finish: act.Finish | None = None
        self.restarts = RestartLog(policy.ranks)
        self._link = link
        self._store = store
        self._clock = clock
        self._journal = journal
        self._say = say
        self._attention = Attention()
        self.is_acting = False  # on an event: what is fed meanwhile waits
        self._waiting: deque[ev.Event] = deque()

    def feed(self, event: ev.Event) -> None:
        """Decide on an event, and on those that come of carrying out what was decided.

        An event that comes while another is acted on waits until that is done.
        """
        self._waiting.append(event)
        if self.is_acting:
            return
        self.is_acting = True
        try:
            while self._waiting:
                self._take(self._waiting.popleft())
        finally:
            self.is_acting = False

    def _take(self, event: ev.Event) -> None:
        if ev.wants_progress(event, is_stopping=self.machine.stop is not None):
            for told in self._link.progress():
                self._decide(told)
        self._decide(event)

    def _decide(self, event: ev.Event) -> None:
        """Journal first, then decide, then act."""
        self._journal.event(event)
        self.restarts.hear(event)
        if isinstance(event, ev.DrainFailed):
            self._store.protect(None)
        actions = self.machine.handle(event)
        self._journal.answered(actions, event.at_ns)
        for action in actions:
            DO[type(action)](self, action)
        self._attend()
        if self.machine.state is State.RUNNING and (told := self.restarts.take()):
            self._store.note_restart(*told)

    def _attend(self) -> None:
        machine = self.machine
        how = Attention(machine.saving.is_active, machine.stop is not None)
        if how != self._attention:
            self._attention = how
            self._link.attend(how)

    # --- actions ----------------------------------------------------------------------------

    def _launch(self, action: act.Launch) -> None:
        def created() -> None:
            self.restarts.recorded(self._clock.now_ns())
            self._link.launch(action)

        self._store.create_attempt(action, created)

    def _carry_out(self, action: act.CarryOut) -> None:
        what = action.what
        if isinstance(what, news.Commit):
            self._store.commit(action.attempt, what.epoch, what.step)
        elif isinstance(what, news.PublishOrder | news.PublishVerdict):
            self._link.publish(action)

    def _drain(self, action: act.Drain) -> None:
        self._store.protect((action.attempt, action.step))
        self._link.drain(action)

    def _commit_drained(self, action: act.CommitDrained) -> None:
        self._store.commit_drained(action, self._link.drained_ranks(action))

    def _end_attempt(self, action: act.EndAttempt) -> None:
        self._store.end_attempt(action, self._link.evidence(action))

    def _finish(self, action: act.Finish) -> None:
        self.finish = action


DO: dict[type[act.Action], Callable[[Controller, Any], None]] = {
    act.Choose: lambda self, action: self._store.look(action.wish),
    act.Launch: Controller._launch,
    act.CarryOut: Controller._carry_out,
    act.Seal: lambda self, action: self._link.seal(action),
    act.Drain: Controller._drain,
    act.AbandonDrain: lambda self, action: self._link.abandon_drain(action),
    act.CommitDrained: Controller._commit_drained,
    act.MakeRoom: lambda self, what: self._store.make_room(what.attempt, what.step),
    act.PublishCommitted: lambda self, action: self._link.publish_committed(action.step),
    act.Relay: lambda self, _: self._link.relay(),
    act.Kill: lambda self, _: self._link.kill(),
    act.StandBy: lambda self, action: self._link.stand_by(action),
    act.Examine: lambda self, action: self._link.examine(action),
    act.CollectStacks: lambda self, action: self._link.collect_stacks(action),
    act.SetTimer: lambda self, action: self._clock.set(action.timer, action.at_ns),
    act.CancelTimer: lambda self, action: self._clock.cancel(action.timer),
    act.Record: lambda self, action: self._journal.fact(action.fact),
    act.EndAttempt: Controller._end_attempt,
    act.Say: lambda self, action: self._say(action.level, action.words),
    act.Finish: Controller._finish,
}
