"""FLOPs from the journals to the report, the list of runs, and the numbers of a fleet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from made_runs import Made, make_run

from holdfast.core.ledger.summary import ALL, fleet, rolling
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunStore
from holdfast.report.document import document
from holdfast.report.of_run import findings_of
from holdfast.runs.listing import RunList

S = 1_000_000_000
NOW = 1_790_000_000 * S
PEAK = 989_500 * 10**9
TOLD = {
    "flops": 4 * 10 * PEAK // 2,  # half of what four chips do in the ten seconds of a step
    "bytes": 10**12,
    "left_out": ["a while loop"],
    "device": "NVIDIA H100 80GB HBM3",
    "devices": 4,
    "dtype": "bf16",
    "chip": "H100 SXM",
    "peak_flops": PEAK,
    "most_flops": 2 * PEAK,
    "peak_source": "a data sheet",
    "peak_as_of": "2026-11",
}


TWO = Made(20, cause="killed", lost=5), Made(30)
REACHED = {
    "reached_flops": 7 * 10**14,
    "reached_dtype": "bf16",
    "reached_bytes": 3 * 10**12,
    "reached_on": "2026-11-26",
    "reached_together": 8,
    "reached_together_bytes": 10**11,
}


def program_of(
    store: Path, attempts: Sequence[Made] = TWO, **how: Any
) -> tuple[float | None, dict[str, Any], list[str]]:
    runs = RunStore(store)
    folder, end_ns = make_run(runs, "r", attempts, requested_ns=NOW - 3600 * S, **how)
    del end_ns
    listed = RunList(runs).look(NOW).runs[0].spent(ALL).program
    recorded = load_run(folder.path)
    found = document(findings_of(folder, recorded, recorded.account(recorded.facts.clock.now_ns())))
    assert found["program_goodput"] == listed
    assert found["productivity_goodput"] == (
        None if listed is None else pytest.approx(listed * found["goodput"])
    )
    (kept,) = RunList(runs, cache=store / "cache").look(NOW).runs
    again = RunList(runs, cache=store / "cache").look(NOW).runs[0]
    for one in (kept, again):
        assert one.spent(ALL).program_of_reached == found["program"]["goodput_of_reached"]
        assert (one.device or None) == found["program"]["device"]
        assert (one.peak_flops or None) == found["program"]["peak_flops"]
        assert (one.reached_flops or None) == found["program"]["reached_flops"]
    together = fleet(RunList(runs).look(NOW).runs, rolling(NOW)[0].name)
    assert together.program == listed
    return listed, found["program"], found["notes"]


def test_flops_that_a_script_told(store: Path) -> None:
    share, basis, notes = program_of(store, told=TOLD | REACHED)
    assert share == pytest.approx(0.5, abs=1e-6)
    assert basis == {
        "of": "of H100 SXM bf16 peak, 989.5 TFLOP/s a chip (by a data sheet, as of 2026-11; "
        "700 TFLOP/s measured on 2026-11-26); 19.79 PFLOP a step, said by the script",
        "ideal_step_s": None,
        "flops_per_step": TOLD["flops"],
        "told": [
            {
                "attempt": n,
                "flops_per_step": TOLD["flops"],
                "device": "NVIDIA H100 80GB HBM3",
                "peak_flops": PEAK,
            }
            for n in range(2)
        ],
        "tokens_per_step": None,
        "flops_per_token": None,
        "bytes_per_step": 10**12,
        "peak_flops": PEAK,
        "peak_source": "a data sheet",
        "peak_as_of": "2026-11",
        "highest_flops": 2 * PEAK,
        "goodput_of_reached": pytest.approx(0.5 * PEAK / (7 * 10**14), abs=1e-6),
        "reached_flops": 7 * 10**14,
        "reached_dtype": "bf16",
        "reached_on": "2026-11-26",
        "memory_bytes_per_s": 3 * 10**12,
        "together_devices": 8,
        "together_bytes_per_s": 10**11,
        "device": "NVIDIA H100 80GB HBM3",
        "dtype": "bf16",
        "left_out": ["a while loop"],
    }
    assert "the FLOPs of a step are counted with a gap: a while loop" in notes


def test_an_attempt_that_does_not_say_it_again(store: Path) -> None:
    again = {**TOLD, "flops": 0, "left_out": []}
    share, basis, _ = program_of(store, told={**TOLD, "again": again})
    assert share == pytest.approx(0.5, abs=1e-6)
    assert basis["left_out"] == ["a while loop"]
    assert basis["bytes_per_step"] == 10**12


def test_an_attempt_on_another_device(store: Path) -> None:
    """15 steps are kept on chips of half the peak, which need twice the time at best, and 30."""
    slow = {**TOLD, "device": "slow", "chip": "slow", "peak_flops": PEAK // 2}
    share, basis, _ = program_of(store, told={**slow, "again": TOLD})
    assert share == pytest.approx((15 * 1.0 + 30 * 0.5) / 45, abs=1e-6)
    assert [one["device"] for one in basis["told"]] == ["slow", TOLD["device"]]
    assert "(of 15 steps) and H100 SXM" in basis["of"]


def test_an_attempt_that_says_something_else(store: Path) -> None:
    share, basis, notes = program_of(store, told={**TOLD, "again": {**TOLD, "flops": 2 * 10**15}})
    assert [one["flops_per_step"] for one in basis["told"]] == [TOLD["flops"], 2 * 10**15]
    assert share == pytest.approx(2e15 / (4 * 10 * PEAK), abs=1e-6)
    assert any("told other FLOPs of a step before (19.79 PFLOP)" in note for note in notes)


def test_another_batch_size_with_its_tokens_is_nothing_to_say(store: Path) -> None:
    """Twice the FLOPs of twice the tokens: steps go by FLOPs a token, and all are right."""
    attempts = [Made(20, cause="killed", lost=5, tokens=100), Made(30, tokens=200)]
    told = {**TOLD, "tokens": 100, "left_out": []}
    again = {**told, "flops": 2 * TOLD["flops"], "tokens": 200}
    _, basis, notes = program_of(store, attempts, told={**told, "again": again})
    assert basis["flops_per_token"] == pytest.approx(TOLD["flops"] / 100)
    assert not any("told other FLOPs" in note for note in notes)
    _, _, notes = program_of(store / "by step", told={**told, "again": again})
    assert any("told other FLOPs" in note for note in notes), "no step told its tokens"


@pytest.mark.parametrize(("share", "is_possible"), [(1.3, True), (2.1, False)])
def test_effective_mfu_above_one_counts_up_to_the_chips_highest_peak(
    store: Path, share: float, is_possible: bool
) -> None:
    """Quantised training: int8 products of the chip are twice as fast."""
    quantised = {**TOLD, "flops": round(share * 4 * 10 * PEAK), "left_out": []}
    runs = RunStore(store)
    folder, _ = make_run(runs, "r", TWO, requested_ns=NOW - 3600 * S, told=quantised)
    recorded = load_run(folder.path)
    found = document(findings_of(folder, recorded, recorded.account(recorded.facts.clock.now_ns())))
    assert found["program_goodput"] == pytest.approx(share, abs=1e-6)
    (note,) = found["notes"]
    assert ("so fast are quantised products alone" in note) == is_possible
    for _ in range(2):  # the second time from the cache of summaries
        listed = RunList(runs, cache=store / "cache").look(NOW).runs
        assert fleet(listed, ALL).program == (
            pytest.approx(share, abs=1e-6) if is_possible else None
        )


def test_steps_of_other_tokens_than_were_counted(store: Path) -> None:
    attempts = [Made(20, cause="killed", lost=5, tokens=100), Made(30, tokens=300)]
    share, basis, _ = program_of(store, attempts, told={**TOLD, "tokens": 400})
    mean = (20 * 100 + 30 * 300) / 50
    assert share == pytest.approx(0.5 * mean / 400, abs=1e-6)
    assert basis["tokens_per_step"] == mean
    assert basis["flops_per_token"] == pytest.approx(TOLD["flops"] / 400)
    assert "FLOP a token), said by the script" in basis["of"]


def test_the_same_by_an_ideal_step(store: Path) -> None:
    share, basis, _ = program_of(store, ideal_step_s=5.0)
    assert share == pytest.approx(0.5, abs=1e-6)
    assert basis["of"] == "an ideal step, of each step kept"


def test_flops_of_the_command_line_and_no_peak(store: Path) -> None:
    unknown = {**TOLD, "flops": 0, "left_out": [], "peak_flops": 0, "chip": "", "device": "cpu"}
    share, basis, _ = program_of(store, told=unknown, declared={"flops_per_step": 10**15})
    assert share is None
    assert basis["of"] == (
        "Not measured: the peak of cpu is not known; set --peak-flops, or run holdfast calibrate "
        "there"
    )


@pytest.mark.parametrize(
    "wrong",
    [{"flops": -1}, {"flops": "many"}, {"left_out": 3}, {"device": 7}, {"bytes": -1},
     {"reached_flops": "much"}, {"most_flops": -1}, {"peak_source": 3}, {"kinds": "two"}],
)  # fmt: skip
def test_rubbish_in_a_journal_is_no_statement(store: Path, wrong: dict[str, Any]) -> None:
    share, basis, _ = program_of(store, told={**TOLD, **wrong})
    assert share is None
    assert basis["flops_per_step"] is None
