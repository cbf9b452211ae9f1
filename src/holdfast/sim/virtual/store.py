"""A virtual run store: attempts, sets, and what is wrong with it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path

from holdfast.core import events as ev
from holdfast.core.run.rollback import Wish
from holdfast.core.save.choose import SealedSet, SeenSets, TrainingEnd, choose
from holdfast.journal.attempts import AttemptRecord, lineage, training_end
from holdfast.sim.virtual.memory import VirtualMemory
from holdfast.snapshot.catalog import seen
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.removal import is_doomed
from holdfast.snapshot.retention import plan
from holdfast.snapshot.sets import SetInfo, set_name


@dataclass
class VirtualStore:
    """The run store: attempts, sets, and what is wrong with it."""

    attempts: list[AttemptRecord] = field(default_factory=list)
    sets: list[SetInfo] = field(default_factory=list)
    shards: set[tuple[int, int, int]] = field(default_factory=set)  # (attempt, step, rank)
    unreadable: dict[str, str] = field(default_factory=dict)  # as a rank finds out
    doomed: dict[str, int] = field(default_factory=dict)  # set → the newest lease that marked it
    removed: set[tuple[int, int]] = field(default_factory=set)  # sets of which shards were removed
    keep: int = 0  # so many sets are kept; 0: all
    spoiling: dict[str, str] = field(default_factory=dict)  # sets whose copy in memory is bad
    wishes: list[Wish] = field(default_factory=list)  # what lies in `control/`, and in reports
    training_ends: dict[int, TrainingEnd] = field(default_factory=dict)  # by attempt
    is_full: bool = False
    is_away: bool = False
    is_hung: bool = False  # it takes an order, and does not answer until it is well
    waiting: list[Callable[[], None]] = field(default_factory=list)  # for that
    is_fenced: bool = False  # another supervisor creates the next attempt first
    is_mute: bool = False  # it writes manifests, and its answer is lost
    epoch: int = 0  # of the lease: the newest that was claimed
    failures: int = 0  # that are on record, and of them those that took memory along
    memory_lost: int = 0

    def complete(self) -> list[SetInfo]:
        """Give whole sets their manifest, remove the shards of others: as `Catalog.tidy` does."""
        made = {(one.attempt, one.step) for one in self.sets}
        ranks = {one.attempt: one.ranks for one in self.attempts}
        done = []
        for attempt, step in sorted({shard[:2] for shard in self.shards} - made):
            mine = {(attempt, step, rank) for rank in range(ranks.get(attempt, 0))}
            if mine and mine <= self.shards and not self.is_doomed(set_name(attempt, step)):
                done.append(self.add(attempt, step, len(mine)))
            else:
                self.remove(set_name(attempt, step))
        return done

    def has_lost(self, attempt: int, step: int, ranks: int) -> bool:
        """Whether somebody has removed shards of that set, and they were not written again."""
        mine = {(attempt, step, rank) for rank in range(ranks)}
        return (attempt, step) in self.removed and not mine <= self.shards

    def add(self, attempt: int, step: int, ranks: int) -> SetInfo:
        """Write a manifest, if it is not there."""
        place = Path(set_name(attempt, step))
        found = next((one for one in self.sets if one.name == place.name), None)
        if found is None:
            found = SetInfo(place, attempt, step, ranks, 0, 0, ())
            self.sets.append(found)
        return found

    def remove(self, name: str) -> None:
        """Delete a set."""
        self.sets = [one for one in self.sets if one.name != name]
        gone = {one for one in self.shards if set_name(*one[:2]) == name}
        self.shards -= gone
        self.removed |= {one[:2] for one in gone}

    def is_doomed(self, name: str) -> bool:
        """Whether it is being removed."""
        return is_doomed(name, self.doomed.get(name), self.attempts)

    def usable(self) -> list[SetInfo]:
        """The sets that are not being removed."""
        return [one for one in self.sets if not self.is_doomed(one.name)]

    def superfluous(self, resume: ev.Resume | None) -> list[str]:
        """The sets that may go, as `retention.collect` finds them."""
        in_use = _set_of(resume)
        for wish in self.standing():
            chosen, _ = choose(self.seen(VirtualMemory(((0,),), 0)), wish)
            in_use |= _set_of(chosen if isinstance(chosen, ev.Resume) else None)
        usable = self.usable()
        gone, _ = plan(usable, {}, Keep(self.keep), in_use, lineage(self.attempts))
        begun = [one.name for one in self.sets if one not in usable and one.name not in in_use]
        return [*begun, *(one.name for one in gone)]

    def seen(self, memory: VirtualMemory) -> SeenSets:
        """What there is to restore, as `Catalog.look` finds it."""
        sets = [replace(one, doomed_by=self.doomed.get(one.name)) for one in self.sets]
        sealed = [SealedSet(one.attempt, one.step, number) for number, one in memory.sets()]
        newest = len(self.attempts) - 1
        place = "attempts/{}".format
        oldest = max((one.attempt for one in sets), default=0)
        ended = training_end(self.attempts, oldest, self.training_ends.get)
        return seen("r", newest, self.attempts, sets, {}, sealed=sealed, ended=ended, place=place)

    def recover(self) -> None:
        """It is well: what it took meanwhile is done."""
        self.is_full = self.is_away = self.is_fenced = self.is_hung = self.is_mute = False
        waiting, self.waiting = self.waiting, []
        for do in waiting:
            do()

    def standing(self) -> tuple[Wish, ...]:
        """The wishes that stand: as `journal.rollbacks`, a script's of the newest attempt only."""
        settled = {name for one in self.attempts if one.rollback for name in one.rollback.ids}
        newest = f"fail-{len(self.attempts) - 1:04d}-"
        return tuple(
            wish
            for wish in sorted(self.wishes, key=lambda one: not one.is_from_script)
            if wish.id not in settled and (not wish.is_from_script or wish.id.startswith(newest))
        )


def _set_of(resume: ev.Resume | None) -> set[str]:
    return {resume.set_name} if resume and resume.set_name else set()
