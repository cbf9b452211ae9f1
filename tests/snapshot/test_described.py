"""What is reused of the last copy's description: it must be what the whole tree's would be."""

from __future__ import annotations

import gc
import subprocess
import sys
import weakref
from collections import OrderedDict, namedtuple
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.snapshot.test_tree import leaves, trees

from holdfast.agent.launch import free_ports
from holdfast.errors import Unstorable
from holdfast.snapshot.arrays import copies, run
from holdfast.snapshot.ram import BufferFiles, Named

Point = namedtuple("Point", "x y")
Line = namedtuple("Line", "x y")


def buffers(rank: int = 0, ranks: int = 1) -> BufferFiles:
    return BufferFiles(Path("none"), wanted=3, rank=rank, world_size=ranks, local_world_size=ranks)


def named(step: int, *tags: str) -> Named:
    return Named(1, step, step, ("state",), tags)


def said(files: BufferFiles, tree: Any, which: Named) -> Any:
    """All that becomes of a description, to be compared; an error by its words."""
    try:
        placed, text, *_, release = files._described({"state": tree}, which)
    except Unstorable as error:
        return str(error)
    found = []
    for entry, leaf, piece in placed:
        target = np.empty(leaf.nbytes(piece), np.uint8)
        for copy in copies(leaf, piece, target):
            run(copy)
        about = leaf._replace(pieces=(), held=leaf.held is not None)
        found.append((entry, about, piece.index, piece.shape, target.tobytes()))
    release()
    return found, text


HERE = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
ALIKE = [
    jax.device_put(one, HERE)
    for one in (jnp.ones(3), jnp.ones(3, jnp.bfloat16), jnp.asarray(1.0), jnp.ones(()), jnp.ones(2))
]
gone = jax.device_put(jnp.ones(3), HERE)
gone.delete()
freed = torch.ones(3)
freed.untyped_storage().resize_(0)
ODD = [
    *(None, True, 0, 1.5, float("nan"), 1j, "a", "a" * 600, "é" * 600, b"a", b"a" * 600),
    *({}, [], (), [1], (1,), {"a": 1}, {"b": 1}, {1: 1}, {"1": 1}, {True: 1}, {np.int64(1): 1}),
    *({"a": 1, "b": 2}, {"b": 2, "a": 1}, OrderedDict(a=1), OrderedDict(b=1), {"$": 1}),
    *(Point(1, 2), Line(1, 2), (1, 2), [1, 2], {1, 2}, object()),
    *(np.ones(3), np.ones(3, np.float16), np.ones((3, 1)), np.float64(2), np.ones(6)[::-2]),
    *(np.ma.masked_array([1.0, 2.0, 3.0], [0, 1, 0]), np.array(["a"], dtype=object)),
    *(torch.ones(3), torch.ones(3, dtype=torch.int32), torch.ones(3, 1), torch.tensor(1.0)),
    *(torch.ones(3, requires_grad=True), torch.nn.Parameter(torch.ones(3))),
    *(torch.ones(3, dtype=torch.complex64), torch.full((3,), 1j).conj()),
    *(torch.full((3,), 1j).conj().imag, torch.ones(3, device="meta"), torch.ones(3).to_sparse()),
    *(freed, torch.ones(0), torch.ones(0, device="meta"), torch.nn.UninitializedParameter()),
    *(torch.ones(6)[::2], torch.arange(6.0).reshape(2, 3), torch.arange(6.0).reshape(3, 2).T),
    *(*ALIKE, gone, jnp.ones(3), jnp.asarray(1.0), jnp.zeros(()), jnp.ones(3, jnp.bfloat16)),
    *(jnp.ones((3, 1)), jax.random.key(1), jax.random.key(1, impl="rbg"), jax.random.PRNGKey(1)),
]


def test_after_each_kind_of_value_each_other_is_what_it_is() -> None:
    """All pairs: what a value was compared with is left in no description of the next."""
    alone = [said(buffers(), {"x": value, "n": 7}, named(2)) for value in ODD]
    for first in ODD:
        files = buffers()
        said(files, {"x": first, "n": 6}, named(1))
        known = dict(files._outlines)
        for value, right in zip(ODD, alone, strict=True):
            files._outlines = dict(known)
            assert said(files, {"x": value, "n": 7}, named(2)) == right, (first, value)


@st.composite
def changed(draw: st.DrawFn, tree: Any) -> Any:
    """The same tree, but for a few places."""
    if draw(st.integers(0, 9)) == 0:
        return draw(leaves | trees)
    if type(tree) is dict:
        pairs = [(key, draw(changed(one))) for key, one in tree.items()]
        if pairs and draw(st.integers(0, 19)) == 0:
            pairs.reverse()
        return dict(pairs)
    if type(tree) is list or type(tree) is tuple:
        return type(tree)(draw(changed(one)) for one in tree)
    return tree


