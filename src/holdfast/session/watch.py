"""Watching the device: which step is really complete, and what was compiled.

`done` says that a step was dispatched. With `ready=` an array of that step, a thread waits for the
array and stamps the step as complete on the device; only that counts as completed. It looks at the
newest array it has been given, at most every 20 ms, so that the loop pays for one assignment. It
also fetches the numbers that the script tells of its steps.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from typing import Any

from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import Kind, Word
from holdfast.journal.writer import JournalWriter
from holdfast.session.hooks import Guard
from holdfast.session.metrics import Metrics

LOOK_EVERY_S = 0.02
BESIDE = "holdfast-beside"  # a thread of this name compiles and traces beside the training

# Durations that JAX reports of its own accord (jax.monitoring): tracing, lowering, compiling.
COMPILE_EVENTS = frozenset(
    {
        "/jax/core/compile/jaxpr_trace_duration",
        "/jax/core/compile/jaxpr_to_mlir_module_duration",
        "/jax/core/compile/backend_compile_duration",
    }
)
SHORTEST_COMPILE_NS = 1_000_000


class CompletionWatch:
    """Stamps steps as complete on the device, and writes down the script's numbers."""

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self._metrics = Metrics(writer)
        self._newest: tuple[int, Any] | None = None
        self._is_watching = False  # else every step that was dispatched counts
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def offer(self, step: int, ready: Any) -> None:
        """The array `ready` becomes available when `step` is complete."""
        self._newest = (step, ready)
        self._is_watching = True
        if self._thread is None:
            self._start()

    def copied(self, step: int) -> None:
        """The state after `step` has been copied: so the device is done with it, and it counts.

        The thread may be looking at a later step, and may not live to say so: a run that goes on
        from this copy has kept the step. The page stays the thread's: it tells whether the device
        hangs, and a state may lie on the host. Called by the training loop.
        """
        if self._is_watching:
            self._writer.record(now_ns(), Kind.COMPLETE, step=step)

    def offer_metrics(self, step: int, metrics: Mapping[str, Any]) -> None:
        """Numbers of `step`, perhaps still on the device; nothing is fetched here."""
        self._metrics.offer(step, metrics)
        if self._thread is None:
            self._start()

    def _start(self) -> None:
        if not self._closing.is_set():
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
        if newest is not None:
            self._await(*newest)
        self._metrics.write()

    def _await(self, step: int, ready: Any) -> None:
        page = self._writer.page
        page.store(Word.AWAITED, step)
        page.store(Word.AWAITED_AT, now_ns())
        try:
            _wait(ready)
        except Exception:
            # A failed computation fails in the training loop as well, where it can be understood;
            # a donated buffer was complete when it was given away.
            page.increment(Word.ERRORS)
        else:
            self._writer.record_complete(step, now_ns())
        finally:
            page.store(Word.AWAITED_AT, 0)


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


def watch_compilation(writer: JournalWriter) -> bool:
    """Record JAX's tracing, lowering and compiling as COMPILE spans; False when JAX is not there.

    Only reads what JAX reports through its public monitoring interface: a scalar when one begins,
    and a duration when it has ended, by an exception too.
    """
    jax = sys.modules.get("jax")
    monitoring = getattr(jax, "monitoring", None)
    on_begin = getattr(monitoring, "register_scalar_listener", None)
    on_end = getattr(monitoring, "register_event_duration_secs_listener", None)
    if on_begin is None or on_end is None:
        return False
    watch = CompilationWatch(writer)
    loss = "compilations are no longer recorded"
    on_begin(Guard(watch.began, loss))
    on_end(Guard(watch.ended, loss))
    return True


class CompilationWatch:
    """Shows in the page that a compilation is under way, and records it when it has ended.

    Compilations nest, and several threads may compile. No locks: a forked child could find one
    held for ever.
    """

    def __init__(self, writer: JournalWriter) -> None:
        self._writer = writer
        self._begun: dict[int, list[tuple[str, int]]] = {}  # by thread: (event, start), outer first

    def began(self, event: str, _value: float, **_: Any) -> None:
        """JAX reports that something begins, or some other number."""
        if event in COMPILE_EVENTS and not _is_beside():
            self._begun.setdefault(threading.get_ident(), []).append((event, now_ns()))
            self._show()

    def ended(self, event: str, duration_s: float, **_: Any) -> None:
        """JAX reports how long something took."""
        if event not in COMPILE_EVENTS or _is_beside():
            return
        end_ns = now_ns()
        start_ns = self._take(event) or end_ns - int(duration_s * 1e9)
        if end_ns - start_ns >= SHORTEST_COMPILE_NS:
            # Recorded first, then taken out of the page: a reader that meets both counts one.
            self._writer.record_span("compile", start_ns, end_ns)
        self._show()

    def _take(self, event: str) -> int | None:
        """When this began: the innermost of its name in this thread, with what it left open."""
        thread = threading.get_ident()
        begun = self._begun.get(thread, [])
        if not any(name == event for name, _ in begun):
            return None
        name, start_ns = begun.pop()
        while name != event:
            name, start_ns = begun.pop()
        if not begun:
            self._begun.pop(thread, None)
            page, end_ns = self._writer.page, now_ns()
            page.store(Word.SPANS_NS, page.load(Word.SPANS_NS) + end_ns - start_ns)
            page.store(Word.SPAN_ENDED_AT, end_ns)
        return start_ns

    def _show(self) -> None:
        """Since when something is being compiled. Whoever stores last has seen the last state."""
        oldest_ns = -1
        while oldest_ns != (now := self._oldest_ns()):
            oldest_ns = now
            self._writer.page.store(Word.COMPILING_AT, oldest_ns)

    def _oldest_ns(self) -> int:
        return min((begun[0][1] for begun in list(self._begun.values()) if begun), default=0)


def beside(work: Callable[[], None]) -> None:
    """Do some work in a thread whose compiling and tracing nobody waits for."""
    threading.Thread(target=work, name=BESIDE, daemon=True).start()


def _is_beside() -> bool:
    """Whether this is the thread that traces beside the training: nobody waits for that."""
    return threading.current_thread().name == BESIDE
