from __future__ import annotations

import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
import torch

from holdfast.agent.launch import free_ports
from holdfast.errors import ConfigurationError, StateMismatch, Unstorable
from holdfast.session.restore import _shape_of
from holdfast.snapshot.arrays import copies
from holdfast.snapshot.parts import load_part, part_state
from holdfast.snapshot.reader import verify
from holdfast.snapshot.restore import load_path, read_set
from holdfast.snapshot.staging import Staging
from holdfast.snapshot.tree import flatten, unflatten


def equal(left: Any, right: Any) -> bool:
    """jax trees: structure, dtype, weak type, bits."""
    if jax.tree.structure(left) != jax.tree.structure(right):
        return False

    def bits(x: Any) -> Any:
        if jnp.issubdtype(x.dtype, jax.dtypes.prng_key):
            return np.asarray(jax.random.key_data(x)).tobytes(), x.dtype
        return np.asarray(x).tobytes(), x.dtype, x.shape, x.weak_type

    return all(map(lambda a, b: bits(a) == bits(b), *map(jax.tree.leaves, (left, right))))


def train_state() -> dict[str, Any]:
    params = {
        "embed": jax.random.normal(jax.random.key(0), (16, 8)),
        "layers": [{"w": jnp.ones((8, 8), jnp.bfloat16), "b": jnp.zeros(8)} for _ in range(2)],
    }
    optimizer = optax.chain(
        optax.clip_by_global_norm(1.0),
        optax.adamw(optax.warmup_cosine_decay_schedule(0.0, 1.0, 2, 10)),
        optax.ema(0.9),
    )
    return {
        "params": params,
        "opt": optimizer.init(params),
        "key": jax.random.key(7),
        "keys": jax.random.split(jax.random.key(1, impl="rbg"), 3),
        "old_key": jax.random.PRNGKey(3),
        "loss": jnp.asarray(1.5),  # weakly typed
        "weak": jnp.full((3,), 2.0),
        "f8": jnp.ones(4, jnp.float8_e4m3fn),
        "i4": jnp.ones(3, jnp.int4),
        "mask": jnp.array([True, False]),
        "c": jnp.array(1 + 2j),
        "nothing": None,
        "empty": jnp.zeros((0, 4)),
    }


@pytest.mark.parametrize("how", ["concrete", "abstract", "none"])
def test_a_jax_train_state(save: Any, how: str) -> None:
    state = train_state()
    place = save(state).path
    like = {"concrete": state, "abstract": jax.eval_shape(lambda: state), "none": None}[how]
    back = read_set(place, None if like is None else {"state": like})["state"]
    if how == "none":
        for name in ("params", "key", "keys", "loss", "weak", "f8", "i4", "c", "empty"):
            assert equal(back[name], state[name]), name
        assert back["opt"][1][0][0] == 0  # records are plain tuples
    else:
        assert equal(back, state)
        assert type(back["opt"]) is type(state["opt"])
    assert load_path(place, only="params/layers/*/b") == {
        "params": {"layers": [{"b": pytest.approx(np.zeros(8))}] * 2}
    }


def test_what_lies_on_an_explicit_mesh_comes_back_there(save: Any) -> None:
    """Traced, it names the axes of the mesh, and no devices."""
    explicit = jax.sharding.AxisType.Explicit
    mesh = jax.make_mesh((1,), ("rows",), axis_types=(explicit,))
    rows = jax.sharding.NamedSharding(mesh, jax.sharding.PartitionSpec("rows"))

    def init() -> dict[str, jax.Array]:
        return {"w": jax.device_put(jnp.arange(8.0), rows)}

    place = save(init()).path
    back = read_set(place, {"state": _shape_of(init)})["state"]
    assert equal(back, init())
    assert back["w"].sharding == rows
    traced = read_set(place, {"state": jax.eval_shape(init)})["state"]
    assert equal(traced, init())


