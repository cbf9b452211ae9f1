"""Numbers on loopback, where everybody on the host can connect."""

from __future__ import annotations

import contextlib
import http.client
import socket
import threading
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.core import GaugeMetricFamily, Metric

from holdfast.export.served import LOOPBACK, serve

LIMIT_S = 20.0


class Numbers:
    """One, which comes when it is let."""

    def __init__(self) -> None:
        self.asked, self.may = threading.Semaphore(0), threading.Event()
        self.may.set()

    def collect(self) -> Iterator[Metric]:
        self.asked.release()
        assert self.may.wait(LIMIT_S)
        yield GaugeMetricFamily("answer", "An answer.", 42)


@pytest.fixture
def numbers() -> Numbers:
    return Numbers()


@pytest.fixture
def port(numbers: Numbers) -> Iterator[int]:
    port, close = serve(numbers, 0, "a test")
    numbers.asked = threading.Semaphore(0)  # the registry asks at the beginning, too
    yield port
    numbers.may.set()
    close()


@pytest.fixture
def dial(port: int) -> Iterator[Callable[[], socket.socket]]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(socket.create_connection((LOOPBACK, port), LIMIT_S))


def asked(port: int, **headers: str) -> tuple[int, str]:
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=LIMIT_S)
    with contextlib.closing(connection):
        connection.request("GET", "/metrics", headers=headers)
        answer = connection.getresponse()
        return answer.status, answer.read().decode()


def is_over(one: socket.socket) -> bool:
    """Waits for its end."""
    with contextlib.suppress(ConnectionError):
        return one.recv(1) == b""
    return True


def test_a_page_that_points_its_name_here_reads_nothing(port: int) -> None:
    for name in ("localhost", "LOCALHOST:9464", "127.0.0.1:9464", "[::1]:1"):
        status, text = asked(port, Host=name)
        assert (status, "answer 42.0" in text) == (200, True), name
    for name in ("evil.example", "localhost.evil.example:9464", "10.0.0.1", "", "[", ",", "a:b"):
        status, text = asked(port, Host=name)
        assert (status, "answer" in text) == (403, False), name


def test_who_asks_nothing_keeps_nobody_out(port: int, dial: Callable[[], socket.socket]) -> None:
    idle = [dial() for _ in range(40)]
    assert is_over(idle[0])
    assert is_over(idle[23])
    assert asked(port)[0] == 200


def test_a_request_that_comes_byte_by_byte_has_little_time(
    dial: Callable[[], socket.socket], monkeypatch: pytest.MonkeyPatch
) -> None:
    from holdfast.export import scrape_server

    monkeypatch.setattr(scrape_server, "READ_S", 0.0)
    slow = dial()
    slow.sendall(b"GET /metrics HTTP/1.1\r\nHost: loc")
    assert is_over(slow)


def test_few_are_answered_at_once(
    port: int, numbers: Numbers, dial: Callable[[], socket.socket]
) -> None:
    from holdfast.export.scrape_server import MOST

    numbers.may.clear()
    answered = [dial() for _ in range(MOST)]
    for one in answered:
        one.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
        assert numbers.asked.acquire(timeout=LIMIT_S)
    more = dial()
    more.sendall(b"GET /metrics HTTP/1.0\r\n\r\n")
    assert is_over(more)
    numbers.may.set()
    for one in answered:
        with one.makefile("rb") as answer:
            assert b"answer 42.0" in answer.read()
    assert asked(port)[0] == 200


def test_a_host_without_descriptors_is_asked_again_after_a_pause(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from holdfast.export import scrape_server

    class FullHost:
        def accept(self) -> None:
            raise OSError(24, "Too many open files")

    paused: list[float] = []
    monkeypatch.setattr(scrape_server.time, "sleep", paused.append)
    server = scrape_server.ScrapeServer(LOOPBACK, 0, lambda *_: [])
    with server.socket:
        server.socket, _ = FullHost(), server.socket  # type: ignore[assignment]
        with pytest.raises(OSError, match="Too many"):
            server.get_request()
    assert paused == [scrape_server.PAUSE_S]
