"""A decoder-only transformer language model in flax nnx, with what makes one fast as switches.

Pre-norm blocks with RMSNorm (Zhang & Sennrich 2019, arXiv:1910.07467), rotary positions
(Su et al. 2021, arXiv:2104.09864), GELU, tied embeddings, no biases: examples/lm, with its layers
stacked, so that they are compiled once and not `layers` times.

Shapes: B batch, T time, D width, H heads, K = D / H, F = 4 D, L layers, V vocabulary.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
from attention import attend
from flax import nnx
from jax.ad_checkpoint import checkpoint_name
from mesh import by_rows, everywhere, row_devices

from holdfast.program import of_jax

# What `--remat names` keeps of a block, and `--remat offload` sends to the host's memory: the
# results of its products, without the widest one.
NAMES = ("qkv", "attended", "attention_out", "mlp_out")


@dataclass(frozen=True)
class Config:
    layers: int = 4
    width: int = 128
    heads: int = 4
    vocab: int = 256
    attention: str = "xla"  # or splash, local-global
    window: int = 512  # local-global: how far back a local layer sees
    global_every: int = 4  # local-global: of so many layers the last one sees all
    remat: str = "none"  # or full, names, offload
    quant: str = "none"  # or int8
    dtype: str = "float32"  # of activations and products; parameters are float32

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Of the layers that repeat: how far back each sees; None is all the way."""
        if self.attention != "local-global":
            return (None,)
        return (self.window,) * (self.global_every - 1) + (None,)


