"""What this device really reaches: products by type of numbers, memory, and a sum over all devices.

The best of several tries counts: a peak is what can be reached, and others only slow it down.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

from holdfast.errors import ConfigurationError

SIDES = (512, 1024, 2048, 4096, 8192, 16384)  # of square matrices
LARGE_SIDES = (8192, 16384)  # an accelerator is fastest with these; JAX compiles each for seconds
FRAMEWORKS = ("jax", "torch")
_TRY_S = 0.05  # how long one try is to take, so that a clock's and a call's cost do not count
_TRIES = 5
_MEMORY_BYTES = {"cpu": 1 << 28}
_MUCH_BYTES = 1 << 30
Times = Callable[[int], None]  # does it so often, and waits until it is done
Clock = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Measured:
    """What was reached. `flops` by type, `copy_bytes` read and written: both a second.

    `together`: how many devices summed something up, and `together_bytes` what the wires of each
    carried (2·(n−1)/n of the sum's size in the time, as NCCL's tests reckon). 0: there is one.
    """

    by: str
    flops: dict[str, int] = field(default_factory=dict)
    copy_bytes: int = 0
    together: int = 0
    together_bytes: int = 0


class Rank(NamedTuple):
    """Which of a launcher's processes this is: on this host, and of how many in all."""

    local: int = 0
    world: int = 1


class Framework(Protocol):
    """What is asked of JAX and of torch alike."""

    name: str
    platform: str
    devices: int

    def types(self) -> tuple[str, ...]:
        """The types of numbers worth trying here."""

    def product(self, side: int, dtype: str) -> Times:
        """Of two square matrices; raises whatever it does where that cannot be."""

    def copy(self, size_bytes: int) -> Times:
        """Reads so much, and writes as much."""

    def together(self, size_bytes: int) -> Times:
        """Sums so many bytes of each device up, on all of them."""

    def close(self) -> None:
        """Leave the other ranks."""


def measure(tool: Framework, seconds: float, clock: Clock = time.perf_counter) -> Measured:
    """Try it all, each for about so many seconds. What cannot be done here is left out."""
    flops = {}
    for dtype in tool.types():
        with contextlib.suppress(Exception):  # this device has no numbers of that type
            flops[dtype] = round(_products(tool, dtype, seconds, clock))
    size = _MEMORY_BYTES.get(tool.platform, _MUCH_BYTES)
    copy = round(best_rate(2 * size, tool.copy(size), seconds, clock))
    n, wires = tool.devices, 0
    if n > 1:
        size //= 8
        wires = round(_together(2 * (n - 1) / n * size, tool.together(size), clock))
    tool.close()
    return Measured(tool.name, flops, copy, n if n > 1 else 0, wires)


def _products(tool: Framework, dtype: str, seconds: float, clock: Clock) -> float:
    """The best over sizes, as long as one product takes no more than a part of the time."""
    best = 0.0
    for side in SIDES if tool.platform == "cpu" else LARGE_SIDES:
        work = 2 * side**3
        if best and work / best > seconds / 4:
            break
        best = max(best, best_rate(work, tool.product(side, dtype), seconds / 4, clock))
    return best


def _together(work: float, times: Times, clock: Clock) -> float:
    """The best of so many tries, which is the same for all ranks: each waits for the others."""
    times(1)
    best = 0.0
    for _ in range(_TRIES):
        begun = clock()
        times(_TRIES)
        best = max(best, work * _TRIES / max(clock() - begun, 1e-9))
    return best


def best_rate(work: float, times: Times, seconds: float, clock: Clock) -> float:
    """Work a second, of the best try."""
    times(1)  # compiles, and takes memory
    begun = clock()
    times(1)
    often = max(1, round(_TRY_S / max(clock() - begun, 1e-9)))
    best, until = 0.0, clock() + seconds
    while not best or clock() < until:
        begun = clock()
        times(often)
        best = max(best, work * often / max(clock() - begun, 1e-9))
    return best


def framework(wanted: str | None, rank: Rank) -> Framework:
    """JAX or torch: the one that is wanted, or is there; of both, the one with an accelerator.

    Under torch's launcher it is torch: JAX would open all devices in each of its processes.
    Raises ConfigurationError where there is none.
    """
    from importlib.util import find_spec

    found = [name for name in FRAMEWORKS if find_spec(name) is not None]
    if wanted is not None and wanted not in found:
        raise ConfigurationError(f"{wanted} is not installed in this environment")
    if not found:
        raise ConfigurationError(
            "neither JAX nor PyTorch is installed in this environment: calibrate in the one that "
            "the training uses"
        )
    if wanted is None and rank.world > 1 and "torch" in found:
        wanted = "torch"
    tools: list[Framework] = []
    for name in [wanted] if wanted else found:
        tools.append(OnJax() if name == "jax" else OnTorch(rank))
    return next((tool for tool in tools if tool.platform != "cpu"), tools[0])


