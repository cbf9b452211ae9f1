"""Several processes, one training: the ranks that `holdfast run --ranks N` starts, under JAX.

Each rank runs the same script. `join_ranks` makes one mesh of their devices, on which the batch is
split by rows and the parameters are whole everywhere; XLA adds the gradients up by itself. A single
process is a mesh of its own devices.
"""

from __future__ import annotations

import os
import socket
import time

import jax
from jax.sharding import Mesh

FIRST_LOOK_S = 0.005
LAST_LOOK_S = 60.0  # for the slowest imports of rank 0


def join_ranks() -> Mesh:
    """All ranks' devices as one row. Before anything that computes or asks for devices."""
    ranks = int(os.environ.get("JAX_NUM_PROCESSES", "1"))
    if ranks > 1:
        address, rank = os.environ["JAX_COORDINATOR_ADDRESS"], int(os.environ["JAX_PROCESS_ID"])
        jax.config.update("jax_cpu_collectives_implementation", "gloo")  # GPUs have their own
        if rank > 0:
            wait_for(address)
        jax.distributed.initialize(address, ranks, rank)
    return Mesh(jax.devices(), ("rows",))


def wait_for(address: str) -> None:
    """Until rank 0 listens there. Who dials earlier is left to wait a whole second by gRPC."""
    host, _, port = address.rpartition(":")
    give_up = time.monotonic() + LAST_LOOK_S
    while time.monotonic() < give_up:
        with socket.socket() as probe:
            if probe.connect_ex((host, int(port))) == 0:
                return
        time.sleep(FIRST_LOOK_S)
