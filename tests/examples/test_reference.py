"""The reference trainer's parts: what each switch is to do, and that it changes nothing else.

Skipped where flax, grain and qwix are not installed: `make reference` has them.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("flax")
pytest.importorskip("qwix")
grain = pytest.importorskip("grain")
jax = pytest.importorskip("jax")

from holdfast.program import dense_transformer, of_jax  # noqa: E402

# qwix 0.1.8 calls what flax 0.12 has renamed.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")

REFERENCE = Path(__file__).parents[2] / "examples" / "reference"
NAMES = ("attention", "mesh", "model", "text", "train", "data", "ranks")
CONTEXT, BATCH = 256, 1


@pytest.fixture(scope="module")
def lm() -> Iterator[SimpleNamespace]:
    """The example's modules; others have modules of these names, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(REFERENCE))
        for name in NAMES:
            patch.delitem(sys.modules, name, raising=False)
        found = SimpleNamespace(**{name: __import__(name) for name in NAMES})
        yield found
        for name in NAMES:
            del sys.modules[name]


@pytest.fixture(scope="module")
def params(lm: SimpleNamespace) -> Any:
    return lm.model.first_params(config(lm), 0)


def config(lm: SimpleNamespace, **switches: Any) -> Any:
    return lm.model.Config(**{"layers": 2, "width": 32, "heads": 2, "global_every": 2, **switches})


def rows(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(256, size=(BATCH, CONTEXT + 1))


def gradient(lm: SimpleNamespace, **switches: Any) -> Callable[..., Any]:
    return lambda params, batch: jax.value_and_grad(lm.model.loss)(
        params, batch, config(lm, **switches)
    )


def apart(a: Any, b: Any) -> float:
    """The largest difference of two trees, as a part of the largest number."""
    pairs = list(zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True))
    return max(float(np.abs(x - y).max()) for x, y in pairs) / max(
        float(np.abs(x).max()) for x, _ in pairs
    )


def products(jaxpr: Any) -> list[str]:
    """The type of each product's operands; of those in a scan, of one turn."""
    found = []
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            found.append(str(equation.invars[0].aval.dtype))
        for inner in equation.params.values():
            if hasattr(inner, "eqns"):
                found += products(getattr(inner, "jaxpr", inner))
    return found


# --- Attention ------------------------------------------------------------------------------------


@pytest.mark.parametrize("switches", [
    {"attention": "splash"},
    {"attention": "local-global", "window": CONTEXT},
    {"remat": "full"},
    {"remat": "names"},
    {"remat": "offload"},
    {"attention": "splash", "remat": "names"},
])  # fmt: skip
def test_a_switch_changes_no_number(
    lm: SimpleNamespace, params: Any, switches: dict[str, Any]
) -> None:
    plain = jax.jit(gradient(lm))(params, rows())
    assert apart(plain, jax.jit(gradient(lm, **switches))(params, rows())) < 1e-5


def test_a_local_layer_sees_its_window_alone(lm: SimpleNamespace) -> None:
    window = 100  # ends inside of a block
    shape = BATCH, CONTEXT, 2, 16
    q, k, v = (np.random.default_rng(i).normal(size=shape).astype(np.float32) for i in range(3))
    back = np.arange(CONTEXT)[:, None] - np.arange(CONTEXT)
    mask = (back >= 0) & (back <= window)
    wanted = jax.nn.dot_product_attention(q, k, v, mask=mask[None, None])
    seen = lm.attention.attend(q, k, v, "local-global", window)
    assert float(np.abs(wanted - seen).max()) < 1e-5
    # What a GPU's kernel is told means the same.
    told = jax.nn.dot_product_attention(q, k, v, is_causal=True, local_window_size=(window, 0))
    assert float(np.abs(wanted - told).max()) < 1e-5


@pytest.mark.parametrize(("window", "computed"), [(None, 10), (127, 7), (128, 7), (129, 9)])
def test_blocks_that_nothing_sees_are_skipped(
    lm: SimpleNamespace, window: int | None, computed: int
) -> None:
    """Of four by four blocks of 128 positions."""
    from jax.experimental.pallas.ops.tpu.splash_attention import splash_attention_mask_info

    mask = lm.attention.splash.MultiHeadMask([lm.attention.mask_of(512, window)])
    info, _ = splash_attention_mask_info.process_mask(mask, (128, 128))
    assert int((np.asarray(info.block_mask) > 0).sum()) == computed


def test_other_lengths_are_refused(lm: SimpleNamespace) -> None:
    q = np.zeros((1, 100, 1, 8), np.float32)
    with pytest.raises(SystemExit, match="--context 100: this attention works on blocks of 128"):
        lm.attention.attend(q, q, q, "splash", None)


