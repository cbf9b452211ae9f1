"""The part of `device_copies.py` about JAX: copies of its arrays on their device, and the steps."""

from __future__ import annotations

import argparse
import functools
import statistics
import threading
import time
from typing import Any

from device_copies import GB, Rank, attempt, ms, rank, seconds, tell, timed


class JaxModel:
    """Matrices and their two moments, so many bytes; and a step that takes their memory."""

    def __init__(self, gb: float) -> None:
        import jax
        import jax.numpy as jnp

        self.jax = jax
        self.is_cuda = jax.default_backend() == "gpu"
        side = 4096 if gb >= 1 else 512
        layers = max(1, round(gb * GB / (side * side * 12)))
        keys = jax.random.split(jax.random.key(1), layers)
        first = jax.jit(lambda key: 0.02 * jax.random.normal(key, (side, side)))
        zero = functools.partial(jnp.zeros, (side, side))
        self.state: Any = [{"w": first(key), "m": zero(), "v": zero()} for key in keys]
        self.batch = jax.random.normal(keys[0], (8192 if self.is_cuda else 64, side), jnp.bfloat16)
        self.repeats = 1
        self._step: Any = None

    def compiled(self) -> Any:
        jax = self.jax
        jnp = jax.numpy

        def loss(weights: list[Any], batch: Any) -> Any:
            for one in weights:
                batch = batch @ one.astype(batch.dtype)
            return jnp.square(batch.astype(jnp.float32)).mean()

        def step(state: list[Any], batch: Any) -> tuple[list[Any], Any]:
            weights = [one["w"] for one in state]

            def more(_: int, so_far: list[Any]) -> list[Any]:
                found = jax.grad(loss)(weights, batch)
                return [a + b for a, b in zip(so_far, found, strict=True)]

            zeros = [jnp.zeros_like(one) for one in weights]
            found = jax.lax.fori_loop(0, self.repeats, more, zeros)
            made = []
            for one, gradient in zip(state, found, strict=True):
                m = 0.9 * one["m"] + 0.1 * gradient
                v = 0.95 * one["v"] + 0.05 * gradient**2
                made.append({"w": one["w"] - 1e-5 * m / (jnp.sqrt(v) + 1e-8), "m": m, "v": v})
            return made, found[0][0, 0]

        return jax.jit(step, donate_argnums=0)

    def calibrate(self, step_s: float) -> None:
        self._step = self.compiled()
        self.step()
        took = [seconds(lambda: float(self.step())) for _ in range(3)]
        self.repeats = max(1, round(step_s / statistics.median(took)))
        self._step = self.compiled()
        self.step()

    def step(self) -> Any:
        self.state, told = self._step(self.state, self.batch)
        return told

    def now(self) -> Any:
        """Copies of all that is trained, on the host."""
        return self.jax.tree.map(lambda one: np_copy(one), self.state)


def np_copy(array: Any) -> Any:
    import numpy as np

    return np.array(array, copy=True)


def measure_jax(asked: argparse.Namespace) -> None:
    import jax
    import numpy as np

    from holdfast.snapshot import device_copies

    if jax.default_backend() == "cpu":
        device_copies.NOT_ON.clear()
    tell("device", f"{jax.devices()[0].device_kind}, jax {jax.__version__}")
    with attempt("jax, checks"):
        model = JaxModel(min(0.4, asked.gb))
        model.calibrate(0.1)
        with rank() as one:
            step_of_jax(model, one)
            one.made()
            late = good = 0
            for _ in range(6):
                one.order()
                step_of_jax(model, one)
                late += one.saver._late is not None
                truth = model.now()
                step_of_jax(model, one)
                stored = one.stored("state")
                pairs = zip(jax.tree.leaves(stored), jax.tree.leaves(truth), strict=True)
                good += all(np.array_equal(np.asarray(a), b) for a, b in pairs)
                wait_for_threads("holdfast-beside")
            tell("copies on the device", f"{late} of 6 late (the first is not), {good} of 6 right")
            tell("… pinned", str([file.pinned is not None for file in one.files]))
            tell("… errors", str(one.words.load(one.Word.ERRORS)))
        del model
    model = JaxModel(asked.gb)
    model.calibrate(asked.step)
    tell("a step", f"{model.repeats} times forward and backward, {3 * len(model.state)} arrays")
    jax_steps(asked, model, None, "alone")
    with rank() as one:
        step_of_jax(model, one)
        one.made()
        one.order()
        step_of_jax(model, one)  # compiles the program that copies
        wait_for_threads("holdfast-beside")
        jax_steps(asked, model, one, "a snapshot beside each step")
        one.saver._copies._is_off, one.saver._copies.is_ready = True, False
        jax_steps(asked, model, one, "a snapshot at each boundary", steps=3)
    jax_steps(asked, model, None, "alone again")
    stats = jax.devices()[0].memory_stats() or {}
    tell("memory", f"{stats.get('peak_bytes_in_use', 0) / GB:.1f} GB at most")


def wait_for_threads(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join()


def step_of_jax(model: JaxModel, one: Rank | None) -> float:
    model.step()
    return 0.0 if one is None else one.done(model.state)


def jax_steps(
    asked: argparse.Namespace,
    model: JaxModel,
    one: Rank | None,
    what: str,
    steps: int | None = None,
) -> None:
    """Steps whose result is asked for two steps later, as a trainer logs: the host runs ahead."""
    took, blocked, told, copying = [], [], [], []
    results: list[Any] = []
    pieces: dict[str, list[float]] = {}
    at = 0.0
    with attempt(what), timed(one, pieces):
        float(model.step())
        for _ in range(2 * (steps or asked.steps) + 2):  # a snapshot in every other one, at least
            began = time.perf_counter()
            results.append(model.step())
            if one is not None:
                is_over = one.ended_at > at
                if at and is_over:  # the copy before; a controller orders none until then
                    copying.append(one.ended_at - at)
                    told.append(one.words.load(one.Word.SAVE_BLOCKED_NS) / 1e9)
                if is_over:
                    one.order()
                    at = time.perf_counter()
                    blocked.append(one.done(model.state))
                else:
                    one.done(model.state)
            if len(results) == 3:
                float(results.pop(0))
            took.append(time.perf_counter() - began)
        tell(what, f"step {ms(took[2:])}")
        if one is not None:
            one.saver.settle()
            tell("  … blocked in done, with a snapshot", ms(blocked[1:]))
            tell("  … and as it is told, with what the device copied", ms(told))
            tell("  … from the boundary until it is there", ms(copying))
            tell("  … errors", str(one.words.load(one.Word.ERRORS)))
            for name, values in pieces.items():
                tell(f"    {name}", ms(values[1:]))
