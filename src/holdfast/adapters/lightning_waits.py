"""How long Lightning waits for its batches: it tells its profiler, whichever that is."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

BATCH = ".train_dataloader_next"


def hear_waits(profiler: Any, waited: Callable[[float], None]) -> None:
    """Tell `waited`, after each batch of the training, for how many seconds."""
    start, stop = profiler.start, profiler.stop
    began_s = 0.0

    def started(action: str) -> None:
        nonlocal began_s
        start(action)
        if action.endswith(BATCH):
            began_s = time.monotonic()

    def stopped(action: str) -> None:
        if action.endswith(BATCH):
            waited(time.monotonic() - began_s)
        stop(action)

    profiler.start, profiler.stop = started, stopped
