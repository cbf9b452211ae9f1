"""What a session tells of its step's FLOPs and of its device."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy
import pytest

from holdfast.errors import ConfigurationError
from holdfast.journal.calibrated import Calibration, write_calibration
from holdfast.program import Flops
from holdfast.program.device import Device, find_device, processor
from holdfast.session.program import SMALLER, StepFlops


class Journal:
    def __init__(self) -> None:
        self.facts: list[dict[str, Any]] = []

    def note(self, _: int, payload: dict[str, Any]) -> None:
        self.facts.append(payload)


def told(
    rank: int = 0, calibrated: Callable[[], Path] | None = None
) -> tuple[StepFlops, list[dict[str, Any]]]:
    journal = Journal()
    attachment: Any = SimpleNamespace(rank=rank, is_inert=False, writer=journal)
    return StepFlops(attachment, calibrated), journal.facts


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    device = SimpleNamespace(device_kind="NVIDIA H200")
    jax = SimpleNamespace(devices=lambda: [device] * 8)
    bridge = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)


@pytest.mark.usefixtures("gpu")
def test_told_once_and_written_with_the_device_after_the_first_step() -> None:
    program, facts = told()
    program.tell(Flops(5, 7, ("a gap",), 11, 13), "bf16")
    assert facts == []
    program.stepped()
    program.tell(Flops(5, 7, ("a gap",), 11, 13), "bf16")
    (fact,) = facts
    fact.pop("at_ns")
    assert fact == {
        "fact": "program",
        "flops": 5,
        "bytes": 13,
        "tokens": 0,
        "left_out": ["a gap"],
        "device": "NVIDIA H200",
        "devices": 8,
        "kinds": 1,
        "dtype": "bf16",
        "chip": "H200 SXM",
        "peak_flops": 989_500_000_000_000,
        "most_flops": 1_979_000_000_000_000,
        "peak_source": "NVIDIA H200 data sheet, as others quote it",
        "peak_as_of": "2026-11",
    }


@pytest.mark.usefixtures("gpu")
def test_a_count_of_one_rank_times_all_keeps_its_gaps_and_bytes() -> None:
    program, facts = told()
    of_one = Flops(5, 7, ("estimated as three forward passes",), 11, 13)
    program.tell(of_one * 4, "bf16")
    program.stepped()
    assert [(one["flops"], one["bytes"], one["left_out"]) for one in facts] == [
        (20, 52, ["estimated as three forward passes"])
    ]
    assert 4 * of_one == of_one * 4


@pytest.mark.usefixtures("gpu")
def test_a_later_word_and_another_rank() -> None:
    program, facts = told()
    program.stepped()
    program.tell(1e12, "fp8")
    assert [(one["flops"], one["peak_flops"]) for one in facts] == [
        (0, 989_500_000_000_000),
        (10**12, 1_979_000_000_000_000),
    ]
    other, none = told(rank=1)
    other.tell(1, "bf16")
    other.stepped()
    assert none == []


@pytest.mark.usefixtures("gpu")
def test_what_a_compiled_step_counts_is_told_until_the_script_says_something_else() -> None:
    program, facts = told()
    program.count(Flops(5, 7, ("a gap",), 11, 13))
    program.stepped()
    program.count(Flops(6, 7))  # of other shapes
    program.tell(9, "bf16")
    program.count(Flops(5, 7))
    program.count(Flops(0, 0))
    assert [(one["flops"], one["bytes"], one["left_out"]) for one in facts] == [
        (5, 13, ["a gap"]),
        (6, 0, [SMALLER]),
        (9, 0, []),
    ]


@pytest.mark.usefixtures("gpu")
def test_a_smaller_batch_at_the_end_is_not_taken_for_the_step() -> None:
    """All steps of the run went by its FLOPs, for ever: its program is not compiled again."""
    program, facts = told()
    program.count(Flops(8, 8, ("a gap",)), of="step")
    program.stepped()
    for _ in range(2):
        program.count(Flops(2, 2), of="step")
        program.count(Flops(8, 8, ("a gap",)), of="step")
    assert [(one["flops"], one["left_out"]) for one in facts] == [
        (8, ["a gap"]),
        (8, ["a gap", SMALLER]),
    ]


@pytest.mark.usefixtures("gpu")
def test_a_compiled_step_whose_flops_cannot_be_counted_says_why() -> None:
    program, facts = told()
    program.count(Flops(0, 0, ("a while loop",)))
    program.stepped()
    program.count(Flops(5, 7))
    program.count(Flops(0, 0, ("a while loop",)))
    assert [(one["flops"], one["left_out"]) for one in facts] == [(0, ["a while loop"]), (5, [])]


@pytest.mark.usefixtures("gpu")
def test_of_two_compiled_steps_one_counts_and_that_is_said() -> None:
    program, facts = told()
    program.count(Flops(5, 7), of="first")
    program.count(Flops(6, 7), of="first")
    program.count(Flops(7, 7, ("a gap",)), of="second")
    program.stepped()
    words = "first and second are said to be a whole step each, and only second counts"
    assert [(one["flops"], one["left_out"]) for one in facts] == [(7, [words, "a gap"])]


@pytest.mark.usefixtures("gpu")
def test_numbers_of_numpy_are_numbers() -> None:
    program, facts = told()
    program.tell(numpy.int64(6), "bf16", numpy.int32(3))
    program.stepped()
    program.tell(numpy.float32(7), "bf16")
    assert [(one["flops"], one["tokens"]) for one in facts] == [(6, 3), (7, 0)]
    assert all(type(one[key]) is int for one in facts for key in ("flops", "tokens"))


@pytest.mark.parametrize("wrong", [0, -1, float("nan"), float("inf"), 1e28, "6e12", None, True])
def test_what_is_no_number_of_flops(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="give the FLOPs of one step"):
        told()[0].tell(wrong, "bf16")


@pytest.mark.parametrize("wrong", [0, -1, 1.5, True, "many", 2**48])
def test_what_is_no_number_of_tokens(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="give the tokens of the step"):
        told()[0].tell(1, "bf16", wrong)


def test_a_count_of_nothing_says_why() -> None:
    with pytest.raises(ConfigurationError, match="it leaves out a while loop: give the number"):
        told()[0].tell(Flops(0, 0, ("a while loop",)), "bf16")


def test_what_is_no_type() -> None:
    with pytest.raises(ConfigurationError, match="give one of bf16, fp16"):
        told()[0].tell(1, "bfloat16")


def test_no_device_is_opened_to_find_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def opened(*_: object) -> None:
        raise AssertionError("a device was opened")

    jax = SimpleNamespace(devices=opened)
    bridge = SimpleNamespace(backends_are_initialized=lambda: False)
    cuda = SimpleNamespace(is_initialized=lambda: False, get_device_name=opened)
    monkeypatch.setitem(sys.modules, "jax", jax)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert find_device() == Device(processor(), 0)


@pytest.mark.usefixtures("gpu")
def test_mixed_devices_have_no_peak(monkeypatch: pytest.MonkeyPatch) -> None:
    mixed = [SimpleNamespace(device_kind=kind) for kind in ("NVIDIA H200", "NVIDIA L4")]
    monkeypatch.setitem(sys.modules, "jax", SimpleNamespace(devices=lambda: mixed))
    program, facts = told()
    program.tell(1, "bf16")
    program.stepped()
    assert (facts[0]["device"], facts[0]["peak_flops"]) == ("NVIDIA H200 and NVIDIA L4", 0)
    assert facts[0]["kinds"] == 2


@pytest.mark.usefixtures("gpu")
def test_what_a_calibration_measured_is_told_too(tmp_path: Path) -> None:
    path = tmp_path / "calibrated.json"
    write_calibration(
        path, Calibration("NVIDIA H200", 86_400, "x", {"bf16": 7, "fp32": 9}, 5, 8, 3)
    )
    program, facts = told(calibrated=lambda: path)
    program.stepped()
    path.write_text("rubbish")
    program.tell(1, "bf16")
    reached = {key: value for key, value in facts[0].items() if key.startswith("reached")}
    assert reached == {
        "reached_flops": 7, "reached_dtype": "bf16", "reached_bytes": 5, "reached_on": "1970-01-02",
        "reached_most": 9, "reached_together": 8, "reached_together_bytes": 3,
    }  # fmt: skip
    assert "reached_flops" not in facts[1]


def test_where_no_data_sheet_is_the_fastest_of_float_types_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calibrated.json"
    write_calibration(path, Calibration(processor(), 0, "x", {"bf16": 7, "fp32": 9}))
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge", raising=False)
    cuda = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    program, facts = told(calibrated=lambda: path)
    program.tell(1, "bf16")
    program.stepped()
    program.tell(1, "fp32")
    assert [(one["reached_dtype"], one["reached_flops"]) for one in facts] == [("fp32", 9)] * 2


OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "TPU": ({"torch_xla": SimpleNamespace()}, {}),
    "Trainium": ({"torch_neuronx": SimpleNamespace()}, {}),
    "Intel's GPU": ({}, {"xpu": SimpleNamespace(is_initialized=lambda: True)}),
    "Apple's GPU": (
        {},
        {
            "mps": SimpleNamespace(driver_allocated_memory=lambda: 1),
            "backends": SimpleNamespace(mps=SimpleNamespace(is_available=lambda: True)),
        },
    ),
}


@pytest.mark.parametrize(("modules", "parts"), OTHERS.values(), ids=OTHERS)
def test_torch_on_an_accelerator_of_another_kind_is_no_cpu(
    monkeypatch: pytest.MonkeyPatch, modules: dict[str, Any], parts: dict[str, Any]
) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: False)
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge", raising=False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert find_device().name == processor()
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda, **parts))
    for name, module in modules.items():
        monkeypatch.setitem(sys.modules, name, module)
    assert find_device() == Device("", 0)
    on_cpu = SimpleNamespace(devices=lambda: [SimpleNamespace(device_kind="cpu")])
    bridge = SimpleNamespace(backends_are_initialized=lambda: True)
    monkeypatch.setitem(sys.modules, "jax", on_cpu)
    monkeypatch.setitem(sys.modules, "jax._src.xla_bridge", bridge)
    assert find_device() == Device("", 0), "whatever JAX does beside it"


def test_torch_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda = SimpleNamespace(is_initialized=lambda: True, get_device_name=lambda: "NVIDIA L4")
    monkeypatch.delitem(sys.modules, "jax._src.xla_bridge", raising=False)
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert find_device() == Device("NVIDIA L4", 0)
