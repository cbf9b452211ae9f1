"""A part of a set in memory for another host: what is read of it there, and how it is written here.

A host's part is a sealed buffer, or a copy that this host keeps for another one, in `copy-0` or
`copy-1` beside the buffers. What both hosts hold alike (data-parallel replicas do, to the last bit)
is neither sent nor stored twice: a copy says of such a tensor where in this host's own buffer of
the same set it lies, and its file has a hole there.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import xxhash

from holdfast.core.save.corruption import Replica, ReplicaDifference
from holdfast.core.save.word import MAX_BUFFERS
from holdfast.core.value import value
from holdfast.errors import CorruptCheckpoint, PartNotFetched, StoreUnavailable
from holdfast.journal.atomic import store_errors
from holdfast.journal.regular import is_real_folder, open_regular, read_regular
from holdfast.journal.scratch import claim_folders
from holdfast.snapshot.manifest import ManifestHead, compose_part, is_shared
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.receipt import (
    CHUNK_BYTES,
    MANIFEST,
    Receipt,
    Tensor,
    number,
    objects,
    receipt_name,
    shard_name,
)
from holdfast.snapshot.room import find_room, size_words
from holdfast.snapshot.sealed import checksum, read_sealed, write_sealed
from holdfast.snapshot.sets import SetInfo, check_size, info, read_head

COPIES = 2  # one to keep, one to write
BORROWED = "borrowed.json"
FETCHING = "fetching"  # in a buffer while its part comes from another host
NOT_FETCHED = "not-fetched"  # why it did not come
DAMAGED = "damaged"  # the same, where what came is not what was sealed
LEAST_BORROWED_BYTES = 4096  # less is sooner sent than looked up
BLOCK_BYTES = 512  # of `st_blocks`, whatever the file system has
_LOOK_S = 0.002
_REASON_BYTES = 4096
_FILES = MANIFEST, BORROWED


class PartName(NamedTuple):
    """These ranks' shards of a set."""

    attempt: int
    step: int
    ranks: tuple[int, ...]


class PartSource(Protocol):
    """Where a part is read, on another host. Raises StoreUnavailable, CorruptCheckpoint."""

    def receipts(self, part: PartName) -> list[Receipt]:
        """Of its ranks, in their order."""

    def read(self, rank: int, begin: int, end: int) -> Iterator[memoryview]:
        """Bytes of a rank's shard, in blocks."""


def copy_name(number: int) -> str:
    """The folder of a copy in a run's memory folder."""
    return f"copy-{number}"


# --- what is here ---------------------------------------------------------------------------


def held_copies(ram_dir: Path) -> tuple[SetInfo, ...]:
    """The copies that this host keeps for another one. Never raises."""
    found = []
    for copy in range(COPIES):
        folder = ram_dir / copy_name(copy)
        with contextlib.suppress(CorruptCheckpoint, StoreUnavailable, OSError):
            if is_real_folder(folder) and os.path.lexists(folder / MANIFEST):
                manifest = read_head(folder)
                for rank in manifest.ranks:
                    check_size(folder, rank, manifest.shards[rank].file_bytes)
                if _is_lent(ram_dir, folder, manifest):
                    found.append(info(folder, manifest))
    return tuple(found)


def _is_lent(ram_dir: Path, folder: Path, manifest: ManifestHead) -> bool:
    """Whether what a copy has of the host's own part of its set is there still."""
    borrowed = [one for ranges in _read_borrowed(folder).values() for one in ranges]
    for buffer, rank in {(one.buffer, one.own_rank) for one in borrowed}:
        own = read_head(ram_dir / buffer_name(buffer))
        if (own.attempt, own.step) != (manifest.attempt, manifest.step) or rank not in own.ranks:
            return False
    return True


def room_for_copy(held: Mapping[str, PartName], kept: PartName | None) -> str:
    """Which copy is written over: none of the set that is to be kept, if there is another one.

    `held`: by folder, what lies there. Of two of that set one is of other ranks than are kept now.
    """

    def worth(name: str) -> int:
        one = held.get(name)
        if one is None or kept is None or one[:2] != kept[:2]:
            return 0
        return 2 if one == kept else 1

    return min(map(copy_name, range(COPIES)), key=worth)


def find_part(ram_dir: Path, part: PartName) -> Path:
    """The folder in which that part lies; raises StoreUnavailable where there is none."""
    names = [buffer_name(one) for one in range(MAX_BUFFERS)]
    for name in [*names, *(copy_name(one) for one in range(COPIES))]:
        folder = ram_dir / name
        with contextlib.suppress(CorruptCheckpoint, StoreUnavailable):
            manifest = read_head(folder)
            if (manifest.attempt, manifest.step, tuple(manifest.ranks)) == part:
                return folder
    raise StoreUnavailable(f"step {part.step} of attempt {part.attempt} is not in memory there")


