"""Replicas that should hold the same bytes and do not: the run goes back before that."""

from __future__ import annotations

from holdfast.core import actions as act
from holdfast.core import events as ev
from holdfast.core.run import saves
from holdfast.core.run.course import RunState
from holdfast.core.run.rollback import Wish
from holdfast.core.run.stops import on_rollback_asked
from holdfast.core.save.corruption import judge


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
    """While ranks run, on one host. Nobody knows another place for a rank that is wrong."""
    is_incident = run.saving.tier.compare(event)
    answer = saves.on_tier(run, event)
    good = run.saving.tier.replicas.compared_step
    if not is_incident or good is None:
        return answer
    ranks, why = judge(event.differing, range(run.placement.ranks), "ranks")
    words = f"silent corruption by step {event.step} on {_named(ranks, 'rank')}: {why}"
    answer.append(act.Say("error", words[:1].upper() + words[1:]))
    return answer + _go_back(run, event, good, words)


def _go_back(
    run: RunState, event: ev.Replicated | ev.Sealed, good: int, words: str
) -> list[act.Action]:
    name = f"corruption-{event.of_attempt:04d}-{event.step}"
    wish = Wish(name, good, skip_batches=0, words=words, is_from_script=False)
    return on_rollback_asked(run, ev.RollbackAsked(event.at_ns, wish))


def _named(numbers: tuple[int, ...], what: str) -> str:
    return f"{what} {' or '.join(map(str, numbers))}"
