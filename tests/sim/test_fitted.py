"""Parameters fitted from what a run recorded: read off, recovered, and as uncertain as they are."""

from __future__ import annotations

from math import log
from statistics import median
from typing import Any

import numpy as np
import pytest
from scipy.stats import chi2

from holdfast.core.history.line import to_lines
from holdfast.core.history.text import parse_text
from holdfast.core.run.restart import AllOf
from holdfast.journal.facts.lines import SavesStated
from holdfast.journal.gathered import Gathered, gathered_history
from holdfast.sim.fitted import Fit, fit
from holdfast.sim.observed import Observed, observe
from holdfast.sim.plan import plan
from holdfast.sim.plan_input import parsed, question_of
from holdfast.sim.posterior import rate_interval
from holdfast.sim.replicate import Runs, policy_of
from holdfast.sim.world import World

HOUR_S = 3600.0
# Two attempts: one dies in step 3, hangs unnoticed for 5 s in step 4 and loses its host in the end.
STORY = """
{"event": "run", "name": "r", "requested": 0, "ended": null, "chips": 4}
{"event": "attempt", "attempt": 0, "start": 10, "end": 43, "cause": "killed"}
{"event": "restore", "attempt": 0, "start": 20, "end": 21, "step": 0}
{"event": "steps", "attempt": 0, "first": 1, "last": 2, "start": 22, "end": 32}
{"event": "span", "attempt": 0, "kind": "save", "start": 32, "end": 33}
{"event": "span", "attempt": 0, "kind": "save", "start": 32.5, "end": 34}
{"event": "step", "attempt": 0, "step": 3, "start": 34, "end": null}
{"event": "fault", "attempt": 0, "at": 41, "detected": 42, "cause": "killed"}
{"event": "wait", "kind": "backoff", "start": 43, "end": 44}
{"event": "attempt", "attempt": 1, "start": 44, "end": 75, "cause": "hang"}
{"event": "restore", "attempt": 1, "start": 46, "end": 48, "step": 2, "from": 0}
{"event": "step", "attempt": 1, "step": 3, "start": 48, "end": 53}
{"event": "span", "attempt": 1, "kind": "data", "start": 53, "end": 55}
{"event": "step", "attempt": 1, "step": 4, "start": 55, "end": 60}
{"event": "fault", "attempt": 1, "at": 70, "detected": 75, "cause": "hang"}
{"event": "attempt", "attempt": 2, "start": 75, "end": 82, "cause": "host_lost"}
{"event": "fault", "attempt": 2, "at": 80, "detected": 82, "cause": "host_lost"}
{"event": "wait", "kind": "queue", "start": 82, "end": 182}
{"event": "attempt", "attempt": 3, "start": 182, "end": 205, "cause": "rolled_back"}
{"event": "restore", "attempt": 3, "start": 190, "end": 192, "step": 4, "from": 1}
{"event": "step", "attempt": 3, "step": 5, "start": 192, "end": 197}
{"event": "attempt", "attempt": 4, "start": 205, "end": null, "cause": null}
{"event": "restore", "attempt": 4, "start": 210, "end": 212, "step": 5, "from": 3}
{"event": "step", "attempt": 4, "step": 6, "start": 212, "end": 217}
"""


def told(**more: Any) -> Observed:
    """A run of a thousand hours, of which little is known."""
    known: dict[str, Any] = {
        "hosts": 1, "chips": 8, "elapsed_s": 1000 * HOUR_S, "there_s": 1000 * HOUR_S,
        "processes": 0, "hangs": 0, "lost_hosts": 0, "announced": 0, "planned": 0, "hangs_s": (),
        "restarts_s": (), "restarts_from_memory_s": (), "cold_restarts_s": (), "standbys_s": (),
        "first_start_s": 0.0, "start_s": 0.0, "waits_s": (),
        "saves_s": (), "to_memory": False, "writes": 0, "writing_s": 0.0, "notices": 0,
        "leads_s": (), "steps": 0, "step_s": 0.0, "idle": 0.0,
    }  # fmt: skip
    return Observed(**(known | more))


def holds(found: Fit, name: str, truth: float) -> bool:
    one = found.parameters[name]
    assert one.low is not None
    assert one.high is not None
    return one.low <= truth <= one.high


# --- what is read off ----------------------------------------------------------------------------


