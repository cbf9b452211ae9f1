"""The network between the hosts of a lab: a switch in a thread, which cuts and delays.

It needs no tool of the system and no module of the kernel but TAP devices.
"""

from __future__ import annotations

import contextlib
import heapq
import itertools
import os
import selectors
import threading
import time

MTU = 9000
_HEADER_BYTES = 14
_FRAMES_AT_ONCE = 64
_BACKLOG_S = 0.1  # of a line with a rate: what does not fit is lost, as in life


def address(index: int) -> str:
    """The address of a host."""
    return f"10.77.0.{index + 10}"


def ethernet(index: int) -> bytes:
    """The same in every life: its neighbours remember it for half a minute."""
    return bytes((2, 0, 0, 0, 0, index))


class Cable:
    """Frames between devices; `attach` and `detach` plug a host in and out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: dict[int, int] = {}
        self._deaf: set[int] = set()  # what is sent to these is lost
        self._dumb: set[int] = set()  # what these send is lost
        self._delay_s = 0.0
        self._rates: dict[int, float] = {}  # bytes in a second that these send
        self._free_s: dict[int, float] = {}  # when the line of these is free again
        self._late: list[tuple[float, int, int, bytes]] = []
        self._order = itertools.count()
        self._selector = selectors.DefaultSelector()
        self._woken, self._wakes = os.pipe()
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._is_over = False
        self._thread = threading.Thread(target=self._carry, name="lab-cable", daemon=True)
        self._thread.start()

    def attach(self, index: int, end: int) -> None:
        with self._lock:
            self._ends[index] = end
            self._selector.register(end, selectors.EVENT_READ, index)

    def detach(self, index: int) -> int:
        """The device's end, which no frame passes from now on."""
        with self._lock:
            end = self._ends.pop(index)
            self._selector.unregister(end)
        return end

    def block(self, index: int, *, hears: bool, speaks: bool) -> None:
        """From now on the host hears others, and is heard, or not."""
        with self._lock:
            (self._deaf.discard if hears else self._deaf.add)(index)
            (self._dumb.discard if speaks else self._dumb.add)(index)

    def delay(self, delay_s: float) -> None:
        """Every frame takes that long."""
        with self._lock:
            self._delay_s = delay_s

    def limit(self, index: int, bytes_per_s: float) -> None:
        """The host sends no faster than that."""
        with self._lock:
            self._rates[index] = bytes_per_s

    def close(self) -> None:
        self._is_over = True
        os.write(self._wakes, b".")
        self._thread.join()
        self._selector.close()
        os.close(self._woken)
        os.close(self._wakes)

    def _carry(self) -> None:
        while not self._is_over:
            wait_s = max(0.0, self._late[0][0] - time.monotonic()) if self._late else None
            ready = self._selector.select(wait_s)
            with self._lock:
                for key, _ in ready:
                    if key.data is not None and self._ends.get(key.data) == key.fd:
                        self._read(key.data, key.fd)
                while self._late and self._late[0][0] <= time.monotonic():
                    _, _, receiver, frame = heapq.heappop(self._late)
                    self._deliver(receiver, frame)

    def _read(self, sender: int, end: int) -> None:
        for _ in range(_FRAMES_AT_ONCE):
            try:
                frame = os.read(end, MTU + _HEADER_BYTES)
            except OSError:  # no more, or the device is gone
                return
            if sender not in self._dumb:
                self._send(sender, frame)

    def _send(self, sender: int, frame: bytes) -> None:
        is_for_all = frame[0] & 1
        receivers = [n for n in self._ends if n != sender] if is_for_all else [frame[5]]
        late_s = self._delay_s + self._line_s(sender, len(frame))
        if late_s > self._delay_s + _BACKLOG_S:
            return
        for receiver in receivers:
            if late_s:
                due_s = time.monotonic() + late_s
                heapq.heappush(self._late, (due_s, next(self._order), receiver, frame))
            else:
                self._deliver(receiver, frame)

    def _line_s(self, sender: int, count: int) -> float:
        """How long the sender's line is busy with what it has, and with so many bytes more."""
        if sender not in self._rates:
            return 0.0
        now_s = time.monotonic()
        begins_s = max(now_s, self._free_s.get(sender, 0.0))
        if begins_s - now_s <= _BACKLOG_S:
            self._free_s[sender] = begins_s + count / self._rates[sender]
        return begins_s - now_s + count / self._rates[sender]

    def _deliver(self, receiver: int, frame: bytes) -> None:
        if receiver in self._ends and receiver not in self._deaf:
            with contextlib.suppress(OSError):  # a full queue: the frame is lost, as in life
                os.write(self._ends[receiver], frame)
