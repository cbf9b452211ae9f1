"""The file of calibrations: what was written is read, by device, and rubbish is said to be that."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.journal.calibrated import Calibration, read_calibrations, write_calibration

GPU = Calibration("NVIDIA L4", 1_795_000_000, "torch 2.13", {"bf16": 9, "fp32": 3}, 5, 2, 7)
CPU = Calibration("AMD EPYC, 2 CPUs", 1_795_000_001, "jax 0.10", {"fp32": 4, "bf16": 2}, 1)


def test_each_device_has_its_newest(tmp_path: Path) -> None:
    path = tmp_path / "below" / "calibrated.json"
    assert read_calibrations(path) == {}
    again = Calibration("NVIDIA L4", 1_796_000_000, "torch 2.14", {"bf16": 10})
    for one in (GPU, CPU, again):
        write_calibration(path, one)
    assert read_calibrations(path) == {GPU.device: again, CPU.device: CPU}


@pytest.mark.parametrize(
    "wrong", ["", "[]", '{"format": 2}', '{"format": 1, "devices": [{}]}', "[" * 10_000,
              '{"format": 1, "devices": [{"flops": {"bf16": -1}}]}']
)  # fmt: skip
def test_rubbish_is_refused_when_read_and_replaced_when_written(tmp_path: Path, wrong: str) -> None:
    path = tmp_path / "calibrated.json"
    path.write_text(wrong)
    with pytest.raises(ValueError, match="is no file of `holdfast calibrate`"):
        read_calibrations(path)
    write_calibration(path, CPU)
    assert read_calibrations(path) == {CPU.device: CPU}


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    (tmp_path / "calibrated.json").mkdir()
    with pytest.raises(ValueError, match="cannot read"):
        read_calibrations(tmp_path / "calibrated.json")


def test_the_peak_of_a_type_or_the_best_of_any() -> None:
    assert GPU.peak("bf16") == ("bf16", 9)
    assert GPU.peak("fp8") == ("", 0)
    assert CPU.peak("bf16", of_any=True) == ("fp32", 4)
    assert Calibration("x", 0, "y").peak("bf16", of_any=True) == ("", 0)
