"""What raises program goodput, one switch at a time and together, on the reference trainer.

    python bench/program/ladder.py                         # a small model, for a CPU
    python bench/program/ladder.py --size gpu              # a billion parameters, for one GPU
    python bench/program/ladder.py --size gpu --contexts 4096 --rungs "plain;int8;together"
    python bench/program/ladder.py --size small --most-worse 0.02     # make parity

Each rung is a process of its own, one after the other. Results are added to those in build/program:
a second call is a second round, and of each rung its fastest round counts. The peak is measured
too, by products of large matrices. fp8 is tried on devices that have it. Two shares of it are told:

    MFU            FLOPs that this rung's model needs ÷ (time × peak for its type of number)
    effective MFU  FLOPs of dense attention ÷ (time × peak for the first rung's type)

The second compares rungs, as tokens a second do. Neither counts what is computed again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple, TypedDict

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


Row = dict[str, Any]
Ladders = dict[str, dict[str, Row]]  # by context, and rung
LOSSES = ("loss", "held_out")


class Results(TypedDict):
    """What is kept: the best peaks of all rounds, and each rung's rounds, by context."""

    peaks: dict[str, float]
    ladders: dict[str, dict[str, list[Row]]]


class Size(NamedTuple):
    """A model and a batch; of each context a ladder."""

    model: str
    contexts: dict[int, int]  # to the batch
    steps: int
    base: str  # what every rung has
    together: str
    peaks: tuple[str, ...] = ("float32", "bfloat16", "int8")
    without: tuple[str, ...] = ("attention without a kernel",)  # rungs that would change nothing

    def rungs(self) -> list[str]:
        return [name for name in [*RUNGS, "together"] if name not in self.without]


SMALL = "--width 64 --heads 2 --layers 4 --window 32 --global-every 2"
CPU = "--width 256 --heads 4 --layers 4 --window 128 --global-every 4"
# 20 × 12 × 2048² + 32,768 × 2048: 1.07 billion.
GPU = "--width 2048 --heads 16 --layers 20 --vocab 32768 --window 1024 --global-every 4"
SIZES = {
    "small": Size(
        SMALL, {128: 8}, 300, "--lr 3e-3",
        "--dtype bfloat16 --attention local-global --remat names --quant int8",
    ),
    "cpu": Size(
        CPU, {512: 4}, 8, "",
        "--dtype bfloat16 --attention local-global --remat names",
    ),
    "gpu": Size(
        GPU, {1024: 32, 4096: 8, 16384: 2}, 20,
        "--dtype bfloat16 --attention splash --remat full --lr 3e-4 --eval-every 0",
        "--attention local-global --remat names --quant int8", ("bfloat16", "int8"),
        ("bfloat16", "splash attention", "recompute all", "huge pages"),
    ),
}  # fmt: skip
RUNGS = {
    "plain": "",
    "bfloat16": "--dtype bfloat16",
    "attention without a kernel": "--attention xla",
    "splash attention": "--attention splash",
    "local-global attention": "--attention local-global",
    "recompute all": "--remat full",
    "recompute, names kept": "--remat names",
    "names kept on the host": "--remat offload",
    "int8": "--quant int8",
    "fp8": "--quant fp8",
    "batch in 4 parts": "--accumulate 4",
    "huge pages": "",
}
# A CPU's activations lie in memory that is fresh in each step, and is touched page by page.
HUGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
VARIABLES = {"huge pages": HUGE_PAGES, "together": HUGE_PAGES}
TAIL = 20  # a loss is the mean over so many last steps
WARM = 2  # steps that are not timed


def main() -> None:
    p = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    p.add_argument("--size", choices=SIZES, default="cpu")
    p.add_argument("--steps", type=int)
    p.add_argument("--rungs", help="some of their names, with semicolons between them")
    p.add_argument("--contexts", help="some of the size's, with commas between them")
    p.add_argument("--most-worse", type=float, help="fail where a loss is so much above plain's")
    p.add_argument("--results", type=Path, default=ROOT / "build" / "program")
    args = p.parse_args()
    size = SIZES[args.size]
    names = args.rungs.split(";") if args.rungs else size.rungs()
    contexts = size.contexts
    if args.contexts:
        contexts = {int(one): size.contexts[int(one)] for one in args.contexts.split(",")}
    args.results.mkdir(parents=True, exist_ok=True)
    file = args.results / f"{args.size}.json"
    results: Results = {"peaks": {}, "ladders": {}}
    with contextlib.suppress(FileNotFoundError):
        results = json.loads(file.read_text())
    print(f"load {os.getloadavg()[0]:.1f}", flush=True)
    for dtype in size.peaks:
        found = measured("--peak", dtype)["flops_per_s"]
        results["peaks"][dtype] = max(found, results["peaks"].get(dtype, 0.0))
    if "fp8" in names and (lacks := without_fp8(results["peaks"])):
        names.remove("fp8")
        print(f"fp8 is not available: {lacks}", flush=True)
    for context, batch in contexts.items():
        ladder = results["ladders"].setdefault(str(context), {})
        for name in names:
            words = words_of(size, context, batch, args.steps or size.steps, name)
            ladder.setdefault(name, []).append(
                measured(json.dumps(words), **VARIABLES.get(name, {}))
            )
            file.write_text(json.dumps(results) + "\n")
            print(f"  context {context}, {name}: measured", flush=True)
    told = told_ladders(results)
    print(f"load {os.getloadavg()[0]:.1f}\n\n{table(results['peaks'], told)}")
    if args.most_worse is not None:
        refuse_worse(told, args.most_worse)


