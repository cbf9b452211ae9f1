"""A listener whose waits are short, and what it heard."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from itertools import pairwise
from pathlib import Path

from holdfast.core.hosts.backoff import Backoff
from holdfast.core.notices.board import Notice
from holdfast.journal.clocks import now_ns, read_clock_pair
from holdfast.notices import listener
from holdfast.notices.protocol import Clocks, SourceSurroundings
from holdfast.notices.registry import wanted

HASTE = Backoff(shortest_ns=1_000_000, cap_ns=20_000_000)
LIMIT_S = 60.0  # reached only when something is wrong
NEAR_S = 5.0  # calendars are told in whole seconds, and the emulator takes its time
LET_GO_S = 30.0  # shorter than what a metadata server or a watch may take to answer


def clocks() -> Clocks:
    return Clocks(*read_clock_pair())


class Listening:
    """To the sources of a setting's text. `skew_ns`: by how much this host's calendar is ahead.

    `naps`: sleeps between polls take a millisecond, and the run's clock goes on by what was slept.
    """

    def __init__(
        self,
        text: str,
        environment: Mapping[str, str] | None = None,
        root: Path = Path("/nowhere"),
        skew_ns: int = 0,
        *,
        naps: bool = False,
    ) -> None:
        self.began_s = time.monotonic()
        self.slept_ns = 0
        self.notices: list[Notice] = []
        self.said: list[tuple[str, str]] = []
        self._changed = threading.Condition()
        around = SourceSurroundings(environment or {}, root)
        self.listener = listener.Listener(
            wanted(text, around),
            around,
            clock=lambda: Clocks(now_ns() + self.slept_ns, clocks().unix_ns + skew_ns),
            sleep=self._nap if naps else asyncio.sleep,
            heard=self._heard,
            say=lambda *words: self.said.append(words),
            grace_ns=30 * 10**9,
            backoff=HASTE,
        )
        self.listener.start()

    async def _nap(self, seconds: float) -> None:
        self.slept_ns += int(seconds * 10**9)
        await asyncio.sleep(0.001)

    def _heard(self, notice: Notice) -> None:
        with self._changed:
            self.notices.append(notice)
            self._changed.notify_all()

    def until(self, is_so: Callable[[], object]) -> None:
        """Wait until that is so; it is asked again and again."""
        with self._changed:
            for _ in range(int(LIMIT_S / 0.01)):
                if is_so():
                    return
                self._changed.wait(0.01)
        raise AssertionError(f"not within {LIMIT_S} s; {self.notices}, {self.said}")

    def heard(self, count: int) -> list[Notice]:
        """The first so many notices, when they are there."""
        self.until(lambda: len(self.notices) >= count)
        return self.notices[:count]

    def leaves(self, told: Notice, announced_s: float) -> bool:
        """Whether a notice leaves what was announced, less what may have passed since."""
        assert told.deadline_ns is not None
        left_s = (told.deadline_ns - told.received_ns) / 10**9
        passed_s = time.monotonic() - self.began_s
        return announced_s - NEAR_S - passed_s <= left_s <= announced_s + NEAR_S

    @property
    def standing(self) -> listener.Standing:
        return self.listener.standings[0]

    def answered(self) -> None:
        """Wait until its first source has had an answer, and is in no trouble."""
        self.until(lambda: self.standing.has_answered and not self.standing.trouble)

    def trouble_was_said(self) -> bool:
        """When it began and when it was over, and nothing again and again in between."""
        levels = [level for level, _ in self.said]
        is_repeated = any(one == before for before, one in pairwise(self.said))
        return levels[:1] == ["warning"] and levels[-1] == "info" and not is_repeated

    def close(self) -> bool:
        """Whether its sources let go: they may not wait for answers, which take longer."""
        return self.listener.close(LET_GO_S)
