"""What copies need of the CUDA driver, by its own calls: they serve PyTorch and JAX alike.

Both frameworks work in a device's *primary context*. An address or a stream of theirs means the
same to the driver there, and memory that is registered here is pinned for both of them.

Memory is registered slice by slice, so that the training's own calls never wait for the driver
longer than for one slice (5 ms). No copy may cross from one slice into the next ("invalid
argument"), so copies are cut there.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import os
from collections.abc import Iterator
from typing import Any

SLICE_BYTES = 256 << 20
_PORTABLE = 1  # memory that is pinned for every context
_NON_BLOCKING = 1  # a stream that does not wait for the default one
_BLOCKING_SYNC = 1  # who waits for an event sleeps
_RELAXED = 2


class CudaError(Exception):
    """A call of the driver failed."""


class Driver:
    """The driver's calls. Devices are numbers, streams and events are handles; 0: default stream.

    Every method raises CudaError. All but the shortest calls let go of the GIL.
    """

    def __init__(self) -> None:
        try:
            self._cuda = ctypes.CDLL("libcuda.so.1")
        except OSError as error:
            raise CudaError(f"there is no CUDA driver ({error})") from error
        for name, kinds in _CALLS.items():
            getattr(self._cuda, name).argtypes = kinds
        self._contexts: dict[int, ctypes.c_void_p] = {}
        self._call("cuInit", 0)

    def _call(self, name: str, *arguments: Any) -> None:
        code = getattr(self._cuda, name)(*arguments)
        if code:
            text = ctypes.c_char_p()
            self._cuda.cuGetErrorString(code, ctypes.byref(text))
            words = (text.value or b"unknown").decode(errors="replace")
            raise CudaError(f"{name}: {words} ({code})")

    @contextlib.contextmanager
    def on(self, device: int) -> Iterator[None]:
        """Calls in here are of that device, whose context a framework has made."""
        context = self._contexts.get(device)
        if context is None:
            context = ctypes.c_void_p()
            self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
            self._contexts[device] = context
        self._call("cuCtxPushCurrent_v2", context)
        try:
            yield
        finally:
            self._call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))

    @contextlib.contextmanager
    def beside_graphs(self) -> Iterator[None]:
        """A CUDA graph that is captured meanwhile has nothing to do with the calls in here."""
        mode = ctypes.c_int(_RELAXED)
        self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))

    def register(self, address: int, size_bytes: int) -> None:
        """Pin memory, for all devices."""
        self._call("cuMemHostRegister_v2", address, size_bytes, _PORTABLE)

    def unregister(self, address: int) -> None:
        """Undo `register`."""
        self._call("cuMemHostUnregister", address)

    def stream(self) -> int:
        """A new stream."""
        made = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(made), _NON_BLOCKING)
        return made.value or 0

    def event(self) -> int:
        """A new event, with its time."""
        made = ctypes.c_void_p()
        self._call("cuEventCreate", ctypes.byref(made), _BLOCKING_SYNC)
        return made.value or 0

    def record(self, event: int, stream: int) -> None:
        """The event happens when the stream has done what it was given until now."""
        self._call("cuEventRecord", event, stream)

    def let_wait(self, stream: int, event: int) -> None:
        """What the stream is given from now on waits for the event; the host does not."""
        self._call("cuStreamWaitEvent", stream, event, 0)

    def wait(self, event: int) -> None:
        """Wait here until the event has happened."""
        self._call("cuEventSynchronize", event)

    def elapsed_ms(self, first: int, second: int) -> float:
        """The time between two events that have happened; CudaError if one has not."""
        found = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(found), first, second)
        return found.value

    def to_host(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy from a device; from pinned memory's side the host does not wait."""
        self._call("cuMemcpyDtoHAsync_v2", target, source, size_bytes, stream)

    def to_device(self, target: int, source: int, size_bytes: int, stream: int) -> None:
        """Copy to a device, likewise."""
        self._call("cuMemcpyHtoDAsync_v2", target, source, size_bytes, stream)


_POINTER, _SIZE, _NUMBER, _DEVICE = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint, ctypes.c_int
_PLACE = ctypes.POINTER(ctypes.c_void_p)
_ADDRESS = ctypes.c_uint64  # of device memory
_CALLS: dict[str, tuple[Any, ...]] = {
    "cuInit": (_NUMBER,),
    "cuGetErrorString": (_DEVICE, ctypes.POINTER(ctypes.c_char_p)),
    "cuDevicePrimaryCtxRetain": (_PLACE, _DEVICE),
    "cuCtxPushCurrent_v2": (_POINTER,),
    "cuCtxPopCurrent_v2": (_PLACE,),
    "cuThreadExchangeStreamCaptureMode": (ctypes.POINTER(ctypes.c_int),),
    "cuMemHostRegister_v2": (_POINTER, _SIZE, _NUMBER),
    "cuMemHostUnregister": (_POINTER,),
    "cuStreamCreate": (_PLACE, _NUMBER),
    "cuEventCreate": (_PLACE, _NUMBER),
    "cuEventRecord": (_POINTER, _POINTER),
    "cuStreamWaitEvent": (_POINTER, _POINTER, _NUMBER),
    "cuEventSynchronize": (_POINTER,),
    "cuEventElapsedTime": (ctypes.POINTER(ctypes.c_float), _POINTER, _POINTER),
    "cuMemcpyDtoHAsync_v2": (_POINTER, _ADDRESS, _SIZE, _POINTER),
    "cuMemcpyHtoDAsync_v2": (_ADDRESS, _POINTER, _SIZE, _POINTER),
}


@functools.cache
def driver() -> Driver:
    """The driver of this process; raises CudaError where there is none."""
    return Driver()


class Pinned:
    """The first bytes of a mapping, registered with the driver. Inert in a forked child.

    Whoever has one must `release` it before a page of it leaves the mapping or the file behind it:
    a device goes on writing to the page that it was told of, whatever lies there by then.
    """

    def __init__(self, address: int, size_bytes: int, device: int) -> None:
        """Register all of it, or nothing; raises CudaError. The address is a huge page's."""
        self.size_bytes = size_bytes
        self.device = device
        self.address = address
        self._pid = os.getpid()
        self._slices: list[int] = []  # where each begins
        with driver().on(device), driver().beside_graphs():
            try:
                for start in range(0, size_bytes, SLICE_BYTES):
                    size = min(SLICE_BYTES, size_bytes - start)
                    driver().register(address + start, size)
                    self._slices.append(start)
            except CudaError:
                self._unregister()
                raise

    def release(self) -> None:
        """Nothing of it is registered any more, and no copy is under way. Again: no effect."""
        if os.getpid() == self._pid and self._slices:
            with (
                contextlib.suppress(CudaError),  # the driver is gone, and all of it with it
                driver().on(self.device),
                driver().beside_graphs(),
            ):
                self._unregister()

    def _unregister(self) -> None:
        while self._slices:
            with contextlib.suppress(CudaError):
                driver().unregister(self.address + self._slices.pop())

    def cuts(self, begin: int, end: int) -> Iterator[tuple[int, int]]:
        """A range of it, cut where slices meet."""
        while begin < end:
            stop = min(end, (begin // SLICE_BYTES + 1) * SLICE_BYTES)
            yield begin, stop
            begin = stop
