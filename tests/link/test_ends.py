"""Both ends over loopback: each edge to the system once, and what each end tells its owner."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from holdfast.errors import ConfigurationError
from holdfast.link import connection as connection_module
from holdfast.link import dialer as dialer_module
from holdfast.link import server as server_module
from holdfast.link import strangers as strangers_module
from holdfast.link import thread as thread_module
from holdfast.link import values
from holdfast.link.certificate import Certificate, make_certificate
from holdfast.link.dialer import LinkDialer
from holdfast.link.server import LinkServer
from holdfast.link.values import Claim, LinkChange, LinkState, Peer, Trust

SECRET = b"s" * 40
LIMIT_S = 60.0
ME, AGAIN = Peer(0, "0a" * 16), Peer(0, "0b" * 16)


class Controller:
    """A server, and all that it has told."""

    def __init__(
        self,
        term: int = 1,
        port: int = 0,
        secret: bytes | None = SECRET,
        certificate: Certificate | None = None,
        hosts: int = 1,
    ) -> None:
        trust = Trust(secret, certificate)
        self.end = LinkServer("lm", term, trust, port=port, hosts=hosts)
        shown = "" if certificate is None else certificate.digest
        self.claim = Claim(("127.0.0.1",), self.end.port, term, shown)
        self.messages: dict[Peer, dict[str, Any]] = {}
        self.changes: list[tuple[Peer, LinkChange]] = []
        self.refused: list[str] = []
        self.close = self.end.close

    def until(self, is_true: Callable[[], object]) -> None:
        def look() -> None:
            news = self.end.take()
            self.messages |= news.messages
            self.changes += news.changes.items()
            self.refused += [news.refused.words] * news.refused.count

        _until(self.end.fileno(), look, is_true)

    def state(self, peer: Peer) -> LinkState | None:
        states = [change.state for of, change in self.changes if of == peer]
        return states[-1] if states else None


class Agent:
    """A dialer, and all that it has told."""

    def __init__(self, me: Peer = ME, secret: bytes | None = SECRET) -> None:
        self.end = LinkDialer("lm", me, Trust(secret))
        self.message: dict[str, Any] | None = None
        self.changes: list[LinkChange] = []
        self.close = self.end.close

    def until(self, is_true: Callable[[], object]) -> None:
        def look() -> None:
            news = self.end.take()
            self.message = news.message or self.message
            self.changes += [news.change] if news.change else []

        _until(self.end.fileno(), look, is_true)

    def until_state(self, state: LinkState) -> LinkChange:
        self.until(lambda: self.changes and self.changes[-1].state is state)
        return self.changes[-1]


def _until(descriptor: int, look: Callable[[], None], is_true: Callable[[], object]) -> None:
    """Look whenever there is something to take."""
    until_s = time.monotonic() + LIMIT_S
    while not is_true():
        if not select.select([descriptor], [], [], until_s - time.monotonic())[0]:
            pytest.fail(f"not true within {LIMIT_S} s")
        look()


@pytest.fixture
def ends() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def make(ends: ExitStack) -> Callable[[Any], Any]:
    def made(end: Any) -> Any:
        ends.callback(end.close)
        return end

    return made


Make = Callable[[Any], Any]


@pytest.mark.contract("link: registers both ways, and the newest connection of a peer")
@pytest.mark.parametrize("hosts", [1, 1000])
def test_registers_both_ways(make: Make, hosts: int) -> None:
    controller, agent = make(Controller(hosts=hosts)), make(Agent())
    controller.end.put(ME, {"order": 1})
    controller.end.put(ME, {"order": 2})  # before there is a connection: the newest is sent
    agent.end.put({"report": 1})
    agent.end.aim(controller.claim)
    agent.until(lambda: agent.message == {"order": 2})
    controller.until(lambda: controller.messages.get(ME) == {"report": 1})
    for number in range(2000):
        agent.end.put({"report": number, "is": "x" * 1000})
    controller.until(lambda: controller.messages[ME]["report"] == 1999)
    agent.until(lambda: agent.end.round_trip_s() is not None)
    assert agent.end.round_trip_s() < LIMIT_S
    assert controller.end.silence_s(ME) < LIMIT_S
    for connection in (agent.end._last, controller.end._records[ME].connection):
        sock = connection._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), "messages wait for acks"

    twin = make(Agent())  # the same life of the same host dials once more
    twin.end.put({"report": "twin"})
    twin.end.aim(controller.claim)
    controller.until(lambda: controller.messages[ME] == {"report": "twin"})
    assert controller.state(ME) is LinkState.UP
    assert agent.until_state(LinkState.DOWN).words
    agent.close()

    other = make(Agent(AGAIN))
    other.end.aim(controller.claim)
    controller.until(lambda: controller.state(AGAIN) is LinkState.UP)
    assert controller.state(ME) is LinkState.UP


@pytest.mark.contract("link: a controller ends, another of a higher term takes its place")
def test_the_next_controller_is_dialled_and_an_older_one_never_again(make: Make) -> None:
    first, agent = Controller(term=1), make(Agent())
    agent.end.put({"report": 1})
    agent.end.aim(first.claim)
    agent.until_state(LinkState.UP)
    first.end.put(ME, {"order": "the last words"})
    first.close()
    agent.until(lambda: agent.message == {"order": "the last words"})
    agent.until_state(LinkState.DOWN)

    second = make(Controller(term=2))
    agent.end.aim(Claim(("127.0.0.2", "127.0.0.1"), second.claim.port, 2))  # all are tried
    second.until(lambda: second.messages.get(ME) == {"report": 1})  # told again, unasked
    agent.until_state(LinkState.UP)
    agent.end.aim(first.claim)
    agent.until_state(LinkState.REFUSED)
    assert agent.changes[-1].words == "term 1 is over: 2 is the newest"
    assert agent.end.take().term == 2


@pytest.mark.contract("link: the last words of an end arrive though the other speaks meanwhile")
def test_the_last_words_arrive_though_the_other_end_speaks_meanwhile(
    make: Make,
    eventually: Callable[[Callable[[], object]], object],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is sent to a closed socket resets the connection, and what was not read is lost."""
    for module in (connection_module, server_module):
        monkeypatch.setattr(module, "CLOSE_S", LIMIT_S)
    monkeypatch.setattr(thread_module, "_JOIN_S", LIMIT_S)
    controller, agent = make(Controller()), make(Agent())
    agent.end.aim(controller.claim)
    agent.until_state(LinkState.UP)
    controller.until(lambda: controller.state(ME) is LinkState.UP)
    ours = agent.end._current
    assert ours is not None
    transport: Any = ours._transport
    agent.end._thread.call(transport.pause_reading)
    controller.end.put(ME, {"order": "the last words"})
    closing = threading.Thread(target=controller.close)
    closing.start()
    eventually(lambda: _has_been_ended(transport.get_extra_info("socket")))
    for _ in range(3):
        agent.end._thread.call(ours.beat)
    agent.end._thread.call(transport.resume_reading)
    agent.until(lambda: agent.message == {"order": "the last words"})
    closing.join()