class OnJax:
    """By JAX, on the device that it opens first."""

    def __init__(self) -> None:
        import jax

        self._jax = jax
        self.name = f"jax {jax.__version__}"
        self.platform = str(jax.default_backend())
        self.devices = jax.local_device_count()

    def types(self) -> tuple[str, ...]:
        """Which are worth trying."""
        return {
            "cpu": ("fp32", "bf16"),
            "gpu": ("bf16", "fp16", "tf32", "fp32", "fp8", "int8"),
        }.get(self.platform, ("bf16", "fp32", "fp8", "int8"))

    def product(self, side: int, dtype: str) -> Times:
        """Of two square matrices."""
        import jax.numpy as jnp

        kind: Any = {
            "bf16": jnp.bfloat16, "fp16": jnp.float16, "fp8": jnp.float8_e4m3fn, "int8": jnp.int8,
        }.get(dtype, jnp.float32)  # fmt: skip
        out = {"int8": jnp.int32, "fp8": jnp.bfloat16}.get(dtype, kind)
        exact = "highest" if dtype == "fp32" else None

        def multiplied(a: Any, b: Any) -> Any:
            return jnp.matmul(a, b, precision=exact, preferred_element_type=out)

        # Random, since a device that multiplies ones needs less power and is faster than it is.
        keys = self._jax.random.split(self._jax.random.key(0))
        scale = 32 if dtype == "int8" else 1
        a, b = ((scale * self._jax.random.normal(key, (side, side))).astype(kind) for key in keys)
        return self._times(self._compiled(multiplied, dtype, a, b), a, b)

    def _compiled(self, function: Callable[..., Any], dtype: str, *args: Any) -> Any:
        """On a GPU by cuBLAS, where it has the type: XLA would try kernels of its own before."""
        if self.platform == "gpu" and dtype not in ("fp8", "int8"):
            options = {"xla_gpu_enable_triton_gemm": False}
            with contextlib.suppress(Exception):  # another XLA, that has no such option
                return self._jax.jit(function, compiler_options=options).lower(*args).compile()
        return self._jax.jit(function)

    def copy(self, size_bytes: int) -> Times:
        """Read and write."""
        import jax.numpy as jnp

        return self._times(self._jax.jit(lambda x: x + 1), jnp.zeros(size_bytes // 4, jnp.float32))

    def together(self, size_bytes: int) -> Times:
        """A sum of each device's."""
        import jax.numpy as jnp
        from jax.sharding import NamedSharding, PartitionSpec

        jax = self._jax
        mesh = jax.make_mesh((self.devices,), ("all",), devices=jax.local_devices())
        rows = PartitionSpec("all")
        many = jax.device_put(
            jnp.ones((self.devices, size_bytes // 4), jnp.float32), NamedSharding(mesh, rows)
        )
        summed = jax.shard_map(
            lambda x: jax.lax.psum(x, "all"), mesh=mesh, in_specs=rows, out_specs=PartitionSpec()
        )
        return self._times(jax.jit(summed), many)

    def close(self) -> None:
        """There are none."""

    def _times(self, function: Callable[..., Any], *args: Any) -> Times:
        def times(often: int) -> None:
            before = function(*args)
            for _ in range(often - 1):  # the next one is given before this one is done
                out = function(*args)
                before.block_until_ready()
                before = out
            before.block_until_ready()

        return times


class OnTorch:
    """By torch, on its first CUDA device, or on the CPU; the sum is over a launcher's ranks."""

    def __init__(self, rank: Rank) -> None:
        import torch

        self._torch = torch
        self.name = f"torch {torch.__version__}"
        self.platform = "cuda" if torch.cuda.is_available() else "cpu"
        self.devices = rank.world
        if self.devices > 1:
            if self.platform == "cuda":
                torch.cuda.set_device(rank.local)
            torch.distributed.init_process_group("nccl" if self.platform == "cuda" else "gloo")
        torch.zeros((), device=self.platform)

    def types(self) -> tuple[str, ...]:
        """Which are worth trying."""
        return ("fp32", "bf16") if self.platform == "cpu" else ("bf16", "fp16", "tf32", "fp32")

    def product(self, side: int, dtype: str) -> Times:
        """Of two square matrices."""
        torch = self._torch
        kind = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(dtype, torch.float32)
        a, b = (torch.randn((side, side), device=self.platform).to(kind) for _ in range(2))
        out = torch.empty_like(a)
        torch.set_float32_matmul_precision("high" if dtype == "tf32" else "highest")
        return self._times(lambda: torch.mm(a, b, out=out))

    def copy(self, size_bytes: int) -> Times:
        """Read and write."""
        torch = self._torch
        a = torch.zeros(size_bytes // 4, device=self.platform)
        out = torch.empty_like(a)
        return self._times(lambda: out.copy_(a))

    def together(self, size_bytes: int) -> Times:
        """A sum of each device's."""
        torch = self._torch
        a = torch.ones(size_bytes // 4, device=self.platform)
        return self._times(lambda: torch.distributed.all_reduce(a))

    def close(self) -> None:
        """Leave the other ranks, once all are done: they meet at rank 0."""
        if self.devices > 1:
            self._torch.distributed.barrier()
            self._torch.distributed.destroy_process_group()

    def _times(self, function: Callable[[], Any]) -> Times:
        def times(often: int) -> None:
            for _ in range(often):
                function()
            if self.platform == "cuda":
                self._torch.cuda.synchronize()

        return times
