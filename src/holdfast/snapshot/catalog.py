"""The checkpoints of a run as its controller sees them: choose, commit, collect old ones."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence

from holdfast.core.events import Resume
from holdfast.core.rollback import Wish
from holdfast.errors import NoGoodCheckpoint, NoSuchCheckpoint
from holdfast.journal.atomic import store_errors
from holdfast.journal.attempts import (
    ATTEMPT_FILE,
    AttemptRecord,
    Attempts,
    attempts,
    lineage,
    next_number,
    skip_from,
    skips_lost,
)
from holdfast.journal.rollbacks import standing_wishes
from holdfast.journal.store import RunFolder
from holdfast.snapshot.choose import Chain, choose, choose_back
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.retention import collect, pin_tagged, read_pins
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
        self._pins_behind = True  # sets may have tags that are not pinned yet
        self.bad: dict[str, str] = {}  # set name -> why it cannot be trusted

    def tidy(self) -> None:
        """For a controller that starts: complete whole sets, delete those that never will be."""
        finish_commits(self._folder.ckpt_dir)
        self._pin_tagged()
        collect_partial(self._folder.ckpt_dir)

    def choose(self, wish: Wish | None = None) -> tuple[Resume, str]:
        """What the next attempt restores, and why; with a `wish`, what that comes to.

        Raises NoGoodCheckpoint when checkpoints were made and none can be trusted,
        NoSuchCheckpoint when none is what was wished for, StoreUnavailable when that cannot be
        known.
        """
        records = attempts(self._folder).records
        sets, damage = list_sets(self._folder.ckpt_dir)
        newest = next_number(self._folder) - 1
        if (sets or damage) and newest not in {record.attempt for record in records}:
            raise self._lineage_lost(newest)
        with store_errors("read the checkpoints", self._folder.ckpt_dir):
            # A store that is gone (unmounted) looks like one in which nothing was ever saved.
            self._folder.attempts_dir.stat()
            self._folder.ckpt_dir.stat()
        chosen, words = self._choose(wish, sets, _chain(records), damage | self.bad)
        name = chosen.name if chosen is not None else None
        skip = skip_from(records, name) if wish is None else wish.skip_batches
        if skip:
            words += f"; {skip} batches from there are skipped"
        lost = skips_lost(records, chosen.step if chosen is not None else 0) if wish is None else ()
        for step, batches in lost:
            words += (
                f"; the {batches} batches after step {step} were to be skipped, and are not: "
                "the checkpoint there cannot be read"
            )
        if chosen is not None:
            return Resume(chosen.name, chosen.step, chosen.attempt, skip), words
        strangers = {one.attempt for one in sets} - {record.attempt for record in records}
        if strangers:  # never silently from step 0
            raise self._lineage_lost(max(strangers))
        return Resume(None, 0, None, skip), words

    def _choose(
        self,
        wish: Wish | None,
        sets: Sequence[SetInfo],
        chain: Chain,
        bad: Mapping[str, str],
    ) -> tuple[SetInfo | None, str]:
        if wish is None:
            return choose(sets, chain, bad)
        pins = read_pins(self._folder.pins_path)
        try:
            return choose_back(wish.to, sets, chain, bad, pins)
        except NoSuchCheckpoint as error:
            raise NoSuchCheckpoint(
                f"{wish.words}: {error} (holdfast rollback {self._folder.name} --to STEP)"
            ) from error

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
        self._pins_behind = self._pins_behind or bool(info.tags)
        if self._pins_behind:
            self._pin_tagged()
        return info

    def _pin_tagged(self) -> None:
        pin_tagged(self._folder.pins_path, list_sets(self._folder.ckpt_dir)[0])
        self._pins_behind = False

    def collect(self, keep: Keep, in_use: Collection[str]) -> tuple[str, ...]:
        """Delete what retention does not keep; returns the names of the deleted sets.

        What somebody wants to go back to is in use until the run has done so.
        """
        known = attempts(self._folder)
        in_use = {*in_use, *self._wished_for(known)}
        chain = _chain(known.records)
        return collect(self._folder.ckpt_dir, self._folder.pins_path, keep, in_use, chain)

    def _wished_for(self, known: Attempts) -> set[str]:
        names = set()
        for wish in standing_wishes(self._folder, known):
            with contextlib.suppress(NoGoodCheckpoint, NoSuchCheckpoint):
                resume, _ = self.choose(wish)
                if resume.set_name is not None:
                    names.add(resume.set_name)
        return names


def _chain(records: Sequence[AttemptRecord]) -> Chain:
    return [(part.attempt, part.up_to_step) for part in lineage(records)]
