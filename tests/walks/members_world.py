"""Agents of several hosts and the controller's end of their links, on a network that fails.

Membership, the link's end (`controller.remote_hosts`), the reader of the hosts' reports and each
agent's seat are real. A message is a register on its way: the newest is delivered when the walk
says so, one may be kept back and come late, and a way may be cut in one direction. Time passes in
ticks of as long as a host is silent before it is suspect; two ticks, and it is lost.
"""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.controller.remote_hosts import RemoteHosts
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.membership import HostLimits, Membership, MemberState
from holdfast.core.hosts.order import Host, HostOrder
from holdfast.core.hosts.placement import place
from holdfast.core.hosts.reader import ReportReader
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import ControllerSays, encode_controller, order_json
from holdfast.core.hosts.seat import Seat

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from quiet_host import QuietHost
from stepwise import Broken

sys.path.pop(0)

TICK_NS = 2_000_000_000
LIMITS = HostLimits(TICK_NS, 2 * TICK_NS, 2 * TICK_NS)
PORTS = (1, 2)
UP, DOWN = "up", "down"
PASSES = "time passes"
WELL_TICKS = 4  # then it stays so
MOST_MOVES = 400  # of a fair run until all is well again


class MemberHost(QuietHost):
    """What an agent has while it has a slot. `runs`: the attempt of which its rank lives."""

    def __init__(self, agent: Agent, slot: int) -> None:
        super().__init__()
        self.slot = slot
        self.runs: int | None = None
        self.report = HostReport()
        self._agent = agent

    def launch(self, action: act.Launch) -> None:
        self._agent.world.starts(self._agent, self.slot, action.attempt)
        self.report.begin(action.attempt, 0, 1)
        self.report.note(ev.Launched(0, action.attempt))
        self.report.number += 1
        self.runs = action.attempt

    def kill(self) -> None:
        """It takes a moment: see `Agent.empties`."""
        self._agent.is_ending = self.runs is not None

    def empties(self) -> None:
        """Nothing is left of what it ran."""
        assert self.runs is not None
        self.report.note(ev.RankExited(0, self.runs, self.slot, 0, Exit(signal=9)))
        self.report.note(ev.TreeGone(0, self.runs))
        self.report.number += 1
        self.runs = None


@dataclass
class Agent:
    """One agent's process. `cut`: the ways on which nothing goes."""

    world: Members
    index: int
    number: int
    seat: Seat = field(init=False)
    host: MemberHost | None = None
    is_alive: bool = True
    is_ending: bool = False
    cut: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.seat = Seat(self.index, self.world.new_life(self.index), self.begin)
        self.seat.address, self.seat.ports = "a", PORTS

    def begin(self, slot: int) -> Host:
        if self.host is not None and self.host.runs is not None:
            raise Broken(f"agent {self.number} has slot {slot}, and runs something")
        self.host = MemberHost(self, slot)
        return self.host

    def takes(self, incarnation: str, message: dict[str, Any]) -> None:
        """As `agent.linked_agent` does."""
        if not self.is_alive or incarnation != self.seat.incarnation:
            return  # of a connection that is gone
        before = self.seat.heard
        self.seat.take(self.world.at_ns, message)
        if self.seat.heard != before:
            self.speaks()
        self.leaves_if_due()

    def leaves_if_due(self) -> None:
        if self.seat.refused is not None:
            self.is_alive = False
        elif self.seat.must_leave:
            if self.host is not None and self.host.runs is not None:
                self.host.kill()
                return
            self.host = None
            self.seat.has_left(self.world.new_life(self.index))
            self.speaks()

    def empties(self) -> None:
        assert self.host is not None
        self.is_ending = False
        self.host.empties()
        self.speaks()
        self.leaves_if_due()

    def speaks(self) -> None:
        """Its newest message is on its way."""
        report = None if self.host is None else self.host.report
        self.world.ways[UP, self.seat.incarnation] = self.seat.says(self.world.at_ns, report)


