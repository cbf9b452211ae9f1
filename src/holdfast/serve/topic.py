"""Something that several people watch: looked at once for all of them, and only while they do.

A look gives named parts, texts that are HTML or JSON. Each part remembers at which look it last
changed, so what a viewer has is one number: who comes back, who is slow and who is new get the
parts that are newer than theirs, as they are then. Nothing is queued for anybody.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from html import escape
from typing import NamedTuple

from holdfast.core.visible import clean
from holdfast.errors import HoldfastError

_log = logging.getLogger(__name__)

Parts = Mapping[str, str]
TROUBLE = "trouble"  # the part that says what cannot be read now
EVERY_S = 0.5  # with what a look takes, what is shown is less than a second behind
AFAR_EVERY_S = 5.0  # of a bucket: runs tell it no more often, and each look has its price
LINGER_S = 5.0  # a page that is loaded anew does not stop the looks


class Update(NamedTuple):
    """Parts that changed, and the ids of those that are gone. `mark`: what the viewer has then."""

    mark: str
    parts: Parts
    gone: tuple[str, ...] = ()


@dataclass(slots=True)
class _TopicPart:
    text: str | None  # None: gone
    version: int


@dataclass(slots=True)
class Topic:
    """`look` is called in the executor, by one thread at a time, never twice at once.

    It may raise HoldfastError, or an OSError of what is deleted meanwhile: that is the part
    `trouble`, and the others stay as they were. All methods belong to the event loop's thread.
    """

    look: Callable[[], Parts]
    executor: Executor
    every_s: float = EVERY_S
    looked_s: float = -1e9
    viewers: int = 0
    _version: int = 0
    _epoch: str = field(default_factory=lambda: os.urandom(6).hex())
    _parts: dict[str, _TopicPart] = field(default_factory=dict)
    _changed: asyncio.Event = field(default_factory=asyncio.Event)
    _looking: asyncio.Task[None] | None = None
    _running: asyncio.Task[None] | None = None
    _left_s: float = 0.0

    @property
    def mark(self) -> str:
        """What a viewer has who has everything."""
        return f"{self._epoch}-{self._version}"

    async def current(self) -> Mapping[str, str]:
        """All parts, not older than `every_s`."""
        if time.monotonic() - self.looked_s > self.every_s:
            await self._look()
        return self._standing()

    def _standing(self) -> dict[str, str]:
        return {name: part.text for name, part in self._parts.items() if part.text is not None}

    async def watch(self, mark: str | None = None) -> AsyncGenerator[Update, None]:
        """What changed since `mark`, again and again; of a mark of nobody's, everything."""
        seen = self._seen(mark)
        self.viewers += 1
        if self._running is None or self._running.done():
            self._running = asyncio.create_task(self._run())
        try:
            while True:
                changed = self._changed
                if self._version > seen:
                    update = self._since(seen)
                    seen = self._version
                    yield update
                else:
                    await changed.wait()
        finally:
            self.viewers -= 1
            self._left_s = time.monotonic()

    def stop(self) -> None:
        """No more looks."""
        for task in (self._running, self._looking):
            if task is not None:
                task.cancel()

    async def _run(self) -> None:
        while self.viewers or time.monotonic() - self._left_s < LINGER_S:
            began_s = time.monotonic()
            await self._look()
            took_s = time.monotonic() - began_s
            # Half of one core at most, however long a look takes.
            await asyncio.sleep(max(self.every_s - took_s, took_s))

    async def _look(self) -> None:
        """One look for everybody who wants one now."""
        if self._looking is None or self._looking.done():
            self._looking = asyncio.create_task(self._look_once())
        await asyncio.shield(self._looking)

    async def _look_once(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            found = dict(await loop.run_in_executor(self.executor, self.look))
            found.setdefault(TROUBLE, "")
        except (HoldfastError, OSError) as error:
            found = {**self._standing(), TROUBLE: escape(clean(str(error)))}
        except Exception as error:  # a mistake of ours, which must not leave pages waiting
            _log.exception("a look failed")
            words = f"Holdfast could not look ({type(error).__name__}); see the server's output"
            found = {**self._standing(), TROUBLE: escape(words)}
        self.looked_s = time.monotonic()
        self._take(found)

    def _take(self, found: Parts) -> None:
        version = self._version + 1
        for name, text in found.items():
            part = self._parts.get(name)
            if part is None or part.text != text:
                self._parts[name] = _TopicPart(text, version)
                self._version = version
        for name, part in self._parts.items():
            if name not in found and part.text is not None:
                self._parts[name] = _TopicPart(None, version)
                self._version = version
        if self._version == version:
            self._changed.set()
            self._changed = asyncio.Event()

    def _seen(self, mark: str | None) -> int:
        epoch, _, number = (mark or "").partition("-")
        if epoch != self._epoch or not (number.isascii() and number.isdigit() and len(number) < 16):
            return 0
        return min(int(number), self._version)

    def _since(self, seen: int) -> Update:
        newer = {name: part for name, part in self._parts.items() if part.version > seen}
        gone = tuple(name for name, part in newer.items() if part.text is None)
        parts = {name: part.text for name, part in newer.items() if part.text is not None}
        return Update(self.mark, parts, gone)