def read_receipts(folder: Path, ranks: Sequence[int]) -> list[Receipt]:
    """Of these ranks; raises CorruptCheckpoint."""
    try:
        return [Receipt.from_json(read_sealed(folder / receipt_name(rank))) for rank in ranks]
    except ValueError as error:
        raise CorruptCheckpoint(f"{folder}: {error}") from error


class PartReader:
    """The bytes of one part's shards, for a host that asks for them. Close it."""

    def __init__(self, ram_dir: Path, folder: Path) -> None:
        self._ram_dir = ram_dir
        self._folder = folder
        self._files: dict[Path, int] = {}
        self._borrowed = _read_borrowed(folder)
        self._block = bytearray()

    def close(self) -> None:
        """Let go of the files."""
        for descriptor in self._files.values():
            os.close(descriptor)
        self._files = {}

    def read(self, rank: int, begin: int, end: int) -> memoryview:
        """These bytes of a rank's shard, in memory of which the next call makes use again.

        What was overwritten meanwhile is found by whoever asks. Raises CorruptCheckpoint where
        there are none.
        """
        size = end - begin
        if size < 0:
            raise CorruptCheckpoint(f"no bytes from {begin} to {end}")
        if size > len(self._block):
            self._block = bytearray(size)
        data = memoryview(self._block)[:size]
        self._read_into(data, self._folder, rank, begin)
        for one in self._borrowed.get(rank, ()):
            start, stop = max(begin, one.begin), min(end, one.end)
            if start < stop:
                own = self._ram_dir / buffer_name(one.buffer)
                origin = one.own_begin - one.begin
                into = data[start - begin : stop - begin]
                self._read_into(into, own, one.own_rank, start + origin)
        return data

    def _read_into(self, view: memoryview, folder: Path, rank: int, begin: int) -> None:
        path = folder / shard_name(rank)
        try:
            if path not in self._files:
                self._files[path] = open_regular(path)
            count = os.preadv(self._files[path], [view], begin)
        except OSError as error:
            raise CorruptCheckpoint(f"{path} cannot be read: {error.strerror or error}") from error
        if count != len(view):
            raise CorruptCheckpoint(f"{path} ends inside its data")


class Borrowed(NamedTuple):
    """Bytes of a copy's file that lie in the host's own buffer, in the shard of `own_rank`."""

    begin: int
    end: int
    buffer: int
    own_rank: int
    own_begin: int


def _read_borrowed(folder: Path) -> dict[int, list[Borrowed]]:
    path = folder / BORROWED
    if not os.path.lexists(path):
        return {}
    try:
        said = read_sealed(path)
        found: dict[int, list[Borrowed]] = {}
        for one in objects(said, "ranges"):
            borrowed = Borrowed(*(number(one, name) for name in Borrowed._fields))
            found.setdefault(number(one, "rank"), []).append(borrowed)
    except ValueError as error:
        raise CorruptCheckpoint(f"{path}: {error}") from error
    return found


# --- what comes from another host -----------------------------------------------------------


@value
class PulledPart:
    """What was brought here, and how the two hosts' replicas compare.

    `alike`: arrays of which all ranks of both hosts have the same bytes; `differing`: those of
    which they do not, though all have one of that name and shape. Small ones are left out, and
    those that are each rank's own.
    """

    nbytes: int = 0  # that were sent
    alike: tuple[str, ...] = ()
    differing: tuple[ReplicaDifference, ...] = ()


class OwnTensors:
    """What this host's own part of the same set holds, to compare a neighbour's with."""

    def __init__(self, buffer: int = 0, receipts: Sequence[Receipt] = ()) -> None:
        self.buffer = buffer
        self._known: dict[tuple[Any, ...], list[tuple[Receipt, Tensor]]] = {}
        for receipt in receipts:
            for tensor in receipt.tensors:
                self._known.setdefault(_kind(tensor), []).append((receipt, tensor))

    def same(self, tensor: Tensor) -> tuple[Receipt, Tensor] | None:
        """One that has the same bytes by its checksums."""
        for receipt, known in self._known.get(_kind(tensor), ()):
            if known.xxh3 == tensor.xxh3:
                return receipt, known
        return None

    def compare(
        self, receipts: Sequence[Receipt]
    ) -> tuple[tuple[str, ...], tuple[ReplicaDifference, ...]]:
        """Which arrays are the same on both hosts, and which are not: see `PulledPart`."""
        alike, differing = [], []
        theirs: dict[tuple[Any, ...], list[tuple[Receipt, Tensor]]] = {}
        for receipt in receipts:
            for tensor in receipt.tensors:
                if tensor.nbytes >= LEAST_BORROWED_BYTES and _is_shared(receipt, tensor):
                    theirs.setdefault(_kind(tensor), []).append((receipt, tensor))
        for kind, found in theirs.items():
            if kind not in self._known:
                continue
            replicas = tuple(
                Replica(receipt.rank, checksum("".join(tensor.xxh3).encode()))
                for receipt, tensor in [*self._known[kind], *found]
            )
            name = found[0][1].name
            if len({one.digest for one in replicas}) == 1:
                alike.append(name)
            else:
                differing.append(ReplicaDifference(name, replicas))
        return tuple(alike), tuple(differing)


