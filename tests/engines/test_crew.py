"""Who is started, told and ended on an engine's places: a table, and a random walk."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import pairwise

import pytest

from holdfast.core.hosts.crew import (
    MOST_SHORT_LIVES,
    PUT_OFF_NS,
    SECOND_NS,
    ActorState,
    AgentState,
    Crew,
    CrewPlace,
    CrewRun,
    DrainNode,
    EndAgents,
    GiveBack,
    OpenLink,
    StartAgent,
    StopRun,
    TellNotice,
)

S = SECOND_NS
OPEN, OPENING = ActorState.OPEN, ActorState.OPENING
RUNNING, ENDED = AgentState.RUNNING, AgentState.ENDED
NOBODY = CrewRun()


def at(index: int = 0, node: str = "a", **more: object) -> CrewPlace:
    return CrewPlace(index, node, **more)  # type: ignore[arg-type]


def runs(index: int = 0, node: str = "a", **more: object) -> CrewPlace:
    return at(index, node, link=OPEN, agent=RUNNING, **more)


def ended(code: int, index: int = 0, node: str = "a", **more: object) -> CrewPlace:
    return at(index, node, link=OPEN, agent=ENDED, code=code, **more)


def started(*places: CrewPlace, crew: Crew | None = None) -> Crew:
    """A crew of which all these have been started."""
    crew = crew or Crew()
    crew.look(0, [replace(one, link=OPEN, agent=AgentState.NONE) for one in places], NOBODY)
    crew.look(1, [replace(one, link=OPEN, agent=RUNNING) for one in places], NOBODY)
    return crew


def test_a_place_with_a_node_gets_an_actor_and_then_an_agent() -> None:
    crew = Crew()
    assert crew.look(0, [at(node="")], NOBODY) == []
    assert crew.look(1, [at()], NOBODY) == [OpenLink(0, "nobody is there")]
    assert crew.look(2, [at(link=OPENING)], NOBODY) == []
    assert crew.look(3, [at(link=OPEN)], NOBODY) == [StartAgent(0, "it is the first")]
    assert crew.look(4, [runs()], NOBODY) == []


def test_an_agent_that_an_earlier_foreman_has_started_is_left_alone() -> None:
    assert Crew().look(0, [runs()], NOBODY) == []


def test_an_actor_that_dies_is_opened_again_and_its_agent_is_not_started() -> None:
    crew = started(at())
    assert crew.look(2, [at()], NOBODY) == [OpenLink(0, "nobody is there")]
    assert crew.look(3, [at()], NOBODY) == []  # not more than once a second
    assert crew.look(4, [runs()], NOBODY) == []


def test_an_actor_that_cannot_begin_is_tried_ever_more_rarely_and_says_why() -> None:
    crew, at_s = Crew(), []
    broken = at(words="ModuleNotFoundError: No module named 'holdfast'")
    for now_s in range(200):
        if crew.look(now_s * S, [broken], NOBODY):
            at_s.append(now_s)
    assert [later - before for before, later in pairwise(at_s)] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert "is started again: ModuleNotFoundError" in crew.state(broken)
    crew.look(200 * S, [runs()], NOBODY)
    assert crew.look(260 * S, [at()], NOBODY)
    assert crew.look(261 * S, [at()], NOBODY)  # it was there: a second again


def test_a_host_whose_node_is_gone_is_started_on_the_next_one_once_the_run_has_lost_it() -> None:
    crew = started(at())
    heard = CrewRun(1, there=frozenset({0}))
    assert crew.look(2, [at(node="")], heard) == []
    moved = at(node="b", link=OPEN)
    assert crew.look(3, [moved], heard) == []
    assert crew.look(4, [moved], CrewRun(1)) == [StartAgent(0, "its agent went with its node")]


def test_what_the_store_says_of_a_host_that_is_gone_is_believed_for_a_minute() -> None:
    crew, moved = started(at()), at(node="b", link=OPEN)
    heard = CrewRun(1, there=frozenset({0}))
    crew.look(2, [moved], heard)
    assert crew.look(PUT_OFF_NS, [moved], heard) == []
    (start,) = crew.look(2 + PUT_OFF_NS, [moved], heard)
    assert isinstance(start, StartAgent)


def test_a_host_that_comes_back_to_its_own_node_finds_its_agent() -> None:
    """The raylet was killed and started again: another node of Ray's, and the same machine."""
    crew = started(at())
    heard = CrewRun(1, there=frozenset({0}))
    assert crew.look(2, [at(node="")], heard) == []
    crew.look(2 * S, [at(node="a2")], heard)
    assert crew.look(3 * S, [runs(node="a2")], heard) == []


