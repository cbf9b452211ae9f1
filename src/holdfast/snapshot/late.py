"""A copy that goes on beside the next step, of arrays that will not change before they are told to.

Who changes them calls `hold` before: on a device what follows is done after the copy, and the host
goes on; arrays on the host are waited for. That nobody else changed them is looked at in turns: of
a sixteenth of the bytes a sum is taken at the boundary, and compared with the sum of what arrived.
So what changes an array at the wrong time, step after step, is found within sixteen copies.
"""

from __future__ import annotations

import contextlib
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.snapshot import arrays
from holdfast.snapshot.arrays import Bytes
from holdfast.snapshot.cuda import driver
from holdfast.snapshot.device import Transfers
from holdfast.snapshot.layout import Placed

SHARES = 16
CHECK_BYTES = 32 << 20  # brought back to the device at a time


class LateWriteError(Exception):
    """What was being copied has changed, and nobody had said so before."""


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
        finish: Callable[[bool], None],
        fetch: Callable[[], int] = lambda: 0,
    ) -> None:
        """`memory`: the buffer; `data_begin`: where in it the arrays begin.

        `transfers`: the copies, if they are on devices. `fetch` brings what need not be held, and
        returns how many ns a device had nothing else to do. `finish` is called at the end with
        whether all of it is there.
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
        self._thread: threading.Thread | None = None

    def begin(self, over: Callable[[Exception | None, int], None]) -> None:
        """Copy, in a thread; `over` is called with what went wrong, and the time others waited."""
        self._thread = threading.Thread(
            target=self._run, args=(over,), name="holdfast-late-copy", daemon=True
        )
        try:
            self._thread.start()
        except RuntimeError:  # the interpreter is ending, or the system has no thread left
            self._thread = None
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
        """Until it is over."""
        if self._thread is not None:
            self._thread.join()

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
        return not self._free.is_set()

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
        self._finish(self.problem is None)
        over(self.problem, held_ns)

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
                raise LateWriteError(f"{one.name} changed while it was copied beside the step")

    def _is_same_here(self, one: _Sum) -> bool:
        torch = sys.modules["torch"]
        data = self._memory[self._data_begin :][one.begin : one.end]
        return int(_sum(torch, torch.frombuffer(data, dtype=one.dtype))) == int(one.total)

    def _is_same_there(self, one: _Sum, transfers: Transfers) -> bool:
        """Looked at on the device, which has time for it; the host would need a core.

        On the copies' stream, which has waited for the sums: another one has steps to do first.
        """
        torch = sys.modules["torch"]
        device = torch.device("cuda", one.device)
        with torch.cuda.stream(
            torch.cuda.ExternalStream(transfers.lanes[one.device].stream, device)
        ):
            total = torch.zeros((), dtype=torch.int64, device=device)
            room = torch.empty(CHECK_BYTES, dtype=torch.uint8, device=device)
            for begin in range(one.begin, one.end, CHECK_BYTES):
                size = min(CHECK_BYTES, one.end - begin)
                start = self._data_begin + begin
                transfers.bring_back(room.data_ptr(), start, start + size, one.device)
                total += _sum(torch, room[:size].view(one.dtype))
            return int(total - one.total) == 0


class _Sum(NamedTuple):
    """What a range of the data was at the boundary, when `total` is there."""

    name: str
    begin: int
    end: int
    dtype: Any  # as integers
    device: int
    total: Any


def _sums(placed: Sequence[Placed], turn: int) -> Iterator[_Sum]:
    """Of the share whose turn it is."""
    if not placed:
        return  # and PyTorch may not be there
    torch = sys.modules["torch"]
    nbytes = sum(entry.end - entry.begin for entry, _, _ in placed)
    first, last = (nbytes * (turn % SHARES + n) // SHARES for n in (0, 1))
    before = 0
    for entry, leaf, piece in placed:
        here, before = before, before + entry.end - entry.begin
        if before <= first or here >= last:
            continue
        size = min(leaf.itemsize, 8)
        begin, end = max(first - here, 0), min(last, before) - here
        begin, end = begin - begin % leaf.itemsize, end - end % leaf.itemsize
        if begin < end:
            dtype = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
            source = piece.source
            if end - begin == source.nbytes and size == leaf.itemsize:
                source = source.view(dtype)
            else:
                source = source.view(-1).view(dtype)[begin // size : end // size]
            device = piece.source.device.index or 0
            start = entry.begin + begin
            total = _sum(torch, source)
            yield _Sum(entry.name, start, start + end - begin, dtype, device, total)


def _sum(torch: Any, numbers: Any) -> Any:
    """Modulo 2^64, so that it may be taken in parts."""
    return numbers.sum(dtype=torch.int64)