@given(st.data())
def test_it_is_what_the_whole_description_would_be(data: st.DataObject) -> None:
    tree = data.draw(trees)
    files = buffers()
    for step in range(1, 6):
        which = named(step, *data.draw(st.sampled_from([()] * 8 + [("best",)])))
        assert said(files, tree, which) == said(buffers(), tree, which)
        tree = data.draw(changed(tree))


def model_tree(step: int) -> dict[str, Any]:
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1 / step)
    model(torch.full((3, 4), float(step))).sum().backward()
    optimizer.step()
    arrays = {"w": jnp.full((3, 2), step), "key": jax.random.key(step), "n": np.arange(step, 9)[:2]}
    about = {"step": step, "name": f'"{step}"\\ é', "none": None, "big": 10 ** (step + 20)}
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "jax": [arrays, Point(jnp.float32(step), float("inf"))],
        "about": about,
    }


def test_values_and_arrays_alone_make_no_other_tree() -> None:
    files = buffers()
    for step in range(1, 6):
        tree = model_tree(step)
        assert said(files, tree, named(step)) == said(buffers(), tree, named(step))
        assert files._misses == (step == 1)


def test_it_keeps_no_array() -> None:
    files = buffers()
    tree = {"t": torch.ones(3), "j": jnp.ones(3), "n": np.ones(3)}
    known = [weakref.ref(one) for one in tree.values()]
    for step in (1, 2):
        said(files, tree, named(step))
    del tree
    gc.collect()
    assert [one() for one in known] == [None] * 3


def test_a_tree_that_is_another_one_each_time_is_described_once() -> None:
    files = buffers()
    made = []
    for step in range(1, 101):
        before = files._outlines.get(False)
        said(files, ["x"] * step, named(step))
        made += [step] if files._outlines.get(False) is not before else []
    assert made == [1, 2, 4, 8, 16, 32, 64]


def test_an_array_that_is_gone_is_told_of_as_ever() -> None:
    files, array = buffers(), jnp.ones(3)
    said(files, {"w": array}, named(1))
    array.delete()
    with pytest.raises(Unstorable, match="donated or deleted"):
        files._described({"w": array}, named(2))


GLOBAL = """
import os, sys
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=2"
import jax, numpy as np
rank, port = int(sys.argv[1]), sys.argv[2]
jax.distributed.initialize(f"localhost:{port}", 2, rank)
from jax.sharding import NamedSharding, PartitionSpec as P
from tests.snapshot.test_described import buffers, named, said

one, other = jax.make_mesh((4,), ("x",)), jax.sharding.Mesh(np.array(jax.devices())[::-1], ("x",))
sharded = [NamedSharding(mesh, spec) for mesh in (one, other)
           for spec in (P("x"), P(None, "x"), P())]

def put(step, sharding, dtype=np.float32):
    whole = step + np.arange(64, dtype=dtype).reshape(8, 8)
    return jax.make_array_from_callback((8, 8), sharding, lambda index: whole[index])

class Both:
    # One that knows the last tree, and one that never does.
    def __init__(self):
        self.files, self.anew = buffers(rank, 2), buffers(rank, 2)

    def check(self, tree, step, in_parts=False):
        which = named(step)._replace(in_parts=in_parts)
        self.anew._outlines.clear()
        found = said(self.files, tree, which)
        assert found == said(self.anew, tree, which), (step, in_parts)
        return found

both = Both()
for step in range(1, 7):
    tree = {"n": step, "w": [put(step, one) for one in sharded], "here": jax.numpy.full(3, step)}
    placed, text = both.check(tree, step, in_parts=step % 2 == 0)
    assert both.files._misses == (step if step < 3 else 0), "it was described anew"
    stored = {entry.path for entry, *_ in placed if entry.path in ("state/w/2", "state/w/5")}
    assert len(stored) == (1 if step % 2 == 0 else 2), "each has one of two in parts, else both"
for first in sharded:
    for then in sharded:
        for dtype in (np.float32, np.int32):
            for in_parts in (False, True):
                both = Both()
                both.check({"w": put(1, first)}, 1, in_parts)
                both.check({"w": put(2, then, dtype)}, 2, in_parts)
files = buffers(rank, 2)
gone = put(3, sharded[0])
said(files, {"w": gone}, named(3))
gone.delete()
assert "donated or deleted" in said(files, {"w": gone}, named(4))
"""


@pytest.mark.real
def test_arrays_that_two_processes_hold_are_as_the_whole_description_says() -> None:
    (port,) = free_ports(1)
    commands = [[sys.executable, "-c", GLOBAL, str(rank), str(port)] for rank in range(2)]
    ranks = [subprocess.Popen(one, stderr=subprocess.PIPE, text=True) for one in commands]
    errors = [rank.communicate(timeout=300)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [0, 0], errors
