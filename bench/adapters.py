"""What the adapters of frameworks cost: of a step, and of a save beside the framework's own.

    python bench/adapters.py [--rounds 3] [--save-every 50] [--wide]

The examples run as they are under `holdfast run`, one rank; `--wide`: with a model whose checkpoint
is of 40 to 170 MB, for 60 steps. The adapter's methods are timed, and so
is the framework's own way to save, which is no part of them. Needs `make adapters` once; Keras, of
which KERAS_BACKEND says the backend, TensorFlow and MaxText need `make trainers` and the Python of
their environment.

- a step: the time in the adapter's methods between two steps, where nothing is saved.
- a save: the same where something is, beside what the framework takes to save. Of one that goes on
  beside the steps the end is a part, in whichever step. The last one is left out: there the loop
  waits until it counts.
"""

from __future__ import annotations

import argparse
import atexit
import functools
import importlib
import importlib.util
import json
import os
import re
import runpy
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

WITHIN = "--within"
STEP_MS = 20.0  # the step that a share is told of
WARM_STEPS = 20
WIDE_STEPS = 60
EXAMPLES = Path(__file__).parents[1] / "examples"


class Face(NamedTuple):
    """Of an adapter: its methods by the step that they belong to, the framework's ways to save.

    The first of those begins a save. A place is `module:name.name`.
    """

    steps: int
    begins: str  # is called first at each step
    others: tuple[str, ...]
    saves: tuple[str, ...]
    width: tuple[str, str]  # in the example's text, and a greater one


HUGGINGFACE = "holdfast.adapters.huggingface:HuggingFaceCallback"
KERAS = "holdfast.adapters.keras:KerasCallback"
RECORDER = "holdfast.compat.ml_goodput_measurement.recorder:GoodputRecorder"
TENSORFLOWS_ITERATOR = (
    ("tensorflow:train.Checkpoint.write",)
    if os.environ.get("KERAS_BACKEND") == "tensorflow"
    else ()
)
FACES = {
    "huggingface": Face(
        400,
        f"{HUGGINGFACE}.on_step_end",
        tuple(f"{HUGGINGFACE}.on_{what}" for what in ("save", "log", "evaluate", "epoch_end")),
        ("transformers:Trainer._save_checkpoint",),
        ("n_embd=64", "n_embd=768"),
    ),
    "lightning": Face(
        1500,
        "holdfast.adapters.lightning:LightningCallback.on_train_batch_end",
        (),
        ("lightning.pytorch:Trainer.save_checkpoint",),
        ("256", "65536"),
    ),
    "keras": Face(
        1500,
        f"{KERAS}.on_train_batch_end",
        tuple(f"{KERAS}.{what}" for what in ("on_epoch_begin", "on_epoch_end", "state_dict")),
        # With TensorFlow the adapter has it save its iterator, too, which Keras leaves out.
        ("keras:Model.save_weights", *TENSORFLOWS_ITERATOR),
        ("256", "65536"),
    ),
    "orbax": Face(
        1500,
        "holdfast.adapters.orbax:OrbaxManager.save",
        (),
        (
            "orbax.checkpoint:CheckpointManager.save",
            "orbax.checkpoint:CheckpointManager.wait_until_finished",
        ),
        ("256", "2048"),
    ),
    "tensorflow": Face(
        1500,
        "holdfast.session.framework_loop:FrameworkLoop.due",
        ("holdfast.adapters.tensorflow:TensorFlowLoop._save",),
        ("tensorflow:train.Checkpoint.write",),
        ("128", "65536"),
    ),
    "maxtext": Face(
        400,
        "holdfast.adapters.maxtext_saves:MaxTextSaves.save",
        tuple(
            f"{RECORDER}.record_{what}_time"
            for what in ("step_start", "data_loading_start", "data_loading_end")
        ),
        (
            "maxtext.common.checkpointing:save_checkpoint",
            "maxtext.common.checkpointing:wait_until_finished",
        ),
        ("64", "65536"),
    ),
}


class Clocks:
    """Of each step: seconds in the adapter, and in the framework's save; saves that it begins."""

    def __init__(self) -> None:
        self.steps: list[list[float]] = [[0.0, 0.0, 0]]
        self._inside: list[list[float]] = []  # of timed calls under way: seconds of those in them

    def timed(
        self, call: Callable[..., Any], *, which: int, begins: bool, saves: bool
    ) -> Callable[..., Any]:
        """`which`: 0 the adapter's, 1 the framework's save; what is nested is counted once.

        `begins` a step, or `saves`: begins a save.
        """

        @functools.wraps(call)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            if begins:
                self.steps.append([0.0, 0.0, 0])
            self.steps[-1][2] += saves
            began_s, nested = time.perf_counter(), [0.0]
            self._inside.append(nested)
            try:
                return call(*args, **kwargs)
            finally:
                took_s = time.perf_counter() - began_s
                self._inside.pop()
                self.steps[-1][which] += took_s - nested[0]
                if self._inside:
                    self._inside[-1][0] += took_s

        return wrapper


