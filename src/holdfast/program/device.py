"""Which device this process has opened: by its framework's own name, a CPU by its processor's."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import Any, NamedTuple

CPU = "cpu"
_CPUINFO = Path("/proc/cpuinfo")
# Packages that bring torch a device of their own: TPUs and Trainium, Gaudi, Ascend.
_OTHERS_OF_TORCH = ("torch_xla", "torch_neuronx", "habana_frameworks", "torch_npu")


class Device(NamedTuple):
    """Its name, and on how many of them the program runs; 0: that is not known.

    `kinds`: of how many kinds these are. The name then has all of theirs.
    """

    name: str
    many: int
    kinds: int = 1


def find_device() -> Device:
    """The device that the script has opened, by its framework; none is opened to find out."""
    on_jax = on_torch = Device("", 0)
    try:
        bridge = sys.modules.get("jax._src.xla_bridge")
        if bridge is not None and bridge.backends_are_initialized():
            jax = sys.modules["jax"]
            kinds = sorted({str(device.device_kind) for device in jax.devices()})
            on_jax = Device(" and ".join(kinds), len(jax.devices()), len(kinds))
    except Exception:  # another version of JAX: the device is not known, and the training goes on
        on_jax = Device("", 0)
    if on_jax.name.lower() not in ("", CPU):
        return on_jax
    try:
        torch = sys.modules.get("torch")
        if torch is not None:
            on_torch = Device(_of_torch(torch), 0)
            if not on_torch.name:  # whatever JAX does on the CPU beside it
                return on_torch
    except Exception:
        on_torch = Device("", 0)
    found = on_jax if on_torch.name in ("", CPU) and on_jax.name else on_torch
    return found if found.name.lower() != CPU else Device(processor(), found.many)


def _of_torch(torch: Any) -> str:
    """The CUDA device that it has opened; else a CPU, unless other accelerators may be in use."""
    if torch.cuda.is_initialized():
        return str(torch.cuda.get_device_name())
    if any(name in sys.modules for name in _OTHERS_OF_TORCH):
        return ""
    xpu, mps = getattr(torch, "xpu", None), getattr(torch, "mps", None)
    is_other = (xpu is not None and xpu.is_initialized()) or (
        # Nothing says that it was opened, but memory that is in use there.
        mps is not None and torch.backends.mps.is_available() and mps.driver_allocated_memory()
    )
    return "" if is_other else CPU


def processor(cpuinfo: Path = _CPUINFO) -> str:
    """The processor, and how many of its CPUs this process may use: `AMD EPYC 9B14, 8 CPUs`."""
    name = CPU
    # The kernel makes these lines as they are read: of many CPUs the first is enough.
    with contextlib.suppress(OSError), cpuinfo.open(errors="replace") as lines:
        for line in lines:
            key, _, value = line.partition(":")
            if key.strip() in ("model name", "Model") and value.strip():
                name = " ".join(value.split())
                break
    many = len(os.sched_getaffinity(0))
    return f"{name}, {many} CPU{'s' if many > 1 else ''}"
