"""The rank's side of the memory tier: its shard in preallocated buffers that outlive the process.

A buffer is a folder, `RAM/buffer-N/`, with one shard per rank of this host in the very layout of a
durable one (`layout`, `seal`). A rank writes its own file only, and always in this order:

1. the manifest and its receipt are removed: from here on the buffer is not sealed;
2. the first eight bytes, the header's length, become 0: from here on the file is no shard;
3. the file gets its new length, the data are copied, then the header;
4. the first eight bytes, last.

So a SIGKILL leaves a whole old shard, none, or a whole new one. Who is told that it is copied has
it sealed by another process; a set is of value only once that is done. A shard that may not be what
it says is taken back by the second step and then the first: who seals it meanwhile finds out.
"""

from __future__ import annotations

import contextlib
import itertools
import mmap
import os
import threading
from collections.abc import Callable, Iterable, Sequence, Set
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import store_errors
from holdfast.journal.scratch import claim_folders
from holdfast.snapshot.arrays import Leaf, begin_transfers, on_host
from holdfast.snapshot.cuda import CudaError
from holdfast.snapshot.described import Description, Outline, Region
from holdfast.snapshot.device import Transfers, device_of
from holdfast.snapshot.device_copies import DeviceCopies
from holdfast.snapshot.late import LateCopy, UnseenWriteError
from holdfast.snapshot.lateness import by_driver, sort_out
from holdfast.snapshot.layout import Placed, header_text, least_begin, place, shard_facts
from holdfast.snapshot.memory import Block, copy_all
from holdfast.snapshot.ram_folder import buffer_name, reclaim
from holdfast.snapshot.receipt import MANIFEST, DeclaredReplicas, receipt_name, shard_name
from holdfast.snapshot.room import Room, find_room, size_words
from holdfast.snapshot.shared_file import SharedFile
from holdfast.snapshot.split import ProvenArrays, declared_paths, own_replicas, part_of
from holdfast.snapshot.staging import GLOBAL
from holdfast.snapshot.structure import Structure
from holdfast.snapshot.tree import Say, flatten

Apart = Callable[[Callable[[], Any]], Any]
"""Does some work, and gives its result; raises what it raises."""

FEWEST_TOLD = 2  # with one buffer alone the controller overwrites what it may need: better wait
_NAMES = (shard_name, receipt_name)


# Of a header in a pinned file: the file's pages must stay the same, for each change is registered
# anew while training waits, 40 ms for a GB.
PADDING_BYTES = 1 << 20
MOST_PADDING_BYTES = 8 << 20


class Named(NamedTuple):
    """What a shard says of itself."""

    attempt: int
    step: int
    epoch: int
    shared: tuple[str, ...]  # paths that belong to the run as a whole
    tags: tuple[str, ...]
    replicated: tuple[str, ...] = ()  # paths of what the framework keeps equal on all ranks
    in_parts: bool = False  # of that, this rank stores its part alone
    unproven: tuple[str, ...] = ()  # but for these arrays, of which it stores its own


