"""The live journals of a run on this host: newer, by up to a second, than what the store has.

They lie in local scratch (`journal.scratch`), where their processes write them, until they have
been brought home. Whoever asks on the same host reads them there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection
from pathlib import Path

from holdfast.config import scratch_folder
from holdfast.errors import JournalError
from holdfast.journal.attempts import attempts
from holdfast.journal.layout import CONTROLLER_RANK, Identity, RankPhase
from holdfast.journal.opened import OpenJournal
from holdfast.journal.scratch import existing_scratch
from holdfast.journal.store import RunFolder


def live_journals(folder: RunFolder) -> dict[Path, Path]:
    """From a journal's place in the store to the live file that it is copied from.

    Only those of this host and this user, in the scratch folder that is configured or the usual
    ones. Never raises: where nothing live is found there is what the store has.
    """
    found: dict[Path, Path] = {}
    with contextlib.suppress(OSError):
        on_record = {record.attempt for record in attempts(folder).records}
        for scratch in existing_scratch(folder.scratch_key, scratch_folder()):
            for live in sorted(scratch.glob("*/*.hfj")):
                identity = identity_of(live)
                if identity is None:
                    continue
                home = home_of(folder, on_record, identity, live.name)
                # A full disk leaves an empty file there, or none.
                if home is not None and identity_of(home) in (None, identity):
                    found[home] = live
    return found


def tells_held(folder: RunFolder) -> bool:
    """Whether all steps are done and the last is not durable yet, as journals on this host tell."""
    for scratch in existing_scratch(folder.scratch_key, scratch_folder()):
        for live in scratch.glob("*/*.hfj"):
            with (
                contextlib.suppress(JournalError),
                contextlib.closing(OpenJournal(live)) as opened,
            ):
                if opened.values().phase is RankPhase.LOOP_ENDED:
                    return True
    return False


def identity_of(journal: Path) -> Identity | None:
    """Who wrote a journal; None: it is none."""
    try:
        with contextlib.closing(OpenJournal(journal)) as opened:
            return opened.identity
    except JournalError:
        return None


def home_of(
    folder: RunFolder, on_record: Collection[int], identity: Identity, name: str
) -> Path | None:
    """Where a live journal belongs; None: its attempt never came to be.

    Who made the folder of an attempt and could not record it (a full disk) has left a journal of
    that number. Brought home, it would be in the way of the attempt that gets the number.
    """
    if identity.rank == CONTROLLER_RANK:
        return folder.journal_dir / name
    if identity.attempt not in on_record:
        return None
    return folder.attempt_journal_dir(identity.attempt) / name
