"""Cases with known answers, from tests/truth: both ledgers must give them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
from all_facts import all_facts
from plain_ledger import account

from holdfast.core.history.text import History, parse_text
from holdfast.core.ledger.account import Account
from holdfast.core.ledger.incremental import Ledger

TRUTH = Path(__file__).parents[2] / "truth"
CASES = sorted(path.stem for path in TRUTH.glob("*.jsonl"))


def by_plain(history: History, now_ns: int | None) -> Account:
    return account(all_facts(history), now_ns)


def by_columns(history: History, now_ns: int | None) -> Account:
    ledger = Ledger()
    ledger.add_history(history)
    return ledger.account(now_ns)


def test_there_are_cases() -> None:
    assert len(CASES) >= 10


@pytest.mark.parametrize("ledger", [by_plain, by_columns])
@pytest.mark.parametrize("case", CASES)
def test_truth(case: str, ledger: Any) -> None:
    expected = json.loads((TRUTH / f"{case}.expected.json").read_text())
    now = expected.pop("now", None)
    now_ns = None if now is None else int(Decimal(str(now)) * 10**9)
    result = ledger(parse_text((TRUTH / f"{case}.jsonl").read_text()), now_ns).to_json()
    assert result["badput_s"].keys() == expected["badput_s"].keys()
    assert_matches(result, expected, case)


def assert_matches(result: Any, expected: Any, where: str) -> None:
    """All that is expected is there, numbers within 1e-6; more may be."""
    if isinstance(expected, dict):
        for key, value in expected.items():
            assert key in result, f"{where}.{key}"
            assert_matches(result[key], value, f"{where}.{key}")
    elif isinstance(expected, list):
        assert len(result) == len(expected), where
        for i, value in enumerate(expected):
            assert_matches(result[i], value, f"{where}[{i}]")
    elif isinstance(expected, float):
        assert result == pytest.approx(expected, abs=1e-6), where
    else:
        assert result == expected, where
