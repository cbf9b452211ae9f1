"""Removing sets, in three steps: mark them, look at the lease again, delete them.

A deletion may take long, and meanwhile another supervisor may take over the run. What it finds
marked it does not choose, and removes. Where it has chosen before the mark was there, the mark came
after its claim of the lease: who made the mark sees that claim at its look, and deletes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from holdfast.journal.attempts import AttemptRecord
from holdfast.snapshot.names import parse_set_name
from holdfast.snapshot.vault import open_vault

REMOVED = "it is being removed"


class Held(Protocol):
    """The lease that a run is held by (`journal.lease.Lease`)."""

    @property
    def epoch(self) -> int:
        """Its number."""

    def check(self) -> None:
        """Raise RunHeld when somebody took the run over, StoreUnavailable when nobody knows."""


def remove(ckpt_dir: Path, names: Sequence[str], lease: Held) -> None:
    """Remove sets, complete or not.

    Raises RunHeld or StoreUnavailable: those that are still there are marked, perhaps.
    """
    vault = open_vault(ckpt_dir)
    for name in names:
        vault.doom(name, lease.epoch)
    if names:
        lease.check()
    for name in names:
        vault.delete(name)


def is_doomed(name: str, epoch: int | None, records: Sequence[AttemptRecord]) -> bool:
    """Whether a set with the mark of that lease (None: it has none) must not be chosen.

    The mark is void where a later lease has launched the attempt that wrote the set, or one that
    started from it: then the mark is younger than that lease, and its maker deletes nothing.
    """
    if epoch is None:
        return False
    attempt, _ = parse_set_name(name) or (None, 0)
    return not any(
        record.epoch > epoch
        and (record.attempt == attempt or (record.restore_set == name and not record.from_memory))
        for record in records
    )
