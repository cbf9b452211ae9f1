"""Compiled programs on this host: there before the ranks start, home before the host goes."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from holdfast.cache.home import Homing, keep_in_step
from holdfast.cache.seal import FileSealer
from holdfast.cache.tier import CacheTier
from holdfast.core.actions import Finish
from holdfast.core.preloaded import PROGRAMS, PreloadedPart
from holdfast.errors import EXIT_DONE, StoreUnavailable
from holdfast.journal.ownerless import written_by_anybody
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder

CLOSE_LIMIT_S = 10.0
PRELOAD_LIMIT_S = 600.0
DONE_LIMIT_S = 60.0  # nothing presses: each program that does not come home is compiled anew


def seed_programs(
    folder: RunFolder,
    local: Path,
    limit_bytes: int,
    seal: FileSealer | None,
    say: Callable[[str], None],
) -> Callable[[Finish | None], None]:
    """Seed this host's tier from the run store, and keep the two in step from now on.

    Ranks that start before the seeding is over (a slow store) compile what is not there yet. Gives
    what is to be called in the end, with the run's outcome: of a run that is done nothing stays.
    """
    homing = _homing(folder, local, limit_bytes, seal, say)
    homing.start()
    homing.wait_seeded()

    def close(finish: Finish | None) -> None:
        is_done = finish is not None and finish.exit_code == EXIT_DONE
        homing.close(DONE_LIMIT_S if is_done else CLOSE_LIMIT_S, is_done=is_done)

    return close


def preload_programs(
    folder: RunFolder,
    local: Path,
    limit_bytes: int,
    seal: FileSealer | None,
    say: Callable[[str], None],
) -> PreloadedPart:
    """Seed this host's tier before a run starts here, and take the time for all of it."""
    since_s = time.monotonic()
    homing = _homing(folder, local, limit_bytes, seal, say)
    files, nbytes = homing.seed(PRELOAD_LIMIT_S)
    took_ns = round((time.monotonic() - since_s) * 1e9)
    return PreloadedPart(PROGRAMS, files, nbytes, None, took_ns, why=homing.why_none)


def _homing(
    folder: RunFolder,
    local: Path,
    limit_bytes: int,
    seal: FileSealer | None,
    say: Callable[[str], None],
) -> Homing:
    if seal is not None or not written_by_anybody(folder.cache_dir):
        try:
            refresh(folder.cache_dir)
        except StoreUnavailable as error:
            say(f"{error}; programs are compiled again")
    return keep_in_step(CacheTier(local, say), folder.cache_dir, limit_bytes, seal, say)
