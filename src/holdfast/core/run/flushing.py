"""What the run does about its memory tier: seals, flushes, and what follows from them.

Sets in memory outlive the attempts that made them, so their news is taken in every state of the
run. `core.save.memory` remembers, `core.save.saving` knows what is due; here is what is done about
it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core import records
from holdfast.core.run.course import RunState
from holdfast.core.run.state import State
from holdfast.core.save import events as news
from holdfast.core.save.agree_moves import AgreementPhase
from holdfast.core.save.flushes import FlushOver, Wanted


def hear(run: RunState, event: ev.TierEvent) -> list[act.Action]:
    """Take in what became of a seal or a flush, and do what is due after it."""
    answer = HEAR[type(event)](run, event)
    answer += flush_if_due(run, event.at_ns)
    answer += replicate_if_due(run, event.at_ns)
    if run.state is State.RUNNING:
        answer += run.carry_out(run.saving.look(event.at_ns))
        if not isinstance(event, ev.Flushed):  # one rank's shard: no figure has changed by that
            answer += tell(run, event.at_ns)
    return answer


def tell(run: RunState, at_ns: int) -> list[act.Action]:
    """Say how often is saved to which tier, and put it on record, if somebody may care."""
    saving, tier = run.saving, run.saving.tier
    if tier.is_lost:
        is_news = run.said_frequency.is_news(saving.policy.pace(saving.view(at_ns)))
    elif tier.is_there:
        memory = saving.memory_policy.pace(saving.memory_view(at_ns))
        durable = saving.policy.pace(saving.durable_view(at_ns, saving.fastest_step + 1))
        is_news = run.said_frequency.is_news(memory, durable)
    else:
        return []
    words = run.said_frequency.words
    said = act.Say("warning" if tier.is_lost else "info", words)
    return [records.saving(at_ns, words), said] if is_news else []


# --- what is flushed ------------------------------------------------------------------------


def flush_if_due(run: RunState, at_ns: int) -> list[act.Action]:
    """Begin to flush the newest set in memory, if the durable tier's policy says so.

    If it is late with the one under way, that one gives way to the training no longer.
    """
    saving, tier = run.saving, run.saving.tier
    if tier.flushes.under_way is not None:
        return _hurry_if_late(run, at_ns)
    kept = tier.to_flush(at_ns, saving.agreement.committed_step)
    if kept is None:
        return []
    due, why = saving.flush_due(at_ns, kept.step)
    return list(tier.flushes.want_as_due(at_ns, kept, why)) if due else []


def _hurry_if_late(run: RunState, at_ns: int) -> list[act.Action]:
    saving, flushes = run.saving, run.saving.tier.flushes
    if flushes.under_way is None:
        return []
    began_ns, kept = flushes.began_ns, flushes.under_way.kept
    late = flushes.late(at_ns, lambda: saving.is_next_flush_due(at_ns, began_ns, kept.step))
    if not late:
        return []
    words = f"Writing step {kept.step} to disk at full speed: {late}"
    return [act.Say("info", words), *flushes.want(at_ns, Wanted(kept, late, is_urgent=True))]


def flush_newest(run: RunState, at_ns: int, why: str) -> list[act.Action]:
    """Make durable what is in memory, at once: whatever comes, that much is safe."""
    tier = run.saving.tier
    newest = tier.newest
    if newest is None or newest.step <= run.saving.committed_step:
        return []
    return list(tier.flushes.want(at_ns, Wanted(newest, why, is_urgent=True)))


def replicate_if_due(run: RunState, at_ns: int) -> list[act.Action]:
    """Have the newest set in memory copied to other hosts, if the last one is, for a while."""
    wanted = run.saving.tier.to_replicate(at_ns) if run.state is State.RUNNING else None
    return [] if wanted is None else [wanted]


# --- what became of it ----------------------------------------------------------------------


def _is_awaited(run: RunState, attempt: int, step: int) -> bool:
    """Whether the agreement waits for that step to become durable, from whichever buffer."""
    agreement = run.saving.agreement
    is_written = agreement.phase is AgreementPhase.WRITING and agreement.buffer is not None
    return is_written and (attempt, step) == (run.saving.tier.attempt, agreement.step)


def _on_seal(run: RunState, event: ev.Sealed | ev.SealFailed) -> list[act.Action]:
    agreement, tier = run.saving.agreement, run.saving.tier
    counts = tier.seal_over(event)
    is_awaited = _is_awaited(run, event.of_attempt, event.step)
    if counts and is_awaited and tier.newest is not None:
        if agreement.committed_step >= event.step:  # flushed meanwhile, from another buffer
            return _tell_agreement(run, news.Committed(event.at_ns, agreement.epoch, event.step))
        wanted = Wanted(tier.newest, agreement.why, is_urgent=True)
        return list(tier.flushes.want(event.at_ns, wanted))
    if not isinstance(event, ev.SealFailed):
        return []
    words = f"step {event.step} could not be sealed in memory: {event.why}"
    if is_awaited and agreement.epoch == event.epoch:
        return _tell_agreement(run, news.NotWritten(event.at_ns, event.epoch, event.step, words))
    return [] if event.is_lost else [act.Say("warning", words)]


def _on_replicated(run: RunState, event: ev.Replicated | ev.NotReplicated) -> list[act.Action]:
    """People are told when that is another matter than before."""
    if not run.saving.tier.replicas.over(event) or run.state is not State.RUNNING:
        return []
    if isinstance(event, ev.Replicated) and event.differing:
        return []
    if len(run.placement.by_host) < 2:  # an elastic run on one host: there is no second one
        return []
    why = event.why if isinstance(event, ev.NotReplicated) else ""
    if why == run.said_replica:
        return []
    run.said_replica = why
    if why:
        words = f"step {event.step} is in the memory of its own hosts alone: {why}"
        return [act.Say("warning", words)]
    words = f"step {event.step} is in memory on two hosts each: any one of them may be lost"
    return [act.Say("info", words)]


def _on_flushing(run: RunState, event: ev.Flushing) -> list[act.Action]:
    why = run.saving.tier.flushes.hangs(event)
    return [act.AbandonFlush(event.of_attempt, event.epoch, event.step, why)] if why else []


def _on_flushed(run: RunState, event: ev.Flushed) -> list[act.Action]:
    return list(run.saving.tier.flushes.flushed(event))


def _on_flush_over(run: RunState, event: FlushOver) -> list[act.Action]:
    saving, tier, at_ns = run.saving, run.saving.tier, event.at_ns
    kept, actions = tier.flush_over(event)
    if kept is None:
        return []
    answer = list(actions)
    is_awaited = _is_awaited(run, kept.attempt, kept.step) and not tier.is_sealing
    epoch = saving.agreement.epoch
    is_gone = isinstance(event, ev.FlushFailed) and event.is_gone
    if not isinstance(event, ev.FlushCommitted):
        if is_awaited:
            is_sealed = tier.newest is not None and tier.newest.step == kept.step
            failed = news.NotWritten(at_ns, epoch, kept.step, event.why, is_sealed)
            return answer + _tell_agreement(run, failed)
        if not is_gone:
            answer.append(act.CarryOut(kept.attempt, news.MakeRoom(kept.step)))
        return answer + _say_failure(run, event, is_gone=is_gone)
    if is_awaited:
        return answer + _tell_agreement(run, news.Committed(at_ns, epoch, kept.step))
    if not tier.is_on_lineage(kept):
        return answer
    answer += _tell_agreement(run, news.DurableBeside(at_ns, kept.step))
    if run.state is State.RUNNING:
        answer.append(act.PublishCommitted(saving.committed_step))
    return answer


def _say_failure(
    run: RunState, event: ev.FlushFailed | ev.FlushCommitFailed, *, is_gone: bool
) -> list[act.Action]:
    """Once for each reason, as long as memory is there and ahead, or was."""
    words = f"step {event.step} could not be written to the run store: {event.why}"
    tier = run.saving.tier
    is_ahead = is_gone or tier.is_ahead(run.saving.committed_step)
    if words == run.said_failure or tier.is_lost or not is_ahead:
        return []
    run.said_failure = words
    return [act.Say("warning", words if is_gone else f"{words}; it stays in memory")]


def _tell_agreement(run: RunState, what: news.Event) -> list[act.Action]:
    is_running = run.state is State.RUNNING  # then ranks hear what is ordered
    hear_it = run.saving.hear if is_running else run.saving.hear_last_words
    return run.carry_out(hear_it(what))


HEAR: dict[type[ev.TierEvent], Callable[[RunState, Any], list[act.Action]]] = {
    ev.Sealed: _on_seal,
    ev.SealFailed: _on_seal,
    ev.Replicated: _on_replicated,
    ev.NotReplicated: _on_replicated,
    ev.Flushing: _on_flushing,
    ev.Flushed: _on_flushed,
    ev.FlushFailed: _on_flush_over,
    ev.FlushCommitted: _on_flush_over,
    ev.FlushCommitFailed: _on_flush_over,
}
