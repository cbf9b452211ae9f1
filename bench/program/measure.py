"""One rung of the ladder, or the peak, measured in a process of its own; prints a line of JSON.

python bench/program/measure.py '["--remat", "full", …]'     # as examples/reference/train.py
python bench/program/measure.py --peak float32
python bench/program/measure.py --has fp8
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "lm"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "examples" / "reference"))

PEAK_SIDES = {"cpu": (1024, 2048), "gpu": (8192, 16384), "tpu": (8192, 16384)}
PEAK_SECONDS = 1.0


def main() -> None:
    if sys.argv[1] == "--peak":
        print(json.dumps(peak(sys.argv[2])))
    elif sys.argv[1] == "--has":
        print(json.dumps(has(sys.argv[2])))
    else:
        print(json.dumps(rung(json.loads(sys.argv[1]))))


def peak(dtype: str) -> dict[str, float]:
    """FLOP/s of a product of two square matrices as `holdfast calibrate` measures it: the best."""
    from holdfast.program.measure import OnJax, best_rate

    tool = OnJax()
    kind = {"float32": "fp32", "bfloat16": "bf16"}.get(dtype, dtype)
    rates = [
        best_rate(2 * side**3, tool.product(side, kind), PEAK_SECONDS, time.perf_counter)
        for side in PEAK_SIDES[tool.platform]
    ]
    return {"flops_per_s": max(rates)}


def has(dtype: str) -> dict[str, Any]:
    """Whether this device's data sheet has a peak for a type of numbers."""
    import jax

    from holdfast.program import peak_of

    kind = jax.devices()[0].device_kind
    return {"device": kind, "has": peak_of(kind, dtype) is not None}


def rung(words: list[str]) -> dict[str, Any]:
    """Some steps of the reference trainer: seconds and loss of each, memory, FLOPs needed."""
    import jax
    import numpy as np
    import train
    from data import read_corpus
    from jax.sharding import NamedSharding
    from mesh import ROWS, grid, parts
    from model import needed_flops
    from text import batches

    args = train.parser().parse_args(words)
    os.environ["NPROC"] = str(args.threads)
    if args.cpu_devices:
        jax.config.update("jax_num_cpu_devices", args.cpu_devices)
    mesh = grid(jax.devices(), args.fsdp, args.tensor, args.slices)
    config = train.config_of(args)
    init_state, train_step, eval_loss = train.training(args, config)
    corpus, held_out = read_corpus(args.data, (args.context + 1) * args.batch)
    rows = NamedSharding(mesh, ROWS)
    with jax.set_mesh(mesh):
        shardings = parts(mesh, jax.eval_shape(init_state))
        state = jax.jit(init_state, out_shardings=shardings)()
        data = batches(corpus, args.context + 1, args.batch, args.seed)
        start = time.perf_counter()
        batch = jax.device_put(next(data), rows)
        step = jax.jit(train_step, donate_argnums=0).lower(state, batch).compile()
        compile_s = time.perf_counter() - start
        step_s, losses = [], []
        for _ in range(args.steps):
            start = time.perf_counter()
            state, loss = step(state, batch)
            batch = jax.device_put(next(data), rows)
            losses.append(float(loss))
            step_s.append(time.perf_counter() - start)
        score = None
        if args.eval_every:  # it is a program more to compile
            held = batches(held_out, args.context + 1, args.batch, args.seed)
            score = float(np.mean([eval_loss(state["params"], next(held)) for _ in range(8)]))
    plain = train.config_of(train.parser().parse_args([*words, "--attention", "xla"]))
    return {
        "step_s": step_s,
        "losses": losses,
        "held_out": score,
        "compile_s": compile_s,
        "kind": args.dtype if args.quant == "none" else args.quant,
        "tokens": args.batch * args.context,
        "flops": needed_flops(config, args.batch, args.context),
        "dense_flops": needed_flops(plain, args.batch, args.context),
        "parameters": sum(leaf.size for leaf in jax.tree.leaves(state["params"])),
        "devices": len(jax.devices()),
        "device": jax.devices()[0].device_kind,
        "planned_bytes": planned_bytes(step),
        "peak_bytes": peak_bytes(jax.devices()[0]),
    }


def planned_bytes(step: Any) -> int:
    """What XLA has planned for a step on one device: arguments, results, and all between."""
    plan = step.memory_analysis()
    kept = plan.argument_size_in_bytes + plan.output_size_in_bytes - plan.alias_size_in_bytes
    return int(kept + plan.temp_size_in_bytes)


def peak_bytes(device: Any) -> int:
    """The most that was in use: of the device where it tells, else of the process."""
    told = device.memory_stats() or {}
    of_process = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return int(told.get("peak_bytes_in_use", of_process))


if __name__ == "__main__":
    main()
