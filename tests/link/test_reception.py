"""A port that threads serve: strangers are few and soon gone, who is proved is served."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

import pytest

from holdfast.agent.copier import PartServer
from holdfast.link import certificate as certificate_module
from holdfast.link import exchange as exchange_module
from holdfast.link import reception as reception_module
from holdfast.link.exchange import Exchange
from holdfast.link.reception import Reception
from holdfast.link.strangers import HANDSHAKE_S
from holdfast.link.values import Peer

SECRET = b"s" * 40
ME = Peer(5, "0a" * 16)
PASS = b"!"


class Counter:
    """A reception where a `PASS` is a proof, after which all is sent back."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.listening = socket.create_server(("127.0.0.1", 0), backlog=64)
        self.reception = Reception(self.listening, self.talk, lambda: self.now_s)
        threading.Thread(target=self.reception.serve, daemon=True).start()

    def talk(self, connection: socket.socket) -> None:
        while (said := connection.recv(1)) != PASS:
            if not said:
                return
        with self.reception.proved(connection):
            while said:
                connection.sendall(said)
                said = connection.recv(1)

    def dial(self) -> socket.socket:
        return socket.create_connection(self.listening.getsockname()[:2], timeout=60)

    def enter(self) -> socket.socket:
        """Somebody who is proved, and was told so."""
        one = self.dial()
        one.sendall(PASS)
        assert one.recv(1) == PASS
        return one


@pytest.fixture
def counter() -> Counter:
    return Counter()


def is_over(one: socket.socket) -> bool:
    """Waits for its end."""
    with contextlib.suppress(ConnectionError):
        return one.recv(1) == b""
    return True


def test_strangers_take_no_place_of_hosts(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange_module, "LIMIT_S", 10.0)
    monkeypatch.setattr(certificate_module, "_by_tool", lambda *_: False)
    serves = {"ram": str(tmp_path), "run": "run", "secret": SECRET.hex(), "at": "127.0.0.1"}
    server = PartServer(serves)
    threading.Thread(target=server.serve, daemon=True).start()
    with contextlib.ExitStack() as stack:
        for _ in range(40):
            one = stack.enter_context(socket.create_connection(("127.0.0.1", server.port)))
            one.sendall(b"\x16")  # as TLS begins
        with contextlib.closing(Exchange.dial("127.0.0.1", server.port, "run", SECRET, ME)) as asks:
            asks.say({"get": "bytes", "rank": 0, "begin": 0, "end": 1})
            assert asks.hear() == {"error": "bytes of which part?"}


def test_a_byte_now_and_then_gains_no_time(counter: Counter) -> None:
    with contextlib.closing(counter.dial()) as slow, contextlib.closing(counter.enter()) as proved:
        slow.sendall(b"a")
        counter.now_s = HANDSHAKE_S
        slow.sendall(b"b")
        with contextlib.closing(counter.enter()):
            counter.now_s = HANDSHAKE_S + 0.1
            slow.sendall(b"c")
            assert is_over(slow)
        proved.sendall(b"x")
        assert proved.recv(1) == b"x", "who is proved has any time"


def test_the_oldest_stranger_goes_for_the_next(
    counter: Counter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(counter.reception._strangers, "_most", 3)
    with contextlib.ExitStack() as stack:
        dial: Callable[[], socket.socket] = lambda: stack.enter_context(counter.dial())  # noqa: E731
        many = [dial() for _ in range(3)]
        proved = stack.enter_context(counter.enter())
        assert is_over(many[0])
        many.append(dial())
        dial()
        assert is_over(many[1])
        proved.sendall(b"x")
        assert proved.recv(1) == b"x"


def test_who_is_proved_waits_for_room(counter: Counter) -> None:
    with contextlib.ExitStack() as stack:
        inside = [stack.enter_context(counter.enter()) for _ in range(reception_module.MOST_PROVED)]
        waits = stack.enter_context(counter.dial())
        waits.sendall(PASS)
        waits.setblocking(False)
        with pytest.raises(BlockingIOError):
            waits.recv(1)
        waits.settimeout(60)
        inside[7].close()
        assert waits.recv(1) == PASS


def test_a_host_without_descriptors_is_asked_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It would take a whole core otherwise."""

    class Full:
        def settimeout(self, limit_s: float | None) -> None:
            assert limit_s is None

        def accept(self) -> None:
            raise OSError(24, "Too many open files")

    def pause(paused_s: float) -> None:
        raise StopIteration(paused_s)

    monkeypatch.setattr(reception_module.time, "sleep", pause)
    with pytest.raises(StopIteration, match=str(reception_module.PAUSE_S)):
        Reception(Full(), lambda _: None).serve()  # type: ignore[arg-type]