def test_an_agent_that_fails_is_started_again_later_each_time() -> None:
    crew = started(at(), at(1, "b"))
    now, pauses = 2, []
    for _ in range(7):
        places = [ended(69), runs(1, "b")]
        since = now
        while not (orders := crew.look(now, places, NOBODY)):
            now += S // 4
        assert [type(one) for one in orders] == [StartAgent]
        pauses.append(round((now - since) / S))
        now += 1
        crew.look(now, [runs(), runs(1, "b")], NOBODY)
        now += 1
    assert pauses == [2, 4, 8, 16, 32, 60, 60]


def test_a_long_life_ends_the_count() -> None:
    crew = started(at(), at(1, "b"))
    crew.look(2, [ended(69), runs(1, "b")], NOBODY)
    crew.look(2 + 2 * S, [ended(69), runs(1, "b")], NOBODY)
    crew.look(100 * S, [runs(), runs(1, "b")], NOBODY)
    crew.look(101 * S, [ended(69), runs(1, "b")], NOBODY)
    assert crew.look(103 * S, [ended(69), runs(1, "b")], NOBODY)


def test_hosts_that_are_all_refused_end_the_order_with_their_words() -> None:
    crew = started(at(), at(1, "b"))
    places = [ended(78, words="--ranks: 0 is no number of ranks"), ended(78, 1, "b")]
    assert crew.look(2, [*places[:1], runs(1, "b")], NOBODY) == []
    (back,) = crew.look(3, places, NOBODY)
    assert back == GiveBack(78, "no agent could stay; host 0: --ranks: 0 is no number of ranks")
    assert crew.is_over
    assert crew.look(4, places, NOBODY) == []


def test_agents_that_never_stay_are_given_up() -> None:
    crew, now, lives = started(at()), 2, 1
    while not any(isinstance(one, GiveBack) for one in crew.look(now, [ended(1)], NOBODY)):
        now += S
        if crew._of[0].has_ended is False:
            lives += 1
    assert lives == MOST_SHORT_LIVES


@pytest.mark.parametrize("code", [0, 1, 69])
def test_a_run_that_has_ended_gives_its_hosts_back(code: int) -> None:
    crew = started(at(), at(1, "b"))
    over = CrewRun(1, code, "its words")
    assert crew.look(2, [ended(code), runs(1, "b")], over) == []  # it will know at once
    assert crew.look(3, [ended(code), ended(code, 1, "b")], over) == [GiveBack(code, "its words")]


def test_a_host_without_a_link_does_not_hold_up_the_end() -> None:
    crew = started(at(), at(1, "b"))
    over = CrewRun(1, 0, "done")
    assert crew.look(2, [ended(0), at(1, "")], over) == [GiveBack(0, "done")]


def test_done_is_known_without_the_store() -> None:
    crew = started(at())
    assert crew.look(2, [ended(0)], NOBODY) == [GiveBack(0, "done")]


def test_how_the_run_ended_before_this_order_is_an_older_story() -> None:
    crew, before = Crew(since_term=3), CrewRun(3, 75, "stopped")
    assert crew.look(0, [at(link=OPEN)], before) == [StartAgent(0, "it is the first")]


def test_a_run_that_a_person_has_stopped_is_over() -> None:
    crew, stopped = started(at()), CrewRun(1, 75, "stopped", by_person=True)
    assert crew.look(2, [ended(75)], stopped) == [GiveBack(75, "stopped")]


@pytest.mark.parametrize("how", ["announced", "drained", "gone"])
def test_a_run_that_a_host_has_ended_begins_again_without_it(how: str) -> None:
    crew = started(at(), at(1, "b"))
    if how == "announced":
        crew.look(2, [runs(), runs(1, "b")], CrewRun(1, going=frozenset({1})))
    second = {
        "announced": ended(75, 1, "b"),
        "drained": ended(75, 1, "b", drains_ms=0),
        "gone": at(1, ""),
    }[how]
    stopped = CrewRun(1, 75, "stopped")
    orders = crew.look(3, [ended(75), second], stopped)
    orders += crew.look(4, [ended(75), second], stopped)
    assert [one.host for one in orders if isinstance(one, StartAgent)] == [0]
    moved = crew.look(5, [runs(), at(1, "c", link=OPEN)], CrewRun(2))
    assert [one.host for one in moved if isinstance(one, StartAgent)] == [1]


