"""A run's store that is not there for a while: it is waited for, and nothing is lost by it.

Where a store was mounted there is an empty folder then, or none. So a file that is not found may be
missing, or all of the store; only the run's own record tells which.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.store import RunFolder, RunStore
from holdfast.session.say import say

STORE_LIMIT_S = 60.0
STORE_LOOK_S = 0.2


def folder_of(
    store: str,
    run: str,
    *,
    clock_s: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> RunFolder:
    """The run's folder. Somebody had it a moment ago: if it is not there, it is waited for.

    Raises StoreUnavailable: it does not come back, so another attempt may find it.
    """
    began_s, has_told = clock_s(), False
    while True:
        try:
            return RunStore.at(store).get_again(run)
        except StoreUnavailable as error:
            waited_s, why = clock_s() - began_s, error
        if waited_s >= STORE_LIMIT_S:
            raise StoreUnavailable(f"no run store for {waited_s:.0f} s: {why}") from why
        if not has_told:
            say(f"Waiting for the run store: {why}")
            has_told = True
        sleep(STORE_LOOK_S)


def is_back(
    folder: RunFolder,
    error: CorruptCheckpoint,
    wait: Callable[[str, str], object] = folder_of,
) -> bool:
    """Whether what was missing in the run's store is there, as soon as the store is.

    Raises StoreUnavailable as `folder_of`.
    """
    missing = error.__cause__
    if not isinstance(missing, FileNotFoundError) or not isinstance(missing.filename, str):
        return False
    place = Path(missing.filename)
    if not place.is_relative_to(folder.ckpt_dir):
        return False
    wait(str(folder.path.parent), folder.name)
    return place.exists()
