"""Runs an example with a ruler beside Holdfast's own books: framework_ruler.py EXAMPLE OUT STEPS.

The ruler is the framework's: when each step was over, and how long the framework was busy with what
is none (a save, a restore, waiting for data), as the framework's own functions come and go; and for
how long JAX compiled, as it tells itself. A line a step is appended to OUT, whatever ends the
process; and one without a time for what came after the last step, where it ends by itself.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import runpy
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLES = Path(__file__).parents[2] / "examples"


class Hooks(NamedTuple):
    """Of an example: a function, how it tells when a step is over, and what else takes time.

    `begins`: at whose end the first step begins; "": the first one is not measured. `hears_last`:
    Holdfast has heard of a step before its line is written.
    """

    function: str
    way: str  # a method of Ruler
    saves: tuple[str, ...]
    begins: str = ""
    restores: tuple[str, ...] = ()
    data: tuple[str, ...] = ()
    compiles: bool = False  # by JAX
    hears_last: bool = False


HOOKS = {
    "huggingface": Hooks(
        "transformers.trainer_callback:CallbackHandler.on_step_end",
        "stepped",
        ("transformers:Trainer._save_checkpoint",),
        "transformers.trainer_callback:CallbackHandler.on_train_begin",
        data=("transformers:Trainer.get_batch_samples",),
        hears_last=True,
    ),
    "lightning": Hooks(
        "lightning.pytorch.loops.optimization.automatic:_AutomaticOptimization.run",
        "stepped",
        ("lightning.pytorch:Trainer.save_checkpoint",),
        data=("lightning.pytorch.loops.fetchers:_PrefetchDataFetcher.__next__",),
    ),
    "orbax": Hooks(
        "holdfast.adapters.orbax:OrbaxManager.save",
        "stepped",
        (
            "orbax.checkpoint:CheckpointManager.save",
            "orbax.checkpoint:CheckpointManager.wait_until_finished",
        ),
        "holdfast.adapters.orbax:wrap",
        ("orbax.checkpoint:CheckpointManager.restore",),
        compiles=True,
        hears_last=True,
    ),
    "orbax_v1": Hooks(
        "holdfast.adapters.orbax:OrbaxV1._save_by",
        "stepped",
        (
            "orbax.checkpoint.experimental.v1:training.Checkpointer.save_async",
            "orbax.checkpoint.experimental.v1:training.Checkpointer.wait",
        ),
        "holdfast.adapters.orbax:wrap",
        ("orbax.checkpoint.experimental.v1:training.Checkpointer.load",),
        compiles=True,
        hears_last=True,
    ),
    # Struck alone: what saves here is Holdfast.
    "fsdp": Hooks("", "", ("holdfast.session.saver:Saver.save",)),
    "accelerate": Hooks("", "", ("holdfast.session.saver:Saver.save",)),
    "keras": Hooks(
        "keras:Model.make_train_function",
        "makes",
        ("keras:Model.save_weights", "tensorflow:train.Checkpoint.write"),
        restores=("keras:Model.load_weights",),
        compiles=True,
    ),
    "tensorflow": Hooks(
        "tensorflow:function",
        "compiles",
        ("tensorflow:train.Checkpoint.write",),
        restores=("tensorflow:train.Checkpoint.read",),
    ),
    "maxtext": Hooks(
        "holdfast.adapters.maxtext_saves:MaxTextSaves.save",
        "stepped",
        (
            "maxtext.common.checkpointing:save_checkpoint",
            "maxtext.common.checkpointing:wait_until_finished",
        ),
        "holdfast.adapters.maxtext_saves:MaxTextSaves.begin",
        ("maxtext.common.checkpointing:load_state_if_possible",),
        ("maxtext.common.data_loader:DataLoader.load_next_batch_pre_sharding",),
        compiles=True,
        hears_last=True,
    ),
}


class Ruler:
    """A line a step: the process, when it was over, and seconds before it that were none."""

    def __init__(self, out: str) -> None:
        self._file = Path(out).open("a", buffering=1)  # noqa: SIM115
        self._spent_s: dict[str, float] = defaultdict(float)
        self._compiles: list[tuple[float, float]] = []  # since when, until when

    def hear_jax(self) -> None:
        """JAX tells how long each part of a compilation took."""
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, seconds: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            now_s = time.perf_counter()  # one may be a part of another
            compiles = [one for one in self._compiles if one[0] < now_s - seconds]
            self._compiles = [*compiles, (now_s - seconds, now_s)]

    def starting(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """`holdfast.start`: what JAX compiled before it is a part of starting."""

        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            self._compiles.clear()
            return call(*args, **kwargs)

        return wrapper

    def stepped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose end is a step's."""

        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            self._spent_s["compile"] = sum(end - start for start, end in self._compiles)
            self._write(time.perf_counter())
            self._compiles.clear()
            return result

        return wrapper

    def ended(self) -> None:
        """What came after the last step: its save."""
        self._write(None)

    def _write(self, over_s: float | None) -> None:
        self._file.write(json.dumps((os.getpid(), over_s, self._spent_s)) + "\n")
        self._spent_s.clear()

    def spending(self, kind: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """A way to save, say."""

        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self._spent_s[kind] += time.perf_counter() - began_s

        return wrapper

    def compiles(self, compile_it: Callable[..., Any]) -> Callable[..., Any]:
        """`tf.function`: what it makes of the example's `train_step` is a step."""

        @functools.wraps(compile_it)
        def wrapper(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            made = compile_it(function, *args, **kwargs)
            return self.stepped(made) if function.__name__ == "train_step" else made

        return wrapper

    def makes(self, make: Callable[..., Any]) -> Callable[..., Any]:
        """Keras keeps the train function that it makes in the model."""

        @functools.wraps(make)
        def wrapper(model: Any, *args: Any, **kwargs: Any) -> None:
            make(model, *args, **kwargs)
            model.train_function = self.stepped(model.train_function)

        return wrapper


def patch(place: str, by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put a function around that of `module:name.name`."""
    module, _, names = place.partition(":")
    *owners, name = names.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    setattr(owner, name, by(getattr(owner, name)))


def import_before(example: str) -> None:
    """What an example must have before its framework."""
    if example == "maxtext":  # as its adapter says, for who imports MaxText before it
        importlib.import_module("holdfast.compat.ml_goodput_measurement.auto")


def run_example(example: str, words: list[str]) -> None:
    """As the main program."""
    sys.argv = ["train.py", *words]
    runpy.run_path(str(EXAMPLES / example / "train.py"), run_name="__main__")


if __name__ == "__main__":
    example, out, *words = sys.argv[1:]
    ruler, hooks = Ruler(out), HOOKS[example]
    backend = os.environ.get("KERAS_BACKEND") or "jax"
    import_before(example)
    if hooks.compiles and backend == "jax":
        ruler.hear_jax()
    patch("holdfast.session.start:start", ruler.starting)  # before an adapter takes it from there
    patch(hooks.function, getattr(ruler, hooks.way))
    # Two of our own: the end waits until the last step counts; each byte is verified first.
    saves = "holdfast.session.framework_loop:FrameworkLoop.finishing", *hooks.saves
    restores = "holdfast.session.run:Run.framework", *hooks.restores
    of_kinds = {"save": saves, "restore": restores, "data": hooks.data}
    for kind, places in of_kinds.items():
        for place in places:
            if not place.startswith("tensorflow") or backend == "tensorflow":
                patch(place, partial(ruler.spending, kind))
    if hooks.begins:
        patch(hooks.begins, ruler.stepped)
    try:
        run_example(example, words)
    finally:
        ruler.ended()
