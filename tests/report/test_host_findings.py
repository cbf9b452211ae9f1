"""The hosts of a run of several, in the report, its document and its page."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from holdfast.journal.facts.hosts import KnownHosts
from holdfast.journal.facts.lines import HostPart, PartsStated
from holdfast.report.document import document
from holdfast.report.findings import DisruptionEvidence, HostFindings
from holdfast.report.host_findings import by_interest, summary, table, with_hosts
from holdfast.report.overview import overview
from holdfast.report.run_page import sections
from holdfast.report.terminal import HOSTS_SHOWN, show

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from sights import HOSTILE, killed_once, sight_of

sys.path.pop(0)

US, HOUR = 1_000, 3_600_000_000_000
HOSTS = (
    HostFindings(0, "assigned", 0, "eu-1", ((0, 1, 0, 7),), 0, 0),
    HostFindings(1, "lost", None, "eu-1", ((0, 0, 8, 15),), 3 * HOUR, 200 * US, (0,)),
    HostFindings(2, "assigned", 1, "", ((1, 1, 8, 15),), None, None),
)


def shown(hosts: tuple[HostFindings, ...], *, encoding: str = "utf-8") -> str:
    console = Console(width=110, color_system=None, legacy_windows=False)
    if encoding == "ascii":
        console.options.encoding = encoding
    with console.capture() as capture:
        show(sight_of(killed_once(), hosts=hosts).findings, console)
    return capture.get()


def test_each_host_has_a_row() -> None:
    assert table(HOSTS, 9)[1:] == [
        ("0", "assigned", "eu-1", "ranks 0–7 in attempts 0–1", "the same", "—"),
        ("1", "lost", "eu-1", "ranks 8–15 in attempt 0", "+3 h ± 200 µs", "attempt 0"),
        ("2", "assigned", "—", "ranks 8–15 in attempt 1", "–", "—"),
    ]
    assert summary(HOSTS) == "3 hosts: 2 assigned, 1 lost"


def test_their_chips_are_told_where_they_say_how_many_they_have() -> None:
    assert "chips" not in table(HOSTS, 9)[0]
    known = [replace(one, chips=chips) for one, chips in zip(HOSTS, (8, 16, None), strict=True)]
    at = table(known, 9)[0].index("chips")
    assert [row[at] for row in table(known, 9)] == ["chips", "8", "16", "—"]
    assert summary(known).endswith("1 lost; 8 chips train (8 in slice eu-1)")
    other = HostFindings(3, "assigned", 1, "us-1", chips=4)
    words = summary([*known[:2], other])
    assert words.endswith("; 12 chips train (8 in slice eu-1, 4 in slice us-1)")
    many = [HostFindings(n, "assigned", n, f"s{n:02}", chips=1) for n in range(30)]
    assert summary(many).endswith(" in slice s07 …)")


def test_many_parts_and_disruptions_are_cut_to_the_last() -> None:
    parts = tuple((n, n, n, n) for n in range(0, 20, 2))
    host = HostFindings(0, "spare", parts=parts, incidents=(*range(9),))
    _, _, _, words, _, broke = table([host], 1)[1]
    assert words == "… rank 14 in attempt 14; rank 16 in attempt 16; rank 18 in attempt 18"
    assert broke.startswith("… attempt 3, ")
    assert broke.endswith("attempt 8")


def test_the_report_shows_them_and_a_run_of_one_host_does_not() -> None:
    words = " ".join(shown(HOSTS).split())
    assert "3 hosts: 2 assigned, 1 lost" in words
    assert "1 lost eu-1 ranks 8–15 in attempt 0 +3 h ± 200 µs attempt 0" in words
    assert "assigned" not in shown(())


def test_of_many_the_odd_ones_are_shown() -> None:
    many = tuple(HostFindings(n, "lost" if n == 900 else "assigned", n) for n in range(1000))
    assert [one.index for one in by_interest(many, 3)] == [0, 1, 900]
    words = shown(many)
    assert "1000 hosts: 999 assigned, 1 lost" in words
    assert f"{1000 - HOSTS_SHOWN:,} other hosts" in words
    assert len([line for line in words.splitlines() if " assigned " in line]) <= HOSTS_SHOWN


def test_the_document_has_them() -> None:
    found = document(sight_of(killed_once(), hosts=HOSTS).findings)
    assert found["hosts"][1] == {
        "index": 1,
        "state": "lost",
        "trains_as": None,
        "slice": "eu-1",
        "chips": None,
        "parts": [{"attempts": [0, 0], "ranks": [8, 15]}],
        "clock": {"ahead_s": 10800.0, "bound_s": 0.0002},
        "incidents": [0],
    }
    assert found["hosts"][2]["clock"] is None
    assert found["hosts"][2]["slice"] is None
    assert document(sight_of(killed_once()).findings)["hosts"] == []


def test_the_page_has_them_below_the_time_line_and_obeys_no_name() -> None:
    found = sections(overview(sight_of(killed_once(), hosts=HOSTS)))
    assert "ranks 8–15 in attempt 0" in found["members"]
    assert sections(overview(sight_of(killed_once())))["members"] == ""
    hostile = (HostFindings(0, HOSTILE, 0, HOSTILE),)
    words = sections(overview(sight_of(killed_once(), hosts=hostile)))["members"]
    assert "<script>" not in words
    assert "\x1b" not in words
    assert "\x1b[31m" not in shown(hostile)


@pytest.mark.parametrize(
    ("rank", "words", "host", "expected"),
    [
        (9, "rank 9: its host was lost", 1, "host 1, rank 9: its host was lost"),
        (0, "killed by SIGKILL", 0, "host 0, rank 0: killed by SIGKILL"),
        (9, None, 1, None),
        (16, "rank 16: failed", None, "rank 16: failed"),
        (None, "stopped", None, "stopped"),
    ],
)
def test_an_incident_names_the_host_of_the_rank_that_broke_first(rank, words, host, expected):
    hosts = KnownHosts()
    parts = HostPart(0, 0, 7), HostPart(1, 8, 15)
    hosts.take_parts((-1, "controller-000001.hfj"), PartsStated(0, parts))
    (found,) = with_hosts([DisruptionEvidence(0, words, rank=rank)], hosts)
    assert (found.host, found.words) == (host, expected)
