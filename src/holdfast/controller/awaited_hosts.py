"""The hosts that the next attempt is to have: until they are there it waits.

An elastic run begins on fewer (`controller.elastic_hosts`). When an attempt has its hosts it is
known how long they were waited for, where its ranks are, and how many chips it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from holdfast.controller.elastic_hosts import ElasticController, ElasticHosts
from holdfast.controller.heard_hosts import HeardHosts
from holdfast.core import events as ev
from holdfast.core.hosts.chips import SlotChips
from holdfast.core.hosts.copies import restorable
from holdfast.core.hosts.membership import Membership, Move
from holdfast.core.hosts.placement import Placement
from holdfast.core.hosts.regroup import ElasticLimits
from holdfast.core.save.choose import SealedSet


class AwaitedHosts:
    """For the controller's thread alone. `placement`: of the newest attempt."""

    def __init__(
        self,
        membership: Membership,
        heard: HeardHosts,
        now_ns: Callable[[], int],
        carry_out: Callable[[list[Move]], None],
        placement: Placement,
        elastic: ElasticLimits | None,
        chips: int,
    ) -> None:
        """`carry_out`: what must be done about hosts. `placement`: of an attempt on all of them."""
        self.placement = self._on_all = placement
        self.chips = SlotChips(membership.slots, chips)
        self._members, self._heard = membership, heard
        self._now_ns, self._carry_out = now_ns, carry_out
        self._limits = elastic
        self._elastic: ElasticHosts | None = None  # None: all hosts are waited for
        self._awaiting: Callable[[], None] | None = None
        self._awaited_ns = 0  # since then
        self._waited: ev.Waited | None = None  # for the hosts of the newest attempt

    def attach(self, controller: ElasticController) -> None:
        """Whom an elastic run asks, and tells."""
        if self._limits is not None:
            self._elastic = ElasticHosts(self._members, self._limits, controller)

    # --- waiting ----------------------------------------------------------------------------

    def when_complete(self, do: Callable[[], None]) -> None:
        """Once every slot has a host, or an elastic run has enough; at once if that is so now."""
        self._awaiting, self._awaited_ns = do, self._now_ns()
        if self._elastic is not None and self._elastic.opens(self._in_memory(self.placement)):
            self._carry_out(self._members.open(self._now_ns()))
        self.look_whether_complete()

    def look_whether_complete(self) -> None:
        """Who is there may have changed."""
        if self._awaiting is None or not self._has_enough:
            return
        do, self._awaiting = self._awaiting, None
        at_ns = self._now_ns()
        has_waited = at_ns > self._awaited_ns
        self._waited = ev.Waited("hosts", at_ns, self._awaited_ns) if has_waited else None
        if self._elastic is not None:
            self._carry_out(self._members.break_slices(at_ns))
            slots = self._members.close()
            self.chips.train(slots)
            self.placement = self._on_all.on_hosts(slots)
            self._elastic.begins(at_ns, slots)
        do()

    def look(self) -> None:
        """Time has passed, of which an elastic run takes note."""
        if self._elastic is not None:
            self.look_whether_complete()
            self._elastic.look(self._now_ns())

    def go_on(self, slots: Iterable[int]) -> None:
        """What runs on these goes on."""
        self._members.close()
        self.chips.train(slots)

    @property
    def waits(self) -> ev.Waited | None:
        """The wait that is under way; None: there is none."""
        return ev.Waited("hosts", self._now_ns(), self._awaited_ns) if self.is_waiting else None

    def give_up(self) -> None:
        """No attempt will begin."""
        self._awaiting = None

    @property
    def _has_enough(self) -> bool:
        """Whether the hosts are there that the next attempt is to have."""
        if self._members.is_complete:
            return True
        if self._elastic is None:
            return False
        return self._elastic.goes_on(self._now_ns(), self._in_memory(self._on_all))

    def sealed(self) -> tuple[SealedSet, ...]:
        """Which sets such an attempt restores from the hosts' memory, as those have said."""
        return self._restorable(self.placement)

    def _in_memory(self, placement: Placement) -> int:
        """The step of the newest set that such an attempt restores from the hosts' memory."""
        found = self._restorable(placement)
        return found[-1].step if found else 0

    def _restorable(self, placement: Placement) -> tuple[SealedSet, ...]:
        return restorable(self._heard.copies_for(placement), placement, self._members.holders)

    # --- what is known of it ----------------------------------------------------------------

    @property
    def is_elastic(self) -> bool:
        """Whether an attempt may have fewer hosts."""
        return self._limits is not None

    @property
    def is_waiting(self) -> bool:
        """Whether an attempt waits for its hosts."""
        return self._awaiting is not None

    @property
    def why(self) -> str:
        """Why an elastic run waits for its hosts; "": it does not, or it waits for all anyway."""
        return "" if self._elastic is None else self._elastic.why

    @property
    def can_do_without(self) -> int:
        """How many of the hosts that train an elastic run could lose, and go on."""
        if self._limits is None:
            return 0
        train = sum(one.slot is not None for one in self._members.members.values())
        return max(0, train - self._limits.least)

    def told_with(self, fact: ev.Event) -> ev.Event:
        """A launch came after the wait for its hosts, and they have so many chips."""
        if not isinstance(fact, ev.Launched):
            return fact
        chips = self.chips.counted if self.chips.are_said or self.is_elastic else None
        return replace(fact, waited=self._waited, chips=chips) if chips or self._waited else fact
