"""Several things that one source watches at once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing

from holdfast.core.notices import Notice


async def together(*watches: AsyncGenerator[Notice, None]) -> AsyncGenerator[Notice, None]:
    """What any of them tells, as it comes, until all have ended; the first error ends all."""
    told: asyncio.Queue[Notice | None] = asyncio.Queue()

    async def pass_on(watch: AsyncGenerator[Notice, None]) -> None:
        try:
            async with aclosing(watch) as notices:
                async for notice in notices:
                    told.put_nowait(notice)
        finally:
            told.put_nowait(None)

    tasks = [asyncio.create_task(pass_on(watch)) for watch in watches]
    try:
        ended = 0
        while ended < len(tasks):
            notice = await told.get()
            if notice is not None:
                yield notice
                continue
            ended += 1
            for task in tasks:
                if task.done():
                    task.result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
