"""A decoder-only transformer language model in plain JAX.

Parameters are a dict of arrays, and the model is a function of them: nothing to learn but numpy.
Pre-norm blocks with RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467), rotary positions
(Su et al. 2021, arXiv:2104.09864), GELU, tied embeddings, no biases.

Shapes: B batch, T time, D width, H heads, K = D / H, F = 4 D, L layers, V vocabulary (256 bytes).
"""

from __future__ import annotations

from dataclasses import dataclass

import jax
import jax.numpy as jnp
import numpy as np


@dataclass(frozen=True)
class Config:
    layers: int = 4
    width: int = 128
    heads: int = 4
    dropout: float = 0.1  # on the embeddings
    vocab: int = 256


def init(seed: int, config: Config):
    """Random parameters, float32. Drawn by numpy, which has nothing to compile."""
    D, F = config.width, 4 * config.width  # noqa: N806
    draw = np.random.default_rng(seed).normal

    def normal(*shape, scale=0.02):
        return jnp.asarray(draw(0.0, scale, shape), jnp.float32)

    # What is added to the residual stream 2 L times starts smaller by sqrt(2 L), as in GPT-2.
    outward = 0.02 / (2 * config.layers) ** 0.5
    blocks = [
        {
            "attention_norm": jnp.ones(D),
            "qkv": normal(D, 3 * D),
            "attention_out": normal(D, D, scale=outward),
            "mlp_norm": jnp.ones(D),
            "mlp_in": normal(D, F),
            "mlp_out": normal(F, D, scale=outward),
        }
        for _ in range(config.layers)
    ]
    return {"embedding": normal(config.vocab, D), "blocks": blocks, "final_norm": jnp.ones(D)}


def apply(params, tokens, config: Config, dropout_key=None):
    """Logits [B, T, V] for tokens [B, T]; dropout only where a key is given."""
    x = params["embedding"][tokens]
    if dropout_key is not None and config.dropout > 0:
        kept = jax.random.bernoulli(dropout_key, 1 - config.dropout, x.shape)
        x = jnp.where(kept, x / (1 - config.dropout), 0)

    for p in params["blocks"]:
        x = x + attention(rms_norm(x, p["attention_norm"]), p, config.heads)
        x = x + jax.nn.gelu(rms_norm(x, p["mlp_norm"]) @ p["mlp_in"]) @ p["mlp_out"]
    return rms_norm(x, params["final_norm"]) @ params["embedding"].T


def attention(x, p, heads: int):
    """Causal self-attention, [B, T, D] → [B, T, D]."""
    B, T, D = x.shape  # noqa: N806
    q, k, v = jnp.split((x @ p["qkv"]).reshape(B, T, 3 * heads, D // heads), 3, axis=2)
    y = jax.nn.dot_product_attention(rotate(q), rotate(k), v, is_causal=True)
    return y.reshape(B, T, D) @ p["attention_out"]


def rotate(x):
    """Rotary positions on [B, T, H, K]: pair i turns by t / 10000^(2i/K) at time t."""
    T, half = x.shape[1], x.shape[3] // 2  # noqa: N806
    angle = jnp.arange(T)[:, None] / 10_000 ** (jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None, :], jnp.sin(angle)[:, None, :]  # [T, 1, K/2]
    a, b = jnp.split(x, 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1)


def rms_norm(x, scale):
    return scale * x * jax.lax.rsqrt(jnp.mean(x * x, axis=-1, keepdims=True) + 1e-6)


def loss(params, batch, config: Config, dropout_key=None):
    """Mean cross-entropy, nats per byte, of batch [B, T + 1]: each byte predicts the next."""
    tokens = batch.astype(jnp.int32)
    logits = apply(params, tokens[:, :-1], config, dropout_key)
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), tokens[:, 1:, None], axis=-1).mean()
