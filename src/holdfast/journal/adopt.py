"""What earlier holders of a run left on this host: brought home, and their attempts closed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from collections.abc import Collection
from pathlib import Path

from holdfast.core.ledger.kinds import DONE
from holdfast.errors import HoldfastError, JournalError
from holdfast.journal.atomic import store_errors
from holdfast.journal.attempts import AttemptEnd, AttemptRecord, attempts, end_attempt
from holdfast.journal.clocks import RunClock, boot_id
from holdfast.journal.folders import controller_journal
from holdfast.journal.holder import Sign, look
from holdfast.journal.incidents import incident_of, last_lines, story_of, write_incident
from holdfast.journal.lease import holder_of
from holdfast.journal.live import home_of, identity_of
from holdfast.journal.log_copy import LogCopy
from holdfast.journal.replicate import Replicator
from holdfast.journal.salvage import salvage_journal, salvage_text
from holdfast.journal.scratch import CACHE_FOLDER, owner_of
from holdfast.journal.store import RunFolder

LOST_CAUSE = "killed"


def adopt(
    folder: RunFolder, scratch: Path, *, mine: Path | None = None, but: int | None = None
) -> list[str]:
    """Copy what is left in `scratch` to the store, then close attempts that nobody ended.

    `but`: that attempt may run still. `mine` is the caller's own place in `scratch`, and stays.
    Only the holder of the run's lease may call it. Returns sentences for people. Trouble with one
    file costs that file's tail, which stays where it is.
    """
    return [*bring_home(folder, scratch, mine=mine), *close_attempts(folder, but)]


def close_attempts(folder: RunFolder, but: int | None = None) -> list[str]:
    """Put on record that those are over which nobody has ended; sentences for people."""
    said = []
    for record in attempts(folder).records:
        if record.end is None and record.attempt != but:
            end = _close(folder, record)
            said.append(
                f"{end.words[:1].upper()}{end.words[1:]}; attempt {record.attempt} is closed"
            )
    return said


def bring_home(
    folder: RunFolder, scratch: Path, *, mine: Path | None = None, is_locked: bool = False
) -> list[str]:
    """Copy what dead processes left in `scratch` to the store; sentences on what could not be.

    One process of a host at a time: another that comes meanwhile leaves it to the first.
    `is_locked`: the caller has that folder locked already.
    """
    said: list[str] = []
    on_record = {record.attempt for record in attempts(folder).records}
    with contextlib.ExitStack() as at_end:
        lock = os.open(scratch, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        at_end.callback(os.close, lock)
        try:
            if not is_locked:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return said
        kept = (mine, scratch / CACHE_FOLDER)
        for place in sorted(p for p in scratch.iterdir() if p.is_dir() and p not in kept):
            owner = owner_of(place)
            if owner is not None and look(owner) is Sign.ALIVE:
                continue  # another rank of ours, or one of an attempt that is still ending
            try:
                _bring_home(folder, on_record, place)
            except (HoldfastError, OSError) as error:
                said.append(f"{place} could not be copied to the run store: {error}")
            else:
                shutil.rmtree(place, ignore_errors=True)
    return said


def _close(folder: RunFolder, record: AttemptRecord) -> AttemptEnd:
    """End an attempt as its incident tells it, or else its journal, or else as lost."""
    known = incident_of(folder, record.attempt) or {}
    cause, words, ended_unix_ns = known.get("cause"), known.get("words"), time.time_ns()
    exits = (None,) * record.ranks
    if not (isinstance(cause, str) and isinstance(words, str)):
        cause, words, ended_unix_ns = _found_out(folder, record)
        if cause != DONE:
            logs = sorted(folder.logs_dir(record.attempt).glob("*.log"))
            lines = last_lines(logs[0]) if logs else []
            story = story_of(record.attempt, cause, words, exits=exits, last_lines=lines)
            write_incident(folder, record.attempt, story)
    number = record.attempt if record.goes_on_as is None else record.goes_on_as
    return end_attempt(folder, number, AttemptEnd(cause, words, exits, ended_unix_ns))


def _found_out(folder: RunFolder, record: AttemptRecord) -> tuple[str, str, int]:
    """Cause, words, and when: as its supervisor's journal says it, or else that it was lost.

    A supervisor may have ended an attempt that the run store did not let it write down.
    """
    # Here, since whoever starts a run would pay for NumPy first.
    from holdfast.journal.facts.followed import FollowedJournal
    from holdfast.journal.facts.lines import AttemptEnded

    seen_ns = 0
    with contextlib.suppress(JournalError):
        journal = FollowedJournal(folder.journal_dir / controller_journal(record.epoch), RunClock())
        try:
            said = journal.poll().statements
            seen_ns = journal.seen_ns
        finally:
            journal.rest()
        for one in reversed(said):
            if isinstance(one, AttemptEnded) and one.attempt == record.attempt and one.cause:
                cause = one.cause.replace("_", " ")
                words = f"{cause}, as the journal says; the run store could not be written then"
                return one.cause, words, one.at_ns
    holder = holder_of(folder, record.epoch)
    who = f"the previous supervisor ({holder})" if holder else "the previous supervisor"
    is_known = record.created_unix_ns <= seen_ns <= time.time_ns()
    ended_unix_ns = seen_ns if is_known else time.time_ns()
    return LOST_CAUSE, f"{who} died without shutting down", ended_unix_ns


def _bring_home(folder: RunFolder, on_record: Collection[int], place: Path) -> None:
    is_of_earlier_boot = False
    for live in sorted(place.glob("*.hfj")):
        identity = identity_of(live)
        target = None if identity is None else home_of(folder, on_record, identity, live.name)
        if identity is None or target is None:
            continue
        if identity.boot_id != boot_id():
            is_of_earlier_boot = True
            if salvage_journal(live, target):
                continue
        replicator = Replicator(live, target)
        try:
            replicator.sync(durable=True)
        finally:
            replicator.close()
    number = place.name.removeprefix("attempt-")
    if number.isdecimal():
        for log in sorted(place.glob("*.log")):
            stored = folder.logs_dir(int(number)) / log.name
            if is_of_earlier_boot:
                with store_errors(f"complete {log.name}", stored):
                    salvage_text(log, stored)
            else:
                LogCopy(log, stored).sync(durable=True)
