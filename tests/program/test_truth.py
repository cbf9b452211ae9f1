"""The walker against counts that others have published, on models of their sizes."""

from __future__ import annotations

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import pytest

from holdfast.program import Flops, dense_transformer, moe_transformer, of_jax


class Sizes(NamedTuple):
    """A decoder. `gates`: products of the first half of a layer's MLP."""

    layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    hidden: int
    words: int
    gates: int
    length: int
    batch: int = 1

    @property
    def multiplied(self) -> int:
        """Parameters that are multiplied: all but a table that only looks up."""
        attention = self.width * self.head * (2 * self.heads + 2 * self.kv_heads)
        mlp = (self.gates + 1) * self.width * self.hidden
        return self.layers * (attention + mlp) + self.words * self.width

    @property
    def tokens(self) -> int:
        return self.batch * self.length


LLAMA_3_8B = Sizes(32, 4096, 32, 8, 128, 14336, 128_256, 2, 8192)
GPT_2 = Sizes(12, 768, 12, 12, 64, 3072, 50_257, 1, 1024)
GPT_3_52K = Sizes(1, 16, 2, 2, 8, 64, 1024, 1, 2048, 12)


def train_step(sizes: Sizes) -> Flops:
    """A decoder with scanned layers: its loss and gradients, by shapes alone."""

    def shape(*size: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(size, jnp.bfloat16)

    s, group = sizes, sizes.heads // sizes.kv_heads
    layers = {
        "q": shape(s.layers, s.width, s.heads * s.head),
        "kv": shape(s.layers, s.width, 2 * s.kv_heads * s.head),
        "out": shape(s.layers, s.heads * s.head, s.width),
        "up": shape(s.layers, s.gates, s.width, s.hidden),
        "down": shape(s.layers, s.hidden, s.width),
    }
    weights = {"table": shape(s.words, s.width), "layers": layers, "head": shape(s.width, s.words)}

    def layer(x: jax.Array, w: dict[str, jax.Array]) -> tuple[jax.Array, None]:
        q = (x @ w["q"]).reshape(s.batch, s.length, s.kv_heads, group, s.head)
        k, v = jnp.split((x @ w["kv"]).reshape(s.batch, s.length, s.kv_heads, -1), 2, axis=-1)
        scores = jax.nn.softmax(jnp.einsum("btkgd,bskd->bkgts", q, k))
        x = x + jnp.einsum("bkgts,bskd->btkgd", scores, v).reshape(*x.shape[:2], -1) @ w["out"]
        up = [jax.nn.silu(x @ w["up"][i]) for i in range(s.gates)]
        return x + (up[0] if s.gates == 1 else up[0] * up[1]) @ w["down"], None

    def loss(w: Any, ids: jax.Array) -> jax.Array:
        x, _ = jax.lax.scan(layer, w["table"][ids], w["layers"])
        return jax.nn.logsumexp(x @ w["head"], axis=-1).mean()

    ids = jax.ShapeDtypeStruct((s.batch, s.length), jnp.int32)
    return of_jax(jax.value_and_grad(loss), weights, ids)


@pytest.mark.parametrize("sizes", [LLAMA_3_8B, GPT_2, GPT_3_52K])
def test_six_n_and_attention(sizes: Sizes) -> None:
    expected = dense_transformer(
        parameters=sizes.multiplied,
        layers=sizes.layers,
        heads=sizes.heads,
        head_size=sizes.head,
        sequence=sizes.length,
        tokens=sizes.tokens,
    )
    assert train_step(sizes).model == expected


def test_llama_3_8b_as_torchtitan_counts_it() -> None:
    """57.9 GFLOP a token with a sequence of 8,192."""
    found = train_step(LLAMA_3_8B).model / LLAMA_3_8B.tokens
    assert found / 1e9 == pytest.approx(57.9, rel=0.01)


def test_gpt_2_as_nanogpt_counts_it() -> None:
    """transformer_sizing.ipynb: its own table of products, and the formula of PaLM beside it."""
    found = train_step(GPT_2).model
    assert found == 3 * 291_648_307_200
    assert found == pytest.approx(875_062_886_400, rel=0.001)


def test_gpt_3_52k_as_maxtext_counts_it() -> None:
    """Its smallest configuration, by the formula that it prints at its start (maxtext_utils.py).

    Attention is halved there, for what causality leaves out; the walker counts all that is done.
    """
    s = GPT_3_52K
    mlp = 2 * s.tokens * s.hidden * s.width * s.gates + 2 * s.tokens * s.hidden * s.width
    qkv = 2 * s.tokens * s.width * (s.heads + 2 * s.kv_heads) * s.head
    attention = 4 * s.batch * s.length**2 * s.heads * s.head
    out = 2 * s.tokens * s.width * s.heads * s.head
    head = 2 * s.tokens * s.width * s.words
    weights = ((mlp + qkv + out) * s.layers + head) * 3
    both = attention * s.layers * 3
    assert train_step(s).model == weights + both
    ours = {
        "parameters": s.multiplied, "layers": s.layers, "heads": s.heads, "head_size": s.head,
        "sequence": s.length, "tokens": s.tokens,
    }  # fmt: skip
    assert dense_transformer(**ours, causal_half=True) == weights + both // 2


@pytest.mark.parametrize("experts", [4, 64])
def test_of_experts_those_count_that_a_token_meets(experts: int) -> None:
    tokens, width, hidden, active = 48, 16, 40, 2

    def loss(w: Any, x: jax.Array, sizes: jax.Array) -> jax.Array:
        rows = jnp.repeat(x, active, axis=0)  # each token to two, sorted by experts
        up = jax.nn.relu(jax.lax.ragged_dot(rows, w["up"], sizes))
        return jax.lax.ragged_dot(up, w["down"], sizes).sum()

    def shape(*size: int) -> jax.ShapeDtypeStruct:
        return jax.ShapeDtypeStruct(size, jnp.float32)

    weights = {"up": shape(experts, width, hidden), "down": shape(experts, hidden, width)}
    sizes = jax.ShapeDtypeStruct((experts,), jnp.int32)
    found = of_jax(jax.value_and_grad(loss, argnums=(0, 1)), weights, shape(tokens, width), sizes)
    assert found.model == moe_transformer(
        shared_parameters=0,
        expert_parameters=2 * width * hidden,
        active_experts=active,
        layers=1,
        heads=0,
        head_size=0,
        sequence=0,
        tokens=tokens,
    )
