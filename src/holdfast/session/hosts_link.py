"""The link of rank 0's controller to the hosts of several ranks: its own, and those of the others.

Each process is a host of one rank. Orders and reports are registers (`core.hosts`), which the post
carries through the framework's key-value store. What a host that is gone did not say itself is put
into its report here. Everything is called from the controller's thread, except what `Leader` asks
while it waits; the network is the post's business alone.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import Exit
from holdfast.core.hosts.messages import encode_order
from holdfast.core.hosts.order import HostOrder
from holdfast.core.hosts.report import HostReport
from holdfast.core.save import events as news
from holdfast.core.save.word import Order
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.journal.clocks import now_ns
from holdfast.journal.holder import RunHolder, Sign, look
from holdfast.session.channel import RankOfWorld, find_channel
from holdfast.session.meeting import STUCK, LeaveOrder
from holdfast.session.messages import LeaderSays
from holdfast.session.own_host import OwnHost
from holdfast.session.own_link import OwnLink, end
from holdfast.session.post import Post
from holdfast.session.registers import LEADER_KEY, rank_key, welcome_key
from holdfast.session.roster import Member, Roster
from holdfast.session.say import say

HEARTBEAT_NS = 1_000_000_000
LOOK_NS = 200_000_000  # the process table is asked five times a second
UNSENT_NS = 2_000_000_000  # a verdict that cannot be sent is still this rank's
TURN_S = 0.005


class HostsLink(OwnLink):
    """A `controller.ports.Link` to the hosts of ranks 0 to n - 1."""

    def __init__(self, host: OwnHost, world: RankOfWorld, says: LeaderSays) -> None:
        super().__init__(host)
        self.roster = Roster(says.me, says.run, world.size)
        self.on_news: Callable[[], None] = lambda: None
        self._world = world
        self._says = says
        self._post: Post | None = None
        self._lock = threading.RLock()  # the controller, and the script's thread in `restore`
        self._welcomed: dict[int, str] = {}
        self._published_at_ns = 0
        self._looked_at_ns = 0
        self._dead: frozenset[int] = frozenset()
        self._waited_since_ns: int | None = None
        self._order: HostOrder | None = None
        self._unsent: tuple[int, int] | None = None  # the order's number at the post; since when
        self._heard: set[int] = set()  # ranks whose report may be new to the controller
        self._leaving: dict[int, Exit] = {}  # ranks that have just ended, and how
        self._ended: set[int] = set()  # ranks whose end is in their report
        self._leave_order = LeaveOrder()

    # --- controller.ports.Link --------------------------------------------------------------

    def obey(self, order: HostOrder) -> None:
        """The others first, then this rank: it must not wait at a step that they never heard of."""
        at_ns = now_ns()
        with self._lock:
            self._order = order
            self._says = replace(self._says, order=encode_order(order))
            if self._post is not None:
                self._unsent = self._publish(at_ns, self._post), at_ns

    def reports(self) -> list[tuple[int, HostReport]]:
        """How the hosts stand: the others as far as they were heard."""
        others = ((rank, member.report) for rank, member in self.roster.members.items())
        return [*super().reports(), *others]

    # --- the way there ----------------------------------------------------------------------

    def attach(self) -> bool:
        """Whether there is a way to the others; takes it if a framework offers one.

        Only the script's own thread calls it: seen from another, JAX's client is there before it is
        connected, and to use it then ends the process.
        """
        if self._post is None:
            with self._lock:
                channel = find_channel(self._world.size) if self._post is None else None
                if channel is not None:
                    post = Post(channel, self._world.size, lambda: self.on_news())
                    post.listen([rank_key(rank) for rank in range(1, self._world.size)])
                    self._post = post
        return self._post is not None

    def say(self, **words: Any) -> None:
        """Change what the others are told, and tell them with the next turn."""
        with self._lock:
            self._says = replace(self._says, **words)
            self._published_at_ns = 0
        self.on_news()

    # --- for the leader, while it waits -----------------------------------------------------

    def check(self) -> None:
        """Raise if some rank cannot be part of this run."""
        if self._post is not None:
            self._post.check()
        with self._lock:
            for sentence in self.roster.trouble.values():
                raise ConfigurationError(sentence)
            for rank, how in self.roster.left().items():
                raise HoldfastError(f"rank {rank} has left: {_words_of(how) or 'its script ended'}")
            for rank in sorted(self._dead):
                raise HoldfastError(f"rank {rank} is dead: the run cannot train without it")

    @property
    def are_gone(self) -> bool:
        """Whether every other rank has left, or is known to be gone."""
        with self._lock:
            return not self.roster.still_here()

    @property
    def has_one_failed(self) -> bool:
        """Whether another rank has said that it failed, or died."""
        with self._lock:
            return bool(self._dead) or any(map(_words_of, self.roster.left().values()))

    # --- the loop's -------------------------------------------------------------------------

    def turn(self, at_ns: int) -> None:
        """Take in what they said, welcome who is new, say what is new."""
        post = self._post
        if post is None:
            return
        post.hurried = self.host.is_hurried
        with self._lock:
            self._take(at_ns, post)
            self._look(at_ns)
            self._propose()
            if at_ns - self._published_at_ns > HEARTBEAT_NS:
                self._publish(at_ns, post)
            self._carry_out_here(at_ns, post)

    def look(self, at_ns: int) -> list[tuple[int, HostReport]]:
        """The hosts of which there is news, and how they stand."""
        if self.host.attempt >= 0:  # else they have ended before there was anything to end
            while self._leaving:
                self._end(at_ns, *self._leaving.popitem())
        heard, self._heard = self._heard, set()
        others = ((rank, self.roster.members[rank].report) for rank in sorted(heard))
        return [*super().look(at_ns), *others]

    def last_reports(self, at_ns: int, how: Exit | None) -> list[tuple[int, HostReport]]:
        """How all hosts stand: of the others nothing more will be heard."""
        own = super().last_reports(at_ns, how)
        if own:
            for rank in self.roster.members.keys() - self._ended:
                self._end(at_ns, rank, self._leaving.pop(rank, None))
        return [*own, *self.look(at_ns)]

    def await_the_others(self, limit_s: float) -> None:
        """Rank 0 leaves last, but not too late."""
        end_ns = now_ns() + int(limit_s * 1e9)
        while not self.are_gone and now_ns() < end_ns:
            self.turn(now_ns())
            time.sleep(TURN_S)

    def close(self, limit_s: float) -> None:
        """The last word, and the end of the post."""
        with self._lock:
            post = self._post
            if post is None:
                return
            self._says = replace(self._says, closing=True)
            self._publish(now_ns(), post)
        post.close(limit_s)

    # --- what they say ----------------------------------------------------------------------

    def _take(self, at_ns: int, post: Post) -> None:
        for key, data in post.take().items():
            rank = int(key.rpartition("/")[2])
            if self.roster.hear(at_ns, rank, data) and rank in self.roster.members:
                self._hear(rank, self.roster.members[rank])
        for rank, welcome in self.roster.welcomes().items():
            if self._welcomed.get(rank) != welcome.follower:
                self._welcomed[rank] = welcome.follower
                post.put(welcome_key(rank), welcome.to_bytes())
                self._published_at_ns = 0

    def _hear(self, rank: int, member: Member) -> None:
        self._heard.add(rank)
        if member.exit is not None:
            self._leaving[rank] = member.exit
        says = member.says
        if self.proposals is not None and says.choice:
            refused = None if says.refused is None else f"rank {rank}: {says.refused}"
            self.proposals.answer(rank, says.choice, refused)

    def _look(self, at_ns: int) -> None:
        """Dead by the process table, or silent while others wait: nobody waits for them."""
        if at_ns - self._looked_at_ns <= LOOK_NS:
            return
        self._looked_at_ns = at_ns
        self._dead |= {
            rank for rank in self.roster.still_here()
            if is_dead(self.roster.members[rank].says.holder)
        }  # fmt: skip
        someone_waits = self.host.attention.is_stopping or self._is_one_done
        if not someone_waits:
            self._waited_since_ns = None
        elif self._waited_since_ns is None:
            self._waited_since_ns = at_ns
        if self._leave_order.is_ignored(self.host.page):
            say(f"{STUCK}: ending it")
            self.host.kill()
        for rank in self.roster.newly_gone(at_ns, self._dead, self._waited_since_ns):
            self._leaving[rank] = Exit()

    @property
    def _is_one_done(self) -> bool:
        """Whether a rank has no more steps to do."""
        reports = [self.host.report, *(member.report for member in self.roster.members.values())]
        return any(
            state.answers.loop_ended
            for report in reports
            for state in report.ranks
            if report.attempt == self.host.attempt
        )

    def _end(self, at_ns: int, rank: int, how: Exit | None) -> None:
        """The process of that rank is gone; it had begun, for it has read what all start from."""
        report, attempt = self.roster.members[rank].report, self.host.attempt
        if report.attempt != attempt:
            report.begin(attempt, self._says.set_step, 1)
            report.note(ev.Launched(at_ns, attempt))
        end(report, attempt, rank, at_ns, how)
        report.number += 1
        self._ended.add(rank)
        self._heard.add(rank)

    # --- what they are told -----------------------------------------------------------------

    def _propose(self) -> None:
        newest = None if self.proposals is None else self.proposals.newest
        if newest is not None and newest.number != self._says.choice:
            resume = newest.resume
            self._says = replace(
                self._says,
                choice=newest.number,
                set_name=resume.set_name,
                set_step=resume.step,
                set_parent=resume.parent,
                skip_batches=resume.skip_batches,
                ended_until=resume.ended_until,
            )
            self._published_at_ns = 0

    def _publish(self, at_ns: int, post: Post) -> int:
        self._says = replace(self._says, number=self._says.number + 1, sent_ns=at_ns)
        self._published_at_ns = at_ns
        return post.put(LEADER_KEY, self._says.to_bytes())

    def _carry_out_here(self, at_ns: int, post: Post) -> None:
        """Orders that the others can read by now; of those that cannot be sent, the verdicts."""
        order, unsent = self._order, self._unsent
        if order is None or unsent is None:
            return
        number, since_ns = unsent
        if post.sent >= number:
            self._unsent = None
            self.host.obey(order)
        elif at_ns - since_ns > UNSENT_NS:
            self._carry_out_unsent(order)

    def _carry_out_unsent(self, order: HostOrder) -> None:
        """An order to save is never this rank's before the others can read it."""
        for want in order.wants.after(0):
            match want:
                case act.CarryOut(what=news.PublishVerdict() as verdict):
                    self.host.publish_verdict(verdict)
                case act.CarryOut(what=news.PublishOrder() as leave) if leave.flags & Order.LEAVE:
                    self.host.publish_order(leave, want.deadline_ns)
                case act.Kill():
                    self._unsent = None
                    self.host.kill()


def is_dead(holder: dict[str, Any]) -> bool:
    """Whether the process table says so; of another host nothing is known."""
    try:
        return look(RunHolder.from_json(holder)) is Sign.DEAD
    except (KeyError, TypeError, ValueError):
        return False


def _words_of(how: Exit) -> str:
    """Why a rank says that it failed; empty: it left in good order."""
    return how.report.message if how.report is not None else ""
