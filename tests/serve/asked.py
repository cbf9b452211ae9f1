"""The pages of a store, asked for without a server: the application alone, in a thread's loop."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import unquote

import pytest
from served import Answer, Events

from holdfast.cli.serve_look import Sights
from holdfast.core.alerts import AlertPolicy
from holdfast.journal.store import RunStore
from holdfast.serve import app as apps
from holdfast.serve.access import Access
from holdfast.serve.runs_look import RunsLook

PORT = 8470
HERE = ("127.0.0.1", PORT)
T = TypeVar("T")


class Asked:
    """As `served.Served`, for who asks."""

    def __init__(self, site: apps.Site, loop: asyncio.AbstractEventLoop) -> None:
        self._app: Any = site.app()
        self._loop = loop
        self.streams: list[Events] = []

    def get(self, path: str, method: str = "GET", **headers: str) -> Answer:
        answer = self._ask(path, method, headers)
        answer.ended.result()
        text = b"".join(iter(answer.readline, b"")).decode()
        return Answer(answer.status, answer.headers, text)

    def events(self, path: str) -> Events:
        answer = self._ask(path, "GET", {})
        self.streams.append(Events(answer, answer))  # type: ignore[arg-type]
        return self.streams[-1]

    def _ask(self, path: str, method: str, headers: dict[str, str]) -> Body:
        answer = Body(self._loop)
        ask = self._app(_scope(path, method, headers), answer.receive, answer.send)
        answer.ended = asyncio.run_coroutine_threadsafe(ask, self._loop)
        answer.ended.add_done_callback(answer.end)
        return answer


class Body:
    """What is answered, read by another thread as it comes; `close` hangs up."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.status, self.headers = 0, dict[str, str]()
        self.ended: Future[None]
        self._loop = loop
        self._parts: queue.Queue[bytes] = queue.Queue()
        self._read = b""
        self._is_whole = False
        self._is_left = asyncio.Event()

    async def receive(self) -> dict[str, Any]:
        await self._is_left.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: dict[str, Any]) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            return
        if body := message.get("body", b""):
            self._parts.put(body)

    def end(self, _: object) -> None:
        self._parts.put(b"")

    def readline(self) -> bytes:
        while b"\n" not in self._read and not self._is_whole:
            part = self._parts.get()
            self._is_whole = not part
            self._read += part
        line, end, self._read = self._read.partition(b"\n")
        return line + end

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._is_left.set)
        self.ended.result()


def _scope(path: str, method: str, headers: dict[str, str]) -> dict[str, Any]:
    path, _, query = path.partition("?")
    given = {"host": f"{HERE[0]}:{PORT}"} | {
        k.replace("_", "-").lower(): v for k, v in headers.items()
    }
    return {
        "type": "http",
        "http_version": "1.1",
        "method": method,
        "scheme": "http",
        "path": unquote(path),
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "root_path": "",
        "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        "client": (HERE[0], 1),
        "server": HERE,
    }


@contextmanager
def asking(store: Path, mirror: Path) -> Iterator[Asked]:
    """The pages of a store, which look at it all the time."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def run(what: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(what, loop).result()

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOLDFAST_MIRROR", str(mirror))
        patch.setattr(apps, "EVERY_S", 0.01)
        site = run(_site(RunStore(store)))
        lifespan = site._lifespan(None)
        run(lifespan.__aenter__())
        asked = Asked(site, loop)
        try:
            yield asked
        finally:
            for stream in asked.streams:
                stream.close()
            run(lifespan.__aexit__(None, None, None))
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()


async def _site(store: RunStore) -> apps.Site:
    """In the loop that it belongs to."""
    runs = RunsLook(store, cache=None, scratch=None)
    see = Sights(str(store.root), None)
    return apps.Site(store, str(store.root), runs, see, AlertPolicy(), Access(), PORT)