def within(name: str, out: str, *, wide: bool) -> None:
    """Run an example with its adapter's methods timed."""
    face, clocks = FACES[name], Clocks()
    if name == "maxtext":  # as its adapter says, for who imports MaxText before it
        importlib.import_module("holdfast.compat.ml_goodput_measurement.auto")
    for place in (face.begins, *face.others):
        patch(place, partial(clocks.timed, which=0, begins=place == face.begins, saves=False))
    for place in face.saves:
        begins_save = place == face.saves[0]
        patch(place, partial(clocks.timed, which=1, begins=False, saves=begins_save))
    atexit.register(lambda: Path(out).write_text(json.dumps(clocks.steps)))
    text = (EXAMPLES / name / "train.py").read_text()
    sys.argv = ["train.py", str(WIDE_STEPS if wide else face.steps)]
    script = Path(sys.argv[0])
    script.write_text(re.sub(rf"\b{face.width[0]}\b", face.width[1], text) if wide else text)
    runpy.run_path(str(script), run_name="__main__")


def patch(place: str, by: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Put a function around that of `module:name.name`."""
    module, _, names = place.partition(":")
    *owners, name = names.split(".")
    owner = functools.reduce(getattr, owners, importlib.import_module(module))
    setattr(owner, name, by(getattr(owner, name)))


def measure(
    name: str, save_every: int, *, wide: bool
) -> tuple[list[float], list[tuple[float, float]]]:
    """Seconds of the adapter in steps without a save; (the adapter's, the framework's) of saves."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        out = Path(folder) / "steps.json"
        tool = [sys.executable, "-m", "holdfast.cli.main", "run", "--name", "bench"]
        options = ["--save-every", str(save_every), "--status", "off", "--log-level", "error"]
        command = [
            sys.executable,
            str(Path(__file__).absolute()),
            WITHIN,
            name,
            str(out),
            str(wide),
        ]
        subprocess.run(
            [*tool, *options, "--", *command],
            cwd=folder,
            env={**os.environ, "HOLDFAST_STORE": f"{folder}/store", "OMP_NUM_THREADS": "1"},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        steps = json.loads(out.read_text())[1 + WARM_STEPS // (2 if wide else 1) :]
    plain = [ours for ours, own, _ in steps if not own]
    saves: list[tuple[float, float]] = []
    for ours, own, begun in steps:
        if begun:
            saves.append((ours, own))
        elif own and saves:
            saves[-1] = saves[-1][0] + ours, saves[-1][1] + own
    return plain, saves[:-1]


def main() -> None:
    """Each framework in turn, `--rounds` times."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--save-every", type=int, default=50)
    parser.add_argument("--wide", action="store_true")
    parser.add_argument("names", nargs="*", metavar="FRAMEWORK", choices=[[], *FACES])
    options = parser.parse_args()
    packages = {"huggingface": "transformers"}
    here = [name for name in FACES if importlib.util.find_spec(packages.get(name, name))]
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    rows: dict[str, list[tuple[list[float], list[tuple[float, float]]]]] = {}
    for _ in range(options.rounds):
        for name in options.names or here:
            rows.setdefault(name, []).append(measure(name, options.save_every, wide=options.wide))
    for name, rounds in rows.items():
        step_us = [1e6 * statistics.median(plain) for plain, _ in rounds]
        saves = [one for _, found in rounds for one in found]
        ours_ms, own_ms = (1e3 * statistics.median(column) for column in zip(*saves, strict=True))
        shares = [ours / own for ours, own in saves]
        print(
            f"{name}: a step {statistics.median(step_us):.1f} us ({min(step_us):.1f} … "
            f"{max(step_us):.1f}), {statistics.median(step_us) / (10 * STEP_MS):.2f} % of "
            f"{STEP_MS:.0f} ms; a save {ours_ms:.2f} ms beside the framework's {own_ms:.1f} ms: "
            f"{100 * statistics.median(shares):.1f} % ({len(saves)} saves)"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == [WITHIN]:
        within(*sys.argv[2:4], wide=sys.argv[4] == "True")
    else:
        main()
