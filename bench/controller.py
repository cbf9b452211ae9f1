"""What the controller of many hosts costs: its own process, with as many simulated agents.

    python bench/controller.py [--agents 1000 10000] [--idle 20] [--rounds 3] [--step 1] [--tls]

The controller is `holdfast run`'s own process, whole: lease, journal, machine, membership, link.
The agents are in other processes, many in each: real seats and real conversations, with a rank each
that makes a step a second (`--step`) and copies at once. They speak as often as those of such a
run. The store is not measured: a commit is told as done where it would have begun. An agreed save
is measured from the rank's word that it asks for one until every rank is known to have its copy:
the hosts are asked how far they are, ordered to save, and answer. The agents share the machine's
cores, so that time is mostly theirs; what the controller takes of it is its own CPU time, and what
is left for it to do once the last agent has answered. CPU and memory are those of the controller's
process. Agents that lack a core get an order late: where a rank has passed its step by then, it is
void, and another one follows. `orders` says how many there were until one held; each costs as much.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import resource
import secrets
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Hashable
from pathlib import Path
from typing import Any, cast

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.cadence import progress_ns
from holdfast.core.hosts.order import Host, Hurry
from holdfast.core.hosts.report import HostReport, RankState
from holdfast.core.hosts.seat import Seat
from holdfast.core.save import events as news
from holdfast.core.save.word import Agreed
from holdfast.journal.clocks import now_ns
from holdfast.journal.lease import WatchedHolder
from holdfast.journal.listening import read_listening, run_secret
from holdfast.journal.store import RunFolder, RunStore
from holdfast.link.connection import LinkConnection
from holdfast.link.conversation import Conversation
from holdfast.link.frames import pack_json
from holdfast.link.handshake import NONCE_BYTES, Terms, channel_of
from holdfast.link.tls import TlsChannel
from holdfast.link.values import Peer, beat_s

RUN = "bench"
PROCESSES = 2
CONNECTING = 64  # at a time, in each process
LIMIT_S = 600.0
TICK = os.sysconf("SC_CLK_TCK")


# --- the agents -----------------------------------------------------------------------------


class OneRank(Host):
    """A host whose rank trains, and answers each order when it is there."""

    def __init__(self, slot: int, reported: Callable[[], None]) -> None:
        super().__init__()
        self.report = HostReport()
        self._slot, self._reported = slot, reported
        self._state = RankState(has_session=True)
        self._order: news.PublishOrder | None = None
        self.answered = 0  # orders
        self._stepped = 0

    def _now(self, **changes: Any) -> None:
        self._state = self._state._replace(**changes)
        self.report.ranks = (self._state,)
        self.report.number += 1

    def step(self) -> None:
        """The rank completes one."""
        if self.report.attempt < 0:
            return
        answers = self._state.answers
        step = answers.step + 1
        answers = answers._replace(step=step)
        order = self._order
        if order is not None and step == order.step:
            self._order, word = None, Agreed(order.epoch, order.flags, order.step)
            answers = answers._replace(taken=word, copied=word, durable=word)
        self._now(answers=answers)
        if order is not None and step == order.step:
            self._reported()

    def step_until(self, steps: int) -> None:
        """It has completed so many, by the time."""
        while self.report.attempt >= 0 and self._stepped < steps:
            self._stepped += 1
            self.step()

    def ask(self) -> None:
        """Its script wants a save."""
        self._now(saves_asked=self._state.saves_asked + 1)
        self._reported()

    def launch(self, action: act.Launch) -> None:
        self.report.begin(action.attempt, action.resume.step, 1)
        self.report.note(ev.Launched(now_ns(), action.attempt))
        self._now()
        self._reported()

    def publish_order(self, order: news.PublishOrder, _: int | None) -> None:
        self._order = order
        # The steps up to it take no time: the agreement is measured, and no training.
        while self._order is order and self._state.answers.step < order.step:
            self.step()
        self.answered += 1

    def kill(self) -> None:
        self.report.note(ev.TreeGone(now_ns(), self.report.attempt))
        self._reported()

    def examine(self, action: act.Examine) -> None: ...
    def collect_stacks(self, action: act.CollectStacks) -> None: ...
    def publish_verdict(self, verdict: news.PublishVerdict) -> None: ...
    def publish_committed(self, step: int) -> None: ...
    def relay(self) -> None: ...
    def stand_by(self, action: act.StandBy) -> None: ...
    def seal(self, action: act.Seal) -> None: ...
    def flush(self, action: act.Flush) -> None: ...
    def replicate(self, action: act.Replicate) -> None: ...
    def hurry(self, action: Hurry) -> None: ...
    def abandon_flush(self, action: act.AbandonFlush) -> None: ...
    def forget_seals(self, is_wanted: Callable[[Hashable], bool]) -> None: ...


class ManySeats:
    """Agents of many hosts, in one loop."""

    def __init__(self, folder: RunFolder, hosts: int, step_s: float) -> None:
        where = read_listening(folder, 1)
        assert where is not None
        self._step_s = step_s
        self._port, self._hosts, self._secret = where.port, hosts, run_secret(folder)
        self._certificate = where.certificate
        self._run = folder.identity.run_id
        self._gate = asyncio.Semaphore(CONNECTING)
        self._seats: dict[LinkConnection, Seat] = {}
        self._settled: dict[LinkConnection, asyncio.Event] = {}  # it is proved, or over
        self._to_say: set[LinkConnection] = set()
        self._answered: dict[LinkConnection, int] = {}  # how many orders
        self._answered_s = 0.0  # when the last answer to one was written
        self._lost = 0  # connections
        self._first_wait_s = 0.4 * beat_s(hosts)  # as `link.dialer`

    async def run(self, numbers: range) -> None:
        print("ready", flush=True)
        await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
        loops = [asyncio.create_task(self._one(number)) for number in numbers]
        while line := await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline):
            if line == "save\n":
                for seat in self._seats.values():
                    if seat.index == 0 and isinstance(seat.host, OneRank):
                        seat.host.ask()
            elif line == "answered\n":
                print(self._answered_s, flush=True)
        for one in loops:
            one.cancel()
        if self._lost:
            print(f"{self._lost} connections were lost, and dialled again", file=sys.stderr)

    async def _one(self, number: int) -> None:
        """One agent, which dials again as long as it is turned away."""
        of: list[LinkConnection] = []  # the newest last
        say = lambda: self._say_soon(of[-1])  # noqa: E731
        peer = Peer(number, secrets.token_hex(16))
        seat = Seat(number, peer.incarnation, lambda slot: OneRank(slot, say))
        seat.address, seat.ports = "127.0.0.1", (1, 2)
        while True:
            async with self._gate:
                of.append(await self._dial(seat, peer))
            if of[-1] in self._seats:
                await self._live(number, of[-1], seat)
            await asyncio.sleep(random.uniform(0, self._first_wait_s))

    async def _dial(self, seat: Seat, peer: Peer) -> LinkConnection:
        loop = asyncio.get_running_loop()
        terms = Terms(self._run, 1, self._secret, channel_of(self._certificate))
        conversation = Conversation.of_agent(terms, peer, secrets.token_bytes(NONCE_BYTES))
        channel = TlsChannel.dialling(self._certificate) if self._certificate else None
        connection = LinkConnection(self, conversation, channel)
        self._seats[connection] = seat
        settled = self._settled[connection] = asyncio.Event()
        await loop.create_connection(lambda: connection, "127.0.0.1", self._port)
        await settled.wait()
        return connection

    async def _live(self, number: int, connection: LinkConnection, seat: Seat) -> None:
        """Until the connection ends."""
        every_s, progress_s = beat_s(self._hosts), progress_ns(self._hosts) / SECOND_NS
        spread = number % 1000 / 1000  # as time scatters them
        await asyncio.sleep(every_s * spread)
        began_s = time.monotonic()
        told_s = began_s - progress_s * spread
        while connection in self._seats:
            host, now_s = seat.host, time.monotonic()
            if isinstance(host, OneRank):
                host.step_until(int((now_s - began_s) / self._step_s))
            connection.beat()
            if now_s - told_s >= progress_s - every_s / 2:
                told_s = now_s
                self._say(connection)
            await asyncio.sleep(every_s)

    def _say_soon(self, connection: LinkConnection) -> None:
        """Once for all that is new in this turn."""
        if connection not in self._to_say:
            self._to_say.add(connection)
            asyncio.get_running_loop().call_soon(self._say, connection)

    def _say(self, connection: LinkConnection) -> None:
        self._to_say.discard(connection)
        seat = self._seats.get(connection)
        if seat is None:
            return
        host = seat.host
        report = host.report if isinstance(host, OneRank) else None
        connection.offer(pack_json(seat.says(now_ns(), report)))
        if isinstance(host, OneRank) and host.answered != self._answered.get(connection, 0):
            self._answered[connection] = host.answered
            self._answered_s = time.monotonic()

    def opened(self, connection: LinkConnection) -> None:
        pass

    def proved(self, connection: LinkConnection) -> None:
        self._settled.pop(connection).set()
        self._say(connection)

    def heard(self, connection: LinkConnection, message: dict[str, Any]) -> None:
        self._seats[connection].take(now_ns(), message)
        self._say_soon(connection)

    def revived(self, connection: LinkConnection) -> None:
        pass

    def lost(self, connection: LinkConnection, why: str) -> None:  # noqa: ARG002 - the protocol
        del self._seats[connection]
        if (settled := self._settled.pop(connection, None)) is not None:
            settled.set()
        self._lost += 1


# --- the controller -------------------------------------------------------------------------


def be_controller(arguments: list[str], *, tls: bool) -> None:
    """`holdfast run --as-controller`, which tells on stdout what it has come to."""
    from holdfast.cli import several_hosts
    from holdfast.cli.main import main as holdfast
    from holdfast.controller import storekeeper
    from holdfast.controller.controller import Controller

    out = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    decide, hear = Controller._decide, Controller.hear
    asked = 0  # saves, by the rank of host 0

    def tell(what: str) -> None:
        out.write(f"{what} {time.monotonic()} {time.process_time()}\n")

    def decided(self: Controller, event: ev.Event) -> None:
        if isinstance(event, ev.Launched | ev.SaveAsked):
            tell("launched" if isinstance(event, ev.Launched) else "ordered")
        decide(self, event)

    def heard(self: Controller, report: HostReport, host: int = 0) -> None:
        nonlocal asked
        if host == 0 and report.ranks and report.ranks[0].saves_asked > asked:
            asked = report.ranks[0].saves_asked
            tell("asked")
        hear(self, report, host)

    def commit(self: Any, attempt: int, epoch: int, step: int, _: int) -> None:
        out.write(f"orders {epoch} 0\n")
        tell("agreed")
        at_ns = now_ns()
        self._tell(ev.Heard(at_ns, attempt, news.Committed(at_ns, epoch, step)))

    if not tls:
        several_hosts._certificate = lambda *_: None
    Controller._decide, Controller.hear = decided, heard  # type: ignore[method-assign]
    storekeeper.Storekeeper.commit = cast(Any, commit)  # type: ignore[method-assign]
    sys.argv = ["holdfast", *arguments]
    holdfast()


def cpu_s(process: subprocess.Popen[str]) -> float:
    fields = Path(f"/proc/{process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


class Measured:
    """The controller's process, from outside."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.orders = 0  # so far

    @property
    def cpu_s(self) -> float:
        return cpu_s(self._process)

    @property
    def resident_mib(self) -> float:
        pages = int(Path(f"/proc/{self._process.pid}/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    def profile(self, file: str) -> subprocess.Popen[bytes]:
        """From now on."""
        pid = str(self._process.pid)
        return subprocess.Popen(["py-spy", "record", "-f", "raw", "-o", file, "-p", pid])

    def until(self, what: str) -> tuple[float, float]:
        """When that was, and what processor time it had used by then."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            name, at_s, cpu_s = line.split()
            if name == what:
                return float(at_s), float(cpu_s)
        raise RuntimeError(f"the controller has ended before it came to {what}")


def measure(options: argparse.Namespace, agents: int) -> dict[str, float]:
    place = Path(tempfile.mkdtemp(prefix="holdfast-bench-"))
    command = [sys.executable, __file__, "--step", str(options.step)]
    # fmt: off
    asked = [
        "run", "--as-controller", str(WatchedHolder(0, 0.0)), "--hosts", str(agents), "--name", RUN,
        "--store", str(place), "--save-every", "1000000", "--memory", "off", "--hang", "off",
        "--standby", "off", "--status", "plain", "--log-level", "warning", "--host-lost", "120",
        "--", sys.executable, "train.py",
    ]
    # fmt: on
    tls = ["--tls"] if options.tls else []
    processes: list[subprocess.Popen[str]] = []
    try:
        folder = RunStore.at(place).create(RUN)
        controller = subprocess.Popen(
            [*command, *tls, "--controller", json.dumps(asked)],
            stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        processes.append(controller)
        while read_listening(folder, 1) is None:
            if controller.poll() is not None:
                raise RuntimeError("the controller has ended before it listened")
            time.sleep(0.05)
        share = -(-agents // PROCESSES)
        for start in range(0, agents, share):
            numbers = [str(start), str(min(agents, start + share))]
            processes.append(
                subprocess.Popen(
                    [*command, "--agents", str(agents), "--seats", str(place), *numbers],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    text=True,
                )
            )
        return _measure(options, Measured(controller), processes[1:])
    finally:
        for process in reversed(processes):  # the agents first
            process.kill()
            process.communicate()
        shutil.rmtree(place)


def _measure(
    options: argparse.Namespace, controller: Measured, agents: list[subprocess.Popen[str]]
) -> dict[str, float]:
    found: dict[str, float] = {}
    for process in agents:  # they have imported what they need
        assert process.stdout is not None
        process.stdout.readline()
    before_s, before_mib = controller.cpu_s, controller.resident_mib
    start_s = time.monotonic()
    _tell(agents, "go")
    found["launched s"] = controller.until("launched")[0] - start_s  # all are there, and have begun
    found["launched CPU s"] = controller.cpu_s - before_s
    time.sleep(5)  # until what was said at the beginning is over
    found["MiB"] = controller.resident_mib
    found["MiB of it for agents"] = controller.resident_mib - before_mib
    spy = None if options.profile is None else controller.profile(options.profile)
    start_s, before_s = time.monotonic(), controller.cpu_s
    time.sleep(options.idle)
    found["idle cores"] = (controller.cpu_s - before_s) / (time.monotonic() - start_s)
    saves = [_save(controller, agents, found["idle cores"]) for _ in range(options.saves)]
    for name in saves[0]:
        found[name] = statistics.median(one[name] for one in saves)
    if spy is not None:
        spy.send_signal(signal.SIGINT)
        spy.wait()
    return found


def _save(
    controller: Measured, agents: list[subprocess.Popen[str]], idle_cores: float
) -> dict[str, float]:
    """One agreed save."""
    agents_s = sum(map(cpu_s, agents))
    _tell(agents, "save")
    asked_s, asked_cpu_s = controller.until("asked")
    ordered_s, _ = controller.until("ordered")
    before, controller.orders = controller.orders, int(controller.until("orders")[0])
    agreed_s, agreed_cpu_s = controller.until("agreed")
    agents_s = sum(map(cpu_s, agents)) - agents_s
    time.sleep(1.0)  # until all have heard of it
    _tell(agents, "answered")
    return {
        "agreed s": agreed_s - asked_s,
        "asking s of it": ordered_s - asked_s,
        "orders": controller.orders - before,
        "agreed CPU s": agreed_cpu_s - asked_cpu_s - idle_cores * (agreed_s - asked_s),
        "agents' CPU s": agents_s,
        "after the last answer s": agreed_s - max(map(_said_s, agents)),
    }


def _said_s(agents: subprocess.Popen[str]) -> float:
    assert agents.stdout is not None
    return float(agents.stdout.readline())


def _tell(agents: list[subprocess.Popen[str]], word: str) -> None:
    for process in agents:
        assert process.stdin is not None
        process.stdin.write(f"{word}\n")
        process.stdin.flush()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, nargs="+", default=[1000, 10000])
    parser.add_argument("--idle", type=float, default=20.0, help="seconds")
    parser.add_argument("--step", type=float, default=1.0, help="seconds that each takes")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--saves", type=int, default=5, help="in each round; medians are told")
    parser.add_argument("--profile", help="a file for py-spy's profile of the controller")
    parser.add_argument("--tls", action="store_true", help="where this machine has a network")
    parser.add_argument("--seats", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--controller", help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.controller is not None:
        be_controller(json.loads(options.controller), tls=options.tls)
        return
    if options.seats is not None:
        place, start, to = options.seats
        seats = ManySeats(RunStore.at(place).get(RUN), options.agents[0], options.step)
        asyncio.run(seats.run(range(int(start), int(to))))
        return
    for agents in options.agents:
        rounds = []
        for _ in range(options.rounds):
            load = os.getloadavg()[0]
            rounds.append(measure(options, agents))
            numbers = ", ".join(f"{name} {value:.2f}" for name, value in rounds[-1].items())
            print(f"{agents:>6} agents, load {load:.1f}: {numbers}", flush=True)
        medians = {name: statistics.median(one[name] for one in rounds) for name in rounds[0]}
        numbers = ", ".join(f"{name} {value:.2f}" for name, value in medians.items())
        print(f"{agents:>6} agents, medians of {len(rounds)}: {numbers}", flush=True)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
