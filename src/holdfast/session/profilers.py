"""The profilers of JAX and PyTorch, as they are driven from within a rank.

Both write what they have recorded themselves; nothing is read here. What they keep private is
guarded: an error of theirs costs the profile.
"""

from __future__ import annotations

import contextlib
import inspect
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from holdfast.journal.clocks import now_ns
from holdfast.profiles.trace import ANCHOR


class Profiler(Protocol):
    """One of a framework. `is_of_thread`: it is started and stopped by the training's thread."""

    framework: str
    version: str
    is_of_thread: bool

    def start(self) -> None:
        """Record from now on; raises what the framework does."""

    def settle(self) -> None:
        """Wait until the devices have done what the script gave them; raises likewise."""

    def stop(self) -> None:
        """No more; raises likewise."""

    def write(self, path: Path) -> None:
        """What was recorded, not compressed, into a new file."""


class JaxProfiler:
    """Through `jax.profiler`, whose own files are not asked for: they take ten times as long."""

    framework = "jax"
    is_of_thread = False

    def __init__(self, folder: Path) -> None:
        """`folder`: where JAX may write."""
        self._jax: Any = sys.modules["jax"]
        self.version = str(self._jax.__version__)
        self._folder = folder
        self._data: bytes | None = None

    def start(self) -> None:
        """Without its tracer of Python, which slows every call."""
        options = self._jax.profiler.ProfileOptions()
        options.python_tracer_level = 0
        self._jax.profiler.start_trace(str(self._folder), profiler_options=options)
        self._mark()

    def settle(self) -> None:
        """All that is computed is an array by then, and no more is under way."""
        self._jax.block_until_ready(self._jax.live_arrays())

    def _mark(self) -> None:
        with self._jax.profiler.TraceAnnotation(f"{ANCHOR}{now_ns()}"):
            pass

    def stop(self) -> None:
        """By its session, or where this version of JAX has none by its public function."""
        self._mark()
        try:
            state: Any = sys.modules["jax._src.profiler"]._profile_state
            with state.lock:
                data = state.profile_session.stop()
                state.reset()
            self._data = data if isinstance(data, bytes) else None
        except (AttributeError, KeyError, TypeError):
            self._jax.profiler.stop_trace()

    def write(self, path: Path) -> None:
        """The XSpace."""
        if self._data is not None:
            path.write_bytes(self._data)
            return
        found = sorted(self._folder.rglob("*.xplane.pb"))
        if not found:
            raise FileNotFoundError("JAX has written no trace")
        found[-1].replace(path)


class TorchProfiler:
    """Shapes are recorded, for FLOPs.

    `torch.profiler` looks into Inductor's settings as it starts, for CUDA graphs, and imports it
    for that: 800 modules and seconds, in the training's own thread. Where nothing was compiled, the
    profiler below it is used, which records the same.
    """

    framework = "torch"
    is_of_thread = True

    def __init__(self) -> None:
        self._torch: Any = sys.modules["torch"]
        self.version = str(self._torch.__version__)
        self._profile: Any = None

    def start(self) -> None:
        """Of the processor, and of the devices that are in use."""
        from torch import autograd, profiler

        kinds = profiler.ProfilerActivity
        wanted = {kinds.CPU, kinds.CUDA} if self._torch.cuda.is_initialized() else {kinds.CPU}
        supported = profiler.supported_activities() & wanted
        if "torch._inductor.config" in sys.modules:
            known = inspect.signature(profiler.profile).parameters
            quiet = {"acc_events": True} if "acc_events" in known else {}  # else PyTorch 2.11 warns
            self._profile = profiler.profile(activities=supported, record_shapes=True, **quiet)
        else:
            device = "cuda" if kinds.CUDA in supported else None
            self._profile = autograd.profiler.profile(
                use_device=device, record_shapes=True, use_kineto=True
            )
        self._profile.__enter__()
        self._mark()

    def settle(self) -> None:
        """A processor has done it as soon as it is called."""
        if self._torch.cuda.is_initialized():
            self._torch.cuda.synchronize()

    def _mark(self) -> None:
        with self._torch.profiler.record_function(f"{ANCHOR}{now_ns()}"):
            pass

    def stop(self) -> None:
        """In the thread that has started it."""
        self._mark()
        self._profile.__exit__(None, None, None)

    def write(self, path: Path) -> None:
        """The Chrome trace."""
        self._profile.export_chrome_trace(str(path))
        self._profile = None


def find_profiler(folder: Path) -> Profiler | None:
    """That of the framework which has a device open in this process; None: there is none.

    Of both: PyTorch's where it has a GPU open, and JAX does something on the CPU beside it.
    """
    torch = sys.modules.get("torch")
    with contextlib.suppress(Exception):  # another version of JAX: it is not found
        bridge: Any = sys.modules.get("jax._src.xla_bridge")
        if bridge is not None and bridge.backends_are_initialized():
            is_beside = torch is not None and torch.cuda.is_initialized()
            if not is_beside or sys.modules["jax"].default_backend() != "cpu":
                return JaxProfiler(folder)
    return TorchProfiler() if torch is not None else None


def guarded(act: Callable[[], None]) -> Exception | None:
    """Do it; what went wrong."""
    try:
        act()
    except Exception as error:
        return error
    return None
