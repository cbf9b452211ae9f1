"""The pages of one virtual host's ranks: when they are looked at, and what is reported of them.

Looks that would find nothing are left out: `touched` makes up for them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from holdfast.core import actions as act
from holdfast.core.hosts.order import Attention
from holdfast.core.hosts.report import HostReport, Pace, RankState
from holdfast.sim.clock import MS
from holdfast.sim.virtual.loop import Inputs, Source
from holdfast.sim.virtual.ranks import VirtualRank
from holdfast.sim.virtual.shared import Shared

PROGRESS_NS = 250 * MS


class Rests(NamedTuple):
    """Looks at the pages are left out: since that one, with that wait between two of them."""

    since_ns: int
    wait_ns: int
    with_progress: bool


class ProcessTree:
    """The processes of one attempt on one host, and what is in their pages."""

    def __init__(self, action: act.Launch, ranks: list[VirtualRank]) -> None:
        self.attempt = action.attempt
        self.ranks = ranks
        self.joined: set[int] = set()
        self.order = self.verdict = 0
        self.committed = action.resume.durable_step
        self.is_killed = False
        self.reported = 0  # ranks whose end the reaper has reported

    @property
    def pids_left(self) -> tuple[int, ...]:
        """The pids of processes that live."""
        return tuple(1000 + rank.rank for rank in self.ranks if rank.alive)


class HostPages:
    """`tree`: whose pages they are. `attention`: how closely they are to be looked at.

    `tell`: the report has changed.
    """

    def __init__(
        self, world: Shared, heard: Inputs, report: HostReport, tell: Callable[[], None]
    ) -> None:
        self.tree: ProcessTree | None = None
        self.attention = Attention()
        self.is_lost = False
        self._world = world
        self._heard = heard
        self._report = report
        self._tell = tell
        self._next_progress_ns = 0
        self._polls = 0
        self._is_touched = True  # some page has changed since the last look
        self._rests: Rests | None = None

    def begin(self) -> None:
        """Its ranks have just been started."""
        self._polls += 1
        self._rests = None
        self._poll(self._polls)

    def look_in(self, ns: int) -> None:
        """A rank has rung."""
        self._polls += 1
        self._look_in(ns, self._polls)

    def slept(self, gap_ns: int) -> None:
        """Time has passed in which nothing went on."""
        if self._rests is not None:
            self._rests = self._rests._replace(since_ns=self._rests.since_ns + gap_ns)

    def attend(self, attention: Attention) -> None:
        """They are looked at more often, or more seldom."""
        self.attention = attention
        if self._rests is not None and self._rests != (
            self._rests.since_ns,
            self._wait_ns,
            attention.is_saving,
        ):
            self.touched()

    def touched(self) -> None:
        """A page has changed, or how often to look: looks that would find nothing are left out."""
        self._is_touched = True
        if self._rests is None:
            return
        now_ns = self._world.clock.now_ns
        since_ns, wait_ns, with_progress = self._rests
        times = max(1, -((since_ns - now_ns) // wait_ns))
        skipped_ns = since_ns + (times - 1) * wait_ns
        if times > 1 and with_progress:
            self._next_progress_ns = skipped_ns + PROGRESS_NS
        while self._next_progress_ns <= skipped_ns:  # the looks in between that read progress too
            looks = max(1, -((since_ns - self._next_progress_ns) // wait_ns))
            self._next_progress_ns = since_ns + looks * wait_ns + PROGRESS_NS
        self._look_in(since_ns + times * wait_ns - now_ns, self._polls)

    def read(self, *, with_progress: bool) -> bool:
        """Whether the pages say something new."""
        tree = self.tree
        if tree is None:
            return False
        before = self._report.ranks
        now = tuple(map(partial(self._as_reported, tree, with_progress), tree.ranks, before))
        self._report.ranks = now
        return now != before

    def _as_reported(
        self, tree: ProcessTree, with_progress: bool, rank: VirtualRank, before: RankState
    ) -> RankState:
        """What the page says, as it is reported."""
        if not rank.has_page:
            return before
        if rank.rank not in tree.joined:
            tree.joined.add(rank.rank)
            self._store_words(tree, rank)
        answers = rank.words
        rank.pace.look(answers.step, rank.step_ns, rank.spans_ns)
        if answers.step < before.answers.step or not (with_progress or answers.loop_ended):
            self._is_touched = self._is_touched or answers.step > before.answers.step
            answers = answers._replace(step=before.answers.step)
        return RankState(
            has_session=True,
            answers=answers,
            blocked_ns=rank.blocked_ns
            if answers.copied != before.answers.copied
            else before.blocked_ns,
            buffers=rank.buffers,
            sigterms=rank.sigterms,
            pace=before.pace if answers.step == before.answers.step else Pace(rank.step_ns),
        )

    def _store_words(self, tree: ProcessTree, rank: VirtualRank) -> None:
        if rank.rank not in tree.joined:
            return
        delays = self._world.delays.words_ns
        late_ns = delays[rank.rank % len(delays)]
        words = tree.order, tree.verdict, tree.committed
        if late_ns:
            self._world.clock.later(late_ns, lambda: rank.see(*words))
        else:
            rank.see(*words)

    def store_all(self) -> None:
        """What is to be in the pages has changed."""
        tree = self.tree
        if tree is not None:
            for rank in tree.ranks:
                self._store_words(tree, rank)

    def _poll(self, number: int) -> None:
        if self.tree is None or number != self._polls or self.is_lost or self._world.is_over:
            return
        now_ns = self._world.clock.now_ns
        with_progress = self.attention.is_saving or now_ns >= self._next_progress_ns
        if with_progress:
            self._next_progress_ns = now_ns + PROGRESS_NS
        self._is_touched = False
        if self.read(with_progress=with_progress):
            self._tell()
        wait_ns = self._wait_ns
        if self._is_touched:
            self._look_in(wait_ns, number)
        else:
            self._rests = Rests(now_ns, wait_ns, self.attention.is_saving)

    @property
    def _wait_ns(self) -> int:
        hurried = self.attention.is_saving or self.attention.is_stopping
        return self._world.delays.looks_ns[0 if hurried else 1]

    def _look_in(self, ns: int, number: int) -> None:
        self._rests = None
        look = partial(self._poll, number)
        self._world.clock.later(ns, lambda: self._heard.give(Source.WORDS, look))