def test_a_story_is_read_off():
    seen = observe(gathered_history(parse_text(STORY.strip())))
    assert (seen.processes, seen.hangs, seen.lost_hosts, seen.planned) == (1, 1, 1, 1)
    assert seen.there_s == pytest.approx(217 - 10 - 100)
    # From 41 to 48; from 75, when the hang was noticed, nothing: the restart was struck itself.
    # From 80, when that host was lost, to 192, less the 100 s for another one.
    assert seen.restarts_s == pytest.approx((7, 12))
    assert seen.waits_s == (100,)
    assert seen.hangs_s == (5,)
    assert seen.saves_s == (2,)  # two ranks, one save
    assert (seen.steps, seen.step_s) == (6, 5)
    assert (seen.chips, seen.hosts) == (4, 0)


def test_hangs_of_which_no_fault_tells_are_counted():
    """Other trainers' logs say that an attempt hung, and not since when."""
    story = """
{"event": "run", "name": "r", "requested": 0, "ended": null, "chips": 1}
{"event": "attempt", "attempt": 0, "start": 0, "end": 90, "cause": "hang"}
{"event": "steps", "attempt": 0, "first": 1, "last": 5, "start": 0, "end": 50}
{"event": "attempt", "attempt": 1, "start": 100, "end": null, "cause": null}
{"event": "steps", "attempt": 1, "first": 6, "last": 9, "start": 103, "end": 143}
"""
    found = fit(observe(gathered_history(parse_text(story.strip()))))
    assert found.parameters["hang-share"].value == 1
    assert "hang-detect" not in found.parameters
    assert found.missing["hang-detect"].endswith("noticed after 5 min.")
    assert plan(question_of(found.values({}))).goodput > 0


def test_until_somebody_starts_it_again_is_part_of_a_restart():
    """A log of other trainers knows no hosts that are lost, and no wait for them."""
    story = """
{"event": "run", "name": "r", "requested": 0, "ended": null, "chips": 1}
{"event": "attempt", "attempt": 0, "start": 0, "end": 50, "cause": "unknown"}
{"event": "steps", "attempt": 0, "first": 1, "last": 5, "start": 0, "end": 50}
{"event": "attempt", "attempt": 1, "start": 1850, "end": null, "cause": null}
{"event": "steps", "attempt": 1, "first": 6, "last": 9, "start": 1853, "end": 1893}
"""
    seen = observe(gathered_history(parse_text(story.strip())))
    assert seen.restarts_s == pytest.approx((1803,))
    assert seen.waits_s == ()


def test_back_off_by_policy_is_no_restart():
    """After an attempt without a new step the policy waits on purpose, and a plan knows that."""
    story = """
{"event": "run", "name": "r", "requested": 0, "ended": null, "chips": 1}
{"event": "attempt", "attempt": 0, "start": 0, "end": 10, "cause": "killed"}
{"event": "steps", "attempt": 0, "first": 1, "last": 5, "start": 5, "end": 10}
{"event": "attempt", "attempt": 1, "start": 12, "end": 20, "cause": "killed"}
{"event": "wait", "kind": "backoff", "start": 10, "end": 12}
{"event": "restore", "attempt": 1, "start": 13, "end": 13, "step": 4}
{"event": "steps", "attempt": 1, "first": 5, "last": 5, "start": 15, "end": 20}
{"event": "wait", "kind": "backoff", "start": 20, "end": 60}
{"event": "attempt", "attempt": 2, "start": 60, "end": null, "cause": null}
{"event": "restore", "attempt": 2, "start": 60, "end": 61, "step": 5}
{"event": "steps", "attempt": 2, "first": 6, "last": 6, "start": 63, "end": 64}
"""
    seen = observe(gathered_history(parse_text(story.strip())))
    assert seen.restarts_s == pytest.approx((5, 3))


# --- how uncertain -------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3, 12, 400])
def test_the_interval_of_a_rate_is_garwoods(count):
    low, high = rate_interval(count, 10.0)
    assert high == pytest.approx(chi2.ppf(0.95, 2 * count + 2) / 20)
    assert low == pytest.approx(chi2.ppf(0.05, 2 * count) / 20 if count else 0.0)


