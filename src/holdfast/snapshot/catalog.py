"""The checkpoints of a run as its controller sees them: what is seen, choose, commit, collect."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from holdfast.core.events import Resume
from holdfast.core.run.rollback import Wish
from holdfast.core.save.choose import (
    NoChoice,
    SealedSet,
    SeenSets,
    Skip,
    StoredSet,
    TrainingEnd,
    choose,
    newest_first,
    newest_good,
)
from holdfast.errors import NoGoodCheckpoint, NoSuchCheckpoint, StoreUnavailable
from holdfast.journal.atomic import store_errors
from holdfast.journal.attempts import (
    ATTEMPT_FILE,
    AttemptRecord,
    attempts,
    lineage,
    read_training_end,
    skips,
    training_end,
)
from holdfast.journal.rollbacks import standing_wishes
from holdfast.journal.store import RunFolder
from holdfast.snapshot.compared import RankComparison, compare
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.ram_folder import SealedBuffer, sealed_buffers
from holdfast.snapshot.removal import REMOVED, Held, is_doomed, remove
from holdfast.snapshot.retention import collect, pin_tagged, read_pins
from holdfast.snapshot.room import free_in
from holdfast.snapshot.sets import (
    SetInfo,
    commit,
    finish_commits,
    list_sets,
    read_receipts,
    set_name,
)

BESIDE_BYTES = 1 << 20  # what comes to the disk beside the shards: receipts, manifest, journals


class Catalog:
    """Everything that is decided about a run's sets. All methods may block on the store.

    `memory`: the run's folder of the memory tier on this host, where sealed buffers are. `lease`:
    of whoever holds the run; without it nothing can be removed or completed.
    """

    def __init__(
        self, folder: RunFolder, memory: Path | None = None, lease: Held | None = None
    ) -> None:
        self._folder = folder
        self._memory = memory
        self._lease = lease
        self._pins_behind = True  # sets may have tags that are not pinned yet
        self._is_short = False  # the store has no room for what is kept and one more set
        self.compared_step: int | None = None
        """Of the newest set in which replicas were equal: what retention keeps besides."""

    def tidy(self, in_use: Collection[str] = (), older_than: tuple[int, int] | None = None) -> str:
        """Complete the sets of which only the manifest is missing; remove those that lack a shard.

        And those whose removal an earlier supervisor has begun. Due before each choice: no process
        of an attempt is left then that could write more. While one lives, `older_than` leaves out
        what its ranks may still write. Those `in_use` are being written from memory. Returns what
        people are to be told of sets that could not be removed.

        Raises RunHeld, or StoreUnavailable: a whole set could not be completed, so nothing may be
        chosen now.
        """
        ckpt_dir, lease = self._folder.ckpt_dir, self._held
        lease.check()
        records = functools.cache(lambda: attempts(self._folder).records)
        complete = partial(finish_commits, ckpt_dir, in_use, older_than=older_than, records=records)
        found = complete()
        problem = ""
        try:
            begun = found.doomed if older_than is None else ()
            remove(ckpt_dir, [*found.lacking, *begun], lease)
        except StoreUnavailable as error:
            problem = f"Incomplete checkpoints could not be removed: {error}"
        if found.trouble is not None and found.lacking:  # the disk may have been full
            found = complete()
        if found.trouble is not None:
            raise found.trouble
        self._pins_behind = self._pins_behind or any(one.tags for one in found.done)
        self.pin_tagged()
        return problem

    def complete(self) -> int:
        """Complete the sets of which only the manifest is missing, while an attempt lives.

        Nothing is removed. Returns the newest step of the lineage that is durable, 0 for none.
        Raises StoreUnavailable.
        """
        ckpt_dir = self._folder.ckpt_dir
        self._held.check()
        records = attempts(self._folder).records
        found = finish_commits(ckpt_dir, (), records=lambda: records)
        if found.trouble is not None:
            raise found.trouble
        self._pins_behind = self._pins_behind or any(one.tags for one in found.done)
        of_lineage = newest_first(list_sets(ckpt_dir)[0], lineage(records))
        return max((one.step for one in of_lineage), default=0)

    @property
    def _held(self) -> Held:
        if self._lease is None:
            raise RuntimeError("only who holds the run's lease may change its checkpoints")
        return self._lease

    def look(self, wish: Wish | None = None, sealed: Sequence[SealedSet] | None = None) -> SeenSets:
        """What there is to choose from; raises StoreUnavailable when that cannot be known.

        `sealed`: what is in memory; None: on this host, in the run's folder.
        """
        with store_errors("read the checkpoints", self._folder.ckpt_dir):
            # A store that is gone (unmounted) looks like one in which nothing was ever saved.
            self._folder.attempts_dir.stat()
            self._folder.ckpt_dir.stat()
        known = attempts(self._folder)
        sets, damage = list_sets(self._folder.ckpt_dir)
        buffers, bad = ((), {}) if self._memory is None else sealed_buffers(self._memory)
        oldest = max((one.attempt for one in sets), default=0)
        return seen(
            self._folder.name,
            known.newest_number,
            known.records,
            sets,
            damage,
            sealed=_sealed(buffers) if sealed is None else sealed,
            bad_copies=tuple(bad.values()),
            pins=read_pins(self._folder.pins_path) if wish is not None else None,
            ended=training_end(known.records, oldest, partial(read_training_end, self._folder)),
            place=lambda attempt: self._folder.attempt_dir(attempt) / ATTEMPT_FILE,
        )

    def choose(self, wish: Wish | None = None) -> tuple[Resume, str]:
        """What the next attempt restores, and why; with a `wish`, what that comes to.

        Raises NoGoodCheckpoint when checkpoints were made and none can be trusted, NoSuchCheckpoint
        when none is what was wished for, StoreUnavailable when that cannot be known.
        """
        chosen, words = choose(self.look(wish), wish)
        if chosen is NoChoice.NONE_SUCH:
            raise NoSuchCheckpoint(words)
        if isinstance(chosen, NoChoice):
            raise NoGoodCheckpoint(words)
        return chosen, words

    def at_step(self, step: int | None) -> str | None:
        """The name of the lineage's set of that step (None: the newest), if there is one."""
        there = self.look()
        wanted = [one for one in there.stored if step is None or one.step == step]
        chosen, words = newest_good(wanted, there.chain, dict(there.bad) if step is None else {})
        if isinstance(chosen, NoChoice):
            raise NoGoodCheckpoint(words)
        return chosen.name if chosen else None

    def commit(self, attempt: int, step: int, world_size: int) -> RankComparison:
        """All shards are durable: write the manifest, and compare; raises StoreUnavailable.

        Of a set that was in memory nothing is compared here: who sealed it has done so.

        Look at the lease again before the set is told as durable, pinned, or reason to remove
        another one.
        """
        set_dir = self._folder.ckpt_dir / set_name(attempt, step)
        receipts = read_receipts(set_dir, world_size)
        info = commit(set_dir, world_size, receipts=receipts)
        self._pins_behind = self._pins_behind or bool(info.tags)
        return compare(receipts, [one.declared for one in receipts])

    def pin_tagged(self) -> None:
        """Pin the sets that were saved with tags; what cannot be written now, `collect` does."""
        with contextlib.suppress(StoreUnavailable):
            self._catch_up()

    def _catch_up(self) -> None:
        if self._pins_behind:
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
        """A save failed: if there is no room for it, delete the oldest sets until there is.

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
        wishes = list(standing_wishes(self._folder, known))
        if self.compared_step is not None:
            wishes.append(Wish("compared", self.compared_step, 0, "", is_from_script=False))
        in_use = {*in_use, *self._in_reach(wishes)}
        return collect(
            self._folder.ckpt_dir,
            self._folder.pins_path,
            keep,
            self._held,
            in_use,
            lineage(known.records),
            known.records,
        )

    def _collect_ahead(self, keep: Keep, in_use: Collection[str]) -> tuple[str, ...]:
        """Delete the oldest sets until one as large as the newest fits; the newest stays.

        No more than takes its place, as not every filesystem shows at once what was freed. None
        where nobody can tell the room.
        """
        sets, _ = list_sets(self._folder.ckpt_dir)
        free_bytes = free_in(self._folder.ckpt_dir)
        if not sets or free_bytes is None or free_bytes > sets[-1].nbytes + BESIDE_BYTES:
            return ()
        sizes = {one.name: one.nbytes for one in sets}
        gone: tuple[str, ...] = ()
        for last in range(min(keep.last, len(sets)) - 1, 0, -1):
            gone += self._collect(replace(keep, last=last), in_use)
            freed_bytes = sum(sizes.get(name, 0) for name in gone)
            if gone and free_bytes + freed_bytes >= sets[-1].nbytes:
                break
        return gone

    def _in_reach(self, wishes: Iterable[Wish]) -> set[str]:
        """What the run goes back to, by any of them."""
        names = set()
        for wish in wishes:
            with contextlib.suppress(NoGoodCheckpoint, NoSuchCheckpoint):
                # What is in memory does not stay there.
                resume, _ = Catalog(self._folder).choose(wish)
                if resume.set_name is not None:
                    names.add(resume.set_name)
        return names


def _sealed(buffers: Sequence[SealedBuffer]) -> list[SealedSet]:
    return [
        SealedSet(one.info.attempt, one.info.step, one.number, one.info.tags) for one in buffers
    ]


def seen(
    run: str,
    newest_attempt: int,
    records: Sequence[AttemptRecord],
    sets: Sequence[SetInfo],
    damage: Mapping[str, str],
    *,
    sealed: Sequence[SealedSet] = (),
    bad_copies: Sequence[str] = (),
    pins: Mapping[str, str] | None = None,
    ended: TrainingEnd | None = None,
    place: Callable[[int], object],
) -> SeenSets:
    """Pure. `place` of an attempt's record, for a sentence. Sets that are being removed are bad."""
    doomed = {one.name: REMOVED for one in sets if is_doomed(one.name, one.doomed_by, records)}
    stored = [StoredSet(one.attempt, one.step, one.tags) for one in sets if one.name not in doomed]
    wanted = {newest_attempt, *(s.attempt for s in stored), *(s.attempt for s in sealed)}
    known = {record.attempt for record in records}
    return SeenSets(
        run,
        newest_attempt,
        tuple((part.attempt, part.up_to_step) for part in lineage(records)),
        tuple(stored),
        tuple(sealed),
        tuple({**damage, **doomed}.items()),
        tuple(bad_copies),
        tuple((pins or {}).items()),
        tuple(Skip(*one) for one in skips(records)),
        tuple((number, str(place(number))) for number in sorted(wanted - known)),
        ended,
    )
