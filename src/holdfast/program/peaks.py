"""The peak of a chip: what its data sheet promises for dense products, as of 2026-11.

Of one chip as it is bought, whatever its number of cores: a device of JAX may be a part of one (a
TPU v7 has two, a Trainium several). Data sheets of GPUs print the figures with sparsity, which are
twice as high, in the larger letters. A device that is not here has no peak: none is guessed.

TPUs and Trainiums were checked against the documentation of Google and AWS; what only JAX's own
table has, says so. NVIDIA's figures were checked against those that Lightning, torchtitan and
G. Lockwood's notes quote from its data sheets, not against the sheets themselves; what only we had
is not here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from types import MappingProxyType

BF16 = "bf16"
DTYPES = (BF16, "fp16", "tf32", "fp32", "fp8", "int8")
AS_OF = "2026-11"


@dataclass(frozen=True, slots=True)
class Peak:
    """The dense peak of a chip for one type of numbers; `source`: whose figure it is."""

    chip: str
    dtype: str
    flops: int  # a second
    source: str


def _rows(chip: str, source: str, **tera: float) -> tuple[Peak, ...]:
    return tuple(Peak(chip, dtype, round(one * 1e12), source) for dtype, one in tera.items())


def _nvidia(chip: str, sheet: str, bf16: float, **others: float) -> tuple[Peak, ...]:
    return _rows(
        chip, f"NVIDIA {sheet} data sheet, as others quote it", bf16=bf16, fp16=bf16, **others
    )


def _tpu(chip: str, **tera: float) -> tuple[Peak, ...]:
    return _rows(chip, "cloud.google.com/tpu/docs", **tera)


def _by_jax(chip: str, **tera: float) -> tuple[Peak, ...]:
    return _rows(chip, "JAX's table (pallas/mosaic/tpu_info.py)", **tera)


_H100 = _nvidia("H100 SXM", "H100", 989.5, tf32=494.5, fp8=1979, int8=1979)
_V5P = _tpu("TPU v5p", bf16=459, fp8=459) + _by_jax("TPU v5p", int8=918)
_V5E = _tpu("TPU v5e", bf16=197, int8=393)
_V6E = _tpu("TPU v6e", bf16=918, fp8=918, int8=1836)
_V7 = _tpu("TPU v7", bf16=2307, fp8=4614)
_NEURON = "awsdocs-neuron.readthedocs-hosted.com, neuron-hardware"

# By the whole name, in small letters, without the vendor: "l4" stands in "l40s", "h100" in
# "h100 pcie". JAX's and torch's names of a GPU are the driver's.
_BY_NAME = MappingProxyType(
    {
        "tpu v2": _by_jax("TPU v2", bf16=46),
        "tpu v3": _tpu("TPU v3", bf16=123),  # JAX's table has 140: Google's own word counts
        "tpu v4": _tpu("TPU v4", bf16=275, int8=275),
        "tpu v5 lite": _V5E,
        "tpu v5e": _V5E,
        "tpu v5": _V5P,
        "tpu v5p": _V5P,
        "tpu v6 lite": _V6E,
        "tpu v6e": _V6E,
        "tpu7": _V7,
        "tpu7x": _V7,
        "tpu v7": _V7,
        "tpu v7x": _V7,
        "h100": _H100,
        "h100 80gb hbm3": _H100,
        "h100 sxm5 80gb": _H100,
        "h100 pcie": _nvidia("H100 PCIe", "H100 PCIe", 756.5, tf32=378, fp8=1513, int8=1513),
        "h100 nvl": _nvidia("H100 NVL", "H100 NVL", 835.5),
        "h200": _nvidia("H200 SXM", "H200", 989.5, tf32=494.5, fp8=1979, int8=1979),
        "h200 nvl": _nvidia("H200 NVL", "H200", 835.5, tf32=417.5, int8=1670.5),
        "b200": _nvidia("B200", "HGX B200", 2250, fp8=4500, int8=4500),
        "l4": _nvidia("L4", "L4", 121, tf32=60, fp8=242.5, int8=242.5),
        "l40s": _nvidia("L40S", "L40S", 362.05, tf32=183, fp8=733, int8=733),
        "trainium1": _rows("Trainium1", _NEURON, bf16=190, fp16=190, tf32=190, fp8=190, int8=380),
        "trainium2": _rows("Trainium2", _NEURON, bf16=667, fp16=667, tf32=667, fp8=1299),
    }
)
# An A100's name says its form and memory, and its peak is the same in all of them.
_A100 = _nvidia("A100", "A100", 312, tf32=156, int8=624)
_A100_NAME = re.compile(r"a100(-(sxm4|pcie)-(40|80)gb| 80gb pcie)?")


def peak_of(device: str, dtype: str = BF16) -> Peak | None:
    """The peak of a device by the name that JAX (`device_kind`) or torch gives it.

    None for a device or a type that is not in the table; a part of a chip (MIG) is not.
    """
    return next((row for row in _rows_of(device) if row.dtype == dtype), None)


def highest_flops(device: str) -> int:
    """Its peak in whatever type of numbers is the fastest; 0: it is not in the table."""
    return max((row.flops for row in _rows_of(device)), default=0)


def _rows_of(device: str) -> tuple[Peak, ...]:
    name = device.strip().lower().removeprefix("nvidia ")
    return _A100 if _A100_NAME.fullmatch(name) else _BY_NAME.get(name, ())