def test_what_the_intervals_say_comes_true_nine_times_in_ten():
    """Six failures on average, a third of hosts, restarts and a save that vary, 400 times over."""
    rng = np.random.default_rng(5)
    mtbf_s, share, restart_s, spread, save_s = 100 * HOUR_S, 1 / 3, 300.0, 0.5, 20.0
    seen, asked = dict.fromkeys(("mtbf", "host-share", "restart", "save-stall"), 0), 0
    for _ in range(400):
        failures = int(rng.poisson(600 * HOUR_S / mtbf_s))
        hosts = int(rng.binomial(failures, share))
        restarts = rng.lognormal(log(restart_s) - spread**2 / 2, spread, failures)
        if not failures:
            continue
        asked += 1
        found = fit(
            told(
                there_s=600 * HOUR_S, processes=failures - hosts, lost_hosts=hosts,
                restarts_s=tuple(restarts), saves_s=tuple(rng.gamma(4, save_s / 4, 60)),
            )
        )  # fmt: skip
        truths = {"mtbf": mtbf_s, "host-share": share, "restart": restart_s, "save-stall": save_s}
        for name, truth in truths.items():
            seen[name] += holds(found, name, truth)
    shares = {name: count / asked for name, count in seen.items()}
    assert all(0.85 < one < 0.97 for one in shares.values()), shares


# --- a run whose parameters are known ------------------------------------------------------------

TRUE: dict[str, Any] = {
    "mtbf": 4000, "hosts": 16, "chips-per-host": 8, "host-share": 0.4, "hang-share": 0.3,
    "hang-detect": 200, "save-stall": 12, "restart": 240, "restart-spread": 0.3,
    "reschedule": 900, "step": 5, "idle": 0.08, "days": 3,
}  # fmt: skip


def simulated(seed: int, **given: Any) -> tuple[Gathered, float]:
    question = question_of(parsed({**TRUE, **given}.items(), "--"))
    runs = Runs("", question.scenario)
    world = World(
        question.scenario, runs.faults(seed), policy_of(question.scenario, AllOf(())), seed=seed
    )
    story = world.run()
    account = story.account(round(question.scenario.duration_s * 1e9))
    return gathered_history(parse_text("".join(to_lines(story.history())))), account.goodput or 0.0


def test_a_simulated_run_gives_its_parameters_back():
    certain = ("step", "idle", "save-stall")
    uncertain = ("mtbf", "host-share", "hang-share", "restart")
    held = dict.fromkeys(uncertain, 0)
    goodputs, inside = [], 0
    for seed in range(8):
        gathered, goodput = simulated(seed)
        observed = observe(gathered)
        found = fit(observed)
        for name in certain:
            assert found.parameters[name].value == pytest.approx(TRUE[name], rel=0.02), name
        assert found.parameters["reschedule"].value == pytest.approx(900, rel=0.12)
        # One that strikes a restart has the time of that as well, and counts from the launch on.
        assert median(observed.hangs_s) == pytest.approx(TRUE["hang-detect"], rel=0.02)
        for name in uncertain:
            held[name] += holds(found, name, TRUE[name])
        given = {"hosts": 16, "days": 3 * 86_400.0}
        drawn = [question_of(found.drawn(given, number)) for number in range(20)]
        planned = plan(question_of(found.values(given)), drawn)
        goodputs.append((planned.goodput, goodput))
        inside += planned.goodput_low <= goodput <= planned.goodput_high
    assert min(held.values()) >= 5, held  # of eight: fewer than five once in 200 times
    assert inside >= 6
    off = [planned - came for planned, came in goodputs]
    assert abs(sum(off)) / len(off) < 0.02


def test_restarts_from_memory_are_told_from_others():
    """A run's records say which; its supervisor says what flushes took, and how many copies."""
    given = {"memory-copy": 1, "memory-interval": 60, "save-write": 30, "hang-share": 0, "days": 1}
    gathered, _ = simulated(3, **given, **{"restart-from-memory": 60, "restart-spread": 0})
    restores = {f.attempt: f.end_ns - f.start_ns for f in gathered.facts if hasattr(f, "source")}
    gathered.from_memory = frozenset(n for n, took_ns in restores.items() if not took_ns)
    gathered.saved = SavesStated(100, 100_000_000_000, 7, 7, 210_000_000_000)
    found = fit(observe(gathered)).parameters
    assert found["restart"].value == pytest.approx(240, rel=0.01)
    assert found["restart-from-memory"].value == pytest.approx(60, rel=0.01)
    assert found["memory-copy"].value == pytest.approx(1)
    assert found["save-write"].value == pytest.approx(30)
    assert "save-stall" not in found


