"""JAX in a bare loop with Orbax: asynchronous saves by its CheckpointManager, one more on SIGTERM.

The persistent compile cache is on, with the thresholds that make a small program miss it lowered;
the coordination service's heartbeat is short. Both are the user's to know.
"""

from __future__ import annotations

import os
import signal
import sys

import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import Mesh
from lm_jax import Training, arguments
from ranks import wait_for

HEARTBEAT_S = 5


def join() -> Mesh:
    ranks = int(os.environ.get("JAX_NUM_PROCESSES", "1"))
    if ranks > 1:
        address, rank = os.environ["JAX_COORDINATOR_ADDRESS"], int(os.environ["JAX_PROCESS_ID"])
        jax.config.update("jax_cpu_collectives_implementation", "gloo")
        if rank > 0:
            wait_for(address)
        jax.distributed.initialize(address, ranks, rank, heartbeat_timeout_seconds=HEARTBEAT_S)
    return Mesh(jax.devices(), ("rows",))


def main() -> None:
    args = arguments()
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    jax.config.update("jax_compilation_cache_dir", str(args.out.parent / "compile-cache"))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
    training = Training(args, join(), rank, ranks)
    stopping = []
    signal.signal(signal.SIGTERM, lambda *_: stopping.append(True))
    options = ocp.CheckpointManagerOptions(
        max_to_keep=2, save_interval_steps=args.save_every, enable_async_checkpointing=True
    )
    with ocp.CheckpointManager(args.out, options=options) as manager:
        state, after = training.init_state(), manager.latest_step() or 0
        if after:
            like = jax.tree.map(ocp.utils.to_shape_dtype_struct, state)
            state = manager.restore(after, args=ocp.args.StandardRestore(like))
        training.batches.drawn = after  # batch n is a function of n: no file needed for it
        training.stamps.begin(after)
        for step in range(after + 1, args.steps + 1):
            state, _ = training.step(state)
            training.did(step)
            leaving = step % 5 == 0 and anybody(stopping, ranks)
            manager.save(step, args=ocp.args.StandardSave(state), force=leaving)
            if leaving:
                manager.wait_until_finished()
                sys.exit(75)


def anybody(stopping: list[bool], ranks: int) -> bool:
    """A flag that one rank has seen and another has not must not part them."""
    if ranks == 1:
        return bool(stopping)
    from jax.experimental.multihost_utils import process_allgather

    return bool(process_allgather(np.array(len(stopping))).any())


if __name__ == "__main__":
    main()
