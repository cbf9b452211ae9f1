"""Tells the sources of a host that what they have announced may happen now.

For a run that has left, and for a host daemon when nobody is left: the clouds that let one approve
an event ahead of its time (`protocol.Settles`) need not wait any more. It is the last thing that is
done, on sources of its own, so that it stands in the way of nothing. What cannot be told is said,
and is no harm: the event comes at its time.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterable, Sequence

from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.backoff import Backoff
from holdfast.core.notices.board import Notice
from holdfast.notices.protocol import Clocks, Settles, SourceSurroundings, Tools, Trouble
from holdfast.notices.registry import WantedSource

LIMIT_S = 10.0
BACKOFF = Backoff(shortest_ns=SECOND_NS // 10, cap_ns=2 * SECOND_NS)


def settle(
    sources: Sequence[WantedSource],
    around: SourceSurroundings,
    notices: Iterable[Notice],
    *,
    clock: Callable[[], Clocks],
    say: Callable[[str, str], None],
    limit_s: float = LIMIT_S,
) -> None:
    """Have each notice told back to the source that it came from, within `limit_s` in all.

    Never raises; `say(level, words)` is called from this thread.
    """
    try:
        asyncio.run(_settle_all(sources, around, notices, clock, say, limit_s))
    except Exception as error:  # a bug of ours: nothing hangs on it
        say("warning", f"The end is not told to the cloud: {type(error).__name__}: {error}")


async def _settle_all(
    sources: Sequence[WantedSource],
    around: SourceSurroundings,
    notices: Iterable[Notice],
    clock: Callable[[], Clocks],
    say: Callable[[str, str], None],
    limit_s: float,
) -> None:
    made = {one.name: one.make(Tools(clock, asyncio.sleep), around) for one in sources}
    by_source = [(made[one.source], one) for one in notices if one.source in made]
    tasks = [
        _settle(source, notice, say, limit_s)
        for source, notice in by_source
        if isinstance(source, Settles)
    ]
    await asyncio.gather(*tasks)


async def _settle(
    source: Settles, notice: Notice, say: Callable[[str, str], None], limit_s: float
) -> None:
    """Until it has worked, or the time is over."""
    words, wait_ns = f"no answer within {limit_s:g} s", 0
    try:
        async with asyncio.timeout(limit_s):
            while True:
                try:
                    say("info", f"{notice.source}: {await source.settled(notice)}")
                    return
                except Trouble as trouble:
                    words = str(trouble)
                wait_ns = BACKOFF.next_ns(wait_ns, random.random())  # noqa: S311 - for jitter
                await asyncio.sleep(wait_ns / SECOND_NS)
    except TimeoutError:
        say(
            "warning", f"{notice.source}: the event is not approved, and comes at its time: {words}"
        )
