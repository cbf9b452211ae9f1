"""An elastic run among several hosts: it goes on without some of them, and takes them in again.

    elastic = ElasticHosts(members, ElasticLimits(least=2), controller)
    if elastic.goes_on(at_ns): ...  # an attempt begins on the hosts that are there
    elastic.look(at_ns)  # now and then while it trains

What is decided, `core.hosts.regroup` decides. To take a host in, the run saves, and restarts once
that is durable.
"""

from __future__ import annotations

from typing import Protocol

from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.membership import Membership
from holdfast.core.hosts.regroup import ElasticLimits, RegroupCosts, Regrouping
from holdfast.core.run.machine import RunMachine, State
from holdfast.core.save.policy import Optimal

RESTART_NS = 30 * SECOND_NS  # before any was measured
SAVE_LIMIT_NS = 600 * SECOND_NS  # after which a host is not taken in yet
LEARNED = Optimal()


class ElasticController(Protocol):
    """The controller, as far as it is asked and told here."""

    @property
    def machine(self) -> RunMachine:
        """What decides."""

    def feed(self, event: ev.Event) -> None:
        """Something has happened."""


class ElasticHosts:
    """For the controller's thread alone."""

    def __init__(
        self, members: Membership, limits: ElasticLimits, controller: ElasticController
    ) -> None:
        self._members = members
        self._regrouping = Regrouping(members, limits)
        self._controller = controller
        self._restart_ns = RESTART_NS
        self._begun_ns: int | None = None  # the launch that is measured
        self._saved_by: tuple[int, int, int] | None = None  # the attempt, a step, until when
        self._not_before_ns = 0  # a host is taken in
        self._is_restarting = False  # for hosts that are back
        self.why = ""  # the run waits for hosts

    def opens(self, in_memory: int) -> bool:
        """Whether the next attempt has the hosts that came since the last one began.

        `in_memory`: the step of the newest set that only the hosts of the last one restore from.
        If that is in no store yet, they are taken in after a save.
        """
        is_ahead = in_memory > self._controller.machine.saving.committed_step
        return self._is_restarting or bool(self._members.missing) or not is_ahead

    def goes_on(self, at_ns: int, in_memory: int) -> bool:
        """Whether an attempt begins without the hosts that are missing.

        `in_memory`: the step of the newest set that all hosts together restore from.
        """
        self._regrouping.look(at_ns)
        saving = self._controller.machine.saving
        redo_ns = max(0, in_memory - saving.committed_step) * saving.step_time_ns
        costs = self._costs(at_ns, redo_ns)
        goes_on, self.why = self._regrouping.before_launch(at_ns, costs)
        return goes_on

    def begins(self, at_ns: int, hosts: tuple[int, ...]) -> None:
        """An attempt begins on these."""
        self._begun_ns, self._saved_by, self.why = at_ns, None, ""
        self._is_restarting = False
        self._controller.feed(ev.Placed(at_ns, hosts))

    def look(self, at_ns: int) -> None:
        """Whether hosts that are back are to be taken in, and whether what they wait for is so."""
        self._regrouping.look(at_ns)
        machine = self._controller.machine
        if machine.state is not State.RUNNING or machine.stop is not None:
            self._saved_by = None
            return
        saving = machine.saving
        if self._begun_ns is not None and saving.slowest_step > machine.resume.step:
            self._restart_ns, self._begun_ns = at_ns - self._begun_ns, None
        if not saving.joined or at_ns < self._not_before_ns:
            return
        takes_in, why = self._regrouping.while_training(at_ns, self._costs(at_ns))
        if not takes_in:
            self._saved_by = None
        elif self._saved_by is None:
            self._saved_by = machine.attempt, saving.fastest_step, at_ns + SAVE_LIMIT_NS
            self._controller.feed(ev.SaveAsked(at_ns, "hosts are back"))
        else:
            self._take_in(at_ns, why, *self._saved_by)

    def _take_in(self, at_ns: int, why: str, attempt: int, step: int, until_ns: int) -> None:
        machine = self._controller.machine
        if attempt != machine.attempt:
            self._saved_by = None
        elif machine.saving.committed_step >= step:
            self._saved_by, self._is_restarting = None, True
            self._controller.feed(ev.RestartAsked(at_ns, why))
        elif at_ns >= until_ns:
            self._saved_by, self._not_before_ns = None, at_ns + SAVE_LIMIT_NS

    def _costs(self, at_ns: int, redo_ns: int = 0) -> RegroupCosts:
        view = self._controller.machine.saving.view(at_ns)
        between_ns = round(LEARNED.mtbf_s(view) * SECOND_NS)
        return RegroupCosts(self._restart_ns, view.save_total_ns, between_ns, redo_ns)
