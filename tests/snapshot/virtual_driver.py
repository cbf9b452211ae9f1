"""A CUDA driver that is not there: its devices' memory is this process's, and it looks closely.

A copy is done where a stream is told to do it, or, with `is_slow`, where somebody waits for it.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from holdfast.snapshot import cuda, device, lateness, ram
from holdfast.snapshot.arrays import ArrayKind, ArrayPiece, Leaf
from holdfast.snapshot.cuda import CudaError
from holdfast.snapshot.device import DeviceBytes


class VirtualDriver:
    """Memory that is registered must stay what it is until it is given back."""

    def __init__(self) -> None:
        self._descriptor = os.memfd_create("a driver")
        self._file = os.fstat(self._descriptor)
        self.registered: dict[
            int, tuple[int, tuple[int, int]]
        ] = {}  # address: size, what is behind
        self.refuses = False
        self.is_slow = False
        self.copied_bytes = 0
        self.waits = 0
        self._handles = itertools.count(1)
        self._events: dict[int, list[Callable[[], None]]] = {}
        self._streams: dict[int, list[Callable[[], None]]] = {}

    def close(self) -> None:
        os.close(self._descriptor)

    def _look(self) -> None:
        """The driver asks its device by a descriptor, which a thread of ours may not have."""
        try:
            is_there = os.path.samestat(os.fstat(self._descriptor), self._file)
        except OSError:
            is_there = False
        if not is_there:
            raise CudaError("OS call failed or operation not supported on this OS (304)")

    def on(self, _: int) -> Any:
        self._look()
        return contextlib.nullcontext()

    def beside_graphs(self) -> Any:
        return contextlib.nullcontext()

    def register(self, address: int, size_bytes: int) -> None:
        if self.refuses:
            raise CudaError("cuMemHostRegister_v2: out of memory (2)")
        assert address % 4096 == size_bytes % 4096 == 0
        for start, (size, _) in self.registered.items():
            assert address + size_bytes <= start or start + size <= address, "registered twice"
        self.registered[address] = size_bytes, behind(address, size_bytes)

    def unregister(self, address: int) -> None:
        size, was = self.registered.pop(address)
        assert behind(address, size) == was, "its pages were taken away before"

    def stream(self) -> int:
        return next(self._handles)

    def event(self) -> int:
        return next(self._handles)

    def record(self, event: int, stream: int) -> None:
        self._events[event] = list(self._streams.get(stream, ()))

    def let_wait(self, stream: int, event: int) -> None:
        self.waits += 1
        self._streams.setdefault(stream, []).extend(self._events.get(event, ()))

    def wait(self, event: int) -> None:
        for do in self._events.pop(event, ()):
            do()

    def elapsed_ms(self, _: int, __: int) -> float:
        return 3.0

    def to_host(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        whole = [
            was
            for start, (size, was) in self.registered.items()
            if start <= target and target + size_bytes <= start + size
        ]
        if not whole:
            raise CudaError("cuMemcpyDtoHAsync_v2: invalid argument (1)")
        self.copied_bytes += size_bytes

        left = [source]

        def do() -> None:  # once, whoever waits for it
            while left:
                ctypes.memmove(target, left.pop(), size_bytes)

        if self.is_slow:
            self._streams.setdefault(stream, []).append(do)
        else:
            do()


def behind(address: int, size_bytes: int) -> tuple[int, int]:
    """Which file is mapped there, all of whose pages are there."""
    for line in Path("/proc/self/maps").read_text().splitlines():
        where, _, offset, _, inode, *path = line.split(maxsplit=5)
        start, stop = (int(one, 16) for one in where.split("-"))
        if start <= address < stop:
            if not path[0].endswith("(deleted)"):
                there = address - start + int(offset, 16) + size_bytes
                assert there <= -(-Path(path[0]).stat().st_size // 4096) * 4096, "no such page"
            return int(inode), size_bytes
    raise AssertionError("nothing is mapped there")


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Iterator[VirtualDriver]:
    """It is this process's, and numpy's arrays of 1,000 bytes or more are on its device 0."""
    made = VirtualDriver()
    monkeypatch.setattr(cuda, "driver", lambda: made)
    monkeypatch.setattr(device, "driver", lambda: made)
    device._lane.cache_clear()
    monkeypatch.setattr(lateness, "on_device", _on_device)
    for module in (lateness, ram):
        monkeypatch.setattr(module, "device_of", _device_of)
    monkeypatch.setattr(lateness, "stream_of", lambda _: 0)
    yield made
    made.close()


def _on_device(leaf: Leaf, piece: ArrayPiece, _: dict[int, int]) -> tuple[DeviceBytes, ...] | None:
    if _device_of(leaf) is None:
        return None
    source = piece.source
    if leaf.kind is ArrayKind.TORCH and not source.is_contiguous():
        return None
    address = source.ctypes.data if isinstance(source, np.ndarray) else source.data_ptr()
    return (DeviceBytes(0, address, source.nbytes, 0, 0),)


def _device_of(leaf: Leaf) -> int | None:
    is_large = any(leaf.nbytes(piece) >= 1000 for piece in leaf.pieces)
    return 0 if is_large and leaf.kind in (ArrayKind.NUMPY, ArrayKind.TORCH) else None
