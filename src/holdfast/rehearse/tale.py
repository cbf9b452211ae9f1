"""What one supervisor was told and did, as far as a rehearsal asks: its journal, decided again.

The run's own core is fed what the journal says (`controller.replay`), so the agreed step and the
time that a save needs are those that the supervisor knew, at the moment at which it knew them.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from holdfast.controller.replay import inputs
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.run.machine import RunMachine, RunPolicy
from holdfast.core.save import events as news
from holdfast.core.save.word import Order
from holdfast.journal.reader import read_journal


@dataclass(slots=True)
class Tale:
    """Times in nanoseconds on the clock of the run's events (CLOCK_BOOTTIME); None: not yet.

    `step`: completed by all ranks of the attempt that runs. `heard_ns`: when a source told of what
    is announced; `noticed_ns`: when a rank was seen to have died, or to hang. `deadline_ns`: of an
    end that is announced; `told_deadline_ns` the same when it was first heard. `need_ns`: what a
    save was known to need then; 0: none was measured. `ordered_ns`, `agreed_step`: the order of the
    save that a stop asks for, `saved_ns` when that step was durable. `is_withdrawn`: everything
    that was announced has been taken back.
    """

    attempt: int = -1
    step: int = 0
    heard_ns: int | None = None
    noticed_ns: int | None = None
    deadline_ns: int | None = None
    told_deadline_ns: int | None = None
    need_ns: int = 0
    ordered_ns: int | None = None
    agreed_step: int | None = None
    saved_ns: int | None = None
    is_withdrawn: bool = False

    @property
    def leeway_ns(self) -> int | None:
        """How long the run had; None: no deadline was announced."""
        if self.heard_ns is None or self.told_deadline_ns is None:
            return None
        return self.told_deadline_ns - self.heard_ns


def read_tale(path: Path, policy: RunPolicy, since_ns: int | None) -> Tale:
    """The tale so far of a journal that may be growing; `since_ns`: when something was done to it.

    Raises JournalError, and KeyError while a line that a record points to is not written yet.
    """
    machine, tale = RunMachine(policy), Tale()
    for event in inputs(read_journal(path)):
        actions = machine.handle(event)
        if since_ns is not None and event.at_ns >= since_ns:
            _take(tale, machine, policy, event, actions)
    tale.attempt, tale.step = machine.attempt, machine.saving.slowest_step
    return tale


def _take(
    tale: Tale,
    machine: RunMachine,
    policy: RunPolicy,
    event: ev.Event,
    actions: tuple[act.Action, ...],
) -> None:
    if isinstance(event, ev.Noticed):
        _notice(tale, machine, policy, event)
    hung = any(isinstance(action, act.CollectStacks) for action in actions)
    if tale.noticed_ns is None and (isinstance(event, ev.RankExited) or hung):
        tale.noticed_ns = event.at_ns
    for action in actions:
        order = action.what if isinstance(action, act.CarryOut) else None
        if isinstance(order, news.PublishOrder) and order.flags & Order.STOP:
            tale.ordered_ns, tale.agreed_step, tale.saved_ns = event.at_ns, order.step, None
    if tale.agreed_step is not None and tale.saved_ns is None:
        heard = event.news if isinstance(event, ev.Heard) else event
        if not isinstance(heard, news.Committed | ev.FlushCommitted):
            return
        if heard.step >= tale.agreed_step:
            tale.saved_ns = event.at_ns


def _notice(tale: Tale, machine: RunMachine, policy: RunPolicy, event: ev.Noticed) -> None:
    if tale.heard_ns is None:
        tale.heard_ns = event.at_ns
        time = machine.saving.save_time
        tale.need_ns = time.need_ns if time.is_measured else 0
    known = machine.notices.announcements
    ends = [one.deadline_ns for one in known if policy.notice.ends(one.action)]
    tale.deadline_ns = min((at_ns for at_ns in ends if at_ns is not None), default=None)
    if tale.told_deadline_ns is None:
        tale.told_deadline_ns = tale.deadline_ns
    tale.is_withdrawn = not known
