"""What a page shows, as data: bounded, and derived from facts that are given here."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest

from holdfast.core.durations import SECOND_NS as S
from holdfast.core.ledger.facts import AttemptFact, RunFact, StepsFact, WaitFact
from holdfast.core.ledger.program import Basis, ToldProgram
from holdfast.journal.facts.attempts import RankSeen
from holdfast.journal.layout import RankPhase
from holdfast.report.findings import Checkpoint, DisruptionEvidence, LastAnnounced, SaveFindings
from holdfast.report.hosts import host_rows
from holdfast.report.overview import badput, overview
from holdfast.report.run_data import course_data
from holdfast.report.run_top import cards, goodput
from holdfast.report.stories import STORIES_CHARS
from holdfast.report.tiers import Newest
from holdfast.report.words import duration

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from sights import HOSTILE, killed_once, sight_of

sys.path.pop(0)

RANK = RankSeen(1, "host-a", 0, RankPhase.TRAINING, 66, 112 * S, 66, 112 * S, 112 * S, 0, 20,
                45, 45, 0, 0, 0)  # fmt: skip


def test_what_each_factor_lost_adds_up_to_what_was_lost() -> None:
    view = overview(sight_of(killed_once()))
    account = view.account
    scheduling, runtime, program = view.factors
    assert (scheduling.lost_chip_ns or 0) + (runtime.lost_chip_ns or 0) == (
        account.elapsed - account.productive
    )
    assert (scheduling.share or 0) * (runtime.share or 0) == pytest.approx(account.goodput)
    assert (program.share, program.lost_chip_ns) == (None, None)
    told = overview(sight_of(killed_once(), program=0.25)).factors[2]
    assert told.lost_chip_ns == account.productive * 3 // 4


def test_program_goodput_names_its_convention_and_all_three_factors_their_denominator() -> None:
    told = ToldProgram(10**15, dtype="bf16", chip="H100 SXM", peak_flops=10**15)
    known = sight_of(killed_once(), program=0.25, productivity=0.125, basis=Basis(told=told))
    view = overview(known)
    assert view.factors[2].of.endswith(
        "; effective MFU: against the bf16 peak, whatever numbers the products are in"
    )
    best, paid = (duration(view.account.elapsed_ns // part) for part in (8, 1))
    assert f"With program: 12.5 %, {best} at best of {paid} paid." in goodput(view)["steps"]
    unknown = overview(sight_of(killed_once()))
    assert "effective" not in unknown.factors[2].of
    assert goodput(unknown)["steps"].endswith("lost.")


def test_what_a_person_stopped_is_drawn_with_scheduling_and_a_back_off_with_runtime() -> None:
    """In the order of a waterfall: first what lowers scheduling goodput, whatever came first."""
    facts = [
        RunFact("r", 0, None, 1),
        AttemptFact(0, 10 * S, 20 * S, "failed"),
        WaitFact("backoff", 20 * S, 30 * S),
        AttemptFact(1, 30 * S, 40 * S, "stopped"),
        WaitFact("stopped", 40 * S, 50 * S),
        AttemptFact(2, 50 * S, None, None),
        StepsFact(2, 1, 1, 51 * S, 60 * S),
    ]
    kinds = [kind for kind, _ in badput(overview(sight_of(facts, now_ns=60 * S)).account)]
    assert kinds == ["queued", "stopped", "backoff", "startup"]


def test_the_last_step_and_what_is_usual() -> None:
    view = overview(replace(sight_of(killed_once()), now_ns=150 * S))
    assert view.last_step_age_ns == 38 * S
    assert (view.steps.last_step, view.steps.usual_ns, view.steps.recent_ns) == (66, S, S)
    assert [(one.step, one.took_ns) for one in view.steps.outliers] == [(66, 8 * S)]


def test_the_phase_of_a_disruption_is_measured_by_those_before() -> None:
    facts = killed_once(resumed=False)
    view = overview(sight_of(facts, now_ns=95 * S, state="running"))
    assert view.phase is not None
    assert (view.phase.kind, view.phase.lasts_ns, view.phase.usual_ns) == ("startup", 15 * S, None)
    assert view.newest is not None
    assert view.newest.down_ns is None
    assert overview(sight_of(killed_once(), now_ns=112 * S, state="running")).phase is None


@pytest.mark.parametrize(("left_s", "command"), [(90, None), (10, "holdfast save r")])
def test_a_notice_is_weighed_against_the_measured_save(left_s: int, command: str | None) -> None:
    sight = sight_of(
        killed_once(),
        now_ns=112 * S,
        state="running",
        announced=(LastAnnounced("maintenance", 100 * S, (112 + left_s) * S, 112 * S),),
        saves=SaveFindings(10, 10 * S, 5, 5, 50 * S),
    )
    view = overview(sight)
    assert view.save_ns == 11 * S
    assert view.advice.command == command


def test_a_tier_leaves_at_risk_what_came_after_its_newest_set() -> None:
    sets = (Checkpoint("s", 0, 40, nbytes=7, at_ns=60 * S),)
    said = {"store": "/s", "checkpoints": sets, "saves": SaveFindings(12, 6 * S, 1, 1, 2 * S)}
    newest = {"memory": Newest(60, 105 * S, 5 * S)}
    sight = sight_of(killed_once(), now_ns=112 * S, state="running", newest=newest, **said)
    memory, disk = overview(sight).tiers
    assert (memory.blocked_ns, memory.every_ns, memory.at_risk_steps) == (S // 2, 5 * S, 6)
    assert (memory.at_risk_ns, memory.last_ns) == (6 * S, 105 * S)
    assert (disk.saves, disk.took_ns, disk.nbytes, disk.at_risk_steps) == (1, 2 * S, 7, 26)


@pytest.mark.parametrize("memory", [Newest(60, 105 * S, 5 * S), Newest(58, 103 * S, 5 * S)])
def test_each_tier_has_its_own_interval(memory: Newest) -> None:
    """The newest set is on disk, where sets come less often; a process that dies loses nothing."""
    newest = {"memory": memory, "disk": Newest(60, 105 * S, 40 * S)}
    said = {"store": "/s", "saves": SaveFindings(12, 6 * S, 1, 1, 2 * S), "newest": newest}
    tiers = overview(sight_of(killed_once(), now_ns=112 * S, state="running", **said)).tiers
    assert [one.every_ns for one in tiers] == [5 * S, 40 * S]
    assert [one.last_step for one in tiers] == [60, 60]


def test_of_a_run_that_is_done_nothing_is_at_risk() -> None:
    def names(state: str) -> list[str]:
        said = {"store": "/s", "newest": {"memory": Newest(60, 105 * S, 5 * S)}}
        view = overview(sight_of(killed_once(), now_ns=500 * S, state=state, **said))
        return [card["name"] for card in cards(view)]

    assert "at risk from disk" in names("running")
    assert "at risk from disk" in names("interrupted")
    assert not [name for name in names("done") if name.startswith("at risk")]


def test_the_rank_that_the_others_wait_for() -> None:
    ranks = [RANK._replace(rank=i, ahead_ns=S // 5) for i in range(4)]
    ranks[2] = ranks[2]._replace(ahead_ns=0, complete=64)
    rows = host_rows(ranks, 115 * S, S)
    assert [(row.rank, row.is_straggler) for row in rows][:2] == [(2, True), (0, False)]
    assert (rows[0].behind, rows[0].step_ago_ns) == (2, 3 * S)
    assert not any(row.is_straggler for row in host_rows(ranks[:2], 115 * S, S))
    even = [one._replace(ahead_ns=0) for one in ranks]
    assert not any(row.is_straggler for row in host_rows(even, 115 * S, S))


def test_an_incident_has_its_price_and_its_last_words() -> None:
    told = DisruptionEvidence(
        0, HOSTILE, (-9, None), ("a", HOSTILE), None, rank=1, stacks=((1, HOSTILE),)
    )
    view = overview(sight_of(killed_once(), evidence=(told,), price_per_chip_hour=2.0))
    (incident,) = view.incidents
    assert incident.chip_hours == pytest.approx(
        (4.5 + 14) * 4 / 3600
    )  # a save in the first lost step
    assert incident.money == pytest.approx(incident.chip_hours * 2)
    assert (incident.lost_steps, incident.rank, incident.exits) == (5, 1, (-9, None))
    for text in (incident.cause, incident.lines[1], incident.stacks[0][1]):
        assert "alert(1)" in text  # it is shown, as text,
        assert "\x1b" not in text  # without what a terminal would obey
        assert "\u202e" not in text


def test_many_incidents_are_told_shorter() -> None:
    sight = sight_of(killed_once())
    (one,) = sight.findings.account.disruptions
    many = tuple(replace(one, attempt=i, lost_ns=i % 700) for i in range(1000))
    account = replace(sight.findings.account, disruptions=many)
    evidence = tuple(DisruptionEvidence(i, last_lines=("x" * 10_000,) * 99) for i in range(1000))
    view = overview(replace(sight, findings=replace(sight.findings, account=account,
                                                    evidence=evidence)))  # fmt: skip
    whole = [one.attempt for one in view.incidents if one.is_whole]
    assert len(view.incidents) == 1000
    assert 20 < len(whole) < 100
    assert {995, 996, 997, 998, 999} <= set(whole)
    assert {695, 696, 697, 698, 699} <= set(whole)  # the costliest of the others
    assert sum(len(line) for one in view.incidents for line in one.lines) <= STORIES_CHARS


def test_a_history_that_ended_with_a_failure_is_not_done() -> None:
    for cause, state in (("done", "done"), ("failed", "ended"), (None, "ended")):
        facts = [RunFact("r", 0, 9 * S, 1), AttemptFact(0, 0, 9 * S, cause)]
        assert overview(sight_of(facts)).state == state
    assert overview(sight_of([RunFact("r", 0, 9 * S, 1)])).state == "ended"
    assert overview(sight_of([RunFact("r", 0, None, 1)])).state == "recorded"


def test_it_is_plain_data() -> None:
    view = overview(sight_of(killed_once(), ranks=(RANK,)))
    assert json.loads(json.dumps(asdict(view)))["course"]["pieces"][0]["kinds"] == {
        "queued": 10 * S
    }


def test_the_scripts_data_are_the_course() -> None:
    view = overview(sight_of(killed_once()))
    data = course_data(view, ((60 * S, 40),))
    assert sum(data["d"]) == data["end"] == 112_000_000
    totals: dict[str, int] = {}
    mixed = iter(data["m"])
    for length, kind in zip(data["d"], data["k"], strict=True):
        pairs = [(kind, length)]
        if kind < 0:
            pairs = [(next(mixed), next(mixed)) for _ in range(next(mixed))]
        for place, us in pairs:
            name = data["kinds"][place]["name"]
            totals[name] = totals.get(name, 0) + us
    chips = view.account.chips
    assert totals == {k: ns // chips // 1000 for k, ns in view.account.kinds.items() if ns}
    assert sum(data["n"]) == view.steps.steps
    assert sum(data["s"]) == 66
    assert data["saves"] == [[60_000_000, 40]]
    assert data["notices"] == [{"at": 50_000_000, "deadline": 60_000_000, "source": "gce"}]
