"""What a virtual world remembers: the run store, and the attempt that is running."""

from __future__ import annotations

from dataclasses import dataclass, field

from virtual_ranks import Barrier, Surroundings, VirtualRank

from holdfast.core import agree_events as news
from holdfast.core import events as ev
from holdfast.journal.attempts import AttemptRecord, lineage
from holdfast.snapshot.choose import choose
from holdfast.snapshot.sets import SetInfo


@dataclass
class Store:
    """The run store: attempts, sets, and what is wrong with it."""

    attempts: list[AttemptRecord] = field(default_factory=list)
    sets: list[SetInfo] = field(default_factory=list)
    shards: set[tuple[int, int, int]] = field(default_factory=set)  # (attempt, step, rank)
    unreadable: dict[str, str] = field(default_factory=dict)  # as a rank finds out
    rejected: dict[str, str] = field(default_factory=dict)  # as the controller knows
    is_full: bool = False
    is_away: bool = False
    is_fenced: bool = False  # another supervisor creates the next attempt first

    def choose(self) -> tuple[ev.Resume, str]:
        """As `snapshot.catalog` does."""
        chain = [(part.attempt, part.up_to_step) for part in lineage(self.attempts)]
        chosen, words = choose(self.sets, chain, self.rejected)
        if chosen is None:
            return ev.Resume(None, 0, None), words
        return ev.Resume(chosen.name, chosen.step, chosen.attempt), words


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
        self.order = self.verdict = 0
        self.committed = resume.step
        self.step = resume.step  # completed by all
        self.step_start_ns: int | None = None
        self.is_killed = self.is_empty = False
