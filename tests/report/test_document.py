from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.report.document import document
from holdfast.report.findings import Findings

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "report-json.md"


def test_it_is_json_and_holds_the_result_of_a_history(findings: Findings) -> None:
    written = json.loads(json.dumps(document(findings), allow_nan=False))
    result = json.loads(json.dumps(findings.account.to_json()))
    assert {key: written[key] for key in result} == result


def test_an_incident_carries_its_story(findings: Findings) -> None:
    first, second, third = document(findings)["incidents"]
    assert first["words"] == "a maintenance notice: saved step 131 and stopped"
    assert first["exits"] == [75]
    assert (second["words"], second["exits"], second["traceback"]) == (None, [], None)
    assert second["chip_hours"] == pytest.approx((3 + 5) * 8 / 3600)
    # Not over: what it has cost so far.
    assert third["downtime_s"] is None
    assert third["chip_hours"] == pytest.approx((3 + 2) * 8 / 3600)


def test_the_run_says_when_it_was_asked_for(findings: Findings) -> None:
    assert document(findings)["run"]["requested"] == "1970-01-01T00:00:00.000+00:00"
    assert document(replace(findings, unix_clock=False))["run"]["requested"] is None


def test_the_compilation_cache_is_told_if_there_was_one(findings: Findings) -> None:
    assert document(findings)["compile_cache"] == {"hits": 12, "misses": 1, "saved_s": 3.4}
    assert document(replace(findings, compilations=None))["compile_cache"] is None


def test_saves_and_restores_are_told(findings: Findings) -> None:
    told = document(findings)
    assert told["resumed"][1] == {"attempt": 2, "step": 1400, "from_memory": True}
    assert told["saves"] == {
        "memory": 1200,
        "memory_blocked_s": 1.44,
        "disk": 9,
        "drains": 8,
        "drained_s": 4.0,
    }
    assert document(replace(findings, saves=None))["saves"] is None


def keys_of(value: object) -> set[str]:
    """All keys at any depth, except those of maps by kind of time."""
    if isinstance(value, list):
        return {key for item in value for key in keys_of(item)}
    if not isinstance(value, dict):
        return set()
    return {
        key
        for name, item in value.items()
        for key in {name} | (set() if name in {"badput_s", "waterfall_s"} else keys_of(item))
    }


def test_every_key_is_documented_and_no_other(findings: Findings) -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    assert documented == keys_of(document(findings)) | {"tags", "step"}
