"""The way between ranks that have no supervisor: the key-value store that their framework runs.

JAX's coordination service and torch.distributed's store are there as soon as the script has
initialised them. Never a collective: those belong to the training, and one rank alone would hang.
"""

from __future__ import annotations

from typing import NamedTuple

from holdfast.config import launcher_world
from holdfast.session import channel_jax, channel_torch
from holdfast.session.registers import Channel


class RankOfWorld(NamedTuple):
    """Which of how many, and who says so."""

    rank: int
    size: int
    source: str


def find_world() -> RankOfWorld:
    """Where this process stands: by an initialised framework, else by what its launcher has set."""
    for module in (channel_jax, channel_torch):
        world = module.world()
        if world is not None and world[1] > 1:
            return RankOfWorld(world[0], world[1], module.NAME)
    launched = launcher_world()
    return RankOfWorld(0, 1, "") if launched is None else RankOfWorld(*launched)


def find_channel(world_size: int) -> Channel | None:
    """A way to the other ranks, once a framework of so many processes is initialised."""
    world = channel_jax.world()
    if world is not None and world[1] == world_size:
        return channel_jax.JaxChannel()
    world = channel_torch.world()
    if world is not None and world[1] == world_size:
        return channel_torch.TorchChannel()
    return None
