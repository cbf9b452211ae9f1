"""What an import must not have done: taken an accelerator, or started a framework's backend."""

from __future__ import annotations

import os
import sys

_DEVICES = ("/dev/nvidia", "/dev/accel", "/dev/vfio", "/dev/kfd", "/dev/dri")


def taken(*, look_at_maps: bool) -> str:
    """What this process holds that the training beside it may need; empty: nothing.

    A device can be held by a descriptor or by a mapping; the latter costs a millisecond to see.
    """
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue  # the folder's own descriptor
        if target.startswith(_DEVICES):
            return f"opens {target}"
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
