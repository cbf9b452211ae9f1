"""Array leaves: recognise one, describe it, and copy its bytes into a buffer.

numpy arrays and scalars; jax arrays (the shards that this process owns) and typed PRNG keys; torch
tensors (of a DTensor, this rank's part); long bytes and str. A framework is looked up in
`sys.modules`, never imported: a value of its types can only exist when it is loaded.
"""

from __future__ import annotations

import ctypes
import functools
import math
import sys
import weakref
import zlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from holdfast.errors import Unstorable
from holdfast.snapshot import dtensor, dtypes
from holdfast.snapshot.receipt import Index

Bytes = npt.NDArray[np.uint8]
INLINE_BYTES = 512
"""bytes and str up to this length stand in the structure; longer ones are stored like arrays."""


class ArrayKind(StrEnum):
    """What a stored array was in the program, and becomes again."""

    NUMPY = "numpy"
    SCALAR = "numpy-scalar"
    JAX = "jax"
    KEY = "jax-key"
    TORCH = "torch"
    BYTES = "bytes"
    TEXT = "str"


@dataclass(slots=True)  # not frozen, which takes three times as long: there are thousands
class ArrayPiece:
    """The part of an array that this process stores. `index` None: all of it, from every rank."""

    index: Index | None
    shape: tuple[int, ...]
    source: Any  # the array itself; a copy is made only into the staging buffer


class Leaf(NamedTuple):
    """One array of a tree, not copied yet. `shape` is global; `pieces` may be none here.

    `held`: the array, where other processes hold parts of it.
    """

    path: str
    kind: ArrayKind
    dtype: dtypes.Spec
    itemsize: int
    shape: tuple[int, ...]
    pieces: tuple[ArrayPiece, ...]
    impl: str | None = None  # of a PRNG key
    weak: bool = False  # jax: a weakly typed array promotes like a Python number
    held: Any = None

    def nbytes(self, piece: ArrayPiece) -> int:
        """Bytes of one of its pieces."""
        return math.prod(piece.shape) * self.itemsize


Describe = Callable[[str, Any], Leaf]
_describers: weakref.WeakKeyDictionary[type, Describe | None] = weakref.WeakKeyDictionary()


def describe(path: str, value: Any) -> Leaf | None:
    """The leaf for an array-like value; None when it is none.

    Raises:
        Unstorable: an array that no file can hold (Python objects, no data, a deleted buffer).

    """
    kind = type(value)
    if kind not in _describers:
        # A state has thousands of leaves, and jax's isinstance takes microseconds. That a type is
        # no array may be remembered too: a framework's types exist only once it is loaded.
        _describers[kind] = _describer(kind)
    described = _describers[kind]
    return None if described is None else described(path, value)


def _describer(kind: type) -> Describe | None:
    if issubclass(kind, np.ndarray | np.generic):
        return _numpy
    if kind is bytes:
        return _bytes
    if kind is str:
        return _text
    jax, torch = sys.modules.get("jax"), sys.modules.get("torch")
    if jax is not None and issubclass(kind, (getattr(jax, "Array", ()), jax.core.Tracer)):
        return _jax
    if torch is not None and issubclass(kind, getattr(torch, "Tensor", ())):
        return _torch
    return None


def _bytes(path: str, value: bytes) -> Leaf:
    return _raw(path, ArrayKind.BYTES, np.frombuffer(value, np.uint8))


def _text(path: str, value: str) -> Leaf:
    data = value.encode("utf-8", "surrogatepass")
    return _raw(path, ArrayKind.TEXT, np.frombuffer(data, np.uint8))


def _raw(path: str, kind: ArrayKind, data: Bytes) -> Leaf:
    return Leaf(path, kind, "uint8", 1, data.shape, (ArrayPiece(None, data.shape, data),))


def _numpy(path: str, value: npt.NDArray[Any] | np.generic) -> Leaf:
    spec = dtypes.spec_of(value.dtype)
    if spec is None:
        raise Unstorable(
            path,
            f"an array of {value.dtype} holds Python objects; store numbers or containers",
        )
    if isinstance(value, np.ma.MaskedArray):
        raise Unstorable(path, "a masked array; store its data and its mask as two arrays")
    if isinstance(value, np.matrix):  # an array in its place multiplies element by element
        raise Unstorable(path, "a numpy.matrix; store it as an array, numpy.asarray(value)")
    kind = ArrayKind.SCALAR if isinstance(value, np.generic) else ArrayKind.NUMPY
    source = np.asarray(value)
    pieces = (ArrayPiece(None, source.shape, source),)
    return Leaf(path, kind, spec, source.itemsize, source.shape, pieces)


