"""A topic as server-sent events, for viewers of any speed.

The server's writes wait for the viewer (its socket's buffer is all that is held for it); meanwhile
the topic goes on, and the viewer gets what there is when it is ready again. Who takes nothing for
`DROP_S` is let go; a browser that still lives comes back by itself and says what it has.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TYPE_CHECKING

from holdfast.serve.topic import Topic, Update

if TYPE_CHECKING:
    from starlette.types import Receive, Scope, Send

QUIET_S = 10.0  # then a sign of life, so that both ends notice when the other is gone
STILL = "event: still\ndata: 0\n\n"  # no comment: of that a page would not hear
DROP_S = 20.0
RETRY_MS = 1000
HEADERS = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"x-accel-buffering", b"no"),
)


class EventStream:
    """An ASGI response. Ends when the viewer has gone, is too slow, or `closing` is set."""

    def __init__(self, topic: Topic, mark: str | None, closing: asyncio.Event) -> None:
        self._topic = topic
        self._mark = mark
        self._closing = closing

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send until one of the ends."""
        del scope
        sending = asyncio.create_task(self._send(send))
        others = [
            asyncio.create_task(_gone(receive)),
            asyncio.create_task(self._closing.wait()),
        ]
        try:
            await asyncio.wait([sending, *others], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in (sending, *others):
                task.cancel()
            await asyncio.gather(sending, *others, return_exceptions=True)
        if self._closing.is_set():
            with contextlib.suppress(OSError):
                await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send(self, send: Send) -> None:
        headers = list(HEADERS)
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _write(send, f"retry: {RETRY_MS}\n\n")
        async with contextlib.aclosing(_with_pauses(self._topic.watch(self._mark))) as updates:
            async for update in updates:
                await _write(send, STILL if update is None else event(update))


def event(update: Update) -> str:
    """One update as an event. JSON has no line ends but escaped ones."""
    data = {"at": time.time_ns() // 1_000_000, "parts": update.parts, "gone": update.gone}
    return f"id: {update.mark}\nevent: parts\ndata: {json.dumps(data, separators=(',', ':'))}\n\n"


async def _write(send: Send, text: str) -> None:
    """Raises TimeoutError when the viewer takes nothing for too long."""
    async with asyncio.timeout(DROP_S):
        await send({"type": "http.response.body", "body": text.encode(), "more_body": True})


async def _with_pauses(
    updates: AsyncGenerator[Update, None],
) -> AsyncGenerator[Update | None, None]:
    """The same, with None where nothing came for a while."""
    waiting: asyncio.Task[Update] | None = None
    try:
        while True:
            if waiting is None:
                waiting = asyncio.create_task(_next(updates))
            done, _ = await asyncio.wait([waiting], timeout=QUIET_S)
            if not done:
                yield None
                continue
            found, waiting = waiting.result(), None
            yield found
    finally:
        if waiting is not None:
            waiting.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await waiting
        await updates.aclose()


async def _next(updates: AsyncIterator[Update]) -> Update:
    return await anext(updates)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
