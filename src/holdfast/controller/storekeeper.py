"""What the controller wants of the run store, done by one worker thread, in order.

What cannot be undone takes three steps: put it in the store, look at the lease again, do it. So a
set is told as durable, and gives reason to delete older ones, only when nobody had taken over the
run after its manifest was written; else the successor may have chosen without it. (Deleting has its
own three steps: `snapshot.removal`.)
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.controller.worker import Worker, foreseen
from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.exits import HISTORY_CAUSE, ExitCause
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.hosts.placement import Placement
from holdfast.core.run.rollback import Wish
from holdfast.core.save import events as news
from holdfast.core.save.choose import SealedSet, TrainingEnd
from holdfast.core.value import value
from holdfast.errors import (
    EXIT_SAVED_START_ME_AGAIN,
    AttemptExists,
    HoldfastError,
    RunHeld,
    StoreUnavailable,
)
from holdfast.journal.adopt import close_attempts
from holdfast.journal.attempts import (
    AttemptEnd,
    adopt_attempt,
    attempts,
    create_attempt,
    end_attempt,
    end_training,
)
from holdfast.journal.clocks import now_ns
from holdfast.journal.incidents import (
    stacks_name,
    story_of,
    write_incident,
    write_restart,
    write_stacks,
)
from holdfast.journal.rollbacks import clear_settled, leave_wish
from holdfast.journal.store import RunFolder
from holdfast.snapshot.catalog import Catalog
from holdfast.snapshot.compared import RankComparison
from holdfast.snapshot.keep import Keep, read_keep
from holdfast.snapshot.names import set_name
from holdfast.snapshot.removal import Held

LOOK_AGAIN_S = 1.0
TOO_LATE = "the run was over before the run store had taken this attempt"
LATE = (
    "attempt {} was created by a supervisor that had lost the run and did not know it yet: start "
    "it again, which ends what that one has left running"
)
Later = Callable[[Callable[[], None]], None]


@value
class AttemptFacts:
    """What the record of each attempt of this supervisor says."""

    chips: int = 1
    incarnation: str = ""
    command: tuple[str, ...] = ()


class Storekeeper:
    """Methods return at once; what comes of them is fed to the run's machine through `later`."""

    def __init__(
        self,
        folder: RunFolder,
        lease: Held,
        keep: Keep,
        facts: AttemptFacts,
        *,
        memory: Path | None = None,
        later: Later,
        feed: Callable[[ev.Event], None],
        say: Callable[[str], None],
        lost: Callable[[str], None] | None = None,
        chips_of: Callable[[Placement], int] | None = None,
    ) -> None:
        """`lost(words)`: somebody else holds the run's lease; called from the worker's thread.

        None: it is nothing to a run that goes on without one. `chips_of`: how many the hosts of an
        attempt have; None: as `facts` say.
        """
        self._folder = folder
        self._lease = lease
        self._keep = keep
        self._facts = facts
        self._chips_of = chips_of or (lambda _: facts.chips)
        self._catalog = Catalog(folder, memory, lease)
        self._in_use: set[str] = set()  # that attempts restore
        self._unheard: set[int] = set()  # attempts on record that the loop has not heard of
        self._adopted: tuple[int, int] | None = None  # an attempt, and as which number
        self._inherited: int | None = None
        self._flushing: str | None = None  # the set that is on its way from memory to the store
        self._later = later
        self._feed = feed
        self._say = say
        self._lost = lost
        self._unrecorded: deque[tuple[int, Callable[[], None]]] = deque()
        self._worker = Worker("holdfast-store", self._job_failed)

    def inherit(self, attempt: int) -> None:
        """Adopt or close that attempt: an earlier controller has launched it, nobody ended it."""
        self._inherited = attempt

    def look(self, wish: Wish | None, sealed: tuple[SealedSet, ...] | None = None) -> None:
        """Complete whole sets, then see which there are: SetsSeen or ChoiceFailed follows."""

        def job() -> None:
            self._record_ends()
            try:
                with foreseen():
                    self._close_inherited()
                    self._tidy()
                    seen = self._catalog.look(wish, sealed)
            except HoldfastError as error:
                is_away = isinstance(error, StoreUnavailable) and not isinstance(error, RunHeld)
                self._tell(ev.ChoiceFailed(now_ns(), error.exit_code, str(error), is_away))
            else:
                self._in_use = {one.name for one in seen.stored}  # any may be chosen
                self._tell(ev.SetsSeen(now_ns(), seen))

        self._worker.submit(job)

    def _tidy(self, older_than: tuple[int, int] | None = None) -> None:
        """Complete whole sets, remove those that never will be; raises as `Catalog.tidy`."""
        in_use = [self._flushing] if self._flushing is not None else []
        if problem := self._catalog.tidy(in_use, older_than):
            self._say(problem)

    def create_attempt(self, action: act.Launch, created: Callable[[], None]) -> None:
        """Put the attempt on record, then `created` in the loop; LaunchFailed if fenced off."""
        chips = self._chips_of(action.placement)

        def heard() -> None:
            self._unheard.discard(action.attempt)
            created()

        def job() -> None:
            self._in_use = {action.resume.set_name} if action.resume.set_name else set()
            try:
                with foreseen():
                    self._lease.check()
                    create_attempt(
                        self._folder,
                        action.attempt,
                        parent=action.resume.parent,
                        resume_step=action.resume.step,
                        restore_set=action.resume.set_name,
                        skip_batches=action.resume.skip_batches,
                        from_memory=action.resume.buffer is not None,
                        rollback=action.rollback,
                        epoch=self._lease.epoch,
                        ranks=action.placement.ranks,
                        hosts=tuple(sorted(set(action.placement.hosts))),
                        chips=chips,
                        incarnation=self._facts.incarnation,
                        command=self._facts.command,
                    )
            except HoldfastError as error:
                code, words = self._not_created(action.attempt, error)
                failed = ev.LaunchFailed(now_ns(), action.attempt, code, words)
                self._tell(failed, ev.TreeGone(now_ns(), action.attempt))
            else:
                self._unheard.add(action.attempt)
                self._later(heard)
                if action.rollback is not None:
                    clear_settled(self._folder)

        self._worker.submit(job)

    def _not_created(self, attempt: int, error: HoldfastError) -> tuple[int, str]:
        """The exit code, and the words.

        A number that is taken while the run is ours was taken by a supervisor that had lost it and
        woke up late. What that has left running may run here, and only a start ends such processes.
        """
        if isinstance(error, AttemptExists) and self._lost is not None:
            with contextlib.suppress(StoreUnavailable):  # whose the run is, nobody knows: not ours
                self._lease.check()
                return EXIT_SAVED_START_ME_AGAIN, LATE.format(attempt)
        return error.exit_code, str(error)

    def adopt(self, action: act.Adopt, adopted: Callable[[int], None]) -> None:
        """Put that on record, then complete whole sets; then `adopted(step)` in the loop."""

        def job(*, is_first: bool = True) -> None:
            try:
                with foreseen():
                    self._lease.check()
                    if self._adopted is None:
                        adopt_attempt(
                            self._folder, action.number, action.attempt, self._lease.epoch
                        )
                        self._adopted, self._inherited = (action.attempt, action.number), None
                    step = self._catalog.complete()
            except StoreUnavailable as error:
                if not isinstance(error, RunHeld):
                    if is_first:
                        self._say(f"Attempt {action.attempt} does not go on yet: {error}")
                    self._again(partial(job, is_first=False))
                    return
                failed(error)
            except HoldfastError as error:
                failed(error)
            else:
                restored = action.resume.set_name
                self._in_use = set() if restored is None else {restored}
                self._later(lambda: adopted(step))

        def failed(error: HoldfastError) -> None:
            code, words = self._not_created(action.number, error)
            failed = ev.LaunchFailed(now_ns(), action.attempt, code, words)
            self._tell(failed, ev.TreeGone(now_ns(), action.attempt))

        self._worker.submit(job)

    def _again(self, job: Callable[[], None]) -> None:
        timer = threading.Timer(LOOK_AGAIN_S, partial(self._worker.submit, job))
        timer.daemon = True
        timer.start()

    def _close_inherited(self) -> None:
        """Nothing goes on of what an earlier controller had launched."""
        inherited, folder = self._inherited, self._folder
        if inherited is None:
            return
        if all(record.attempt != inherited for record in attempts(folder).records):
            raise StoreUnavailable(
                f"attempt {inherited} is not in {folder.path} (any more); "
                "check that the store is mounted"
            )
        for sentence in close_attempts(folder):
            self._say(sentence)
        self._inherited = None

    def commit(self, attempt: int, epoch: int, step: int, ranks: int) -> None:
        """Write the manifest; then throw away what retention does not keep."""

        def answer(why: str) -> ev.Event:
            at_ns, of = now_ns(), (epoch, step)
            outcome = news.CommitFailed(at_ns, *of, why) if why else news.Committed(at_ns, *of)
            return ev.Heard(at_ns, attempt, outcome)

        self._commit(attempt, step, ranks, answer)

    def make_room(self, attempt: int, step: int) -> None:
        """The store did not take that step: delete now what is of no use once it had.

        Nothing is said of a store that does not allow that either: the failed save was told.
        """

        def job() -> None:
            with contextlib.suppress(HoldfastError):
                self._tidy((attempt, step))
                if problem := self._catalog.make_room(self._keep_of(attempt), self._in_use):
                    self._say(problem)

        self._worker.submit(job)

    def protect(self, of: tuple[int, int] | None) -> None:
        """Leave alone the set that is being written from memory; None: none is any more."""
        self._flushing = None if of is None else set_name(*of)

    def keep_compared(self, step: int | None) -> None:
        """Whatever retention says: it is what the run goes back to where its replicas differ."""
        self._catalog.compared_step = step

    def keep_wish(self, wish: Wish) -> None:
        """In `control/`, as what a person asks for."""

        def job() -> None:
            try:
                self._lease.check()
                leave_wish(self._folder, wish)
            except HoldfastError as error:
                self._say(f"A later start may not go back by itself ({wish.words}): {error}")

        self._worker.submit(job)

    def commit_flushed(self, action: act.CommitFlushed) -> None:
        """The same for a set that was taken from memory to the store."""
        of = (action.attempt, action.epoch, action.step)

        def outcome(why: str) -> ev.Event:
            at_ns = now_ns()
            return ev.FlushCommitFailed(at_ns, *of, why) if why else ev.FlushCommitted(at_ns, *of)

        self._commit(action.attempt, action.step, action.of_ranks, outcome)

    def _commit(
        self, attempt: int, step: int, world_size: int, outcome: Callable[[str], ev.Event]
    ) -> None:
        """`outcome(why)`: the event that tells it; `why` is empty when the set is durable."""

        def job() -> None:
            try:
                with foreseen():
                    self._lease.check()
                    found = self._catalog.commit(attempt, step, world_size)
            except HoldfastError as error:
                failed(error)
            else:
                look_again(found)

        def look_again(found: RankComparison, *, is_first: bool = True) -> None:
            try:
                self._lease.check()
            except RunHeld as error:
                failed(error)
                return
            except StoreUnavailable as error:  # whose the run is now, nobody knows: wait
                if is_first:
                    self._say(f"The checkpoint of step {step} does not count yet: {error}")
                self._again(partial(look_again, found, is_first=False))
                return
            self._catalog.pin_tagged()
            if found.is_made:
                self._tell(ev.Compared(now_ns(), attempt, step, found.differing))
            self._tell(outcome(""))
            self._drop_partial((attempt, step))
            self._collect(attempt)

        def failed(error: HoldfastError) -> None:
            is_lost = isinstance(error, RunHeld)
            if is_lost and self._lost is not None:  # no verdict: that is the other supervisor's now
                self._lost(str(error))
                return
            if not is_lost:  # upkeep tells that once
                self._say(f"The checkpoint of step {step} could not be completed: {error}")
            self._tell(outcome(str(error)))

        self._worker.submit(job)

    def _collect(self, attempt: int) -> None:
        try:
            self._catalog.collect(self._keep_of(attempt), self._in_use)
        except HoldfastError as error:
            self._say(f"Old checkpoints could not be removed: {error}")

    def _keep_of(self, attempt: int) -> Keep:
        """The script's own wish (it knows its checkpoints), else the command line's."""
        return read_keep(self._folder.ranks_dir(attempt) / "keep.json") or self._keep

    def end_training(self, action: act.EndTraining) -> None:
        """Put on record that the script ended its training before its last step."""
        end = TrainingEnd(action.step, action.until)
        self._record(action.attempt, lambda: end_training(self._folder, action.attempt, end))

    def end_attempt(self, action: act.EndAttempt, ended: Sequence[RankEvidence]) -> None:
        """Record how an attempt ended, and its incident, with the stacks of ranks that hung."""
        end = AttemptEnd(
            action.cause,
            action.words,
            tuple(one.code for one in ended),
            time.time_ns(),
            restart_after_ns=action.restart.delay_ns if action.restart else None,
            alike=action.restart.alike if action.restart else 0,
            own_signature=action.own_signature,
        )

        def record() -> None:
            if action.is_incident:
                stacks = {one.rank: one.stacks for one in ended if one.stacks}
                write_stacks(self._folder, action.attempt, stacks)
                write_incident(self._folder, action.attempt, _incident(action, ended))
            number = action.attempt
            if self._adopted is not None and self._adopted[0] == number:
                number = self._adopted[1]
            end_attempt(self._folder, number, end)

        self._record(action.attempt, record)

    def _record(self, attempt: int, record: Callable[[], None]) -> None:
        self._unrecorded.append((attempt, record))
        self._worker.submit(self._record_ends)

    def note_restart(self, attempt: int, story: Mapping[str, Any]) -> None:
        """Put on record how the restart after an attempt went."""

        def job() -> None:
            with contextlib.suppress(StoreUnavailable):  # nothing depends on it
                write_restart(self._folder, attempt, story)

        self._worker.submit(job)

    def _record_ends(self) -> None:
        """What a store that was away has not taken is tried again with whatever comes next."""
        while self._unrecorded:
            attempt, record = self._unrecorded[0]
            try:
                record()
            except HoldfastError as error:
                self._say(f"The end of attempt {attempt} could not be recorded yet: {error}")
                return
            self._unrecorded.popleft()

    def close(self, limit_s: float, *, is_done: bool) -> bool:
        """Finish what was asked for; False when the store does not answer in time."""
        if self._unrecorded:
            self._worker.submit(self._record_ends)
        self._worker.submit(self._end_unheard)
        if is_done:  # a flush that was under way is cut off, and no later start would remove it
            self._flushing = None
            self._worker.submit(self._drop_partial)
        return self._worker.close(limit_s)

    def _end_unheard(self) -> None:
        """The store was slow: what it took when the run was over already never began."""
        cause = HISTORY_CAUSE[ExitCause.STOPPED]
        for attempt in sorted(self._unheard):
            with contextlib.suppress(HoldfastError):  # else the next start closes it
                end_attempt(self._folder, attempt, AttemptEnd(cause, TOO_LATE, (), time.time_ns()))

    def _drop_partial(self, older_than: tuple[int, int] | None = None) -> None:
        """What is older than a durable step and not complete is of no use any more.

        Where one rank could not write its shard, the shards of the others would take up room.
        """
        try:
            self._tidy(older_than)
        except HoldfastError as error:
            self._say(f"Incomplete checkpoints could not be removed: {error}")

    def _tell(self, *events: ev.Event) -> None:
        def feed_all() -> None:
            for event in events:
                self._feed(event)

        self._later(feed_all)

    def _job_failed(self, error: BaseException) -> None:
        self._say(f"Internal error in the store worker: {error!r}")


def _incident(action: act.EndAttempt, ended: Sequence[RankEvidence]) -> dict[str, Any]:
    """The story of a disruption; where it is nobody's in particular, the first rank tells it."""
    by_rank = {one.rank: one for one in ended}
    rank = action.rank if action.rank is not None else min(by_rank, default=0)
    one = by_rank.get(rank, RankEvidence(rank))
    return story_of(
        action.attempt,
        action.cause,
        action.words,
        exits=[each.code for each in ended],
        rank=action.rank,
        last_lines=one.last_lines,
        traceback=one.traceback,
        stacks=[stacks_name(each.rank) for each in ended if each.stacks],
        where=one.where if action.cause == ExitCause.HANG else "",
    )
