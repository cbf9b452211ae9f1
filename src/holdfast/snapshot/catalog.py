"""The checkpoints of a run as its controller sees them: choose one, commit one, collect old ones."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.core.events import Resume
from holdfast.errors import CorruptCheckpoint, HoldfastError
from holdfast.journal.attempts import attempts, lineage
from holdfast.journal.store import RunFolder
from holdfast.snapshot.choose import choose
from holdfast.snapshot.retention import Keep, collect, pin
from holdfast.snapshot.sets import SetInfo, commit, list_sets, set_name

BAD_CHECKPOINT = "bad_checkpoint"


class Catalog:
    """Everything that is decided about a run's sets. All methods may block on the store."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.bad: dict[str, str] = {}  # set name -> why it cannot be trusted

    def choose(self) -> tuple[Resume, str]:
        """What the next attempt restores, and why.

        Raises NoGoodCheckpoint when checkpoints were made and none can be trusted,
        StoreUnavailable when that cannot be known.
        """
        records = attempts(self._folder).records
        sets, damage = list_sets(self._folder.ckpt_dir)
        chain = tuple((part.attempt, part.up_to_step) for part in lineage(records))
        chosen, words = choose(sets, chain, damage | self.bad)
        if chosen is None:
            return Resume(None, 0, None), words
        return Resume(chosen.name, chosen.step, chosen.attempt), words

    def reject(self, name: str, why: str) -> None:
        """Never choose this set again."""
        self.bad[name] = why

    def commit(self, attempt: int, step: int, world_size: int) -> SetInfo:
        """All shards are durable: write the manifest; raises StoreUnavailable."""
        place = self._folder.ckpt_dir / set_name(attempt, step)
        try:
            info = commit(place, world_size)
        except CorruptCheckpoint as error:
            raise HoldfastError(str(error)) from error
        for tag in info.tags:
            pin(self._folder.pins_path, tag, info.name)
        return info

    def collect(self, keep: Keep, in_use: Collection[str]) -> tuple[str, ...]:
        """Delete what retention does not keep; returns the names of the deleted sets."""
        return collect(self._folder.ckpt_dir, self._folder.pins_path, keep, in_use)
