"""From a committed set back to a state tree: checked against the program, then read, verified.

The order matters: manifest and structure first (small, sealed), the comparison with `like` next, so
that a program that does not fit fails before a gigabyte is read; then the arrays; then the tree.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from holdfast.errors import CorruptCheckpoint, DataTopologyChanged, StateMismatch
from holdfast.snapshot import dtypes, paths
from holdfast.snapshot import like as likeness
from holdfast.snapshot.arrays import ArrayKind, Bytes
from holdfast.snapshot.dtensor import Layout, mesh_ranks
from holdfast.snapshot.manifest import ArraySharing, Manifest, is_shared
from holdfast.snapshot.materialise import Kinds, adopt, is_cut, native, to_torch
from holdfast.snapshot.memory import touch
from holdfast.snapshot.reader import (
    Chunk,
    ShardFiles,
    SliceReader,
    allocate,
    chunks,
    in_rows,
    read_all,
)
from holdfast.snapshot.receipt import Index, Tensor
from holdfast.snapshot.sets import check_size, read_manifest
from holdfast.snapshot.structure import (
    NOTHING,
    Array,
    Structure,
    arrays,
    decode,
    leaves,
    open_structure,
    prune,
)

STATE = "state"

Room = dict[str, Bytes]
"""Warm memory by path."""

Find = Callable[[Array, bool], Layout | None]
"""As what DTensor to restore a stored array, if as one; and whether it is stored in slices."""


def read_set(
    set_dir: Path,
    like: Mapping[str, Any] | None = None,
    only: str | Sequence[str] | None = None,
    rank: int = 0,
    world_size: int = 1,
    *,
    sections: Sequence[str] | None = None,
    kinds: Kinds = "saved",
    room: Room | None = None,
    manifest: Manifest | None = None,
    layout: Find = lambda *_: None,
) -> dict[str, Any]:
    """Read a rank's part of a set, every byte verified before it is used.

    `like` maps sections (top-level keys, "state" above all) to trees whose containers, array kinds
    and shardings the result takes; other sections come in plain containers, arrays of the kind
    they were (or all numpy's with kinds="numpy"). `only`: globs on paths inside "state"; with
    `like`, that is a tree of only those. `sections`: read no others. With another number of ranks
    than wrote the set, what is global is reassembled; what is per rank has no answer. `room`: warm
    memory from `prepare`, used up by this call. `manifest`: the set's, if it has been read already.
    `layout`: which arrays of sections without `like` are to become DTensors, of which this process
    reads its part.

    Raises:
        CorruptCheckpoint: a file is missing, truncated or not what was written; names it.
        StateMismatch: the first difference to `like`, before any array was read.
        DataTopologyChanged: something per rank was asked for with another number of ranks.
        StoreUnavailable: a file may not be read.

    """
    manifest = manifest or read_manifest(set_dir)
    with ShardFiles(set_dir, manifest) as files:
        source = rank if manifest.world_size == world_size else rank % manifest.world_size
        try:
            structure = _sections(files.facts(source).get("structure"), only, sections)
            _check_ranks(manifest, structure, world_size)
            wanted = [one for name, part in structure.items() for one in arrays(part, name)]
        except ValueError as error:
            raise CorruptCheckpoint(f"{files.path(source)}: the structure says {error}") from error
        if only is not None and structure.get(STATE, NOTHING) is None:
            _check_some(files.facts(source)["structure"][STATE], only)
        for name, tree in (like or {}).items():
            likeness.check(structure.get(name), tree, name)
        cut = {
            array.path
            for name, tree in (like or {}).items()
            for array, leaf in likeness.targets(structure[name], tree, name)
            if is_cut(leaf)
        }
        layouts = _layouts(manifest, wanted, layout)
        cut |= {path for path, one in layouts.items() if is_cut(one)}
        assembly = _Assembly(files, manifest, source, like or {}, kinds, cut, layouts)
        return assembly.tree(structure, wanted, {} if room is None else room)


def _layouts(manifest: Manifest, wanted: Sequence[Array], find: Find) -> dict[str, Layout]:
    found = {}
    for array in wanted:
        stored = manifest.arrays.get(array.path)
        pieces = () if stored is None else stored.pieces
        is_sharded = any(tensor.index is not None for _, tensor in pieces)
        layout = find(array, is_sharded) if array.kind is ArrayKind.TORCH else None
        if layout is not None:
            found[array.path] = layout
    return found


def prepare(
    set_dir: Path, rank: int = 0, world_size: int = 1, manifest: Manifest | None = None
) -> Room:
    """Get and touch the memory that `read_set` will fill, while something else goes on.

    Fresh memory costs as much as the read itself, and many times that on some virtual machines; a
    thread can pay for it while the script imports and compiles. `manifest`: the set's, if it has
    been read already. Raises what `read_set` raises.
    """
    manifest = manifest or read_manifest(set_dir)
    source = rank if manifest.world_size == world_size else rank % manifest.world_size
    whole = {  # not what is in several pieces: of a sharded array a process wants its part alone
        path: pieces[0]
        for path, stored in manifest.arrays.items()
        if len(pieces := stored.copy_of(source)) == 1
    }
    for holder in {source, *(rank for rank, _ in whole.values())}:
        check_size(set_dir, holder, manifest.shards[holder].file_bytes)  # a claim: worth no memory
    sizes = {path: tensor.nbytes for path, (_, tensor) in whole.items()}
    memory = allocate(list(sizes.values()))
    for one in memory:
        touch(one)
    return dict(zip(sizes, memory, strict=True))


def read_own(set_dir: Path, sections: Sequence[str]) -> list[dict[str, Any]]:
    """Small sections as each rank that wrote the set has stored them, in the order of the ranks.

    For a restore by another number of ranks, which has to make something of all of them. Raises
    what `read_set` raises.
    """
    manifest = read_manifest(set_dir)
    return [
        read_set(
            set_dir,
            rank=rank,
            world_size=manifest.world_size,
            sections=sections,
            manifest=manifest,
        )
        for rank in range(manifest.world_size)
    ]


def load_path(set_dir: Path, like: Any = None, only: str | Sequence[str] | None = None) -> Any:
    """The state alone, for inference: from any number of ranks; arrays are numpy's without `like`.

    Raises what `read_set` raises.
    """
    wanted = None if like is None else {STATE: like}
    read = read_set(set_dir, wanted, only, sections=(STATE,), kinds="numpy", world_size=0)
    return read.get(STATE)


class OpenSet:
    """A set whose arrays are read one by one, for who writes them elsewhere."""

    def __init__(self, files: ShardFiles, manifest: Manifest) -> None:
        self._files, self._manifest = files, manifest
        self._assembly = _Assembly(files, manifest, 0, {}, "saved", (), {})

    @property
    def own(self) -> tuple[str, ...]:
        """Arrays of the run of which each rank has its own."""
        shared = tuple(self._manifest.structures)
        return tuple(
            path
            for path, stored in self._manifest.arrays.items()
            if stored.placement is ArraySharing.PER_RANK and is_shared(path, shared)
        )

    def tree(self, fetch: Callable[[Array], Any]) -> dict[str, Any]:
        """The set as rank 0 has it, with what `fetch` makes of its arrays; CorruptCheckpoint."""
        try:
            structure = _sections(self._files.facts(0).get("structure"), None, None)
            return {name: decode(part, fetch, name) for name, part in structure.items()}
        except ValueError as error:
            raise CorruptCheckpoint(f"{self._files.path(0)}: the structure says {error}") from error

    def read(self, array: Array, kind: Kinds | Literal["torch"]) -> Any:
        """One of its arrays, verified; as a tensor of PyTorch's, whatever it was, with "torch"."""
        if kind == "torch":
            return to_torch(array, self._assembly.bytes_of(array))
        return native(array, self._assembly.bytes_of(array), kind)


@contextlib.contextmanager
def opened_set(set_dir: Path) -> Iterator[OpenSet]:
    """Open a set to read its arrays one by one. Raises what `read_set` raises."""
    manifest = read_manifest(set_dir)
    with ShardFiles(set_dir, manifest) as files:
        yield OpenSet(files, manifest)


def _sections(
    structure: Structure, only: str | Sequence[str] | None, sections: Sequence[str] | None
) -> dict[str, Structure]:
    if not isinstance(structure, dict) or "$" in structure:
        raise ValueError("the top is no dict of sections")
    if not all(map(paths.is_piece, structure)):
        raise ValueError("a section has a name that no section has")
    if sections is not None:
        structure = {name: part for name, part in structure.items() if name in sections}
    if only is not None and STATE in structure:
        patterns = (only,) if isinstance(only, str) else tuple(only)
        inside = tuple(f"{STATE}/{pattern}" for pattern in patterns)
        pruned = prune(structure[STATE], inside, STATE)
        structure = {**structure, STATE: None if pruned is NOTHING else pruned}
    return dict(structure)


def _check_some(state: Structure, only: str | Sequence[str]) -> None:
    """Refuse patterns that no path of a state fits: they would give None, as if there were none."""
    if state is not None:
        there = likeness.words(open_structure(state, STATE))
        raise StateMismatch(STATE, f"what fits only={only!r}", there)


def _check_ranks(manifest: Manifest, structure: Mapping[str, Structure], world_size: int) -> None:
    """Refuse what has no meaning for another number of ranks; `world_size` 0: any (inference)."""
    if world_size == manifest.world_size:
        return
    own = [path for path, placed in manifest.structures.items() if placed is ArraySharing.PER_RANK]
    shared = tuple(path for path in manifest.structures if path not in own)
    for name, part in structure.items():
        for leaf in leaves(part, name):
            stored = manifest.arrays.get(leaf.path)
            per_rank = stored is not None and stored.placement is ArraySharing.PER_RANK
            if per_rank or not is_shared(leaf.path, shared):
                readers = f" and is read by {world_size}" if world_size else ""
                raise DataTopologyChanged(
                    f"the checkpoint was written by {manifest.world_size} ranks{readers}, and each "
                    f"has a {leaf.path} of its own: start with as many ranks, or leave {name} out"
                )


class _Assembly:
    """One restore: which pieces each array is made of, their bytes, and the tree."""

    def __init__(
        self,
        files: ShardFiles,
        manifest: Manifest,
        source: int,
        like: Mapping[str, Any],
        kinds: Kinds,
        cut: Collection[str],
        layouts: Mapping[str, Layout],
    ) -> None:
        self._files = files
        self._manifest = manifest
        self._source = source  # the rank whose copy is read, where there are several
        self._like = like
        self._kinds = kinds
        self._cut = cut  # paths of arrays of which this process wants a part only
        self._layouts = layouts  # of arrays of sections without `like`
        self._slices = SliceReader(files)
        self._whole: dict[str, Bytes] = {}

    def tree(
        self, structure: Mapping[str, Structure], wanted: Sequence[Array], room: Room
    ) -> dict[str, Any]:
        """Read everything that is needed whole, then build."""
        self._read_whole([array for array in wanted if not self._in_parts(array)], room)
        return {name: self._section(name, part) for name, part in structure.items()}

    def _section(self, name: str, structure: Structure) -> Any:
        if name in self._like:
            return likeness.build(structure, self._like[name], self._adopt, name)
        try:
            return decode(structure, self._native, name)
        except ValueError as error:
            raise CorruptCheckpoint(f"{self._files.path(self._source)}: {error}") from error

    def _native(self, array: Array) -> Any:
        if array.path in self._layouts:
            return self._adopt(array, self._layouts[array.path])
        return native(array, self.bytes_of(array), self._kinds)

    def _adopt(self, array: Array, target: Any) -> Any:
        def part(index: Index) -> Any:
            return self._slices.read(self._pieces(array), index)

        in_parts = self._in_parts(array)
        return adopt(array, target, lambda: self.bytes_of(array), part if in_parts else None)

    def _in_parts(self, array: Array) -> bool:
        """Whether it is stored as slices, or wanted in part: then it is read when it is asked for.

        What ranks hold each of them whole is stored in one piece, or in a few ranges of rows.
        """
        return array.path in self._cut or not in_rows(self._pieces(array))

    def bytes_of(self, array: Array) -> Bytes:
        """All of an array."""
        found = self._whole.get(array.path)
        if found is None:
            everything = tuple((0, size) for size in array.shape)
            found = self._slices.read(self._pieces(array), everything).reshape(-1).view(np.uint8)
        return found

    def _pieces(self, array: Array) -> Sequence[tuple[int, Tensor]]:
        """The pieces of an array; CorruptCheckpoint when manifest and structure disagree."""
        stored = self._manifest.arrays.get(array.path)
        if stored is None:
            raise CorruptCheckpoint(
                f"{self._files.path(self._source)}: {array.path} is missing from the manifest"
            )
        layout = self._layouts.get(array.path)
        pieces = stored.copy_of(self._source, () if layout is None else mesh_ranks(layout))
        try:
            size = dtypes.itemsize(array.dtype)
        except ValueError as error:
            raise CorruptCheckpoint(f"{array.path}: {error}") from error
        held = sum(tensor.nbytes for _, tensor in pieces)
        is_part = self._manifest.here is not None and held < array.nbytes
        if (
            not pieces
            or (held != array.nbytes and not is_part)
            or any(tensor.dtype != array.dtype for _, tensor in pieces)
            or any(tensor.global_shape != array.shape for _, tensor in pieces)
            or any(tensor.nbytes != math.prod(tensor.shape) * size for _, tensor in pieces)
        ):
            raise CorruptCheckpoint(
                f"{self._files.path(self._source)}: {array.path} is "
                f"{likeness.array_words(array.dtype, array.shape)}, and the manifest says otherwise"
            )
        return pieces

    def _read_whole(self, wanted: Sequence[Array], room: Room) -> None:
        sizes = {array.path: array.nbytes for array in wanted}
        ready = {path: memory for path, memory in room.items() if memory.size == sizes.get(path)}
        room.clear()  # what is handed out belongs to the result: nobody may fill it again
        missing = [path for path in sizes if path not in ready]
        fresh = zip(missing, allocate([sizes[path] for path in missing]), strict=True)
        self._whole = ready | dict(fresh)
        work: list[Chunk] = []
        for array in wanted:
            memory = self._whole[array.path]
            for rank, tensor in in_rows(self._pieces(array)):
                work.extend(chunks(rank, tensor, memory[: tensor.nbytes]))
                memory = memory[tensor.nbytes :]
        read_all(self._files, work)
