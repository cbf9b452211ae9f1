"""The walker over jaxprs: known models to the FLOP, and whatever programs chance writes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.errors import ConfigurationError
from holdfast.program import Flops, dense_transformer, of_jax

LAYERS, HEADS, HEAD, WIDTH, HIDDEN, LENGTH, BATCH, WORDS = 3, 2, 8, 16, 40, 12, 2, 50
POLICY = jax.checkpoint_policies


def shape(*sizes: int) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(sizes, jnp.float32)


# --- A transformer --------------------------------------------------------------------------------


def weights() -> dict[str, Any]:
    inner = HEADS * HEAD
    return {
        "embed": shape(WORDS, WIDTH),
        "layers": {
            "qkv": shape(LAYERS, WIDTH, 3 * inner),
            "out": shape(LAYERS, inner, WIDTH),
            "up": shape(LAYERS, WIDTH, HIDDEN),
            "down": shape(LAYERS, HIDDEN, WIDTH),
        },
    }


def block(x: jax.Array, w: dict[str, jax.Array]) -> jax.Array:
    q, k, v = jnp.split((x @ w["qkv"]).reshape(BATCH, LENGTH, HEADS, 3 * HEAD), 3, axis=-1)
    scores = jax.nn.softmax(jnp.einsum("bqhd,bkhd->bhqk", q, k))
    mixed = jnp.einsum("bhqk,bkhd->bqhd", scores, v).reshape(BATCH, LENGTH, -1)
    x = x + mixed @ w["out"]
    return x + jax.nn.relu(x @ w["up"]) @ w["down"]


def train_step(how: Callable[..., Any] = lambda f: f, *, scanned: bool = True) -> Any:
    """Loss and gradients; `how` is what is done with each block."""
    layer = how(block)

    def loss(w: Any, ids: jax.Array) -> jax.Array:
        x = w["embed"][ids]
        if scanned:
            x, _ = jax.lax.scan(lambda c, one: (layer(c, one), None), x, w["layers"])
        else:
            for i in range(LAYERS):
                x = layer(x, jax.tree.map(lambda one, i=i: one[i], w["layers"]))
        return jax.nn.logsumexp(x @ w["embed"].T, axis=-1).sum()

    return jax.value_and_grad(loss)


def counted(step: Any) -> Flops:
    return of_jax(step, weights(), jax.ShapeDtypeStruct((BATCH, LENGTH), jnp.int32))


PLAIN = counted(train_step())
FORWARD_OF_LAYERS = (
    BATCH * LENGTH * LAYERS * 2 * (WIDTH * 4 * HEADS * HEAD + 2 * WIDTH * HIDDEN)
    + LAYERS * 4 * BATCH * HEADS * LENGTH * LENGTH * HEAD
)


def test_a_dense_transformer_is_six_n_and_its_attention() -> None:
    multiplied = sum(one.size for one in jax.tree.leaves(weights()))
    expected = dense_transformer(
        parameters=multiplied,
        layers=LAYERS,
        heads=HEADS,
        head_size=HEAD,
        sequence=LENGTH,
        tokens=BATCH * LENGTH,
    )
    assert abs(PLAIN.model / expected - 1) < 0.01
    both = PLAIN.model, PLAIN.executed
    assert both == (expected, expected), "it is even exact: no product is anything else"


def test_scanned_layers_are_unrolled_ones() -> None:
    assert counted(train_step(scanned=False)) == PLAIN


@pytest.mark.parametrize("scanned", [True, False], ids=["scanned", "unrolled"])
@pytest.mark.parametrize(
    "policy",
    [None, POLICY.nothing_saveable, POLICY.dots_saveable, POLICY.dots_with_no_batch_dims_saveable,
     POLICY.everything_saveable],
    ids=["default", "nothing", "dots", "dots without a batch", "everything"],
)  # fmt: skip
def test_remat_costs_and_the_model_needs_no_more(policy: Any, scanned: bool) -> None:
    found = counted(train_step(functools.partial(jax.checkpoint, policy=policy), scanned=scanned))
    assert found.model == PLAIN.model
    saves_all = policy in (POLICY.dots_saveable, POLICY.everything_saveable)
    assert (found.executed == PLAIN.executed) == saves_all
    # The last product of a block is needed by no gradient: it is not done again.
    assert found.executed - PLAIN.executed <= FORWARD_OF_LAYERS


def test_remat_of_jitted_blocks_and_of_remat_and_of_the_whole() -> None:
    for how in (
        lambda f: jax.checkpoint(jax.jit(f)),
        lambda f: jax.jit(jax.checkpoint(f)),
        lambda f: jax.checkpoint(jax.checkpoint(f)),
        lambda f: jax.checkpoint(f, prevent_cse=False),
    ):
        found = counted(train_step(how))
        assert found.model == PLAIN.model
        assert found.executed > PLAIN.executed
    whole = counted(
        lambda w, ids: jax.value_and_grad(jax.checkpoint(lambda w: train_step()(w, ids)[0]))(w)
    )
    assert whole.model == PLAIN.model
    assert whole.executed > PLAIN.executed


def test_remat_of_a_block_that_draws_and_loops_inside() -> None:
    def layer(x: jax.Array, w: jax.Array, key: jax.Array) -> jax.Array:
        x = x * jax.random.bernoulli(key, 0.5, x.shape)
        x, _ = jax.lax.scan(lambda c, one: (jnp.tanh(c @ one), None), x, w)
        return x @ w[0]

    def step(layer: Any) -> Flops:
        def loss(w: jax.Array, x: jax.Array, key: jax.Array) -> jax.Array:
            for i in range(2):
                x = layer(x, w, jax.random.fold_in(key, i))
            return x.sum()

        key = jax.eval_shape(lambda: jax.random.key(0))
        return of_jax(jax.grad(loss, argnums=(0, 1)), shape(4, 8, 8), shape(2, 8), key)

    plain, again = step(layer), step(jax.checkpoint(layer))
    assert plain.model == again.model == plain.executed
    assert again.executed > again.model


def test_what_is_written_twice_outside_of_a_checkpoint_counts_twice() -> None:
    assert of_jax(lambda x: x @ x + (x @ x) * 2, shape(4, 4)).model == 2 * 2 * 4**3


# --- Equations one by one -------------------------------------------------------------------------


def test_groups_of_rows() -> None:
    def loss(rows: jax.Array, experts: jax.Array, sizes: jax.Array) -> jax.Array:
        return jax.lax.ragged_dot(rows, experts, sizes).sum()

    both = of_jax(
        jax.value_and_grad(loss, argnums=(0, 1)), shape(6, 4), shape(3, 4, 5), jnp.array([1, 2, 3])
    )
    assert both.model == 3 * 2 * 6 * 4 * 5, "each row meets one expert, in each of three products"


def test_products_of_scaled_numbers() -> None:
    if not hasattr(jax.lax, "scaled_dot"):
        pytest.skip("this JAX has none")
    kind, scale = jnp.float8_e4m3fn, jnp.float8_e8m0fnu
    sizes = ((2, 16, 64), kind), ((2, 64, 8), kind), ((2, 16, 2), scale), ((2, 2, 8), scale)
    shapes = [jax.ShapeDtypeStruct(*one) for one in sizes]
    found = of_jax(lambda a, b, c, d: jax.lax.scaled_dot(a, b, lhs_scale=c, rhs_scale=d), *shapes)
    assert found.model == 2 * 2 * 16 * 64 * 8


@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("padding", ["VALID", "SAME"])
def test_convolutions_against_every_pair(padding: str, stride: int, dilation: int) -> None:
    size, taps, inputs, outputs = 11, 3, 2, 4

    def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(
            x, w, (stride, 1), padding, rhs_dilation=(dilation, 1), feature_group_count=2
        )

    x, w = shape(5, 2 * inputs, size, size), shape(outputs, inputs, taps, taps)
    one = of_jax(convolved, x, w).model
    pairs = np.asarray(convolved(jnp.ones(x.shape), jnp.ones(w.shape)))  # each adds ones that met
    assert one == 2 * int(pairs.sum())
    gradients = jax.grad(lambda x, w: convolved(x, w).sum(), argnums=(0, 1))
    both = of_jax(jax.value_and_grad(lambda *a: convolved(*a).sum(), argnums=(0, 1)), x, w)
    assert both.model == 3 * one
    assert of_jax(gradients, x, w).model == 2 * one, "nobody reads the value: it is not computed"


def test_a_long_line_is_counted_as_fast() -> None:
    """Of sound: the gradient has a hole at nearly every place, and nobody visits each."""

    def loss(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (160,), "SAME").sum()

    small = of_jax(jax.grad(loss, argnums=(0, 1)), shape(1, 1, 16_000), shape(8, 1, 400))
    large = of_jax(jax.grad(loss, argnums=(0, 1)), shape(1, 1, 16_000_000), shape(8, 1, 400))
    assert large.model / small.model == pytest.approx(1000, rel=0.01)


def test_xla_counts_the_same_where_nothing_is_scanned() -> None:
    def products(x: jax.Array, w: jax.Array) -> jax.Array:
        return (x @ w) @ w.T

    def convolved(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.conv_general_dilated(x, w, (2, 2), "SAME")

    for function, *shapes in (
        (products, shape(6, 12), shape(12, 20)),
        (convolved, shape(3, 4, 15, 15), shape(8, 4, 3, 3)),
    ):
        analysis = jax.jit(function).lower(*shapes).compile().cost_analysis()
        assert of_jax(function, *shapes).model == analysis["flops"]


def test_a_while_must_be_told() -> None:
    def loop(x: jax.Array, n: jax.Array) -> jax.Array:
        return jax.lax.fori_loop(0, n, lambda _, y: y @ y, x)

    asked = (loop, shape(4, 4), jax.ShapeDtypeStruct((), jnp.int32))
    found = of_jax(*asked)
    assert (found.model, found.executed) == (0, 0)
    assert found.left_out == ("a while loop: nobody says how often it turns (128 FLOPs a turn)",)
    assert of_jax(*asked, while_turns=7).model == 7 * 128


@pytest.mark.parametrize("wrong", [-3, 2.5, "2", True])
def test_what_is_no_number_of_turns(wrong: Any) -> None:
    with pytest.raises(ConfigurationError, match="give a whole number"):
        of_jax(jnp.sin, shape(4), while_turns=wrong)


def test_what_a_while_asks_is_asked_once_more() -> None:
    found = of_jax(
        lambda x: jax.lax.while_loop(lambda y: (y @ y).sum() < 9, jnp.sin, x),
        shape(4, 4),
        while_turns=7,
    )
    assert found.executed == 8 * 128


def test_what_nobody_reads_is_not_computed_inside_of_calls_and_loops_neither() -> None:
    @jax.jit
    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        return (jnp.tanh(x @ w) @ w).sum()

    both = shape(4, 4), shape(4, 4)
    assert of_jax(jax.grad(loss), *both) == of_jax(jax.grad(loss.__wrapped__), *both)

    def looped(w: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.scan(lambda c, _: (jnp.tanh(c @ w), c @ w @ w), x, length=3)[0]

    assert of_jax(looped, *both).model == 3 * 128


@pytest.mark.parametrize("turns", [None, 3])
def test_remat_of_a_while(turns: int | None) -> None:
    def loss(w: jax.Array, x: jax.Array) -> jax.Array:
        state = 0, jax.lax.stop_gradient(x)
        still = jax.lax.stop_gradient(w)
        x = jax.lax.while_loop(
            lambda s: s[0] < 3, lambda s: (s[0] + 1, jnp.tanh(s[1] @ still)), state
        )[1]
        return (jnp.tanh(x @ w) @ w).sum()

    plain, again = (
        of_jax(jax.value_and_grad(how(loss)), shape(4, 4), shape(4, 4), while_turns=turns)
        for how in (lambda f: f, jax.checkpoint)
    )
    assert plain.model == again.model
    assert again.executed > plain.executed


@pytest.mark.parametrize("inside", [False, True], ids=["around the choice", "in a branch"])
def test_remat_and_a_choice(inside: bool) -> None:
    """The backward pass chooses again, by the same flag, of what each branch gave it."""

    def loss(how: Callable[..., Any]) -> Flops:
        branch = how if inside else lambda f: f
        layer = (lambda f: f) if inside else how

        def total(w: jax.Array, x: jax.Array, flag: jax.Array) -> jax.Array:
            def turn(c: jax.Array, _: None) -> tuple[jax.Array, None]:
                one, two = branch(lambda c: jnp.tanh(jnp.tanh(c @ w) @ w)), lambda c: c @ w
                return jax.lax.cond(flag, one, two, c), None

            return jax.lax.scan(layer(turn), x, length=3)[0].sum()

        flag = jax.ShapeDtypeStruct((), jnp.bool_)
        return of_jax(jax.value_and_grad(total, argnums=(0, 1)), shape(4, 4), shape(4, 4), flag)

    plain, again = loss(lambda f: f), loss(jax.checkpoint)
    assert plain.model == again.model == 3 * 3 * 2 * 128
    assert again.executed > plain.executed


def test_remat_of_named_values() -> None:
    from jax.ad_checkpoint import checkpoint_name

    def named(x: jax.Array, w: Any) -> jax.Array:
        return jax.nn.relu(checkpoint_name(block(x, w) @ w["up"], "up")) @ w["down"]

    def layers(how: Callable[..., Any]) -> Flops:
        each = how(named)

        def loss(w: Any, x: jax.Array) -> jax.Array:
            return jax.lax.scan(lambda c, one: (each(c, one), None), x, w)[0].sum()

        return of_jax(jax.value_and_grad(loss), weights()["layers"], shape(BATCH, LENGTH, WIDTH))

    plain, nothing = layers(lambda f: f), layers(jax.checkpoint)
    for policy in (
        POLICY.save_only_these_names("up"),
        POLICY.save_and_offload_only_these_names(
            names_which_can_be_saved=[], names_which_can_be_offloaded=["up"],
            offload_src="device", offload_dst="pinned_host",
        ),
    ):  # fmt: skip
        found = layers(functools.partial(jax.checkpoint, policy=policy))
        assert found.model == nothing.model == plain.model
        assert plain.executed < found.executed < nothing.executed


def test_bytes_of_products() -> None:
    """Each operand and each result once: 2 bytes of bf16, 4 of float32."""
    x, w = (jax.ShapeDtypeStruct(s, jnp.bfloat16) for s in ((8, 4), (4, 16)))

    def product(x: jax.Array, w: jax.Array) -> jax.Array:
        return jax.lax.dot(x, w, preferred_element_type=jnp.float32)

    one = of_jax(product, x, w)
    assert one.model_bytes == 2 * 8 * 4 + 2 * 4 * 16 + 4 * 8 * 16
    assert one.intensity == 2 * 8 * 4 * 16 / one.executed_bytes
    many = of_jax(lambda x, w: jax.lax.scan(lambda c, _: (c, product(x, w)), 0, length=5), x, w)
    assert (many.executed, many.executed_bytes) == (5 * one.executed, 5 * one.executed_bytes)
    assert counted(train_step(jax.checkpoint)).model_bytes == PLAIN.model_bytes
    assert counted(train_step(jax.checkpoint)).executed_bytes > PLAIN.executed_bytes
    assert Flops(1, 1).intensity == 0


def test_shards_with_remat() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("x")

    def layer(x: jax.Array, w: jax.Array) -> jax.Array:
        return jnp.tanh(jnp.tanh(x @ w) @ w)

    def step(how: Callable[..., Any]) -> Flops:
        split = jax.shard_map(how(layer), mesh=mesh, in_specs=(rows, None), out_specs=rows)
        loss = lambda x, w: split(x, w).sum()  # noqa: E731
        return of_jax(jax.value_and_grad(loss, argnums=(0, 1)), shape(8, 4), shape(4, 4))

    plain, again = step(lambda f: f), step(jax.checkpoint)
    assert plain.model == again.model == 3 * 2 * 2 * 8 * 4 * 4
    assert again.executed > plain.executed


def test_of_a_cond_the_dearest_branch() -> None:
    def either(flag: jax.Array, x: jax.Array) -> jax.Array:
        return jax.lax.cond(flag, lambda y: y @ y @ y, lambda y: y @ y, x)

    found = of_jax(either, jax.ShapeDtypeStruct((), jnp.bool_), shape(4, 4))
    assert found.model == 2 * 128
    assert "the dearest counts" in found.left_out[0]


def test_a_function_with_its_own_gradient() -> None:
    @jax.custom_vjp
    def squared(x: jax.Array) -> jax.Array:
        return x @ x

    squared.defvjp(lambda x: (x @ x, x), lambda x, g: (g @ x.T,))
    assert of_jax(squared, shape(4, 4)).model == 128
    assert of_jax(jax.value_and_grad(lambda x: squared(x).sum()), shape(4, 4)).model == 2 * 128
    found = of_jax(jax.value_and_grad(jax.checkpoint(lambda x: squared(x).sum())), shape(4, 4))
    assert found.model == 2 * 128


def test_a_function_with_its_own_tangents() -> None:
    @jax.custom_jvp
    def squared(x: jax.Array) -> jax.Array:
        return x @ x

    @squared.defjvp
    def _(primals: Any, tangents: Any) -> Any:
        (x,), (dx,) = primals, tangents
        return squared(x), dx @ x  # one product of the two that it has

    def loss(x: jax.Array) -> jax.Array:
        return squared(x).sum()

    assert of_jax(squared, shape(4, 4)).model == 128
    assert of_jax(jax.value_and_grad(loss), shape(4, 4)).model == 2 * 128
    again = of_jax(jax.value_and_grad(jax.checkpoint(loss)), shape(4, 4))
    assert (again.model, again.left_out) == (2 * 128, ())


def test_shards_count_together() -> None:
    mesh = jax.sharding.AbstractMesh((4,), ("x",), axis_types=(jax.sharding.AxisType.Auto,))
    rows = jax.sharding.PartitionSpec("x")
    split = jax.shard_map(lambda x, w: x @ w, mesh=mesh, in_specs=(rows, None), out_specs=rows)
    assert of_jax(split, shape(8, 4), shape(4, 4)).model == 2 * 8 * 4 * 4


@pytest.mark.parametrize("is_known", [True, False], ids=["", "unchecked"])
def test_what_all_shards_do_alike_is_needed_once(is_known: bool) -> None:
    """Along an axis on which nothing varies. Where JAX does not look, that is not known."""
    auto = (jax.sharding.AxisType.Auto,) * 2
    mesh = jax.sharding.AbstractMesh((2, 4), ("rows", "parts"), axis_types=auto)
    p = jax.sharding.PartitionSpec

    def body(x: jax.Array, w: jax.Array, r: jax.Array) -> tuple[jax.Array, jax.Array]:
        hidden = x @ r  # of each row once, on 4 shards
        return jax.lax.psum(hidden @ w, "parts"), r @ r  # of each shard; once, on 8

    split = jax.shard_map(
        body,
        mesh=mesh,
        in_specs=(p("rows"), p(None, "parts"), p()),
        out_specs=(p("rows"), p()),
        check_vma=is_known,
    )
    found = of_jax(split, shape(6, 5), shape(5, 12), shape(5, 5))
    first, second, third = 2 * 6 * 5 * 5, 2 * 6 * 5 * 12, 2 * 5 * 5 * 5
    assert found.executed == 4 * first + second + 8 * third
    assert found.model == (first + second + third if is_known else found.executed)


def test_a_pallas_kernel_says_what_it_costs() -> None:
    from jax.experimental import pallas as pl

    def kernel(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = x_ref[...] @ x_ref[...]

    def called(x: jax.Array, cost: Any) -> jax.Array:
        return pl.pallas_call(kernel, out_shape=x, cost_estimate=cost, name="mine")(x)

    cost = pl.CostEstimate(flops=128, transcendentals=0, bytes_accessed=99)
    assert of_jax(lambda x: called(x, cost), shape(4, 4)) == Flops(128, 128, (), 99, 99)


def test_a_pallas_kernel_that_says_nothing_counts_by_its_body() -> None:
    from jax.experimental import pallas as pl

    def called(body: Any, x: jax.Array) -> jax.Array:
        rows = pl.BlockSpec((2, 4), lambda i: (i, 0))
        return pl.pallas_call(
            body, out_shape=x, grid=(4,), in_specs=[rows], out_specs=rows, name="mine"
        )(x)

    def product(x_ref: Any, out_ref: Any) -> None:
        @pl.when(pl.program_id(0) > 0)
        def _() -> None:
            out_ref[...] = x_ref[...] @ (x_ref[...].T @ x_ref[...])

    def sine(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jnp.sin(x_ref[...])

    def unending(x_ref: Any, out_ref: Any) -> None:
        out_ref[...] = jax.lax.while_loop(
            lambda y: y.sum() < 9, lambda y: y @ (y.T @ y), x_ref[...]
        )

    found = of_jax(functools.partial(called, product), shape(8, 4))
    assert found.model == 4 * (2 * 4 * 2 * 4 + 2 * 2 * 4 * 4)
    assert found.model_bytes == 2 * 4 * 8 * 4
    (gap,) = found.left_out
    assert gap.startswith("pallas_call mine: it has no cost estimate, and counts by its body")
    assert of_jax(functools.partial(called, sine), shape(8, 4)) == Flops(0, 0)
    found = of_jax(functools.partial(called, unending), shape(8, 4))
    assert found == Flops(0, 0, ("pallas_call mine: it has no cost estimate",))


@pytest.mark.parametrize("fused", [False, True], ids=["", "fused"])
def test_splash_attention_is_its_products_and_what_it_does_again_is_told_apart(fused: bool) -> None:
    splash = pytest.importorskip("jax.experimental.pallas.ops.tpu.splash_attention")
    batch, heads, length, size, window = 3, 2, 1024, 128, 128
    blocks = ["q", "kv", "kv_compute", "q_dkv", "kv_dkv", "kv_dkv_compute"]
    blocks += [] if fused else ["q_dq", "kv_dq"]

    def counted(mask: Any, how: Callable[..., Any] = lambda f: f) -> Flops:
        sizes = splash.BlockSizes(
            **{f"block_{name}": 128 for name in blocks}, use_fused_bwd_kernel=fused
        )
        attend = splash.make_splash_mha(
            splash.MultiHeadMask([mask] * heads), head_shards=1, q_seq_shards=1, block_sizes=sizes
        )
        loss = how(lambda *qkv: jax.vmap(attend)(*qkv).astype(jnp.float32).sum())
        x = jax.ShapeDtypeStruct((batch, heads, length, size), jnp.bfloat16)
        return of_jax(jax.value_and_grad(loss, argnums=(0, 1, 2)), x, x, x)

    product = 2 * batch * heads * length**2 * size
    rows = 2 * batch * heads * length * size  # each result with its gradient, once
    whole = counted(splash.FullMask((length, length)))
    assert whole.model == 6 * product + rows
    assert whole.executed == (7 if fused else 9) * product + rows
    assert len(whole.left_out) == fused, "it goes through blocks that a mask leaves out"
    again = counted(splash.FullMask((length, length)), jax.checkpoint)
    assert again.model == whole.model
    assert again.executed == whole.executed + 2 * product
    local = counted(splash.LocalMask((length, length), (window, window), 0))
    assert fused or local.model < whole.model / 2, (
        "blocks that the mask leaves out are not in its grid"
    )


def test_what_no_equation_shows_is_named() -> None:
    for function, name in ((jnp.linalg.svd, "svd"), (jnp.fft.fft, "fft")):
        found = of_jax(function, shape(4, 4))
        assert found.left_out == (f"{name}: its FLOPs are in no equation",)


def test_products_of_sparse_matrices_are_named() -> None:
    """They were counted as nothing, and nobody was told."""
    sparse = pytest.importorskip("jax.experimental.sparse")
    eye = jnp.eye(8)
    for matrix in (
        sparse.BCOO.fromdense(eye),
        sparse.BCSR.fromdense(eye),
        sparse.CSR.fromdense(eye),
    ):
        (gap,) = of_jax(lambda m, x: m @ x, matrix, shape(8, 4)).left_out
        assert gap.endswith("its FLOPs are in no equation")
    found = of_jax(jax.lax.linalg.symmetric_product, shape(8, 4), shape(8, 8))
    assert found.left_out == ("symmetric_product: its FLOPs are in no equation",)


def test_a_program_that_was_exported_is_named() -> None:
    exported = jax.export.export(jax.jit(jnp.matmul))(shape(4, 4), shape(4, 4))
    found = of_jax(exported.call, shape(4, 4), shape(4, 4))
    assert found.left_out == ("call_exported: its FLOPs are in no equation",)


def test_static_arguments_of_a_jitted_function() -> None:
    power = jax.jit(
        lambda x, n: functools.reduce(lambda a, _: a @ x, range(n), x), static_argnums=1
    )
    assert of_jax(power, shape(4, 4), 3).model == 3 * 128


def test_a_step_of_flax_nnx_that_changes_its_model_in_place() -> None:
    nnx = pytest.importorskip("flax.nnx")
    model = nnx.Linear(8, 16, use_bias=False, rngs=nnx.Rngs(0))
    optimizer = nnx.Optimizer(model, pytest.importorskip("optax").sgd(0.1), wrt=nnx.Param)
    before = model.kernel[...]

    @nnx.jit
    def step(model: Any, optimizer: Any, x: Any) -> Any:
        loss, gradients = nnx.value_and_grad(lambda model: model(x).sum())(model)
        optimizer.update(model, gradients)
        return loss

    assert of_jax(step, model, optimizer, jnp.ones((4, 8))).model == 2 * (2 * 4 * 8 * 16)
    assert model.kernel[...] is before


# --- Programs that chance writes -----------------------------------------------------------------
# A program is a list of words about one square matrix. It is written in JAX, for the walker, and in
# numpy, for an interpreter that runs it word by word and counts each product as it does it.

SIZE = 3
words = st.recursive(
    st.sampled_from([("product",), ("batched",), ("tanh",), ("turned",)]),
    lambda inner: st.one_of(
        st.tuples(st.just("scan"), st.integers(1, 4), st.lists(inner, max_size=3)),
        st.tuples(st.just("shift"), st.integers(1, 4), st.booleans(), st.lists(inner, max_size=3)),
        st.tuples(st.just("cond"), st.lists(inner, max_size=2), st.lists(inner, max_size=2)),
        st.tuples(st.sampled_from(["jit", "remat"]), st.lists(inner, max_size=3)),
    ),
    max_leaves=8,
)
programs = st.lists(words, max_size=6)


def in_jax(program: list[Any], x: jax.Array, remat: bool = True) -> jax.Array:
    inside = functools.partial(in_jax, remat=remat)
    for word, *how in program:
        if word == "product":
            x = x @ (x + 1)
        elif word == "batched":
            x = jnp.einsum("bij,bjk->ik", jnp.stack([x, x]), jnp.stack([x, x]))
        elif word == "tanh":
            x = jnp.tanh(x)
        elif word == "turned":
            x = x.T
        elif word == "scan":
            turns, body = how
            x, _ = jax.lax.scan(lambda c, _, b=body: (inside(b, c), c), x, length=turns)
        elif word == "shift":  # three carried values that begin alike, and what each turn is given
            turns, is_reversed, body = how

            def turn(
                c: tuple[jax.Array, ...], given: jax.Array, body: Any = body
            ) -> tuple[tuple[jax.Array, ...], jax.Array]:
                return (c[1], c[2], inside(body, jnp.sin(c[0] + given))), c[0] @ c[1]

            given = jnp.stack([x * i for i in range(turns)])
            last, each = jax.lax.scan(turn, (x, x, x), given, reverse=is_reversed)
            x = jnp.tanh(sum(last, each.sum(0)))
        elif word == "cond":
            first, second = how
            x = jax.lax.cond(
                x.sum() > 0, lambda y, p=first: inside(p, y), lambda y, p=second: inside(p, y), x
            )
        else:
            body = functools.partial(inside, how[0])
            x = (jax.jit if word == "jit" or not remat else jax.checkpoint)(body)(x)
    return x


class Counting:
    """Runs a program in numpy."""

    def __init__(self) -> None:
        self.flops = 0

    def product(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        out = np.zeros((left.shape[0], right.shape[1]))
        for i, j, k in np.ndindex(left.shape[0], right.shape[1], left.shape[1]):
            out[i, j] += left[i, k] * right[k, j]
            self.flops += 2
        return np.tanh(out)  # so that it does not grow

    def run(self, program: list[Any], x: np.ndarray) -> np.ndarray:
        for word, *how in program:
            if word == "product":
                x = self.product(x, x + 1)
            elif word == "batched":
                x = self.product(x, x) + self.product(x, x)
            elif word == "turned":
                x = x.T
            elif word == "scan":
                for _ in range(how[0]):
                    x = self.run(how[1], x)
            elif word == "shift":
                turns, is_reversed, body = how
                a = b = c = x
                each = np.zeros_like(x)
                for i in range(turns)[:: -1 if is_reversed else 1]:
                    each = each + self.product(a, b)
                    a, b, c = b, c, self.run(body, np.sin(a + x * i))
                x = np.tanh(a + b + c + each)
            elif word == "cond":
                sides = []
                for side in how:
                    alone = Counting()
                    alone.run(side, x)
                    sides.append(alone.flops)
                self.flops += max(sides)
            elif word in ("jit", "remat"):
                x = self.run(how[0], x)
        return x


@settings(deadline=None)
@given(programs)
def test_walked_or_run_it_is_the_same(program: list[Any]) -> None:
    run = Counting()
    run.run(program, np.ones((SIZE, SIZE)))
    found = of_jax(functools.partial(in_jax, program), shape(SIZE, SIZE))
    assert (found.model, found.executed) == (run.flops, run.flops)


@settings(deadline=None)
@given(programs)
def test_gradients_with_and_without_remat(program: list[Any]) -> None:
    def gradient(remat: bool) -> Flops:
        def total(x: jax.Array) -> jax.Array:
            return in_jax(program, jnp.sin(x), remat).sum()

        return of_jax(jax.value_and_grad(total), shape(SIZE, SIZE))

    plain, again = gradient(remat=False), gradient(remat=True)
    assert again.executed >= again.model
    assert plain.model == plain.executed == again.model