# --- in words, and under what is given -----------------------------------------------------------


def test_the_first_standby_is_the_one_that_imports():
    """Those after it are forks, and there at once."""
    seen = told(
        processes=3,
        restarts_s=(1.0, 1.2, 1.1),
        cold_restarts_s=(4.0,),
        standbys_s=(5.0, 0.3, 0.2),
    )
    found = fit(seen).parameters
    assert (found["standby-ready"].value, found["restart-cold"].value) == (5.0, 4.0)


def test_failures_in_words():
    found = fit(told(processes=12, there_s=31 * HOUR_S, restarts_s=(60.0,)))
    words = "12 failures in 31 h: one each 2.58 h (95.7 min … 4.48 h)"
    assert found.parameters["mtbf"].words == words
    assert found.parameters["host-share"].words == "0 of 12 failures"


def test_what_took_no_time_has_no_brackets():
    """A log tells of restarts that lose no time: none that was drawn means more."""
    found = fit(told(processes=2, there_s=31 * HOUR_S, restarts_s=(0.0, 0.0)))
    assert found.parameters["restart"].words == "2 restarts: 0 s"


def test_no_failure_gives_a_bound_alone():
    found = fit(told(there_s=30 * HOUR_S, start_s=70.0))
    one = found.parameters["mtbf"]
    assert one.low == pytest.approx(30 * HOUR_S / -log(0.05))
    assert one.value == pytest.approx(60 * HOUR_S)
    assert found.assumed({}) == (
        "It completed no step: one is taken to last 1 s.",
        "It saw no failure in 30 h, which says only that they are 10 h or more apart; 2.5 d is "
        "assumed, as for half a failure in that time.",
        "It made no save: saves are taken to block nothing.",
        "It came back from no failure: a restart is taken to last 70 s, as long as a start took; "
        "from standbys it is shorter.",
    )
    given = {"mtbf": 5.0, "restart": 5.0, "save-stall": 1.0, "step": 1.0}
    assert found.assumed(given) == ()


def test_what_is_given_wins():
    found = fit(told(hosts=4, processes=10, restarts_s=(50.0, 70.0), saves_s=(5.0,), steps=3,
                     step_s=2.0))  # fmt: skip
    given = parsed([("restart", "10min"), ("save-stall", 1)], "--")
    values = found.values(given)
    assert (values["restart"], values["save-stall"], values["step"]) == (600, 1, 2)
    assert "restart-spread" not in values
    assert [one.name for one in found.used(given)] == [
        "hosts", "chips-per-host", "step", "mtbf", "host-share",
    ]  # fmt: skip
    assert {found.drawn(given, n)["restart"] for n in range(9)} == {600}
    assert len({found.drawn(given, n)["mtbf"] for n in range(9)}) == 9
    per_host = parsed([("failures-per-1000-node-days", 6.5), ("hosts", 8)], "--")
    assert "mtbf" not in found.values(per_host)


def test_a_larger_fleet_of_the_same_hosts_fails_more_often():
    found = fit(told(hosts=4, processes=10))
    assert found.values({"hosts": 40})["mtbf"] == pytest.approx(found.values({})["mtbf"] / 10)


def test_where_nobody_said_how_many_hosts_there_were_the_chips_are_shared_out():
    found = fit(told(hosts=0, processes=10))
    assert "on how many hosts" in found.assumed({})[0]
    values = found.values({"hosts": 4})
    assert (values["mtbf"], values["chips-per-host"]) == (found.values({})["mtbf"], 2)


def test_a_plan_is_as_uncertain_as_its_parameters():
    """Of a long run nearly all that is open is what the parameters are."""
    found = fit(told(processes=3, there_s=60 * HOUR_S, restarts_s=(600.0,) * 3, saves_s=(60.0,)))
    given = {"days": 400 * 86_400.0}
    question = question_of(found.values(given))
    drawn = [question_of(found.drawn(given, number)) for number in range(100)]
    alone, both = plan(question), plan(question, drawn)
    assert both.goodput_low < alone.goodput_low - 0.03
    assert both.goodput_high > alone.goodput_high + 0.01
    assert both.goodput == alone.goodput
