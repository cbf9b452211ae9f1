"""The foreman of a run: a detached actor that holds its placement group, and its agents.

It needs no submitter, and no resources. Ray starts it again elsewhere when its node is gone; it
finds the group and the actors by their names, and the agents that live. What it does is decided by
`core.hosts.crew`; here it looks, and carries out.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from holdfast.config import add_variables
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts import crew as ask
from holdfast.core.hosts.crew import ActorState, AgentState, Crew, CrewPlace
from holdfast.core.hosts.engine import EngineHost, HostStage, Submission
from holdfast.engines.ray.cluster import ray_words
from holdfast.engines.ray.host import AgentSight
from holdfast.engines.ray.options import RayOptions
from holdfast.engines.ray.placing import (
    ForemanTold,
    find_group,
    fitting,
    make_group,
    open_host,
)
from holdfast.engines.ray.private import RayHooks
from holdfast.engines.ray.store import StoreLook

TURN_S = 1.0  # an agent's or an actor's end is heard at once; nodes and the store are asked
WATCH_S = 20.0  # a host's actor answers by then, also where nothing is new
ANSWER_S = 5.0  # how long an actor is waited for that is to end something
MS_NS = 1_000_000
STAGES = {
    AgentState.NONE: HostStage.COMING,
    AgentState.RUNNING: HostStage.READY,
    AgentState.ENDED: HostStage.GONE,
}


@dataclass(slots=True)
class _Seat:
    """One place, as far as Ray has told of it. `actor`, `asked`: Ray's own objects.

    `since_unix_ns`: from when it waits for a node and an actor; 0: it has them. `words`: why its
    actor has ended.
    """

    index: int
    since_unix_ns: int
    node: str = ""
    actor: Any = None
    asked: Any = None
    sight: AgentSight | None = None
    words: str = ""


@dataclass(slots=True)
class ForemanTells:
    """What the foreman tells about its order."""

    state: str
    since_unix_ns: int
    hosts: tuple[EngineHost, ...] = ()


class Foreman:
    """Looks, decides and acts, in a thread, until its order is over."""

    def __init__(self, told: ForemanTold) -> None:
        import ray

        self._ray, self._told = ray, told
        add_variables(told.options.variables)
        self._submission = Submission.from_json(told.submission)
        self._crew = Crew(round(told.grace_s * SECOND_NS), told.since_term)
        self._hooks = RayHooks(self._say)
        self._store = StoreLook(self._submission, self._say)
        now_unix_ns = time.time_ns()
        self._seats = [_Seat(index, now_unix_ns) for index in range(self._submission.all_hosts)]
        self._standing = ForemanTells("PENDING", now_unix_ns)
        self._nodes: dict[str, str] = {}  # the address of each that there was
        self._fitting = 0  # how many live and have what a host needs
        self._draining: dict[str, int] = {}
        self._looked_s = 0.0
        self._group: Any = None
        threading.Thread(target=self._work, name="foreman", daemon=True).start()

    # --- what is asked of it ------------------------------------------------------------------

    def standing(self) -> ForemanTells:
        """How the order stands."""
        return self._standing

    def release(self) -> str:
        """Have all agents save and go, and give their places back."""
        self._crew.release()
        count = sum(one.sight is not None for one in self._seats)
        return f"{count} agents are told to save and go; Ray has the hosts back after that"

    def replace(self, node: str, reason: str) -> str:
        """Have that node's host leave its part to a spare; "": it has none."""
        for seat in self._seats:
            if seat.node and node in (seat.node, self._nodes.get(seat.node)):
                is_drained = self._hooks.drain(seat.node, reason)
                if seat.actor is not None:
                    seat.actor.notice.remote(0)
                then = (
                    f"and Ray schedules nothing there; Ray gives another node in its place once "
                    f"{node} has ended"
                    if is_drained
                    else "but Ray does not drain its node, so other work may come there"
                )
                return f"host {seat.index} is told that it will go, {then}"
        return ""

    # --- its work -----------------------------------------------------------------------------

    def _work(self) -> None:
        is_over = self._store.has_ended(self._told.order)
        while not is_over:
            self._try(self._turn)
            is_over = self._crew.is_over
        while True:  # until this process is ended by it
            self._try(self._leave)

    def _try(self, do: Callable[..., object], *given: object) -> None:
        try:
            do(*given)
        except Exception as error:  # Ray's: it may be away for a while
            self._say(f"Ray did not answer: {ray_words(error)}")
            time.sleep(TURN_S)

    def _turn(self) -> None:
        if time.monotonic() - self._looked_s >= TURN_S:
            self._look()
            self._looked_s = time.monotonic()
        places = [self._place(seat) for seat in self._seats]
        for order in self._crew.look(time.monotonic_ns(), places, self._store.newest):
            self._try(self._carry_out, order)
        self._tell(places)
        if self._crew.is_over:
            return
        waiting = {seat.asked: seat for seat in self._seats if seat.asked is not None}
        if not waiting:
            time.sleep(TURN_S)
            return
        ready, _ = self._ray.wait(list(waiting), num_returns=1, timeout=TURN_S)
        for one in ready:
            self._hear(waiting[one])

    def _look(self) -> None:
        """Where the bundles are, and which nodes live and are drained."""
        from ray.util.placement_group import placement_group_table

        if self._group is None:
            self._group = find_group(self._told) or make_group(self._told)
        nodes = self._ray.nodes()
        living = {one["NodeID"] for one in nodes if one["Alive"]}
        self._nodes = {one["NodeID"]: one["NodeManagerAddress"] for one in nodes}
        self._fitting = fitting(nodes, self._told.options)
        self._draining = self._hooks.draining()
        table = placement_group_table(self._group)
        at = table.get("bundles_to_node_id", {})
        for seat in self._seats:
            node = at.get(seat.index, "")
            self._move(seat, node if node in living else "")

    def _move(self, seat: _Seat, node: str) -> None:
        if node == seat.node:
            return
        if seat.node:
            self._say(f"host {seat.index}: node {self._nodes.get(seat.node, seat.node)} is gone")
            seat.since_unix_ns, seat.words = time.time_ns(), ""
        seat.node, seat.actor, seat.asked, seat.sight = node, None, None, None

    def _hear(self, seat: _Seat) -> None:
        try:
            seat.sight = self._ray.get(seat.asked)
        except Exception as error:
            seat.words = ray_words(error)
            self._say(f"host {seat.index}: its actor is gone: {seat.words}")
            seat.actor, seat.asked, seat.sight = None, None, None
        else:
            seat.since_unix_ns, seat.words = 0, ""
            seat.asked = seat.actor.watch.remote(seat.sight, WATCH_S)

    def _place(self, seat: _Seat) -> CrewPlace:
        drains = self._draining.get(seat.node)
        place = CrewPlace(seat.index, seat.node, drains)
        if seat.sight is None:
            link = ActorState.NONE if seat.actor is None else ActorState.OPENING
            return replace(place, link=link, words=seat.words)
        state, code, words = seat.sight
        return replace(place, link=ActorState.OPEN, agent=AgentState(state), code=code, words=words)

    def _carry_out(self, order: ask.Order) -> None:
        match order:
            case ask.OpenLink(index):
                self._open(self._seats[index])
            case ask.StartAgent(index, why):
                self._say(f"host {index}: its agent is started: {why}")
                self._start(self._seats[index])
            case ask.TellNotice(index, drains_ms, why):
                self._say(f"host {index}: {why}")
                self._seats[index].actor.notice.remote(drains_ms)
            case ask.DrainNode(node, why):
                self._say(f"node {node} is drained: {why}")
                self._hooks.drain(node, why)
            case ask.EndAgents(now, why):
                self._say(f"all agents are {'ended' if now else 'told to save and go'}: {why}")
                for seat in self._seats:
                    if seat.actor is not None:
                        seat.actor.end.remote(now)
            case ask.StopRun(why):
                self._say(f"the run is asked to stop: {why}")
                self._store.stop_run(self._told.grace_s)
            case ask.GiveBack(code, why):
                self._say(f"over with {code}: {why}")
                self._store.tell_end(self._told.order, code, why)

    def _open(self, seat: _Seat) -> None:
        seat.actor = open_host(
            self._told, self._group, seat.index, since_unix_ns=seat.since_unix_ns
        )
        seat.asked = seat.actor.watch.remote(None, WATCH_S)

    def _start(self, seat: _Seat) -> None:
        seat.actor.start.remote()
        seat.sight = AgentSight(AgentState.RUNNING)  # until the watch says how it is

    def _leave(self) -> None:
        """Give all back, and end."""
        from ray.util.placement_group import remove_placement_group

        actors = [seat.actor for seat in self._seats if seat.actor is not None]
        closed = [one.close.remote() for one in actors]
        if closed:
            self._ray.wait(closed, num_returns=len(closed), timeout=ANSWER_S)
        for one in actors:
            self._ray.kill(one)
        if (group := self._group or find_group(self._told)) is not None:
            remove_placement_group(group)
        self._ray.kill(self._ray.get_runtime_context().current_actor)

    # --- what it tells ------------------------------------------------------------------------

    def _tell(self, places: list[CrewPlace]) -> None:
        hosts = tuple(self._host(place) for place in places)
        state = "RELEASED" if self._crew.is_released else self._state(places)
        since = self._standing.since_unix_ns if state == self._standing.state else time.time_ns()
        self._standing = ForemanTells(state, since, hosts)

    def _state(self, places: list[CrewPlace]) -> str:
        have, wanted = sum(bool(place.node) for place in places), len(places)
        if have == wanted:
            return "RUNNING"
        needs = f"each needs {_words(self._told.options)}"
        if have:
            return f"RUNNING ({have} of {wanted} hosts have a node; {needs})"
        if self._fitting >= wanted:
            return f"PENDING ({self._fitting} nodes would do, and some are in use; {needs})"
        return f"PENDING ({self._fitting} of {wanted} nodes are there; {needs})"

    def _host(self, place: CrewPlace) -> EngineHost:
        name = self._nodes.get(place.node) or f"bundle {place.index}"
        reason, deadline = self._crew.state(place), None
        stage = STAGES[place.agent]
        if place.drains_ms is not None:
            stage, deadline = HostStage.DRAINING, place.drains_ms * MS_NS or None
        return EngineHost(name, stage, place.index, reason or place.words, deadline)

    def _say(self, words: str) -> None:
        """Into Ray's log of this actor."""
        print(f"holdfast foreman: {words}", flush=True)


def _words(options: RayOptions) -> str:
    labels = "".join(f", {name}={value}" for name, value in options.labels.items())
    return ", ".join(f"{name} {value:g}" for name, value in options.bundle.items()) + labels
