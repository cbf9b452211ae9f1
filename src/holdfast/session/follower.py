"""A rank other than 0 of several ranks that nobody supervises: it follows what rank 0 decides.

A helper thread mirrors this rank's words to rank 0, and rank 0's into this rank's page. To the
training that page looks as it does under a supervisor.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NoReturn

from holdfast.core.events import Resume
from holdfast.core.save.word import Order, unpack
from holdfast.errors import (
    EXIT_SAVED_START_ME_AGAIN,
    ConfigurationError,
    DeclaredFailure,
    HoldfastError,
    NoGoodCheckpoint,
    StoreUnavailable,
)
from holdfast.journal.clocks import now_ns
from holdfast.journal.holder import Holder
from holdfast.journal.layout import Phase, Word
from holdfast.journal.lease import holder_of
from holdfast.journal.names import new_id
from holdfast.journal.replicate import Replicator
from holdfast.journal.scratch import make_scratch, remove_scratch
from holdfast.journal.store import RunFolder
from holdfast.journal.writer import JournalWriter
from holdfast.session import meeting, signals
from holdfast.session.attachment import Attachment, identity
from holdfast.session.boundary import say
from holdfast.session.channel import World
from holdfast.session.mirror import Mirror
from holdfast.session.roster import LeaderView

UNKNOWN_ATTEMPT = -1  # until rank 0 has told it; a journal of this attempt belongs nowhere
SAME_STORE_S = 10.0  # a network filesystem may show a new file late


class Follower(Attachment):
    """One rank; `resume` and `resumed` wait for rank 0."""

    def __init__(self, folder: RunFolder, world: World, *, grace_s: float) -> None:
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
        self._left = ""
        self._choice_taken = 0
        self._told_to_leave = meeting.ToldToLeave()
        self._mirror = Mirror(
            writer.words,
            world,
            me=incarnation,
            run=self.name,
            grace_ns=int(grace_s * 1e9),
            upkeep=self._upkeep,
            overdue=self._overdue,
        )
        self._mirror.attach()

    @property
    def report_paths(self) -> tuple[Path, ...]:
        """Nowhere as long as this rank does not know its attempt."""
        return () if self.attempt == UNKNOWN_ATTEMPT else super().report_paths

    # --- one choice for all -----------------------------------------------------------------

    def resume(self) -> tuple[Resume, str]:
        """Rank 0's choice; waits for it."""
        mirror = self._mirror
        meeting.require(mirror.attach(), self._world)
        waiting = meeting.Waiting(lambda: "rank 0")
        while not (mirror.leader.is_welcome and self._choice() > mirror.answered):
            self._check()
            waiting.look()
        self._check()
        says = mirror.leader.says
        assert says is not None  # noqa: S101 -- it has welcomed us
        self._check_store(Holder.from_json(says.holder), says.lease_epoch)
        if self.attempt != says.attempt:
            self.attempt = says.attempt
            self.writer.identify(
                identity(self.folder, self.attempt, self.rank, self._incarnation, self._host)
            )
        self._choice_taken = says.choice
        resume = Resume(says.set_name, says.set_step, says.set_parent, says.skip_batches)
        return resume, "chosen by rank 0"

    def reject(self, resume: Resume, words: str) -> None:
        """Tell rank 0, which chooses again for all."""
        self._mirror.answer(self._choice_taken, f"{resume.set_name}: {words}")

    def resumed(self, resume: Resume) -> bool:
        """Say that it is read, and wait until every rank has said so."""
        del resume
        mirror, choice = self._mirror, self._choice_taken
        mirror.answer(choice, None)
        waiting = meeting.Waiting(lambda: "the other ranks")
        while self._begun() < choice:
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
        says = self._mirror.leader.says
        if says is not None and says.holder.get("boot_id") != Holder.current().boot_id:
            from holdfast.journal.adopt import bring_home

            for sentence in bring_home(self.folder, self._scratch.parent, mine=self._scratch):
                say(sentence)

    def _choice(self) -> int:
        says = self._mirror.leader.says
        return says.choice if says is not None else 0

    def _begun(self) -> int:
        says = self._mirror.leader.says
        return says.begun if says is not None else 0

    def _check(self) -> None:
        """Raise when rank 0 will not answer."""
        leader: LeaderView = self._mirror.leader
        if leader.trouble:
            raise ConfigurationError(leader.trouble)
        self._mirror.check_store()
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
        if says.closing or self._mirror.leader_is_dead:
            raise HoldfastError("rank 0 has ended: the run cannot train without it")

    def _check_store(self, holder: Holder, epoch: int) -> None:
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
        words = self.writer.words
        flags = unpack(words.load(Word.ORDER)).flags
        return bool(
            flags & (Order.STOP | Order.LEAVE)
            or words.load(Word.DEADLINE_AT)
            or self._mirror.is_stop_asked
        )

    def hurry(self) -> None:
        """Have the mirror look at once."""
        self._mirror.hurry()

    def watch_sigterm(self) -> None:
        """Beside the handler that was there."""
        signals.install_sigterm(self.on_sigterm, chain=True)

    def on_sigterm(self) -> None:
        """A notice for all ranks: rank 0 is told."""
        self._mirror.on_sigterm(now_ns())

    def on_sigint(self) -> None:
        """Ctrl-C: rank 0 is told."""
        self._mirror.on_sigint()

    # --- the end ----------------------------------------------------------------------------

    def failed(self, error: BaseException) -> None:
        """Remember why the process ends, and tell rank 0 at the end."""
        super().failed(error)
        is_declared = isinstance(error, DeclaredFailure)
        self._left = str(error) if is_declared else f"{type(error).__name__}: {error}"

    def close(self) -> None:
        """Bring the journal home, say goodbye."""
        words = self.writer.words
        finished = words.load(Word.PHASE) == Phase.FINISHED
        stopped = self.stopping()
        if not self._left and not finished and not stopped:
            self._left = "the script ended before its last step was done"
        self._mirror.stop()
        self.writer.flush()
        self._bring_home()
        self._mirror.goodbye(self._left, meeting.POST_CLOSE_S)
        super().close()
        meeting.leave_soon(finished, stopped, self.error)

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
            say(f"{trouble}; training goes on, and the journal is kept on this host meanwhile")
        self._store_trouble = trouble
        if self._told_to_leave.is_ignored(self.writer.words):
            self._end_now(meeting.STUCK)

    def _overdue(self) -> None:
        """The deadline came, and this rank to no boundary: as `Alone` does."""
        self._end_now("the deadline came, and the script reached no boundary")

    def _end_now(self, why: str) -> NoReturn:
        say(f"rank {self.rank}: {why}: ending it")
        self._bring_home()
        self._mirror.goodbye("", meeting.POST_CLOSE_S)
        os._exit(EXIT_SAVED_START_ME_AGAIN)
