"""A copy that goes on beside the next step, of arrays that will not change before they are told to.

Who changes them calls `hold` before: on a device what follows is done after the copy, and the host
goes on; arrays on the host are waited for. That nobody else changed them is looked at in turns: of
a sixteenth of the bytes sums are taken at the boundary, and compared with those of what arrived.
So what changes an array at the wrong time, step after step, is found within sixteen copies.

A sum is of every PERIOD-th word, modulo 2^64, so what has only changed places is found, too. The
words are of 64 bits, whatever the arrays are of: others PyTorch converts first, all of them, into
up to eight times their memory.
"""

from __future__ import annotations

import contextlib
import os
import queue
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.snapshot import arrays
from holdfast.snapshot.arrays import Bytes
from holdfast.snapshot.cuda import driver
from holdfast.snapshot.device import Transfers
from holdfast.snapshot.layout import Placed
from holdfast.snapshot.receipt import Tensor

SHARES = 16
WORD_BYTES = 8
PERIOD = 1021  # a prime: rows that trade places have lengths that are no multiples of it
ROUND_BYTES = 2 * PERIOD * WORD_BYTES  # a multiple of every item's size, too
CHECK_BYTES = 2048 * ROUND_BYTES  # brought back to the device at a time
SMALL_BYTES = 1 << 16  # what is less is summed many at once: each call takes microseconds
_MOST_SMALL = CHECK_BYTES // (SMALL_BYTES + ROUND_BYTES)


class LateWriteError(Exception):
    """What was being copied has changed, and nobody had said so before."""


class UnseenWriteError(LateWriteError):
    """It was found by the sums alone, so that earlier copies may be no better."""


class LateCopy:
    """Pieces of a set that are copied by a thread. Made at the boundary, on the main thread."""

    def __init__(
        self,
        placed: Sequence[Placed],
        memory: Bytes,
        data_begin: int,
        transfers: Transfers | None,
        *,
        turn: int,
        finish: Callable[[Exception | None], None],
        fetch: Callable[[], int] = lambda: 0,
    ) -> None:
        """`memory`: the buffer; `data_begin`: where in it the arrays begin.

        `transfers`: the copies, if they are on devices. `fetch` brings what need not be held, and
        returns how many ns a device had nothing else to do. `finish` is called at the end with
        what went wrong; None: all of it is there.
        """
        self._placed: Sequence[Placed] = placed
        self._memory = memory
        self._data_begin = data_begin
        self._transfers = transfers
        self._fetch = fetch
        self._finish = finish
        self._sums: Sequence[_Sum] = tuple(_sums(placed, turn))
        if transfers is not None:
            transfers.mark()  # after the sums: the copies' stream does no compare before them
        self._begun = threading.Event()
        self._free = threading.Event()  # what is copied may change
        if not placed:
            self._free.set()
        self._held_ns = 0
        self._spoilt = ""
        self.problem: Exception | None = None  # once it is over
        self._over = threading.Event()
        self._over.set()
        self._pid = os.getpid()

    def begin(self, over: Callable[[Exception | None, int], None]) -> None:
        """Copy, in a thread; `over` is called with what went wrong, and the time others waited."""
        self._over.clear()
        try:
            _thread.give(lambda: self._run(over))
        except RuntimeError:  # the interpreter is ending, or the system has no thread left
            self._run(over)

    def hold(self, streams: Callable[[int], int]) -> None:
        """What is copied is about to change, on these streams of the devices, or on the host."""
        if self._free.is_set():
            return
        began_ns = time.perf_counter_ns()
        self._begun.wait()
        if self._transfers is None:
            self._free.wait()
        else:
            for device in self._transfers.lanes:
                self._transfers.hold(device, streams(device))
        self._held_ns += time.perf_counter_ns() - began_ns

    def spoil(self, why: str) -> None:
        """It is no good, whatever arrives."""
        self._spoilt = self._spoilt or why

    def wait(self) -> None:
        """Until it is over. In a forked child nobody ends it."""
        if os.getpid() == self._pid:
            self._over.wait()

    @property
    def was_changed(self) -> bool:
        """Whether it is no good because somebody wrote into what was copied."""
        return isinstance(self.problem, LateWriteError)

    @property
    def waits_here(self) -> bool:
        """Whether `hold` keeps the host waiting, and not a stream."""
        return self._transfers is None

    @property
    def is_under_way(self) -> bool:
        """Whether arrays may still be read."""
        return not self._free.is_set() and os.getpid() == self._pid

    def _run(self, over: Callable[[Exception | None, int], None]) -> None:
        try:
            with contextlib.nullcontext() if self._transfers is None else driver().beside_graphs():
                self._copy()
                self._free.set()
                self._held_ns += self._fetch()
                self._check()
        except Exception as error:
            self.problem = error
        self._begun.set()
        self._free.set()
        self._placed = self._sums = ()  # whose memory may be the script's alone again
        held_ns = self._held_ns
        if self._transfers is not None:
            held_ns += self._transfers.held_ns()
        try:
            self._finish(self.problem)
            over(self.problem, held_ns)
        finally:
            self._over.set()

    def _copy(self) -> None:
        if self._transfers is not None:
            self._transfers.begin()
            self._begun.set()
            self._transfers.wait()
            return
        self._begun.set()
        for entry, leaf, piece in self._placed:
            target = self._memory[self._data_begin :][entry.begin : entry.end]
            for copy in arrays.copies(leaf, piece, target):
                arrays.run(copy)

    def _check(self) -> None:
        if self._spoilt:
            raise LateWriteError(self._spoilt)
        for one in self._sums:
            if self._transfers is None:
                is_same = self._is_same_here(one)
            else:
                is_same = self._is_same_there(one, self._transfers)
            if not is_same:
                raise UnseenWriteError(f"{one.name} changed while it was copied beside the step")

    def _is_same_here(self, one: _Sum) -> bool:
        torch = sys.modules["torch"]
        data = self._memory[self._data_begin :]
        found = [torch.frombuffer(data[begin:end], dtype=torch.uint8) for begin, end in one.ranges]
        return bool(torch.equal(_sum(found), one.total))

    def _is_same_there(self, one: _Sum, transfers: Transfers) -> bool:
        """Looked at on the device, which has time for it; the host would need a core.

        On the copies' stream, which has waited for the sums: another one has steps to do first.
        """
        torch = sys.modules["torch"]
        device = torch.device("cuda", one.device)
        with torch.cuda.stream(
            torch.cuda.ExternalStream(transfers.lanes[one.device].stream, device)
        ):
            total = torch.zeros_like(one.total)
            room = torch.empty(CHECK_BYTES, dtype=torch.uint8, device=device)
            for some in _roomfuls(one.ranges):
                filled = 0
                for begin, end in some:
                    place, start = room.data_ptr() + filled, self._data_begin + begin
                    transfers.bring_back(place, start, start + end - begin, one.device)
                    filled += end - begin
                total += _sum([room[:filled]])
            return bool(torch.equal(total, one.total))


