"""What the controller's end of the link costs, with many agents connected over loopback.

    python bench/link.py [--agents 500 1000 10000] [--idle 10] [--order-bytes 4096] [--tls]

The agents are real conversations in other processes, many in each: they send heartbeats, and answer
each order with a report. The time to connect begins when all of them are let go, without back-off,
and ends when the controller has proved them all; it includes the agents' own work, on the same
cores. CPU and memory are those of the controller's process alone.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import platform
import resource
import secrets
import select
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from holdfast.link.certificate import make_certificate
from holdfast.link.connection import LinkConnection
from holdfast.link.conversation import Conversation
from holdfast.link.handshake import NONCE_BYTES, Terms, channel_of
from holdfast.link.server import LinkServer
from holdfast.link.tls import TlsChannel
from holdfast.link.values import LinkState, Peer, Trust, beat_s

SECRET = b"s" * 40
PROCESSES = 2
REPORT = b'{"report":"' + b"r" * 1000 + b'"}'
CONNECTING = 64  # at a time, in each process


class ManyAgents:
    """The other end of many connections, in one loop."""

    def __init__(self, port: int, hosts: int, certificate: str) -> None:
        self._port, self._hosts, self._certificate = port, hosts, certificate
        self._gate = asyncio.Semaphore(CONNECTING)
        self._proved: dict[LinkConnection, asyncio.Event] = {}

    async def run(self, numbers: range) -> None:
        await asyncio.gather(*(self._one(number) for number in numbers))

    async def _one(self, number: int) -> None:
        loop = asyncio.get_running_loop()
        peer = Peer(number, secrets.token_hex(16))
        terms = Terms("bench", 1, SECRET, channel_of(self._certificate))
        conversation = Conversation.of_agent(terms, peer, secrets.token_bytes(NONCE_BYTES))
        channel = TlsChannel.dialling(self._certificate) if self._certificate else None
        connection = LinkConnection(self, conversation, channel)
        proved = self._proved[connection] = asyncio.Event()
        async with self._gate:
            await loop.create_connection(lambda: connection, "127.0.0.1", self._port)
            await proved.wait()
        await asyncio.sleep(beat_s(self._hosts) * (number % 1000) / 1000)  # as time scatters them
        while True:
            connection.beat()
            await asyncio.sleep(beat_s(self._hosts))

    def opened(self, connection: LinkConnection) -> None:
        pass

    def proved(self, connection: LinkConnection) -> None:
        self._proved[connection].set()

    def heard(self, connection: LinkConnection, message: dict[str, Any]) -> None:  # noqa: ARG002
        connection.offer(REPORT)

    def revived(self, connection: LinkConnection) -> None:
        pass

    def lost(self, connection: LinkConnection, why: str) -> None:
        del self._proved[connection]
        if why != "end of file":
            print(f"lost: {why}", file=sys.stderr)


def measure(agents: int, idle_s: float, order_bytes: int, *, tls: bool) -> str:
    certificate = None
    if tls:
        certificate = make_certificate()
        assert certificate is not None
    before_bytes = resident_bytes()
    server = LinkServer("bench", 1, Trust(SECRET, certificate), hosts=agents)
    share = -(-agents // PROCESSES)
    command = [sys.executable, __file__, "--agents", str(agents), "--port", str(server.port)]
    command += ["--certificate", certificate.digest if certificate else ""]
    shares = [(n * share, min(agents, (n + 1) * share)) for n in range(PROCESSES)]
    processes = [
        subprocess.Popen(
            [*command, "--from", str(start), "--to", str(to)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        for start, to in shares
    ]
    for process in processes:  # they have imported what they need
        assert process.stdout is not None
        process.stdout.readline()
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(b"go\n")
        process.stdin.flush()
    up: set[Peer] = set()
    downs = refused = 0
    while len(up) < agents:
        select.select([server.fileno()], [], [], 60)
        news = server.take()
        refused += news.refused.count
        for peer, change in news.changes.items():
            if change.state is LinkState.UP:
                up.add(peer)
            else:
                downs += change.state is LinkState.DOWN
    connect_s, connect_cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    memory_mib = (resident_bytes() - before_bytes) / 2**20

    select.select([], [], [], beat_s(agents))
    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    select.select([], [], [], idle_s)
    idle_cores = (time.process_time() - start_cpu_s) / (time.perf_counter() - start_s)

    start_s, start_cpu_s = time.perf_counter(), time.process_time()
    server.put_all(up, {"order": "o" * order_bytes})
    reports: set[Peer] = set()
    while len(reports) < agents:
        select.select([server.fileno()], [], [], 60)
        news = server.take()
        reports |= news.messages.keys()
        refused += news.refused.count
        downs += sum(change.state is LinkState.DOWN for change in news.changes.values())
    order_s, order_cpu_s = time.perf_counter() - start_s, time.process_time() - start_cpu_s
    for process in processes:
        process.kill()
        process.communicate()
    server.close()
    return (
        f"{agents:>6} agents: connected in {connect_s:.2f} s ({connect_cpu_s:.2f} s of CPU), "
        f"{memory_mib:.0f} MiB; idle {idle_cores:.3f} cores; an order to all and a report of each "
        f"{order_s:.2f} s ({order_cpu_s:.2f} s of CPU); {downs} lost, {refused} refused"
    )


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--agents", type=int, nargs="+", default=[500, 1000, 10000])
    parser.add_argument("--idle", type=float, default=10.0, help="seconds")
    parser.add_argument("--order-bytes", type=int, default=4096)
    parser.add_argument("--tls", action="store_true")
    parser.add_argument("--certificate", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--from", type=int, dest="start", help=argparse.SUPPRESS)
    parser.add_argument("--to", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    if options.port is not None:
        print("ready", flush=True)
        sys.stdin.readline()

        async def run() -> None:
            agents = ManyAgents(options.port, options.agents[0], options.certificate)
            await agents.run(range(options.start, options.to))

        asyncio.run(run())
        return
    print(f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for agents in options.agents:
        print(measure(agents, options.idle, options.order_bytes, tls=options.tls), flush=True)


if __name__ == "__main__":
    main()
