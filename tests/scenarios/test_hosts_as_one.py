"""Hosts to which nothing happens may be simulated as one: what the run leaves is the same."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.core.ledger.facts import Fact
from holdfast.core.run.machine import RunPolicy
from holdfast.core.save import policy as saves
from holdfast.sim.clock import MS, SECOND
from holdfast.sim.virtual.shape import Shape
from holdfast.sim.virtual.world import VirtualWorld

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from run_facts import facts_of
from watch import Watch

sys.path.pop(0)

shapes = st.builds(
    Shape,
    ranks=st.integers(2, 6),
    until=st.sampled_from([3, 20, 60]),
    step_ns=st.sampled_from([(40 * MS,), (40 * MS, 70 * MS)]),
    import_ns=st.sampled_from([0, 300 * MS]),
    copy_ns=st.sampled_from([1 * MS, 30 * MS]),
    write_ns=st.sampled_from([10 * MS, 200 * MS]),
    buffers=st.sampled_from([0, 3]),
    flush_ns=st.just(0),  # a host writes one shard after the other, and hosts do not wait for hosts
)
times = st.one_of(st.none(), st.sampled_from([200 * MS, 900 * MS, 2 * SECOND]))


def played(shape: Shape, saved_ns: int | None, stopped_ns: int | None) -> list[Fact]:
    """What a run of that shape leaves."""
    policy = RunPolicy(ranks=shape.ranks, hosts=shape.hosts, save=saves.EverySteps(5))
    world = VirtualWorld(shape, policy, watch=Watch())
    if saved_ns is not None:
        world.clock.later(saved_ns, world.save)
    if stopped_ns is not None:
        world.clock.later(stopped_ns, lambda: world.notice("SIGTERM", 30 * SECOND))
    world.open()
    assert world.run_until(lambda: world.is_over, 10_000 * SECOND)
    return facts_of(world)


@settings(max_examples=40)
@given(shapes, times, times, st.integers(2, 3))
def test_hosts_to_which_nothing_happens_are_one(
    shape: Shape,
    saved_ns: int | None,
    stopped_ns: int | None,
    hosts: int,
) -> None:
    several = replace(shape, hosts=min(hosts, shape.ranks))
    at_one = played(shape, saved_ns, stopped_ns)
    assert played(several, saved_ns, stopped_ns) == at_one