# --- Layers ---------------------------------------------------------------------------------------


def test_stacked_layers_are_layers_one_after_the_other(lm: SimpleNamespace, params: Any) -> None:
    from flax import nnx

    model = nnx.merge(lm.model.graph(config(lm)), params)
    graph, stacked = nnx.split(model.blocks)
    x = params["embedding"]["embedding"][rows()]
    for layer in range(2):
        x = nnx.merge(graph, jax.tree.map(lambda a, layer=layer: a[layer], stacked))(x, None)
    wanted = model.final_norm(x) @ params["embedding"]["embedding"].T
    assert apart(wanted, lm.model.logits(params, rows(), config(lm))) < 1e-5


def test_the_layers_are_compiled_once(lm: SimpleNamespace, params: Any) -> None:
    jaxpr = jax.make_jaxpr(gradient(lm))(params, rows())
    turns = [e.params["length"] for e in jaxpr.eqns if e.primitive.name == "scan"]
    assert turns == [2, 2], "forward and backward"


def test_recomputing_is_executed_and_not_needed(lm: SimpleNamespace, params: Any) -> None:
    counted = {
        how: of_jax(gradient(lm, remat=how), params, rows())
        for how in ("none", "full", "names", "offload")
    }
    assert len({one.model for one in counted.values()}) == 1
    executed = [counted[how].executed for how in ("none", "names", "full")]
    assert executed == sorted(set(executed)), "each computes more again"
    assert counted["none"].executed == counted["none"].model
    assert counted["offload"].executed == counted["names"].executed, "what is kept is the same"


@pytest.mark.parametrize(("how", "lies_there"), [("offload", True), ("names", False)])
def test_offload_keeps_on_the_host(
    lm: SimpleNamespace, params: Any, how: str, lies_there: bool
) -> None:
    text = str(jax.make_jaxpr(gradient(lm, remat=how))(params, rows()))
    for name in lm.model.NAMES:
        assert f"name={name}" in text
    assert ("<host>" in text) == lies_there


# --- Numbers --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("quant", "type_"), [("int8", "int8"), ("fp8", "float8_e4m3fn")])
def test_products_of_weights_are_quantised_and_no_others(
    lm: SimpleNamespace, params: Any, quant: str, type_: str
) -> None:
    """Four of a layer, forward and twice backward; QKᵀ, PV and the logits stay wide."""
    jaxpr = jax.make_jaxpr(gradient(lm, quant=quant))(params, rows()).jaxpr
    types = products(jaxpr)
    assert types.count(type_) == 4 * 3
    assert types.count("float32") == (2 + 1) * 3
    assert len(types) == (4 + 2 + 1) * 3


@pytest.mark.parametrize("quant", ["int8", "fp8"])
def test_quantised_gradients_point_the_same_way(
    lm: SimpleNamespace, params: Any, quant: str
) -> None:
    loss, wide = jax.jit(gradient(lm))(params, rows())
    narrow_loss, narrow = jax.jit(gradient(lm, quant=quant))(params, rows())
    a, b = (np.concatenate([x.ravel() for x in jax.tree.leaves(one)]) for one in (wide, narrow))
    assert abs(loss - narrow_loss) < 0.01
    assert 0.99 < float(a @ b / np.sqrt((a @ a) * (b @ b))) < 1.0


def test_mixed_precision_computes_in_half_and_keeps_whole(lm: SimpleNamespace, params: Any) -> None:
    half = config(lm, dtype="bfloat16")
    jaxpr = jax.make_jaxpr(lambda params: lm.model.loss(params, rows(), half))(params)
    assert set(products(jaxpr.jaxpr)) == {"bfloat16"}
    loss, gradients = jax.jit(gradient(lm, dtype="bfloat16"))(params, rows())
    assert {str(one.dtype) for one in jax.tree.leaves(gradients)} == {"float32"}
    assert abs(loss - jax.jit(gradient(lm))(params, rows())[0]) < 0.01


def test_parts_of_a_batch_are_the_batch(lm: SimpleNamespace, params: Any) -> None:
    batch = np.concatenate([rows(0), rows(1)])
    whole = jax.jit(gradient(lm))(params, batch)
    in_two = lm.train.mean_gradient(params, batch, config(lm), 2)
    assert apart(whole, in_two) < 1e-5


# --- FLOPs ----------------------------------------------------------------------------------------


