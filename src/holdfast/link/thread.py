"""What both ends have: a loop in a thread of its own, and a descriptor that wakes their owner."""

from __future__ import annotations

import asyncio
import contextlib
import os
import select
import selectors
import threading
import time
from collections.abc import Callable, Coroutine
from typing import Any

CLOSE_S = 1.0  # for what was put and not yet sent
_JOIN_S = 5.0


class _ReadingSelector(selectors.DefaultSelector):
    """It knows by when all that had come was read, and rests before it looks for more.

    To wake up for each of two thousand heartbeats a second took more than to answer them.
    """

    def __init__(self, rest_s: float) -> None:
        super().__init__()
        self._rest_s = rest_s
        self._looks = 0
        self._is_looking = False
        self._looked_s = time.monotonic()
        self.read_s = self._looked_s  # what had come by then was read, and dealt with
        self._news = select.poll()
        self._news.register(self.fileno(), select.POLLIN)

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """As any selector's; the loop has dealt with all that was found before."""
        self.read_s = self._looked_s
        rest_s = self._rest_s if timeout is None else min(self._rest_s, timeout)
        if rest_s > 0:
            time.sleep(rest_s)
        self._looks, self._looked_s = self._looks + 1, time.monotonic()
        self._is_looking = True
        try:
            return super().select(None if timeout is None else timeout - rest_s)
        finally:
            self._is_looking = False

    def unread_s(self) -> float:
        """For how long what has come may lie unread; from any thread."""
        now_s, looks, was_looking = time.monotonic(), self._looks, self._is_looking
        has_news = bool(self._news.poll(0))  # that the loop is not given yet
        if was_looking and not has_news and self._is_looking and looks == self._looks:
            return 0.0
        return now_s - self.read_s


class LoopThread:
    """An asyncio loop in a daemon thread."""

    def __init__(self, name: str, failed: Callable[[str], None], rest_s: float = 0.0) -> None:
        """`failed(words)` hears what nobody catches, as that there are no descriptors left.

        `rest_s`: before it waits for what comes next.
        """
        self._selector = _ReadingSelector(rest_s)
        self.loop = asyncio.SelectorEventLoop(self._selector)
        self.loop.set_exception_handler(
            lambda _, context: failed(str(context.get("exception") or context["message"]))
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def read_s(self) -> float:
        """By then, on the monotonic clock, all that had come was dealt with; for the loop."""
        return self._selector.read_s

    def unread_s(self) -> float:
        """For how long what has come may lie unread; 0: the loop waits, and there is nothing."""
        return self._selector.unread_s()

    def call(self, do: Callable[[], None]) -> None:
        """Have the loop's thread do that; nothing once the loop is closed."""
        with contextlib.suppress(RuntimeError):
            self.loop.call_soon_threadsafe(do)

    def run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """Have the loop's thread do that, and wait for it; raises what it raises."""
        asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(_JOIN_S)

    def close(self, leave: Coroutine[Any, Any, None]) -> None:
        """Do that first, then end the loop and its thread; not longer than that takes at most."""
        with contextlib.suppress(TimeoutError):
            self.run(leave)
        self.call(self.loop.stop)
        self._thread.join(_JOIN_S)

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.loop.run_until_complete(asyncio.sleep(0))
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


class Bell:
    """Its descriptor is readable from `ring` to `hush`. `lock` is also its owner's."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self._fd = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._rings = False

    def fileno(self) -> int:
        """For a selector; -1 when it is closed."""
        return self._fd

    def ring(self) -> None:
        """Call with the lock held."""
        if not self._rings and self._fd >= 0:
            os.eventfd_write(self._fd, 1)
            self._rings = True

    def hush(self) -> None:
        """Call with the lock held."""
        if self._rings and self._fd >= 0:
            os.eventfd_read(self._fd)
            self._rings = False

    def close(self) -> None:
        """Close the descriptor."""
        with self.lock:
            if self._fd >= 0:
                os.close(self._fd)
            self._fd = -1
