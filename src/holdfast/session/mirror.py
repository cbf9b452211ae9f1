"""A follower's helper thread: its words to rank 0, rank 0's words into its page."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from holdfast.core.save.word import Agreed, pack
from holdfast.journal.clocks import now_ns
from holdfast.journal.holder import Holder
from holdfast.journal.layout import Word
from holdfast.journal.words import WordsPage
from holdfast.session.boundary import say
from holdfast.session.channel import World, find_channel
from holdfast.session.followers import HEARTBEAT_NS, LOOK_NS, is_dead
from holdfast.session.messages import FollowerSays, LeaderSays
from holdfast.session.post import Post
from holdfast.session.registers import LEADER_KEY, rank_key, welcome_key
from holdfast.session.roster import LeaderView

ACTIVE_WAIT_S = 0.002
IDLE_WAIT_S = 0.05
PROGRESS_NS = 250_000_000
UPKEEP_NS = 1_000_000_000
LONG_AGO_NS = 1  # a heartbeat of that time says: it will never beat again


class Mirror:
    """One thread; `on_sigterm` and `on_sigint` may be called from signal handlers."""

    def __init__(
        self,
        words: WordsPage,
        world: World,
        *,
        me: str,
        run: str,
        grace_ns: int,
        upkeep: Callable[[], None],
        overdue: Callable[[], None],
    ) -> None:
        self.leader = LeaderView(me)
        self.leader_is_dead = False
        self._words = words
        self._world = world
        self._grace_ns = grace_ns
        self._upkeep = upkeep
        self._overdue = overdue
        self._says = FollowerSays(
            rank=world.rank,
            me=me,
            to="",
            number=0,
            run=run,
            world_size=world.size,
            holder=Holder.current().to_json(),
        )
        self._post: Post | None = None
        self._welcome = b""
        self._lock = threading.RLock()  # the helper thread, and the script's in `restore`
        self._sigterm_at_ns: int | None = None
        self._interrupted = False
        self._told_at_ns = 0
        self._upkept_at_ns = 0
        self._looked_at_ns = 0
        self._wake = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="holdfast-mirror", daemon=True)
        self._thread.start()

    def attach(self) -> bool:
        """Whether there is a way to rank 0; for the script's thread only, like `Followers`'."""
        if self._post is None:
            with self._lock:
                channel = find_channel(self._world.size) if self._post is None else None
                if channel is not None:
                    post = Post(channel, self._world.size, self.hurry)
                    post.listen([LEADER_KEY, welcome_key(self._world.rank)])
                    self._post = post
        return self._post is not None

    def check_store(self) -> None:
        """Raise HoldfastError when the store has not answered for long."""
        if self._post is not None:
            self._post.check()

    @property
    def answered(self) -> int:
        """The last choice of a checkpoint that this rank has dealt with."""
        return self._says.choice

    def answer(self, choice: int, refused: str | None) -> None:
        """Say that a choice is read, or why it cannot be."""
        with self._lock:
            self._says = replace(self._says, choice=choice, refused=refused)
            self._told_at_ns = 0
        self.hurry()

    @property
    def is_stop_asked(self) -> bool:
        """Whether this rank was asked to stop."""
        return self._sigterm_at_ns is not None or self._interrupted

    def on_sigterm(self, at_ns: int) -> None:
        """The first one counts."""
        if self._sigterm_at_ns is None:
            self._sigterm_at_ns = at_ns
        self._words.increment(Word.SIGTERMS)

    def on_sigint(self) -> None:
        """The second one is the script's."""
        self._interrupted = True

    def hurry(self) -> None:
        """Look at once. Not for signal handlers: they must not wait for a lock."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; the way to rank 0 stays open for `goodbye`."""
        self._ending = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def goodbye(self, left: str, limit_s: float) -> None:
        """Tell rank 0 that this rank has ended, and why ('': in good order)."""
        with self._lock:
            post = self._post
            if post is None:
                return
            self._says = replace(self._says, left=left[:1000])
            self._publish(now_ns(), post)
        post.close(limit_s)

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending:
            self._wake.wait(ACTIVE_WAIT_S if self._is_hurried() else IDLE_WAIT_S)
            self._wake.clear()
            try:
                self._turn(now_ns())
            except Exception as error:
                # The training must not notice; the next turn tries again.
                self._words.increment(Word.ERRORS)
                say(f"The mirror failed with an internal error: {error!r}; training goes on")

    def _is_hurried(self) -> bool:
        says = self.leader.says
        return self.is_stop_asked or (says is not None and says.hurry)

    def _turn(self, at_ns: int) -> None:
        if self._post is not None:
            self._talk(at_ns, self._post)
        if at_ns - self._upkept_at_ns > UPKEEP_NS:
            self._upkept_at_ns = at_ns
            self._upkeep()
        deadline_ns = self._deadline_ns()
        if deadline_ns is not None and at_ns > deadline_ns and not self._ending:
            self._overdue()

    def _deadline_ns(self) -> int | None:
        own = None if self._sigterm_at_ns is None else self._sigterm_at_ns + self._grace_ns
        found = [at_ns for at_ns in (own, self.leader.deadline_at_ns) if at_ns is not None]
        return min(found, default=None)

    def _talk(self, at_ns: int, post: Post) -> None:
        with self._lock:
            post.hurried = self._is_hurried()
            news = post.take()
            if LEADER_KEY in news:
                self.leader.hear(at_ns, news[LEADER_KEY])
            self._welcome = news.get(welcome_key(self._world.rank), self._welcome)
            if self.leader.hear_welcome(at_ns, self._welcome):
                post.listen([LEADER_KEY])
            self._obey(at_ns)
            says = self._current(at_ns)
            if self._is_news(at_ns, says):
                self._says = says
                self._publish(at_ns, post)

    def _obey(self, at_ns: int) -> None:
        """Rank 0's words into this rank's page, in the order in which a rank needs them."""
        leader, words = self.leader, self._words
        says = leader.says
        if says is None or not leader.is_welcome:
            return
        if at_ns - self._looked_at_ns > LOOK_NS:
            self._looked_at_ns = at_ns
            self.leader_is_dead = self.leader_is_dead or is_dead(says.holder)
        lost = says.closing or self.leader_is_dead
        words.store(Word.SUPERVISOR_ALIVE_AT, LONG_AGO_NS if lost else leader.heard_at_ns or at_ns)
        deadline_ns = leader.deadline_at_ns
        if deadline_ns is not None:
            words.store(Word.DEADLINE_AT, deadline_ns)
        if says.begun:
            self._store(says)

    def _store(self, says: LeaderSays) -> None:
        words = self._words
        words.store(Word.COMMITTED, says.committed)
        words.store(Word.VERDICT, says.verdict)
        words.store(Word.ORDER, says.order)

    def _current(self, at_ns: int) -> FollowerSays:
        """What there is to say now."""
        words = self._words.snapshot()
        sigterm_ns = self._sigterm_at_ns
        return replace(
            self._says,
            to=self.leader.address,
            step=words.step,
            phase=int(words.phase),
            taken=_packed(words.taken),
            copied=_packed(words.copied),
            durable=_packed(words.durable),
            failed=_packed(words.failed),
            save_asked=words.save_asked,
            save_blocked_ns=words.save_blocked_ns,
            sigterm_age_ns=None if sigterm_ns is None else max(0, at_ns - sigterm_ns),
            interrupted=self._interrupted,
        )

    def _is_news(self, at_ns: int, says: FollowerSays) -> bool:
        """Answers at once; progress a few times a second; a heartbeat when there is nothing."""
        known = self._says
        since_ns = at_ns - self._told_at_ns
        quiet = replace(says, step=known.step, sigterm_age_ns=known.sigterm_age_ns)
        if quiet != known or (says.sigterm_age_ns is None) != (known.sigterm_age_ns is None):
            return True
        if says.step != known.step and (self._is_hurried() or since_ns > PROGRESS_NS):
            return True
        return since_ns > HEARTBEAT_NS

    def _publish(self, at_ns: int, post: Post) -> None:
        self._says = replace(self._says, number=self._says.number + 1)
        self._told_at_ns = at_ns
        post.put(rank_key(self._world.rank), self._says.to_bytes())


def _packed(word: Agreed) -> int:
    return pack(word.epoch, word.step, word.flags)
