"""What a copy into memory blocks, of all of the state by each rank, and of a part by each.

    python bench/copy_in_parts.py [--ranks 2] [--rounds 40] [--memory-dir PATH]

A process for each rank; all begin a copy at once, and hold the same language model of 5 million
parameters with its AdamW state in PyTorch, 60 MB. Both ways in turn, in each round, into the same
buffers; what counts is the rank that takes longest. Then seals of both kinds of sets, as processor
time of the one process that makes them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import torch

from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.seal import KnownHeaders, seal_part

WARM = 5
SHARED = ("parts/model", "parts/optimizer")
REPLICATED = ("parts/model", "parts/optimizer/state")
WAYS = {"whole": False, "in parts": True}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--memory-dir", type=Path, default=Path("/dev/shm"))
    args = parser.parse_args()
    memory = Path(tempfile.mkdtemp(prefix="copies-", dir=args.memory_dir))
    try:
        print(f"load {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} cores")
        by_rank = run(memory, args.ranks, args.rounds)
        for way in by_rank[0]:
            longest = [max(one) for one in zip(*(found[way] for found in by_rank), strict=True)]
            spread = f"{min(longest):.1f} to {max(longest):.1f}"
            print(f"{args.ranks} ranks, {way}: {statistics.median(longest):.1f} ms ({spread})")
        for way, took in seals(memory / "sealed", args.ranks, args.rounds).items():
            spread = f"{min(took):.1f} to {max(took):.1f}"
            print(f"seal, {way}: {statistics.median(took):.1f} ms of a core ({spread})")
    finally:
        shutil.rmtree(memory)


def run(memory: Path, ranks: int, rounds: int) -> list[dict[str, list[float]]]:
    """By rank, milliseconds by way."""
    context = multiprocessing.get_context("spawn")
    together, told = context.Barrier(ranks), context.SimpleQueue()
    args = [(memory, rank, ranks, rounds, together, told) for rank in range(ranks)]
    processes = [context.Process(target=copy, args=one) for one in args]
    for process in processes:
        process.start()
    found = [told.get() for _ in processes]
    for process in processes:
        process.join()
    return found


def copy(memory: Path, rank: int, ranks: int, rounds: int, together: Barrier, told: Any) -> None:
    """One rank's copies."""
    torch.set_num_threads(1)
    tree = state()
    files = BufferFiles(memory, wanted=3, rank=rank, world_size=ranks, local_world_size=ranks)
    files.prepare(files.measure(tree, SHARED))
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds + WARM):
        for way, in_parts in WAYS.items():
            named = Named(0, number, number, SHARED, (), REPLICATED, in_parts)
            together.wait()
            started = time.perf_counter()
            files.begin(number % 3, tree, named, None)
            if number >= WARM:
                found[way].append((time.perf_counter() - started) * 1e3)
    told.put(found)


def seals(memory: Path, ranks: int, rounds: int) -> dict[str, list[float]]:
    """Milliseconds by way, of processor time."""
    tree, known = state(), KnownHeaders()
    memory.mkdir()
    each = [
        BufferFiles(memory, wanted=3, rank=rank, world_size=ranks, local_world_size=ranks)
        for rank in range(ranks)
    ]
    for files in each:
        files.prepare(files.measure(tree, SHARED))
    found: dict[str, list[float]] = {way: [] for way in WAYS}
    for number in range(rounds + WARM):
        for way, in_parts in WAYS.items():
            for files in each:
                named = Named(0, number, number, SHARED, (), REPLICATED, in_parts)
                files.begin(number % 3, tree, named, None)
            started, buffer = time.thread_time(), memory / buffer_name(number % 3)
            seal_part(buffer, ranks, attempt=0, step=number, known=known)
            if number >= WARM:
                found[way].append((time.thread_time() - started) * 1e3)
    return found


def state() -> dict[str, Any]:
    """What a part `model` and a part `optimizer` store."""
    shapes: dict[str, tuple[int, ...]] = {"embedding": (1024, 256)}
    for layer in range(6):
        sizes = {"qkv": (768, 256), "out": (256, 256), "up": (1024, 256), "down": (256, 1024)}
        shapes |= {f"{layer}.{name}": size for name, size in sizes.items()}
        shapes |= {f"{layer}.{name}": (256,) for name in ("norm1", "norm2", "bias1", "bias2")}
    model = {name: torch.ones(shape) for name, shape in shapes.items()}
    moments = {
        index: {"step": torch.ones(()), "exp_avg": one * 0, "exp_avg_sq": one * 0}
        for index, one in enumerate(model.values())
    }
    return {"parts": {"model": model, "optimizer": {"state": moments}}}


if __name__ == "__main__":
    main()
