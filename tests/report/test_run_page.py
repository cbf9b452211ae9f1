"""A run's page is whole and bounded, runs its own script alone, and shows hostile words as text."""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from holdfast.core.durations import SECOND_NS as S
from holdfast.core.ledger.facts import NoticeFact, WaitFact
from holdfast.journal.facts.attempts import RankSeen
from holdfast.journal.layout import RankPhase
from holdfast.report.findings import (
    Checkpoint,
    CompilationFindings,
    DisruptionEvidence,
    LastAnnounced,
    LaunchFindings,
    RequeueFindings,
    RolledBack,
)
from holdfast.report.overview import Gain, Gains, Overview, overview
from holdfast.report.run_data import MARKS, course_data
from holdfast.report.run_page import DRAWN_CURVES, SECTIONS, run_page, sections
from holdfast.report.words import duration
from holdfast.runs.curves import Curve, Points

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from read_html import LOADS, Read
from sights import HOSTILE, killed_once, sight_of

sys.path.pop(0)

SHOWN = HOSTILE.replace("\x1b[31m", "").replace("\u202e", "")
RANK = RankSeen(1, HOSTILE, 0, RankPhase.TRAINING, 66, 112 * S, 66, 112 * S, 112 * S, 0, 20, 45, 45,
                0, 0, 0)  # fmt: skip
CHECKPOINTS = (Checkpoint(HOSTILE, 0, 45, (HOSTILE,), 10, 65 * S),)


CURVE = Points(np.zeros(2, int), np.array([1, 2]), np.array([0.5, math.nan]), np.array([1e9, 2e9]))
CURVES = tuple(Curve(f"{n}{HOSTILE}", CURVE, ()) for n in range(DRAWN_CURVES))


@pytest.fixture(scope="module")
def view() -> Overview:
    """A run all of whose words are hostile."""
    facts = killed_once(name=HOSTILE)
    evidence = DisruptionEvidence(
        0, HOSTILE, (-9,), (HOSTILE,), HOSTILE, rank=0, stacks=((0, HOSTILE),)
    )
    return overview(
        sight_of(
            facts,
            now_ns=112 * S,
            unix_clock=True,
            state="running",
            why=HOSTILE,
            command=(HOSTILE,),
            commands=(LaunchFindings(0, (HOSTILE,)), LaunchFindings(1, (HOSTILE, "2"))),
            evidence=(evidence,),
            announced=(LastAnnounced(HOSTILE, 100 * S, 200 * S, 112 * S),),
            rollbacks=(RolledBack(1, 45, 0, 0, HOSTILE),),
            requeues=(RequeueFindings(HOSTILE, 2, 100 * S),),
            checkpoints=CHECKPOINTS,
            saving=HOSTILE,
            curves=(Curve(HOSTILE, CURVE, (CURVE,)), *CURVES),
            compilations=CompilationFindings(3, 1, S),
            notes=(HOSTILE,) * 9,
            ranks=(RANK, RANK._replace(rank=1)),
            gains=Gains((Gain(HOSTILE, 0.1, 0.9),), HOSTILE),
            price_per_chip_hour=2.0,
        )
    )


@pytest.fixture(scope="module")
def written(view: Overview) -> str:
    return run_page(view, CHECKPOINTS, "1.2.3")


def test_words_from_outside_are_text(written: str) -> None:
    read = Read(written)
    assert [tag for tag, _ in read.tags if tag in ("img", "a", "iframe", "object")] == []
    assert len([tag for tag, _ in read.tags if tag == "script"]) == 2
    assert "alert(1)" not in "".join(read.inside["script"] + read.inside["style"])
    assert not any(name.startswith("on") for _, attrs in read.tags for name in attrs)
    assert "".join(read.words).count(SHOWN) > 12
    assert "\x1b" not in written
    assert "\u202e" not in written
    (data,) = read.inside["json"]
    assert not re.search("[<>&\u2028]", data)
    assert json.loads(data)["end"] == 112_000_000


def test_how_often_the_job_was_requeued_is_beside_the_disruptions(view: Overview) -> None:
    assert "was requeued 2 times" in sections(view)["incidents"]


def test_the_policy_allows_its_own_script_and_styles_only(written: str) -> None:
    read = Read(written)
    (content,) = (
        attrs["content"] or ""
        for tag, attrs in read.tags
        if attrs.get("http-equiv") == "Content-Security-Policy"
    )
    allowed = dict(part.split(" ", 1) for part in content.split("; "))
    assert allowed["default-src"] == "'none'"
    for kind in ("script", "style"):
        (text,) = read.inside[kind]
        digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
        assert allowed[f"{kind}-src"] == f"'sha256-{digest}'"


def test_nothing_is_fetched_and_nothing_styled_by_attributes(written: str) -> None:
    read = Read(written)
    fetched = [(tag, name) for tag, attrs in read.tags for name in attrs if name in LOADS]
    assert fetched == []
    named = [attrs["id"] for _, attrs in read.tags if "id" in attrs]
    assert len(set(named)) == len(named)
    assert {f"url(#{name})" for name in named} >= set(re.findall(r"url\([^)]*\)", written))


