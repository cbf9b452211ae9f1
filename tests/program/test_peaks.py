"""The table of peaks: the names that devices really have, and those that must give none."""

from __future__ import annotations

import pytest

from holdfast.program.peaks import DTYPES, highest_flops, peak_of

NAMES = {  # as JAX's device_kind or torch's get_device_name gives them: TFLOP/s of bf16
    "TPU v2": 46,
    "TPU v3": 123,
    "TPU v4": 275,
    "TPU v5 lite": 197,
    "TPU v5e": 197,
    "TPU v5": 459,
    "TPU v5p": 459,
    "TPU v6 lite": 918,
    "TPU7x": 2307,
    "NVIDIA A100-SXM4-40GB": 312,
    "NVIDIA A100-SXM4-80GB": 312,
    "NVIDIA A100-PCIE-40GB": 312,
    "NVIDIA A100 80GB PCIe": 312,
    "NVIDIA H100 80GB HBM3": 989.5,
    "NVIDIA H100 PCIe": 756.5,
    "NVIDIA H100 NVL": 835.5,
    "NVIDIA H200": 989.5,
    "NVIDIA B200": 2250,
    "NVIDIA L4": 121,
    "NVIDIA L40S": 362.05,
    "Trainium1": 190,
    "Trainium2": 667,
}
UNKNOWN = [
    "", "cpu", "NVIDIA L40", "NVIDIA L400", "NVIDIA GB200", "NVIDIA GH200 480GB", "NVIDIA H20",
    "NVIDIA H100 80GB HBM3 MIG 1g.10gb", "NVIDIA A100X", "NVIDIA A10", "Tesla P4", "NVIDIA B2000",
    "TPU v4 lite", "AMD Instinct MI300X", "H2000", "NVIDIA GeForce RTX 4090", "NC_v3",
]  # fmt: skip


@pytest.mark.parametrize(("name", "tera"), NAMES.items())
def test_known_devices(name: str, tera: float) -> None:
    found = peak_of(name)
    assert found is not None
    assert found.flops == round(tera * 1e12)
    assert found.source


@pytest.mark.parametrize("name", UNKNOWN)
def test_others_have_none(name: str) -> None:
    assert [peak_of(name, dtype) for dtype in DTYPES] == [None] * len(DTYPES)


def test_a_type_that_a_device_does_not_have() -> None:
    assert peak_of("NVIDIA A100-SXM4-40GB", "fp8") is None
    assert peak_of("NVIDIA H200", "fp3") is None


def test_the_highest_is_that_of_the_fastest_type() -> None:
    assert highest_flops("NVIDIA H200") == 1979 * 10**12
    assert highest_flops("TPU v5p") == 918 * 10**12
    assert highest_flops("NVIDIA H200 NVL and NVIDIA L4") == 0


def test_what_only_jax_knows_says_so() -> None:
    for name, dtype in (("TPU v5p", "int8"), ("TPU v2", "bf16")):
        found = peak_of(name, dtype)
        assert found is not None
        assert "JAX's table" in found.source


def test_tpus_as_jax_knows_them() -> None:
    """JAX gives it by core, and rounds: within one percent of what their documentation says."""
    tpu_info = pytest.importorskip("jax._src.pallas.mosaic.tpu_info")
    if not hasattr(tpu_info, "get_tpu_info_for_chip"):
        pytest.skip("an older JAX")
    # Of a v3 JAX says 140, and Google 123.
    for name in ("TPU v2", "TPU v4", "TPU v5e", "TPU v5p", "TPU v6e", "TPU7x"):
        version = tpu_info.chip_version_from_device_kind(name)
        cores = version.num_physical_tensor_cores_per_chip
        core = tpu_info.get_tpu_info_for_chip(version, 1)
        for dtype in ("bf16", "int8", "fp8"):
            theirs = getattr(core, f"{dtype}_ops_per_second") * cores
            found = peak_of(name, dtype)
            assert found is not None or not theirs, (name, dtype)
            if found is not None and theirs:  # 0: JAX has none
                assert found.flops == pytest.approx(theirs, rel=0.01), (name, dtype)
