"""A session without a supervisor: it holds the lease, and a conductor thread plays the controller.

The attempt is created when the choice of a checkpoint is final (at `restore`, or when the loop
begins), so that a set that turns out corrupt costs a sentence and not a restart.
"""

from __future__ import annotations

import contextlib
import functools
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holdfast.core.events import Resume
from holdfast.core.ledger.facts import DONE
from holdfast.core.ledger.kinds import STOPPED
from holdfast.core.run.holding import held_words
from holdfast.core.run.rollback import Rollbacks, wish_words
from holdfast.core.save import agree_events as news
from holdfast.core.save.policy import SavePolicy
from holdfast.core.save.saving import Saving
from holdfast.errors import (
    EXIT_DONE,
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_USER_FAILURE,
    ConfigurationError,
    DeclaredFailure,
    HoldfastError,
    Stop,
)
from holdfast.journal.attempts import AttemptEnd, create_attempt, end_attempt, next_number
from holdfast.journal.clocks import CLOCK_ID, now_ns
from holdfast.journal.control import ControlInbox
from holdfast.journal.layout import NoteType, Phase
from holdfast.journal.lease import HEARTBEAT_S, LastWords, Lease, acquire
from holdfast.journal.names import new_id
from holdfast.journal.rollbacks import clear_settled, standing_wishes
from holdfast.journal.scratch import make_scratch, remove_scratch
from holdfast.journal.store import RunFolder
from holdfast.journal.writer import JournalWriter
from holdfast.session import signals
from holdfast.session.attachment import Attachment, identity
from holdfast.session.boundary import say
from holdfast.session.channel import find_world
from holdfast.session.conductor import Conductor, Duties, Others
from holdfast.snapshot.keep import Keep

if TYPE_CHECKING:
    from holdfast.journal.replicate import Replicator
    from holdfast.snapshot.catalog import Catalog

HEARTBEAT_NS = int(HEARTBEAT_S * 1e9)
_EXIT_CODES = {
    DONE: EXIT_DONE,
    "stopped": EXIT_SAVED_START_ME_AGAIN,
    "preempted": EXIT_SAVED_START_ME_AGAIN,
}


