"""A time line in a few numbers."""

from __future__ import annotations

from holdfast.core.ledger.facts import AttemptFact, RunFact, StepsFact
from holdfast.core.ledger.incremental import Ledger


def test_parts_have_what_lies_in_them() -> None:
    ledger = Ledger()
    ledger.add([RunFact("r", 100, None, 1), AttemptFact(0, 100, 500, "killed")])
    ledger.add([StepsFact(0, 1, 1, 200, 350)])
    assert ledger.kept_shares(4, 500) == (0, 100, 50, 0)
    assert ledger.kept_shares(1, 500) == (38,)
    assert ledger.kept_shares(3, 102) == ()
