"""The checkpoints of a run as its controller sees them: choose, commit, collect old ones."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from holdfast.core.events import Resume
from holdfast.errors import NoGoodCheckpoint
from holdfast.journal.attempts import (
    ATTEMPT_FILE,
    AttemptRecord,
    attempts,
    lineage,
    next_number,
)
from holdfast.journal.store import RunFolder
from holdfast.snapshot.choose import Chain, choose
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.retention import collect, pin
from holdfast.snapshot.sets import (
    SetInfo,
    collect_partial,
    commit,
    finish_commits,
    list_sets,
    set_name,
)

BAD_CHECKPOINT = "bad_checkpoint"


class Catalog:
    """Everything that is decided about a run's sets. All methods may block on the store."""

    def __init__(self, folder: RunFolder) -> None:
        self._folder = folder
        self.bad: dict[str, str] = {}  # set name -> why it cannot be trusted

    def tidy(self) -> None:
        """For a controller that starts: complete whole sets, delete those that never will be."""
        for info in finish_commits(self._folder.ckpt_dir):
            self._pin(info)
        collect_partial(self._folder.ckpt_dir)

    def choose(self) -> tuple[Resume, str]:
        """What the next attempt restores, and why.

        Raises NoGoodCheckpoint when checkpoints were made and none can be trusted,
        StoreUnavailable when that cannot be known.
        """
        records = attempts(self._folder).records
        sets, damage = list_sets(self._folder.ckpt_dir)
        newest = next_number(self._folder) - 1
        if (sets or damage) and newest not in {record.attempt for record in records}:
            raise self._lineage_lost(newest)
        chosen, words = choose(sets, _chain(records), damage | self.bad)
        if chosen is not None:
            return Resume(chosen.name, chosen.step, chosen.attempt), words
        strangers = {one.attempt for one in sets} - {record.attempt for record in records}
        if strangers:  # never silently from step 0
            raise self._lineage_lost(max(strangers))
        return Resume(None, 0, None), words

    def _lineage_lost(self, attempt: int) -> NoGoodCheckpoint:
        place = self._folder.attempt_dir(attempt) / ATTEMPT_FILE
        return NoGoodCheckpoint(
            f"the record of attempt {attempt} cannot be read, so nobody can tell which checkpoints "
            f"count: bring {place} back, or start a run of another name from scratch"
        )

    def at_step(self, step: int | None) -> str | None:
        """The name of the lineage's set of that step (None: the newest), if there is one."""
        sets, damage = list_sets(self._folder.ckpt_dir)
        wanted = sets if step is None else [one for one in sets if one.step == step]
        chain = _chain(attempts(self._folder).records)
        chosen, _ = choose(wanted, chain, damage if step is None else {})
        return chosen.name if chosen else None

    def reject(self, name: str, why: str) -> None:
        """Never choose this set again."""
        self.bad[name] = why

    def commit(self, attempt: int, step: int, world_size: int) -> SetInfo:
        """All shards are durable: write the manifest; raises StoreUnavailable."""
        info = commit(self._folder.ckpt_dir / set_name(attempt, step), world_size)
        self._pin(info)
        return info

    def _pin(self, info: SetInfo) -> None:
        for tag in info.tags:
            pin(self._folder.pins_path, tag, info.name)

    def collect(self, keep: Keep, in_use: Collection[str]) -> tuple[str, ...]:
        """Delete what retention does not keep; returns the names of the deleted sets."""
        chain = _chain(attempts(self._folder).records)
        return collect(self._folder.ckpt_dir, self._folder.pins_path, keep, in_use, chain)


def _chain(records: Sequence[AttemptRecord]) -> Chain:
    return [(part.attempt, part.up_to_step) for part in lineage(records)]
