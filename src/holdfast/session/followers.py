"""Rank 0's side of the talk with the other ranks: their words for its conductor, and its own.

Everything here is called from the conductor's thread, except what `Leader` asks while it waits
for a restore; the network is the post's business alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from holdfast.core.save.word import Order, unpack
from holdfast.errors import ConfigurationError, HoldfastError
from holdfast.journal.clocks import now_ns
from holdfast.journal.holder import Holder, Sign, look
from holdfast.journal.layout import Phase, Word
from holdfast.session.channel import World, find_channel
from holdfast.session.conductor import Others, Reading
from holdfast.session.messages import FollowerSays, LeaderSays
from holdfast.session.post import Post
from holdfast.session.registers import LEADER_KEY, rank_key, welcome_key
from holdfast.session.roster import Roster

HEARTBEAT_NS = 1_000_000_000
LOOK_NS = 200_000_000  # the process table is asked five times a second
UNSENT_NS = 2_000_000_000  # a verdict that cannot be sent is still this rank's


class Followers(Others):
    """Ranks 1 to n - 1, as the leader's conductor meets them."""

    def __init__(self, world: World, says: LeaderSays, grace_ns: int) -> None:
        self.world = world
        self.roster = Roster(says.me, says.run, world.size)
        self.on_news: Callable[[], None] = lambda: None
        self._says = says
        self._grace_ns = grace_ns
        self._post: Post | None = None
        self._lock = threading.RLock()  # the conductor, and the script's thread in `restore`
        self._welcomed: dict[int, str] = {}
        self._told_at_ns = 0
        self._deadline_ns: int | None = None
        self._looked_at_ns = 0
        self._dead: frozenset[int] = frozenset()
        self._unsent: dict[Word, tuple[int, int, Callable[[], None]]] = {}

    # --- the way there ----------------------------------------------------------------------

    def attach(self) -> bool:
        """Whether there is a way to the others; takes it if a framework offers one.

        Only the script's own thread calls it: seen from another, JAX's client is there before it is
        connected, and to use it then ends the process.
        """
        if self._post is None:
            with self._lock:
                channel = find_channel(self.world.size) if self._post is None else None
                if channel is not None:
                    post = Post(channel, self.world.size, lambda: self.on_news())
                    post.listen([rank_key(rank) for rank in range(1, self.world.size)])
                    self._post = post
        return self._post is not None

    def say(self, **words: Any) -> None:
        """Change what the others are told, and tell them with the next turn."""
        with self._lock:
            self._says = replace(self._says, **words)
            self._told_at_ns = 0
        self.on_news()

    @property
    def choice(self) -> int:
        """The number of the newest choice of a checkpoint."""
        return self._says.choice

    # --- for the conductor ------------------------------------------------------------------

    def turn(self, at_ns: int, *, hurried: bool) -> None:
        """Take in what they said, welcome who is new, say what is new."""
        post = self._post
        if post is None:
            return
        post.hurried = hurried
        with self._lock:
            self._take(at_ns, post)
            self._look(at_ns)
            if hurried != self._says.hurry:
                self._says = replace(self._says, hurry=hurried)
                self._told_at_ns = 0
            if at_ns - self._told_at_ns > HEARTBEAT_NS:
                self._publish(at_ns, post)
            self._store_what_was_sent(at_ns, post)

    def readings(self) -> Mapping[int, Reading]:
        """The newest words of each rank that is there."""
        with self._lock:
            return {rank: _reading(member.says) for rank, member in self.roster.members.items()}

    def gone(self, at_ns: int, waited_since_ns: int | None) -> tuple[int, ...]:
        """Dead by the process table, left by their own words, or silent while others wait."""
        with self._lock:
            return self.roster.newly_gone(at_ns, self._dead, waited_since_ns)

    def stop_asked(self) -> tuple[str, int | None] | None:
        """The grace period counts from the first SIGTERM that any rank received."""
        with self._lock:
            first = self.roster.first_sigterm()
            if first is not None:
                return f"SIGTERM to rank {first[1]}", first[0] + self._grace_ns
            rank = self.roster.interrupted()
            return None if rank is None else (f"Ctrl-C on rank {rank}", None)

    def stop_begun(self, deadline_ns: int | None) -> None:
        """Tell the others by when they must have left."""
        self._deadline_ns = deadline_ns
        self.say()

    def tell(self, word: Word, value: int, store: Callable[[], None]) -> None:
        """The others first, then this rank: it must not wait at a step that they never heard of."""
        names = {Word.ORDER: "order", Word.VERDICT: "verdict"}
        changed: dict[str, Any] = {names[word]: value}
        verdict = unpack(value)
        if word is Word.VERDICT and verdict.flags & Order.COMMITTED:
            changed["committed"] = verdict.step
        at_ns = now_ns()
        with self._lock:
            self._says = replace(self._says, **changed)
            if self._post is None:
                return
            sent = self._publish(at_ns, self._post)
            late_ns = at_ns + UNSENT_NS
            if word is Word.ORDER and not verdict.flags & Order.LEAVE:
                late_ns = 0  # never before the others can read it
            self._unsent[word] = (sent, late_ns, store)

    # --- for the leader, while it waits -----------------------------------------------------

    def check(self) -> None:
        """Raise if some rank cannot be part of this run."""
        if self._post is not None:
            self._post.check()
        with self._lock:
            for sentence in self.roster.trouble.values():
                raise ConfigurationError(sentence)
            for rank, words in self.roster.left().items():
                raise HoldfastError(f"rank {rank} has left: {words or 'its script ended'}")
            for rank in sorted(self._dead):
                raise HoldfastError(f"rank {rank} is dead: the run cannot train without it")

    def who_failed(self) -> str:
        """Which rank ended first, in words, where rank 0 fails because of it; '' if none did."""
        with self._lock:
            for rank, words in self.roster.left().items():
                if words:
                    return f"rank {rank}: {words}"
            for rank in sorted(self._dead):
                return f"rank {rank} died"
        return ""

    def close(self, limit_s: float) -> None:
        """The last word, and the end of the post."""
        with self._lock:
            post = self._post
            if post is None:
                return
            self._says = replace(self._says, closing=True)
            self._publish(now_ns(), post)
        post.close(limit_s)

    # --- inside -----------------------------------------------------------------------------

    def _take(self, at_ns: int, post: Post) -> None:
        for key, data in post.take().items():
            self.roster.hear(at_ns, int(key.rpartition("/")[2]), data)
        for rank, welcome in self.roster.welcomes().items():
            if self._welcomed.get(rank) != welcome.follower:
                self._welcomed[rank] = welcome.follower
                post.put(welcome_key(rank), welcome.to_bytes())
                self._told_at_ns = 0

    def _publish(self, at_ns: int, post: Post) -> int:
        left_ns = None if self._deadline_ns is None else max(0, self._deadline_ns - at_ns)
        number = self._says.number + 1
        self._says = replace(self._says, number=number, deadline_in_ns=left_ns)
        self._told_at_ns = at_ns
        return post.put(LEADER_KEY, self._says.to_bytes())

    def _store_what_was_sent(self, at_ns: int, post: Post) -> None:
        for word in (Word.VERDICT, Word.ORDER):  # as a rank loads them: the order after
            if word in self._unsent:
                sent, late_ns, store = self._unsent[word]
                if post.sent >= sent or (late_ns and at_ns > late_ns):
                    del self._unsent[word]
                    store()

    def _look(self, at_ns: int) -> None:
        if at_ns - self._looked_at_ns > LOOK_NS:
            self._looked_at_ns = at_ns
            self._dead |= {
                rank
                for rank, member in self.roster.members.items()
                if not member.is_gone and member.says.left is None and is_dead(member.says.holder)
            }


def is_dead(holder: dict[str, Any]) -> bool:
    """Whether the process table says so; of another host nothing is known."""
    try:
        return look(Holder.from_json(holder)) is Sign.DEAD
    except (KeyError, TypeError, ValueError):
        return False


def _reading(says: FollowerSays) -> Reading:
    return Reading(
        step=says.step,
        loop_ended=says.phase in (Phase.LOOP_ENDED, Phase.FINISHED),
        taken=unpack(says.taken),
        copied=unpack(says.copied),
        durable=unpack(says.durable),
        failed=unpack(says.failed),
        save_asked=says.save_asked,
        save_blocked_ns=says.save_blocked_ns,
    )
