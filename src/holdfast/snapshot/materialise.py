"""Stored bytes to arrays: of the kind they were, or of the kind a program wants now.

The bytes lie in memory that nobody else writes. numpy and torch arrays are views of it; jax on the
CPU takes it over without a copy where it is aligned, on an accelerator it transfers from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from holdfast.core.value import value
from holdfast.snapshot import dtensor, dtypes
from holdfast.snapshot.arrays import ArrayKind, Bytes, bounds
from holdfast.snapshot.receipt import Index
from holdfast.snapshot.structure import Array

Kinds = Literal["numpy", "saved"]
"""What arrays become where no `like` says it: numpy's, or what they were when they were saved."""

Part = Callable[[Index], npt.NDArray[Any]]
"""Reads one slice of a global array, its elements as `dtypes.bits`."""


class _PlainData:
    """The type of `PLAIN`."""


PLAIN = _PlainData()
"""A leaf of `like` that takes plain values as they are stored, however many, and single numbers.

For what a script starts with (`{"history": [0.1], "best": inf}`) and goes on with as it trains.
"""

ANYTHING = _PlainData()
"""A leaf of `like` that takes whatever is stored: a script starts with nothing there.

`{"history": [], "average": None, "cache": {}}`, and arrays may come to it, too.
"""


@value
class StartDict:
    """A dict of `like` that a script starts with: plain values may have come to it.

    `empty`: of the script's kind. To one that was empty anything may have come.
    """

    empty: dict[Any, Any]
    of: dict[Any, Any]


@value
class StartArray:
    """A leaf of `like`: an array of numpy's that a script starts with.

    It takes an array of its dtype as it is stored, and one that JAX has made of it.
    """

    value: npt.NDArray[Any] | np.generic


def native(array: Array, raw: Bytes, kinds: Kinds = "numpy") -> Any:
    """The array without a `like`; ValueError when this environment cannot hold its dtype."""
    if array.kind is ArrayKind.BYTES:
        return raw.tobytes()
    if array.kind is ArrayKind.TEXT:
        return raw.tobytes().decode("utf-8", "surrogatepass")
    if kinds == "saved" and array.kind is ArrayKind.TORCH:
        return to_torch(array, raw)
    typed = numpy_view(array, raw)
    if array.kind is ArrayKind.SCALAR:
        return typed[()]
    if kinds == "saved" and array.kind in (ArrayKind.JAX, ArrayKind.KEY):
        return to_jax(array, typed, None)
    return typed


def numpy_view(array: Array, raw: Bytes) -> npt.NDArray[Any]:
    """The bytes as a numpy array; ValueError when their number is wrong or the dtype unknown."""
    return raw.view(dtypes.numpy_dtype(array.dtype)).reshape(array.shape)


def to_torch(array: Array, raw: Bytes) -> Any:
    """The bytes as a torch tensor on the CPU; ValueError when torch has no such dtype."""
    import torch

    dtype = getattr(torch, array.dtype, None) if isinstance(array.dtype, str) else None
    if not isinstance(dtype, torch.dtype):
        raise ValueError(f"torch has no {array.dtype}")
    if not raw.size:
        return torch.empty(array.shape, dtype=dtype)
    return torch.frombuffer(raw, dtype=dtype).view(array.shape)


def to_jax(array: Array, typed: npt.NDArray[Any], sharding: Any) -> Any:
    """A jax array on its default device, or committed to a sharding; a typed key if it was one."""
    import jax

    if array.kind is ArrayKind.KEY:
        data = jax.device_put(typed)
        key = jax.random.wrap_key_data(data, impl=array.impl)
        return key if sharding is None else jax.device_put(key, sharding)
    value = jax.device_put(typed) if sharding is None else jax.device_put(typed, sharding)
    return _weakly(jax, value) if array.weak else value


def _weakly(jax: Any, value: Any) -> Any:
    """The same numbers, weakly typed again: the public ways in are Python numbers and `full`."""
    fill = {"i": 0, "u": 0, "f": 0.0, "c": 0j}.get(value.dtype.kind)
    weak = jax.numpy.full(value.shape, fill) if fill is not None else value
    if weak.dtype != value.dtype:
        return value
    placed = weak.at[...].set(value)
    return jax.device_put(placed, value.sharding) if value.committed else placed


