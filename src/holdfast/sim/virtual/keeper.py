"""What a virtual controller wants of its run's store: `controller.storekeeper` in miniature.

One worker, in order, as fast or as slow as the world's delays say; what comes of a job is heard
when the loop comes round.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.hosts.evidence import RankEvidence
from holdfast.core.run.rollback import Wish
from holdfast.core.save import events as news
from holdfast.core.save.choose import SealedSet, TrainingEnd
from holdfast.errors import EXIT_SAVED_START_ME_AGAIN, EXIT_UNAVAILABLE
from holdfast.journal.attempts import AttemptEnd, AttemptRecord
from holdfast.sim.clock import SECOND
from holdfast.sim.virtual.loop import Source
from holdfast.sim.virtual.shared import Shared
from holdfast.snapshot.sets import set_name

FREE_CAUSES = ("done", "stopped", "preempted", "rolled_back")  # ends that are no failures


class VirtualKeeper:
    """A `controller.ports.Store` over the store that a world shares with others."""

    def __init__(self, world: Shared) -> None:
        self._world = world
        self._store = world.store
        self._launch: act.Launch | None = None
        self._jobs: deque[Callable[[bool], None]] = deque()
        self._under_way = 0  # the job of the worker, and the looks that it waits for
        self._is_collecting = False

    # --- controller.ports.Store -------------------------------------------------------------

    def look(self, wish: Wish | None, _: tuple[SealedSet, ...] | None = None) -> None:
        """Complete whole sets, then see which there are; the hosts' memory is the world's."""
        world, store = self._world, self._store

        def job(_: bool) -> None:
            if not store.is_away and not store.is_full:
                store.complete()
            if store.is_away:
                words = "the run store cannot be read"
                self._tell(ev.ChoiceFailed(world.now_ns, EXIT_UNAVAILABLE, words, is_away=True))
                return
            world.watch.sees(world, wish)
            self._tell(ev.SetsSeen(world.now_ns, store.seen(world.memory)))

        self._in_order(job)

    def create_attempt(self, action: act.Launch, created: Callable[[], None]) -> None:
        """Put the attempt on record: its number is the fence."""
        world, store, resume = self._world, self._store, action.resume
        self._launch = action
        world.launches.append(action)
        world.memory.launch(action.attempt, resume.buffer, (resume.parent, resume.step))

        def heard() -> None:
            if not world.is_over:
                created()
            elif world.died_ns is None:  # it never began, and that is on record
                words = "the run was over before the run store had taken this attempt"
                end = act.EndAttempt(action.attempt, "stopped", words, None, is_incident=False)
                world.ends.append(end)

        def job(is_ours: bool) -> None:
            if store.is_hung:
                store.waiting.append(lambda: job(is_ours))
                return
            is_taken = any(one.attempt == action.attempt for one in store.attempts)
            if store.is_fenced or is_taken or not is_ours:
                words, code = f"attempt {action.attempt} was created by", EXIT_UNAVAILABLE
                if is_ours and not store.is_fenced:
                    words, code = f"{words} one that had lost the run", EXIT_SAVED_START_ME_AGAIN
                else:
                    words = f"{words} another supervisor"
                failed = ev.LaunchFailed(world.now_ns, action.attempt, code, words)
                self._tell(failed, ev.TreeGone(world.now_ns, action.attempt))
                return
            ranks = action.placement.ranks
            store.attempts.append(
                AttemptRecord(
                    action.attempt,
                    resume.parent,
                    resume.step,
                    resume.set_name,
                    world.epoch,
                    ranks,
                    ranks,
                    "",
                    0,
                    skip_batches=resume.skip_batches,
                    rollback=action.rollback,
                )
            )
            if world.is_over:
                heard()
            else:
                world.heard.give(Source.INBOX, heard)

        self._in_order(job)

    def adopt(self, action: act.Adopt, adopted: Callable[[int], None]) -> None:
        """Never: the hosts of a virtual controller end with it."""
        raise NotImplementedError

    def commit(self, attempt: int, epoch: int, step: int, ranks: int) -> None:
        """Write the manifest of a save that the ranks have written themselves."""

        def answer(why: str) -> None:
            at_ns, of = self._world.now_ns, (epoch, step)
            outcome = news.CommitFailed(at_ns, *of, why) if why else news.Committed(at_ns, *of)
            self._tell(ev.Heard(at_ns, attempt, outcome))

        self._in_order(
            lambda is_ours: self._write_manifest((attempt, step, ranks), is_ours, answer)
        )

    def commit_flushed(self, action: act.CommitFlushed) -> None:
        """Write the manifest of a set that came from memory."""
        names = (action.attempt, action.epoch, action.step)
        of = (action.attempt, action.step, action.of_ranks)

        def answer(why: str) -> None:
            failed = ev.FlushCommitFailed(self._world.now_ns, *names, why)
            self._tell(failed if why else ev.FlushCommitted(self._world.now_ns, *names))

        self._in_order(lambda is_ours: self._write_manifest(of, is_ours, answer))

    def protect(self, of: tuple[int, int] | None) -> None:
        """Nothing here removes an incomplete set."""

    def keep_compared(self, step: int | None) -> None:
        """Nor a set that is whole."""

    def make_room(self, attempt: int, step: int) -> None:
        """A virtual disk is full until a script says otherwise."""

    def keep_wish(self, wish: Wish) -> None:
        """It lies in `control/`, if the run is still this controller's."""
        self._in_order(lambda is_ours: self._store.wishes.append(wish) if is_ours else None)

    def end_training(self, action: act.EndTraining) -> None:
        """Put it on record for every later attempt, in order."""
        end = TrainingEnd(action.step, action.until)

        def job(is_ours: bool) -> None:
            if is_ours:
                self._store.training_ends.setdefault(action.attempt, end)

        self._in_order(job)

    def end_attempt(self, action: act.EndAttempt, _: Sequence[RankEvidence]) -> None:
        """Put the end on record for the next supervisor."""
        store = self._store
        self._world.ends.append(action)
        end = AttemptEnd(action.cause, action.words, (), self._world.now_ns)
        for place, record in enumerate(store.attempts):
            if record.attempt == action.attempt:
                store.attempts[place] = replace(record, end=end)
        store.failures += action.cause not in FREE_CAUSES
        store.memory_lost += action.cause == "host_lost"
        resume = self._launch.resume if self._launch else None
        if action.cause == "bad_checkpoint" and resume is not None and resume.set_name:
            world = self._world
            bad = world.rejected if resume.buffer is None else world.rejected_copies
            bad.add(resume.set_name)

    # --- three steps ------------------------------------------------------------------------

    def _write_manifest(
        self, of: tuple[int, int, int], is_ours: bool, answer: Callable[[str], None]
    ) -> None:
        """Make the shards of that step a set; `answer` why not, or why nobody knows, or "": it is.

        `of`: attempt, step, and how many shards there are.
        """
        world, store = self._world, self._store
        attempt, step, ranks = of
        if not is_ours:
            self._taken_over()
            return
        if store.is_full or store.has_lost(attempt, step, ranks):
            answer("no space left" if store.is_full else "a shard is missing")
            return
        world.watch.commits(world, attempt, step)
        store.add(attempt, step, ranks)
        world.watch.put(world, f"manifest of {set_name(attempt, step)}")
        if store.is_mute:
            answer("the store did not answer")
            return

        def looked(is_ours: bool) -> None:
            if not is_ours:
                self._taken_over()
                return
            world.watch.tells(world, attempt, step)
            answer("")
            self._collect()

        self._look_again(looked)

    def _collect(self) -> None:
        """Retention: mark, look again, delete one after the other."""
        world, store = self._world, self._store
        if not store.keep or self._is_collecting:  # one at a time, by one thread
            return
        names = store.superfluous(self._launch.resume if self._launch else None)
        self._is_collecting = bool(names)

        def mark() -> None:
            for name in names:
                store.doomed[name] = max(world.epoch, store.doomed.get(name, 0))
                world.watch.put(world, f"mark of {name}")
            self._look_again(lambda is_ours: delete(names if is_ours else []))

        def delete(left: list[str]) -> None:
            self._is_collecting = bool(left)
            if left:
                world.watch.deletes(world, left[0])
                store.remove(left[0])
                self._after_look(lambda: delete(left[1:]))

        if names:
            self._after_look(mark)

    def _look_again(self, then: Callable[[bool], None]) -> None:
        """Something is in the store now; `then` is told whether the lease is still ours."""
        world, store = self._world, self._store

        def look() -> None:
            if world.died_ns is not None:
                return
            if store.is_away or store.is_hung:  # whose the run is, nobody knows: wait
                world.clock.later(SECOND, look)
                return
            is_ours = store.epoch == world.epoch
            world.watch.looked(world, is_ours=is_ours)
            self._after_look(lambda: then(is_ours))

        self._after_look(look)

    def _after_look(self, do: Callable[[], None]) -> None:
        wait_ns = self._world.taking.next_ns("look_ns")
        if wait_ns:
            self._under_way += 1
            self._world.clock.later(wait_ns, lambda: self._go_on(do))
        else:
            do()

    def _taken_over(self) -> None:
        words = "another supervisor holds the run"
        self._tell(ev.StopNowAsked(self._world.now_ns, words, EXIT_UNAVAILABLE))

    # --- the worker -------------------------------------------------------------------------

    def _in_order(self, job: Callable[[bool], None]) -> None:
        """The job is told whether the lease was ours when it began."""
        self._jobs.append(job)
        self._begin()

    def _begin(self) -> None:
        """The next job, once nothing is left of the one before."""
        world = self._world
        if not self._jobs or self._under_way or world.died_ns is not None:
            return
        job, self._under_way = self._jobs.popleft(), 1
        is_ours = self._store.epoch == world.epoch
        took_ns = world.taking.next_ns("store_ns")
        world.clock.later(took_ns, lambda: self._go_on(lambda: job(is_ours)))

    def _go_on(self, do: Callable[[], None]) -> None:
        if self._world.died_ns is None:
            do()
            self._under_way -= 1
            self._begin()

    def _tell(self, *events: ev.Event) -> None:
        """Made now, heard when the loop comes round."""

        def feed_all() -> None:
            for event in events:
                self._world.feed(event)

        self._world.heard.give(Source.INBOX, feed_all)
