"""Who is in the race, in the order of the table."""

from __future__ import annotations

import re
import subprocess
import sys

from systems import (
    SAVE_EVERY_SYNC,
    System,
    bare,
    ft_launcher,
    holdfast,
    inprocess,
    torchft,
    torchrun,
)

HOT = ("--standby", "hot")
COMPILED = ("--compiled",)

SYSTEMS = [
    System(
        "loop", "bare loop, torch.save + fsync", "torch", bare("torch_save.py", SAVE_EVERY_SYNC)
    ),
    System("torchrun", "torchrun, DCP async", "torch", torchrun()),
    System(
        "torchrun-own-store",
        "torchrun, DCP async, a store per restart",
        "torch",
        torchrun(TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1"),
    ),
    System("ft_launcher", "NVIDIA ft_launcher, DCP async", "torch", ft_launcher),
    System("inprocess", "NVIDIA in-process, two warm spares", "torch", inprocess("spares")),
    System(
        "inprocess-spares", "NVIDIA in-process, spares for all kills", "torch", inprocess("plenty")
    ),
    System("torchft", "torchft, a replica group each", "torch", torchft),
    System("holdfast", "Holdfast (PyTorch)", "torch", holdfast("torch_holdfast.py")),
    System(
        "holdfast-hot",
        "Holdfast (PyTorch), hot standby",
        "torch",
        holdfast("torch_holdfast.py", *HOT),
        needs=HOT,
    ),
    System("loop-jax", "bare loop, Orbax async", "jax", bare("jax_orbax.py", SAVE_EVERY_SYNC)),
    System("holdfast-jax", "Holdfast (JAX)", "jax", holdfast("jax_holdfast.py")),
    System(
        "holdfast-jax-compiled",
        "Holdfast (JAX), run.compile",
        "jax",
        holdfast("jax_holdfast.py", more=COMPILED),
    ),
    System(
        "holdfast-jax-hot",
        "Holdfast (JAX), run.compile, hot standby",
        "jax",
        holdfast("jax_holdfast.py", *HOT, more=COMPILED),
        needs=HOT,
    ),
]
# Holdfast with less than it has: `race.py --levels` runs them beside the others of its own.
LEVELS = [
    System(
        "holdfast-cold",
        "Holdfast (PyTorch), no standby",
        "torch",
        holdfast("torch_holdfast.py", "--standby", "off"),
    ),
    System(
        "holdfast-jax-cold",
        "Holdfast (JAX), no standby",
        "jax",
        holdfast("jax_holdfast.py", "--standby", "off"),
    ),
]
# What a step takes where nobody supervises, strikes or saves: the ruler's measure for all.
NEVER = 1_000_000_000
UNDISTURBED = {
    "torch": System("undisturbed", "nobody", "torch", bare("torch_save.py", NEVER)),
    "jax": System("undisturbed-jax", "nobody", "jax", bare("jax_orbax.py", NEVER)),
}
NAMES = {system.name: system for system in [*SYSTEMS, *LEVELS]}


def known(system: System) -> bool:
    """Whether the Holdfast that is installed has what the system needs."""
    if system.needs is None:
        return True
    flag, word = system.needs
    command = [sys.executable, "-m", "holdfast.cli.main", "run", "--help"]
    shown = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    _, _, after = shown.partition(f"{flag} ")
    return word in re.findall(r"\w+", after.partition(" --")[0])