class _Sum(NamedTuple):
    """What ranges of the data were at the boundary, when `total` is there: `_sum` of them."""

    name: str
    ranges: Sequence[tuple[int, int]]
    device: int
    total: Any


def _roomfuls(ranges: Sequence[tuple[int, int]]) -> Iterator[list[tuple[int, int]]]:
    """Ranges in groups of CHECK_BYTES at most: one range that is cut, or small ones."""
    if len(ranges) > 1:
        yield list(ranges)
        return
    for first, last in ranges:
        for begin in range(first, last, CHECK_BYTES):
            yield [(begin, min(begin + CHECK_BYTES, last))]


def _sums(placed: Sequence[Placed], turn: int) -> Iterator[_Sum]:
    """Of the share whose turn it is."""
    if not placed:
        return  # and PyTorch may not be there
    small: dict[Any, list[tuple[str, tuple[int, int], Any]]] = {}
    number = 0
    for entry, itemsize, source, begin, end in _share(placed, turn):
        flat = source.view(-1)
        cut = begin + (end - begin) // ROUND_BYTES * ROUND_BYTES
        if cut - begin < SMALL_BYTES:
            cut = begin
        if begin < cut:
            part = flat[begin // itemsize : cut // itemsize]
            where = entry.begin + begin, entry.begin + cut
            yield _Sum(entry.name, [where], source.device.index or 0, _sum([part]))
        if cut < end:
            part = flat[cut // itemsize : end // itemsize]
            where = entry.begin + cut, entry.begin + end
            group = source.device, source.dtype, number // _MOST_SMALL
            small.setdefault(group, []).append((entry.name, where, part))
            number += 1
    for (device, _, _), some in small.items():
        names, ranges, parts = zip(*some, strict=True)
        name = names[0] if len(names) == 1 else f"one of {names[0]} … {names[-1]}"
        yield _Sum(name, ranges, device.index or 0, _sum(parts))


def _share(placed: Sequence[Placed], turn: int) -> Iterator[tuple[Tensor, int, Any, int, int]]:
    """What belongs to it: whose it is, bytes of an item, the array, and which bytes of it."""
    nbytes = sum([entry.end - entry.begin for entry, _, _ in placed])
    first, last = (nbytes * (turn % SHARES + n) // SHARES for n in (0, 1))
    before = 0
    for entry, leaf, piece in placed:
        here, before = before, before + entry.end - entry.begin
        if before <= first or here >= last:
            continue
        size = leaf.itemsize
        unit = max(size, WORD_BYTES)
        begin, end = max(first - here, 0), min(last, before) - here
        begin -= begin % unit
        if last < before:
            end -= end % unit
        if begin < end:
            yield entry, size, piece.source, begin, end


def _sum(parts: Sequence[Any]) -> Any:
    """Of each PERIOD-th word of flat tensors of one type, as if zeros came after them.

    The sums of parts add up to that of the whole, where it is cut at multiples of ROUND_BYTES.
    """
    torch, one = sys.modules["torch"], parts[0]
    size = one.element_size()
    missing = -sum([part.nbytes for part in parts]) % ROUND_BYTES
    has_words = not (one.data_ptr() % WORD_BYTES or one.storage_offset() * size % WORD_BYTES)
    if missing or len(parts) > 1 or not has_words:
        one = torch.cat([*parts, one.new_zeros(missing // size)])
    return one.view(torch.int64).view(-1, PERIOD).sum(0)


class _StandingThread:
    """A thread that does what it is given and waits for more: to start one takes a while."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._given: queue.SimpleQueue[Callable[[], None]] = queue.SimpleQueue()

    def give(self, work: Callable[[], None]) -> None:
        """Have it done; raises RuntimeError where nobody would do it."""
        if sys.is_finalizing():
            raise RuntimeError("the interpreter is ending")
        if self._thread is None or not self._thread.is_alive():  # or this is a forked child
            self._given = queue.SimpleQueue()
            thread = threading.Thread(
                target=_do, args=(self._given,), name="holdfast-late-copy", daemon=True
            )
            thread.start()
            self._thread = thread
        self._given.put(work)


def _do(given: queue.SimpleQueue[Callable[[], None]]) -> None:
    while True:
        try:
            given.get()()
        except Exception:
            traceback.print_exc()


_thread = _StandingThread()