class BufferFiles:
    """One rank's files in the run's memory folder. Inert in a forked child."""

    def __init__(
        self,
        ram_dir: Path,
        *,
        wanted: int,
        rank: int,
        world_size: int,
        local_world_size: int,
        local_rank: int | None = None,
        tell: Callable[[str], None] = lambda _: None,
    ) -> None:
        """`local_rank`: its place among the ranks of this host; None: all are here.

        `tell` says something to people.
        """
        first = 0 if local_rank is None else rank - local_rank
        self._ranks = range(first, first + local_world_size)  # of this host
        self._ram_dir = ram_dir
        self._wanted = wanted
        self._rank = rank
        self._world_size = world_size
        self._local_world_size = local_world_size
        self._tell = tell
        self._files = [
            SharedFile(ram_dir / buffer_name(number) / shard_name(rank)) for number in range(wanted)
        ]
        self._unswept = set(range(wanted)) if rank == first else set()
        self._pid = os.getpid()
        self._busy = [
            threading.Lock() for _ in range(wanted)
        ]  # who writes into a buffer, or makes it
        self._turns = itertools.count()
        self._filled_late: dict[int, int] = {}  # by buffer, the step that was copied beside others
        # Of the last trees, of which all was stored, or a part.
        self._outlines: dict[bool, tuple[Named, Outline]] = {}
        self._misses = 0  # trees that it was not the outline of, in a row
        self._proven = ProvenArrays()
        self._device: int | None = None  # where (some of) the state is
        self._closing = False
        self.ready = 0
        self.unpinned = ""  # why copies from a device are slow, for people

    def prepare(
        self,
        size_bytes: int,
        ready: Callable[[int], None] = lambda _: None,
        apart: Apart = lambda work: work(),
    ) -> str:
        """Have as many buffers of that size as fit, every page present. For a background thread.

        `ready` is called with how many there are as soon as they are of use, and at the end. The
        result is why they are fewer than wanted, for people; '' when they are not. Never raises.

        `apart` does what opens files, and nothing else: a driver works with descriptors that the
        process has, and must be called where they are.
        """
        if os.getpid() != self._pid:
            return ""
        self.ready = 0
        count, why = apart(lambda: self._fitting(size_bytes))
        for number in range(count):
            with self._busy[number]:  # what is ready is filled while the next one is made
                problem = self._make(number, size_bytes, apart)
            if self._closing:
                return ""
            if problem:
                why = _sentence(number, self._wanted, size_bytes, problem)
                break
            self.ready = number + 1
            if FEWEST_TOLD <= self.ready < count:
                ready(self.ready)
        ready(self.ready)
        return why or self.unpinned

    def close(self) -> None:
        """Let a `prepare` under way come to its end soon."""
        self._closing = True

    def begin(
        self,
        buffer: int,
        tree: Any,
        named: Named,
        may_be_late: Set[Region] | None,
        copies: DeviceCopies | None = None,
    ) -> LateCopy | None:
        """Copy everything into a buffer, but for arrays that may be copied later.

        The result is the rest of the work, if any: until that is over the buffer is no shard, else
        the state may change on return. `may_be_late`: where tensors are for which that holds.
        `copies` makes those of JAX's arrays on their devices.

        Raises:
            Unstorable: a value that cannot be stored; the buffer is as it was.
            StoreUnavailable: no room for a state that has grown, or the buffer is gone (`prepare`
                makes it again, beside the training); it is not sealed any more.

        """
        described = self._described(tree, named)
        placed, text = described.placed, described.text
        file, busy = self._files[buffer], self._busy[buffer]
        busy.acquire()
        is_over = True
        try:
            with store_errors(f"keep step {named.step} in memory", file.path):
                if not file.is_mapped:
                    raise StoreUnavailable(f"no snapshots in memory: {file.path} is gone")
                header = np.frombuffer(text.encode("ascii"), np.uint8)
                begin = _begin(file, least_begin(len(header)), _data_bytes(placed))
                size = begin + _data_bytes(placed)
                self._filled_late.pop(buffer, None)
                self._unseal(buffer)
                if file.size:  # else there is no page to write to
                    _store_length(file, 0)
                # Pages that are let go of now would have to be made anew for the next whole set.
                file.resize(max(size, file.size) if named.in_parts else size)
                blocks: list[Block] = []
                now, late = list(placed), None
                if may_be_late is not None or copies is not None:
                    now, late = self._set_apart(
                        described, may_be_late, copies, buffer, begin, named.step
                    )
                elif described.are_here:
                    now, blocks = _blocks(described)
                self._copy(now, file, begin, blocks)
                file.memory[8 : 8 + len(header)] = header
                file.memory[8 + len(header) : begin] = ord(" ")  # in place: that may be megabytes
                is_over = late is None
                if is_over:
                    _store_length(file, begin - 8)
                return late
        finally:
            if is_over:
                described.release()
                busy.release()

    def _set_apart(
        self,
        described: Description,
        may_be_late: Set[Region] | None,
        copies: DeviceCopies | None,
        buffer: int,
        data_begin: int,
        step: int,
    ) -> tuple[list[Placed], LateCopy | None]:
        """What is to be copied now; and what later, from where it is or from a copy of it."""
        file = self._files[buffer]
        now, later, work = sort_out(described, may_be_late, file)
        copied = None
        if copies is not None:
            copied, now = copies.take(now)
        if copied is None and not later:
            return now, None

        release, is_late = described.release, bool(later)  # no more of it: its arrays would stay

        def finish(problem: Exception | None) -> None:
            if problem is None:
                _store_length(file, data_begin - 8)
                if is_late:
                    self._filled_late[buffer] = step
            elif isinstance(problem, UnseenWriteError):
                self._take_back()
            release()
            self._busy[buffer].release()

        def fetch() -> int:
            if copied is None:
                return 0
            return copied.fetch(lambda whole: self._copy(whole, file, data_begin))

        try:
            transfers = Transfers(file.pinned, work, data_begin) if file.pinned and work else None
            late = LateCopy(
                later,
                file.memory,
                data_begin,
                transfers,
                turn=next(self._turns),
                fetch=fetch,
                finish=finish,
            )
        except CudaError as error:
            self._unpin(file, error)
            return list(described.placed), None
        return now, late

    def _copy(
        self,
        placed: Sequence[Placed],
        file: SharedFile,
        data_begin: int,
        blocks: Sequence[Block] = (),
    ) -> None:
        """All of it, to its end."""
        memory, sharers = file.memory[data_begin : file.size], self._local_world_size
        if file.pinned is None:
            begin_transfers(leaf for _, leaf, _ in placed)
        work, rest = by_driver(placed, file)
        try:
            transfers = Transfers(file.pinned, work, data_begin) if file.pinned and work else None
            if transfers is not None:
                transfers.mark()
                transfers.begin()
            copy_all(rest, memory, sharers, blocks)
            if transfers is not None:
                transfers.wait()
        except CudaError as error:
            self._unpin(file, error)
            begin_transfers(leaf for _, leaf, _ in placed)
            copy_all(placed, memory, sharers, blocks)

    def _pin(self, file: SharedFile) -> None:
        """Have copies from the device at three times the speed, if that can be."""
        if self._device is None or file.pinned is not None:
            return
        try:
            file.pin(self._device)
        except CudaError as error:
            self._unpin(file, error)

    def _unpin(self, file: SharedFile, error: CudaError) -> None:
        file.unpin()
        self.unpinned = f"snapshots in memory: copies from the device are slow, because {error}"

    def has(self, buffer: int) -> bool:
        """Whether that buffer is still there."""
        return self._files[buffer].is_mapped

    def measure(self, tree: Any, shared: Sequence[str] = GLOBAL) -> int:
        """Bytes of this rank's shard, at most; raises `Unstorable` for what cannot be stored."""
        flat = flatten(tree)
        # Where there are other hosts, the ranks of this one take turns.
        turns = 1 if self._local_world_size == self._world_size else self._local_world_size
        named = Named(0, 0, 0, tuple(shared), ())
        found = []
        self._device = None
        for epoch in range(turns):
            leaves, of = self._declared_by_jax(flat.leaves, named._replace(epoch=epoch))
            placed = place(self._own(leaves, of))
            devices = (device_of(leaf) for _, leaf, _ in placed)
            if self._device is None:
                self._device = next((number for number in devices if number is not None), None)
            text = self._header_text(placed, flat.structure, of)
            found.append(least_begin(len(text)) + _data_bytes(placed))
        return max(found)

    def declared(self, paths: Iterable[str], replicated: tuple[str, ...]) -> DeclaredReplicas:
        """What a set with these arrays that is not in a buffer is compared by."""
        return DeclaredReplicas(replicated, self._proven.lacks(declared_paths(paths, replicated)))

    @property
    def _is_shared_by_ranks(self) -> bool:
        """Whether several ranks, and all there are, share the memory of this host."""
        return self._local_world_size == self._world_size > 1

    def _declared_by_jax(
        self, leaves: tuple[Leaf, ...], named: Named
    ) -> tuple[tuple[Leaf, ...], Named]:
        """With each rank's own replica of what JAX keeps equal on all of them; the set says so."""
        if not self._is_shared_by_ranks:
            return leaves, named
        leaves, paths = own_replicas(leaves, named.shared, self._world_size)
        return leaves, named._replace(replicated=(*named.replicated, *paths))

    def _own(self, leaves: tuple[Leaf, ...], named: Named) -> tuple[Leaf, ...]:
        """What this rank stores of them in that set."""
        if named.in_parts:
            of = named.replicated, self._rank, self._world_size, named.unproven
            return part_of(leaves, *of)
        if self._local_world_size == self._world_size:
            return leaves
        return tuple(on_host(leaf, self._ranks, named.epoch) for leaf in leaves)

    def _described(self, tree: Any, named: Named) -> Description:
        """Where the arrays lie, and the header's text; of what was there before, if that can be."""
        apart = named._replace(step=0, epoch=0)  # the outline knows of nothing else
        known, outline = self._outlines.get(named.in_parts, (None, None))
        if outline is not None and known == apart:
            again = outline.describe(tree, named.step)
            if again is not None:
                self._misses = 0
                return again
        flat = flatten(tree)
        leaves, named = self._declared_by_jax(flat.leaves, named)
        declared = declared_paths([leaf.path for leaf in leaves], named.replicated)
        is_whole = not (named.in_parts and declared)
        if is_whole and self._proven.narrow(declared):
            self._outlines.pop(True, None)
        named = named._replace(unproven=self._proven.lacks(declared))
        placed = place(self._own(leaves, named))
        self._misses += 1
        # A tree that is another one each time is not worth it.
        is_worth_it = not named.tags and self._misses.bit_count() == 1
        if is_worth_it and all(map(self._is_steady, flat.leaves)):

            def write(say: Say, step: Structure) -> str:
                return self._header_text(placed, flatten(tree, say).structure, named, step)

            self._outlines[named.in_parts] = apart, Outline(tree, placed, write)
        return Description(placed, self._header_text(placed, flat.structure, named))

    def _is_steady(self, leaf: Leaf) -> bool:
        """Whether this rank stores the same part of an array each time."""
        return leaf.held is None or self._local_world_size == self._world_size

    def _header_text(
        self,
        placed: Sequence[Placed],
        structure: Structure,
        named: Named,
        step: Structure = None,
    ) -> str:
        facts = shard_facts(
            structure,
            attempt=named.attempt,
            step=named.step if step is None else step,
            rank=self._rank,
            world_size=self._world_size,
            shared=named.shared,
            tags=named.tags,
            replicated=named.replicated,
            unproven=named.unproven,
            in_parts=named.in_parts,
        )
        return header_text([entry for entry, _, _ in placed], facts)

    def _take_back(self) -> None:
        """What was copied beside the steps may have changed, too: it is no shard any more."""
        steps = sorted(self._filled_late.values())
        for buffer in self._filled_late:
            file = self._files[buffer]
            with self._busy[buffer], contextlib.suppress(OSError):
                if file.is_mapped:
                    _store_length(file, 0)
                    self._unseal(buffer)
        self._filled_late.clear()
        if steps:
            which = ", ".join(map(str, steps))
            self._tell(
                f"Snapshots: what memory holds of step {which} is not restored any more, because "
                "one that was copied beside the next step in the same way has changed meanwhile"
            )

    def _unseal(self, buffer: int) -> None:
        folder = self._ram_dir / buffer_name(buffer)
        (folder / MANIFEST).unlink(missing_ok=True)
        (folder / receipt_name(self._rank)).unlink(missing_ok=True)
        if buffer in self._unswept:
            self._unswept.discard(buffer)
            mine = {name(rank) for rank in self._ranks for name in _NAMES}
            for path in folder.glob("rank-*"):  # an earlier attempt had more ranks
                if path.name not in mine:
                    path.unlink(missing_ok=True)

    def _claim(self, *inside: str) -> None:
        """Have the run's folder, or one in it, there and private; others may empty all of it."""
        ram = self._ram_dir
        above = () if ram.is_dir() else (ram.parents[1], ram.parent)
        reason = claim_folders(os.getuid(), *above, ram, *(ram / name for name in inside))
        if reason:
            raise StoreUnavailable(f"no snapshots in memory: {reason}")

    def _make(self, buffer: int, size_bytes: int, apart: Apart) -> str:
        """Have a buffer there, and registered; returns what is wrong, or ""."""
        file = self._files[buffer]
        if not file.is_mapped or file.size < size_bytes:  # it may be mapped anew
            file.unpin()
        problem: str = apart(lambda: self._open(buffer, size_bytes))
        if not problem:
            self._pin(file)
        return problem

    def _open(self, buffer: int, size_bytes: int) -> str:
        """Map a buffer's file, with all its pages; returns what is wrong, or ""."""
        try:
            self._claim(buffer_name(buffer))
            # What is sealed may be all there is: it keeps its length until it is overwritten. Of a
            # rank that was not here then nothing is.
            file = self._files[buffer]
            sealed = os.path.lexists(self._ram_dir / buffer_name(buffer) / MANIFEST)
            sealed = sealed and os.path.lexists(file.path)
            if not file.is_mapped or (file.size < size_bytes and not sealed):
                file.open(size_bytes, keep=sealed, stopped=lambda: self._closing)
        except StoreUnavailable as error:
            return str(error)
        except OSError as error:
            return f"{error.strerror or error} ({self._files[buffer].path})"
        return ""

    def _fitting(self, size_bytes: int) -> tuple[int, str]:
        """How many buffers there is room for, and why no more. All ranks of this host ask alike."""
        each = size_bytes * self._local_world_size
        try:
            self._claim()
            room = self._room()
            if room.nbytes < each * self._wanted:
                base, key = self._ram_dir.parents[2], self._ram_dir.parent.name
                reclaim(base, but=key, enough=lambda: self._room().nbytes >= each * self._wanted)
                room = self._room()
        except StoreUnavailable as error:
            return 0, str(error)
        except OSError as error:
            return 0, _sentence(0, self._wanted, size_bytes, error.strerror or str(error))
        count = min(self._wanted, room.nbytes // max(1, each))
        if count == self._wanted:
            return count, ""
        return count, _sentence(count, self._wanted, each, room.words)

    def _room(self) -> Room:
        held = 0
        for path in self._ram_dir.glob("buffer-*/rank-*"):
            held += path.lstat().st_blocks * 512
        return find_room(self._ram_dir, held)


def _begin(file: SharedFile, least: int, data_bytes: int) -> int:
    """Where the data begins, so that a pinned file keeps its pages."""
    pinned = file.pinned
    if pinned is None:
        return least
    filling = (pinned.size_bytes - data_bytes) // mmap.PAGESIZE * mmap.PAGESIZE
    return filling if least <= filling <= least + MOST_PADDING_BYTES else least + PADDING_BYTES


def _blocks(described: Description) -> tuple[list[Placed], list[Block]]:
    """Arrays that have to be looked at; and those that follow from where they are."""
    rest, blocks = [], []
    for one, region in zip(described.placed, described.regions, strict=True):
        if region is None:
            rest.append(one)
        else:
            blocks.append(Block(one[0].begin, *region))
    return rest, blocks


def _data_bytes(placed: Sequence[Placed]) -> int:
    return placed[-1][0].end if placed else 0


def _store_length(file: SharedFile, length: int) -> None:
    file.memory[:8].view("<u8")[0] = length  # one aligned store: never torn


def _sentence(count: int, wanted: int, size_bytes: int, why: str) -> str:
    fit = (
        f"only {count} of {wanted} buffers of {size_words(size_bytes)} fit"
        if count
        else (f"no buffer of {size_words(size_bytes)} fits")
    )
    then = "" if count else "; checkpoints go to the store alone"
    return (
        f"snapshots in memory: {fit}, because {why}{then}; "
        "give it more room, or name another folder with --memory-dir"
    )
