"""Which sets a simulated run may start from."""

from __future__ import annotations

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.placement import Placement
from holdfast.core.save.choose import choose
from holdfast.sim.clock import VirtualClock
from holdfast.sim.tiers import Tiers

HERE = Placement((0,))


def test_a_set_that_is_durable_too_late_is_on_no_lineage() -> None:
    """Attempt 1 has started from an older one by then: a real run would never go back to it."""
    told: list[ev.Event] = []
    tiers = Tiers(VirtualClock(), told.append, 10, peers=False)
    tiers.launched(act.Launch(0, ev.SCRATCH, HERE))
    tiers.committed(0, 20)
    tiers.launched(act.Launch(1, ev.Resume("0000-000000000020", 20, 0), HERE))
    tiers.committed(0, 33)
    assert choose(tiers.seen())[0] == ev.Resume("0000-000000000020", 20, 0)
    tiers.committed(1, 30)
    assert choose(tiers.seen())[0] == ev.Resume("0001-000000000030", 30, 1)


def test_a_set_that_an_attempt_was_restored_from_memory_of_counts_when_it_is_durable() -> None:
    tiers = Tiers(VirtualClock(), lambda _: None, 10, peers=False)
    tiers.launched(act.Launch(0, ev.SCRATCH, HERE))
    tiers.launched(act.Launch(1, ev.Resume("0000-000000000033", 33, 0, buffer=1), HERE))
    tiers.committed(0, 33)
    assert choose(tiers.seen())[0] == ev.Resume("0000-000000000033", 33, 0)
