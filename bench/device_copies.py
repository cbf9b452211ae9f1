"""Copies from a device into the buffers of the memory tier: what they take, and what steps pay.

    python bench/device_copies.py [--gb 8] [--step 0.5] [machine torch torch-steps torch-run jax …]

Each part is a process of its own with a time limit; one that fails says so, and the next begins.

- machine: where buffers can be, how much memory there is, the device and its bus.
- torch: a state on the device into a mapped buffer, as it is and registered with the driver
  (pinned); the price of registering, at once and in slices, and of taking that back.
- torch-steps: steps that keep the device busy, and read and change the whole state at their end:
  alone, with a copy at the boundary, with one beside the step, with one on the device first.
- torch-run: a training under `holdfast run`, alone and with a snapshot in each step.
- jax, jax-steps: the same with JAX's own ways to the host, and the driver's.

Without a device the parts run on the CPU, for what that is worth: `--gb 0.1 --step 0.02`.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import json
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve()
SOURCES = HERE.parents[1] / "src"
sys.path.insert(0, str(SOURCES))

LIMITS_S = {
    "machine": 20,
    "torch": 75,
    "torch-steps": 90,
    "torch-run": 100,
    "jax": 60,
    "jax-steps": 75,
}
SIDE = 4096
GB = 1e9

# --- telling ------------------------------------------------------------------------------------


def tell(what: str, words: str) -> None:
    print(f"  {what:<58} {words}", flush=True)


@contextlib.contextmanager
def attempt(what: str) -> Iterator[None]:
    """A measure that fails is told of, and is the loss of that measure only."""
    try:
        yield
    except Exception as error:
        tell(what, f"FAILED: {type(error).__name__}: {str(error).splitlines()[:1]}")
        print(traceback.format_exc(limit=4), file=sys.stderr, flush=True)


def seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def ms(values: list[float]) -> str:
    middle = statistics.median(values)
    return f"{middle * 1e3:9.2f} ms ({min(values) * 1e3:.2f} … {max(values) * 1e3:.2f})"


def rate(nbytes: int, values: list[float]) -> str:
    return f"{ms(values)}  {nbytes / GB / statistics.median(values):6.1f} GB/s"


# --- the parts as processes ---------------------------------------------------------------------


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("parts", nargs="*", default=list(LIMITS_S))
    parser.add_argument("--gb", type=float, default=8.0)
    parser.add_argument("--step", type=float, default=0.5)
    parser.add_argument("--steps", type=int, default=5, help="of each kind")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.part:
        PARTS[asked.part](asked)
        return
    began = time.perf_counter()
    for part in asked.parts:
        one_part(part, sys.argv[1:])
    print(f"all: {time.perf_counter() - began:.0f} s", flush=True)


def one_part(part: str, words: list[str]) -> None:
    print(f"== {part}", flush=True)
    began = time.perf_counter()
    process = subprocess.Popen(
        [sys.executable, str(HERE), *words, "--part", part], start_new_session=True
    )
    try:
        process.wait(LIMITS_S[part])
    except subprocess.TimeoutExpired:
        print(f"== {part}: not within {LIMITS_S[part]} s", flush=True)
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    print(f"== {part}: rc {process.returncode}, {time.perf_counter() - began:.1f} s\n", flush=True)


# --- a place for buffers ------------------------------------------------------------------------


def memory_folder(nbytes: int) -> Path:
    """/dev/shm if it has room, else the tmpfs that has most."""
    found = [Path("/dev/shm")]
    for line in Path("/proc/mounts").read_text().splitlines():
        _, place, kind, *_ = line.split()
        if kind == "tmpfs":
            found.append(Path(place))

    def free(place: Path) -> int:
        try:
            told = os.statvfs(place)
        except OSError:
            return 0
        return told.f_bavail * told.f_frsize if os.access(place, os.W_OK) else 0

    if free(found[0]) > nbytes:
        return found[0]
    return max(found, key=free)


@contextlib.contextmanager
def buffer(nbytes: int) -> Iterator[Any]:
    """A buffer file of the memory tier, all its pages there; a memfd where no tmpfs has room."""
    from holdfast.snapshot.shared_file import SharedFile

    place = memory_folder(nbytes + (1 << 30))
    folder = Path(tempfile.mkdtemp(prefix="device-copies-", dir=place))
    try:
        file = SharedFile(folder / "buffer")
        try:
            took = seconds(lambda: file.open(nbytes, keep=False))
            tell(f"a buffer of {nbytes / GB:.1f} GB in {place}", ms([took]))
            memory = file.memory[:nbytes]
        except OSError as error:
            tell(f"no buffer in {place}: {error}", "a memfd instead")
            import mmap

            import numpy as np

            descriptor = os.memfd_create("device-copies")
            os.posix_fallocate(descriptor, 0, nbytes)
            memory = np.frombuffer(mmap.mmap(descriptor, nbytes), np.uint8)
        yield memory
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# --- the driver ---------------------------------------------------------------------------------


class Driver:
    """The few calls of libcuda that a copier needs, on the device's primary context."""

    def __init__(self) -> None:
        cuda = self._cuda = ctypes.CDLL("libcuda.so.1")
        pointer, size, number = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_uint
        cuda.cuMemHostRegister_v2.argtypes = (pointer, size, number)
        cuda.cuMemHostUnregister.argtypes = (pointer,)
        cuda.cuMemcpyDtoHAsync_v2.argtypes = (pointer, ctypes.c_uint64, size, pointer)
        cuda.cuStreamCreate.argtypes = (ctypes.POINTER(pointer), number)
        cuda.cuStreamSynchronize.argtypes = (pointer,)
        cuda.cuCtxSetCurrent.argtypes = (pointer,)
        cuda.cuDevicePrimaryCtxRetain.argtypes = (ctypes.POINTER(pointer), ctypes.c_int)
        self._check(cuda.cuInit(0))
        self._context = pointer()
        self._check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(self._context), 0))

    def _check(self, code: int) -> None:
        if code:
            raise RuntimeError(f"CUDA error {code}")

    def enter(self) -> None:
        """The context becomes this thread's."""
        self._check(self._cuda.cuCtxSetCurrent(self._context))

    def register(self, address: int, size: int, flags: int = 1) -> None:
        self._check(self._cuda.cuMemHostRegister_v2(address, size, flags))

    def unregister(self, address: int) -> None:
        self._check(self._cuda.cuMemHostUnregister(address))

    def stream(self) -> Any:
        made = ctypes.c_void_p()
        self._check(self._cuda.cuStreamCreate(ctypes.byref(made), 1))
        return made

    def to_host(self, target: int, source: int, size: int, stream: Any) -> None:
        self._check(self._cuda.cuMemcpyDtoHAsync_v2(target, source, size, stream))

    def wait(self, stream: Any) -> None:
        self._check(self._cuda.cuStreamSynchronize(stream))


