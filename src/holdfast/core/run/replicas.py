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
    words = f"silent corruption by step {event.step} on {_named(hosts)}: {why}"
    answer.append(act.Say("error", words[:1].upper() + words[1:]))
    good = replicas.compared_step
    if good is None:
        return answer
    if len(hosts) == 1:
        answer.append(act.Distrust(hosts[0], words))
    name = f"corruption-{event.of_attempt:04d}-{event.step}"
    wish = Wish(name, good, skip_batches=0, words=words, is_from_script=False)
    return answer + on_rollback_asked(run, ev.RollbackAsked(event.at_ns, wish))


def _named(hosts: tuple[int, ...]) -> str:
    numbers = " or ".join(map(str, hosts))
    return f"host {numbers}"
