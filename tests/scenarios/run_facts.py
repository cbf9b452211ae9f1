"""What a virtual run leaves for the ledger: the facts of its ranks and of its controller."""

from __future__ import annotations

from dataclasses import replace

from holdfast.core import events as ev
from holdfast.core.ledger import facts
from holdfast.sim.virtual.world import VirtualWorld


def facts_of(world: VirtualWorld) -> list[facts.Fact]:
    """What the run left for the ledger, from its ranks and from its controller."""
    # What some hosts had begun when another could not is on no record.
    half = {one.attempt for one in world.inputs if isinstance(one, ev.LaunchFailed)}
    history = [one for one in world.history if one.attempt not in half]
    run = facts.RunFact("virtual", 0, None, world.shape.ranks)
    found: list[facts.Fact] = [run, facts.SeenFact(world.now_ns), *history]
    started = {}
    for told in world.recorded:
        match told:
            case {"fact": "attempt_start"}:
                started[told["attempt"]] = told["at_ns"]
            case {"fact": "attempt_end", "attempt": number}:
                start_ns, end_ns = started.pop(number), told["at_ns"]
                found.append(facts.AttemptFact(number, start_ns, end_ns, told["cause"]))
            case {"fact": "run_end"}:
                found[0] = replace(run, ended_ns=told["at_ns"])
            case {"fact": "wait"}:
                found.append(facts.WaitFact(told["kind"], told["start_ns"], told["end_ns"]))
            case {"fact": "fault"}:
                at_ns, detected_ns = told["at_ns"], told["detected_ns"]
                fault = facts.FaultFact(told["attempt"], at_ns, detected_ns, told["cause"])
                found.append(fault)
            case {"fact": "notice"}:
                deadline_ns = told["deadline_ns"]
                found.append(facts.NoticeFact(told["at_ns"], deadline_ns, told["source"]))
            case {"fact": "capacity"}:
                found.append(facts.CapacityFact(told["at_ns"], told["chips"], told.get("of")))
            case {"fact": "saving" | "announced"}:
                pass
            case _:
                raise AssertionError(told)
    known = {one.attempt for one in found if isinstance(one, facts.AttemptFact)} | set(started)
    for one in history:  # the supervisor died before it heard of their launch
        if one.attempt not in known:
            started.setdefault(one.attempt, one.start_ns)
    for number, start_ns in started.items():  # the next start closes it, as its ranks tell
        unheard = [one.cause for one in world.ends if one.attempt == number]  # of its launch
        assert world.died_ns is not None or unheard, "an attempt has not ended"
        last = [one.end_ns or 0 for one in history if one.attempt == number]
        end_ns = max(world.died_ns or world.finished_ns, *last, 0)
        found.append(facts.AttemptFact(number, start_ns, end_ns, (*unheard, "killed")[0]))
        found = [_until(one, start_ns) if unheard else one for one in found]
    return found


def _until(fact: facts.Fact, start_ns: int) -> facts.Fact:
    """Some hosts had begun an attempt of whose launch nobody heard: no more of a wait than that."""
    if not isinstance(fact, facts.WaitFact) or fact.end_ns is None or fact.start_ns > start_ns:
        return fact
    return replace(fact, end_ns=min(fact.end_ns, start_ns))
