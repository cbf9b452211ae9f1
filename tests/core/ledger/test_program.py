"""Program goodput from FLOPs, from an ideal step, and what is said of it."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.core.ledger.account import Account
from holdfast.core.ledger.kinds import STEP
from holdfast.core.ledger.program import Basis, Declared, Reached, ToldProgram, scaled
from holdfast.core.ledger.summary import added, spent_of

S = 1_000_000_000
TERA = 10**12
H100 = ToldProgram(
    flops=6_100 * TERA,
    device="NVIDIA H100 80GB HBM3",
    dtype="bf16",
    chip="H100 SXM",
    peak_flops=989_500 * 10**9,
)


def account(steps: int = 10, step_s: int = 10, chips: int = 8) -> Account:
    """So many kept steps, and as much time again that was lost."""
    kept_ns = steps * step_s * S
    kinds = {STEP: kept_ns * chips, "lost": kept_ns * chips}
    return Account("r", 0, 2 * kept_ns, chips, kinds, steps, 0, (), 2 * kept_ns * chips)


@given(
    steps=st.integers(1, 1000),
    step_s=st.integers(1, 100),
    chips=st.integers(1, 10_000),
    peak=st.integers(10**9, 10**16),
    share=st.floats(0.01, 1),
)
def test_by_flops_or_by_the_ideal_step_it_is_the_same(
    steps: int, step_s: int, chips: int, peak: int, share: float
) -> None:
    flops = round(share * step_s * chips * peak)
    ideal_step_ns = round(flops / (chips * peak) * S)
    of = account(steps, step_s, chips)
    by_flops = spent_of(of, Basis(Declared(flops_per_step=flops, peak_flops=peak))).program
    by_step = spent_of(of, Basis(Declared(ideal_step_ns=ideal_step_ns))).program
    assert by_flops == pytest.approx(share, rel=1e-6)
    assert by_flops == pytest.approx(by_step, abs=2 / S), "the ideal step is in whole nanoseconds"


def test_what_it_is_a_share_of_stands_in_words() -> None:
    basis = Basis(told=H100)
    assert (
        basis.words(account())
        == "of H100 SXM bf16 peak, 989.5 TFLOP/s a chip; 6.1 PFLOP a step, said by the script"
    )
    ten_s_of_eight = 10 * 8 * H100.peak_flops
    assert spent_of(account(), basis).program == pytest.approx(H100.flops / ten_s_of_eight)


def test_whose_figure_the_peak_is_stands_beside_it() -> None:
    basis = Basis(told=replace(H100, source="a data sheet", as_of="2026-11"))
    words = "of H100 SXM bf16 peak, 989.5 TFLOP/s a chip (by a data sheet, as of 2026-11); 6.1"
    assert words in basis.words(account())


@pytest.mark.parametrize(
    ("basis", "is_effective"),
    [
        (Basis(told=H100), True),
        (Basis(told=replace(H100, dtype="fp8")), False),
        (Basis(Declared(peak_flops=TERA), H100), False),
        (Basis(Declared(ideal_step_ns=S), H100), False),
        (Basis(told=ToldProgram(TERA, dtype="bf16", reached=Reached(TERA))), False),
    ],
)
def test_the_convention_is_that_of_the_bf16_peak(basis: Basis, is_effective: bool) -> None:
    assert ("effective MFU: against the bf16 peak" in basis.convention) == is_effective


REACHED = Reached(700 * TERA, "bf16", 3 * TERA, "2026-11-26")


def test_beside_the_data_sheet_stands_what_was_measured() -> None:
    basis = Basis(told=replace(H100, reached=REACHED))
    assert "989.5 TFLOP/s a chip (700 TFLOP/s measured on 2026-11-26); 6.1 PFLOP" in basis.words(
        account()
    )
    assert basis.peak_flops == H100.peak_flops, "the share stays one of the data sheet"


def test_where_no_data_sheet_is_what_was_measured_is_the_peak() -> None:
    basis = Basis(told=ToldProgram(900 * TERA, reached=replace(REACHED, flops=TERA)))
    assert "of the bf16 peak measured on 2026-11-26, 1 TFLOP/s a chip" in basis.words(account())
    (note,) = basis.notes(account())
    assert "likely the measured peak is too low" in note


A100 = ToldProgram(device="NVIDIA A100", dtype="bf16", chip="A100", peak_flops=312 * TERA)


def moved(kept_of: dict[int, int]) -> Account:
    """Steps of several attempts, 100 s of 8 chips each."""
    return replace(account(sum(kept_of.values()), step_s=100), kept_of=kept_of)


def test_each_attempts_steps_go_by_the_peak_of_their_own_device() -> None:
    basis = Basis(told=H100, of_attempts=((0, A100), (2, H100)))
    on_a100, on_h100 = (H100.flops / (8 * 100 * one.peak_flops) for one in (A100, H100))
    found = spent_of(moved({0: 30, 1: 5, 2: 65}), basis).program
    # Attempt 1 told of no device: it is taken for the newest one's.
    assert found == pytest.approx(0.3 * on_a100 + 0.7 * on_h100)
    words = basis.words(moved({0: 30, 2: 70}))
    assert "of A100 bf16 peak, 312 TFLOP/s a chip (of 30 steps) and H100 SXM bf16 peak" in words
    assert "989.5 TFLOP/s a chip (of 70 steps); 6.1 PFLOP a step" in words
    lost = moved({2: 70})  # nothing is left of what was done on the other one
    assert spent_of(lost, basis).program == pytest.approx(on_h100)
    assert "A100" not in basis.words(lost)


def test_a_device_whose_peak_nobody_knows_is_named_as_long_as_its_steps_count() -> None:
    unknown = ToldProgram(device="some CPU")
    basis = Basis(told=H100, of_attempts=((0, unknown), (1, H100)))
    assert spent_of(moved({0: 1, 1: 9}), basis).program is None
    assert "Not measured: the peak of some CPU is" in basis.words(moved({0: 1, 1: 9}))
    assert spent_of(moved({1: 9}), basis).program is not None
    declared = replace(basis, declared=Declared(peak_flops=10**15))
    assert spent_of(moved({0: 1, 1: 9}), declared).program == pytest.approx(
        H100.flops / (8 * 100 * 10**15)
    )


def test_a_device_of_which_nothing_is_kept_counts_nowhere() -> None:
    """The newest one: what it did was rolled back."""
    unknown = ToldProgram(H100.flops, device="some CPU")
    basis = Basis(told=unknown, of_attempts=((0, H100), (1, unknown)))
    alone = spent_of(moved({0: 10}), Basis(told=H100)).program
    assert spent_of(moved({0: 10}), basis).program == alone
    assert "of H100 SXM bf16 peak, 989.5 TFLOP/s a chip; 6.1" in basis.words(moved({0: 10}))


def test_a_device_that_was_calibrated_later() -> None:
    known = ToldProgram(TERA, device="some CPU", reached=REACHED)
    basis = Basis(told=known, of_attempts=((0, ToldProgram(TERA, device="some CPU")), (1, known)))
    share = TERA / (8 * 100 * REACHED.flops)
    assert spent_of(moved({0: 1, 1: 9}), basis).program == pytest.approx(share)


def test_the_share_of_what_was_measured() -> None:
    of_sheet = spent_of(account(), Basis(told=H100))
    assert (of_sheet.program_of_reached, of_sheet.calibrated) == (None, 0)
    both = spent_of(account(), Basis(told=replace(H100, reached=REACHED)))
    assert both.program == of_sheet.program
    assert both.program_of_reached == pytest.approx(both.program * 989.5 / 700)
    by_step = spent_of(account(), Basis(Declared(ideal_step_ns=S), replace(H100, reached=REACHED)))
    assert by_step.program_of_reached is None


def test_tokens_scale_what_was_counted_for_others() -> None:
    told = replace(H100, tokens=1000, bytes=100)
    basis = Basis(told=told, tokens=6_000, token_steps=4)
    assert basis.flops == H100.flops * 3 // 2
    assert basis.bytes == 150
    assert basis.tokens_per_step == 1500
    assert basis.flops_per_token == H100.flops / 1000
    assert "9.15 PFLOP a step (6.1 TFLOP a token), said by the script" in basis.words(account())
    assert Basis(told=told).flops == H100.flops, "nobody told tokens"
    same = Basis(told=H100, tokens=6_000, token_steps=4)
    assert same.flops == H100.flops, "all steps are as the one that was counted"
    declared = Basis(Declared(flops_per_step=7), told, tokens=6_000, token_steps=4)
    assert (declared.flops, declared.bytes) == (7, 0)


def test_the_command_line_counts_before_the_script() -> None:
    basis = Basis(Declared(flops_per_step=8 * TERA, peak_flops=TERA), H100)
    assert (basis.flops, basis.peak_flops) == (8 * TERA, TERA)
    assert "said by --flops-per-step" in basis.words(account())
    assert "--peak-flops says, 1 TFLOP/s" in basis.words(account())


def test_of_both_ways_the_ideal_step_counts_and_that_is_said() -> None:
    basis = Basis(Declared(ideal_step_ns=5 * S), H100)
    assert spent_of(account(), basis).program == 0.5
    assert list(basis.notes(account())) == [
        "program goodput goes by --ideal-step, and not by the FLOPs that are known too"
    ]


@pytest.mark.parametrize(
    ("basis", "words"),
    [
        (Basis(), "Not measured: tell run.flops, or set --flops-per-step or --ideal-step"),
        (Basis(Declared(flops_per_step=TERA)), "the peak of its device is not known"),
        (
            Basis(told=ToldProgram(TERA, device="NVIDIA H20", dtype="bf16")),
            "the peak of NVIDIA H20 is",
        ),
        (
            Basis(told=ToldProgram(TERA, device="NVIDIA H20", dtype="fp8")),
            "the fp8 peak of NVIDIA H20 is",
        ),
    ],
)
def test_what_is_not_known_is_said_and_not_guessed(basis: Basis, words: str) -> None:
    assert words in basis.words(account())
    assert spent_of(account(), basis).program is None
    assert list(basis.notes(account())) == []


@pytest.mark.parametrize(
    ("basis", "likelier"),
    [
        (
            Basis(told=ToldProgram(900 * TERA, devices=64, peak_flops=TERA)),
            "64 devices, and the run counts 8",
        ),
        (Basis(Declared(peak_flops=TERA), ToldProgram(900 * TERA)), "likely --peak-flops is wrong"),
        (
            Basis(told=ToldProgram(900 * TERA, devices=8, peak_flops=TERA)),
            "likely the FLOPs of a step are",
        ),
    ],
)
def test_more_than_the_peak_is_said_and_which_number_is_likelier_wrong(
    basis: Basis, likelier: str
) -> None:
    (note,) = basis.notes(account())
    assert "11.2 times what the peak allows" in note
    assert likelier in note


@pytest.mark.parametrize(
    ("told", "because"),
    [
        (ToldProgram(9 * 10**8 * TERA, devices=64, peak_flops=TERA), "that of the chip's data"),
        (ToldProgram(9 * 10**8 * TERA, reached=REACHED), "one that was measured"),
    ],
    ids=["devices", "measured"],
)
def test_a_million_times_too_high_is_no_wrong_peak(told: ToldProgram, because: str) -> None:
    (note,) = Basis(told=told).notes(account())
    assert f"likely the FLOPs of a step are wrong: the peak is {because}" in note
    assert re.search(r"are [0-9]+,[0-9,]+ times what", note)


@pytest.mark.parametrize(
    "basis",
    [
        Basis(told=ToldProgram(9 * TERA, dtype="bf16", peak_flops=TERA, most_flops=2 * TERA)),
        Basis(told=ToldProgram(9 * TERA, reached=Reached(TERA, "bf16", most=2 * TERA))),
        Basis(Declared(peak_flops=TERA), ToldProgram(9 * TERA, most_flops=2 * TERA)),
    ],
    ids=["sheet", "measured", "declared"],
)
def test_more_than_the_bf16_peak_and_less_than_the_int8_peak_is_possible(basis: Basis) -> None:
    of = account(step_s=1, chips=8)
    (note,) = basis.notes(of)
    assert "1.12 times what the peak allows: so fast are quantised products alone" in note
    spent = spent_of(of, basis)
    assert not spent.is_beyond_ideal
    assert not spent.is_beyond_reached
    assert added([spent, spent]).program == pytest.approx(9 / 8)
    assert spent_of(account(step_s=1, chips=4), basis).is_beyond_ideal


def test_a_calibration_is_no_advice_for_a_device_without_a_name() -> None:
    assert Basis(told=ToldProgram(TERA)).words(account()).endswith("is not known; set --peak-flops")


def test_a_calibration_is_no_advice_for_devices_of_several_kinds() -> None:
    mixed = Basis(told=ToldProgram(TERA, device="NVIDIA H200 and NVIDIA L4", kinds=2))
    assert mixed.words(account()) == (
        "Not measured: the peak of NVIDIA H200 and NVIDIA L4 is not known; set --peak-flops"
    )


def test_all_three_factors_together_are_what_was_paid() -> None:
    spent = spent_of(account(), Basis(Declared(ideal_step_ns=5 * S)))
    assert (spent.goodput, spent.program, spent.productivity) == (0.5, 0.5, 0.25)
    unknown = spent_of(account(), Basis())
    assert unknown.productivity is None
    assert added([spent, unknown]).productivity is None, "not of all is it known"


def test_gaps_of_the_count_are_said() -> None:
    (note,) = Basis(told=ToldProgram(TERA, ("a while loop",), peak_flops=TERA)).notes(account())
    assert note == "the FLOPs of a step are counted with a gap: a while loop"


def test_flops_that_changed_are_said() -> None:
    (note,) = Basis(told=H100, told_before=((TERA, 0),)).notes(account(step_s=1000))
    assert note == (
        "the script told other FLOPs of a step before (1 TFLOP): the number that it told last goes "
        "for all steps"
    )


def test_flops_that_changed_a_thousand_times_are_said_in_short() -> None:
    """A script that counts each batch: the note had all of its numbers."""
    before = tuple((flops, 0) for flops in range(TERA, TERA + 10**12, 10**9))
    (note,) = Basis(told=H100, told_before=before).notes(account(step_s=1000))
    assert "before (1,000 of them, 1 TFLOP to 1.999 TFLOP): the number" in note


@pytest.mark.parametrize(
    ("number", "words"),
    [(7, "7 "), (999, "999 "), (1000, "1 k"), (989_500 * 10**9, "989.5 T"), (10**26, "100 Y")],
)
def test_great_numbers(number: int, words: str) -> None:
    assert scaled(number) == words