def test_a_drain_is_told_once_and_taken_back() -> None:
    crew, drained = started(at()), runs(drains_ms=5000)
    assert crew.look(2, [drained], NOBODY) == [TellNotice(0, 5000, "its node is drained")]
    assert crew.look(3, [drained], NOBODY) == []
    assert crew.look(4, [runs(drains_ms=9000)], NOBODY) == [
        TellNotice(0, 9000, "its node is drained")
    ]
    assert crew.look(5, [runs()], NOBODY) == [TellNotice(0, None, "its node is drained no more")]


def test_nothing_is_started_on_a_node_that_will_be_taken() -> None:
    assert Crew().look(0, [at(link=OPEN, drains_ms=0)], NOBODY) == []


def test_our_own_notice_drains_the_node_and_comes_back_as_no_second_notice() -> None:
    crew, going = started(at(), at(1, "b")), CrewRun(1, going=frozenset({1}))
    drain = DrainNode("b", "host 1 is announced to go")
    places = [runs(), runs(1, "b")]
    assert crew.look(2, places, going) == [drain]
    assert crew.look(3, places, going) == []
    assert crew.look(4, [runs(), runs(1, "b", drains_ms=0)], going) == []


def test_a_run_is_over_though_no_actor_comes_to_a_drained_node_again() -> None:
    crew = started(at(), at(1, "b"))
    cut_off, other = at(link=OPENING, drains_ms=0), ended(0, 1, "b")
    assert crew.look(2, [cut_off, runs(1, "b")], CrewRun(1)) == []
    assert crew.look(3, [cut_off, other], CrewRun(1)) == []  # its agent may run
    assert crew.look(4, [at(link=OPENING), other], CrewRun(1, 0, "done")) == []  # it will tell
    assert crew.look(5, [cut_off, other], CrewRun(1, 0, "done")) == [GiveBack(0, "done")]


def test_release_reaches_a_host_on_a_drained_node_without_an_actor() -> None:
    crew = started(at(), at(1, "b"))
    cut_off = at(1, "b", link=OPENING, drains_ms=0)
    crew.release()
    there = CrewRun(1, there=frozenset({0, 1}))
    assert StopRun("host 1 has no link") in crew.look(2, [runs(), cut_off], there)
    assert crew.look(3, [ended(75), cut_off], there) == []
    over = CrewRun(1, 75, "stopped", by_person=True)
    assert crew.look(4, [ended(75), cut_off], over) == [GiveBack(75, "released")]


def test_release_tells_all_waits_for_their_grace_and_then_ends_them() -> None:
    crew = started(at(), crew=Crew(grace_ns=30 * S))
    crew.release()
    assert crew.look(2, [runs()], NOBODY) == [EndAgents(False, "released")]
    assert crew.look(40 * S, [runs()], NOBODY) == []
    assert crew.look(46 * S, [runs()], NOBODY) == [EndAgents(True, "its grace is over")]
    assert crew.look(50 * S, [runs()], NOBODY) == []
    (back,) = crew.look(52 * S, [runs()], NOBODY)
    assert isinstance(back, GiveBack)


def test_release_is_over_once_all_have_gone() -> None:
    crew = started(at())
    crew.release()
    crew.look(2, [runs()], NOBODY)
    assert crew.look(3, [ended(75)], CrewRun(1, 75, "stopped")) == [GiveBack(75, "released")]


def test_release_of_what_has_no_node_yet() -> None:
    crew = Crew()
    crew.release()
    (back,) = crew.look(0, [at(node="")], NOBODY)
    assert isinstance(back, GiveBack)


def test_release_reaches_a_host_without_a_link_through_the_store() -> None:
    crew = started(at(), at(1, "b"))
    crew.release()
    orders = crew.look(2, [runs(), at(1, "")], CrewRun(1, there=frozenset({0, 1})))
    assert StopRun("host 1 has no link") in orders


