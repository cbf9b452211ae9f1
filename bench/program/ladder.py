"""What raises program goodput, one switch at a time and together, on the reference trainer.

    python bench/program/ladder.py                         # a small model, for a CPU
    python bench/program/ladder.py --size gpu              # a billion parameters, for one GPU
    python bench/program/ladder.py --size small --steps 300 --most-apart 0.05      # make parity

Each rung is a process of its own, one after the other. The peak is measured here too: a product of
large matrices. Two shares of it are told:

    MFU            FLOPs that this rung's model needs ÷ (time × peak for its type of number)
    effective MFU  FLOPs of dense attention ÷ (time × peak for the first rung's type)

The second compares rungs, as tokens a second do. Neither counts what is computed again.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


class Size(NamedTuple):
    """A model and a batch; of each context a ladder."""

    model: str
    contexts: dict[int, int]  # to the batch
    steps: int
    base: str  # what every rung has
    together: str
    peaks: tuple[str, ...] = ("float32", "bfloat16", "int8")


SMALL = "--width 64 --heads 2 --layers 4 --window 32 --global-every 2"
CPU = "--width 256 --heads 4 --layers 4 --window 128 --global-every 4"
# 20 × 12 × 2048² + 32,768 × 2048: 1.07 billion.
GPU = "--width 2048 --heads 16 --layers 20 --vocab 32768 --window 1024 --global-every 4"
SIZES = {
    "small": Size(
        SMALL, {128: 8}, 300, "--lr 3e-3",
        "--dtype bfloat16 --attention local-global --remat names --quant int8",
    ),
    "cpu": Size(CPU, {512: 4}, 8, "", "--attention local-global --remat names"),
    "gpu": Size(
        GPU, {1024: 32, 4096: 8, 16384: 2}, 20, "--dtype bfloat16 --remat full --lr 3e-4",
        "--attention local-global --remat names --quant int8", ("bfloat16", "int8"),
    ),
}  # fmt: skip
RUNGS = {
    "plain": "",
    "bfloat16": "--dtype bfloat16",
    "splash attention": "--attention splash",
    "local-global attention": "--attention local-global",
    "recompute all": "--remat full",
    "recompute, names kept": "--remat names",
    "names kept on the host": "--remat offload",
    "int8": "--quant int8",
    "batch in 4 parts": "--accumulate 4",
}
TAIL = 20  # a loss is the mean over so many last steps
WARM = 2  # steps that are not timed


def main() -> None:
    p = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    p.add_argument("--size", choices=SIZES, default="cpu")
    p.add_argument("--steps", type=int)
    p.add_argument("--rungs", help="some of their names, with commas between them")
    p.add_argument("--most-apart", type=float, help="fail where a loss is further from plain's")
    p.add_argument("--results", type=Path, default=ROOT / "build" / "program")
    args = p.parse_args()
    size = SIZES[args.size]
    names = args.rungs.split(",") if args.rungs else [*RUNGS, "together"]
    args.results.mkdir(parents=True, exist_ok=True)
    ladders = []
    peaks = {dtype: measured("--peak", dtype)["flops_per_s"] for dtype in size.peaks}
    told = ", ".join(f"{dtype} {value / 1e9:,.1f}" for dtype, value in peaks.items())
    print(f"peak, GFLOP/s: {told}; load {os.getloadavg()[0]:.1f}", flush=True)
    for context, batch in size.contexts.items():
        rows = {}
        for name in names:
            words = words_of(size, context, batch, args.steps or size.steps, name)
            rows[name] = told_of(measured(json.dumps(words)), words, peaks)
            if name == names[0]:
                print(heading(context, batch, rows[name]), flush=True)
            print(line(name, rows[name], rows[names[0]]), flush=True)
        ladders.append({"context": context, "batch": batch, "rows": rows})
    file = args.results / f"{args.size}.json"
    file.write_text(json.dumps({"peaks": peaks, "ladders": ladders}) + "\n")
    print(f"wrote {file}; load {os.getloadavg()[0]:.1f}")
    if args.most_apart is not None:
        refuse_apart(ladders, args.most_apart)


def words_of(size: Size, context: int, batch: int, steps: int, name: str) -> list[str]:
    switches = size.together if name == "together" else RUNGS[name]
    shape = f"--context {context} --batch {batch} --steps {steps}"
    return f"{size.model} {shape} {size.base} {switches}".split()


def measured(*words: str) -> dict[str, Any]:
    """What the process told; a rung that fails (out of memory) is told as such."""
    command = [sys.executable, str(HERE / "measure.py"), *words]
    done = subprocess.run(command, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def told_of(row: dict[str, Any], words: list[str], peaks: dict[str, float]) -> dict[str, Any]:
    """With what follows from it: tokens a second, MFU, effective MFU, the loss at the end."""
    if "failed" in row:
        return row
    step_s = statistics.median(row["step_s"][WARM:])
    kind = "int8" if "int8" in words else "bfloat16" if "bfloat16" in words else "float32"
    seconds = step_s * row["devices"]
    return row | {
        "median_s": step_s,
        "tokens_per_s": row["tokens"] / step_s,
        "mfu": row["flops"] / (seconds * peaks[kind]),
        "effective_mfu": row["dense_flops"] / (seconds * next(iter(peaks.values()))),
        "loss": statistics.mean(row["losses"][-TAIL:]),
    }


def heading(context: int, batch: int, row: dict[str, Any]) -> str:
    told = f"{row['parameters']:,} parameters, {row['device']}" if "device" in row else ""
    columns = (
        "| rung | tokens/s | of plain | MFU | effective MFU | memory planned, MiB | loss | Δ |"
    )
    return f"\ncontext {context}, batch {batch}: {told}\n\n{columns}\n|---" + "|---" * 7 + "|"


def line(name: str, row: dict[str, Any], plain: dict[str, Any]) -> str:
    if "failed" in row:
        return f"| {name} | failed: {row['failed']} |" + " |" * 6
    ratio = row["tokens_per_s"] / plain["tokens_per_s"] if "failed" not in plain else 0.0
    apart = row["held_out"] - plain["held_out"] if "failed" not in plain else 0.0
    return (
        f"| {name} | {row['tokens_per_s']:,.0f} | {ratio:.2f} × | {row['mfu']:.1%} | "
        f"{row['effective_mfu']:.1%} | {row['planned_bytes'] / 2**20:,.0f} | "
        f"{row['held_out']:.4f} | {apart:+.4f} |"
    )


def refuse_apart(ladders: list[dict[str, Any]], most: float) -> None:
    """End with 1 where the loss of a rung, in training or held out, is not that of the first."""
    for ladder in ladders:
        plain, *others = ladder["rows"].items()
        for name, row in others:
            for what in ("loss", "held_out"):
                apart = row.get(what, float("inf")) - plain[1][what]
                if not abs(apart) <= most:
                    sys.exit(f"{name}: {what} is {apart:+.4f} from {plain[0]}'s; allowed: {most}")


if __name__ == "__main__":
    main()
