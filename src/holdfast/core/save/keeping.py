"""What the run's machine does about its memory tier: seals, drains, and what follows from them.

Sets in memory outlive the attempts that made them, so their news is taken in every state of the
run. `core.save.tiers` remembers, `core.save.saving` knows what is due; here is what is done about
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.run.holding import given_up_words
from holdfast.core.save import agree_events as news
from holdfast.core.save.agree import Phase
from holdfast.core.save.drain_watch import DrainWatch
from holdfast.core.save.drains import Wanted
from holdfast.core.save.saving import Saving
from holdfast.core.save.tier_words import Announced
from holdfast.errors import EXIT_DONE, EXIT_UNAVAILABLE

CarryOut = Callable[[tuple[news.Action, ...]], list[act.Action]]


class Keeping:
    """Of one run. `carry_out` makes the run's actions of an agreement's."""

    def __init__(self, saving: Saving, carry_out: CarryOut, *, patience_ns: int) -> None:
        self._saving = saving
        self._watch = DrainWatch(patience_ns)
        self._tier = saving.tier
        self._carry_out = carry_out
        self._announced = Announced(saving)
        self._told_failure = ""

    def hear(self, event: ev.TierEvent, *, is_running: bool) -> list[act.Action]:
        """Take in what became of a seal or a drain. `is_running`: ranks hear what is ordered."""
        answer = HEAR[type(event)](self, event, is_running)
        answer += self.drain_if_due(event.at_ns)
        if is_running:
            answer += self._carry_out(self._saving.look(event.at_ns))
            if not isinstance(event, ev.Drained):  # one rank's shard: no figure has changed by that
                answer += self._announced.news(event.at_ns)
        return answer

    def tell(self, at_ns: int) -> list[act.Action]:
        """How often is saved to which tier, if that is news."""
        return self._announced.news(at_ns)

    @property
    def words(self) -> str:
        """How often is saved to which tier, and why, as last told; empty: only to one."""
        return self._announced.words

    def drain_if_due(self, at_ns: int) -> list[act.Action]:
        """Begin to drain the newest set in memory, if the durable tier's policy says so.

        If it is late with the one under way, that one gives way to the training no longer.
        """
        if self._tier.drains.under_way is not None:
            return self._hurry_if_late(at_ns)
        if not self._tier.buffers.sealed:
            return []
        kept = self._tier.may_drain(at_ns, self._saving.committed_step)
        if kept is None:
            return []
        due, why = self._saving.drain_due(at_ns, kept.step)
        if not due:
            return []
        return self._drain(at_ns, Wanted(kept, why, is_urgent=not self._watch.may_give_way()))

    def _hurry_if_late(self, at_ns: int) -> list[act.Action]:
        drains = self._tier.drains
        now = drains.under_way
        if now is None or now.is_urgent or drains.is_committing:
            return []
        began_ns, step = self._watch.began_ns, now.kept.step
        late = self._watch.late(
            at_ns,
            self._tier.drain_ns,
            lambda: self._saving.is_next_drain_due(at_ns, began_ns, step),
        )
        if not late:
            return []
        words = f"Writing step {step} to disk at full speed: {late}"
        return [act.Say("info", words), *self._drain(at_ns, Wanted(now.kept, late, is_urgent=True))]

    def _drain(self, at_ns: int, wanted: Wanted) -> list[act.Action]:
        actions = self._tier.drain(at_ns, wanted)
        self._note_begin(at_ns)
        return list(actions)

    def _note_begin(self, at_ns: int) -> None:
        if self._tier.drains.under_way is not None:
            self._watch.begin(at_ns, self._tier.drains.under_way.kept)

    def drain_newest(self, at_ns: int, why: str) -> list[act.Action]:
        """Make durable what is in memory, at once: whatever comes, that much is safe."""
        newest = self._tier.newest
        if newest is None or newest.step <= self._saving.committed_step:
            return []
        return self._drain(at_ns, Wanted(newest, why, is_urgent=True))

    @property
    def is_pending(self) -> bool:
        """Whether something in memory that is newer than all that is durable is on its way."""
        drains, committed = self._tier.drains, self._saving.committed_step
        wanted = [one.kept for one in (drains.under_way, drains.waiting) if one is not None]
        return self._tier.is_sealing or any(
            kept.step > committed and self._tier.is_on_lineage(kept) for kept in wanted
        )

    @property
    def is_ahead(self) -> bool:
        """Whether memory holds a newer set than the durable tier."""
        newest = self._tier.newest
        return newest is not None and newest.step > self._saving.committed_step

    def last_words(self, finish: act.Finish, *, was_kept: bool) -> act.Finish:
        """The run's end, with what became of its memory; `was_kept`: the end has waited for it."""
        if self.is_ahead:
            # A run whose end is in memory is done only when that end is durable.
            if finish.exit_code == EXIT_DONE:
                saving = self._saving
                words = given_up_words(saving.fastest_step, saving.committed_step, in_memory=True)
                return act.Finish(EXIT_UNAVAILABLE, words, keep_memory=True)
            words = f"{finish.words}; memory holds more, and is kept for a start on this host"
            return act.Finish(finish.exit_code, words, keep_memory=True)
        if was_kept:
            words = f"{finish.words}; step {self._saving.committed_step} was saved from memory"
            return act.Finish(finish.exit_code, words)
        return finish

    # --- seals and drains -------------------------------------------------------------------

    def _is_awaited(self, attempt: int, step: int) -> bool:
        """Whether the agreement waits for that step to become durable, from whichever buffer."""
        agreement = self._saving.agreement
        is_written = agreement.phase is Phase.WRITING and agreement.buffer is not None
        return is_written and (attempt, step) == (self._tier.attempt, agreement.step)

    def _on_seal(self, event: ev.Sealed | ev.SealFailed, is_running: bool) -> list[act.Action]:
        counts = self._tier.seal_over(event)
        agreement, newest = self._saving.agreement, self._tier.newest
        is_awaited = self._is_awaited(event.of_attempt, event.step)
        if counts and is_awaited and newest is not None:
            if agreement.committed_step >= event.step:  # drained meanwhile, from another buffer
                done = news.Committed(event.at_ns, agreement.epoch, event.step)
                return self._tell(done, is_running)
            wanted = Wanted(newest, agreement.why, is_urgent=True)
            return self._drain(event.at_ns, wanted)
        if not isinstance(event, ev.SealFailed):
            return []
        words = f"step {event.step} could not be sealed in memory: {event.why}"
        if is_awaited and agreement.epoch == event.epoch:
            failed = news.NotWritten(event.at_ns, event.epoch, event.step, words)
            return self._tell(failed, is_running)
        return [act.Say("warning", words)]

    def _on_draining(self, event: ev.Draining, _: bool) -> list[act.Action]:
        if not self._tier.drains.is_of(event):
            return []
        why = self._watch.hangs(event, self._tier.drain_ns)
        if not why:
            return []
        return [act.AbandonDrain(event.of_attempt, event.epoch, event.step, why)]

    def _on_drained(self, event: ev.Drained, _: bool) -> list[act.Action]:
        return list(self._tier.drained(event))

    def _on_drain_over(
        self, event: ev.DrainCommitted | ev.DrainFailed | ev.DrainCommitFailed, is_running: bool
    ) -> list[act.Action]:
        over, actions = self._tier.drain_over(event)
        if over is None:
            return []
        kept, at_ns = over.kept, event.at_ns
        self._watch.over(is_durable=not over.why_not)
        self._note_begin(at_ns)
        answer = list(actions)
        is_awaited = self._is_awaited(kept.attempt, kept.step) and not self._tier.is_sealing
        epoch = self._saving.agreement.epoch
        if over.why_not:
            words = f"step {kept.step} could not be written to the run store: {over.why_not}"
            if is_awaited:
                is_sealed = self._tier.newest is not None and self._tier.newest.step == kept.step
                failed = news.NotWritten(at_ns, epoch, kept.step, over.why_not, is_sealed)
                return answer + self._tell(failed, is_running)
            answer.append(act.MakeRoom(kept.attempt, kept.step))
            if words == self._told_failure or self._tier.is_lost:
                return answer
            self._told_failure = words
            return [*answer, act.Say("warning", f"{words}; it stays in memory")]
        if is_awaited:
            done = news.Committed(at_ns, epoch, kept.step)
            return answer + self._tell(done, is_running)
        if not self._tier.is_on_lineage(kept):
            return answer
        answer += self._tell(news.DurableBeside(at_ns, kept.step), is_running)
        if is_running:
            answer.append(act.PublishCommitted(self._saving.committed_step))
        return answer

    def _tell(self, what: news.Event, is_running: bool) -> list[act.Action]:
        hear = self._saving.hear if is_running else self._saving.hear_last_words
        return self._carry_out(hear(what))


HEAR: dict[type[ev.TierEvent], Callable[[Keeping, Any, bool], list[act.Action]]] = {
    ev.Sealed: Keeping._on_seal,
    ev.SealFailed: Keeping._on_seal,
    ev.Draining: Keeping._on_draining,
    ev.Drained: Keeping._on_drained,
    ev.DrainFailed: Keeping._on_drain_over,
    ev.DrainCommitted: Keeping._on_drain_over,
    ev.DrainCommitFailed: Keeping._on_drain_over,
}
