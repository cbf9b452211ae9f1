"""Connections that only stand about keep nobody out, and do not stand about for long."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from served import Served, serving

from holdfast.serve.access import LOGIN, Access
from holdfast.serve.crowd import MOST, Crowd
from holdfast.serve.guard import AccessGuard
from holdfast.serve.polite import polite

PROXY = "10.0.0.9"


@pytest.fixture
def serve_store(tmp_path: Path) -> Iterator[Callable[..., Served]]:
    """Servers of one test."""
    with serving(tmp_path / "mirror") as begin:
        yield begin


def test_of_one_address_the_one_that_is_idle_the_longest_leaves() -> None:
    crowd: Crowd[int] = Crowd(most=10, most_of_one=3)
    assert [crowd.come(n, "a") for n in range(3)] == [None] * 3
    crowd.busy(0)
    assert crowd.come(3, "a") == 1
    assert crowd.come(4, "b") is None
    crowd.idle(0)
    assert [crowd.come(n, "a") for n in (5, 6, 7)] == [2, 3, 0]


def test_where_all_are_being_answered_the_newcomer_goes() -> None:
    crowd: Crowd[int] = Crowd(most=2, most_of_one=2)
    for n in range(2):
        assert crowd.come(n, "a") is None
        crowd.busy(n)
    assert crowd.come(2, "a") == 2
    assert crowd.come(3, "b") == 3
    crowd.go(0)
    assert crowd.come(4, "b") is None


def test_a_proxy_may_have_all() -> None:
    crowd: Crowd[int] = Crowd((PROXY,), most=6, most_of_one=2)
    assert [crowd.come(n, PROXY) for n in range(6)] == [None] * 6
    assert crowd.come(6, PROXY) == 0


ACTS = st.tuples(st.sampled_from(["come", "busy", "idle", "go"]), st.integers(0, 30))


@given(st.lists(ACTS, max_size=200))
def test_never_too_many_and_an_idle_one_never_keeps_a_newcomer_out(acts: list[Any]) -> None:
    crowd: Crowd[int] = Crowd((PROXY,), most=8, most_of_one=3)
    here: dict[int, str] = {}
    busy: set[int] = set()
    for number, (act, choice) in enumerate(acts):
        one = list(here)[choice % len(here)] if here else None
        if act == "come":
            address = ("a", "b", "c", PROXY)[choice % 4]
            others = {n for n in here if here[n] == address or len(here) >= 8}
            leaves = crowd.come(number, address)
            here[number] = address
            assert leaves != number or others <= busy
            assert leaves not in busy
            here.pop(leaves, None)
            busy.discard(leaves)
        elif one is not None and act == "go":
            crowd.go(one)
            here.pop(one)
            busy.discard(one)
        elif one is not None:
            (busy.add if act == "busy" else busy.discard)(one)
            (crowd.busy if act == "busy" else crowd.idle)(one)
        assert len(crowd) == len(here) <= 8
        assert all(list(here.values()).count(at) <= 3 for at in ("a", "b", "c"))


@pytest.mark.real
def test_as_many_as_it_takes_that_say_nothing_keep_nobody_out(
    tmp_path: Path, serve_store: Callable[..., Served]
) -> None:
    """Real connections, from as many addresses of this machine as are needed."""
    (tmp_path / "store").mkdir()
    served = serve_store(tmp_path / "store", "--invite")
    with contextlib.ExitStack() as stack:
        for number in range(MOST + 40):
            one = stack.enter_context(socket.socket())
            one.bind((f"127.0.0.{2 + number % 8}", 0))
            one.connect((served.host, served.port))
            if number % 2:
                one.send(b"GET / HTTP/1.1\r\nHost: lo")  # and never the rest
        for _ in range(3):
            assert served.get("/").status == 401
        answer = served.get(f"/login?token={served.word}")
        assert answer.status == 303
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert served.get("/", Cookie=cookie).status == 200


class Waiting:
    """An application whose answer waits until it is let."""

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.asked.set()
        await self.answer.wait()
        head = [(b"content-length", b"2")]
        await send({"type": "http.response.start", "status": 200, "headers": head})
        await send({"type": "http.response.body", "body": b"ok"})


def test_a_head_has_its_time_and_an_answer_has_any() -> None:
    import uvicorn
    from uvicorn.server import ServerState

    async def story() -> None:
        app, crowd, made = Waiting(), Crowd[Any](), []
        guard = AccessGuard(app, Access(names=("x",)), 1)
        config = uvicorn.Config(guard, log_config=None, lifespan="off")
        config.load()

        def protocol() -> Any:
            kind: Any = polite(crowd, head_s=0.05)
            made.append(kind(config, ServerState(), {}))
            return made[-1]

        server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0)
        address = server.sockets[0].getsockname()
        async with server:
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b"", "it never ended its head"
            writer.close()

            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            await app.asked.wait()
            assert made[-1]._limit is None, "it is being answered: nothing limits that"
            app.answer.set()
            assert (await reader.readuntil(b"ok")).endswith(b"ok")
            with contextlib.suppress(ConnectionError):
                assert await reader.read() == b"", "and asked nothing more"
            writer.close()
        assert len(crowd) == 0

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.parametrize(
    "slow",
    [
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n",
        b"POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\ntoken=bad",
        b"GET /login?token=bad HTTP/1.1\r\nHost: x\r\n\r\n",
    ],
    ids=["a body that does not come", "a wrong token", "a wrong link"],
)
def test_who_is_about_to_log_in_keeps_nobody_out(slow: bytes) -> None:
    import uvicorn
    from uvicorn.server import ServerState

    async def story() -> None:
        waiting, asking = Waiting(), asyncio.Semaphore(0)

        async def app(scope: Any, receive: Any, send: Any) -> None:
            asking.release()
            if scope["path"] != LOGIN:
                waiting.answer.set()
            await waiting(scope, receive, send)

        crowd = Crowd[Any](most_of_one=3)
        guard = AccessGuard(app, Access(names=("x",), token="good"), 1)
        config = uvicorn.Config(guard, log_config=None, lifespan="off")
        config.load()
        server = await asyncio.get_running_loop().create_server(
            lambda: polite(crowd)(config, ServerState(), {}), "127.0.0.1", 0
        )
        address = server.sockets[0].getsockname()
        async with server:
            writers = []
            for _ in range(3):
                reader, writer = await asyncio.open_connection(*address)
                writer.write(slow)
                writers.append((reader, writer))
                await asking.acquire()
            reader, writer = await asyncio.open_connection(*address)
            writer.write(b"GET / HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer good\r\n\r\n")
            assert (await reader.readuntil(b"ok")).startswith(b"HTTP/1.1 200")
            with contextlib.suppress(ConnectionError):
                assert await writers[0][0].read() == b"", "the oldest went for it"
            for _, one in [*writers, (reader, writer)]:
                one.close()

    asyncio.run(asyncio.wait_for(story(), 60))


@pytest.mark.real
def test_of_a_proxy_that_is_known_the_cookie_is_secure(
    tmp_path: Path, serve_store: Callable[..., Served]
) -> None:
    (tmp_path / "store").mkdir()
    served = serve_store(tmp_path / "store", "--invite", "--proxy", "127.0.0.1")
    answer = served.get(f"/login?token={served.word}", X_Forwarded_Proto="https")
    assert answer.status == 303
    assert "Secure" in answer.headers["set-cookie"]
    other = serve_store(tmp_path / "store", "--invite")
    answer = other.get(f"/login?token={other.word}", X_Forwarded_Proto="https")
    assert "Secure" not in answer.headers["set-cookie"], "anybody can say that"


@pytest.mark.real
def test_a_link_opens_one_browser_and_the_next_is_told(
    tmp_path: Path, serve_store: Callable[..., Served]
) -> None:
    (tmp_path / "store").mkdir()
    served = serve_store(tmp_path / "store", "--invite")
    assert served.get("/").status == 401
    assert served.get("/login?token=guessed").status == 403
    link = f"/login?token={served.word}"
    assert served.get(link, "HEAD").status == 403, "what looks ahead opens nothing"
    answer = served.get(link)
    assert answer.status == 303
    assert served.get("/", Cookie=answer.headers["set-cookie"].partition(";")[0]).status == 200
    assert served.get(link).status == 403
    assert served.process.stderr is not None
    said = ""
    while "the next browser needs" not in said:
        said = served.process.stderr.readline()
        assert said
    assert served.get(f"/login?token={said.partition('token=')[2].strip()}").status == 303


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (("--no-token", "--token-file", "x"), "contradict each other"),
        (("--proxy", "here"), "give an address"),
        (("--no-token", "--host", "0.0.0.0"), "a token is needed"),
    ],
)
def test_flags_that_cannot_be_meant(
    flags: tuple[str, ...], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    from holdfast.cli.main import main

    with pytest.raises(SystemExit) as ended:
        main(["serve", "--port", "0", *flags])
    assert ended.value.code == 78
    assert words in capsys.readouterr().err