def _jax(path: str, value: Any) -> Leaf:
    jax = sys.modules["jax"]
    if isinstance(value, jax.core.Tracer):
        raise Unstorable(path, "a value inside a traced function; save outside of jit")
    if value.is_deleted():
        raise Unstorable(
            path, "a jax array that was donated or deleted; pass the state that the step returned"
        )
    impl = None
    kind = ArrayKind.JAX
    if not isinstance(value.dtype, np.dtype) and jax.numpy.issubdtype(
        value.dtype, jax.dtypes.prng_key
    ):
        impl, kind = str(jax.random.key_impl(value)), ArrayKind.KEY
        value = jax.random.key_data(value)
    spec = dtypes.spec_of(value.dtype)
    if spec is None:
        raise Unstorable(path, f"a jax array of {value.dtype} cannot be stored")
    if value.is_fully_addressable:
        pieces: tuple[ArrayPiece, ...] = (ArrayPiece(None, value.shape, value),)
    else:
        pieces = tuple(
            ArrayPiece(bounds(shard.index, value.shape), shard.data.shape, shard.data)
            for shard in value.addressable_shards
            if shard.replica_id == 0  # of each distinct slice one has it, on exactly one process
        )
    weak = bool(getattr(value, "weak_type", False))
    held = None if value.is_fully_addressable else value
    return Leaf(path, kind, spec, value.dtype.itemsize, value.shape, pieces, impl, weak, held)


def begin_transfers(leaves: Iterable[Leaf]) -> None:
    """Have all that is on an accelerator on its way before the first of it is awaited."""
    for leaf in leaves:
        if leaf.kind in (ArrayKind.JAX, ArrayKind.KEY):
            for piece in leaf.pieces:
                if any(one.platform != "cpu" for one in piece.source.sharding.addressable_devices):
                    piece.source.copy_to_host_async()


def on_host(leaf: Leaf, ranks: range, epoch: int) -> Leaf:
    """The same, with what this process stores if each host is to have all that its ranks hold.

    Of each slice that processes of `ranks`, those of this host, hold alike, one of them stores it.
    Which one goes by the array's name, so that they share the work; and by the set's `epoch`, so
    that each replica is stored once in as many sets as there are, and compared with other hosts'.
    """
    array = leaf.held
    if array is None or (me := _me(leaf)) not in ranks:
        return leaf
    owners = (
        dtensor.holders(array, ranks)
        if leaf.kind is ArrayKind.TORCH
        else _owners(array.sharding, array.shape, ranks)
    )
    first = zlib.crc32(leaf.path.encode())
    mine = {
        index: epoch // len(who)
        for number, (index, who) in enumerate(owners.items())
        if who[(first + number + turn(epoch, len(who))) % len(who)] == me
    }
    found: dict[Index, list[Any]] = {}  # on several devices of this process
    for index, data in _held(leaf):
        if index in mine:
            found.setdefault(index, []).append(data)
    chosen = {index: some[turn(mine[index], len(some))] for index, some in found.items()}
    pieces = (ArrayPiece(index, tuple(data.shape), data) for index, data in chosen.items())
    return leaf._replace(pieces=tuple(pieces))


def _me(leaf: Leaf) -> int:
    if leaf.kind is ArrayKind.TORCH:
        return int(sys.modules["torch.distributed"].get_rank())
    return int(sys.modules["jax"].process_index())


def _held(leaf: Leaf) -> Iterator[tuple[Index, Any]]:
    """All slices that this process holds of an array that others hold parts of."""
    if leaf.kind is ArrayKind.TORCH:
        yield from ((index, plain_tensor(one)) for index, one in dtensor.held(leaf.path, leaf.held))
        return
    for shard in leaf.held.addressable_shards:
        yield bounds(shard.index, leaf.held.shape), shard.data


def turn(epoch: int, replicas: int) -> int:
    """Whose turn it is among so many: all have theirs in each round, from another one on each time.

    So each one's comes, too, where not every set is copied to another host.
    """
    number, place = divmod(epoch, replicas)
    return (place + zlib.crc32(number.to_bytes(8))) % replicas


@functools.lru_cache(maxsize=4096)
def _owners(sharding: Any, shape: tuple[int, ...], ranks: range) -> dict[Index, list[int]]:
    """By slice, which of these processes hold it, in their order."""
    found: dict[Index, list[int]] = {}
    for device, index in sharding.devices_indices_map(shape).items():
        if device.process_index in ranks:
            holders = found.setdefault(bounds(index, shape), [])
            if device.process_index not in holders:
                holders.append(device.process_index)
    return {index: sorted(holders) for index, holders in sorted(found.items())}


def bounds(index: tuple[slice, ...], shape: tuple[int, ...]) -> Index:
    """A tuple of slices of unit step as (start, stop) pairs."""
    return tuple(part.indices(size)[:2] for part, size in zip(index, shape, strict=True))


def _torch(path: str, value: Any) -> Leaf:
    try:
        return _tensor(path, value)
    except Unstorable:
        raise
    except Exception as error:  # some cannot even be asked for their shape
        raise Unstorable(path, _why_not(value, error)) from error


def _why_not(value: Any, error: Exception) -> str:
    if sys.modules["torch"].nn.parameter.is_lazy(value):
        return (
            "its lazy module was never called, so it has no shape yet; call the module once before "
            "the first step is done, or take it out of the model"
        )
    return f"a {type(value).__name__} cannot be stored ({' '.join(str(error).split()):.200})"