def test_what_is_captured_survives_donation() -> None:
    step = jax.jit(lambda state: jax.tree.map(lambda x: x + 1, state), donate_argnums=0)
    state = {"w": jnp.zeros((512, 512)), "n": jnp.zeros((), jnp.int32)}
    staging = Staging()
    staging.prepare(state)
    for number in range(5):
        captured = staging.capture(state)
        pointer = state["w"].unsafe_buffer_pointer()
        state = jax.block_until_ready(step(state))
        # No view of the old buffer is left, so the step could take it over.
        assert state["w"].unsafe_buffer_pointer() == pointer
        values = {e.path: bytes(captured.data[e.begin : e.end]) for e in captured.entries}
        assert np.all(np.frombuffer(values["w"], np.float32) == number)
        assert np.frombuffer(values["n"], np.int32)[0] == number
        captured.release()


def test_deleted_and_traced_arrays_are_refused() -> None:
    gone = jnp.zeros(3)
    gone.delete()
    with pytest.raises(Unstorable, match="donated or deleted"):
        flatten({"w": gone})
    with pytest.raises(Unstorable, match="outside of jit"):
        jax.jit(lambda x: flatten({"w": x}) and x)(jnp.zeros(3))


def test_keys_must_fit() -> None:
    saved = flatten({"k": jax.random.key(0)})
    for like in (jax.random.key(0, impl="rbg"), jax.random.PRNGKey(0), jax.random.split(like_key)):
        with pytest.raises(StateMismatch) as caught:
            unflatten(saved, {"k": like})
        assert caught.value.path == "k"
    assert equal(unflatten(saved, {"k": jax.eval_shape(lambda: like_key)})["k"], like_key)


like_key = jax.random.key(0)


def test_a_registered_node_without_key_paths(save: Any) -> None:
    class Pair:
        def __init__(self, left: Any, right: Any) -> None:
            self.left, self.right = left, right

    jax.tree_util.register_pytree_node(
        Pair, lambda pair: ((pair.left, pair.right), None), lambda _, both: Pair(*both)
    )
    pair = Pair(jnp.ones(2), {"x": 3})
    place = save(pair).path
    back = read_set(place, {"state": Pair(jnp.zeros(2), {"x": 0})})["state"]
    assert type(back) is Pair
    assert back.left.tolist() == [1, 1]
    assert back.right == {"x": 3}
    assert read_set(place)["state"][1] == {"x": 3}


def test_kinds_cross(save: Any) -> None:
    place = save({"a": jnp.arange(3.0), "b": torch.arange(3), "c": np.arange(3)}).path
    like = {"a": np.zeros(3, "f4"), "b": np.zeros(3, "i8"), "c": torch.zeros(3, dtype=torch.int64)}
    back = read_set(place, {"state": like})["state"]
    assert [type(back[name]) for name in "abc"] == [np.ndarray, np.ndarray, torch.Tensor]
    assert back["c"].tolist() == [0, 1, 2]
    saved = read_set(place)["state"]
    assert isinstance(saved["a"], jax.Array)
    assert isinstance(saved["b"], torch.Tensor)


def model() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(4, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 2).to(torch.bfloat16)
    )


def test_a_torch_model_and_its_optimizer(save: Any) -> None:
    torch.manual_seed(0)
    first = model()
    optimizer = torch.optim.AdamW(first.parameters(), lr=1e-3)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    for parameter in first.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    scheduler.step()
    parts = {"model": first, "optimizer": optimizer, "scheduler": scheduler}
    trees = {name: part_state(part, f"parts/{name}") for name, part in parts.items()}
    place = save(ranks=[{"state": None, "parts": trees}]).path

    second = model()
    other = torch.optim.AdamW(second.parameters(), lr=5.0)
    fresh = {
        "model": second,
        "optimizer": other,
        "scheduler": torch.optim.lr_scheduler.CosineAnnealingLR(other, 10),
    }
    for name, tree in read_set(place)["parts"].items():
        load_part(fresh[name], tree, f"parts/{name}")
    for old, new in zip(first.parameters(), second.parameters(), strict=True):
        assert torch.equal(old, new)
        assert old.dtype == new.dtype
    old, new = optimizer.state_dict(), other.state_dict()
    assert old["param_groups"] == new["param_groups"]
    for number in old["state"]:
        for name, value in old["state"][number].items():
            assert torch.equal(value, new["state"][number][name])
    with pytest.raises(StateMismatch, match="parts/model"):
        load_part(second, {"0.weight": torch.zeros(1)}, "parts/model")


