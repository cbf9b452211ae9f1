"""Which device this process has opened: by its framework's own name, a CPU by its processor's."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path
from typing import NamedTuple

CPU = "cpu"
_CPUINFO = Path("/proc/cpuinfo")


class Device(NamedTuple):
    """Its name, and on how many of them the program runs; 0: that is not known."""

    name: str
    many: int


def find_device() -> Device:
    """The device that the script has opened, by its framework; none is opened to find out."""
    on_jax = on_torch = Device("", 0)
    try:
        bridge = sys.modules.get("jax._src.xla_bridge")
        if bridge is not None and bridge.backends_are_initialized():
            jax = sys.modules["jax"]
            kinds = sorted({str(device.device_kind) for device in jax.devices()})
            on_jax = Device(" and ".join(kinds), len(jax.devices()))
    except Exception:  # another version of JAX: the device is not known, and the training goes on
        on_jax = Device("", 0)
    if on_jax.name.lower() not in ("", CPU):
        return on_jax
    try:
        torch = sys.modules.get("torch")
        if torch is not None:
            has_cuda = torch.cuda.is_initialized()
            on_torch = Device(str(torch.cuda.get_device_name()) if has_cuda else CPU, 0)
    except Exception:
        on_torch = Device("", 0)
    found = on_jax if on_torch.name in ("", CPU) and on_jax.name else on_torch
    return found if found.name.lower() != CPU else Device(processor(), found.many)


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