_NO_MEMORY = "has no memory of its own, or no longer; store the tensors that it consists of"


def _tensor(path: str, value: Any) -> Leaf:
    torch = sys.modules["torch"]
    name = str(value.dtype).removeprefix("torch.")
    if value.is_nested:
        raise Unstorable(
            path, "a nested tensor has no shape; store the tensors in it (its unbind())"
        )
    if value.layout is not torch.strided or value.is_quantized or value.device.type == "meta":
        raise Unstorable(
            path, f"a {value.layout} {name} tensor on {value.device} has no plain bytes to store"
        )
    if not dtypes.is_named(name):
        raise Unstorable(path, f"a torch tensor of {name} cannot be stored")
    shape, size = tuple(value.shape), value.dtype.itemsize
    if type(value).__module__.startswith("torch.distributed"):
        if not dtensor.is_dtensor(value):
            raise Unstorable(path, f"a {type(value).__name__}; store its local tensors")
        parts = dtensor.stored(path, value)
        found = [ArrayPiece(at, tuple(one.shape), plain_tensor(one)) for at, one in parts]
        return Leaf(path, ArrayKind.TORCH, name, size, shape, tuple(found), held=value)
    alias = plain_tensor(value)
    if is_nowhere(alias):
        raise Unstorable(path, f"a {type(value).__name__} {_NO_MEMORY}")
    piece = ArrayPiece(None, shape, alias)
    return Leaf(path, ArrayKind.TORCH, name, size, shape, (piece,))


def plain_tensor(value: Any) -> Any:
    """The tensor's own memory, whatever becomes of the tensor; no derivative goes through it."""
    alias = value.detach()
    return alias.resolve_conj().resolve_neg() if alias.is_conj() or alias.is_neg() else alias


def is_nowhere(tensor: Any) -> bool:
    """Whether a tensor of the host has elements, and no memory that they are in."""
    return bool(tensor.is_cpu and not tensor.data_ptr() and tensor.numel())


class PlainCopy(NamedTuple):
    """Bytes that lie side by side: addresses, and what keeps the memory there."""

    target: int
    source: int
    nbytes: int
    held: tuple[Any, ...] = ()


Copy = PlainCopy | tuple[Any, Any]
"""Two arrays of one shape, to be copied first ← second (numpy's, or torch's), or plain bytes."""


def copies(leaf: Leaf, piece: ArrayPiece, target: Bytes) -> Iterator[Copy]:
    """The copies that bring a piece into `target`, `nbytes` bytes of host memory."""
    if not target.size:
        return
    if leaf.kind is ArrayKind.TORCH:
        tensor = piece.source
        if tensor.device.type == "cpu" and tensor.is_contiguous():
            source = tensor.data_ptr()
            if not source:  # to read from there would end the process
                raise Unstorable(leaf.path, f"a {type(tensor).__name__} {_NO_MEMORY}")
            yield _plain(target, source, tensor.nbytes, tensor)
            return
        torch = sys.modules["torch"]
        flat = torch.frombuffer(target, dtype=tensor.dtype)
        yield flat.view(piece.shape), tensor
        return
    if not isinstance(piece.source, np.ndarray) and not piece.source.is_fully_replicated:
        whole = _typed(target, leaf, piece.shape)
        for shard in piece.source.addressable_shards:
            if shard.replica_id == 0:
                yield _bits(whole[shard.index]), _bits(np.asarray(shard.data))
        return
    # For a jax array on the CPU this is a view of its own buffer. The view must be dropped before
    # the next step: while it lives, a donated buffer is not reused.
    source = np.asarray(piece.source)
    if source.flags.c_contiguous:
        yield _plain(target, source.ctypes.data, source.nbytes, source)
    else:
        yield _bits(_typed(target, leaf, piece.shape)), _bits(source)


def _plain(target: Bytes, source: int, nbytes: int, array: Any) -> PlainCopy:
    if nbytes != target.size:
        raise ValueError(f"{nbytes} bytes do not fit into {target.size}")
    return PlainCopy(target.ctypes.data, source, nbytes, (target, array))


def _typed(target: Bytes, leaf: Leaf, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    return target.view(dtypes.numpy_dtype(leaf.dtype)).reshape(shape)


def _bits(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """The same elements as integers where a type of their size exists: numpy copies those fast."""
    if array.itemsize in (1, 2, 4, 8) and array.dtype.names is None:
        return array.view(f"u{array.itemsize}")
    return array


def run(copy: Copy) -> None:
    """Do one copy. Releases the GIL for all but the smallest.

    Plain bytes, whichever library they are of, by memmove: threads can share a large one.
    """
    if isinstance(copy, PlainCopy):
        ctypes.memmove(copy.target, copy.source, copy.nbytes)
        return
    target, source = copy
    if isinstance(target, np.ndarray):
        np.copyto(target, source)
    else:
        target.copy_(source)
