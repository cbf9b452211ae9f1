from __future__ import annotations

import json
import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.profiles.summary import Operation, ProfiledStep, ProfileSummary
from holdfast.report.document import document
from holdfast.report.findings import Findings, HostFindings
from holdfast.report.terminal import show

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "report-json.md"


def test_it_is_json_and_holds_the_result_of_a_history(findings: Findings) -> None:
    written = json.loads(json.dumps(document(findings), allow_nan=False))
    result = json.loads(json.dumps(findings.account.to_json()))
    assert {key: written[key] for key in result} == result


def test_an_incident_carries_its_story(findings: Findings) -> None:
    first, second, third = document(findings)["incidents"]
    assert first["words"] == "a maintenance notice: saved step 131 and stopped"
    assert first["exits"] == [75]
    assert (first["rank"], first["stacks"]) == (None, [])
    assert (third["rank"], third["stacks"]) == (0, [{"rank": 1, "text": 'File "x", in wait'}])
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


def test_what_was_preloaded_is_told(findings: Findings) -> None:
    assert document(findings)["preloads"] == [
        {
            "at": "1970-01-01T00:00:02.000+00:00",
            "host": "node-7",
            "parts": [
                {"what": "packages", "files": 9, "bytes": 1200000, "from_disk": None, "took_s": 2.0}
            ],
        }
    ]


def test_how_often_a_job_was_requeued_is_told(findings: Findings) -> None:
    last = "1970-01-01T01:00:00.000+00:00"
    assert document(findings)["requeues"] == [{"job": "17", "times": 2, "last": last}]


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


BY_KIND = {"badput_s", "waterfall_s", "parts_ns"}
PARTS_NS = {"compute": 60, "collective": 20, "input": 10, "host": 6, "idle": 4}
PROFILE = ProfileSummary(
    2, 1, "jax", "0.10", "TPU v6e", 4, False, 10**18, "the loop ended after 1 of 5 steps",
    (ProfiledStep(7, 100, PARTS_NS),),
    (Operation("dot.1", "compute", 3, 50, 4_000, 200),),
)  # fmt: skip


def test_a_profile_is_told(findings: Findings) -> None:
    assert document(findings)["profile"] is None
    told = document(replace(findings, profile=PROFILE))["profile"]
    assert told["parts_ns"] == PARTS_NS
    assert ProfileSummary.from_json(told) == PROFILE
    console = Console(width=100, file=StringIO(), record=True)
    show(replace(findings, profile=PROFILE), console)
    assert "profile of 1 step of rank 1: compute 60.0 %, collective 20.0 %" in console.export_text()


def keys_of(value: object) -> set[str]:
    """All keys at any depth, except those of maps by kind of time."""
    if isinstance(value, list):
        return {key for item in value for key in keys_of(item)}
    if not isinstance(value, dict):
        return set()
    return {
        key
        for name, item in value.items()
        for key in {name} | (set() if name in BY_KIND else keys_of(item))
    }


def test_every_key_is_documented_and_no_other(findings: Findings) -> None:
    documented = set(re.findall(r"^\| `(\w+)` \|", PAGE.read_text(), re.MULTILINE))
    hosts = (HostFindings(0, "assigned", 0, "", ((0, 0, 0, 7),), 0, 0),)
    known = keys_of(document(replace(findings, hosts=hosts, profile=PROFILE)))
    assert documented == known | {"tags", "step"}


def test_rolling_windows_are_told(findings: Findings) -> None:
    hour = replace(
        findings.account, start_ns=findings.account.end_ns, kinds={}, disruptions=(), paid=0
    )
    told = document(replace(findings, rolling={"1h": hour, "7d": findings.account}))["rolling"]
    assert (told["1h"]["goodput"], told["1h"]["elapsed_s"]) == (None, 0)
    whole = document(findings)
    assert told["7d"] == {name: whole[name] for name in told["7d"]}
    console = Console(width=100, file=StringIO(), record=True)
    show(replace(findings, rolling={"1h": hour, "7d": findings.account}), console)
    assert "goodput: last hour —" in console.export_text()
    assert "last 7 days" not in console.export_text()  # the run is no longer than that
