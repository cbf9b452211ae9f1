"""Rank 0 of several ranks that nobody supervises: it holds the lease, and leads the others.

It chooses the set that all restore, creates the attempt once all have read it, and its conductor
orders the saves of all ranks. It leaves last: the store through which they talk may live in it.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from holdfast.core.events import Resume
from holdfast.core.save.policy import SavePolicy
from holdfast.core.save.saving import Saving
from holdfast.core.save.word import Order, unpack
from holdfast.errors import HoldfastError
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Phase, Word
from holdfast.journal.store import RunFolder
from holdfast.session import meeting
from holdfast.session.alone import Alone
from holdfast.session.boundary import say
from holdfast.session.channel import World
from holdfast.session.conductor import Others
from holdfast.session.followers import Followers
from holdfast.session.messages import LeaderSays
from holdfast.snapshot.keep import Keep

# The others look for orders ten times a second, and tell their progress four times.
REACTION_NS = 150_000_000
GOODBYE_S = 10.0
LAST_WORDS_S = 1.0  # a rank that fails makes the others fail; its own words are on their way
LAST_S = 1.0  # rank 0 outlives a deadline by this, so that the others do not lose the store first


class Leader(Alone):
    """Rank 0 among several."""

    def __init__(
        self,
        folder: RunFolder,
        world: World,
        *,
        policy: SavePolicy,
        keep: Keep,
        grace_s: float,
        hold_s: float,
        chips: int,
    ) -> None:
        self._world = world
        self._grace_of_all_ns = int(grace_s * 1e9)
        self._followers: Followers | None = None
        self._told_to_leave = meeting.ToldToLeave()
        super().__init__(
            folder,
            policy=policy,
            keep=keep,
            grace_s=grace_s,
            hold_s=hold_s,
            chips=chips,
            world_size=world.size,
        )
        self._others.attach()

    def _saving(self, policy: SavePolicy) -> Saving:
        return Saving(
            self.world_size, policy, request_reaction_ns=REACTION_NS, hold_ns=self._hold_ns
        )

    def _meet(self) -> Others:
        says = LeaderSays(
            me=self._incarnation,
            number=0,
            run=self.name,
            world_size=self.world_size,
            attempt=self.attempt,
            lease_epoch=self._lease.epoch,
            holder=self._lease.holder.to_json(),
        )
        self._followers = Followers(self._world, says, self._grace_of_all_ns)
        self._followers.on_news = lambda: self._conductor.hurry()
        return self._followers

    @property
    def _others(self) -> Followers:
        assert self._followers is not None  # noqa: S101 -- made by the base's constructor
        return self._followers

    # --- one choice for all -----------------------------------------------------------------

    def resume(self) -> tuple[Resume, str]:
        """Choose for all ranks, and tell them."""
        meeting.require(self._others.attach(), self._world)
        try:
            resume, words = super().resume()
        except HoldfastError as error:
            self._others.say(refusal=f"rank 0: {error}")
            raise
        self._others.say(
            choice=self._others.choice + 1,
            set_name=resume.set_name,
            set_step=resume.step,
            set_parent=resume.parent,
            skip_batches=resume.skip_batches,
        )
        return resume, words

    def resumed(self, resume: Resume) -> bool:
        """Wait until every rank has read it; then create the attempt, and let all begin."""
        others = self._others
        choice = others.choice
        waiting = meeting.Waiting(lambda: f"rank {_listed(others.roster.waiting_for(choice))}")
        while others.roster.waiting_for(choice):
            others.check()
            waiting.look()
        others.check()
        refused = others.roster.refused(choice)
        if refused is not None:
            say(f"checkpoint {resume.set_name} cannot be trusted: {refused}")
            self.reject(resume, refused)
            return False
        super().resumed(resume)
        others.say(begun=choice)
        meeting.close_first()
        return True

    # --- the conductor's duties ---------------------------------------------------------------

    def _note_stop(self, source: str, deadline_ns: int | None) -> None:
        self.writer.words.store(Word.DEADLINE_AT, deadline_ns or 0)
        self._others.stop_begun(deadline_ns)
        super()._note_stop(source, deadline_ns)

    def _upkeep(self) -> None:
        super()._upkeep()
        if self._told_to_leave.is_ignored(self.writer.words):
            self._end_now(meeting.STUCK)

    def _end_now(self, why: str) -> None:
        end_ns = now_ns() + int(LAST_S * 1e9)
        while self._others.roster.still_here() and now_ns() < end_ns:
            self._others.turn(now_ns(), hurried=True)
            time.sleep(meeting.LOOK_S)
        super()._end_now(why)

    # --- the end ------------------------------------------------------------------------------

    def close(self) -> None:
        """Wait for the others' goodbye after a common end; not when something has failed."""
        words = self.writer.words
        ordered = unpack(words.load(Word.ORDER)).flags
        decided = unpack(words.load(Word.VERDICT)).flags
        finished = words.load(Word.PHASE) == Phase.FINISHED
        stopped = bool(ordered & Order.LEAVE or decided & Order.STOP)
        if finished or (stopped and self._ending is None):
            self._wait(lambda: not self._others.roster.still_here(), GOODBYE_S)
        if self._ending is not None:
            self._wait(self._others.who_failed, LAST_WORDS_S)
            cause, words_of_0 = self._ending
            told = self._others.who_failed()
            self._ending = (cause, f"{told} (rank 0: {words_of_0})" if told else words_of_0)
        super().close()
        self._others.close(meeting.POST_CLOSE_S)
        meeting.leave_soon(finished, stopped, self.error)

    def _wait(self, until: Callable[[], object], limit_s: float) -> None:
        end_ns = now_ns() + int(limit_s * 1e9)
        while not until() and now_ns() < end_ns:
            time.sleep(meeting.LOOK_S)


def _listed(ranks: tuple[int, ...]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