def test_what_a_step_needs_is_the_formulas(lm: SimpleNamespace) -> None:
    big = config(lm, layers=4, width=256, heads=4, vocab=512)
    parameters = 4 * 12 * 256**2 + 512 * 256
    formula = dense_transformer(
        parameters=parameters, layers=4, heads=4, head_size=64, sequence=512, tokens=2 * 512
    )
    for switches in ({}, {"attention": "splash"}, {"remat": "full"}, {"quant": "int8"}):
        one = lm.model.replace(big, **switches)
        assert lm.model.needed_flops(one, 2, 512) == pytest.approx(formula, rel=0.01)


def test_a_local_layer_needs_less(lm: SimpleNamespace) -> None:
    def needed(window: int) -> int:
        return lm.model.needed_flops(
            config(lm, attention="local-global", window=window), BATCH, CONTEXT
        )

    all_of_it = lm.model.needed_flops(config(lm), BATCH, CONTEXT)
    square = 12 * 32 * CONTEXT**2 * BATCH  # of one layer
    assert needed(CONTEXT) == all_of_it
    # A window of nothing sees itself: one position, and the causal half is counted twice.
    assert all_of_it - needed(0) == square * (CONTEXT - 2) // CONTEXT


# --- Data, samples, the grid of devices -----------------------------------------------------------


def text(n: int = 4000) -> np.ndarray:
    return np.random.default_rng(0).integers(256, size=n, dtype=np.uint8)


def test_batches_go_on_where_their_position_was_taken(lm: SimpleNamespace) -> None:
    straight = lm.text.batches(text(), 17, 4, seed=3)
    for _ in range(90):  # more than an epoch
        next(straight)
    position = straight.get_state()
    wanted = [next(straight) for _ in range(5)]
    again = lm.text.batches(text(), 17, 4, seed=3)
    again.set_state(position)
    np.testing.assert_array_equal([next(again) for _ in range(5)], wanted)


def test_ranks_draw_one_batch_together(lm: SimpleNamespace) -> None:
    whole = lm.text.batches(text(), 17, 6, seed=3)
    ranks = [lm.text.batches(text(), 17, 6, seed=3, rank=rank, ranks=3) for rank in range(3)]
    for _ in range(50):
        drawn = np.concatenate([next(one) for one in ranks])
        wanted = next(whole)
        assert {row.tobytes() for row in drawn} == {row.tobytes() for row in wanted}


def test_a_sample_goes_on_from_its_start(lm: SimpleNamespace, params: Any) -> None:
    start = np.frombuffer(b"def ", np.uint8).astype(np.int32)
    tokens = lm.model.sample(params, config(lm), start, 20, 128, seed=0)
    assert tokens.shape == (24,)
    np.testing.assert_array_equal(tokens[:4], start)
    again = lm.model.sample(params, config(lm), start, 20, 128, seed=0)
    np.testing.assert_array_equal(tokens, again)


@dataclass(frozen=True)
class Device:
    """What jax.devices() gives on several slices, as far as it matters."""

    id: int
    slice_index: int
    process_index: int = 0
    platform: str = "gpu"
    device_kind: str = "a kind"


def devices(slices: int, each: int) -> list[Any]:
    return [Device(i, i // each) for i in range(slices * each)]


def test_only_data_crosses_slices(lm: SimpleNamespace) -> None:
    interleaved = sorted(devices(2, 8), key=lambda one: one.id % 3)
    grid = lm.mesh.grid(interleaved, fsdp=2, tensor=2, slices=2)
    assert dict(grid.shape) == {"data": 4, "fsdp": 2, "tensor": 2}
    for part in grid.devices:
        assert len({one.slice_index for one in part.flat}) == 1
    assert len({one.id for one in grid.devices.flat}) == 16


def test_a_grid_that_does_not_fit_is_refused(lm: SimpleNamespace) -> None:
    with pytest.raises(SystemExit, match="6 devices cannot be divided into fsdp 4"):
        lm.mesh.grid(devices(1, 6), fsdp=4, tensor=1, slices=1)


def test_parameters_and_their_moments_lie_alike(lm: SimpleNamespace) -> None:
    args = lm.train.parser().parse_args([])
    init_state, _, _ = lm.train.training(args, lm.train.config_of(args))
    state = jax.eval_shape(init_state)
    grid = lm.mesh.grid(jax.devices()[:1], 1, 1, 1)
    specs: dict[tuple[int, ...], set[Any]] = {}
    shardings = jax.tree.leaves(lm.mesh.parts(grid, state))
    for leaf, sharding in zip(jax.tree.leaves(state), shardings, strict=True):
        specs.setdefault(leaf.shape, set()).add(sharding.spec)
    assert all(len(one) == 1 for one in specs.values()), specs
    assert specs[(4, 128, 512)] == {lm.mesh.PARTS["mlp_in"]}
