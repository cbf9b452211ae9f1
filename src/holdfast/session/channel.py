"""The way between ranks that have no supervisor: the key-value store that their framework runs.

JAX's coordination service and torch.distributed's store are there as soon as the script has
initialised them. Never a collective: those belong to the training, and one rank alone would hang.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.config import launcher_world
from holdfast.session import channel_jax, channel_torch
from holdfast.session.registers import Channel


class World(NamedTuple):
    """Which of how many, and who says so."""

    rank: int
    size: int
    source: str


def find_world() -> World:
    """Where this process stands: by an initialised framework, else by what its launcher has set."""
    for module in (channel_jax, channel_torch):
        told = module.world()
        if told is not None and told[1] > 1:
            return World(told[0], told[1], module.NAME)
    launched = launcher_world()
    return World(0, 1, "") if launched is None else World(*launched)


def find_channel(world_size: int) -> Channel | None:
    """A way to the other ranks, once a framework of so many processes is initialised."""
    told = channel_jax.world()
    if told is not None and told[1] == world_size:
        return channel_jax.JaxChannel()
    told = channel_torch.world()
    if told is not None and told[1] == world_size:
        return channel_torch.TorchChannel()
    return None