def test_charts_have_the_colours_of_the_page(written: str) -> None:
    assert "#0a0b" not in written
    assert 'fill="var(--soft)"' in written


def test_sections_can_be_had_by_themselves(view: Overview) -> None:
    some = sections(view, set(SECTIONS) - {"now", "hosts"})
    assert list(some) == ["now", "hosts"]
    assert "the others wait for it" not in some["hosts"]
    assert set(some) < set(SECTIONS)
    assert "holdfast save" in some["now"]  # no save was measured, and a deadline is near


@pytest.mark.parametrize(
    "view",
    [
        overview(sight_of(killed_once()[:1], now_ns=5 * S)),
        overview(sight_of(killed_once()[:1])),
        overview(sight_of(killed_once(resumed=False), now_ns=95 * S, state="failed")),
    ],
    ids=["only requested", "no time at all", "failed"],
)
def test_a_run_of_which_little_is_known_has_a_page(view: Overview) -> None:
    read = Read(run_page(view, (), "1"))
    assert json.loads(read.inside["json"][0])["format"] == 1
    assert "Disruptions" in "".join(read.words)


def test_a_goodput_of_nothing_is_not_green() -> None:
    nothing = overview(sight_of(killed_once()[:1], now_ns=5 * S))
    some = overview(sight_of(killed_once()))
    told = [sections(one, set(SECTIONS) - {"goodput"})["goodput"] for one in (nothing, some)]
    assert ['<strong class="good">' in one for one in told] == [False, True]
    assert '<strong class="">0.0 %<' in told[0]


def test_the_first_start_is_shown_with_its_phases() -> None:
    view = overview(sight_of(killed_once()))
    told = sections(view, set(SECTIONS) - {"incidents"})["incidents"]
    total = sum(view.account.first_start_ns.values())
    assert f"First start: {duration(total)} until the first step was done" in told
    assert "<b>first step</b>" in told.partition("Disruptions")[0]


def test_a_back_off_is_not_compared_with_those_before() -> None:
    why = "restarting in 1 min 30 s, 3 failures in the same way"
    facts = [*killed_once(resumed=False)[:-1], WaitFact("backoff", 75 * S, None)]
    view = overview(sight_of(facts, now_ns=700 * S, state="running", why=why))
    now = sections(view, set(SECTIONS) - {"now"})["now"]
    assert "waits on purpose: restarting in 1 min 30 s" in now
    assert "in backoff" in now
    assert "it never was in this before" not in now


def test_a_long_run_has_a_page_of_less_than_2_mb() -> None:
    """The course is bounded by the ledger; here the disruptions, each with all that it may have."""
    sight = sight_of(killed_once())
    (one,) = sight.findings.account.disruptions
    waterfall = {f"custom:{i}": S for i in range(9)}
    many = tuple(replace(one, attempt=i, waterfall_ns=waterfall) for i in range(500))
    account = replace(sight.findings.account, disruptions=many)
    line = "word " * 40
    evidence = tuple(DisruptionEvidence(i, line, (1,) * 8, (line,) * 40, line) for i in range(500))
    findings = replace(sight.findings, account=account, evidence=evidence)
    page = run_page(overview(replace(sight, findings=findings)), (), "1")
    assert len(page.encode()) < 2_000_000


def test_disruptions_that_share_their_downtime_say_so() -> None:
    sight = sight_of(killed_once())
    (one,) = sight.findings.account.disruptions
    for disruptions, is_said in (((one,), False), ((one, replace(one, attempt=1)), True)):
        account = replace(sight.findings.account, disruptions=disruptions)
        findings = replace(sight.findings, account=account)
        told = sections(overview(replace(sight, findings=findings)))["incidents"]
        assert ("end with the same step share the time until then" in told) is is_said


def test_so_many_marks_are_in_the_page() -> None:
    facts = [*killed_once(), *(NoticeFact(50 * S + i, None, "gce") for i in range(9000))]
    sight = sight_of(facts)
    (one,) = sight.findings.account.disruptions
    account = replace(sight.findings.account, disruptions=(one,) * 9000)
    view = overview(replace(sight, findings=replace(sight.findings, account=account)))
    data = course_data(view)
    assert [len(data[key]) for key in ("notices", "incidents")] == [MARKS, MARKS]
    assert data["notices"][-1]["at"] == 50_000_008
    assert len(run_page(view, (), "1")) < 2_000_000


def test_of_thousands_of_disruptions_the_page_has_the_newest_and_the_costliest() -> None:
    sight = sight_of(killed_once())
    (one,) = sight.findings.account.disruptions
    many = tuple(replace(one, attempt=i, lost_ns=S * (i < 9)) for i in range(5000))
    account = replace(sight.findings.account, disruptions=many)
    findings = replace(sight.findings, account=account)
    html = sections(overview(replace(sight, findings=findings)), set(SECTIONS) - {"incidents"})
    shown = [int(n) for n in re.findall(r'id="incident-(\d+)"', html["incidents"])]
    assert shown == sorted(shown, reverse=True)
    assert len(shown) == 600
    assert {0, 8, 4999} <= set(shown)
    assert "4,400 other disruptions" in html["incidents"]
