"""Runs to look at, as histories: their findings, course and step times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.facts import (
    AttemptFact,
    CapacityFact,
    Fact,
    FaultFact,
    NoticeFact,
    RestoreFact,
    RunFact,
    SpanFact,
    StepsFact,
)
from holdfast.core.ledger.incremental import Ledger
from holdfast.report.findings import Findings
from holdfast.report.overview import RunSight

S = SECOND_NS
HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(1)>\u2028&\x1b[31m\u202e"


def killed_once(*, resumed: bool = True, name: str = "r") -> list[Fact]:
    """Ten seconds of queue, 50 steps of a second, killed; five of them were not saved."""
    facts: list[Fact] = [
        RunFact(name, 0, None, 4),
        AttemptFact(0, 10 * S, 75 * S, "killed"),
        SpanFact(0, "startup", 10 * S, 20 * S),
        *(StepsFact(0, i, i, (19 + i) * S, (20 + i) * S) for i in range(1, 51)),
        SpanFact(0, "save", 65 * S, 65 * S + S // 2),
        FaultFact(0, 71 * S, 73 * S, "killed"),
        NoticeFact(50 * S, 60 * S, "gce"),
        AttemptFact(1, 80 * S, None, None),
    ]
    if resumed:
        facts += [
            RestoreFact(1, 82 * S, 84 * S, 45, 0),
            *(StepsFact(1, 46 + i, 46 + i, (84 + i) * S, (85 + i) * S) for i in range(20)),
            StepsFact(1, 66, 66, 104 * S, 112 * S),
        ]
    return facts


def fewer_chips() -> list[Fact]:
    """100 steps of a second; for the last 50 of them half of the chips were there."""
    return [
        RunFact("elastic", 0, 100 * S, 4),
        AttemptFact(0, 0, 100 * S, "done"),
        *(StepsFact(0, i, i, (i - 1) * S, i * S) for i in range(1, 101)),
        CapacityFact(50 * S, 2),
    ]


def sight_of(facts: Iterable[Fact], now_ns: int | None = None, **said: Any) -> RunSight:
    """What a page is made of; `said` goes into the findings or, by its name, into the sight."""
    ledger = Ledger()
    ledger.add(facts)
    account = ledger.account(now_ns)
    own = {key: said.pop(key) for key in [*said] if key in RunSight.__dataclass_fields__}
    findings = replace(Findings(account, requested_ns=account.start_ns), **said)
    course = ledger.course(now_ns)
    return RunSight(findings, course, ledger.step_times(now_ns), course.end_ns, **own)
