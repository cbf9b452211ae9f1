"""A rank's receipt: what it has put on disk, to the last checksum. Manifests are made of them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from holdfast.core.value import value

Index = tuple[tuple[int, int], ...]
"""Where a piece lies in the global array: (start, stop) for each dimension."""

FORMAT = "holdfast-checkpoint"
VERSION = 1
MANIFEST = "manifest.json"
CHUNK_BYTES = 16 << 20
"""A tensor has one checksum per chunk: so a large one is verified by several threads."""

MAX_RANKS = 1_000_000


@value
class Tensor:
    """One tensor of a shard. `begin` and `end` count from the file's first data byte.

    `index` None: the rank stored the whole array; otherwise the slice of it that is here. `xxh3`
    has 16 hexadecimal digits for each chunk of `CHUNK_BYTES` (none: not computed yet).
    """

    path: str
    dtype: Any  # dtypes.Spec
    global_shape: tuple[int, ...]
    shape: tuple[int, ...]
    index: Index | None
    begin: int
    end: int
    xxh3: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """Its name in the file: the path and, of a part of an array, where it lies."""
        if self.index is None:
            return self.path
        return f"{self.path}[{','.join(f'{start}:{stop}' for start, stop in self.index)}]"

    @property
    def nbytes(self) -> int:
        """Bytes in the file."""
        return self.end - self.begin

    def with_checksums(self, xxh3: tuple[str, ...]) -> Tensor:
        """The same, with its bytes hashed."""
        return replace(self, xxh3=xxh3)


class DeclaredReplicas(NamedTuple):
    """What a framework keeps equal on all ranks, as one rank declares it.

    `replicated`: paths of arrays, or of what they are below; `unproven`: those of these arrays that
    not every rank had from the first, which are each rank's own.
    """

    replicated: tuple[str, ...] = ()
    unproven: tuple[str, ...] = ()


NOTHING_DECLARED = DeclaredReplicas()


@value
class Receipt:
    """One rank's shard, durable. `structures`: the checksum of each shared path's structure.

    `once`: the shard leaves out what other ranks' shards have, and theirs have the same mark;
    empty: all that the rank holds is here. `external`: what the rank has read of a framework's
    checkpoint, as of `external.External.to_json`; None: the set stands for none. `declared`: what
    the ranks of the set are compared by, of one that they have written to the store themselves.
    """

    attempt: int
    step: int
    rank: int
    world_size: int
    file_bytes: int
    data_begin: int
    header_xxh3: str
    structures: Mapping[str, str]
    tags: tuple[str, ...]
    tensors: tuple[Tensor, ...]
    once: str = ""
    external: Mapping[str, Any] | None = None
    declared: DeclaredReplicas = NOTHING_DECLARED

    def to_json(self) -> dict[str, Any]:
        """As plain JSON."""
        mark: dict[str, Any] = {"once": self.once} if self.once else {}
        if self.external is not None:
            mark["external"] = self.external
        if self.declared.replicated:
            mark |= {name: list(paths) for name, paths in self.declared._asdict().items()}
        return mark | {
            "format": FORMAT,
            "version": VERSION,
            "attempt": self.attempt,
            "step": self.step,
            "rank": self.rank,
            "world_size": self.world_size,
            "file": shard_name(self.rank),
            "file_bytes": self.file_bytes,
            "data_begin": self.data_begin,
            "header_xxh3": self.header_xxh3,
            "structures": dict(self.structures),
            "tags": list(self.tags),
            "tensors": [
                {
                    "path": tensor.path,
                    "dtype": tensor.dtype,
                    "global_shape": list(tensor.global_shape),
                    "shape": list(tensor.shape),
                    "index": index_json(tensor.index),
                    "begin": tensor.begin,
                    "end": tensor.end,
                    "xxh3": list(tensor.xxh3),
                }
                for tensor in self.tensors
            ],
        }

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Receipt:
        """The inverse; ValueError on what `to_json` cannot have written."""
        check_format(said)
        shard = Shard.from_json(said)
        tensors = tuple(
            Tensor(
                path=text(one, "path"),
                dtype=one.get("dtype"),
                global_shape=numbers(one, "global_shape"),
                shape=numbers(one, "shape"),
                index=index_from(one.get("index")),
                begin=number(one, "begin"),
                end=number(one, "end"),
                xxh3=texts(one, "xxh3"),
            )
            for one in objects(said, "tensors")
        )
        shard.check_all(tensors)
        structures, external = said.get("structures"), said.get("external")
        if not isinstance(external, dict | None):
            raise ValueError(f"external is {external!r:.100}")
        if not isinstance(structures, dict) or not all(
            isinstance(one, str) for one in structures.values()
        ):
            raise ValueError(f"structures is {structures!r:.100}")
        return cls(
            attempt=number(said, "attempt"),
            step=number(said, "step"),
            rank=number(said, "rank"),
            world_size=number(said, "world_size"),
            file_bytes=shard.file_bytes,
            data_begin=shard.data_begin,
            header_xxh3=shard.header_xxh3,
            structures=structures,
            tags=texts(said, "tags"),
            tensors=tensors,
            once=text(said, "once") if "once" in said else "",
            external=external,
            declared=declared_in(said),
        )


def declared_in(said: Mapping[str, Any]) -> DeclaredReplicas:
    """What a receipt, or a shard's header, declares; ValueError on rubbish."""
    return DeclaredReplicas(
        *(texts(said, name) if name in said else () for name in DeclaredReplicas._fields)
    )