TORCH_DTYPES = [
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.uint16, torch.int32, torch.uint32,
    torch.int64, torch.uint64, torch.float16, torch.bfloat16, torch.float32, torch.float64,
    torch.complex64, torch.complex128, torch.float8_e4m3fn, torch.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize("dtype", TORCH_DTYPES, ids=str)
def test_torch_tensors(dtype: torch.dtype) -> None:
    base = torch.randint(0, 2, (4, 6)).to(dtype)
    frozen = torch.nn.Parameter(base, requires_grad=False)

    def raw(tensor: torch.Tensor) -> bytes:
        return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).tolist())

    for tensor in (base, base.T, base[1:, ::2], base[0, 0], base[:0], frozen):
        back = unflatten(flatten({"t": tensor}), kinds="saved")["t"]
        assert (back.dtype, back.shape) == (dtype, tensor.shape)
        assert raw(back) == raw(tensor)
    if dtype.is_complex:
        assert torch.equal(unflatten(flatten(base.conj()), kinds="saved"), base.conj())


def test_torch_likes() -> None:
    source = torch.arange(3.0)
    parameter = unflatten(flatten(source), torch.nn.Parameter(torch.zeros(3)))
    assert isinstance(parameter, torch.nn.Parameter)
    assert unflatten(flatten(source), torch.zeros(3, requires_grad=True)).requires_grad
    for bad in (torch.zeros(3, device="meta"), torch.eye(3).to_sparse()):
        with pytest.raises(Unstorable, match="no plain bytes"):
            flatten({"t": bad})


class InTwoTensors(torch.Tensor):
    """A tensor of other tensors, as libraries that quantize make them."""

    @staticmethod
    def __new__(cls, one: torch.Tensor) -> InTwoTensors:
        return torch.Tensor._make_wrapper_subclass(cls, one.shape, dtype=one.dtype)

    def __init__(self, one: torch.Tensor) -> None:
        self.one = one

    @classmethod
    def __torch_dispatch__(cls, function: Any, *_: Any) -> Any:
        if function is torch.ops.aten.detach.default:
            return cls(torch.ones(3))
        raise TypeError(f"no {function}")


class Silent(torch.Tensor):
    @classmethod
    def __torch_function__(cls, function: Any, *_: Any) -> Any:
        raise TypeError(f"no {function.__name__}")


def freed() -> torch.Tensor:
    tensor = torch.ones(3)
    tensor.untyped_storage().resize_(0)
    return tensor


@pytest.mark.filterwarnings("ignore:.*nested tensors:UserWarning")
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (torch.nn.UninitializedParameter, "call the module once"),
        (torch.nn.UninitializedBuffer, "call the module once"),
        (lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]), "unbind"),
        (lambda: InTwoTensors(torch.ones(3)), "a InTwoTensors has no memory of its own"),
        (lambda: torch.ones(3).as_subclass(Silent), "a Silent cannot be stored"),
        (freed, "has no memory of its own, or no longer"),
    ],
)
def test_a_tensor_without_bytes_is_named(make: Any, says: str) -> None:
    with pytest.raises(Unstorable, match=rf"^state/t/1: .*{says}"):
        flatten({"state": {"t": [0, make()]}})


def test_a_tensor_that_loses_its_memory_ends_no_process() -> None:
    tensor = torch.ones(3)
    (leaf,) = flatten({"t": tensor}).leaves
    tensor.untyped_storage().resize_(0)
    with pytest.raises(Unstorable, match=r"^t: .* no longer"):
        list(copies(leaf, leaf.pieces[0], np.empty(12, np.uint8)))


