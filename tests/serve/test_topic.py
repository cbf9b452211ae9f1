"""What several watch: one look for all, only what is newer than theirs, nothing queued."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from holdfast.errors import StoreUnavailable
from holdfast.serve import stream
from holdfast.serve.stream import EventStream
from holdfast.serve.topic import TROUBLE, Topic, Update


class Looked:
    """A look whose parts the test decides."""

    def __init__(self) -> None:
        self.parts: dict[str, str] = {"a": "1", "b": "1"}
        self.error: Exception | None = None
        self.count = 0

    def __call__(self) -> dict[str, str]:
        self.count += 1
        if self.error is not None:
            raise self.error
        return dict(self.parts)


@pytest.fixture
def threads() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as pool:
        yield pool


Story = Callable[[Topic, Looked], Coroutine[Any, Any, None]]


def play(threads: ThreadPoolExecutor, story: Story) -> None:
    async def told() -> None:
        look = Looked()
        topic = Topic(look, threads, every_s=0.001)
        try:
            await asyncio.wait_for(story(topic, look), 120)
        finally:
            topic.stop()

    asyncio.run(told())


async def first(updates: AsyncIterator[Update]) -> Update:
    return await anext(updates)


def test_a_viewer_gets_everything_then_what_changes(threads: ThreadPoolExecutor) -> None:
    async def story(topic: Topic, look: Looked) -> None:
        updates = topic.watch()
        whole = await first(updates)
        assert whole.parts == {"a": "1", "b": "1", TROUBLE: ""}
        look.parts["a"] = "2"
        assert (await first(updates)).parts == {"a": "2"}
        del look.parts["b"]
        update = await first(updates)
        assert (update.parts, update.gone) == ({}, ("b",))
        look.parts["b"] = "3"
        assert (await first(updates)).parts == {"b": "3"}

    play(threads, story)


def test_who_comes_back_says_what_it_has(threads: ThreadPoolExecutor) -> None:
    async def story(topic: Topic, look: Looked) -> None:
        assert await topic.current() == {"a": "1", "b": "1", TROUBLE: ""}
        mark = topic.mark
        look.parts["a"] = "2"
        assert (await first(topic.watch(mark))).parts == {"a": "2"}
        for strange in ("", "x", "0-0", f"{mark}9" * 9, "é-é", f"{mark.partition('-')[0]}-x"):
            assert set((await first(topic.watch(strange))).parts) >= {"a", "b"}, strange

    play(threads, story)


def test_a_slow_viewer_gets_the_newest_and_nothing_between(threads: ThreadPoolExecutor) -> None:
    async def story(topic: Topic, look: Looked) -> None:
        slow, quick = topic.watch(), topic.watch()
        await first(slow)
        await first(quick)
        for number in range(2, 30):
            look.parts["a"] = str(number)
            assert (await first(quick)).parts == {"a": str(number)}
        assert (await first(slow)).parts == {"a": "29"}

    play(threads, story)


def test_a_quiet_stream_says_that_it_is_there(
    threads: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an event, not as a comment: of that a page hears nothing, and would call itself live."""
    monkeypatch.setattr(stream, "QUIET_S", 0.001)

    async def story(topic: Topic, look: Looked) -> None:
        del look
        closing, still = asyncio.Event(), asyncio.Event()

        async def send(message: Any) -> None:
            if message.get("body", b"").startswith(b"event: still\ndata: "):
                still.set()

        answer = asyncio.create_task(
            EventStream(topic, None, closing)({}, asyncio.Event().wait, send)
        )
        await still.wait()
        closing.set()
        await answer

    play(threads, story)


def test_many_viewers_cost_one_look(threads: ThreadPoolExecutor) -> None:
    async def story(topic: Topic, look: Looked) -> None:
        topic.every_s = 1000.0
        viewers = [topic.watch() for _ in range(50)]
        await asyncio.gather(*map(first, viewers))
        await asyncio.gather(*(topic.current() for _ in range(50)))
        assert look.count == 1

    play(threads, story)


def test_what_cannot_be_read_is_said_and_the_rest_stays(threads: ThreadPoolExecutor) -> None:
    async def story(topic: Topic, look: Looked) -> None:
        updates = topic.watch()
        await first(updates)
        look.error = StoreUnavailable("the run <b>\x1b[31m is gone")
        assert (await first(updates)).parts == {TROUBLE: "the run &lt;b&gt; is gone"}
        look.error = FileNotFoundError("deleted")
        assert (await first(updates)).parts == {TROUBLE: "deleted"}
        look.error = KeyError("a mistake")
        said = (await first(updates)).parts
        assert set(said) == {TROUBLE}
        assert "KeyError" in said[TROUBLE]
        look.error = None
        assert (await first(updates)).parts == {TROUBLE: ""}

    play(threads, story)
