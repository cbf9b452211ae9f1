"""The processes in which Keras trains one model: one, or several on JAX."""

from __future__ import annotations

from typing import Any

from holdfast.errors import ConfigurationError


def check_processes(backend: str, world_size: int) -> tuple[int, int]:
    """How many train this model together, and which of them this is.

    Raises ConfigurationError when the run has another number of ranks.
    """
    count, index = 1, 0
    if backend == "jax":
        import jax

        count, index = jax.process_count(), jax.process_index()
    if world_size != count:
        raise ConfigurationError(
            f"the run has {world_size} ranks, and Keras trains in {count} process"
            f"{'es' if count > 1 else ''}: several are for the JAX backend alone, whose script "
            "calls jax.distributed.initialize before it makes the callback"
        )
    return count, index


def sync(model: Any) -> None:
    """On JAX: the model has its state, and no step is still computed, which were no save's time."""
    import jax

    model.jax_state_sync()
    jax.block_until_ready([one.value for one in model.variables])


def of_the_first(error: OSError | None) -> OSError | None:
    """On JAX: wait for the first process, and hear from it whether the file is there."""
    from jax.experimental.multihost_utils import broadcast_one_to_all

    is_there = bool(broadcast_one_to_all(error is None))
    return None if is_there else error or OSError("the first process could not write it")
