"""What an import must not have done: taken an accelerator, or started a framework's backend."""

from __future__ import annotations

import os
import sys

_DEVICES = ("/dev/nvidia", "/dev/accel", "/dev/vfio", "/dev/kfd", "/dev/dri")


def opened_by(process: str) -> str:
    """An accelerator's device that a process has open, "self" or a pid; empty: none.

    Raises OSError for a process that is gone, or another user's.
    """
    for name in os.listdir(f"/proc/{process}/fd"):
        try:
            target = os.readlink(f"/proc/{process}/fd/{name}")
        except OSError:
            continue  # the folder's own descriptor, or one that was closed meanwhile
        if target.startswith(_DEVICES):
            return target
    return ""


def taken(*, look_at_maps: bool) -> str:
    """What this process holds that the training beside it may need; empty: nothing.

    A device can be held by a descriptor or by a mapping; the latter costs a millisecond to see.
    """
    if device := opened_by("self"):
        return f"opens {device}"
    if look_at_maps:
        with open("/proc/self/maps", "rb") as file:
            maps = file.read()
        for device in _DEVICES:
            if device.encode() in maps:
                return f"maps {device}*"
    return _backend()


def _backend() -> str:
    bridge = sys.modules.get("jax._src.xla_bridge")
    if getattr(bridge, "_backends", None):
        return "initialises a backend of JAX"
    if getattr(sys.modules.get("torch.cuda"), "_initialized", False):
        return "initialises CUDA through torch"
    return ""