def _has_been_ended(sock: Any) -> bool:
    close_wait = 8  # of Linux's states of TCP: the other end says no more
    return bool(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 1)[0] == close_wait)


@pytest.mark.contract("link: TLS over a real connection")
def test_within_tls(make: Make) -> None:
    certificate = make_certificate()
    assert certificate is not None
    controller = make(Controller(certificate=certificate))
    agent = make(Agent())
    agent.end.put({"report": "x" * 3_000_000})
    controller.end.put(ME, {"order": "y" * 3_000_000})
    agent.end.aim(controller.claim)
    controller.until(lambda: controller.messages.get(ME) == {"report": "x" * 3_000_000})
    agent.until(lambda: agent.message == {"order": "y" * 3_000_000})
    agent.until(lambda: agent.end.round_trip_s() is not None)

    stranger = socket.create_connection(("127.0.0.1", controller.claim.port))
    stranger.sendall(b"HFLINK01" + bytes(32))  # in the clear
    stranger.settimeout(LIMIT_S)
    with contextlib.suppress(ConnectionResetError):
        assert stranger.recv(100) == b""
    stranger.close()
    controller.until(lambda: "does not speak TLS" in str(controller.refused))

    controller.end.put(ME, {"order": "the last"})
    controller.close()
    agent.until(lambda: agent.message == {"order": "the last"})  # what was put goes first
    agent.until_state(LinkState.DOWN)