def _is_shared(receipt: Receipt, tensor: Tensor) -> bool:
    return is_shared(tensor.path, tuple(receipt.structures))


def _kind(tensor: Tensor) -> tuple[Any, ...]:
    return tensor.path, str(tensor.dtype), tensor.global_shape, tensor.index


def own_tensors(ram_dir: Path, attempt: int, step: int) -> OwnTensors:
    """Those of this host's buffer of that set; none where it has no such."""
    for buffer in range(MAX_BUFFERS):
        folder = ram_dir / buffer_name(buffer)
        with contextlib.suppress(CorruptCheckpoint, StoreUnavailable):
            manifest = read_head(folder)
            if (manifest.attempt, manifest.step) == (attempt, step):
                return OwnTensors(buffer, read_receipts(folder, manifest.ranks))
    return OwnTensors()


def pull(
    source: PartSource,
    part: PartName,
    folder: Path,
    own: OwnTensors,
    rest: Callable[[int, int], None] = lambda _, __: None,
) -> PulledPart:
    """Bring a part here, into a buffer or a copy: verified while it comes, sealed at its end.

    What is `own` already is not sent. `rest(nbytes, of)` is called after each block, with its bytes
    and those of all blocks. Raises:

    StoreUnavailable: there is no room for it, or nobody there has it.
    CorruptCheckpoint: what came is not what was sealed.
    """
    with store_errors("copy a part of a set", folder):
        before = _empty(folder, part.ranks)
        receipts = source.receipts(part)
        said = tuple((one.attempt, one.step, one.rank) for one in receipts)
        if said != tuple((part.attempt, part.step, rank) for rank in part.ranks):
            raise CorruptCheckpoint(f"another host sent {said!r:.100}, and {part} was asked for")
        plans = [_plan(receipt, own) for receipt in receipts]
        for receipt, plan in zip(receipts, plans, strict=True):
            if before.get(receipt.rank, []) != [(one.begin, one.end) for one in plan.borrowed]:
                (folder / shard_name(receipt.rank)).unlink(missing_ok=True)
        of = sum(plan.nbytes for plan in plans)
        _check_room(folder, of)
        for receipt, plan in zip(receipts, plans, strict=True):
            path = folder / shard_name(receipt.rank)
            _write(source, receipt, plan, path, lambda nbytes: rest(nbytes, of))
            write_sealed(folder / receipt_name(receipt.rank), receipt.to_json())
        ranges = [
            {"rank": receipt.rank, **one._asdict()}
            for receipt, plan in zip(receipts, plans, strict=True)
            for one in plan.borrowed
        ]
        if ranges:
            write_sealed(folder / BORROWED, {"ranges": ranges})
        try:
            manifest = compose_part(receipts, part.ranks, time.time_ns(), {})
        except ValueError as error:
            raise CorruptCheckpoint(f"what another host sent is no part: {error}") from error
        write_sealed(folder / MANIFEST, manifest.to_json())
    return PulledPart(of, *own.compare(receipts))


class _Plan(NamedTuple):
    """What of one shard is sent: its header, and these tensors."""

    nbytes: int
    sent: tuple[Tensor, ...]
    borrowed: tuple[Borrowed, ...]


def _plan(receipt: Receipt, own: OwnTensors) -> _Plan:
    sent, borrowed = [], []
    for tensor in receipt.tensors:
        same = own.same(tensor) if tensor.nbytes >= LEAST_BORROWED_BYTES else None
        if same is None:
            sent.append(tensor)
            continue
        begin, own_begin = receipt.data_begin + tensor.begin, same[0].data_begin + same[1].begin
        place = Borrowed(begin, begin + tensor.nbytes, own.buffer, same[0].rank, own_begin)
        borrowed.append(place)
    nbytes = receipt.data_begin + sum(tensor.nbytes for tensor in sent)
    return _Plan(nbytes, tuple(sent), tuple(borrowed))


