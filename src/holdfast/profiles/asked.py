"""Having a rank of this host profile itself: at its door, or with an answer in its place."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.core import actions as act
from holdfast.core.durations import SECOND_NS
from holdfast.errors import HoldfastError
from holdfast.journal.atomic import encode_json, write_atomic
from holdfast.journal.profile_door import ProfileWish, door_path, knock
from holdfast.journal.store import RunFolder
from holdfast.profiles.capture import Capture, capture_path, make_place

BUSY = "it is being profiled already: ask again when that is done"
NOT_THERE = "it has no session (hf.start) that has done a step"


def ask_rank(
    folder: RunFolder, journal: Path, asked: act.Profile, say: Callable[[str], None]
) -> None:
    """`journal`: the rank's live one. Never waits: what cannot be is written in a thread."""
    wish = ProfileWish(asked.name, asked.steps, asked.limit_ns / SECOND_NS)
    if knock(journal, wish):
        return
    why = BUSY if door_path(journal).exists() else NOT_THERE
    say(f"No profile of rank {asked.rank}: {why}")
    refusal = Capture(
        asked.attempt, asked.rank, asked.steps, refused=why, at_unix_ns=time.time_ns()
    )
    path = capture_path(folder, asked.attempt, asked.name, asked.rank)
    threading.Thread(
        target=_write, args=(path, refusal, say), name="holdfast-refusal", daemon=True
    ).start()


def _write(path: Path, refusal: Capture, say: Callable[[str], None]) -> None:
    try:
        make_place(path)
        write_atomic(path, encode_json(refusal.to_json()))
    except HoldfastError as error:
        say(f"{error}; whoever asked for the profile is not told")