@value
class Shard:
    """One file of a set: how long it is, where its data begin, the checksum of what is before."""

    file_bytes: int
    data_begin: int
    header_xxh3: str

    @classmethod
    def from_json(cls, said: dict[str, Any]) -> Shard:
        """Read the three fields; ValueError where they cannot be."""
        shard = cls(
            number(said, "file_bytes"), number(said, "data_begin"), text(said, "header_xxh3")
        )
        if not 8 <= shard.data_begin <= shard.file_bytes:
            raise ValueError(f"data begin at {shard.data_begin} of {shard.file_bytes} bytes")
        return shard

    def check(self, tensor: Tensor) -> None:
        """ValueError unless the tensor's bytes lie inside the file, each with its checksum."""
        inside = 0 <= tensor.begin <= tensor.end <= self.file_bytes - self.data_begin
        if not inside:
            raise ValueError(f"{tensor.name}: bytes {tensor.begin} to {tensor.end} are outside")
        if len(tensor.xxh3) != math.ceil(tensor.nbytes / CHUNK_BYTES):
            raise ValueError(f"{tensor.name}: {len(tensor.xxh3)} checksums")
        whole = tensor.global_shape
        if tensor.shape != (
            whole if tensor.index is None else extent(tensor.path, tensor.index, whole)
        ):
            raise ValueError(f"{tensor.name}: its shape is {tensor.shape}")

    def check_all(self, tensors: Iterable[Tensor]) -> None:
        """ValueError unless each is inside and no two share a byte.

        So what all of them hold is never more than the file: a reader's memory is bounded by that.
        """
        end = 0
        for tensor in sorted(tensors, key=lambda one: (one.begin, one.end)):
            self.check(tensor)
            if tensor.begin < end:
                raise ValueError(f"{tensor.name}: its bytes are another tensor's too")
            end = max(end, tensor.end)


def shard_name(rank: int) -> str:
    """The file name of a rank's shard."""
    return f"rank-{rank:05d}.safetensors"


def receipt_name(rank: int) -> str:
    """The file name of a rank's receipt."""
    return f"rank-{rank:05d}.receipt.json"


def check_format(said: dict[str, Any]) -> None:
    """ValueError unless this is ours, in a version that we know."""
    if said.get("format") != FORMAT:
        raise ValueError(f"its format is {said.get('format')!r:.50}")
    if said.get("version") != VERSION:
        raise ValueError(f"it has version {said.get('version')!r:.50}, and this Holdfast reads 1")


def index_json(index: Index | None) -> list[list[int]] | None:
    """An index as JSON."""
    return None if index is None else [list(pair) for pair in index]


def index_from(said: Any) -> Index | None:
    """An index from JSON; ValueError on rubbish."""
    if said is None:
        return None
    pairs = []
    for pair in said if isinstance(said, list) else [said]:
        if not isinstance(pair, list) or len(pair) != 2 or not all(type(n) is int for n in pair):
            raise ValueError(f"an index is {said!r:.100}")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def extent(path: str, index: Index, shape: tuple[int, ...]) -> tuple[int, ...]:
    """The shape of a slice; ValueError when it is not inside the array."""
    if len(index) != len(shape) or not all(
        0 <= start <= stop <= size for (start, stop), size in zip(index, shape, strict=True)
    ):
        raise ValueError(f"{path}: a piece at {index} of an array of shape {shape}")
    return tuple(stop - start for start, stop in index)


def number(said: Mapping[str, Any], key: str) -> int:
    """A non-negative 63-bit integer field; ValueError otherwise."""
    found = said.get(key)
    if type(found) is not int or not 0 <= found < 2**63:
        raise ValueError(f"{key} is {found!r:.50}")
    return found


def numbers(said: Mapping[str, Any], key: str) -> tuple[int, ...]:
    """A list of non-negative integers; ValueError otherwise."""
    found = said.get(key)
    if not isinstance(found, list) or not all(type(n) is int and 0 <= n < 2**63 for n in found):
        raise ValueError(f"{key} is {found!r:.50}")
    return tuple(found)


def text(said: Mapping[str, Any], key: str) -> str:
    """A str field; ValueError otherwise."""
    found = said.get(key)
    if not isinstance(found, str):
        raise ValueError(f"{key} is {found!r:.50}")
    return found


def texts(said: Mapping[str, Any], key: str) -> tuple[str, ...]:
    """A list of str; ValueError otherwise."""
    found = said.get(key)
    if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
        raise ValueError(f"{key} is {found!r:.50}")
    return tuple(found)


def objects(said: Mapping[str, Any], key: str) -> list[dict[str, Any]]:
    """A list of objects; ValueError otherwise."""
    found = said.get(key)
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise ValueError(f"{key} is {found!r:.50}")
    return found
