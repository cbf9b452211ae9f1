"""Runs an example with a ruler beside Holdfast's own books: ruler.py EXAMPLE OUT STEPS.

The ruler is the framework's: when each step was over, and how long the framework was busy with a
save, as the framework's own functions come and go. A line a step is appended to OUT, whatever ends
the process.
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
from typing import Any

EXAMPLES = Path(__file__).parents[2] / "examples"

# Of each example: a function whose end is a step's, and the framework's ways to save.
HOOKS = {
    "huggingface": (
        "transformers.trainer_callback:CallbackHandler.on_step_end",
        ("transformers:Trainer._save_checkpoint",),
    ),
    "lightning": (
        "lightning.pytorch.loops.optimization.automatic:_AutomaticOptimization.run",
        ("lightning.pytorch:Trainer.save_checkpoint",),
    ),
}


class Ruler:
    """A line for each step: the process, when it was over, and seconds of saving before it."""

    def __init__(self, out: str) -> None:
        self._file = Path(out).open("a", buffering=1)  # noqa: SIM115
        self._saved_s = 0.0

    def stepped(self, call: Callable[..., Any]) -> Callable[..., Any]:
        """A function whose end is a step's."""

        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            result = call(*args, **kwargs)
            self._file.write(json.dumps([os.getpid(), time.perf_counter(), self._saved_s]) + "\n")
            self._saved_s = 0.0
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


def patch(place: str, by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put a function around that of `module:Class.method`."""
    module, _, names = place.partition(":")
    owner, _, method = names.rpartition(".")
    kind = getattr(importlib.import_module(module), owner)
    setattr(kind, method, by(getattr(kind, method)))


if __name__ == "__main__":
    example, out, *words = sys.argv[1:]
    ruler = Ruler(out)
    step, saves = HOOKS[example]
    patch(step, ruler.stepped)
    for one in saves:
        patch(one, ruler.saving)
    sys.argv = ["train.py", *words]
    runpy.run_path(str(EXAMPLES / example / "train.py"), run_name="__main__")