def without_fp8(peaks: dict[str, float]) -> str:
    """Why there is no rung of fp8; "": this device has such units, and their peak is measured."""
    has = measured("--has", "fp8")
    if not has.get("has"):
        return str(has.get("failed") or f"{has['device']} is not known to have units for it")
    found = measured("--peak", "fp8")
    if "failed" in found:
        return f"its peak could not be measured ({found['failed']})"
    peaks["fp8"] = max(found["flops_per_s"], peaks.get("fp8", 0.0))
    return ""


def words_of(size: Size, context: int, batch: int, steps: int, name: str) -> list[str]:
    switches = size.together if name == "together" else RUNGS[name]
    shape = f"--context {context} --batch {batch} --steps {steps}"
    return f"{size.model} {shape} {size.base} {switches}".split()


def measured(*words: str, **variables: str) -> Row:
    """What the process told; a rung that fails (out of memory) is told as such."""
    command = [sys.executable, str(HERE / "measure.py"), *words]
    environment = os.environ | variables
    done = subprocess.run(
        command, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=environment
    )
    if done.returncode:
        return {"failed": (done.stderr.strip().splitlines() or ["no word"])[-1][:200]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def told_ladders(results: Results) -> Ladders:
    """Of each context, each rung's rounds as one row."""
    return {
        context: {name: told_of(rounds, results["peaks"]) for name, rounds in ladder.items()}
        for context, ladder in results["ladders"].items()
    }


def told_of(rounds: list[Row], peaks: dict[str, float]) -> Row:
    """What follows from the rounds: tokens a second, MFU, effective MFU, the loss at the end."""
    whole = [one for one in rounds if "failed" not in one]
    if not whole:
        return {"failed": rounds[-1]["failed"]}
    rounds, row = whole, whole[-1]
    medians = [statistics.median(one["step_s"][WARM:]) for one in rounds]
    step_s = min(medians)  # what else ran then has only made others slower, as for the peaks
    seconds = step_s * row["devices"]
    return row | {
        "tokens_per_s": row["tokens"] / step_s,
        "spread": [row["tokens"] / max(medians), row["tokens"] / min(medians)],
        "rounds": len(rounds),
        "mfu": row["flops"] / (seconds * peaks[row["kind"]]),
        "effective_mfu": row["dense_flops"] / (seconds * next(iter(peaks.values()))),
        "loss": statistics.mean(row["losses"][-TAIL:]),
    }


def table(peaks: dict[str, float], ladders: Ladders) -> str:
    told = ", ".join(f"{dtype} {value / 1e9:,.0f}" for dtype, value in peaks.items())
    lines = [f"peak reached by a product of large matrices, GFLOP/s: {told}"]
    for context, rows in ladders.items():
        plain = next(iter(rows.values()))
        lines += ["", f"context {context}, {plain.get('parameters', 0):,} parameters", "", HEADING]
        lines += [line(name, row, plain) for name, row in rows.items()]
    return "\n".join(lines)


HEADING = (
    "| rung | tokens/s (least … most) | of plain | MFU | effective MFU | memory planned, MiB | "
    "loss at the end | held out |\n|---|---|---|---|---|---|---|---|"
)


def line(name: str, row: Row, plain: Row) -> str:
    if "failed" in row or "failed" in plain:
        return f"| {name} | failed: {row.get('failed', 'plain did')} |" + " |" * 6
    least, most = row["spread"]
    losses = (
        "" if row[what] is None else f"{row[what]:.4f} ({row[what] - plain[what]:+.4f})"
        for what in LOSSES
    )
    return (
        f"| {name} | {row['tokens_per_s']:,.0f} ({least:,.0f} … {most:,.0f}) | "
        f"{row['tokens_per_s'] / plain['tokens_per_s']:.2f} × | {row['mfu']:.1%} | "
        f"{row['effective_mfu']:.1%} | {row['planned_bytes'] / 2**20:,.0f} | "
        f"{' | '.join(losses)} |"
    )


def refuse_worse(ladders: Ladders, most: float) -> None:
    """End with 1 where a rung's loss, in training or held out, is so much above the first's."""
    for rows in ladders.values():
        (plain_name, plain), *others = rows.items()
        for name, row in others:
            for what in LOSSES:
                worse = row.get(what, float("inf")) - plain[what]
                if not worse <= most:
                    sys.exit(f"{name}: {what} is {worse:+.4f} of {plain_name}'s; allowed: {most}")


if __name__ == "__main__":
    main()