def adopt(array: Array, target: Any, whole: Callable[[], Bytes], part: Part | None) -> Any:
    """The array in the kind of `target`, a leaf of `like` that has already been checked.

    `part`: where slices are read, if there is a cheaper way than to have the whole.
    """
    if isinstance(target, _PlainData | StartArray):
        return native(array, whole(), "saved")
    if isinstance(target, np.generic):
        return numpy_view(array, whole())[()]
    if isinstance(target, bool | int | float | complex | str | bytes) or target is None:
        return _python(array, whole(), target)
    if isinstance(target, dtensor.Layout):
        return _on_mesh(array, target, whole, part)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.Tensor):
        if dtensor.is_dtensor(target):
            made = _on_mesh(array, dtensor.layout_of(target), whole, part)
        else:
            made = to_torch(array, whole()).to(target.device)
        return _like_torch(torch, made, target)
    jax = sys.modules.get("jax")
    if jax is not None and isinstance(target, jax.Array | jax.ShapeDtypeStruct):
        return _like_jax(jax, array, target, whole, part)
    return numpy_view(array, whole())


def is_cut(target: Any) -> bool:
    """Whether a leaf of `like` is an array of which this process holds a part only."""
    if isinstance(target, dtensor.Layout):
        return dtensor.is_cut(target)
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(target, torch.Tensor):
        return dtensor.is_dtensor(target) and dtensor.is_cut(dtensor.layout_of(target))
    jax = sys.modules.get("jax")
    if jax is None or not isinstance(target, jax.Array | jax.ShapeDtypeStruct):
        return False
    sharding = target.sharding if names_devices(target) else None
    return not (sharding is None or sharding.is_fully_addressable or sharding.is_fully_replicated)


def names_devices(leaf: Any) -> bool:
    """Whether an array of JAX, or its shape, says on which devices it lies.

    What was traced under a mesh with explicit axes says only along which of them it is divided.
    """
    return type(getattr(leaf.sharding, "mesh", None)).__name__ != "AbstractMesh"


def _python(array: Array, raw: Bytes, target: Any) -> Any:
    if array.kind in (ArrayKind.BYTES, ArrayKind.TEXT):
        return native(array, raw)
    return type(target)(numpy_view(array, raw)[()])


def _on_mesh(
    array: Array, layout: dtensor.Layout, whole: Callable[[], Bytes], part: Part | None
) -> Any:
    """A DTensor, of the slices that this process holds."""
    if part is None:
        tensor = to_torch(array, whole())
        return dtensor.build(layout, lambda index: tensor[tuple(slice(*one) for one in index)])

    def read(index: Index) -> Any:
        data = part(index)
        return to_torch(replace(array, shape=data.shape), data.reshape(-1).view(np.uint8))

    return dtensor.build(layout, read)


def _like_torch(torch: Any, tensor: Any, target: Any) -> Any:
    if isinstance(target, torch.nn.Parameter):
        return torch.nn.Parameter(tensor, requires_grad=target.requires_grad)
    return tensor.requires_grad_() if target.requires_grad and target.is_leaf else tensor


def _like_jax(
    jax: Any, array: Array, target: Any, whole: Callable[[], Bytes], part: Part | None
) -> Any:
    sharding = target.sharding if names_devices(target) else None
    if isinstance(target, jax.Array) and not target.committed:
        sharding = None
    if sharding is None or sharding.is_fully_addressable:
        return to_jax(array, numpy_view(array, whole()), sharding)
    return _across_processes(jax, array, target, whole, part)


def _across_processes(
    jax: Any, array: Array, target: Any, whole: Callable[[], Bytes], part: Part | None
) -> Any:
    """Each process puts its own shards in place, and none waits for another.

    `jax.device_put` would compare the values of all processes first, one collective per array.
    """
    shards = []
    for device, index in target.sharding.addressable_devices_indices_map(target.shape).items():
        # A key's data has a dimension more than the key, which is never cut.
        cut = (*index, *(slice(None) for _ in array.shape[len(index) :]))
        if part is not None:
            piece = part(bounds(cut, array.shape)).view(dtypes.numpy_dtype(array.dtype))
        else:
            piece = numpy_view(array, whole())[cut]
        shard = jax.device_put(piece, device)
        if array.kind is ArrayKind.KEY:
            shard = jax.random.wrap_key_data(shard, impl=array.impl)
        shards.append(shard)
    value = jax.make_array_from_single_device_arrays(
        target.shape, target.sharding, shards, dtype=target.dtype
    )
    return _weakly(jax, value) if array.weak else value
