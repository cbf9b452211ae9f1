"""Each disruption's story, as the page tells it: when, why, what it cost, and the last words of it.

A run may have thousands, each with a page of output: so much of all output is kept as a page can
carry, of the newest and the costliest first. The others are told without it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holdfast.core.ledger.account import Disruption
from holdfast.core.visible import clean
from holdfast.report.document import NS_PER_CHIP_HOUR
from holdfast.report.findings import DisruptionEvidence, Findings
from holdfast.report.kinds import place_of
from holdfast.report.words import cause_in_words

STORIES_CHARS = 300_000  # of output, tracebacks and stacks in all
LINES, TRACEBACK_LINES, LINE_CHARS = 20, 24, 300
STACKS_CHARS = 6_000


@dataclass(frozen=True, slots=True)
class Incident:
    """One disruption's story. `down_ns` None: it is not over; `money` None: no price was given.

    `is_whole`: lines, traceback and stacks are those that are known; else they were left out,
    because there are too many incidents.
    """

    attempt: int
    at_ns: int
    cause: str
    lost_steps: int
    lost_ns: int
    down_ns: int | None
    chip_hours: float
    money: float | None
    phases: tuple[tuple[str, int], ...]
    exits: tuple[int | None, ...] = ()
    rank: int | None = None
    lines: tuple[str, ...] = ()
    traceback: tuple[str, ...] = ()
    stacks: tuple[tuple[int, str], ...] = ()
    resumed: str = ""
    restart: str = ""
    is_whole: bool = True


def stories(findings: Findings, price_per_chip_hour: float | None) -> tuple[Incident, ...]:
    """All disruptions of the account, in its order."""
    known = {one.attempt: one for one in reversed(findings.evidence)}
    resumes = {one.attempt: one.words for one in findings.resumed}
    incidents: list[Incident] = []
    for one in findings.account.disruptions:
        evidence = known.get(one.attempt) or DisruptionEvidence(one.attempt)
        hours = one.price_chip_ns / NS_PER_CHIP_HOUR
        story = _story(one, evidence, resumes.get(one.attempt + 1, ""))
        price = None if price_per_chip_hour is None else hours * price_per_chip_hour
        incidents.append(replace(story, chip_hours=hours, money=price))
    left = STORIES_CHARS
    for place in by_interest(incidents):
        left -= _length(incidents[place])
        if left < 0:
            incidents[place] = replace(
                incidents[place], lines=(), traceback=(), stacks=(), restart="", is_whole=False
            )
    return tuple(incidents)


def _story(one: Disruption, evidence: DisruptionEvidence, resumed: str) -> Incident:
    phases = [(kind, ns) for kind, ns in one.waterfall_ns.items() if ns > 0]
    return Incident(
        attempt=one.attempt,
        at_ns=one.at_ns,
        cause=clean((evidence.words or cause_in_words(one.cause))[: 2 * LINE_CHARS])[:LINE_CHARS],
        lost_steps=one.lost_steps,
        lost_ns=one.lost_ns,
        down_ns=one.downtime_ns,
        chip_hours=0.0,
        money=None,
        phases=tuple(sorted(phases, key=lambda phase: place_of(phase[0]))),
        exits=evidence.exits,
        rank=evidence.rank,
        lines=_last(evidence.last_lines, LINES),
        traceback=_last((evidence.traceback or "").splitlines(), TRACEBACK_LINES),
        stacks=tuple((rank, clean(text[:STACKS_CHARS])) for rank, text in evidence.stacks),
        resumed=resumed,
        restart="" if evidence.restart is None else clean(evidence.restart.words),
    )


def by_interest(incidents: Sequence[Incident], most: int | None = None) -> list[int]:
    """Places, so many at most: the newest and the costliest by turns, each once."""
    newest = range(len(incidents) - 1, -1, -1)
    costliest = sorted(newest, key=lambda place: -incidents[place].chip_hours)
    pairs = zip(newest, costliest, strict=True)
    return list(dict.fromkeys(place for pair in pairs for place in pair))[:most]


def _length(one: Incident) -> int:
    stacks = sum(len(text) for _, text in one.stacks)
    return sum(map(len, (*one.lines, *one.traceback, one.restart))) + stacks


def _last(lines: Sequence[str], most: int) -> tuple[str, ...]:
    return tuple(clean(line[: 2 * LINE_CHARS].rstrip())[:LINE_CHARS] for line in lines[-most:])
