"""What the first step of a restart costs: cold, with the compilation cache, with the compiled step.

    python bench/compile.py [--rounds N]

The reference model of examples/lm, one and two ranks under `holdfast run`. Each figure is the
first call of the step: until it returns (traced, lowered, compiled or found), and until its result
is there (where XLA prepares its kernels, however the program was come by). Of two ranks the slower
one counts.
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
from pathlib import Path

HERE = Path(__file__).resolve().parent
LM = HERE.parent / "examples" / "lm"
WAYS = ("cold", "cache", "step")  # nothing kept; compiled programs; the compiled step
MARK = "measured "


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="*", default=[1, 2])
    parser.add_argument("--child", choices=WAYS, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        measure(args.child)
        return
    columns = ("call, ms", "to the result, ms", "second step, ms")
    print("ranks way   " + "".join(column.rjust(26) for column in columns))
    for ranks in args.ranks:
        for way in WAYS:
            rounds = rounds_of(way, ranks, args.rounds)
            told = (spread(rounds, column) for column in range(len(columns)))
            print(f"{ranks:>5} {way:<6}{''.join(told)}", flush=True)


def spread(rounds: list[list[float]], column: int) -> str:
    """Median (least … most)."""
    values = [row[column] * 1000 for row in rounds]
    return f"{statistics.median(values):8.0f} ({min(values):.0f} … {max(values):.0f})".rjust(26)


def rounds_of(way: str, ranks: int, rounds: int) -> list[list[float]]:
    """[call, result, second step] in seconds per round; the first start fills the cache."""
    found = []
    with tempfile.TemporaryDirectory() as folder:
        env = os.environ | {
            "HOLDFAST_STORE": f"{folder}/store",
            "HOLDFAST_SCRATCH": f"{folder}/scratch",
            "HOLDFAST_COMPILE_CACHE": "off" if way == "cold" else "auto",
        }
        child = [sys.executable, str(HERE / "compile.py"), "--child", way]
        start = ["holdfast", "run", "--name", "r", "--ranks", str(ranks), "--status", "off", "--"]
        for number in range(rounds + (way != "cold")):
            command = [str(Path(sys.executable).with_name(start[0])), *start[1:], *child]
            out = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
            lines = [line for line in out.stdout.splitlines() if MARK in line]
            lines += [line for line in out.stderr.splitlines() if MARK in line]
            told = [json.loads(line.partition(MARK)[2]) for line in lines]
            if way == "cold" or number:
                found.append([max(column) for column in zip(*told, strict=True)])
    return found


def measure(way: str) -> None:
    """One start; the run goes on by two steps."""
    sys.path.insert(0, str(LM))
    import jax
    import numpy as np
    import train
    from jax.sharding import NamedSharding, PartitionSpec
    from ranks import join_ranks

    import holdfast as hf

    run = hf.start()
    args = train.parser().parse_args(["--threads", "1"])
    init_state, step, _ = train.training(args)
    mesh = join_ranks()
    init_state = jax.jit(init_state, out_shardings=NamedSharding(mesh, PartitionSpec()))
    by_rows = NamedSharding(mesh, PartitionSpec("rows"))
    state = run.restore(init=init_state)
    if way == "step":
        step = run.compile(step)
    rows = np.zeros((args.batch // run.world_size, args.context + 1), np.uint8)
    took = []
    for n in run.steps(run.resume_step + 2):
        batch = jax.make_array_from_process_local_data(by_rows, rows)
        start = time.perf_counter()
        state, loss = step(state, batch)
        took.append(time.perf_counter() - start)
        loss.block_until_ready()
        took.append(time.perf_counter() - start)
        run.done(n, state)
    print(MARK + json.dumps([took[0], took[1], took[3]]), flush=True)


if __name__ == "__main__":
    main()