def _write(
    source: PartSource, receipt: Receipt, plan: _Plan, path: Path, rest: Callable[[int], None]
) -> None:
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, 0o600)
    try:
        os.ftruncate(descriptor, receipt.file_bytes)
        header = b"".join(map(bytes, source.read(receipt.rank, 0, receipt.data_begin)))
        if checksum(header) != receipt.header_xxh3:
            raise CorruptCheckpoint(f"{path}: the header that came is not what was sealed")
        os.pwrite(descriptor, header, 0)
        for tensor in plan.sent:
            for chunk, expected in enumerate(tensor.xxh3):
                start = receipt.data_begin + tensor.begin + chunk * CHUNK_BYTES
                stop = min(start + CHUNK_BYTES, receipt.data_begin + tensor.end)
                digest, at = xxhash.xxh3_64(), start
                for block in source.read(receipt.rank, start, stop):
                    digest.update(block)
                    os.pwrite(descriptor, block, at)
                    at += len(block)
                    rest(len(block))
                if at != stop or digest.hexdigest() != expected:
                    raise CorruptCheckpoint(f"{path}: {tensor.name} is not what was sealed")
    finally:
        os.close(descriptor)


def _empty(folder: Path, ranks: Sequence[int]) -> dict[int, list[tuple[int, int]]]:
    """From here on it is no part of anything. Where its shards have holes, by rank.

    In a copy the shards of these ranks stay: memory that is there is written in a sixth of the time
    that new memory takes. In a buffer they may be mapped.
    """
    if reason := claim_folders(os.getuid(), folder.parent, folder):
        raise StoreUnavailable(f"no copy of a part: {reason}")
    holes: dict[int, list[tuple[int, int]]] = {}
    with contextlib.suppress(CorruptCheckpoint):
        for rank, borrowed in _read_borrowed(folder).items():
            holes[rank] = [(one.begin, one.end) for one in borrowed]
    for name in _FILES:
        (folder / name).unlink(missing_ok=True)
    is_copy = folder.name in (copy_name(one) for one in range(COPIES))
    kept = {shard_name(rank) for rank in ranks} if is_copy else set()
    for path in folder.glob("rank-*"):
        if path.name not in kept:
            path.unlink()
    return holes


def _check_room(folder: Path, nbytes: int) -> None:
    """What is there is written over."""
    room = find_room(folder)
    nbytes -= sum(path.stat().st_blocks * BLOCK_BYTES for path in folder.glob("rank-*"))
    if nbytes > room.nbytes:
        raise StoreUnavailable(f"a copy of {size_words(nbytes)} does not fit, because {room.words}")


# --- ranks that wait for their part ---------------------------------------------------------


def unseal(folder: Path) -> None:
    """What lies in this buffer is not to be restored."""
    (folder / MANIFEST).unlink(missing_ok=True)


def begin_fetch(folder: Path) -> None:
    """Ranks that restore from this buffer are to wait; raises StoreUnavailable."""
    if reason := claim_folders(os.getuid(), folder.parent, folder):
        raise StoreUnavailable(f"no part of a set: {reason}")
    with store_errors("fetch a part of a set", folder):
        unseal(folder)
        for name in (NOT_FETCHED, DAMAGED):
            (folder / name).unlink(missing_ok=True)
        (folder / FETCHING).touch(0o600)


def end_fetch(folder: Path, why_not: str = "", *, is_damaged: bool = False) -> None:
    """The part is there, or will not be: `why_not` is for the ranks that wait for it.

    `is_damaged`: it will never be, for what came is not what was sealed.
    """
    if why_not:
        with contextlib.suppress(OSError):  # then they find nothing there, and no reason
            path = folder / (DAMAGED if is_damaged else NOT_FETCHED)
            path.write_text(why_not, errors="replace")
    (folder / FETCHING).unlink(missing_ok=True)


def await_part(folder: Path) -> None:
    """Until it is there. Who waits ends with its agent, which fetches it.

    Raises CorruptCheckpoint, which tells why, where it will not be; PartNotFetched where it may be
    the next time.
    """
    while (folder / FETCHING).exists():
        time.sleep(_LOOK_S)
    if not os.path.lexists(folder / MANIFEST):
        for name, error in ((NOT_FETCHED, PartNotFetched), (DAMAGED, CorruptCheckpoint)):
            with contextlib.suppress(OSError):
                why = read_regular(folder / name, _REASON_BYTES).decode(errors="replace")
                raise error(f"what this host lacks of it cannot be had: {why}")


def names_of(mapping: Mapping[str, Any]) -> PartName:
    """A part's name as it came; raises ValueError."""
    ranks = mapping.get("ranks")
    if not isinstance(ranks, list) or not all(type(one) is int and one >= 0 for one in ranks):
        raise ValueError(f"the ranks are {ranks!r:.100}")
    return PartName(number(mapping, "attempt"), number(mapping, "step"), tuple(ranks))
