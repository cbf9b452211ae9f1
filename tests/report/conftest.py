"""A small run with one disruption of each sort, as a report gets it."""

from __future__ import annotations

import pytest

from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.account import Account, Disruption
from holdfast.core.preloaded import PreloadedPart
from holdfast.report.findings import (
    CompilationFindings,
    DisruptionEvidence,
    Findings,
    PreloadFindings,
    RequeueFindings,
    RestartFindings,
    Resumed,
    RolledBack,
    SaveFindings,
)


def ns(**kinds: float) -> dict[str, int]:
    """Seconds by kind as nanoseconds; a double underscore stands for a colon."""
    return {kind.replace("__", ":"): round(s * SECOND_NS) for kind, s in kinds.items()}


@pytest.fixture
def findings() -> Findings:
    kinds = ns(
        step=96, startup=8, compile=4.5, restore=0.3, save=0.2, lost=6, detect=0.004, drain=0.4,
        backoff=2, reschedule=0.05, data=0.6, custom__evaluation=3, queued__provision=0.02,
    )  # fmt: skip
    kinds = {kind: 8 * chip_ns for kind, chip_ns in kinds.items()}
    elapsed = sum(kinds.values()) // 8
    disruptions = (
        Disruption(0, "preempted", 0, 0, SECOND_NS * 4, SECOND_NS * 31, SECOND_NS * 35,
                   ns(drain=0.4, reschedule=0.05, startup=2, restore=0.1, compile=1.45, step=0.2),
                   8),
        Disruption(1, "killed", 12, SECOND_NS * 3, SECOND_NS * 5, SECOND_NS * 70, SECOND_NS * 75,
                   ns(lost=0.1, detect=0.01, backoff=1, startup=2.2, compile=1.49, step=0.2), 8),
        Disruption(2, "failed", 19, SECOND_NS * 3, None, SECOND_NS * 100, None, ns(startup=2), 8),
    )  # fmt: skip
    account = Account("my-run", 0, elapsed, 8, kinds, 400, 31, disruptions, 8 * elapsed)
    return Findings(
        account,
        store="/stores/here",
        command=("python", "train.py", "--steps", "400"),
        state="running",
        requested_ns=0,
        unix_clock=True,
        attempts=4,
        evidence=(
            DisruptionEvidence(0, "a maintenance notice: saved step 131 and stopped", (75,)),
            DisruptionEvidence(
                1,
                restart=RestartFindings(
                    ns(
                        detect=0.001,
                        drain=0.008,
                        choose=0.004,
                        record=0.01,
                        launch=0.02,
                        start=0.15,
                    ),
                    woken=(0, 1),
                    cold={2: "train.py has changed since"},
                ),
            ),
            DisruptionEvidence(
                2,
                None,
                (1,),
                ("one", "two"),
                "Traceback:\n  File x\nValueError: \x1b[31mno",
                rank=0,
                stacks=((1, 'File "x", in wait'),),
            ),
        ),
        rollbacks=(
            RolledBack(2, 20, 0, 20, "loss is NaN"),
            RolledBack(3, 0, None, 0, "holdfast rollback by me@here"),
        ),
        resumed=(Resumed(1, 131, from_memory=False), Resumed(2, 1400, from_memory=True)),
        preloads=(
            PreloadFindings(
                2_000_000_000,
                "node-7",
                (PreloadedPart("packages", 9, 1_200_000, None, 2_000_000_000),),
            ),
        ),
        requeues=(RequeueFindings("17", 2, 3_600_000_000_000),),
        saves=SaveFindings(1200, 1_440_000_000, 9, 8, 4_000_000_000),
        compilations=CompilationFindings(12, 1, round(3.4 * SECOND_NS)),
        notes=("12 records were dropped: the disk was full",),
    )
