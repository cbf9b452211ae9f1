"""Watching the device: which step is really complete, and what was compiled.

`done` says that a step was dispatched. With `ready=` an array of that step, a thread waits for the
array and stamps the step as complete on the device; only that counts as completed. It looks at the
newest array it has been given, at most every 20 ms, so that the loop pays for one assignment.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from typing import Any

from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Word
from holdfast.journal.writer import JournalWriter

LOOK_EVERY_S = 0.02

# Durations that JAX reports of its own accord (jax.monitoring): tracing, lowering, compiling.
COMPILE_EVENTS = frozenset(
    {
        "/jax/core/compile/jaxpr_trace_duration",
        "/jax/core/compile/jaxpr_to_mlir_module_duration",
        "/jax/core/compile/backend_compile_duration",
    }
)
SHORTEST_COMPILE_S = 0.001


class CompletionWatch:
    """Stamps steps as complete on the device."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self._newest: tuple[int, Any] | None = None
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def offer(self, step: int, ready: Any) -> None:
        """The array `ready` becomes available when `step` is complete."""
        self._newest = (step, ready)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="holdfast-ready", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Stamp the last one and end."""
        self._closing.set()
        if self._thread is not None:
            self._thread.join(1.0)

    def _run(self) -> None:
        while not self._closing.wait(LOOK_EVERY_S):
            self._look()
        self._look()

    def _look(self) -> None:
        newest, self._newest = self._newest, None
        if newest is None:
            return
        step, ready = newest
        try:
            _wait(ready)
        except Exception:
            # A failed computation fails in the training loop as well, where it can be understood;
            # a donated buffer was complete when it was given away.
            self._writer.words.increment(Word.ERRORS)
            return
        self._writer.record_complete(step, now_ns())


def _wait(ready: Any) -> None:
    """Until the array is there: JAX arrays wait themselves, torch by an event or its stream."""
    block = getattr(ready, "block_until_ready", None)
    if callable(block):
        block()
        return
    synchronize = getattr(ready, "synchronize", None)  # a torch.cuda.Event
    if callable(synchronize):
        synchronize()
        return
    if getattr(ready, "is_cuda", False):
        torch = sys.modules["torch"]
        torch.cuda.current_stream(ready.device).synchronize()


def watch_compilation(record_span: Callable[[str, int, int], None]) -> bool:
    """Record JAX's tracing, lowering and compiling as COMPILE spans; False when JAX is not there.

    Only reads what JAX reports through its public monitoring interface.
    """
    jax = sys.modules.get("jax")
    monitoring = getattr(jax, "monitoring", None)
    register = getattr(monitoring, "register_event_duration_secs_listener", None)
    if register is None:
        return False

    def listener(event: str, duration_s: float, **_: Any) -> None:
        if event in COMPILE_EVENTS and duration_s >= SHORTEST_COMPILE_S:
            end_ns = now_ns()
            record_span("compile", end_ns - int(duration_s * 1e9), end_ns)

    register(listener)
    return True
