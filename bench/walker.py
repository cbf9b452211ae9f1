"""How long counting a step's FLOPs takes: 32 layers, scanned and one after the other.

    python bench/walker.py [--layers 32] [--rounds 10]

A decoder's loss and gradients, by shapes alone. The walk is `of_jaxpr`; tracing, which `of_jax`
does first and `run.compile` does anyway, stands beside it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from holdfast.program import of_jaxpr

WIDTH, HEADS, LENGTH, BATCH, WORDS = 1024, 16, 1024, 2, 32_000
TARGETS_MS = {"scanned": 50.0, "unrolled": 1000.0}


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--layers", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=10)
    args = parser.parse_args()
    how = f"{args.layers} layers, {args.rounds} rounds, jax {jax.__version__}"
    print(f"load {os.getloadavg()[0]:.1f}; {how}")
    counts = set()
    for name, target_ms in TARGETS_MS.items():
        step, weights, ids = made(args.layers, is_scanned=name == "scanned")
        began = time.perf_counter()
        traced = jax.jit(step).trace(weights, ids).jaxpr
        trace_s = time.perf_counter() - began
        took = [timed(lambda: of_jaxpr(traced)) for _ in range(args.rounds)]  # noqa: B023
        counts.add(of_jaxpr(traced).model)
        print(
            f"{name:<9} walk {statistics.median(took) * 1e3:8.1f} ms ({min(took) * 1e3:.1f} … "
            f"{max(took) * 1e3:.1f}; target {target_ms:,.0f}), tracing {trace_s:.2f} s"
        )
    if len(counts) != 1:
        raise SystemExit(f"scanned and unrolled have other FLOPs: {counts}")


def timed(what: Callable[[], object]) -> float:
    began = time.perf_counter()
    what()
    return time.perf_counter() - began


def made(layers: int, *, is_scanned: bool) -> tuple[Any, Any, Any]:
    """A step with its arguments' shapes."""

    def shape(*sizes: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(sizes, jnp.bfloat16)

    stacked = {
        "qkv": shape(layers, WIDTH, 3 * WIDTH),
        "out": shape(layers, WIDTH, WIDTH),
        "up": shape(layers, WIDTH, 4 * WIDTH),
        "down": shape(layers, 4 * WIDTH, WIDTH),
    }

    def layer(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        q, k, v = jnp.split((x @ w["qkv"]).reshape(BATCH, LENGTH, HEADS, -1), 3, axis=-1)
        scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
        x = x + jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(x.shape) @ w["out"]
        return x + jax.nn.gelu(x @ w["up"]) @ w["down"], None

    def loss(w: Any, ids: jax.Array) -> jax.Array:
        x = w["table"][ids]
        if is_scanned:
            x, _ = jax.lax.scan(layer, x, w["layers"])
        else:
            for i in range(layers):
                x, _ = layer(x, jax.tree.map(lambda one, i=i: one[i], w["layers"]))
        return jax.nn.logsumexp(x @ w["table"].T, axis=-1).mean()

    weights = {"table": shape(WORDS, WIDTH), "layers": stacked}
    return jax.value_and_grad(loss), weights, jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32)


if __name__ == "__main__":
    main()