class Block(nnx.Module):
    """Attention and two products, [B, T, D] → [B, T, D]."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        D = config.width  # noqa: N806
        # What is added to the residual stream 2 L times starts smaller by sqrt(2 L), as in GPT-2.
        outward = 0.02 / (2 * config.layers) ** 0.5
        self.heads, self.kind = config.heads, config.attention

        def product(before: int, after: int, scale: float = 0.02):
            normal = nnx.initializers.normal(scale)
            return nnx.Linear(
                before, after, use_bias=False, kernel_init=normal, dtype=config.dtype, rngs=rngs
            )

        self.attention_norm = nnx.RMSNorm(D, dtype=config.dtype, rngs=rngs)
        self.qkv = product(D, 3 * D)
        self.attention_out = product(D, D, outward)
        self.mlp_norm = nnx.RMSNorm(D, dtype=config.dtype, rngs=rngs)
        self.mlp_in = product(D, 4 * D)
        self.mlp_out = product(4 * D, D, outward)

    def __call__(self, x, window: int | None):
        x = x + self.attention(self.attention_norm(x), window)
        hidden = jax.nn.gelu(self.mlp_in(self.mlp_norm(x)))
        return x + checkpoint_name(self.mlp_out(hidden), "mlp_out")

    def attention(self, x, window: int | None):
        B, T, D = x.shape  # noqa: N806
        qkv = checkpoint_name(self.qkv(x), "qkv")
        # Each head's three lie side by side, so that heads can be divided among devices.
        q, k, v = jnp.moveaxis(qkv.reshape(B, T, self.heads, 3, D // self.heads), 3, 0)
        y = attend(rotate(q), rotate(k), v, self.kind, window)
        y = checkpoint_name(y.reshape(B, T, D), "attended")
        return checkpoint_name(self.attention_out(y), "attention_out")


class Transformer(nnx.Module):
    """Logits [B, T, V], float32, for tokens [B, T]."""

    def __init__(self, config: Config, rngs: nnx.Rngs):
        self.remat, self.windows = config.remat, config.windows
        if config.layers % len(self.windows):
            raise SystemExit(f"--layers {config.layers} is no multiple of --global-every")
        self.embedding = nnx.Embed(
            config.vocab,
            config.width,
            embedding_init=nnx.initializers.normal(0.02),
            dtype=config.dtype,
            rngs=rngs,
        )
        # One block whose every array has an axis more at its front, [L, …]: also in a checkpoint,
        # which therefore fits whatever the switches are.
        self.blocks = nnx.vmap(lambda rngs: Block(config, rngs))(rngs.split(config.layers))
        self.final_norm = nnx.RMSNorm(config.width, dtype=config.dtype, rngs=rngs)

    def __call__(self, tokens):
        graph, stacked = nnx.split(self.blocks)
        windows = self.windows
        turns = jax.tree.map(lambda a: a.reshape(-1, len(windows), *a.shape[1:]), stacked)

        def layer(x, arrays, window):
            return by_rows(nnx.merge(graph, arrays)(x, window))

        def turn(x, layers):  # one layer; or the local ones and the global one that repeat
            for i, window in enumerate(windows):
                one = remat(functools.partial(layer, window=window), self.remat)
                x = one(x, jax.tree.map(lambda a, i=i: a[i], layers))
            return x, None

        x, _ = jax.lax.scan(turn, by_rows(self.embedding(tokens)), turns)
        return self.embedding.attend(self.final_norm(x)).astype(jnp.float32)


def remat(layer, how: str):
    """`layer`, of which the backward pass computes again what the forward pass did not keep."""
    policies = jax.checkpoint_policies
    if how == "none":
        return layer
    policy = {
        "full": policies.nothing_saveable,
        "names": policies.save_only_these_names(*NAMES),
        "offload": policies.save_and_offload_only_these_names(
            names_which_can_be_saved=[],
            names_which_can_be_offloaded=list(NAMES),
            offload_src="device",
            offload_dst="pinned_host",
        ),
    }[how]
    # A scan keeps the two passes apart by itself.
    return jax.checkpoint(layer, policy=policy, prevent_cse=False)


def rotate(x):
    """Rotary positions on [B, T, H, K]: pair i turns by t / 10000^(2i/K) at time t."""
    T, half = x.shape[1], x.shape[3] // 2  # noqa: N806
    angle = jnp.arange(T)[:, None] / 10_000 ** (jnp.arange(half) / half)
    cos, sin = jnp.cos(angle)[:, None, :], jnp.sin(angle)[:, None, :]  # [T, 1, K/2]
    a, b = jnp.split(x.astype(jnp.float32), 2, axis=-1)
    return jnp.concatenate([a * cos - b * sin, a * sin + b * cos], axis=-1).astype(x.dtype)


def quantized(model, config: Config):
    """The model, with its blocks' products of weights in eight bits, forward and backward.

    The rule is of operations: `dot_general` is what nnx.Linear does. QKᵀ and PV are inside of
    attention's own kernels or `einsum`, and stay wide, as do embeddings and logits.
    """
    if config.quant == "none":
        return model
    import qwix  # nothing else needs it

    kind = {"int8": jnp.int8, "fp8": jnp.float8_e4m3fn}[config.quant]
    rule = qwix.QtRule(
        module_path="blocks/.*",
        op_names=("dot_general",),
        weight_qtype=kind,
        act_qtype=kind,
        bwd_qtype=kind,
    )
    # It need not run once: nothing is calibrated ahead.
    return qwix.quantize_model(model, qwix.QtProvider([rule]), None, skip_nnx_init=True)


@functools.cache
def graph(config: Config):
    """The model without its arrays: `nnx.merge(graph(config), params)` is the model."""
    model = nnx.eval_shape(lambda: Transformer(config, nnx.Rngs(0)))
    return nnx.graphdef(quantized(model, config))


def first_params(config: Config, seed: int):
    """Random parameters, float32: nested dicts of arrays."""
    return nnx.to_pure_dict(nnx.state(Transformer(config, nnx.Rngs(seed))))


def logits(params, tokens, config: Config):
    """[B, T, V] for tokens [B, T]."""
    return nnx.merge(graph(config), params)(tokens)


def loss(params, batch, config: Config):
    """Mean cross-entropy, nats per token, of batch [B, T + 1]: each token predicts the next."""
    tokens = batch.astype(jnp.int32)
    chances = jax.nn.log_softmax(logits(params, tokens[:, :-1], config))
    return -jnp.take_along_axis(chances, tokens[:, 1:, None], axis=-1).mean()


def needed_flops(config: Config, batch: int, context: int) -> int:
    """What a step needs, however it is computed: forward and backward, the whole square of QKᵀ.

    Counted of the plain program: kernels hide their FLOPs, and quantising repeats some. A local
    layer needs of the square what it sees, whose causal half is counted twice, as the square's is.
    """
    plain = replace(config, attention="xla", remat="none", quant="none")
    params = jax.eval_shape(lambda: first_params(plain, 0))
    tokens = jax.ShapeDtypeStruct((batch, context + 1), jnp.int32)
    flops = of_jax(jax.grad(functools.partial(loss, config=plain)), params, tokens).model
    for window in config.windows:
        if window is not None:
            seen = sum(min(t, window) + 1 for t in range(context)) / context
            unseen = context - min(2 * seen, context)
            layers = config.layers // len(config.windows)
            flops -= int(12 * config.width * unseen * batch * context * layers)
    return flops


def sample(params, config: Config, start, count: int, context: int, seed: int):
    """`count` more tokens after `start` [S], each drawn from what the model says of the last ones.

    The whole context is computed anew for each: no cache, and no other program than the training's.
    So each device gets the row, for it divides a batch among them.
    """
    tokens = jnp.zeros(len(start) + count + context, jnp.int32).at[: len(start)].set(start)

    @jax.jit
    def next_one(params, tokens, n):
        begin = jnp.maximum(n - context, 0)
        seen = jax.lax.dynamic_slice(tokens, (begin,), (context,))
        rows = jnp.broadcast_to(seen, (row_devices(), context))
        chances = logits(params, rows, config)[0, n - begin - 1]
        drawn = jax.random.categorical(jax.random.fold_in(jax.random.key(seed), n), chances)
        return everywhere(tokens.at[n].set(drawn))

    for n in range(len(start), len(start) + count):
        tokens = next_one(params, tokens, n)
    return tokens[: len(start) + count]