@contextlib.contextmanager
def registered(driver: Driver | None, memory: Any) -> Iterator[None]:
    if driver is None:
        yield
        return
    driver.enter()
    driver.register(memory.ctypes.data, memory.size)
    try:
        yield
    finally:
        driver.unregister(memory.ctypes.data)


def driver_or_none() -> Driver | None:
    try:
        return Driver()
    except (OSError, RuntimeError) as error:
        tell("the driver", f"none: {error}")
        return None


# --- machine ------------------------------------------------------------------------------------


def machine_part(_: argparse.Namespace) -> None:
    commands = (
        "nvidia-smi --query-gpu=name,memory.total,pcie.link.gen.current,pcie.link.width.current,"
        "driver_version --format=csv,noheader",
        "uname -r",
        "df -h /dev/shm /tmp",
        "grep tmpfs /proc/mounts",
        "head -3 /proc/meminfo",
        "cat /sys/kernel/mm/transparent_hugepage/shmem_enabled",
        "cat /sys/fs/cgroup/memory.max",
        "grep -m1 'model name' /proc/cpuinfo",
        "ulimit -l",
        "id -u",
    )
    for command in commands:
        found = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=15, check=False
        )
        print(
            f"  $ {command}\n    " + (found.stdout + found.stderr).strip().replace("\n", "\n    ")
        )
    tell("cores", str(len(os.sched_getaffinity(0))))


# --- torch --------------------------------------------------------------------------------------


def torch_state(torch: Any, gb: float, device: str) -> list[Any]:
    """As many matrices, and as many biases, as make up so many bytes."""
    side = SIDE if gb >= 1 else 512
    count = max(1, round(gb * GB / (side * side * 4)))
    state = [torch.full((side, side), float(n), device=device) for n in range(count)]
    return state + [torch.full((side,), float(n), device=device) for n in range(count)]