class Alone(Attachment):
    """The only process of its run."""

    def __init__(
        self,
        folder: RunFolder,
        *,
        policy: SavePolicy,
        keep: Keep,
        grace_s: float,
        hold_s: float,
        chips: int,
        world_size: int = 1,
    ) -> None:
        self._lease: Lease = acquire(folder, on_wait=say)
        attempt = next_number(folder)
        self._incarnation = incarnation = new_id()
        self._scratch, live = make_scratch(folder, 0, incarnation)
        host = os.uname().nodename
        writer = JournalWriter.create(live, identity(folder, attempt, 0, incarnation, host))
        super().__init__(folder, writer, attempt=attempt, world_size=world_size, keep=keep)
        self._grace_ns = int(grace_s * 1e9)
        self._hold_ns = int(hold_s * 1e9)
        self._is_held = False
        self._chips = chips
        self._live = live
        self._renewed_ns = now_ns()
        self._adopted = False
        self._created = False
        self._rollbacks = Rollbacks()
        self._saved = False  # since the journal was last made durable
        self._store_trouble = ""
        self._ending: tuple[str, str] | None = None
        self._is_stopped_by_person = False
        self._keep: Keep = keep
        self._conductor = Conductor(
            writer.words,
            self._saving(policy),
            Duties(
                commit=self._commit,
                confirm=self._confirm,
                upkeep=self._upkeep,
                note_stop=self._note_stop,
                overdue=self._overdue,
                make_room=self._make_room,
                hold=self._hold,
            ),
            self._meet(),
        )
        self._inbox = ControlInbox(folder, self._lease.epoch)
        self._conductor.start()

    def _saving(self, policy: SavePolicy) -> Saving:
        return Saving(1, policy, hold_ns=self._hold_ns)

    def _meet(self) -> Others:
        """The other ranks, of which there are none."""
        return Others()

    # Both pull in numpy: not before somebody needs them, so that `start` stays quick.

    @functools.cached_property
    def _catalog(self) -> Catalog:
        from holdfast.snapshot.catalog import Catalog

        return Catalog(self.folder, lease=self._lease)

    @functools.cached_property
    def _replicator(self) -> Replicator:
        from holdfast.journal.replicate import Replicator

        place = self.folder.attempt_journal_dir(self.attempt)
        return Replicator(self._live, place / self._live.name)

    def resume(self) -> tuple[Resume, str]:
        """The newest set that can be trusted; first what earlier processes left is taken over."""
        world = find_world()
        if world.size != self.world_size:
            raise ConfigurationError(
                f"this is rank {world.rank} of {world.size} by {world.source}, and holdfast.start "
                f"was called when it was one of {self.world_size}: set RANK and WORLD_SIZE for the "
                "script, or call holdfast.start after the framework is initialised"
            )
        if not self._adopted:
            from holdfast.journal.adopt import adopt

            self._adopted = True
            for sentence in adopt(self.folder, self._scratch.parent, mine=self._scratch):
                say(sentence)
        self._rollbacks.add(standing_wishes(self.folder))
        wish, _ = self._rollbacks.take_up()
        if told := self._catalog.tidy():
            say(told)
        self._chosen, words = self._catalog.choose(wish)
        if wish is not None:
            say(f"{wish_words(wish)}; {words}")
        return self._chosen, words

    def reject(self, resume: Resume, words: str) -> None:
        """Look at an older one."""
        if resume.set_name is not None:
            self._catalog.reject(resume.set_name, words)

    def resumed(self, resume: Resume) -> bool:
        """Create the attempt, whose place in the lineage is now known."""
        self._chosen = resume
        _, rollback = self._rollbacks.settle()
        create_attempt(
            self.folder,
            self.attempt,
            parent=resume.parent,
            resume_step=resume.step,
            restore_set=resume.set_name,
            epoch=self._lease.epoch,
            ranks=self.world_size,
            chips=self._chips,
            incarnation=self._incarnation,
            command=_command_line(),
            skip_batches=resume.skip_batches,
            rollback=rollback,
        )
        if rollback is not None:
            clear_settled(self.folder)
        self._created = True
        requested_ns = self.folder.identity.requested_ns()
        self._fact(fact="run", name=self.name, requested_ns=requested_ns, chips=self._chips)
        self._fact(fact="attempt_start", attempt=self.attempt, at_ns=_process_started_ns())
        return True

    def ready(self, step: int) -> None:
        """Start conducting."""
        self._conductor.conduct(step)

    def stopping(self) -> bool:
        """Whether somebody sent a signal."""
        return self._conductor.stop_asked is not None

    def hurry(self) -> None:
        """Have the conductor look at once."""
        self._conductor.hurry()

    def watch_sigterm(self) -> None:
        """Beside the handler that was there."""
        signals.install_sigterm(self.on_sigterm, chain=True)

    def on_sigterm(self) -> None:
        """A notice: there is as much time as the grace period."""
        self._conductor.ask_stop("SIGTERM", now_ns() + self._grace_ns)

    def on_sigint(self) -> None:
        """Ctrl-C: save and stop; take your time."""
        self._stopped_by_person()
        self._conductor.ask_stop("Ctrl-C", None)

    def _stopped_by_person(self) -> None:
        """They start it again when they like; no matter, where a notice came first."""
        self._is_stopped_by_person |= self._conductor.stop_asked is None

    def failed(self, error: BaseException) -> None:
        """Remember why the process ends."""
        super().failed(error)
        is_declared = isinstance(error, DeclaredFailure)
        self._ending = ("failed", str(error) if is_declared else f"{type(error).__name__}: {error}")

    def give_up(self, failure: DeclaredFailure, to: int | str | None, skip_batches: int) -> None:
        """As any rank; before the attempt has begun there is nothing to go back from."""
        if not self._created:
            to, skip_batches = None, 0
        super().give_up(failure, to, skip_batches)

    def close(self) -> None:
        """Say how it ended, bring the journal home, give the run back."""
        self._conductor.close()
        cause, words = self._ending or self._how_it_ended()
        self._record_end(cause)
        self.writer.flush()
        self._bring_home(cause, words)
        super().close()
        self._give_back(cause, words)

    def _give_back(self, cause: str, words: str) -> None:
        code = _EXIT_CODES.get(cause, EXIT_USER_FAILURE)
        with contextlib.suppress(HoldfastError, OSError):
            self._lease.release(LastWords(code, words) if self._created else None)

    def _record_end(self, cause: str) -> None:
        """For the ledger: the run is over, and who ended it may take their time."""
        at_ns = now_ns()
        if self._created:
            self._fact(fact="attempt_end", attempt=self.attempt, at_ns=at_ns, cause=cause)
            self._fact(fact="run_end", at_ns=at_ns)
            if self._is_stopped_by_person and cause != DONE:
                self._fact(fact="wait", kind=STOPPED, start_ns=at_ns, end_ns=None)

    def _bring_home(self, cause: str, words: str) -> None:
        try:
            if self._created:
                self._replicator.sync(durable=True)
                end = AttemptEnd(cause, words, (None,) * self.world_size, time.time_ns())
                end_attempt(self.folder, self.attempt, end)
            remove_scratch(self._scratch)
        except (HoldfastError, OSError) as error:
            say(f"{error}; the journal's end is kept in {self._scratch}")

    def _how_it_ended(self) -> tuple[str, str]:
        if self.writer.words.snapshot().phase is Phase.FINISHED:
            return DONE, "done"
        asked = self._conductor.stop_asked
        if asked is not None:
            source, deadline_ns = asked
            cause = "stopped" if deadline_ns is None else "preempted"
            return cause, f"{source}: {Stop().reason}"
        return "failed", "the script ended before its last step was done"

    # --- the conductor's duties ---------------------------------------------------------------

    def _commit(self, step: int) -> None:
        self._lease.check()
        self._catalog.commit(self.attempt, step, self.world_size)

    def _confirm(self) -> None:
        self._lease.check()
        self._catalog.pin_tagged()
        self._saved = True
        try:
            self._catalog.collect(self._keep, self._in_use)
        except HoldfastError as error:
            say(f"Old checkpoints could not be removed: {error}")

    @property
    def _in_use(self) -> set[str]:
        return {self._chosen.set_name} if self._chosen.set_name else set()

    def _make_room(self) -> None:
        with contextlib.suppress(HoldfastError):  # that the store is in trouble was told
            if told := self._catalog.make_room(self._keep, self._in_use):
                say(told)

    def _hold(self, held: news.Hold) -> None:
        """Say it once."""
        if not self._is_held:
            self._is_held = True
            words = held_words(held.step, held.why, held.until_ns - held.at_ns, in_memory=False)
            say(words)
            self._fact(fact="saving", at_ns=held.at_ns, words=words)

    def _upkeep(self) -> None:
        """Once a second: journal to the store, sign of life. Trouble is said once per kind."""
        self.writer.seen()
        trouble = ""
        try:
            if self._created:
                # After a save: that is rare, and the disk has just been waited for anyway.
                self._replicator.sync(durable=self._saved)
                self._saved = False
            if now_ns() - self._renewed_ns > HEARTBEAT_NS:
                self._lease.renew()
                self._renewed_ns = now_ns()
            self._obey()
        except HoldfastError as error:
            trouble = str(error)
        if trouble and not self._store_trouble:
            say(f"{trouble}; training goes on, and the journal is kept on this host meanwhile")
        self._store_trouble = trouble

    def _obey(self) -> None:
        """What people asked for through the store; raises StoreUnavailable."""
        taken = self._inbox.take()
        for words in taken.ignored:
            say(words)
        for asked in taken.requests:
            who = f"holdfast {asked.verb} by {asked.sender}"
            if asked.verb == "save":
                self._conductor.ask_save(who)
            elif asked.verb == "rollback":
                say(f"{who}: this process trains on; the next start of the script goes back")
            elif asked.args["now"]:
                self._stopped_by_person()
                self._conductor.ask_stop(who, None)
                self._end_now(who)
            else:
                grace_s = asked.args["grace_s"]
                until_ns = None if grace_s is None else now_ns() + int(grace_s * 1e9)
                self._stopped_by_person()
                self._conductor.ask_stop(who, until_ns)

    def _note_stop(self, source: str, deadline_ns: int | None) -> None:
        say(f"{source}: saving at the next step, then stopping")
        if deadline_ns is not None:
            self._fact(fact="notice", at_ns=now_ns(), deadline_ns=deadline_ns, source=source)

    def _overdue(self) -> None:
        """The deadline came, and the script to no boundary: end it, as SIGTERM does to any other.

        The main thread may be stuck for good: nothing waits for it.
        """
        self._end_now("the deadline came, and the script reached no boundary")

    def _end_now(self, why: str) -> None:
        say(f"{why}: ending it")
        cause, words = self._how_it_ended()
        self._record_end(cause)
        self.writer.flush_for_owner()
        self._bring_home(cause, words)
        self._give_back(cause, words)
        os._exit(EXIT_SAVED_START_ME_AGAIN)

    def _fact(self, **payload: Any) -> None:
        self.writer.note(NoteType.FACT, payload)


def _process_started_ns() -> int:
    """When this process began (proc(5), field 22): its imports are part of the attempt."""
    try:
        fields = Path("/proc/self/stat").read_bytes().rpartition(b")")[2].split()
        return int(fields[19]) * 1_000_000_000 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError):
        return time.clock_gettime_ns(CLOCK_ID)


def _command_line() -> tuple[str, ...]:
    try:
        return tuple(
            word.decode(errors="replace")
            for word in Path("/proc/self/cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        )
    except OSError:
        return ()
