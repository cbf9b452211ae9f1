"""Bytes between two hosts: within TLS that nobody stands between, or in the clear with proofs."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator

import pytest

from holdfast.link import certificate as certificate_module
from holdfast.link.certificate import Certificate, make_certificate
from holdfast.link.exchange import BLOCK_BYTES, Exchange
from holdfast.link.frames import LinkError
from holdfast.link.streams import TlsStream
from holdfast.link.values import Peer

SECRET = b"s" * 40
ME = Peer(5, "0a" * 16)
PARAMETERS = b"parameters of a model " * 40_000


@pytest.fixture
def certificates(monkeypatch: pytest.MonkeyPatch) -> tuple[Certificate, ...]:
    """Two, by the library and without a process."""
    monkeypatch.setattr(certificate_module, "_by_tool", lambda *_: False)
    made = [make_certificate() for _ in range(2)]
    return tuple(one for one in made if one is not None)


class Answering:
    """An end that listens, and sends back what it hears; `refused`: those it did not."""

    def __init__(self, certificate: Certificate | None) -> None:
        self.refused: list[str] = []
        self.heard = threading.Event()  # somebody was served, or was not
        self._certificate = certificate
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listening.getsockname()[1])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                connection, _ = self.listening.accept()
            except OSError:
                return
            with connection:
                try:
                    exchange = Exchange.answer(connection, "run", SECRET, self._certificate)
                    exchange.send(memoryview(bytes(exchange.receive())))
                    exchange.receive()
                except (LinkError, OSError) as error:
                    self.refused.append(str(error))
                self.heard.set()


class Between:
    """Whoever has the network: each connection goes through its hands."""

    def __init__(self, port: int, pass_on: Callable[[socket.socket, socket.socket], None]) -> None:
        self._port, self._pass_on = port, pass_on
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = int(self.listening.getsockname()[1])
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            try:
                here, _ = self.listening.accept()
            except OSError:
                return
            with here, socket.create_connection(("127.0.0.1", self._port)) as there:
                self._pass_on(here, there)


@pytest.fixture
def answering(
    certificates: tuple[Certificate, ...], request: pytest.FixtureRequest
) -> Iterator[Answering]:
    has_one = getattr(request, "param", True)
    end = Answering(certificates[0] if has_one else None)
    yield end
    end.listening.close()


def both_ways(
    here: socket.socket, there: socket.socket, change: Callable[[bytes, bool], bytes]
) -> None:
    """`change(data, is_up)`."""

    def one_way(of: socket.socket, to: socket.socket, *, is_up: bool) -> None:
        try:
            while data := of.recv(1 << 16):
                to.sendall(change(data, is_up))
            to.shutdown(socket.SHUT_WR)
        except OSError:
            return

    up = threading.Thread(target=one_way, args=(here, there), kwargs={"is_up": True})
    up.start()
    one_way(there, here, is_up=False)
    up.join()


def asked(port: int, secret: bytes = SECRET) -> bytes:
    exchange = Exchange.dial("127.0.0.1", port, "run", secret, ME)
    try:
        exchange.send(memoryview(PARAMETERS))
        return bytes(exchange.receive())
    finally:
        exchange.close()


@pytest.mark.parametrize("answering", [True, False], ids=["TLS", "in the clear"], indirect=True)
def test_who_listens_reads_nothing_within_tls(answering: Answering) -> None:
    seen: list[bytes] = []

    def listen(data: bytes, _: bool) -> bytes:
        seen.append(data)
        return data

    between = Between(answering.port, lambda here, there: both_ways(here, there, listen))
    assert len(PARAMETERS) < BLOCK_BYTES
    assert asked(between.port) == PARAMETERS
    between.listening.close()
    is_clear = PARAMETERS[:1000] in b"".join(seen)
    assert is_clear == (answering._certificate is None)


@pytest.mark.parametrize("answering", [True, False], ids=["TLS", "in the clear"], indirect=True)
def test_one_byte_that_is_changed_ends_the_connection(answering: Answering) -> None:
    passed = 0

    def change(data: bytes, is_up: bool) -> bytes:
        nonlocal passed
        before, passed = passed, passed + len(data) * is_up
        if not is_up or not before <= 200_000 < passed:
            return data
        at = 200_000 - before
        return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]

    between = Between(answering.port, lambda here, there: both_ways(here, there, change))
    with pytest.raises((LinkError, OSError)):
        asked(between.port)
    between.listening.close()
    answering.heard.wait()
    assert "changed" in answering.refused[-1]


def test_who_has_another_certificate_stands_between_no_two_hosts(
    answering: Answering, certificates: tuple[Certificate, ...]
) -> None:
    """It opens what one seals, and seals it for the other: both proofs cover the digest."""
    passed_on = threading.Event()

    def open_and_seal(here: socket.socket, there: socket.socket) -> None:
        theirs = certificates[1]
        try:
            one = TlsStream(here, theirs.context, theirs.digest)
            other = TlsStream.dialling(there)
            nothing = memoryview(b"")
            other.write(one.read(256), nothing)
            one.write(other.read(256), nothing)
            other.write(one.read(256), nothing)
            passed_on.set()
            one.write(other.read(256), nothing)
        except (LinkError, OSError):
            return

    between = Between(answering.port, open_and_seal)
    with pytest.raises((LinkError, OSError)):
        asked(between.port)
    between.listening.close()
    assert passed_on.is_set()
    answering.heard.wait()
    assert answering.refused[0] == "it could not prove that it is an agent of this run and term"


def test_an_end_with_a_certificate_hears_nobody_in_the_clear(answering: Answering) -> None:
    """Whoever has the network cannot have it spoken so."""

    def break_tls(here: socket.socket, there: socket.socket) -> None:
        if here.recv(1, socket.MSG_PEEK) == b"H":
            both_ways(here, there, lambda data, _: data)

    between = Between(answering.port, break_tls)
    with pytest.raises((LinkError, OSError)):
        asked(between.port)
    between.listening.close()
    answering.heard.wait()
    assert any("does not speak TLS" in words for words in answering.refused)


def test_who_does_not_know_the_secret_gets_nothing(answering: Answering) -> None:
    with pytest.raises((LinkError, OSError)):
        asked(answering.port, b"t" * 40)
