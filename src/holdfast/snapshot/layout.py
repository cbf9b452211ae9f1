"""Where each array lies in a shard: the safetensors header and its checked reading.

A safetensors file is a little-endian u64 (length of the header), the header (JSON: tensor name →
dtype, shape, data_offsets) and the tensors' bytes, without gaps. Ours differ in nothing, they are
only tidy: the header is padded with spaces so that the data start on a page, and tensors whose
size is a multiple of 64 come first, then the others by element size, so that each is aligned
although gaps are not allowed. `__metadata__` has our own facts under the key "holdfast".
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import Any

from holdfast.snapshot import dtypes
from holdfast.snapshot.arrays import Leaf, Piece
from holdfast.snapshot.receipt import Tensor
from holdfast.snapshot.sealed import compact, parse

ALIGN_BYTES = 64  # of the widest vector register; jax on the CPU takes such memory over as it is
DATA_ALIGN_BYTES = 4096
MAX_HEADER_BYTES = 100_000_000  # the safetensors library refuses larger ones


Placed = tuple[Tensor, Leaf, Piece]


def place(leaves: Sequence[Leaf]) -> tuple[Placed, ...]:
    """Lay the pieces of all leaves out, in the order of the file."""
    pieces = [(leaf, piece, leaf.nbytes(piece)) for leaf in leaves for piece in leaf.pieces]
    pieces.sort(key=lambda item: (item[2] % ALIGN_BYTES != 0, -item[0].itemsize))
    placed, begin = [], 0
    for leaf, piece, size in pieces:
        end = begin + size
        entry = Tensor(
            leaf.path, leaf.dtype, leaf.shape, tuple(piece.shape), piece.index, begin, end
        )
        placed.append((entry, leaf, piece))
        begin = end
    return tuple(placed)


def encode_header(entries: Sequence[Tensor], facts: dict[str, Any]) -> bytes:
    """The first bytes of the file, up to its data."""
    header: dict[str, Any] = {"__metadata__": {"holdfast": compact(facts)}}
    for entry in entries:
        code, shape = dtypes.safetensors_view(entry.dtype, entry.shape)
        header[entry.name] = {
            "dtype": code,
            "shape": shape,
            "data_offsets": [entry.begin, entry.end],
        }
    text = compact(header).encode("ascii")
    padding = -(8 + len(text)) % DATA_ALIGN_BYTES
    return struct.pack("<Q", len(text) + padding) + text + b" " * padding


def decode_facts(header: bytes) -> dict[str, Any]:
    """Our own facts from the bytes before the data; ValueError on rubbish."""
    if len(header) < 8 or struct.unpack("<Q", header[:8])[0] != len(header) - 8:
        raise ValueError("the header's length is wrong")
    facts = parse(parse(header[8:])["__metadata__"]["holdfast"].encode())
    if not isinstance(facts, dict):
        raise ValueError("the header has no facts")
    return facts
