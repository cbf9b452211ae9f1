"""Causal attention in three ways: as XLA does it, by a kernel, and by a kernel that skips blocks.

Shapes: B batch, T time, H heads, K head size.
"""

from __future__ import annotations

import functools

import jax
from jax.experimental.pallas.ops.tpu import splash_attention as splash
from jax.sharding import PartitionSpec

BLOCK = 128  # the least that a TPU's vector unit takes; longer ones are faster for longer sequences
LONG_BLOCK = 512


def attend(q, k, v, kind: str, window: int | None):
    """[B, T, H, K] three times → [B, T, H, K]. `window`: so many positions before its own, or all.

    A kernel runs on each device's own part of the batch and of the heads, where a mesh is set.
    """
    if kind == "xla":
        return jax.nn.dot_product_attention(q, k, v, is_causal=True)
    local = None if window is None else (window, 0)
    if jax.default_backend() == "gpu":  # cuDNN's kernel skips the same blocks
        return jax.nn.dot_product_attention(
            q, k, v, is_causal=True, local_window_size=local, implementation="cudnn"
        )
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.empty:
        return by_splash(q, k, v, window)
    parts = PartitionSpec(("data", "fsdp"), None, "tensor", None)
    kernel = functools.partial(by_splash, window=window)
    return jax.shard_map(kernel, in_specs=parts, out_specs=parts, check_vma=False)(q, k, v)


def by_splash(q, k, v, window: int | None):
    """Pallas' splash attention: blocks that the mask hides are neither loaded nor computed."""
    T, H, K = q.shape[1:]  # noqa: N806
    if T % BLOCK:
        raise SystemExit(f"--context {T}: this attention works on blocks of {BLOCK}")
    block = next(size for size in (LONG_BLOCK, BLOCK) if T % size == 0)
    kernel = splash.make_splash_mha(
        splash.MultiHeadMask([mask_of(T, window)] * H),
        block_sizes=splash.BlockSizes(
            block_q=block, block_kv=block, block_q_dkv=block, block_kv_dkv=block,
            block_q_dq=block, block_kv_dq=block,
        ),
        head_shards=1,
        q_seq_shards=1,
        interpret=jax.default_backend() != "tpu",
    )  # fmt: skip
    heads_first = (one.swapaxes(1, 2) for one in (q * K**-0.5, k, v))
    return jax.vmap(kernel)(*heads_first).swapaxes(1, 2).astype(q.dtype)


def mask_of(length: int, window: int | None):
    """What each position sees: itself and all before it, or so many before it."""
    shape = length, length
    return splash.CausalMask(shape) if window is None else splash.LocalMask(shape, (window, 0), 0)
