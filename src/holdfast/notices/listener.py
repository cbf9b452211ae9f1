"""Listens to all sources of a host, in one thread, and survives whatever they do.

Each notice is handed on once. Each watch of a source is a task of its own: its trouble is counted,
told once until it is over, and tried again with jitter (`core.hosts.backoff`); it stops no other
watch, and never reaches the run.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any

from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.backoff import Backoff
from holdfast.core.notices.board import Notice
from holdfast.notices.protocol import (
    Clocks,
    NoticeSource,
    SourceSurroundings,
    TakesSignals,
    Tools,
    Trouble,
    Watch,
)
from holdfast.notices.registry import WantedSource

Say = Callable[[str, str], None]
Sleep = Callable[[float], Awaitable[object]]


@dataclass(frozen=True, slots=True)
class Standing:
    """How a source gets on, with all its watches.

    `trouble` is empty while all of them answer; `failures` counts all so far.
    """

    name: str
    why: str
    has_answered: bool = False
    failures: int = 0
    trouble: str = ""


class Watched:
    """One source, and what is known of it."""

    def __init__(
        self,
        wanted: WantedSource,
        around: SourceSurroundings,
        *,
        clock: Callable[[], Clocks],
        heard: Callable[[Notice], None],
        say: Say,
        changed: Callable[[], None] = lambda: None,
        grace_ns: int = 30 * SECOND_NS,
        since_unix_ns: int | None = None,
        trusted_uids: Collection[int] | None = None,
        sleep: Sleep = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        backoff: Backoff | None = None,
    ) -> None:
        """`backoff`: the source's own where none is given.

        Raises ConfigurationError for an option of the source that is not valid.
        """
        self.standing = Standing(wanted.name, wanted.why)
        self._heard, self._say, self._sleep = heard, say, sleep
        self._changed = changed
        self._jitter, self._backoff = jitter, backoff or wanted.backoff
        self._troubles: dict[Watch, str] = {}
        self._silent: set[Watch] | None = None  # None: it is not watched yet
        self._last: dict[tuple[str, str, str], Notice] = {}
        lent = Tools(clock, sleep, grace_ns, since_unix_ns, trusted_uids)
        self.source: NoticeSource = wanted.make(lent, around)

    @property
    def is_known(self) -> bool:
        """Whether each of its watches has answered, or is in trouble."""
        return self._silent is not None and not self._silent

    async def run(self) -> None:
        """Until the source has nothing more to tell, or for ever."""
        watches = self.source.watches
        self._silent = set(watches)
        async with asyncio.TaskGroup() as tasks:
            for watch in watches:
                tasks.create_task(self._follow(watch))

    async def _follow(self, watch: Watch) -> None:
        wait_ns = 0
        while True:
            try:
                async with aclosing(watch()) as answers:
                    async for news in answers:
                        wait_ns = 0
                        for notice in news:
                            self._take(notice)
                        self._answered(watch)
                return
            except Trouble as trouble:
                self._failed(watch, str(trouble))
            except Exception as error:  # a bug of ours: the run must not notice
                self._failed(watch, f"{type(error).__name__}: {error}")
            wait_ns = self._backoff.next_ns(wait_ns, self._jitter())
            await self._sleep(wait_ns / SECOND_NS)

    def _take(self, notice: Notice) -> None:
        """Hand on what is new: a source that starts again tells again what it knows."""
        known = self._last.get(notice.key)
        self._last[notice.key] = notice
        if known is None or replace(known, received_ns=notice.received_ns) != notice:
            self._heard(notice)

    def _answered(self, watch: Watch) -> None:
        self._spoke(watch)
        was_troubled = self._troubles.pop(watch, None) is not None
        if was_troubled and not self._troubles:
            self._say("info", f"Notices from {self.standing.name}: it answers again")
        if was_troubled or not self.standing.has_answered:
            self._stand(has_answered=True)

    def _failed(self, watch: Watch, words: str) -> None:
        self._spoke(watch)
        # What several watches suffer from, as a server that is not there, is said once.
        if watch not in self._troubles and words not in self._troubles.values():
            then = "it is asked again, and training goes on"
            self._say("warning", f"Notices from {self.standing.name}: {words}; {then}")
        self._troubles[watch] = words
        self._stand(failures=self.standing.failures + 1)

    def _spoke(self, watch: Watch) -> None:
        if self._silent is not None:
            self._silent.discard(watch)

    def _stand(self, **changes: Any) -> None:
        trouble = "; ".join(dict.fromkeys(self._troubles.values()))
        self.standing = replace(self.standing, trouble=trouble, **changes)
        self._changed()


class Listener:
    """All sources of a host, in a thread of their own. `heard` and `say` are called from there."""

    def __init__(
        self,
        wanted: Sequence[WantedSource],
        around: SourceSurroundings,
        *,
        clock: Callable[[], Clocks],
        heard: Callable[[Notice], None],
        say: Say,
        grace_ns: int,
        since_unix_ns: int | None = None,
        trusted_uids: Collection[int] | None = None,
        changed: Callable[[], None] = lambda: None,
        sleep: Sleep = asyncio.sleep,
        jitter: Callable[[], float] = random.random,
        backoff: Backoff | None = None,
    ) -> None:
        """Nothing is opened yet; raises ConfigurationError for options that are not valid.

        `changed`: how a source gets on has; called from the thread as well. `since_unix_ns`: since
        when somebody has listened for the same, if that is longer; see `Tools`, also for
        `trusted_uids`.
        """
        lent: dict[str, Any] = {"clock": clock, "grace_ns": grace_ns, "backoff": backoff}
        lent |= {"since_unix_ns": since_unix_ns, "trusted_uids": trusted_uids}
        lent |= {"sleep": sleep, "changed": changed, "jitter": jitter}
        self._watched = [Watched(one, around, heard=heard, say=say, **lent) for one in wanted]
        self._say = say
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._is_closing = False
        self._lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="holdfast-notices", daemon=True)

    @property
    def standings(self) -> tuple[Standing, ...]:
        """How each source gets on, in the order in which they were named."""
        return tuple(one.standing for one in self._watched)

    @property
    def signals(self) -> Collection[int]:
        """Of which signals some source wants to be told."""
        return [number for one in self._takers() for number in one.numbers]

    def signal(self, number: int) -> bool:
        """Tell whoever takes that signal; False: nobody does."""
        takers = [one for one in self._takers() if number in one.numbers]
        for one in takers:
            one.arrived(number)
        return bool(takers)

    def start(self) -> None:
        """Begin to listen."""
        self._thread.start()

    def close(self, limit_s: float) -> bool:
        """Stop listening; False when that takes longer than `limit_s`."""
        with self._lock:
            self._is_closing = True
            if self._loop is not None and self._ended is not None:
                self._loop.call_soon_threadsafe(self._ended.set)
        if self._thread.ident is not None:
            self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _takers(self) -> list[TakesSignals]:
        return [one.source for one in self._watched if isinstance(one.source, TakesSignals)]

    def _run(self) -> None:
        try:
            asyncio.run(self._main())
        except Exception as error:  # a bug of ours: the run must not notice
            self._say("warning", f"Notices are not heard any more: {error}")

    async def _main(self) -> None:
        with self._lock:
            self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
            if self._is_closing:
                return
        tasks = [asyncio.create_task(one.run()) for one in self._watched]
        await self._ended.wait()
        with self._lock:
            self._loop = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