@pytest.mark.contract("link: a stranger learns nothing, and changes nothing")
def test_strangers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strangers_module, "HANDSHAKE_S", 1.0)
    monkeypatch.setattr(strangers_module, "STRANGERS", 3)
    controller = make(Controller())
    good = make(Agent())
    good.end.aim(controller.claim)
    good.until_state(LinkState.UP)

    wrong = make(Agent(Peer(1, "0c" * 16), secret=b"t" * 40))
    wrong.end.aim(controller.claim)
    assert "another secret, run name or term" in wrong.until_state(LinkState.REFUSED).words
    wrong.close()
    controller.until(lambda: "could not prove" in str(controller.refused))

    silent = [socket.create_connection(("127.0.0.1", controller.claim.port)) for _ in range(4)]
    controller.until(lambda: "too many strangers" in str(controller.refused))
    controller.until(lambda: "it proved nothing within" in str(controller.refused))
    for stranger in silent:
        stranger.settimeout(LIMIT_S)
        with contextlib.suppress(ConnectionResetError):  # the end of it, too
            assert stranger.recv(100) == b""
        stranger.close()
    assert {peer for peer, _ in controller.changes} == {ME}
    good.end.put({"report": 1})
    controller.until(lambda: controller.messages.get(ME) == {"report": 1})


def test_a_controller_that_dies_while_it_is_dialled_has_turned_nobody_away(make: Make) -> None:
    """The kernel takes the connection for it, and resets it."""
    with socket.create_server(("127.0.0.1", 0)) as dying:
        agent = make(Agent())
        agent.end.aim(Claim(("127.0.0.1",), dying.getsockname()[1], 1))
        taken, _ = dying.accept()
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        taken.close()
        words = agent.until_state(LinkState.DOWN).words  # with the port, if it is reset later
        assert words.startswith("127.0.0.1")
        assert words.endswith(": Connection reset by peer")


_FROZEN = f"""
import select, sys
from holdfast.link.certificate import Certificate, make_certificate
from holdfast.link.dialer import LinkDialer
from holdfast.link.values import Claim, Peer, Trust
dialer = LinkDialer("lm", Peer(0, "0a" * 16), Trust({SECRET!r}))
dialer.put({{"report": 1}})
dialer.aim(Claim(("127.0.0.1",), int(sys.argv[1]), 1))
while not select.select([sys.stdin], [], [], 0.1)[0]:
    dialer.take()
sys.stdin.readline()
sys.stdin.read()  # and looks no more
"""


@pytest.mark.contract("link: a frozen process is silent, and speaks again; so is one that hangs")
def test_a_frozen_agent_is_silent_and_not_down(make: Make) -> None:
    controller = make(Controller())
    process = subprocess.Popen(
        [sys.executable, "-c", _FROZEN, str(controller.claim.port)],
        stdin=subprocess.PIPE,
        bufsize=0,
    )
    try:
        controller.until(lambda: controller.messages.get(ME) == {"report": 1})
        os.kill(process.pid, signal.SIGSTOP)
        controller.until(lambda: controller.state(ME) is LinkState.SILENT)
        assert controller.changes[-1][1].silence_s >= values.SILENT_S
        os.kill(process.pid, signal.SIGCONT)
        controller.until(lambda: controller.state(ME) is LinkState.UP)
        assert process.stdin is not None
        process.stdin.write(b"look no more\n")  # its thread lives on, and its owner hangs
        controller.until(lambda: controller.state(ME) is LinkState.SILENT)
        process.kill()
        controller.until(lambda: controller.state(ME) is LinkState.DOWN)
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"addresses": ("0.0.0.0",), "trust": Trust()}, "without a secret: give every host"),
        ({"addresses": ("192.0.2.1",), "trust": Trust()}, "does not listen at 192.0.2.1"),
        ({"addresses": ("192.0.2.1",)}, "cannot listen at 192.0.2.1, port 0: Cannot assign"),
        ({"addresses": ("localhost",)}, "'localhost': that is no IP address"),
        ({"trust": Trust(b"short")}, "the run's secret has 5 bytes, and needs 32 or more"),
    ],
)
def test_what_cannot_be_listened_at_is_one_sentence(arguments: Any, words: str) -> None:
    with pytest.raises(ConfigurationError, match=words):
        LinkServer(**{"run": "lm", "term": 1, "trust": Trust(SECRET), **arguments})


def test_what_is_too_large_is_not_put() -> None:
    with pytest.raises(ValueError, match="a message of 17000007 bytes"):
        server_module.bounded_json({"": "x" * 17_000_000})
    assert dialer_module.bounded_json({}) == b"{}"