SHARDED = """
    import os, sys
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
    import jax, numpy as np
    from jax.sharding import NamedSharding, PartitionSpec as P
    from pathlib import Path
    sys.path.insert(0, sys.argv[2])
    from conftest import save_ranks
    from holdfast.snapshot.restore import read_set
    mesh = jax.make_mesh((2, 2), ("x", "y"))
    array = np.arange(64, dtype=np.float32).reshape(8, 8)
    for spec in (P("x", "y"), P("y"), P(None, "x"), P()):
        state = {"a": jax.device_put(array, NamedSharding(mesh, spec)), "n": jax.numpy.ones(2)}
        place = save_ranks(Path(sys.argv[1]) / str(spec), [{"state": state}]).path
        like = jax.tree.map(
            lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=NamedSharding(mesh, P("y"))),
            {"a": state["a"]},
        )
        back = read_set(place, {"state": like | {"n": state["n"]}})["state"]
        assert back["a"].sharding.spec == P("y"), back["a"].sharding
        assert back["a"].committed and not back["n"].committed
        assert (np.asarray(back["a"]) == array).all()
"""


@pytest.mark.real
def test_sharded_on_one_process(tmp_path: Path) -> None:
    script = [
        sys.executable,
        "-c",
        textwrap.dedent(SHARDED),
        str(tmp_path),
        str(Path(__file__).parent),
    ]
    done = subprocess.run(script, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


TWO_PROCESSES = """
    import os, sys
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
    import jax, numpy as np
    from pathlib import Path
    rank, port, place = int(sys.argv[1]), sys.argv[2], Path(sys.argv[3])
    jax.distributed.initialize(f"localhost:{port}", 2, rank)
    from jax.sharding import NamedSharding, PartitionSpec as P
    from holdfast.snapshot.restore import read_set
    from holdfast.snapshot.sets import commit
    from holdfast.snapshot.shard import write_shard
    from holdfast.snapshot.staging import Staging

    mesh = jax.make_mesh((4,), ("x",))
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    def put(spec, value=whole):
        return jax.make_array_from_callback(
            value.shape, NamedSharding(mesh, spec), lambda index: value[index])
    state = {"rows": put(P("x")), "columns": put(P(None, "x")), "all": put(P()),
             "local": jax.numpy.ones(3), "step": 7}
    captured = Staging().capture({"state": state, "rng": rank}, rank, 2)
    write_shard(place, captured, attempt=0, step=1, rank=rank, world_size=2)
    print("written", flush=True)
    assert input() == "all written"
    if rank == 0:
        commit(place, 2)
        print("committed", flush=True)
    assert input() == "committed"
    turned = {"rows": put(P(None, "x")), "columns": put(P("x")), "all": put(P("x")),
              "local": jax.numpy.ones(3), "step": 0}
    read = read_set(place, {"state": turned}, rank=rank, world_size=2)
    assert read["rng"] == rank
    for name in ("rows", "columns", "all"):
        array = read["state"][name]
        assert array.sharding == turned[name].sharding
        for shard in array.addressable_shards:
            assert (np.asarray(shard.data) == whole[shard.index]).all(), name
"""


def tell(ranks: list[subprocess.Popen[str]], words: str) -> None:
    for rank in ranks:
        assert rank.stdin
        rank.stdin.write(f"{words}\n")
        rank.stdin.flush()


@pytest.mark.real
def test_global_arrays_of_two_processes(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    place = tmp_path / "0000-000000000001"
    ranks = [
        subprocess.Popen(
            [
                sys.executable,
                "-c",
                textwrap.dedent(TWO_PROCESSES),
                str(rank),
                str(port),
                str(place),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    told = [rank.stdout.readline() for rank in ranks if rank.stdout]
    if told == ["written\n"] * 2:
        tell(ranks, "all written")
        told.append(ranks[0].stdout.readline() if ranks[0].stdout else "")
        tell(ranks, "committed")
    errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
    assert verify(place) == ()
    # One process, no mesh: the arrays are put together from the slices of both.
    state = load_path(place)
    whole = np.arange(64, dtype=np.float32).reshape(8, 8)
    assert all((state[name] == whole).all() for name in ("rows", "columns", "all"))
    assert state["step"] == 7


def test_a_missing_package_is_no_damage(save: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """PyTorch does not bring ml_dtypes, without which numpy has no bfloat16."""
    state = {"w": torch.ones(3, dtype=torch.bfloat16)}
    place = save(state).path
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    with pytest.raises(ConfigurationError, match="pip install ml_dtypes"):
        load_path(place)
    assert torch.equal(load_path(place, like=state)["w"], state["w"])
