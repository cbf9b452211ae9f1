"""Replicas that should hold the same bytes and do not: the run goes back before that."""

from __future__ import annotations

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.run import saves
from holdfast.core.run.course import RunState
from holdfast.core.run.rollback import Wish
from holdfast.core.run.stops import on_rollback_asked
from holdfast.core.save.corruption import judge
from holdfast.core.save.in_parts import Equality

_ALL_OF_IT = "each rank copies all of its state from now on"
WORDS = {
    Equality.NO_REPLICAS: (
        "By step {step} {array} is not the same on all ranks, as its framework should "
        f"keep it; {_ALL_OF_IT}"
    ),
    Equality.ON_PURPOSE: (
        "By step {step} {array} differs again between ranks, though the run has gone back once: "
        f"that is taken for the script's own will, and not gone back on account of; {_ALL_OF_IT}"
    ),
}


def on_replicated(run: RunState, event: ev.Replicated) -> list[act.Action]:
    """While ranks run. A host whose replicas are wrong is to have no part any more."""
    replicas = run.saving.tier.replicas
    is_news = bool(event.differing) and replicas.is_of(event)
    answer = saves.on_tier(run, event)
    if not is_news:
        return answer
    hosts, why = judge(event.differing, run.placement.hosts)
    words = f"silent corruption by step {event.step} on {_named(hosts, 'host')}: {why}"
    answer.append(act.Say("error", words[:1].upper() + words[1:]))
    good = replicas.compared_step
    if good is None:
        return answer
    if len(hosts) == 1:
        answer.append(act.Distrust(hosts[0], words))
    return answer + _go_back(run, event, good, words)


def on_sealed(run: RunState, event: ev.Sealed) -> list[act.Action]:
    """While ranks run, on one host, or have just ended: what is wrong is not what is chosen."""
    judged = _judge(run, event) if event.is_compared else []
    return judged + saves.on_tier(run, event)


def on_compared(run: RunState, event: ev.Compared) -> list[act.Action]:
    """The same of a set that has found no buffer: a stop's, as a rule."""
    return _judge(run, event)


def _judge(run: RunState, event: ev.Sealed | ev.Compared) -> list[act.Action]:
    """Nobody knows another place for a rank that is wrong."""
    found = run.saving.tier.compare(event)
    answer: list[act.Action] = []
    if found in WORDS:
        words = WORDS[found].format(step=event.step, array=event.differing[0].array)
        answer.append(act.Say("warning", words))
    good = run.saving.tier.replicas.compared_step
    if found is not Equality.CORRUPTION or good is None:
        return answer
    ranks, why = judge(event.differing, range(run.placement.ranks), "ranks")
    words = f"silent corruption by step {event.step} on {_named(ranks, 'rank')}: {why}"
    answer.append(act.Say("error", words[:1].upper() + words[1:]))
    return answer + _go_back(run, event, good, words)


def _go_back(
    run: RunState, event: ev.Replicated | ev.Sealed | ev.Compared, good: int, words: str
) -> list[act.Action]:
    """At the latest at the next start: a stop may be under way, or this controller may end.

    Where nothing is as old as that, there is nothing to go back to but scratch.
    """
    to = good if _has_older(run, good) else 0
    name = f"corruption-{event.of_attempt:04d}-{event.step}"
    wish = Wish(name, to, skip_batches=0, words=words, is_from_script=False)
    asked = on_rollback_asked(run, ev.RollbackAsked(event.at_ns, wish))
    return [act.KeepWish(wish), *asked]


def _has_older(run: RunState, step: int) -> bool:
    """Whether a set at or before that step is known of here, in memory or durable."""
    tier, durable_step = run.saving.tier, run.saving.oldest_durable_step
    in_memory = [one.step for one in (*tier.buffers.sealed, tier.replicas.newest) if one]
    return 0 < durable_step <= step or any(one <= step for one in in_memory)


def _named(numbers: tuple[int, ...], what: str) -> str:
    return f"{what} {' or '.join(map(str, numbers))}"
