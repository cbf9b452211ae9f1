"""`holdfast calibrate`: measured, shown, and kept where the next attempt finds it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.cli.calibrate import calibrate
from holdfast.errors import StoreUnavailable
from holdfast.journal.calibrated import read_calibrations
from holdfast.program import device, measure
from holdfast.program.measure import Measured, Rank

H100 = "NVIDIA H100 80GB HBM3"


@pytest.fixture(autouse=True)
def h100(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    found = Measured("jax 9", {"bf16": 700 * 10**12, "fp32": 50 * 10**12}, 3 * 10**12, 8, 10**11)
    monkeypatch.setenv("HOLDFAST_MIRROR", str(tmp_path / "mirror"))
    monkeypatch.setattr(measure, "measure", lambda *_: found)
    monkeypatch.setattr(measure, "framework", lambda *_: SimpleNamespace(platform="cpu"))
    monkeypatch.setattr(os, "getloadavg", lambda: (0.0, 0.0, 0.0))
    monkeypatch.setattr(device, "find_device", lambda: device.Device(H100, 8))


def asked(*words: str, **environ: str) -> Any:
    return CliRunner().invoke(calibrate, words, env=environ, catch_exceptions=False)


def test_it_is_shown_and_kept(tmp_path: Path) -> None:
    out = asked()
    assert out.exit_code == 0
    assert "products in bf16  700 TFLOP/s (71% of 989.5 TFLOP/s)" in out.output
    assert "products in fp32  50 TFLOP/s\n" in out.output
    assert "a sum over 8" in out.output
    kept = read_calibrations(tmp_path / "mirror" / "calibrated.json")
    assert kept[H100].flops["bf16"] == 700 * 10**12


def test_as_json() -> None:
    assert json.loads(asked("--json").stdout)["flops"]["fp32"] == 50 * 10**12


@pytest.mark.parametrize(
    ("environ", "rank"),
    [
        ({}, Rank()),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "1"}, Rank(1, 8)),
        ({"RANK": "3", "WORLD_SIZE": "8", "LOCAL_RANK": "one"}, Rank(0, 8)),
        ({"SLURM_PROCID": "1", "SLURM_STEP_NUM_TASKS": "2"}, Rank()),
    ],
)
def test_ranks_of_a_launcher(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], rank: Rank
) -> None:
    seen = []

    def framework(_: object, rank: Rank) -> Any:
        seen.append(rank)
        return SimpleNamespace(platform="cuda")

    monkeypatch.setattr(measure, "framework", framework)
    assert asked(**environ).exit_code == 0
    assert seen == [rank]


@pytest.mark.parametrize("words", [("--seconds", "0"), ("--framework", "numpy")])
def test_bad_words(words: tuple[str, ...]) -> None:
    assert asked(*words).exit_code == 2


def test_what_cannot_be_kept_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mirror").write_text("in the way")
    with pytest.raises(StoreUnavailable, match=r"measured, and not kept .* give runs --peak-flops"):
        calibrate.main([], standalone_mode=False)
    assert "products in bf16  700 TFLOP/s" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (device.Device(f"{H100} and NVIDIA L4", 8, 2), "the devices are of several kinds"),
        (device.Device("", 0), "nothing says which device that was"),
    ],
)
def test_a_name_that_is_not_one_devices_is_not_kept(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, found: device.Device, why: str
) -> None:
    monkeypatch.setattr(device, "find_device", lambda: found)
    out = asked()
    assert "products in bf16  700 TFLOP/s" in out.output
    assert f"Not kept: {why}" in out.output
    assert not (tmp_path / "mirror" / "calibrated.json").exists()


def test_busy_cpus_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert "The CPUs were busy" not in asked().output
    monkeypatch.setattr(os, "getloadavg", lambda: (1000.0, 0.0, 0.0))
    assert "The CPUs were busy before" in asked().output
