"""The checkpoints of a run as its controller sees them: choose, commit, collect old ones."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.core.events import Resume
from holdfast.core.rollback import Wish
from holdfast.errors import NoGoodCheckpoint, NoSuchCheckpoint, StoreUnavailable
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
from holdfast.snapshot.buffers import SealedBuffer, sealed_buffers
from holdfast.snapshot.choose import Chain, choose, choose_back, newest_first
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.retention import collect, pin_tagged, read_pins
from holdfast.snapshot.room import free_in
from holdfast.snapshot.sets import (
    SetInfo,
    collect_partial,
    commit,
    finish_commits,
    list_sets,
    set_name,
)

BAD_CHECKPOINT = "bad_checkpoint"
BESIDE_BYTES = 1 << 20  # what comes to the disk beside the shards: receipts, manifest, journals


class Catalog:
    """Everything that is decided about a run's sets. All methods may block on the store.

    `memory`: the run's folder of the memory tier on this host, where sealed buffers are.
    """

    def __init__(self, folder: RunFolder, memory: Path | None = None) -> None:
        self._folder = folder
        self._memory = memory
        self._pins_behind = True  # sets may have tags that are not pinned yet
        self._is_short = False  # the store has no room for what is kept and one more set
        self.bad: dict[str, str] = {}  # set name -> why it cannot be trusted
        self.bad_in_memory: dict[str, str] = {}  # the same for its copy in memory

    def tidy(self, in_use: Collection[str] = ()) -> None:
        """For a controller that starts: complete whole sets, delete those that never will be.

        Those `in_use` are still being written, from memory, and are left alone.
        """
        finish_commits(self._folder.ckpt_dir, in_use)
        self._pin_tagged()
        collect_partial(self._folder.ckpt_dir, in_use)

    def choose(self, wish: Wish | None = None) -> tuple[Resume, str]:
        """What the next attempt restores, and why; with a `wish`, what that comes to.

        Of a set that is both in memory and in the store, the copy in memory; one that went bad
        there is passed over. Raises NoGoodCheckpoint when checkpoints were made and none can be
        trusted, NoSuchCheckpoint when none is what was wished for, StoreUnavailable when that
        cannot be known.
        """
        with store_errors("read the checkpoints", self._folder.ckpt_dir):
            # A store that is gone (unmounted) looks like one in which nothing was ever saved.
            self._folder.attempts_dir.stat()
            self._folder.ckpt_dir.stat()
        records = attempts(self._folder).records
        sets, damage = list_sets(self._folder.ckpt_dir)
        buffers, passed_over = self._buffers()
        newest = next_number(self._folder) - 1
        if (sets or damage or buffers) and newest not in {record.attempt for record in records}:
            raise self._lineage_lost(newest)
        chain, bad = _chain(records), damage | self.bad
        made = [*sets, *(one.info for name, one in buffers.items() if name not in _names(sets))]
        lost = {name: why for name, why in bad.items() if name not in buffers}
        chosen, words = self._choose(wish, made, chain, lost)
        words += passed_over
        name = chosen.name if chosen is not None else None
        skip = skip_from(records, name) if wish is None else wish.skip_batches
        if skip:
            words += f"; {skip} batches from there are skipped"
        skipped = () if wish is not None else skips_lost(records, chosen.step if chosen else 0)
        for step, batches in skipped:
            words += (
                f"; the {batches} batches after step {step} were to be skipped, and are not: "
                "the checkpoint there cannot be read"
            )
        if chosen is not None:
            resume = Resume(chosen.name, chosen.step, chosen.attempt, skip)
            buffer = buffers.get(chosen.name)
            if buffer is None:
                return resume, words
            durable = newest_first([one for one in sets if one.name not in bad], chain)
            committed = next((one.step for one in durable if one.step <= chosen.step), 0)
            resume = replace(resume, buffer=buffer.number, committed_step=committed)
            return resume, f"{words}; it is read from memory"
        strangers = {one.attempt for one in made} - {record.attempt for record in records}
        if strangers:  # never silently from step 0
            raise self._lineage_lost(max(strangers))
        return Resume(None, 0, None, skip), words

    def _buffers(self) -> tuple[dict[str, SealedBuffer], str]:
        """The sets in memory that may be trusted, by name; and words on those that may not."""
        if self._memory is None:
            return {}, ""
        found, damage = sealed_buffers(self._memory)
        good = {one.info.name: one for one in found if one.info.name not in self.bad_in_memory}
        bad = [*damage.values(), *(f"{n} ({w})" for n, w in self.bad_in_memory.items())]
        words = f"; passed over in memory: {'; '.join(bad)}" if bad else ""
        return good, words

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
            f"the record of attempt {attempt} cannot be read, so it is not known which checkpoints "
            f"count: bring {place} back, or start a run of another name from scratch"
        )

    def at_step(self, step: int | None) -> str | None:
        """The name of the lineage's set of that step (None: the newest), if there is one."""
        sets, damage = list_sets(self._folder.ckpt_dir)
        wanted = sets if step is None else [one for one in sets if one.step == step]
        chain = _chain(attempts(self._folder).records)
        chosen, _ = choose(wanted, chain, damage if step is None else {})
        return chosen.name if chosen else None

    def reject(self, name: str, why: str, *, in_memory: bool = False) -> None:
        """Never choose this set again; or not its copy in memory."""
        (self.bad_in_memory if in_memory else self.bad)[name] = why

    def commit(self, attempt: int, step: int, world_size: int) -> SetInfo:
        """All shards are durable: write the manifest; raises StoreUnavailable."""
        info = commit(self._folder.ckpt_dir / set_name(attempt, step), world_size)
        self._pins_behind = self._pins_behind or bool(info.tags)
        with contextlib.suppress(StoreUnavailable):  # it is durable; `collect` catches up, or waits
            self._catch_up()
        return info

    def _catch_up(self) -> None:
        if self._pins_behind:
            self._pin_tagged()

    def _pin_tagged(self) -> None:
        pin_tagged(self._folder.pins_path, list_sets(self._folder.ckpt_dir)[0])
        self._pins_behind = False

    def collect(self, keep: Keep, in_use: Collection[str]) -> tuple[str, ...]:
        """Delete what retention does not keep; returns the names of the deleted sets.

        What somebody wants to go back to is in use until the run has done so. Raises
        StoreUnavailable; where it cannot be written which sets are tagged, none is deleted.
        """
        gone = self._collect(keep, in_use)
        return (*gone, *self._collect_ahead(keep, in_use)) if self._is_short else gone

    def make_room(self, keep: Keep, in_use: Collection[str] = ()) -> str:
        """A save failed: delete what `collect` would once it is there, if there is no room for it.

        From now on `collect` does so after each save, for the next one. Returns what people are to
        be told, once.
        """
        gone, was_short = self._collect_ahead(keep, in_use), self._is_short
        self._is_short = was_short or bool(gone)
        if was_short or not gone:
            return ""
        return (
            "the run store has no room for another checkpoint: from now on the oldest is deleted "
            f"before a save, not after it (deleted: {', '.join(gone)})"
        )

    def _collect(self, keep: Keep, in_use: Collection[str]) -> tuple[str, ...]:
        self._catch_up()
        known = attempts(self._folder)
        in_use = {*in_use, *self._wished_for(known)}
        chain = _chain(known.records)
        return collect(self._folder.ckpt_dir, self._folder.pins_path, keep, in_use, chain)

    def _collect_ahead(self, keep: Keep, in_use: Collection[str]) -> tuple[str, ...]:
        """Delete what `collect` would once another set is there, as large as the newest.

        Not if that one fits, or nobody can tell the room. The newest stays in any case.
        """
        sets, _ = list_sets(self._folder.ckpt_dir)
        free_bytes = free_in(self._folder.ckpt_dir)
        if not sets or free_bytes is None or free_bytes > sets[-1].nbytes + BESIDE_BYTES:
            return ()
        return self._collect(replace(keep, last=max(1, keep.last - 1)), in_use)

    def _wished_for(self, known: Attempts) -> set[str]:
        names = set()
        for wish in standing_wishes(self._folder, known):
            with contextlib.suppress(NoGoodCheckpoint, NoSuchCheckpoint):
                # What is in memory does not stay there.
                resume, _ = Catalog(self._folder).choose(wish)
                if resume.set_name is not None:
                    names.add(resume.set_name)
        return names


def _names(sets: Sequence[SetInfo]) -> set[str]:
    return {one.name for one in sets}


def _chain(records: Sequence[AttemptRecord]) -> Chain:
    return [(part.attempt, part.up_to_step) for part in lineage(records)]
