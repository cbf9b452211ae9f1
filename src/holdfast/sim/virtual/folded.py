"""A virtual run of many hosts as one of few: of those that nothing happens to, one stands for all.

    few = fold(shape, delays, struck=[7, 8, 500])
    world = VirtualWorld(few.shape, policy, delays=delays)
    world.lose_host(few.hosts[7], …)

A run that is struck on three of a thousand hosts costs what one of eight hosts costs, and leaves
the same facts, to the nanosecond (tests/scenarios/test_folded_hosts.py). Each row of hosts between
two that are struck becomes one: who keeps copies for whom goes by neighbours, and none of those
that are struck becomes another one's. Host 0 is where the controller is, and stays by itself.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import NamedTuple

from holdfast.sim.virtual.loop import Delays
from holdfast.sim.virtual.shape import Shape


class FoldedHosts(NamedTuple):
    """`hosts`: what each host of the whole run is in the folded `shape`."""

    shape: Shape
    hosts: tuple[int, ...]

    def rank(self, rank: int) -> int:
        """What a rank of the whole run is in the folded one."""
        of = self.shape.ranks // self.shape.hosts
        return self.hosts[rank // of] * of + rank % of


def fold(shape: Shape, delays: Delays, struck: Collection[int]) -> FoldedHosts:
    """The run whose hosts are struck nowhere but there, with as few hosts as that takes.

    Raises ValueError where hosts that nothing happens to are not alike, or their number counts.
    """
    of, rest = divmod(shape.ranks, shape.hosts)
    if rest:
        raise ValueError(f"{shape.ranks} ranks on {shape.hosts} hosts: some have more than others")
    if shape.elastic is not None:
        raise ValueError("what an elastic run loses with a host depends on how many it has")
    if any(shape.chips) and (0 in shape.chips or len(shape.chips) < shape.hosts + shape.spares):
        raise ValueError("some hosts say how many chips they have, and others do not")
    in_turns = (shape.step_ns, shape.poll_ns, shape.later_ns, delays.words_ns, delays.link_ns,
                delays.spawn_ns, delays.reap_ns, delays.bell_ns, delays.seal_ns)  # fmt: skip
    if any(len(times) > 1 for times in in_turns):
        raise ValueError("one host waits longer than another for what takes several times in turn")
    apart, hosts = {0, *struck}, [0]
    for host in range(1, shape.hosts):
        goes_on = host not in apart and host - 1 not in apart
        hosts.append(hosts[-1] if goes_on else hosts[-1] + 1)
    few = hosts[-1] + 1
    chips = shape.chips
    if any(chips):
        together = [0] * few
        for host, number in zip(hosts, chips, strict=False):
            together[host] += number
        chips = (*together, *chips[shape.hosts :])
    return FoldedHosts(replace(shape, ranks=few * of, hosts=few, chips=chips), tuple(hosts))