@dataclass
class World:
    """Nodes, actors and agents, as they are; the crew sees some of it. The oracle of the walk."""

    chance: random.Random
    hosts: int
    nodes: list[str] = field(default_factory=list)
    at: dict[int, str] = field(default_factory=dict)
    actors: set[int] = field(default_factory=set)  # by index, on the node of that place
    opening: set[int] = field(default_factory=set)  # on a drained node they stay so
    agents: dict[tuple[int, str], int | None] = field(default_factory=dict)  # code, None: it runs
    drained: set[str] = field(default_factory=set)
    over: CrewRun = NOBODY

    def places(self) -> list[CrewPlace]:
        return [self._place(index) for index in range(self.hosts)]

    def _place(self, index: int) -> CrewPlace:
        node = self.at.get(index, "")
        place = CrewPlace(index, node, 0 if node in self.drained else None)
        if index not in self.actors:
            return replace(place, link=OPENING) if index in self.opening else place
        agent = self.agents.get((index, node), "none")
        if agent == "none":
            return replace(place, link=OPEN)
        state = RUNNING if agent is None else ENDED
        return replace(place, link=OPEN, agent=state, code=agent or 0)

    def run(self) -> CrewRun:
        there = {index for (index, node), code in self.agents.items() if code is None}
        return replace(self.over, there=frozenset(there))

    def settle(self) -> None:
        """Ray gives places without a node one that is free."""
        taken = {*self.at.values(), *self.drained}
        free = [one for one in self.nodes if one not in taken]
        for index in range(self.hosts):
            if index not in self.at and free:
                self.at[index] = free.pop()
        placed = {one for one in self.opening if self.at.get(one, "") not in self.drained}
        self.opening -= placed
        self.actors |= {one for one in placed if one in self.at}

    def strike(self) -> None:
        what = self.chance.choice(["node", "raylet", "actor", "agent", "drain", "new node", ""])
        index = self.chance.randrange(self.hosts)
        node = self.at.get(index, "")
        if what == "actor":
            self.actors.discard(index)
        elif what == "agent" and self.agents.get((index, node), "none") is None:
            self.agents[index, node] = self.chance.choice([69, -9])
        elif what in ("node", "raylet") and node:
            self.nodes.remove(node)
            self.actors.discard(index)
            self.opening.discard(index)
            del self.at[index]
            if what == "node":
                self.agents = {one: code for one, code in self.agents.items() if one[1] != node}
        elif what == "drain" and node:
            self.drained.add(node)
        elif what == "new node" and len(self.nodes) < 2 * self.hosts:
            self.nodes.append(f"n{self.chance.randrange(10**9)}")

    def obey(self, order: object) -> None:
        if isinstance(order, OpenLink):
            assert order.host not in self.actors | self.opening
            assert self.at[order.host]
            self.opening.add(order.host)
        elif isinstance(order, StartAgent):
            node = self.at[order.host]
            assert order.host in self.actors
            assert node not in self.drained, "started where it will be taken"
            assert self.agents.get((order.host, node), 1) is not None, "it ran already"
            self.agents[order.host, node] = None
        elif isinstance(order, EndAgents):
            for index in self.actors:
                key = index, self.at.get(index, "")
                if self.agents.get(key, 1) is None:
                    self.agents[key] = 75


@pytest.mark.parametrize("seed", range(60))
def test_a_random_walk(seed: int) -> None:
    """Nothing is started twice or where it will be taken; left alone, all run; then it ends."""
    chance = random.Random(seed)
    hosts = chance.randint(1, 4)
    world = World(chance, hosts, [f"n{index}" for index in range(hosts)])
    crew, now = Crew(), 0

    def turn() -> list[object]:
        nonlocal now
        now += S // 2
        world.settle()
        orders = crew.look(now, world.places(), world.run())
        for order in orders:
            world.obey(order)
        return list(orders)

    for _ in range(200):
        if chance.random() < 0.2:
            world.strike()
        assert not any(isinstance(one, GiveBack) for one in turn()) or _all_ended(world)
        if crew.is_over:
            return
    world.drained.clear()
    world.nodes += [f"late{index}" for index in range(hosts)]
    for _ in range(300):
        turn()
    assert crew.is_over or all(place.agent is RUNNING for place in world.places())
    crew.release()
    for _ in range(200):
        turn()
    assert crew.is_over


def _all_ended(world: World) -> bool:
    return all(place.agent is not RUNNING for place in world.places())
