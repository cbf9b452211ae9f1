"""Where each array lies in a shard: the safetensors header and its checked reading.

A safetensors file is a little-endian u64 (length of the header), the header (JSON: tensor name →
dtype, shape, data_offsets) and the tensors' bytes, without gaps. Ours differ in nothing, they are
only tidy: the header is padded with spaces so that the data start on a page, and tensors whose
size is a multiple of 64 come first, then the others by element size, so that each is aligned
although gaps are not allowed. `__metadata__` has our own facts under the key "holdfast": enough to
make the rank's receipt of a header alone, by a process that never saw the arrays.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.snapshot import dtypes
from holdfast.snapshot.arrays import ArrayPiece, Leaf
from holdfast.snapshot.receipt import FORMAT, VERSION, Index, Tensor, extent
from holdfast.snapshot.sealed import compact, parse
from holdfast.snapshot.structure import Array, Structure, arrays, has_same_arrays

ALIGN_BYTES = 64  # of the widest vector register; jax on the CPU takes such memory over as it is
DATA_ALIGN_BYTES = 4096
MAX_HEADER_BYTES = 100_000_000  # the safetensors library refuses larger ones


Placed = tuple[Tensor, Leaf, ArrayPiece]


def place(leaves: Sequence[Leaf]) -> tuple[Placed, ...]:
    """Lay the pieces of all leaves out, in the order of the file."""
    pieces = [(leaf, piece, leaf.nbytes(piece)) for leaf in leaves for piece in leaf.pieces]
    pieces.sort(key=lambda item: _order(item[2], item[0].itemsize))
    placed, begin = [], 0
    for leaf, piece, size in pieces:
        end = begin + size
        entry = Tensor(
            leaf.path, leaf.dtype, leaf.shape, tuple(piece.shape), piece.index, begin, end
        )
        placed.append((entry, leaf, piece))
        begin = end
    return tuple(placed)


def file_order(tensor: Tensor) -> tuple[bool, int]:
    """What tensors are sorted by in a file, so that each is aligned though there are no gaps."""
    return _order(tensor.nbytes, dtypes.itemsize(tensor.dtype))


def _order(nbytes: int, itemsize: int) -> tuple[bool, int]:
    return nbytes % ALIGN_BYTES != 0, -itemsize


def shard_facts(
    structure: Structure,
    *,
    attempt: int,
    step: Any,
    rank: int,
    world_size: int,
    shared: Sequence[str],
    tags: Sequence[str],
    replicated: Sequence[str] = (),
    unproven: Sequence[str] = (),
    in_parts: bool = False,
) -> dict[str, Any]:
    """What a shard's header says of itself. `shared`: paths that belong to the run as a whole.

    `replicated`: those that the framework keeps equal on all ranks; `in_parts`: of which this
    shard has a part alone, but for the arrays in `unproven`, which are this rank's own.
    """
    more: dict[str, Any] = {"replicated": list(replicated)} if replicated else {}
    if unproven:
        more["unproven"] = list(unproven)
    if in_parts:
        more["in_parts"] = True
    return more | {
        "format": FORMAT,
        "version": VERSION,
        "attempt": attempt,
        "step": step,
        "rank": rank,
        "world_size": world_size,
        "shared": list(shared),
        "tags": list(tags),
        "structure": structure,
    }


def encode_header(entries: Sequence[Tensor], facts: dict[str, Any]) -> bytes:
    """The first bytes of the file, up to its data."""
    text = header_text(entries, facts).encode("ascii")
    length = least_begin(len(text)) - 8
    return struct.pack("<Q", length) + text.ljust(length)


def header_text(entries: Sequence[Tensor], facts: dict[str, Any]) -> str:
    """What is in a header, in ASCII."""
    header: dict[str, Any] = {"__metadata__": {"holdfast": compact(facts)}}
    for entry in entries:
        code, shape = dtypes.safetensors_view(entry.dtype, entry.shape)
        header[entry.name] = {
            "dtype": code,
            "shape": shape,
            "data_offsets": [entry.begin, entry.end],
        }
    return compact(header)


def least_begin(text_bytes: int) -> int:
    """Where the arrays begin at least, behind a header with a text of that length."""
    return -(-(8 + text_bytes) // DATA_ALIGN_BYTES) * DATA_ALIGN_BYTES


def decode_facts(header: bytes) -> dict[str, Any]:
    """Our own facts from the bytes before the data; ValueError (or KeyError, …) on rubbish."""
    return _facts(_parsed(header))


class Header(NamedTuple):
    """What a shard's header says: the facts, and where each tensor is said to lie."""

    facts: dict[str, Any]
    places: dict[str, Any]  # by the tensor's name; JSON
    tensors: tuple[Tensor, ...]  # without checksums

    @property
    def structure(self) -> Structure:
        """Of the rank's tree."""
        return self.facts.get("structure")


def decode_header(header: bytes, known: Iterable[Header] = ()) -> Header:
    """Read a header; ValueError (or KeyError, …) on rubbish.

    Where a tensor's name, dtype and shape in the file are not what the structure says of its array,
    that is rubbish as well. `known`: headers from which this one may differ in values alone; the
    tensors are the very same objects then.
    """
    places = _parsed(header)
    facts = _facts(places)
    del places["__metadata__"]
    structure = facts.get("structure")
    for one in known:
        if places == one.places and has_same_arrays(structure, one.structure):
            return Header(facts, one.places, one.tensors)
    stored = {array.path: array for array in stored_arrays(structure)}
    tensors = tuple(_tensor(name, said, stored) for name, said in places.items())
    return Header(facts, places, tensors)


def _parsed(header: bytes) -> Any:
    if len(header) < 8 or struct.unpack("<Q", header[:8])[0] != len(header) - 8:
        raise ValueError("the header's length is wrong")
    return parse(header[8:])


def _facts(said: Any) -> dict[str, Any]:
    facts = parse(said["__metadata__"]["holdfast"].encode())
    if not isinstance(facts, dict):
        raise ValueError("the header has no facts")
    return facts


def stored_arrays(structure: Structure) -> Iterator[Array]:
    """The arrays that a shard's structure speaks of; ValueError on rubbish."""
    if not isinstance(structure, dict) or "$" in structure:
        raise ValueError("the top is no dict of sections")
    for name, part in structure.items():
        yield from arrays(part, name)


def _tensor(name: str, said: Mapping[str, Any], known: Mapping[str, Array]) -> Tensor:
    path, index = _split(name)
    array = known[path]
    shape = array.shape if index is None else extent(path, index, array.shape)
    begin, end = said["data_offsets"]
    tensor = Tensor(path, array.dtype, array.shape, shape, index, begin, end)
    code, shown = dtypes.safetensors_view(array.dtype, shape)
    if (said["dtype"], tuple(said["shape"])) != (code, tuple(shown)):
        raise ValueError(f"{name} is {said['dtype']} {said['shape']} in the file")
    return tensor


def _split(name: str) -> tuple[str, Index | None]:
    """A tensor's name into path and index: a bracket in a path is written otherwise."""
    if not name.endswith("]"):
        return name, None
    path, _, inside = name.removesuffix("]").rpartition("[")
    pairs = [pair.split(":") for pair in inside.split(",")] if inside else []
    return path, tuple((int(start), int(stop)) for start, stop in pairs)