class Members:
    """Two slots, and as many spares. A `Wire`, and who is `Told` of the hosts."""

    def __init__(self, slots: int, spares: int, faults: int, kinds: str) -> None:
        """`faults`: how many things go wrong; `kinds`: the letters of `_faults` that may."""
        self.at_ns = 0
        self.faults = faults
        self._kinds = kinds
        self._slots, self._hosts = slots, slots + spares
        self.ways: dict[tuple[str, str], dict[str, Any]] = {}
        self.late: tuple[str, str, dict[str, Any]] | None = None
        self._lives: dict[int, int] = {}
        self._started: set[tuple[int, int]] = set()  # (slot, attempt)
        self.order = HostOrder()
        self.attempt = -1
        self._is_ending = False
        self.reader = ReportReader(slots, 0)
        self.remote = RemoteHosts(self, Membership(slots, spares, LIMITS), self.now_ns, self.say)
        self.remote.attach(self)
        self.agents = [Agent(self, index, index) for index in range(slots + spares)]
        for agent in self.agents:
            agent.speaks()
        self.remote.when_complete(self.launches)

    def now_ns(self) -> int:
        return self.at_ns

    def say(self, level: str, words: str) -> None:
        """To nobody."""

    def new_life(self, index: int) -> str:
        life = self._lives[index] = self._lives.get(index, -1) + 1
        return f"{index}.{life}"

    # --- the controller ---------------------------------------------------------------------

    def written(self, order: HostOrder) -> bytes:
        return order_json(order)

    def put(self, incarnation: str, says: ControllerSays, order: bytes | None) -> None:
        self.ways[DOWN, incarnation] = json.loads(encode_controller(says, order))

    def silent_ns(self, incarnation: str) -> int | None:
        for agent in self.agents:
            if agent.seat.incarnation == incarnation and agent.is_alive and UP not in agent.cut:
                return 0
        return None

    def unread_ns(self) -> int:
        return 0

    def launches(self) -> None:
        """Every slot has a host: the next attempt begins."""
        self.attempt += 1
        self._is_ending = False
        placement = place(self._slots, range(self._slots))
        self._want(act.Launch(self.attempt, ev.SCRATCH, placement))

    def _want(self, action: act.Action) -> None:
        self.order.want(action)
        self.order.number += 1
        events = self.reader.ordered(self.order, self.at_ns)
        self.remote.obey(self.order)
        self._decide(events)

    def hear(self, report: HostReport, host: int) -> None:
        self._decide(self.reader.read(host, report, self.at_ns, 0))

    def feed(self, event: ev.Event) -> None:
        """Nobody asks for anything here."""

    def lose(self, host: int) -> None:
        self._decide(self.reader.lose(host, self.at_ns, 0))

    def replace(self, host: int) -> bool:
        return self.reader.replace(host)

    def _decide(self, events: list[ev.Event]) -> None:
        """A rank that has ended ends the attempt, and the next one begins once all is gone."""
        for event in events:
            if getattr(event, "attempt", None) != self.attempt:
                continue
            if isinstance(event, ev.RankExited) and not self._is_ending:
                self._is_ending = True
                self._want(act.Kill("a rank has ended"))
            elif isinstance(event, ev.TreeGone):
                self.remote.when_complete(self.launches)

    # --- what may happen --------------------------------------------------------------------

    def fair(self) -> Iterator[tuple[str, Callable[[Members], None]]]:
        """What happens at last."""
        for (way, incarnation), _ in self.ways.items():
            agent = self._who(incarnation)
            if agent is None or way not in agent.cut:
                yield f"{way} {incarnation}", partial(_deliver, way, incarnation)
        for agent in self.agents:
            if agent.is_alive and agent.is_ending:
                yield f"{agent.number} is empty", partial(_empties, agent.number)
        yield PASSES, _tick

    def unfair(self) -> Iterator[tuple[str, Callable[[Members], None]]]:
        """What need not happen."""
        if self.late is not None:
            yield "what was late comes", _late_comes
        if not self.faults:
            return
        for agent in self.agents:
            if agent.is_alive:
                yield from self._faults(agent)
        for way, incarnation in list(self.ways) if "l" in self._kinds and not self.late else ():
            yield f"{way} {incarnation} is late", partial(_is_late, way, incarnation)

    def _faults(self, agent: Agent) -> Iterator[tuple[str, Callable[[Members], None]]]:
        number, kinds = agent.number, self._kinds
        if "r" in kinds:
            yield f"{number} is restarted", partial(_restart, number)
        if "k" in kinds:
            yield f"{number} is gone", partial(_kill, number)
        if "d" in kinds and len(self.agents) == self._hosts:
            yield f"another one like {number} comes", partial(_double, number)
        for way, letter in ((UP, "u"), (DOWN, "o")):
            if letter in kinds and way not in agent.cut:
                yield f"{number} is cut off {way}", partial(_cut, number, (way,))
        if "c" in kinds and not agent.cut:
            yield f"{number} is cut off", partial(_cut, number, (UP, DOWN))

    def _who(self, incarnation: str) -> Agent | None:
        return next((one for one in self.agents if one.seat.incarnation == incarnation), None)

    # --- what must be -----------------------------------------------------------------------

    def starts(self, agent: Agent, slot: int, attempt: int) -> None:
        """An agent starts what it is ordered."""
        if (slot, attempt) in self._started:
            raise Broken(f"{agent.seat.incarnation} starts slot {slot} of attempt {attempt} again")
        self._started.add((slot, attempt))
        assert agent.host is not None
        if agent.host.runs is not None:
            raise Broken(f"{agent.number} starts {attempt} beside {agent.host.runs}")
        if agent.seat.must_leave:
            raise Broken(f"{agent.number} starts {attempt}, and is to leave")

    @property
    def is_well(self) -> bool:
        """Whether the newest attempt runs in every slot, and nobody runs anything else."""
        hosts = [one.host for one in self.agents if one.is_alive and one.host is not None]
        runs = sorted((one.slot, one.runs) for one in hosts if one.runs is not None)
        return runs == [(slot, self.attempt) for slot in range(self._slots)]

    @property
    def can_be_well(self) -> bool:
        """Whether enough hosts live."""
        return len({one.index for one in self.agents if one.is_alive}) >= self._slots

    def key(self) -> Hashable:
        """What two worlds have in common that go on alike: no number of a message, no moment."""
        members = tuple(
            (
                one.incarnation, str(one.state), one.slot, one.is_linked,
                min(2, (self.at_ns - one.heard_ns) // TICK_NS) if one.is_there else 0,
                max(0, one.judged_ns - self.at_ns) if one.state is MemberState.WAITING else 0,
            )
            for one in self.remote.membership.members.values()
        )  # fmt: skip
        late = self.late and (self.late[0], self.late[1], self._plain(*self.late))
        ways = tuple((of, self._plain(*of, said)) for of, said in sorted(self.ways.items()))
        agents = tuple(self._agent_key(one) for one in self.agents)
        reader = tuple(
            (one.has_launched, one.is_gone, one.is_lost, tuple(sorted(one.exited)))
            for one in self.reader._hosts
        )
        waits = self.remote.awaited.is_waiting, self.attempt, self._is_ending, self.faults
        return members, ways, late, agents, reader, waits

    def _agent_key(self, agent: Agent) -> Hashable:
        host, seat = agent.host, agent.seat
        of_host = None if host is None else (host.slot, host.runs, host._carried_out)
        known = None if seat._newest is None else self._plain_of(seat._newest[0])
        has = seat.assignment and seat.assignment.number
        cut = tuple(sorted(agent.cut))
        return seat.incarnation, agent.is_alive, agent.is_ending, of_host, known, has, cut

    @staticmethod
    def _plain_of(says: Any) -> Hashable:
        return says.assignment and says.assignment.number, says.is_given_up, says.refused

    def _plain(self, way: str, incarnation: str, message: dict[str, Any]) -> str:
        """A message without its numbers; whether it was overtaken."""
        says = {k: v for k, v in message["says"].items() if k not in ("sent_ns", "difference_ns")}
        number = says.pop("number")
        heard = says.pop("heard", 0)
        agent, host = self._who(incarnation), self.remote.heard.get(incarnation)
        if way == UP:
            known = 0 if host is None else host.heard
            says["answers"] = host is not None and heard >= host.sent
        else:
            known = 0 if agent is None else agent.seat.heard
        says["is_new"] = number > known
        rest = message.get("order"), message.get("report")
        return json.dumps([says, rest], sort_keys=True, default=str)


# --- moves: each changes the world that it is given ------------------------------------------


def _deliver(way: str, incarnation: str, world: Members) -> None:
    message = world.ways.pop((way, incarnation))
    _hand_over(way, incarnation, message, world)


def _hand_over(way: str, incarnation: str, message: dict[str, Any], world: Members) -> None:
    if way == UP:
        world.remote.take(incarnation, message)
    elif (agent := world._who(incarnation)) is not None:
        agent.takes(incarnation, message)


def _is_late(way: str, incarnation: str, world: Members) -> None:
    """A copy of it comes later, once more."""
    world.faults -= 1
    world.late = way, incarnation, copy.deepcopy(world.ways[way, incarnation])


def _late_comes(world: Members) -> None:
    late, world.late = world.late, None
    assert late is not None
    _hand_over(*late, world)


def _empties(number: int, world: Members) -> None:
    world.agents[number].empties()


def _tick(world: Members) -> None:
    """Whoever lives says so, and the controller answers; then it looks who is silent."""
    world.at_ns += TICK_NS
    for agent in world.agents:
        if agent.is_alive:
            if UP not in agent.cut:  # the link tells that it lives
                world.remote.membership.heard(world.at_ns, agent.seat.incarnation)
            agent.speaks()
    world.remote.look()


def _cut(number: int, ways: tuple[str, ...], world: Members) -> None:
    world.faults -= 1
    world.agents[number].cut |= set(ways)


def _kill(number: int, world: Members) -> None:
    world.faults -= 1
    agent = world.agents[number]
    agent.is_alive, agent.host = False, None


def _restart(number: int, world: Members) -> None:
    """Its process is another one, which knows nothing; the ranks went with the one before."""
    agent = world.agents[number]
    incarnation, index = agent.seat.incarnation, agent.index
    _kill(number, world)
    world.agents[number] = Agent(world, index, number)
    world.agents[number].speaks()
    world.remote.closed(incarnation)


def _double(number: int, world: Members) -> None:
    world.faults -= 1
    agent = Agent(world, world.agents[number].index, len(world.agents))
    world.agents.append(agent)
    agent.speaks()


def heal(world: Members) -> None:
    """Nothing is cut any more, and nothing else goes wrong."""
    world.faults, world.late = 0, None
    for agent in world.agents:
        agent.cut.clear()


def moved(world: Members, move: Callable[[Members], None]) -> Members:
    """Another world, in which that has happened."""
    after = copy.deepcopy(world)
    move(after)
    return after


def settle(world: Members, known: set[Hashable]) -> list[Hashable]:
    """Let all happen that happens at last, in turn; the states on the way, up to a known one."""
    passed: list[Hashable] = []
    well_for = 0  # so many ticks
    for _ in range(MOST_MOVES):
        key = world.key()
        if key in known or not world.can_be_well or well_for == WELL_TICKS:
            return [*passed, key]
        passed.append(key)
        what, move = next(world.fair())
        move(world)
        if not world.is_well:
            well_for = 0
        elif what == PASSES:
            well_for += 1
    raise Broken(f"it does not come to rest: {world.key()}")
