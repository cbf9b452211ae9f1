"""Asks each source of notices that a run here would listen to, once, and not for long.

Nobody else is asked: sources are those that the user named, and those that `notices.found` found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from holdfast.doctor.facts import SourceFact
from holdfast.journal.clocks import read_clock_pair
from holdfast.notices.listener import Watched
from holdfast.notices.protocol import Clocks, SourceSurroundings
from holdfast.notices.registry import WantedSource

LIMIT_S = 5.0
LOOK_S = 0.02


def ask(
    wanted: Sequence[WantedSource], around: SourceSurroundings, limit_s: float = LIMIT_S
) -> list[SourceFact]:
    """What each has said within the limit; raises ConfigurationError for an option of one."""
    return asyncio.run(_ask(wanted, around, limit_s)) if wanted else []


async def _ask(
    wanted: Sequence[WantedSource], around: SourceSurroundings, limit_s: float
) -> list[SourceFact]:
    watched = [
        Watched(
            one,
            around,
            clock=lambda: Clocks(*read_clock_pair()),
            heard=lambda _: None,
            say=lambda *_: None,
        )
        for one in wanted
    ]
    tasks = [asyncio.create_task(one.run()) for one in watched]
    loop = asyncio.get_running_loop()
    give_up_s = loop.time() + limit_s
    while loop.time() < give_up_s and not all(one.is_known for one in watched):
        await asyncio.sleep(LOOK_S)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    silent = f"no answer came within {limit_s:g} s"
    return [
        SourceFact(
            one.standing.name,
            one.standing.why,
            one.standing.has_answered,
            one.standing.trouble or ("" if one.is_known else silent),
        )
        for one in watched
    ]
