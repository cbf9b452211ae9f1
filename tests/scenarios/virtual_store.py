"""What a virtual world remembers: the run store, and the attempt that is running."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from virtual_memory import Memory
from virtual_ranks import Barrier, Surroundings, VirtualRank

from holdfast.core import agree_events as news
from holdfast.core import events as ev
from holdfast.core.rollback import Wish
from holdfast.journal.attempts import AttemptRecord, lineage, skip_from
from holdfast.snapshot.choose import choose, choose_back, newest_first
from holdfast.snapshot.sets import SetInfo


@dataclass
class Store:
    """The run store: attempts, sets, and what is wrong with it."""

    attempts: list[AttemptRecord] = field(default_factory=list)
    sets: list[SetInfo] = field(default_factory=list)
    shards: set[tuple[int, int, int]] = field(default_factory=set)  # (attempt, step, rank)
    unreadable: dict[str, str] = field(default_factory=dict)  # as a rank finds out
    rejected: dict[str, str] = field(default_factory=dict)  # as the controller knows
    spoilt: dict[str, str] = field(default_factory=dict)  # sets whose copy in memory is bad
    spoiling: dict[str, str] = field(default_factory=dict)  # the same, and nobody knows yet
    wishes: list[Wish] = field(default_factory=list)  # what lies in `control/`, and in reports
    is_full: bool = False
    is_away: bool = False
    is_hung: bool = False  # it takes an order, and does not answer until it is well
    waiting: list[Callable[[], None]] = field(default_factory=list)  # for that
    is_fenced: bool = False  # another supervisor creates the next attempt first
    is_mute: bool = False  # it writes manifests, and its answer is lost
    epoch: int = 0  # of the lease: the newest that was claimed
    failures: int = 0  # that are on record, and of them those that took memory along
    memory_lost: int = 0

    def choose(self, wish: Wish | None, memory: Memory) -> tuple[ev.Resume, str]:
        """As `snapshot.catalog` does: a set in memory goes before the same one on disk."""
        chain = self.chain()
        buffers = {one.name: b for b, one in memory.sets() if one.name not in self.spoilt}
        durable = {one.name for one in self.sets}
        known = [
            *self.sets,
            *(one for _, one in memory.sets() if one.name in buffers.keys() - durable),
        ]
        lost = {name: why for name, why in self.rejected.items() if name not in buffers}
        if wish is None:
            chosen, words = choose(known, chain, lost)
        else:
            chosen, words = choose_back(wish.to, known, chain, lost, {})
        name = chosen.name if chosen else None
        skip = skip_from(self.attempts, name) if wish is None else wish.skip_batches
        if chosen is None:
            return ev.Resume(None, 0, None, skip), words
        resume = ev.Resume(chosen.name, chosen.step, chosen.attempt, skip)
        if chosen.name not in buffers:
            return resume, words
        good = [one for one in self.sets if one.name not in self.rejected]
        steps = (one.step for one in newest_first(good, chain) if one.step <= chosen.step)
        return replace(resume, buffer=buffers[chosen.name], committed_step=next(steps, 0)), words

    def recover(self) -> None:
        """It is well: what it took meanwhile is done."""
        self.is_full = self.is_away = self.is_fenced = self.is_hung = self.is_mute = False
        waiting, self.waiting = self.waiting, []
        for do in waiting:
            do()

    def chain(self) -> list[tuple[int, int | None]]:
        """The lineage."""
        return [(part.attempt, part.up_to_step) for part in lineage(self.attempts)]

    def standing(self) -> tuple[Wish, ...]:
        """As `journal.rollbacks` does: what no record names; a script's only of the newest."""
        settled = {name for one in self.attempts if one.rollback for name in one.rollback.ids}
        newest = f"fail-{len(self.attempts) - 1:04d}-"
        return tuple(
            wish
            for wish in sorted(self.wishes, key=lambda one: not one.is_from_script)
            if wish.id not in settled and (not wish.is_from_script or wish.id.startswith(newest))
        )


class Live:
    """The processes of one attempt, and what the supervisor has been told of each."""

    def __init__(self, attempt: int, resume: ev.Resume, world: Surroundings) -> None:
        self.attempt = attempt
        self.resume = resume
        barrier = Barrier(world.shape.ranks)
        self.ranks = [VirtualRank(r, resume, barrier, world) for r in range(world.shape.ranks)]
        self.told = [news.RankWords(step=resume.step) for _ in self.ranks]
        self.joined: set[int] = set()
        self.told_sigterms = [0] * len(self.ranks)
        self.told_buffers = [0] * len(self.ranks)
        self.order = self.verdict = 0
        self.committed = resume.durable_step
        self.step = resume.step  # completed by all
        self.step_start_ns: int | None = None
        self.is_killed = False
        self.reported = 0  # ranks whose end the reaper has told