class Torch:
    """The state, the buffer, and a view of the buffer for each tensor."""

    def __init__(self, asked: argparse.Namespace, memory: Any, state: list[Any]) -> None:
        import torch

        self.torch = torch
        self.is_cuda = torch.cuda.is_available()
        self.state = state
        self.memory = memory
        self.targets = []
        begin = 0
        for tensor in state:
            end = begin + tensor.nbytes
            flat = torch.frombuffer(memory[begin:end], dtype=tensor.dtype)
            self.targets.append(flat.view(tensor.shape))
            begin = end
        self.nbytes = begin
        self.side = torch.cuda.Stream() if self.is_cuda else None

    def sync(self) -> None:
        if self.is_cuda:
            self.torch.cuda.synchronize()

    def pageable(self, threads: int) -> None:
        pending = list(zip(self.targets, self.state, strict=True))

        def drain() -> None:
            with contextlib.suppress(IndexError):
                while True:
                    target, source = pending.pop()
                    target.copy_(source)

        helping = [threading.Thread(target=drain) for _ in range(threads - 1)]
        for one in helping:
            one.start()
        drain()
        for one in helping:
            one.join()

    def enqueue(self, sources: list[Any] | None = None) -> Any:
        """All copies on the side stream, after what the main stream has to do now; an event."""
        torch = self.torch
        before = torch.cuda.current_stream().record_event()
        return self.enqueue_after(before, sources)

    def enqueue_after(self, before: Any, sources: list[Any] | None = None) -> Any:
        torch, side = self.torch, self.side
        side.wait_event(before)
        with torch.cuda.stream(side), torch.no_grad():
            for target, source in zip(self.targets, sources or self.state, strict=True):
                target.copy_(source, non_blocking=True)
        return side.record_event()

    def compare(self, turn: int) -> Any:
        """A sixteenth of what was copied, brought back and compared on the device."""
        torch, side = self.torch, self.side
        with torch.cuda.stream(side), torch.no_grad():
            wrong = torch.zeros((), dtype=torch.bool, device="cuda")
            for target, source in zip(self.targets, self.state, strict=True):
                rows = max(1, len(source) // 16)
                first = turn % 16 * rows % len(source)
                back = target[first : first + rows].to("cuda", non_blocking=True)
                wrong |= (back != source[first : first + rows]).any()
        return wrong

    def check(self) -> str:
        self.sync()
        spots = range(0, len(self.state), max(1, len(self.state) // 8))
        same = all(self.torch.equal(self.targets[n], self.state[n].cpu()) for n in spots)
        return "the same" if same else "NOT THE SAME"


def torch_part(asked: argparse.Namespace) -> None:
    import torch

    is_cuda = torch.cuda.is_available()
    device = "cuda" if is_cuda else "cpu"
    began = time.perf_counter()
    state = torch_state(torch, asked.gb, device)
    tell(
        f"torch {torch.__version__}, {len(state)} tensors on {device}",
        ms([time.perf_counter() - began]),
    )
    nbytes = sum(tensor.nbytes for tensor in state)
    room = -(-nbytes // (2 << 20)) * (2 << 20)
    with buffer(room) as memory:
        one = Torch(asked, memory, state)
        for threads in (1, 4, 8):
            with attempt(f"pageable, {threads} threads"):
                took = [seconds(lambda n=threads: (one.pageable(n), one.sync())) for _ in range(2)]
                tell(f"pageable, {threads} threads", f"{rate(nbytes, took)} {one.check()}")
        with attempt("as Holdfast copies today"):
            from holdfast.snapshot.layout import place
            from holdfast.snapshot.memory import copy_all
            from holdfast.snapshot.tree import flatten

            tree = {"state": state}
            took = [seconds(lambda: flatten(tree)) for _ in range(5)]
            tell("describe", ms(took))
            placed = place(flatten(tree).leaves)
            took = [seconds(lambda: copy_all(placed, memory)) for _ in range(3)]
            tell("as Holdfast copies today (copy_all)", rate(nbytes, took))
        if not is_cuda:
            tell("registering", "no device")
            return
        registering(torch, one, memory, room)


def registering(torch: Any, one: Torch, memory: Any, room: int) -> None:
    cudart = torch.cuda.cudart()
    address = memory.ctypes.data
    gb = room / GB

    def check(code: Any) -> None:
        if int(getattr(code, "value", code)) != 0:
            raise RuntimeError(f"cudart says {code}")

    for size in (64 << 20, 256 << 20, 1 << 30):
        what = f"register in slices of {size >> 20} MiB"
        with attempt(what):
            places = [(at, min(size, room - at)) for at in range(0, room, size)]
            took = [
                seconds(lambda at=at, n=n: check(cudart.cudaHostRegister(address + at, n, 1)))
                for at, n in places
            ]
            tell(what, f"{sum(took) / gb * 1e3:.1f} ms per GB; one slice {ms(took)}")
            if size == 1 << 30 and len(places) > 1:
                with attempt("a copy across two slices"):
                    flat = memory[size - (32 << 20) : size + (32 << 20)]
                    target = torch.frombuffer(flat, dtype=torch.float32)
                    source = torch.full((flat.size // 4,), 7.0, device="cuda")
                    target.copy_(source, non_blocking=True)
                    torch.cuda.synchronize()
                    tell("a copy across two slices", f"works, right: {bool((target == 7).all())}")
            back = [
                seconds(lambda at=at: check(cudart.cudaHostUnregister(address + at)))
                for at, _ in places
            ]
            tell("  … and back", f"{sum(back) / gb * 1e3:.1f} ms per GB; one slice {ms(back)}")
    with attempt("register beside small kernels"):
        small = torch.ones(1024, device="cuda")
        torch.cuda.synchronize()

        def gaps(until: Callable[[], bool]) -> list[float]:
            found = []
            while not until():
                found.append(seconds(lambda: (small.mul_(1.0), torch.cuda.synchronize())))
            return found

        quiet_until = time.perf_counter() + 0.3
        quiet = gaps(lambda: time.perf_counter() > quiet_until)
        took_s: list[float] = []

        def slices() -> None:
            for at in range(0, room, 64 << 20):
                n = min(64 << 20, room - at)
                began = time.perf_counter()
                check(cudart.cudaHostRegister(address + at, n, 1))
                took_s.append(time.perf_counter() - began)

        thread = threading.Thread(target=slices)
        thread.start()
        beside = gaps(lambda: not thread.is_alive())
        tell("a small kernel and a wait, alone", ms(quiet))
        tell("… while a thread registers slices of 64 MiB", ms(beside))
        tell("… and that takes then", f"{sum(took_s) / gb * 1e3:.1f} ms per GB")
        for at in range(0, room, 64 << 20):
            check(cudart.cudaHostUnregister(address + at))
    with attempt("register at once"):
        took = [seconds(lambda: check(cudart.cudaHostRegister(address, room, 1)))]
        tell("register at once", f"{took[0] / gb * 1e3:.1f} ms per GB")
        tell("the buffer is pinned, says torch", str(one.targets[0].is_pinned()))
        host, took = [], []
        for _ in range(4):
            began = time.perf_counter()
            one.enqueue()
            host.append(time.perf_counter() - began)
            torch.cuda.synchronize()
            took.append(time.perf_counter() - began)
        tell("pinned, on a side stream", f"{rate(one.nbytes, took)} {one.check()}")
        tell("… the host enqueues for", ms(host))
        with attempt("compare a sixteenth on the device"):
            took = []
            for turn in range(4):
                began = time.perf_counter()
                wrong = one.compare(turn)
                enqueued = time.perf_counter() - began
                torch.cuda.synchronize()
                took.append(time.perf_counter() - began)
            words = f"{ms(took)} enqueued in {enqueued * 1e3:.2f} ms; wrong: {bool(wrong)}"
            tell("compare a sixteenth on the device", words)
        with attempt("copy on the device"):
            took = []
            for _ in range(3):
                began = time.perf_counter()
                clones = [tensor.clone() for tensor in one.state]
                torch.cuda.synchronize()
                took.append(time.perf_counter() - began)
                del clones
            tell("copy on the device (the first allocates)", rate(one.nbytes, took))
        took = [seconds(lambda: check(cudart.cudaHostUnregister(address)))]
        tell("unregister at once", f"{took[0] / gb * 1e3:.1f} ms per GB")
    with attempt("the driver's own calls, from a thread"):
        driver = Driver()
        said: list[str] = []

        def by_driver() -> None:
            try:
                driver.enter()
                size = min(room, 1 << 30)
                took = seconds(lambda: driver.register(address, size))
                stream = driver.stream()
                source = one.state[0]
                driver.to_host(address, source.data_ptr(), source.nbytes, stream)
                driver.wait(stream)
                said.append(
                    f"{took / size * GB * 1e3:.1f} ms per GB, pinned {one.targets[0].is_pinned()}"
                )
                said.append(one.check())
                driver.unregister(address)
            except Exception as error:
                said.append(repr(error))

        thread = threading.Thread(target=by_driver)
        thread.start()
        thread.join(20)
        tell("the driver's own calls (ctypes), from a thread", "; ".join(said))
    with attempt("small pages"):
        size = min(room, 1 << 30)
        descriptor = os.memfd_create("small")
        os.posix_fallocate(descriptor, 0, size)
        import mmap

        import numpy as np

        small_pages = np.frombuffer(mmap.mmap(descriptor, size), np.uint8)
        took = [seconds(lambda: check(cudart.cudaHostRegister(small_pages.ctypes.data, size, 1)))]
        tell("register small pages", f"{took[0] / size * GB * 1e3:.1f} ms per GB")
        check(cudart.cudaHostUnregister(small_pages.ctypes.data))
    with attempt("pin_memory"):
        size = min(room, 1 << 30)
        made: list[Any] = []
        took = [seconds(lambda: made.append(torch.empty(size, dtype=torch.uint8, pin_memory=True)))]
        tell("torch's own pinned memory", f"{took[0] / size * GB * 1e3:.1f} ms per GB")


# --- torch, beside steps ------------------------------------------------------------------------


def torch_steps_part(asked: argparse.Namespace) -> None:
    import torch

    if not torch.cuda.is_available():
        tell("steps", "no device")
        return
    state = torch_state(torch, asked.gb, "cuda")
    nbytes = sum(tensor.nbytes for tensor in state)
    room = -(-nbytes // (2 << 20)) * (2 << 20)
    with buffer(room) as memory:
        one = Torch(asked, memory, state)
        left = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        right = torch.randn(8192, 8192, device="cuda", dtype=torch.bfloat16)
        out = torch.empty_like(left)

        def work(count: int) -> None:
            for _ in range(count):
                torch.matmul(left, right, out=out)

        work(20)
        torch.cuda.synchronize()
        each = seconds(lambda: (work(50), torch.cuda.synchronize())) / 50
        count = max(1, int(asked.step / each))
        tell(f"a step is {count} products", ms([each * count]))

        def step(before_update: Callable[[], None] = lambda: None) -> None:
            work(count)
            before_update()
            torch._foreach_add_(state, 1.0)
            out[0, 0].item()  # a script that looks at its loss

        def measure(
            what: str,
            boundary: Callable[[], Any],
            before_update: Callable[[Any], None] = lambda _: None,
            after: Callable[[Any], None] = lambda _: None,
            steps: int = asked.steps,
        ) -> None:
            with attempt(what):
                blocked, took = [], []
                for number in range(steps + 1):
                    began = time.perf_counter()
                    token = boundary()
                    blocked.append(time.perf_counter() - began)
                    step(lambda token=token: before_update(token))
                    after(token)
                    took.append(time.perf_counter() - began)
                    if number == 0:
                        blocked, took = [], []
                tell(what, f"step {ms(took)}; blocked {ms(blocked)}")

        main = torch.cuda.current_stream()
        measure("alone", lambda: None)
        measure("pageable, at the boundary", lambda: one.pageable(8), steps=2)
        cudart = torch.cuda.cudart()
        thread = threading.Thread(
            target=lambda: [
                cudart.cudaHostRegister(memory.ctypes.data + at, min(64 << 20, room - at), 1)
                for at in range(0, room, 64 << 20)
            ]
        )
        measure(
            "while a thread registers the buffer in slices",
            lambda: thread.is_alive() or (thread.ident or thread.start()),
        )
        thread.join(30)
        for at in range(0, room, 64 << 20):
            cudart.cudaHostUnregister(memory.ctypes.data + at)
        cudart.cudaHostRegister(memory.ctypes.data, room, 1)
        try:
            beside_steps(torch, one, measure, main)
            measure("alone again", lambda: None)
        finally:
            torch.cuda.synchronize()
            cudart.cudaHostUnregister(memory.ctypes.data)


def beside_steps(torch: Any, one: Torch, measure: Callable[..., None], main: Any) -> None:
    measure("pinned, at the boundary", lambda: one.enqueue().synchronize(), steps=4)
    measure("pinned, beside the step", one.enqueue, main.wait_event)

    work: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def copier() -> None:
        while (item := work.get()) is not None:
            before, done, is_compared = item
            try:
                event = one.enqueue_after(before)
                wrong = one.compare(7) if is_compared else None
                if wrong is not None:
                    event = one.side.record_event()
                done.put((event, wrong))
            except Exception as error:
                done.put((error, None))

    thread = threading.Thread(target=copier, daemon=True)
    thread.start()

    def hand_over(is_compared: bool) -> Any:
        done: queue.SimpleQueue[Any] = queue.SimpleQueue()
        work.put((main.record_event(), done, is_compared))
        return done

    def wait(done: Any) -> None:
        event, _ = done.get(timeout=10)
        main.wait_event(event)

    measure("pinned, beside the step, enqueued by a thread", lambda: hand_over(False), wait)
    measure("… and a sixteenth compared", lambda: hand_over(True), wait)
    work.put(None)
    thread.join(10)

    clones = [torch.empty_like(tensor) for tensor in one.state]

    def on_device() -> Any:
        torch._foreach_copy_(clones, one.state)
        return one.enqueue(clones)

    measure("copied on the device, fetched beside the step", on_device, lambda _: None)


# --- jax ----------------------------------------------------------------------------------------


def jax_state(jax: Any, gb: float) -> dict[str, Any]:
    import jax.numpy as jnp

    side = SIDE if gb >= 1 else 512
    count = max(1, round(gb * GB / (side * side * 4)))

    @jax.jit
    def make() -> dict[str, Any]:
        state = {f"w{n}": jnp.full((side, side), float(n)) for n in range(count)}
        return state | {f"b{n}": jnp.full((side,), float(n)) for n in range(count)}

    return jax.block_until_ready(make())


class Jax:
    """Ways from the device into a buffer."""

    def __init__(self, jax: Any, memory: Any, driver: Driver | None) -> None:
        self.jax = jax
        self.memory = memory
        self.driver = driver
        self.fresh = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf + 0.5, tree))
        self.copy = jax.jit(lambda tree: jax.tree.map(jax.numpy.copy, tree))
        self._stream: Any = None

    def today(self, state: Any) -> None:
        from holdfast.snapshot.arrays import begin_transfers
        from holdfast.snapshot.layout import place
        from holdfast.snapshot.memory import copy_all
        from holdfast.snapshot.tree import flatten

        flat = flatten({"state": state})
        begin_transfers(flat.leaves)
        copy_all(place(flat.leaves), self.memory)

    def by_driver(self, state: Any) -> None:
        driver = self.driver
        if driver is None:
            raise RuntimeError("no driver")
        self.jax.block_until_ready(state)
        driver.enter()
        if self._stream is None:
            self._stream = driver.stream()
        begin = 0
        for leaf in state.values():
            driver.to_host(
                self.memory.ctypes.data + begin,
                leaf.unsafe_buffer_pointer(),
                leaf.nbytes,
                self._stream,
            )
            begin += leaf.nbytes
        driver.wait(self._stream)

    def pinned(self, state: Any) -> Any:
        kind = self.jax.sharding.SingleDeviceSharding(
            self.jax.devices()[0], memory_kind="pinned_host"
        )
        return self.jax.block_until_ready(self.jax.device_put(state, kind))

    def check(self, state: Any) -> str:
        import numpy as np

        begin, same = 0, True
        for number, leaf in enumerate(state.values()):
            end = begin + leaf.nbytes
            if number % 17 == 0:
                same &= bool(
                    (self.memory[begin:end].view(np.float32) == np.asarray(leaf).ravel()).all()
                )
            begin = end
        return "the same" if same else "NOT THE SAME"


def jax_part(asked: argparse.Namespace) -> None:
    import jax
    import numpy as np

    tell(f"jax {jax.__version__}", str(jax.devices()))
    state = jax_state(jax, asked.gb)
    nbytes = sum(leaf.nbytes for leaf in state.values())
    room = -(-nbytes // (2 << 20)) * (2 << 20)
    driver = driver_or_none() if jax.default_backend() != "cpu" else None
    with buffer(room) as memory:
        one = Jax(jax, memory, driver)

        def fresh() -> Any:
            return jax.block_until_ready(one.fresh(state))

        def measure(what: str, run: Callable[[Any], Any], times: int = 2) -> None:
            with attempt(what):
                took, last = [], None
                for _ in range(times):
                    given = fresh()
                    took.append(seconds(lambda given=given: run(given)))
                    last = given
                tell(what, rate(nbytes, took))
                del last

        measure("device_get", jax.device_get)
        measure("as Holdfast copies today", one.today)
        measure("copy on the device", lambda given: jax.block_until_ready(one.copy(given)), 3)
        with attempt("pinned_host"):
            moved: list[Any] = []
            measure("device_put to pinned_host", lambda given: moved.append(one.pinned(given)), 2)
            took = [seconds(lambda: [np.asarray(leaf) for leaf in moved[-1].values()])]
            tell("… and seen as numpy arrays", ms(took))
            moved.clear()
        if driver is not None:
            measure("by the driver, pageable", one.by_driver)
            with registered(driver, memory):
                measure("by the driver, registered", one.by_driver, 3)
                given = fresh()
                one.by_driver(given)
                tell("… and it is", one.check(given))


def jax_steps_part(asked: argparse.Namespace) -> None:
    import functools

    import jax
    import jax.numpy as jnp

    state = jax_state(jax, asked.gb)
    nbytes = sum(leaf.nbytes for leaf in state.values())
    room = -(-nbytes // (2 << 20)) * (2 << 20)
    is_cpu = jax.default_backend() == "cpu"
    side = 512 if is_cpu else 8192
    left = jnp.ones((side, side), jnp.bfloat16)

    @functools.partial(jax.jit, donate_argnums=0)
    def train(state: Any, matrix: Any, count: Any) -> Any:
        def body(_: Any, x: Any) -> Any:
            return (x @ matrix) * jnp.bfloat16(1e-4)

        done = jax.lax.fori_loop(0, count, body, matrix)
        loss = done[0, 0].astype(jnp.float32)
        return jax.tree.map(lambda leaf: leaf + 1 + 0 * loss, state), loss

    state, _ = train(state, left, 20)
    jax.block_until_ready(state)
    began = time.perf_counter()
    state, _ = train(state, left, 50)
    jax.block_until_ready(state)
    count = max(1, int(50 * asked.step / (time.perf_counter() - began)))
    driver = None if is_cpu else driver_or_none()
    with buffer(room) as memory:
        one = Jax(jax, memory, driver)

        def measure(what: str, boundary: Callable[[Any], Any], steps: int = asked.steps) -> None:
            nonlocal state
            with attempt(what):
                blocked, took, waited = [], [], []
                token = None
                for number in range(steps + 1):
                    began = time.perf_counter()
                    if token is not None:
                        token.join()
                    waited.append(time.perf_counter() - began)
                    token = boundary(state)
                    blocked.append(time.perf_counter() - began)
                    state, loss = train(state, left, count)
                    float(loss)
                    took.append(time.perf_counter() - began)
                    if number == 0:
                        blocked, took, waited = [], [], []
                if token is not None:
                    token.join()
                tell(
                    what, f"step {ms(took)}; blocked {ms(blocked)}; for the one before {ms(waited)}"
                )

        def beside(fetch: Callable[[Any], Any]) -> Callable[[Any], threading.Thread]:
            def boundary(given: Any) -> threading.Thread:
                copied = one.copy(given)
                thread = threading.Thread(target=lambda: fetch(copied))
                thread.start()
                return thread

            return boundary

        measure("alone", lambda _: None)
        measure("as Holdfast copies today", one.today, 2)
        measure("copied on the device, not fetched", lambda given: one.copy(given) and None)
        measure("copied on the device, fetched as today", beside(one.today))
        measure("copied on the device, fetched to pinned_host", beside(one.pinned))
        if driver is not None:
            with registered(driver, memory):
                measure("copied on the device, fetched by the driver", beside(one.by_driver))
        measure("alone again", lambda _: None)


# --- a run --------------------------------------------------------------------------------------

TRAINER = """
import json, os, sys, time
import torch
import holdfast as hf
gb, step_s, steps = float(os.environ["GB"]), float(os.environ["STEP_S"]), int(os.environ["STEPS"])
device = "cuda" if torch.cuda.is_available() else "cpu"
torch.manual_seed(1)
torch.set_float32_matmul_precision("high")
side = 4096 if gb >= 1 else 512
layers = max(1, round(gb * 1e9 / (side * side * 12)))
model = torch.nn.Sequential(*[torch.nn.Linear(side, side) for _ in range(layers)]).to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-6, fused=device == "cuda")
run = hf.start()
run.track(model=model, optimizer=optimizer)
run.restore()
batch = torch.randn(8192 if device == "cuda" else 64, side, device=device)
def backward(count):
    for _ in range(count):
        loss = model(batch).square().mean()
        loss.backward()
    return loss
backward(1); optimizer.step(); optimizer.zero_grad(); float(backward(1))
began = time.perf_counter(); float(backward(3))
count = max(1, round(step_s / ((time.perf_counter() - began) / 3)))
optimizer.zero_grad()
steps_s, done_s = [], []
for step in run.steps(steps):
    began = time.perf_counter()
    loss = backward(count)
    optimizer.step()
    optimizer.zero_grad()
    value = float(loss)
    if device == "cuda":
        torch.cuda.synchronize()
    at = time.perf_counter()
    run.done(step)
    ended = time.perf_counter()
    steps_s.append(ended - began)
    done_s.append(ended - at)
    if step == steps - 1:
        with open(os.environ["FOUND"] + ".part", "w") as out:
            json.dump({"steps": steps_s, "done": done_s, "layers": layers, "count": count}, out)
        os.rename(os.environ["FOUND"] + ".part", os.environ["FOUND"])
"""


def torch_run_part(asked: argparse.Namespace) -> None:
    nbytes = int(asked.gb * GB)
    place = memory_folder(4 * nbytes)
    for what, options, steps in (("a snapshot in each step", ["--snapshot-every", "1"], 12),):
        with (
            attempt(what),
            tempfile.TemporaryDirectory() as work,
            tempfile.TemporaryDirectory(dir=place) as ram,
        ):
            one_run(asked, what, options, steps, Path(work), Path(ram))


def one_run(
    asked: argparse.Namespace, what: str, options: list[str], steps: int, work: Path, ram: Path
) -> None:
    script, found, log = work / "trainer.py", work / "found", work / "log"
    script.write_text(TRAINER)
    command = [sys.executable, "-m", "holdfast.cli.main", "run", "--name", "r"]
    command += ["--store", str(work / "store"), "--scratch", str(work), "--memory-dir", str(ram)]
    command += ["--notice", "off", "--standby", "off", *options]
    command += ["--", sys.executable, str(script)]
    environment = os.environ | {
        "PYTHONPATH": str(SOURCES),
        "GB": str(asked.gb),
        "STEP_S": str(asked.step),
        "STEPS": str(steps),
        "FOUND": str(found),
    }
    began = time.perf_counter()
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment
        )
    try:
        while not found.exists():
            if process.poll() is not None or time.perf_counter() - began > 80:
                raise RuntimeError("no steps:\n" + log.read_text(errors="replace")[-1500:])
            time.sleep(0.1)
        told = json.loads(found.read_text())
        tail = slice(4, None)
        words = f"step {ms(told['steps'][tail])}; in done {ms(told['done'][tail])}"
        tell(what, words)
        tell("  … each done, ms", " ".join(f"{one * 1e3:.1f}" for one in told["done"]))
        kept = list(ram.rglob("manifest*"))
        tell("  … sets sealed in memory at the end", str(len(kept)))
        for line in log.read_text(errors="replace").splitlines()[-12:]:
            print(f"      | {line[:170]}")
    finally:
        process.send_signal(signal.SIGQUIT)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


PARTS: dict[str, Callable[[argparse.Namespace], None]] = {
    "machine": machine_part,
    "torch": torch_part,
    "torch-steps": torch_steps_part,
    "torch-run": torch_run_part,
    "jax": jax_part,
    "jax-steps": jax_steps_part,
}

if __name__ == "__main__":
    main()
