"""Rank 0 of several ranks that nobody supervises: the controller of all of them is in its process.

It leaves last: the store through which they talk may live in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.core.events import Resume
from holdfast.core.run.machine import RunPolicy
from holdfast.core.save.word import Order, unpack
from holdfast.errors import HoldfastError
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import RankPhase, Word
from holdfast.journal.store import RunFolder
from holdfast.session import meeting
from holdfast.session.alone import Alone
from holdfast.session.channel import RankOfWorld
from holdfast.session.controlling import POST_CLOSE_S, BareRun
from holdfast.session.hosts_link import HostsLink
from holdfast.session.messages import LeaderSays
from holdfast.session.own_host import OwnHost
from holdfast.session.say import say
from holdfast.snapshot.keep import Keep

GOODBYE_S = 10.0
LAST_WORDS_S = 1.0  # a rank that fails makes the others fail; its own words are on their way


class Leader(Alone):
    """Rank 0 among several."""

    def __init__(
        self,
        folder: RunFolder,
        world: RankOfWorld,
        *,
        policy: RunPolicy,
        keep: Keep,
        grace_s: float,
    ) -> None:
        self._world = world
        super().__init__(folder, policy=policy, keep=keep, grace_s=grace_s)
        self._others.on_news = self._controlling.hurry
        self._others.attach()

    def _link(self, host: OwnHost, run: BareRun) -> HostsLink:
        """To this host and those of the other ranks."""
        says = LeaderSays(
            me=run.facts.incarnation,
            number=0,
            run=self.name,
            world_size=self.world_size,
            attempt=run.attempt,
            lease_epoch=run.lease.epoch,
            holder=run.lease.holder.to_json(),
        )
        self._others = HostsLink(host, self._world, says)
        return self._others

    # --- one choice for all -----------------------------------------------------------------

    def resume(self) -> Resume:
        """Chosen for all ranks, which are told."""
        meeting.require(self._others.attach(), self._world)
        try:
            return super().resume()
        except HoldfastError as error:
            self._others.say(refusal=f"rank 0: {error}")
            raise

    def resumed(self, resume: Resume) -> bool:
        """Wait until every rank has read it, and the attempt is on record."""
        number = self._controlling.proposals.newest.number
        is_begun = super().resumed(resume)
        if is_begun:
            meeting.close_first()
        elif number != self._refused:
            why = self._controlling.proposals.why
            say(f"checkpoint {resume.set_name} cannot be trusted: {why}")
        return is_begun

    def _wait(self, until: Callable[[], bool]) -> None:
        others, proposals = self._others, self._controlling.proposals
        waiting = meeting.Waiting(lambda: f"rank {_listed(proposals.unread)}")
        while not until():
            others.check()
            if self._controlling.refusal is not None:
                raise self._controlling.refusal
            waiting.look()

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for the others' goodbye after a common end; not when something has failed."""
        page = self.writer.page
        ordered = unpack(page.load(Word.ORDER)).flags
        decided = unpack(page.load(Word.VERDICT)).flags
        finished = page.load(Word.PHASE) == RankPhase.FINISHED
        stopped = bool(ordered & Order.LEAVE or decided & Order.STOP)
        if finished or (stopped and self.error is None):
            self._wait_for(lambda: self._others.are_gone, GOODBYE_S)
        if self.error is not None:
            self._wait_for(lambda: self._others.has_one_failed, LAST_WORDS_S)
        super().close()
        self._others.close(POST_CLOSE_S)
        meeting.leave_soon(finished, stopped, self.error)

    def _wait_for(self, until: Callable[[], object], limit_s: float) -> None:
        end_ns = now_ns() + int(limit_s * 1e9)
        while not until() and now_ns() < end_ns:
            time.sleep(meeting.LOOK_S)


def _listed(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
