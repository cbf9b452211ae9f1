"""Eight virtual devices in a grid beside one: tells what differs, as a line of JSON.

python tests/examples/reference_grid.py
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import jax

jax.config.update("jax_num_cpu_devices", 8)
EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path[:0] = [str(EXAMPLES / "reference"), str(EXAMPLES / "lm")]

import mesh  # noqa: E402
import model  # noqa: E402
import numpy as np  # noqa: E402

KINDS = ("xla", "splash", "local-global")
START = np.frombuffer(b"def ", np.uint8).astype(np.int32)


def main() -> None:
    """Of each kind of attention: gradients and loss apart, and whether a sample is the same."""
    grid = mesh.grid(jax.devices(), fsdp=2, tensor=2, slices=2)
    batch = np.random.default_rng(0).integers(256, size=(4, 257))
    found: dict[str, Any] = {"shape": dict(grid.shape)}
    for kind in KINDS:
        config = model.Config(
            layers=2, width=32, heads=2, attention=kind, window=100, global_every=2
        )
        params = model.first_params(config, 0)

        def gradient(params: Any, batch: Any, config: Any = config) -> Any:
            return jax.value_and_grad(model.loss)(params, batch, config)

        alone = jax.device_get(jax.jit(gradient)(params, batch))
        said = model.sample(params, config, START, 3, 128, seed=0)
        with jax.set_mesh(grid):
            placed = jax.device_put(params, mesh.parts(grid, params))
            divided = jax.device_put(batch, jax.NamedSharding(grid, mesh.ROWS))
            together = jax.device_get(jax.jit(gradient)(placed, divided))
            said_together = model.sample(placed, config, START, 3, 128, seed=0)
        weights = placed["blocks"]["qkv"]["kernel"]
        found[kind] = {
            "losses_apart": float(abs(alone[0] - together[0])),
            "gradients_apart": apart(alone[1], together[1]),
            "is_same_sample": np.asarray(said).tolist() == np.asarray(said_together).tolist(),
            "parts_of_qkv": weights.size // weights.addressable_shards[0].data.size,
        }
    print(json.dumps(found))


def apart(a: Any, b: Any) -> float:
    """The largest difference of two trees, as a part of the largest number."""
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    largest = max(float(np.abs(x).max()) for x, _ in pairs)
    return max(float(np.abs(x - y).max()) for x, y in pairs) / largest


if __name__ == "__main__":
    main()
