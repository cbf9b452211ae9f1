"""A stop of several hosts: how long until all have done the agreed step, over slow links."""

from __future__ import annotations

import itertools

import pytest

from holdfast.core.run.machine import RunPolicy
from holdfast.core.save import policy as saves
from holdfast.sim.clock import MS
from holdfast.sim.virtual.loop import Delays
from holdfast.sim.virtual.shape import Shape
from holdfast.sim.virtual.world import VirtualWorld

HOSTS = 4
STEPS_NS, WAYS_NS = (20 * MS, 50 * MS, 200 * MS), (1 * MS, 10 * MS, 35 * MS)


def agreed_after_ns(step_ns: int, way_ns: int, phase_ns: int) -> int:
    """From the notice until all have done the step that is saved."""
    shape = Shape(HOSTS, hosts=HOSTS, step_ns=(step_ns,), copy_ns=MS, until=10**6)
    world = VirtualWorld(
        shape,
        RunPolicy(HOSTS, saves.EverySteps(50), hosts=HOSTS),
        delays=Delays(link_ns=(way_ns,), has_agents=True),
    )
    world.open()
    assert world.run_until(lambda: world.step >= 120, 10**12)
    world.run_for(phase_ns)
    began_ns, done_ns = world.now_ns, {}
    world.notice(grace_ns=60_000 * MS)
    while world.finish is None:
        world.run_for(MS)
        done_ns.setdefault(world.step, world.now_ns)
    return done_ns[max(one.step for one in world.store.sets)] - began_ns


@pytest.mark.parametrize(("step_ns", "way_ns"), list(itertools.product(STEPS_NS, WAYS_NS)), ids=str)
def test_the_agreed_step_is_at_most_a_step_and_two_round_trips_away(
    step_ns: int, way_ns: int
) -> None:
    took_ns = [agreed_after_ns(step_ns, way_ns, step_ns * tenth // 10) for tenth in range(10)]
    assert max(took_ns) <= step_ns + 4 * way_ns + 20 * MS, took_ns
