"""What a profile costs: steps of some 20 ms before, within and after windows of `holdfast profile`.

    python bench/profiling.py [--windows N] [--steps N] [--framework jax torch]

A training under `holdfast run` on one thread tells of each of its steps how long it took, and how
much processor time its process had meanwhile: on a busy machine that says more. Which steps were in
a window, the windows' own records say; each window is compared with the steps around it, and those
after it with those before it. The step in which a profiler starts (the first time, and usually),
and those in which it stops and writes, stand beside.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

TARGET_S = 0.02
BESIDE = 3  # steps before and after a window in which a profiler starts, stops and writes
NEAR = 10  # steps before and after those that a window is compared with
FRAMEWORKS = ("jax", "torch")
TOLD = "told.json"
Step = Callable[[], object]


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--framework", nargs="*", choices=FRAMEWORKS, default=FRAMEWORKS)
    parser.add_argument("--child", choices=FRAMEWORKS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        train(args.child)
        return
    print(
        f"load {os.getloadavg()[0]:.1f}; medians of {args.windows} windows, {args.steps} steps each"
    )
    print(
        "framework   all ms   more (least … most)   more CPU (least … most)   "
        "after (least … most)   after CPU (least … most)   "
        "first start   starting   closing ms   trace KiB"
    )
    for framework in args.framework:
        print(row(framework, args.windows, args.steps), flush=True)


def row(framework: str, windows: int, steps: int) -> str:
    """One framework's figures."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        env = os.environ | {
            "HOLDFAST_STORE": f"{folder}/store",
            "HOLDFAST_SCRATCH": f"{folder}/scratch",
            "HOLDFAST_SAVE_EVERY_STEPS": "1000000000",
            "HOLDFAST_SNAPSHOT_EVERY_STEPS": "1000000000",
            "JAX_PLATFORMS": "cpu",
            "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
        }
        ours = [sys.executable, "-m", "holdfast.cli.main"]
        child = [sys.executable, __file__, "--child", framework]
        quiet = subprocess.DEVNULL
        run = subprocess.Popen(
            [*ours, "run", "--name", "r", "--standby", "off", "--", *child],
            env=env, cwd=folder, stdin=quiet, stdout=quiet, stderr=quiet,
        )  # fmt: skip
        while not (folder / TOLD).exists():
            time.sleep(0.1)
        found = 0
        while found < windows:
            asked = [*ours, "profile", "r", "--steps", str(steps), "--json"]
            done = subprocess.run(asked, env=env, stdout=quiet, stderr=quiet, check=False)
            found += done.returncode == 0
            time.sleep(30 * TARGET_S)
        stop = [*ours, "stop", "r"]
        subprocess.run(stop, env=env, stdout=quiet, stderr=quiet, check=True)
        run.wait()
        return figures(framework, folder)


def figures(framework: str, folder: Path) -> str:
    """From what the script and the windows tell."""
    told = json.loads((folder / TOLD).read_text())
    took, busy = ({int(step): s[i] for step, s in told.items()} for i in range(2))
    more: list[float] = []
    more_cpu: list[float] = []
    after: list[float] = []
    after_cpu: list[float] = []
    starting, closing, sizes = [], [], []
    paths = list((folder / "store").glob("r/attempts/*/profiles/*/rank-00000.json"))
    captures = [json.loads(path.read_text()) for path in paths]
    for capture in sorted(captures, key=lambda one: one["edges"][0][0]):
        first, last = capture["edges"][0][0] + 1, capture["edges"][-1][0]
        sizes.append(capture["trace_bytes"] / 1024)
        sooner, later = (
            range(first - BESIDE - NEAR, first - BESIDE),
            range(last + 9, last + 9 + NEAR),
        )
        for of, into, into_after in ((took, more, after), (busy, more_cpu, after_cpu)):
            within, before, behind = (
                [of[step] for step in steps if step in of]
                for steps in (range(first, last + 1), sooner, later)
            )
            into.append(statistics.median(within) / statistics.median([*before, *behind]) - 1)
            if before and behind:  # the last window may be the run's last steps, too
                into_after.append(statistics.median(behind) / statistics.median(before) - 1)
        starting.append(took.get(first - 1, 0.0))
        closing.append(max(took.get(step, 0.0) for step in range(last + 1, last + BESIDE + 1)))
    usual = statistics.median(took.values())
    return (
        f"{framework:<9} {usual * 1e3:>8.2f} {_spread(more):>21} {_spread(more_cpu):>25} "
        f"{_spread(after):>22} {_spread(after_cpu):>26} "
        f"{starting[0] * 1e3:>13.1f} {statistics.median(starting) * 1e3:>10.1f} "
        f"{statistics.median(closing) * 1e3:>12.1f} {statistics.median(sizes):>11.0f}"
    )


def _spread(shares: list[float]) -> str:
    return f"{statistics.median(shares):.1%} ({min(shares):.1%} … {max(shares):.1%})"


def train(framework: str) -> None:
    """Steps until somebody stops it; how long each took and how busy it was, to a file."""
    import holdfast as hf

    step_once, repeats = (jax_step if framework == "jax" else torch_step)()
    run = hf.start()
    run.restore()
    took: dict[int, tuple[float, float]] = {}
    try:
        for step in run.steps(10**9):
            began_s, busy_s = time.perf_counter(), time.process_time()
            for _ in range(repeats):
                step_once()
            run.done(step)
            took[step] = time.perf_counter() - began_s, time.process_time() - busy_s
            if step == 50:
                Path(TOLD).write_text("{}")
    finally:
        Path(TOLD).write_text(json.dumps({step: s for step, s in took.items() if step > 50}))


def repeated(once: Step) -> tuple[Step, int]:
    """The step, and how often it is done to take as long as it should."""
    for _ in range(3):
        once()
    trials = []
    for _ in range(10):
        began_s = time.perf_counter()
        once()
        trials.append(time.perf_counter() - began_s)
    return once, max(1, round(TARGET_S / statistics.median(trials)))


def jax_step() -> tuple[Step, int]:
    """Four layers of a perceptron, forward and backward: some twenty operations of XLA."""
    import jax
    import jax.numpy as jnp

    weights = [jnp.full((512, 512), 0.01) for _ in range(4)]
    x = jnp.ones((256, 512))

    def loss(weights: list[jax.Array]) -> jax.Array:
        y = x
        for one in weights:
            y = jnp.tanh(y @ one)
        return jnp.square(y).mean()

    gradients = jax.jit(jax.grad(loss))
    return repeated(lambda: jax.block_until_ready(gradients(weights)))


def torch_step() -> tuple[Step, int]:
    """A layer of a transformer, forward and backward: some 350 operations."""
    import torch
    from torch import nn

    torch.set_num_threads(1)
    model = nn.TransformerEncoderLayer(512, 8, 2048, batch_first=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    x = torch.ones(2, 32, 512)

    def once() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return repeated(once)


if __name__ == "__main__":
    main()
