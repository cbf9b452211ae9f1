"""Hosts of a run in virtual time: a controller's end of the links, and agents that answer it."""

from __future__ import annotations

import json

from holdfast.controller.host_care import CarePolicy, HostCare
from holdfast.controller.remote_hosts import RemoteHosts
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.membership import HostLimits, Membership, MemberState
from holdfast.core.hosts.order import CALM, HostOrder
from holdfast.core.hosts.placement import place
from holdfast.core.hosts.preflight import PreflightAnswer
from holdfast.core.hosts.report import HostReport
from holdfast.core.hosts.says import ControllerSays, encode_controller, order_json
from holdfast.core.hosts.seat import Seat
from holdfast.core.run.machine import RunMachine, RunPolicy

S = 1_000_000_000
BUS, KILL = Exit(signal=7), Exit(signal=9)


class Obeys:
    def __init__(self, _: int) -> None:
        self.order_word = self.verdict_word = 0
        self.attention = CALM

    def join(self, _: int) -> None: ...

    def obey(self, _: HostOrder) -> None: ...


class CareHouse:
    """A controller's hosts, their agents, and the folder where quarantine is on record."""

    def __init__(self, slots: int = 2, spares: int = 1, policy: CarePolicy | None = None) -> None:
        self.now_ns = 0
        self.said: list[str] = []
        self.sent: dict[str, bytes] = {}
        self.linked: dict[str, int] = {}  # how long they were silent
        self.began = 0
        self.machine = RunMachine(RunPolicy(ranks=slots, hosts=slots))
        self.file: dict[int, tuple[str, bool]] = {}
        self.members = Membership(slots, spares, HostLimits())
        self.hosts = RemoteHosts(self, self.members, self.now, self.say)
        self.hosts.attach(self)
        self.care = HostCare(
            self.hosts,
            self.now,
            self.say,
            policy or CarePolicy(),
            quarantine=self.quarantine,
            nonce=lambda: "nonce",
        )
        self.hosts.lost = self.care.lost
        self.seats = {n: self.seat(n) for n in range(slots + spares)}
        self.lives = 0

    def now(self) -> int:
        return self.now_ns

    def say(self, _: str, words: str) -> None:
        self.said.append(words)

    def quarantine(self) -> None:
        by_hand = {n: why for n, (why, is_ours) in self.file.items() if not is_ours}
        self.hosts.set_quarantine(self.care.reasons | by_hand)

    # --- what the hosts tell, of which nothing matters here
    def hear(self, report: HostReport, host: int) -> None: ...

    def feed(self, event: ev.Event) -> None: ...

    def lose(self, host: int) -> None: ...

    def replace(self, host: int) -> bool:
        return False

    # --- agents
    def written(self, order: HostOrder) -> bytes:
        return order_json(order)

    def put(self, incarnation: str, says: ControllerSays, order: bytes | None) -> None:
        self.sent[incarnation] = encode_controller(says, order)

    def silent_ns(self, incarnation: str) -> int | None:
        return self.linked.get(incarnation)

    def unread_ns(self) -> int:
        return 0

    def seat(self, index: int, name: str = "") -> Seat:
        seat = Seat(index, name or f"host {index}", Obeys)  # type: ignore[arg-type]
        seat.address, seat.ports = f"10.0.0.{index}", (1, 2, 3)
        self.up(seat)
        return seat

    def up(self, seat: Seat) -> None:
        message = json.dumps(seat.says(self.now_ns, None))
        self.hosts.take(seat.incarnation, json.loads(message))

    def down(self, index: int) -> Seat:
        seat = self.seats[index]
        seat.take(self.now_ns, json.loads(self.sent[seat.incarnation]))
        return seat

    def answer(self, index: int, failure: str = "", *, of_store: bool = False) -> None:
        """What that host says of its preflight, which it was ordered."""
        seat = self.down(index)
        order = seat.preflight_order
        assert order is not None
        assert order.checks
        seat.preflight = PreflightAnswer(order.number, failure, "all of it", 300_000_000, of_store)
        self.up(seat)
        self.care.look()

    def tries_out(self) -> list[int]:
        """Who is told to look at itself."""
        found = []
        for index, seat in self.seats.items():
            if self.members.members[seat.incarnation].is_there:
                order = self.down(index).preflight_order
                if order is not None and order.checks:
                    found.append(index)
        return found

    # --- the run
    def ends(self, rank: int, how: Exit) -> None:
        """Another attempt, which ends so on all ranks but the first one by our hand."""
        run = self.machine.course
        run.attempt += 1
        run.placement = place(self.members.slots, list(range(self.members.slots)))
        run.ending = type(run.ending)()
        for one in range(self.members.slots):
            died_ns = self.now_ns + (one != rank)
            end = how if one == rank else KILL
            run.ending.by_rank[one] = ev.RankExited(died_ns, run.attempt, one, died_ns, end)

    def next_attempt(self) -> None:
        def begin() -> None:
            self.began += 1

        self.care.before_attempt(self.machine, begin)
        self.care.look()

    def lose_host(self, index: int) -> None:
        self.hosts.gone(self.seats[index].incarnation, "its power went")

    def comes_back(self, index: int) -> None:
        self.lives += 1
        self.seats[index] = self.seat(index, f"host {index} again {self.lives}")

    def passes(self, ns: int) -> None:
        """Time passes; the hosts that are there are heard."""
        self.now_ns += ns
        for seat in self.seats.values():
            if self.members.members[seat.incarnation].is_there:
                self.up(seat)
        self.hosts.look()
        self.care.look()

    def looks_at_files(self, *, released: int | None = None) -> None:
        """What the thread does that looks after the run's folder."""
        for index in self.care.unreleased:
            if self.file.get(index, ("", False))[1]:  # what a person wants stays
                del self.file[index]
        written = dict(self.care.unwritten)
        self.file |= {n: (why, True) for n, why in written.items() if n not in self.file}
        if released is not None:
            self.file.pop(released, None)
        self.care.on_file(dict(self.file), tuple(written))
        self.quarantine()

    def state(self, index: int) -> MemberState:
        return self.members.members[self.seats[index].incarnation].state

    def slot(self, index: int) -> int | None:
        return self.members.members[self.seats[index].incarnation].slot
