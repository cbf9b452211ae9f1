"""What the run's machine does about its memory tier: seals, flushes, and what follows from them.

Sets in memory outlive the attempts that made them, so their news is taken in every state of the
run. `core.save.tiers` remembers, `core.save.saving` knows what is due; here is what is done about
it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import records
from holdfast.core.run.holding import given_up_words, lost_words
from holdfast.core.save import events as news
from holdfast.core.save.agree_moves import AgreementPhase
from holdfast.core.save.flushes import FlushWatch, Wanted
from holdfast.core.save.policy import ONLY_WHEN_ASKED, SaveFrequency
from holdfast.core.save.saving import Saving
from holdfast.errors import EXIT_DONE, EXIT_UNAVAILABLE

TELL_AGAIN = 4.0  # times: an optimum is flat, and double the interval hardly costs more

Deed = act.Action | news.Action
"""What is to be done: by the run itself, or for its agreement."""


# --- how often is saved to which tier, and why, in one sentence --------------------------------


def saving_words(memory: SaveFrequency, durable: SaveFrequency) -> str:
    """`saving every 14 steps to memory, every 9 min to disk, because …`."""
    because = ", and ".join(pace.because for pace in (memory, durable) if pace.because)
    if memory.words != durable.words:
        words = f"saving {memory.to('memory')}, {durable.to('disk')}"
    elif memory.words == ONLY_WHEN_ASKED:
        words = f"saving {ONLY_WHEN_ASKED}"
    else:
        words = f"saving {memory.words} to memory and to disk"
    return f"{words}, because {because}" if because else words


def alone_words(durable: SaveFrequency) -> str:
    """`no snapshots in memory now: saving every 15 s to disk, because …`."""
    words = f"no snapshots in memory now: saving {durable.to('disk')}"
    return f"{words}, because {durable.because}" if durable.because else words


@dataclass(slots=True)
class Announced:
    """What people were told last: it is said anew when that is worth it."""

    last: tuple[SaveFrequency, ...] | None = None
    words: str = ""

    def news(self, saving: Saving, at_ns: int) -> list[act.Action]:
        """Say it and put it on record, if it has changed so much that somebody may care."""
        tier = saving.tier
        if not (tier.is_there or tier.is_lost):
            return []
        paces = _paces(saving, at_ns)
        last = self.last
        if last is not None and len(last) == len(paces) and all(map(_is_alike, last, paces)):
            return []
        self.last = paces
        self.words = alone_words(*paces) if tier.is_lost else saving_words(*paces)
        level = "warning" if tier.is_lost else "info"
        return [records.saving(at_ns, self.words), act.Say(level, self.words)]


def _paces(saving: Saving, at_ns: int) -> tuple[SaveFrequency, ...]:
    if saving.tier.is_lost:
        return (saving.policy.pace(saving.view(at_ns)),)
    memory = saving.memory_policy.pace(saving.memory_view(at_ns))
    durable = saving.policy.pace(saving.durable_view(at_ns, saving.fastest_step + 1))
    return memory, durable


def _is_alike(last: SaveFrequency, now: SaveFrequency) -> bool:
    if last.interval_s is None or now.interval_s is None:
        return last.words == now.words
    low, high = sorted((last.interval_s, now.interval_s))
    return high < TELL_AGAIN * low


# --- what is done about the memory tier --------------------------------------------------------


@dataclass(slots=True)
class TierFlushing:
    """Of one run, whose `saving` comes with each question."""

    watch: FlushWatch
    announced: Announced = field(default_factory=Announced)
    told_failure: str = ""
    lost_step: int = 0  # the newest that memory did not hold any more when it was to be written

    def hear(self, saving: Saving, event: ev.TierEvent, *, is_running: bool) -> list[Deed]:
        """Take in what became of a seal or a flush. `is_running`: ranks hear what is ordered."""
        answer = HEAR[type(event)](self, saving, event, is_running)
        answer += self.flush_if_due(saving, event.at_ns)
        if is_running:
            answer += saving.look(event.at_ns)
            if not isinstance(event, ev.Flushed):  # one rank's shard: no figure has changed by that
                answer += self.announced.news(saving, event.at_ns)
        return answer

    def tell(self, saving: Saving, at_ns: int) -> list[act.Action]:
        """How often is saved to which tier, if that is news."""
        return self.announced.news(saving, at_ns)

    @property
    def words(self) -> str:
        """How often is saved to which tier, and why, as last told; empty: only to one."""
        return self.announced.words

    def flush_if_due(self, saving: Saving, at_ns: int) -> list[act.Action]:
        """Begin to flush the newest set in memory, if the durable tier's policy says so.

        If it is late with the one under way, that one gives way to the training no longer.
        """
        if saving.tier.flushes.under_way is not None:
            return self._hurry_if_late(saving, at_ns)
        if not saving.tier.buffers.sealed:
            return []
        kept = saving.tier.may_flush(at_ns, saving.committed_step)
        if kept is None:
            return []
        due, why = saving.flush_due(at_ns, kept.step)
        if not due:
            return []
        return self._flush(
            saving, at_ns, Wanted(kept, why, is_urgent=not self.watch.may_give_way())
        )

    def _hurry_if_late(self, saving: Saving, at_ns: int) -> list[act.Action]:
        flushes = saving.tier.flushes
        now = flushes.under_way
        if now is None or now.is_urgent or flushes.is_committing:
            return []
        began_ns, step = self.watch.began_ns, now.kept.step
        late = self.watch.late(
            at_ns,
            saving.tier.flush_ns,
            lambda: saving.is_next_flush_due(at_ns, began_ns, step),
        )
        if not late:
            return []
        words = f"Writing step {step} to disk at full speed: {late}"
        return [
            act.Say("info", words),
            *self._flush(saving, at_ns, Wanted(now.kept, late, is_urgent=True)),
        ]

    def _flush(self, saving: Saving, at_ns: int, wanted: Wanted) -> list[act.Action]:
        actions = saving.tier.flush(at_ns, wanted)
        self._note_begin(saving, at_ns)
        return list(actions)

    def _note_begin(self, saving: Saving, at_ns: int) -> None:
        if saving.tier.flushes.under_way is not None:
            self.watch.begin(at_ns, saving.tier.flushes.under_way.kept)

    def flush_newest(self, saving: Saving, at_ns: int, why: str) -> list[act.Action]:
        """Make durable what is in memory, at once: whatever comes, that much is safe."""
        newest = saving.tier.newest
        if newest is None or newest.step <= saving.committed_step:
            return []
        return self._flush(saving, at_ns, Wanted(newest, why, is_urgent=True))

    def is_pending(self, saving: Saving) -> bool:
        """Whether something in memory that is newer than all that is durable is on its way."""
        flushes, committed = saving.tier.flushes, saving.committed_step
        wanted = [one.kept for one in (flushes.under_way, flushes.waiting) if one is not None]
        return saving.tier.is_sealing or any(
            kept.step > committed and saving.tier.is_on_lineage(kept) for kept in wanted
        )

    def is_ahead(self, saving: Saving) -> bool:
        """Whether memory holds a newer set than the durable tier."""
        newest = saving.tier.newest
        return newest is not None and newest.step > saving.committed_step

    def last_words(self, saving: Saving, finish: act.Finish, *, was_kept: bool) -> act.Finish:
        """The run's end, with what became of its memory; `was_kept`: the end has waited for it."""
        if self.is_ahead(saving):
            # A run whose end is in memory is done only when that end is durable.
            if finish.exit_code == EXIT_DONE:
                words = given_up_words(saving.fastest_step, saving.committed_step, in_memory=True)
                return act.Finish(EXIT_UNAVAILABLE, words, leaves_memory=True)
            words = f"{finish.words}; memory holds more, and is kept for a start on this host"
            return act.Finish(finish.exit_code, words, leaves_memory=True)
        if finish.exit_code == EXIT_DONE and self.lost_step > saving.committed_step:
            words = lost_words(self.lost_step, saving.committed_step)
            return act.Finish(EXIT_UNAVAILABLE, words)
        if was_kept:
            words = f"{finish.words}; step {saving.committed_step} was saved from memory"
            return act.Finish(finish.exit_code, words)
        return finish

    # --- seals and flushes -------------------------------------------------------------------

    def _is_awaited(self, saving: Saving, attempt: int, step: int) -> bool:
        """Whether the agreement waits for that step to become durable, from whichever buffer."""
        agreement = saving.agreement
        is_written = agreement.phase is AgreementPhase.WRITING and agreement.buffer is not None
        return is_written and (attempt, step) == (saving.tier.attempt, agreement.step)

    def _on_seal(
        self, saving: Saving, event: ev.Sealed | ev.SealFailed, is_running: bool
    ) -> list[Deed]:
        counts = saving.tier.seal_over(event)
        agreement, newest = saving.agreement, saving.tier.newest
        is_awaited = self._is_awaited(saving, event.of_attempt, event.step)
        if counts and is_awaited and newest is not None:
            if agreement.committed_step >= event.step:  # flushed meanwhile, from another buffer
                done = news.Committed(event.at_ns, agreement.epoch, event.step)
                return self._tell(saving, done, is_running)
            wanted = Wanted(newest, agreement.why, is_urgent=True)
            return [*self._flush(saving, event.at_ns, wanted)]
        if not isinstance(event, ev.SealFailed):
            return []
        words = f"step {event.step} could not be sealed in memory: {event.why}"
        if is_awaited and agreement.epoch == event.epoch:
            failed = news.NotWritten(event.at_ns, event.epoch, event.step, words)
            return self._tell(saving, failed, is_running)
        return [act.Say("warning", words)]

    def _on_flushing(self, saving: Saving, event: ev.Flushing, _: bool) -> list[Deed]:
        if not saving.tier.flushes.is_of(event):
            return []
        why = self.watch.hangs(event, saving.tier.flush_ns)
        if not why:
            return []
        return [act.AbandonFlush(event.of_attempt, event.epoch, event.step, why)]

    def _on_flushed(self, saving: Saving, event: ev.Flushed, _: bool) -> list[Deed]:
        return list(saving.tier.flushed(event))

    def _on_flush_over(
        self,
        saving: Saving,
        event: ev.FlushCommitted | ev.FlushFailed | ev.FlushCommitFailed,
        is_running: bool,
    ) -> list[Deed]:
        over, actions = saving.tier.flush_over(event)
        if over is None:
            return []
        kept, at_ns = over.kept, event.at_ns
        self.watch.over(is_durable=not over.why_not)
        self._note_begin(saving, at_ns)
        answer: list[Deed] = list(actions)
        is_awaited = (
            self._is_awaited(saving, kept.attempt, kept.step) and not saving.tier.is_sealing
        )
        epoch = saving.agreement.epoch
        is_gone = isinstance(event, ev.FlushFailed) and event.is_gone
        if is_gone:
            self.lost_step = max(self.lost_step, kept.step)
        if over.why_not:
            words = f"step {kept.step} could not be written to the run store: {over.why_not}"
            if is_awaited:
                is_sealed = saving.tier.newest is not None and saving.tier.newest.step == kept.step
                failed = news.NotWritten(at_ns, epoch, kept.step, over.why_not, is_sealed)
                return answer + self._tell(saving, failed, is_running)
            if not is_gone:
                answer.append(act.MakeRoom(kept.attempt, kept.step))
            is_ahead = is_gone or self.is_ahead(saving)
            if words == self.told_failure or saving.tier.is_lost or not is_ahead:
                return answer
            self.told_failure = words
            stays = "" if is_gone else "; it stays in memory"
            return [*answer, act.Say("warning", f"{words}{stays}")]
        if is_awaited:
            done = news.Committed(at_ns, epoch, kept.step)
            return answer + self._tell(saving, done, is_running)
        if not saving.tier.is_on_lineage(kept):
            return answer
        answer += self._tell(saving, news.DurableBeside(at_ns, kept.step), is_running)
        if is_running:
            answer.append(act.PublishCommitted(saving.committed_step))
        return answer

    def _tell(self, saving: Saving, what: news.Event, is_running: bool) -> list[Deed]:
        hear = saving.hear if is_running else saving.hear_last_words
        return list(hear(what))


HEAR: dict[type[ev.TierEvent], Callable[[TierFlushing, Saving, Any, bool], list[Deed]]] = {
    ev.Sealed: TierFlushing._on_seal,
    ev.SealFailed: TierFlushing._on_seal,
    ev.Flushing: TierFlushing._on_flushing,
    ev.Flushed: TierFlushing._on_flushed,
    ev.FlushFailed: TierFlushing._on_flush_over,
    ev.FlushCommitted: TierFlushing._on_flush_over,
    ev.FlushCommitFailed: TierFlushing._on_flush_over,
}
