"""A run of many hosts, some of them struck, leaves what it leaves with the others folded."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from holdfast.core.exits import Exit
from holdfast.core.hosts.regroup import ElasticLimits
from holdfast.core.ledger import facts
from holdfast.core.run.machine import RunPolicy
from holdfast.core.save import policy as saves
from holdfast.sim.clock import MS, SECOND
from holdfast.sim.virtual.folded import fold
from holdfast.sim.virtual.loop import Delays
from holdfast.sim.virtual.shape import Shape
from holdfast.sim.virtual.world import VirtualWorld

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from run_facts import facts_of
from watch import Watch

sys.path.pop(0)


class Strike(NamedTuple):
    """What befalls a host, and when; the words are the methods below."""

    at_ns: int
    how: str
    host: int
    for_ns: int = 0  # how long it lasts, or until that it is lost is noticed
    replaced_ns: int = SECOND


class Plan(NamedTuple):
    """A run, and what befalls it."""

    shape: Shape
    delays: Delays
    save: saves.SavePolicy
    save_in_memory: saves.SavePolicy
    strikes: tuple[Strike, ...]
    stopped_ns: int | None = None

    def folded(self) -> Plan:
        """The same on few hosts."""
        few = fold(self.shape, self.delays, {one.host for one in self.strikes})
        strikes = tuple(one._replace(host=few.hosts[one.host]) for one in self.strikes)
        return self._replace(shape=few.shape, strikes=strikes)


def struck(world: VirtualWorld, one: Strike) -> None:
    """It happens."""
    if world.is_over:
        return
    rank = world.placement[one.host][0]
    dies = Exit(signal=9) if one.how == "is killed" else Exit(code=1)
    there: dict[str, Callable[[], None]] = {
        "is lost": lambda: world.lose_host(one.host, one.for_ns, one.replaced_ns),
        "stalls": lambda: world.stall_host(one.host, one.for_ns),
        "is cut off": lambda: world.cut_off_host(one.host, one.for_ns),
    }
    if one.how in there:
        there[one.how]()
    elif world.live is not None and rank in world.live.by_rank:
        world.end_rank(rank, dies)


def played(plan: Plan) -> VirtualWorld:
    """The run, watched, to its end."""
    shape = plan.shape
    policy = RunPolicy(
        ranks=shape.ranks,
        hosts=shape.hosts,
        save=plan.save,
        save_in_memory=plan.save_in_memory,
        replicates=shape.peers_ns > 0,
    )
    watch = Watch(as_text=None)
    world = VirtualWorld(shape, policy, delays=plan.delays, watch=watch, as_text=False)
    for one in plan.strikes:
        world.clock.later(one.at_ns, lambda one=one: struck(world, one))  # type: ignore[misc]
    if plan.stopped_ns is not None:
        world.clock.later(plan.stopped_ns, lambda: world.notice("SIGTERM", 30 * SECOND))
    world.open()
    assert world.run_until(lambda: world.is_over, 10_000 * SECOND)
    watch.at_end(world.now_ns)
    return world


def left(world: VirtualWorld) -> tuple[object, ...]:
    """What a run leaves, but for how many ranks it had, and their numbers in its words."""
    finish = world.finish
    assert finish is not None
    return (
        [one for one in facts_of(world) if not isinstance(one, facts.RunFact)],
        (finish.exit_code, finish.leaves_memory, world.finished_ns),
        [(one.attempt, one.resume) for one in world.launches],
        [(one.attempt, one.cause) for one in world.ends],
        [one.name for one in world.store.sets],
    )


@st.composite
def plans(draw: st.DrawFn) -> Plan:
    hosts, of = draw(st.integers(3, 12)), draw(st.sampled_from([1, 1, 2]))
    ms = lambda *times: draw(st.sampled_from([time * MS for time in times]))  # noqa: E731
    has_agents, buffers = draw(st.booleans()), draw(st.sampled_from([0, 3]))
    spares = draw(st.integers(0, 2)) if has_agents else 0
    some_chips = st.lists(st.sampled_from([1, 8]), min_size=hosts + spares, max_size=hosts + spares)
    shape = Shape(
        ranks=hosts * of,
        hosts=hosts,
        spares=spares,
        chips=tuple(draw(some_chips)) if has_agents and draw(st.booleans()) else (),
        until=draw(st.sampled_from([5, 20, 60])),
        step_ns=(ms(40, 70),),
        import_ns=ms(0, 300),
        copy_ns=ms(1, 30),
        write_ns=ms(10, 200),
        buffers=buffers,
        flush_ns=ms(1, 50),
        peers_ns=ms(0, 5, 30) if buffers else 0,
    )
    delays = Delays(
        has_agents=has_agents, link_ns=(ms(0, 0, 1, 20),), words_ns=(ms(0, 1),), look_ns=(ms(0, 5),)
    )
    hows = st.sampled_from(["is lost", "is lost", "stalls", "is cut off", "is killed", "fails"])
    times = st.sampled_from([1 * MS, 500 * MS, 3 * SECOND, 12 * SECOND])
    which = draw(st.lists(st.integers(1, hosts - 1), min_size=1, max_size=3, unique=True))
    strikes = st.builds(Strike, st.integers(0, 6000).map(lambda at: at * MS), hows,
                        st.sampled_from(which), times, times)  # fmt: skip
    never, often = saves.Never(), saves.EverySteps(draw(st.sampled_from([1, 3, 5])))
    return Plan(
        shape,
        delays,
        draw(st.sampled_from([never, saves.EverySteps(4)])),
        often if buffers else never,
        tuple(draw(st.lists(strikes, min_size=1, max_size=4))),
        draw(st.none() | st.integers(1, 9000).map(lambda at: at * MS)),
    )


TWO_APART = Plan(  # and lost together: each has its part on the host between them, or after it
    Shape(ranks=9, hosts=9, until=60, buffers=3, flush_ns=50 * MS, peers_ns=5 * MS),
    Delays(),
    saves.Never(),
    saves.EverySteps(3),
    (Strike(3 * SECOND, "is lost", 3), Strike(3 * SECOND, "is lost", 6)),
)


@settings(max_examples=60)
@given(plans())
@example(TWO_APART)
def test_hosts_that_nothing_happens_to_are_folded(plan: Plan) -> None:
    few = plan.folded()
    assert left(played(few)) == left(played(plan))


def test_of_a_thousand_hosts_few_are_played() -> None:
    shape = replace(TWO_APART.shape, ranks=8000, hosts=1000, chips=(8,) * 1000)
    few = TWO_APART._replace(shape=shape, delays=Delays(has_agents=True)).folded()
    assert few.shape.hosts == 6  # the first, three rows, and two that are struck
    world = played(few)
    capacity = {one.of for one in facts_of(world) if isinstance(one, facts.CapacityFact)}
    assert capacity == {8000}
    assert len(world.launches) > 1


def test_a_rank_is_found_again() -> None:
    few = fold(Shape(ranks=20, hosts=10), Delays(), {4, 5, 9})
    assert few.hosts == (0, 1, 1, 1, 2, 3, 4, 4, 4, 5)
    assert [few.rank(rank) for rank in (0, 2, 7, 9, 10, 19)] == [0, 2, 3, 5, 6, 11]


@pytest.mark.parametrize(
    ("shape", "delays"),
    [
        (Shape(ranks=5, hosts=3), Delays()),
        (Shape(ranks=4, hosts=4, step_ns=(1, 2)), Delays()),
        (Shape(ranks=4, hosts=4), Delays(spawn_ns=(1, 2))),
        (Shape(ranks=4, hosts=4, chips=(8, 8, 0, 8)), Delays(has_agents=True)),
        (Shape(ranks=4, hosts=4, elastic=ElasticLimits()), Delays(has_agents=True)),
    ],
)
def test_what_is_not_alike_is_not_folded(shape: Shape, delays: Delays) -> None:
    with pytest.raises(ValueError, match=r"more than|longer than|do not$|how many it has"):
        fold(shape, delays, {1})
