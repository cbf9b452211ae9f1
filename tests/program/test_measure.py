"""Calibration in virtual time: what counts is the best try, and what cannot be is left out."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from processes import House

from holdfast.errors import ConfigurationError
from holdfast.journal.calibrated import read_calibrations
from holdfast.program import device, measure
from holdfast.program.measure import LARGE_SIDES, SIDES, Measured, Rank, Times


class Clock:
    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Tool:
    """A device of 1 TFLOP/s and 10 GB/s, each first try twice as slow; no int8."""

    name = "a tool"
    platform = "cpu"

    def __init__(self, clock: Clock, devices: int = 1) -> None:
        self.clock, self.devices = clock, devices
        self.sides: list[int] = []
        self.is_closed = False

    def types(self) -> tuple[str, ...]:
        return "bf16", "int8"

    def taking(self, seconds: float) -> Times:
        tries = itertools.chain([2.0, 2.0], itertools.repeat(1.0))

        def times(often: int) -> None:
            self.clock.now += often * seconds * next(tries)

        return times

    def product(self, side: int, dtype: str) -> Times:
        if dtype == "int8":
            raise TypeError(dtype)
        self.sides.append(side)
        return self.taking(2 * side**3 / 1e12)

    def copy(self, size_bytes: int) -> Times:
        return self.taking(2 * size_bytes / 10e9)

    def together(self, size_bytes: int) -> Times:
        return self.taking(size_bytes / 1e9)

    def close(self) -> None:
        self.is_closed = True


def test_the_best_of_several_tries() -> None:
    clock = Clock()
    found = measure.measure(Tool(clock), 1.0, clock)
    assert found.by == "a tool"
    assert found.flops == {"bf16": pytest.approx(1e12, rel=1e-6)}
    assert found.copy_bytes == pytest.approx(10e9, rel=1e-6)
    assert (found.together, found.together_bytes) == (0, 0)


def test_large_products_are_not_tried_where_they_take_too_long() -> None:
    clock = Clock()
    tool = Tool(clock)
    measure.measure(tool, 1.0, clock)
    assert tool.sides == [side for side in SIDES if 2 * side**3 <= 0.25e12]


def test_a_sum_over_devices_as_it_is_reckoned_of_wires() -> None:
    clock = Clock()
    tool = Tool(clock, devices=4)
    found = measure.measure(tool, 1.0, clock)
    assert tool.is_closed
    assert (found.together, found.together_bytes) == (4, pytest.approx(1.5e9, rel=1e-6))


@pytest.mark.parametrize("name", measure.FRAMEWORKS)
def test_frameworks_do_what_they_are_asked(name: str) -> None:
    pytest.importorskip(name)
    tool = measure.framework(name, Rank())
    assert tool.name.startswith(name)
    for times in (*(tool.product(8, dtype) for dtype in tool.types()), tool.copy(64)):
        times(2)
    if name == "jax":
        tool.together(64)(2)


def test_results_are_let_go_and_all_are_waited_for() -> None:
    """A gigabyte each is read and written some seventy times in one try, on a device of 80."""
    alive: set[int] = set()
    most, waited = [0], []

    class Result:
        def __init__(self) -> None:
            alive.add(id(self))
            most[0] = max(most[0], len(alive))

        def __del__(self) -> None:
            alive.discard(id(self))

        def block_until_ready(self) -> None:
            waited.append(1)

    measure.OnJax._times(SimpleNamespace(), Result)(70)  # type: ignore[arg-type]
    assert most[0] <= 3
    assert len(waited) == 70


def test_under_torchs_launcher_it_is_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    opened = SimpleNamespace(platform="cpu")
    monkeypatch.setattr("importlib.util.find_spec", lambda _: opened)
    monkeypatch.setattr(measure, "OnJax", lambda: pytest.fail("JAX opens all devices"))
    monkeypatch.setattr(measure, "OnTorch", lambda _: opened)
    assert measure.framework(None, Rank(1, 8)) is opened


def test_a_framework_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ConfigurationError, match="torch is not installed"):
        measure.framework("torch", Rank())
    with pytest.raises(ConfigurationError, match="neither JAX nor PyTorch"):
        measure.framework(None, Rank())


@pytest.mark.parametrize(
    ("words", "name"),
    [("processor\t: 0\nmodel name\t: AMD  EPYC 9B14 \n", "AMD EPYC 9B14"), ("rubbish", "cpu")],
)
def test_the_processor_is_named(tmp_path: Path, words: str, name: str) -> None:
    (tmp_path / "cpuinfo").write_text(words)
    assert device.processor(tmp_path / "cpuinfo").startswith(f"{name}, ")
    assert device.processor(tmp_path / "nowhere").startswith("cpu, ")


def test_nothing_measured() -> None:
    assert Measured("x").flops == {}


@pytest.mark.real
def test_ranks_of_torchrun_sum_up_together_and_leave_together(house: House) -> None:
    pytest.importorskip("torch")
    launcher = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2"]
    ours = ["--no-python", sys.executable, "-m", "holdfast.cli.main", "calibrate"]
    how = ["--framework", "torch", "--seconds", "0.05", "--json"]
    mirror = house.store / "mirror"
    process = house.start(*launcher, *ours, *how, HOLDFAST_MIRROR=mirror, OMP_NUM_THREADS=1)
    process.wait(0)
    (found,) = read_calibrations(mirror / "calibrated.json").values()
    assert found.together == 2
    assert found.together_bytes > 0


def test_an_accelerator_is_tried_with_large_products_alone() -> None:
    clock = Clock()
    tool = Tool(clock)
    tool.platform = "gpu"
    measure.measure(tool, 1000.0, clock)
    assert tool.sides == list(LARGE_SIDES)


@pytest.mark.parametrize("dtype", ["fp32", "int8"])
def test_jax_multiplies_as_on_a_gpu(dtype: str) -> None:
    """The processor in its place: its compiler knows the GPU's options."""
    pytest.importorskip("jax")
    tool = measure.OnJax()
    tool.platform = "gpu"
    tool.product(64, dtype)(2)
