"""The thread of a rank other than 0 that nobody supervises: the host of this one rank.

It carries out what rank 0's controller orders in this rank's page, and sends its report.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace

from holdfast.core import events as ev
from holdfast.core.hosts.messages import encode_report
from holdfast.journal.clocks import now_ns
from holdfast.journal.holder import RunHolder
from holdfast.journal.layout import Word
from holdfast.journal.rank_page import RankPage
from holdfast.session.channel import RankOfWorld, find_channel
from holdfast.session.hosts_link import HEARTBEAT_NS, LOOK_NS, is_dead
from holdfast.session.messages import FollowerSays
from holdfast.session.own_host import OwnHost
from holdfast.session.post import Post
from holdfast.session.registers import LEADER_KEY, rank_key, welcome_key
from holdfast.session.roster import LeaderView
from holdfast.session.say import say

IDLE_WAIT_S = 0.05
UPKEEP_NS = 1_000_000_000
LONG_AGO_NS = 1  # a heartbeat of that time says: it will never beat again


class Following:
    """One thread; `stop_asked` may be called from signal handlers.

    `overdue`: the deadline is over, and the script has not left.
    """

    def __init__(
        self,
        page: RankPage,
        world: RankOfWorld,
        host: OwnHost,
        *,
        me: str,
        run: str,
        upkeep: Callable[[], None],
        overdue: Callable[[], None],
    ) -> None:
        self.leader = LeaderView(me)
        self.leader_is_dead = False
        self.is_stop_asked = False  # of this rank
        self._page = page
        self._world = world
        self._host = host
        self._upkeep = upkeep
        self._overdue = overdue
        self._says = FollowerSays(
            rank=world.rank,
            me=me,
            to="",
            number=0,
            run=run,
            world_size=world.size,
            holder=RunHolder.current().to_json(),
        )
        self._post: Post | None = None
        self._welcome = b""
        self._lock = threading.RLock()  # the helper thread, and the script's in `restore`
        self._asked: list[ev.StopAsked] = []  # by signals
        self._own_deadline_ns: int | None = None
        self._published_at_ns = 0
        self._upkept_at_ns = 0
        self._looked_at_ns = 0
        self._wake = threading.Event()
        self._ending = False
        self._thread = threading.Thread(target=self._run, name="holdfast-host", daemon=True)
        self._thread.start()

    def attach(self) -> bool:
        """Whether there is a way to rank 0; for the script's thread only, like `HostsLink`'s."""
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

    @property
    def has_begun(self) -> bool:
        """Whether the attempt is on record, and every rank has read what it starts from."""
        return self._host.report.attempt >= 0

    def answer(self, choice: int, refused: str | None) -> None:
        """Say that a choice is read, or why it cannot be."""
        with self._lock:
            self._says = replace(self._says, choice=choice, refused=refused)
            self._published_at_ns = 0
        self.hurry()

    def stop_asked(self, event: ev.StopAsked) -> None:
        """A signal came; the earliest deadline counts."""
        self.is_stop_asked = True
        if event.deadline_ns is not None and self._own_deadline_ns is None:
            self._own_deadline_ns = event.deadline_ns
        self._asked.append(event)

    def hurry(self) -> None:
        """Look at once. Not for signal handlers: they must not wait for a lock."""
        self._wake.set()

    def stop(self) -> None:
        """End the thread; the way to rank 0 stays open for `goodbye`."""
        self._ending = True
        self._wake.set()
        if self._thread.is_alive():
            self._thread.join()

    def goodbye(self, end: ev.RankExited, limit_s: float) -> None:
        """Tell rank 0 that this rank has ended, and how."""
        with self._lock:
            post = self._post
            if post is None:
                return
            self._host.read(with_progress=True)
            self._host.note(end)
            self._publish(now_ns(), post)
        post.close(limit_s)

    # --- the thread -------------------------------------------------------------------------

    def _run(self) -> None:
        while not self._ending:
            wait_s = min(self._host.wait_s, IDLE_WAIT_S)
            self._wake.wait(wait_s if not self.is_stop_asked else 0.002)
            self._wake.clear()
            try:
                self._turn(now_ns())
            except Exception as error:
                # The training must not notice; the next turn tries again.
                self._page.increment(Word.ERRORS)
                say(f"The host failed with an internal error: {error!r}; training goes on")

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
        leader_ns = self._page.load(Word.DEADLINE_AT) or None
        found = [at_ns for at_ns in (self._own_deadline_ns, leader_ns) if at_ns is not None]
        return min(found, default=None)

    def _talk(self, at_ns: int, post: Post) -> None:
        with self._lock:
            post.hurried = self._host.is_hurried or self.is_stop_asked
            news = post.take()
            if LEADER_KEY in news:
                self.leader.hear(at_ns, news[LEADER_KEY])
            self._welcome = news.get(welcome_key(self._world.rank), self._welcome)
            if self.leader.hear_welcome(at_ns, self._welcome):
                post.listen([LEADER_KEY])
            self._obey(at_ns)
            if self._has_news(at_ns):
                self._publish(at_ns, post)

    def _obey(self, at_ns: int) -> None:
        """What rank 0's controller orders."""
        leader = self.leader
        says = leader.says
        if says is None or not leader.is_welcome:
            return
        if at_ns - self._looked_at_ns > LOOK_NS:
            self._looked_at_ns = at_ns
            self.leader_is_dead = self.leader_is_dead or is_dead(says.holder)
        if says.closing or self.leader_is_dead:
            self._page.store(Word.SUPERVISOR_ALIVE_AT, LONG_AGO_NS)
        else:
            self._host.heartbeat(leader.heard_at_ns or at_ns)
        if leader.order is not None:
            self._host.clock_offset_ns = leader.offset_ns or 0
            self._host.obey(leader.order)

    def _has_news(self, at_ns: int) -> bool:
        """Answers at once; progress a few times a second; a heartbeat when there is nothing."""
        is_new = self._host.look(at_ns)
        while self._asked:
            self._host.note(self._asked.pop(0))
            is_new = True
        if self.leader.address != self._says.to:
            self._says = replace(self._says, to=self.leader.address)
            is_new = True
        return is_new or at_ns - self._published_at_ns > HEARTBEAT_NS

    def _publish(self, at_ns: int, post: Post) -> None:
        report = self._host.report
        report.number += 1
        self._says = replace(
            self._says,
            number=self._says.number + 1,
            sent_ns=at_ns,
            report=encode_report(report),
        )
        self._published_at_ns = at_ns
        post.put(rank_key(self._world.rank), self._says.to_bytes())
