"""What a plan is fitted from: all that was recorded, and no more."""

from __future__ import annotations

import sys
from pathlib import Path
from random import Random

import pytest

from holdfast.core.ledger.facts import RunFact, SeenFact, SpanFact, StepsFact
from holdfast.core.ledger.incremental import Ledger
from holdfast.errors import JournalError
from holdfast.journal.gathered import gathered, gathered_run
from holdfast.journal.recorded import RecordedLedger, export_facts, load_run

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from grown_runs import GrownRun

sys.path.pop(0)


@pytest.mark.parametrize("seed", range(20))
def test_steps_saves_and_facts_are_those_that_were_recorded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    run = GrownRun(tmp_path, Random(seed), monkeypatch)
    run.live(attempts=4, ranks=2)
    facts = list(export_facts(load_run(run.folder.path)))
    ledger = Ledger(by_kind=True)
    ledger.add(facts)
    found = gathered(ledger)
    steps = [fact for fact in facts if isinstance(fact, StepsFact) and fact.end_ns is not None]
    assert sorted(
        (n, *row) for n, rows in found.steps.items() for row in rows.T.tolist()
    ) == sorted((one.attempt, one.first, one.last, one.start_ns, one.end_ns) for one in steps)
    saves = [fact for fact in facts if isinstance(fact, SpanFact) and fact.kind == "save"]
    assert sorted(
        (n, *span) for n, spans in found.saves.items() for span in spans.T.tolist()
    ) == sorted((one.attempt, one.start_ns, one.end_ns) for one in saves if one.end_ns is not None)
    others = (RunFact, SeenFact, SpanFact, StepsFact)
    assert set(found.facts) == {fact for fact in facts if not isinstance(fact, others)}
    assert found.account == ledger.account()


def test_a_run_without_journals_gives_nothing(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="nothing was recorded yet"):
        gathered_run(RecordedLedger(tmp_path))
