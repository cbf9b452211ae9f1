"""Runs an example with a ruler beside Holdfast's own books: framework_ruler.py EXAMPLE OUT STEPS.

The ruler is the framework's: when each step was over, and how long the framework was busy with a
save, as the framework's own functions come and go; and for how long JAX compiled, as it tells
itself. A line a step is appended to OUT, whatever ends the process.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import runpy
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

EXAMPLES = Path(__file__).parents[2] / "examples"


class Hooks(NamedTuple):
    """Of an example: a function, how it tells when a step is over, and the framework's saves.

    `begins`: at whose end the first step begins; "": the first one is not measured.
    """

    function: str
    way: str  # a method of Ruler
    saves: tuple[str, ...]
    begins: str = ""


HOOKS = {
    "huggingface": Hooks(
        "transformers.trainer_callback:CallbackHandler.on_step_end",
        "stepped",
        ("transformers:Trainer._save_checkpoint",),
        "transformers.trainer_callback:CallbackHandler.on_train_begin",
    ),
    "lightning": Hooks(
        "lightning.pytorch.loops.optimization.automatic:_AutomaticOptimization.run",
        "stepped",
        ("lightning.pytorch:Trainer.save_checkpoint",),
    ),
    "orbax": Hooks(
        "holdfast.adapters.orbax:OrbaxManager.save",
        "stepped",
        (
            "orbax.checkpoint:CheckpointManager.save",
            "orbax.checkpoint:CheckpointManager.wait_until_finished",
        ),
        "holdfast.adapters.orbax:wrap",
    ),
    "keras": Hooks(
        "keras:Model.make_train_function",
        "makes",
        ("keras:Model.save_weights", "tensorflow:train.Checkpoint.write"),
    ),
    "tensorflow": Hooks("tensorflow:function", "compiles", ("tensorflow:train.Checkpoint.write",)),
}


class Ruler:
    """A line for each step: the process, when it was over, and before it seconds of what is none.

    These are of saving, and of compiling.
    """

    def __init__(self, out: str) -> None:
        self._file = Path(out).open("a", buffering=1)  # noqa: SIM115
        self._saved_s = self._compiled_s = 0.0

    def hear_jax(self) -> None:
        """JAX tells how long each part of a compilation took."""
        import jax

        jax.monitoring.register_event_duration_secs_listener(self._heard)

    def _heard(self, event: str, seconds: float, **_: Any) -> None:
        if event.startswith("/jax/core/compile/"):
            self._compiled_s += seconds

    def stepped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose end is a step's."""

        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            line = os.getpid(), time.perf_counter(), self._saved_s, self._compiled_s
            self._file.write(json.dumps(line) + "\n")
            self._saved_s = self._compiled_s = 0.0
            return result

        return wrapper

    def saving(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A way to save."""

        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            began_s = time.perf_counter()
            try:
                return call(*args, **kwargs)
            finally:
                self._saved_s += time.perf_counter() - began_s

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


if __name__ == "__main__":
    example, out, *words = sys.argv[1:]
    ruler, hooks = Ruler(out), HOOKS[example]
    if example == "orbax" or os.environ.get("KERAS_BACKEND") == "jax":
        ruler.hear_jax()
    patch(hooks.function, getattr(ruler, hooks.way))
    for place in hooks.saves:
        if not (
            place.startswith("tensorflow")
            and os.environ.get("KERAS_BACKEND", "jax") != "tensorflow"
        ):
            patch(place, ruler.saving)
    if hooks.begins:
        patch(hooks.begins, ruler.stepped)
    sys.argv = ["train.py", *words]
    runpy.run_path(str(EXAMPLES / example / "train.py"), run_name="__main__")
