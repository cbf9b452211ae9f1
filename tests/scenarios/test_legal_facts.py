"""What a watch finds of facts without a text: the same as a reader of their text finds."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
from holdfast.core.ledger import facts
from holdfast.errors import HistoryError
from holdfast.sim.virtual.broken import Broken

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from watch import is_legal

sys.path.pop(0)

FINE = [
    facts.RunFact("virtual", 0, None, 2),
    facts.AttemptFact(0, 0, 100, "killed"),
    facts.StepsFact(0, 1, 1, 10, 20),
    facts.StepsFact(0, 2, 2, 20, 30),
    facts.AttemptFact(1, 100, 200, "done"),
    facts.StepsFact(1, 3, 3, 110, 200),
    facts.CapacityFact(0, 2),
]
SPOILT = {
    "an attempt that is not told": facts.FaultFact(2, 10, 10, "killed"),
    "an attempt that is told twice": facts.AttemptFact(1, 200, 210, "done"),
    "two attempts at a time": facts.AttemptFact(2, 150, 250, "done"),
    "two steps at a time": facts.StepsFact(0, 2, 2, 25, 35),
    "a step before its attempt": facts.StepsFact(1, 3, 3, 90, 105),
    "a step after its attempt": facts.StepsFact(0, 3, 3, 90, 105),
    "a step that ends before it begins": facts.StepsFact(0, 3, 3, 50, 40),
    "more chips than there are": facts.CapacityFact(10, 3),
}


def test_what_can_be_is_legal() -> None:
    is_legal(FINE)
    assert parse_text("".join(to_lines(FINE))).facts


@pytest.mark.parametrize("what", SPOILT)
def test_what_cannot_be_is_found(what: str) -> None:
    told = [*FINE, SPOILT[what]]
    with pytest.raises(HistoryError):
        parse_text("".join(to_lines(told)))
    with pytest.raises(Broken):
        is_legal(told)
