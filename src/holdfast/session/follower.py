"""A rank other than 0 of several ranks that nobody supervises: what it does is decided in rank 0.

A helper thread is the host of this one rank. To the training its page looks as it does under a
supervisor.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NoReturn

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.events import Resume
from holdfast.core.exits import Exit
from holdfast.core.save.word import Order, unpack
from holdfast.errors import (
    EXIT_SAVED_START_ME_AGAIN,
    ConfigurationError,
    HoldfastError,
    NoGoodCheckpoint,
    StoreUnavailable,
)
from holdfast.journal.clocks import now_ns
from holdfast.journal.holder import RunHolder
from holdfast.journal.layout import RankPhase, Word
from holdfast.journal.lease import holder_of
from holdfast.journal.names import new_id
from holdfast.journal.replicate import Replicator
from holdfast.journal.scratch import make_scratch, remove_scratch
from holdfast.journal.store import RunFolder
from holdfast.journal.writer import JournalWriter
from holdfast.profiles.asked import ask_rank
from holdfast.session import meeting, signals
from holdfast.session.attachment import Attachment, how_it_ended, identity
from holdfast.session.channel import RankOfWorld
from holdfast.session.controlling import POST_CLOSE_S
from holdfast.session.following import Following
from holdfast.session.own_host import OwnHost
from holdfast.session.roster import LeaderView
from holdfast.session.say import say

UNKNOWN_ATTEMPT = -1  # until rank 0 has told it; a journal of this attempt belongs nowhere
SAME_STORE_S = 10.0  # a network filesystem may show a new file late


class Follower(Attachment):
    """One rank; `resume` and `resumed` wait for rank 0."""

    def __init__(self, folder: RunFolder, world: RankOfWorld, *, grace_s: float) -> None:
        incarnation = new_id()
        self._scratch, self._live = make_scratch(folder, world.rank, incarnation)
        self._host = os.uname().nodename
        me = identity(folder, UNKNOWN_ATTEMPT, world.rank, incarnation, self._host)
        writer = JournalWriter.create(self._live, me)
        super().__init__(
            folder, writer, attempt=UNKNOWN_ATTEMPT, rank=world.rank, world_size=world.size
        )
        self._world = world
        self._incarnation = incarnation
        self._replicator: Replicator | None = None
        self._store_trouble = ""
        self._grace_ns = int(grace_s * 1e9)
        self._choice_taken = 0
        self._has_sigterm = False
        self._leave_order = meeting.LeaveOrder()
        host = OwnHost(writer.page, None, self._killed)
        host.profiled = self._ask_profile
        self._following = Following(
            writer.page,
            world,
            host,
            me=incarnation,
            run=self.name,
            upkeep=self._upkeep,
            overdue=self._overdue,
        )
        self._following.attach()

    def _ask_profile(self, asked: act.Profile) -> None:
        """Every rank hears of it, and one is meant."""
        if asked.rank == self.rank:
            ask_rank(self.folder, self._live, asked, say)

    @property
    def report_paths(self) -> tuple[Path, ...]:
        """Nowhere as long as this rank does not know its attempt."""
        return () if self.attempt == UNKNOWN_ATTEMPT else super().report_paths

    # --- one choice for all -----------------------------------------------------------------

    def resume(self) -> Resume:
        """Rank 0's choice; waits for it."""
        following = self._following
        meeting.require(following.attach(), self._world)
        waiting = meeting.Waiting(lambda: "rank 0")
        while not (following.leader.is_welcome and self._choice() > following.answered):
            self._check()
            waiting.look()
        self._check()
        says = following.leader.says
        assert says is not None  # noqa: S101 -- it has welcomed us
        self._check_store(RunHolder.from_json(says.holder), says.lease_epoch)
        if self.attempt != says.attempt:
            self.attempt = says.attempt
            self.writer.identify(
                identity(self.folder, self.attempt, self.rank, self._incarnation, self._host)
            )
        self._choice_taken = says.choice
        what = says.set_name, says.set_step, says.set_parent, says.skip_batches
        return Resume(*what, ended_until=says.ended_until)

    def reject(self, resume: Resume, words: str) -> None:
        """Tell rank 0, which chooses again for all."""
        self._following.answer(self._choice_taken, f"{resume.set_name}: {words}")

    def resumed(self, resume: Resume) -> bool:
        """Say that it is read, and wait until every rank has said so."""
        del resume
        following, choice = self._following, self._choice_taken
        following.answer(choice, None)
        waiting = meeting.Waiting(lambda: "the other ranks")
        while not following.has_begun:
            if self._choice() > choice:
                return False
            self._check()
            waiting.look()
        self._adopt()
        home = self.folder.attempt_journal_dir(self.attempt)
        self._replicator = Replicator(self._live, home / self._live.name)
        meeting.close_first()
        return True

    def _adopt(self) -> None:
        """On another host than rank 0's, bring home what earlier attempts left here."""
        says = self._following.leader.says
        if says is not None and says.holder.get("boot_id") != RunHolder.current().boot_id:
            from holdfast.journal.adopt import bring_home

            for sentence in bring_home(self.folder, self._scratch.parent, mine=self._scratch):
                say(sentence)

    def _choice(self) -> int:
        says = self._following.leader.says
        return says.choice if says is not None else 0

    def _check(self) -> None:
        """Raise when rank 0 will not answer."""
        leader: LeaderView = self._following.leader
        if leader.trouble:
            raise ConfigurationError(leader.trouble)
        self._following.check_store()
        says = leader.says
        if says is None or not leader.is_welcome:
            return
        if says.run != self.name:
            raise ConfigurationError(
                f"rank {self.rank} is of run {self.name!r}, and rank 0 of run {says.run!r}: "
                "give all ranks the same name"
            )
        if says.world_size != self.world_size:
            raise ConfigurationError(
                f"rank {self.rank} is one of {self.world_size} ranks, and rank 0 one of "
                f"{says.world_size}: start them alike"
            )
        if says.refusal is not None:
            raise NoGoodCheckpoint(says.refusal)
        if says.closing or self._following.leader_is_dead:
            raise HoldfastError("rank 0 has ended: the run cannot train without it")

    def _check_store(self, holder: RunHolder, epoch: int) -> None:
        """All ranks write into one folder: rank 0's claim of the lease must be in ours."""
        end = time.monotonic() + SAME_STORE_S
        while holder_of(self.folder, epoch) != holder:
            if time.monotonic() > end:
                raise StoreUnavailable(
                    f"rank {self.rank} does not see in {self.folder.path} what rank 0 wrote there: "
                    "all ranks need one run store, on one host or a shared file system"
                )
            time.sleep(0.1)

    # --- the loop ---------------------------------------------------------------------------

    def ready(self, step: int) -> None:
        """Rank 0's conductor knows from which step the attempt starts."""

    def stopping(self) -> bool:
        """Whether a stop is under way, or was asked of this rank."""
        page = self.writer.page
        flags = unpack(page.load(Word.ORDER)).flags
        return bool(
            flags & (Order.STOP | Order.LEAVE)
            or page.load(Word.DEADLINE_AT)
            or self._following.is_stop_asked
        )

    def hurry(self) -> None:
        """Have the mirror look at once."""
        self._following.hurry()

    def watch_sigterm(self) -> None:
        """Beside the handler that was there."""
        signals.install_sigterm(self.on_sigterm, chain=True)

    def on_sigterm(self) -> None:
        """A notice for all ranks: rank 0 is told. The first one counts."""
        if not self._has_sigterm:
            self._has_sigterm = True
            at_ns = now_ns()
            self._stop_asked("SIGTERM to", at_ns, at_ns + self._grace_ns)

    def on_sigint(self) -> None:
        """Ctrl-C: rank 0 is told. The second one is the script's."""
        self._stop_asked("Ctrl-C on", now_ns(), None)

    def _stop_asked(self, how: str, at_ns: int, by_ns: int | None) -> None:
        source = f"{how} rank {self.rank}"
        self._following.stop_asked(ev.StopAsked(at_ns, source, by_ns, notice=by_ns is not None))

    # --- the end ----------------------------------------------------------------------------

    def close(self) -> None:
        """Bring the journal home, say goodbye."""
        page = self.writer.page
        finished = page.load(Word.PHASE) == RankPhase.FINISHED
        stopped = self.stopping()
        self._following.stop()
        self.writer.flush()
        self._bring_home()
        self._say_goodbye(how_it_ended(self))
        super().close()
        meeting.leave_soon(finished, stopped, self.error)

    def _say_goodbye(self, how: Exit) -> None:
        at_ns = now_ns()
        end = ev.RankExited(at_ns, self.attempt, self.rank, at_ns, how)
        self._following.goodbye(end, POST_CLOSE_S)

    def _bring_home(self) -> None:
        try:
            if self._replicator is not None:
                self._replicator.sync(durable=True)
            remove_scratch(self._scratch)
        except (HoldfastError, OSError) as error:
            say(f"{error}; the journal's end is kept in {self._scratch}")

    def _upkeep(self) -> None:
        """Once a second: the journal to the store. Trouble is said once per kind."""
        trouble = ""
        try:
            if self._replicator is not None:
                self._replicator.sync()
        except HoldfastError as error:
            trouble = str(error)
        if trouble and not self._store_trouble:
            say(f"{trouble}; training goes on, its journal is kept on this host meanwhile")
        self._store_trouble = trouble
        if self._leave_order.is_ignored(self.writer.page):
            self._end_now(meeting.STUCK)

    def _overdue(self) -> None:
        """The deadline came, and this rank to no boundary."""
        self._end_now("the deadline came, and the script reached no boundary")

    def _killed(self) -> None:
        self._end_now("rank 0 ends the run")

    def _end_now(self, why: str) -> NoReturn:
        """As SIGTERM does to any other. The main thread may be stuck for good: nothing waits."""
        say(f"rank {self.rank}: {why}: ending it")
        self._bring_home()
        self._say_goodbye(Exit(code=EXIT_SAVED_START_ME_AGAIN, asked_to_stop=True))
        os._exit(EXIT_SAVED_START_ME_AGAIN)
