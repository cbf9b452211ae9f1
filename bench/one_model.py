"""One model on disk: what data-parallel ranks hold alike, written once, and by each of them.

    python bench/one_model.py [--mib 60] [--ranks 2] [--rounds 9] [--dir PATH] [--memory-dir PATH]

Each rank's buffer holds the same model in 100 arrays, and 1 KiB of its own. Both ways in turn, in
each round: the flush, by a process's own code at full speed, and a restore from the page cache by
all ranks at a time, a process each, into memory that was made ready (as a restart does).
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from multiprocessing.synchronize import Barrier
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.snapshot import flush
from holdfast.snapshot.once import written_once
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.restore import prepare, read_set
from holdfast.snapshot.seal import seal_buffer
from holdfast.snapshot.sets import commit, set_name
from holdfast.snapshot.staging import GLOBAL

ARRAYS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--mib", type=int, default=60)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--memory-dir", type=Path, default=Path("/dev/shm"))
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="one-model-", dir=args.dir))
    memory = Path(tempfile.mkdtemp(prefix="one-model-", dir=args.memory_dir))
    try:
        buffer = sealed(memory, args.mib << 20, args.ranks)
        print(f"load {os.getloadavg()[0]:.1f}, {len(os.sched_getaffinity(0))} cores")
        show(run(buffer, folder, args.ranks, args.rounds), args.ranks)
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(memory)


def sealed(memory: Path, size_bytes: int, ranks: int) -> Path:
    """A buffer in memory with the same arrays by each rank."""
    draw = np.random.default_rng(0)
    model = {str(n): draw.normal(size=size_bytes // ARRAYS // 8) for n in range(ARRAYS)}
    for rank in range(ranks):
        tree = {"state": model, "own": np.full(128, float(rank))}
        files = BufferFiles(memory, wanted=1, rank=rank, world_size=ranks, local_world_size=ranks)
        files.prepare(files.measure(tree))
        files.begin(0, tree, Named(0, 1, 0, GLOBAL, ()), None)
    buffer = memory / buffer_name(0)
    seal_buffer(buffer, ranks, attempt=0, step=1)
    return buffer


def run(buffer: Path, folder: Path, ranks: int, rounds: int) -> dict[str, list[float]]:
    """Figures by name, one entry a round; the first round is thrown away."""
    ways = {"once": written_once, "all of each": lambda receipts, *_: written_once(receipts, ())}
    found: dict[str, list[float]] = defaultdict(list)
    for number in range(rounds + 1):
        for way, plan in ways.items():
            setattr(flush, written_once.__name__, plan)
            place = folder / set_name(0, 1)
            started = time.perf_counter()
            flush.flush_set(buffer, place, attempt=0, step=1)
            flushed_s = time.perf_counter() - started
            nbytes = commit(place, ranks).nbytes
            if number:
                found[f"{way}: MiB on disk"].append(nbytes / 2**20)
                found[f"{way}: flush, ms"].append(flushed_s * 1e3)
                found[f"{way}: restore, ms"].append(restored_s(place, ranks) * 1e3)
            shutil.rmtree(place)
    return found


def restored_s(place: Path, ranks: int) -> float:
    """The slowest rank's restore, all at a time."""
    context = multiprocessing.get_context("fork")
    together, told = context.Barrier(ranks), context.SimpleQueue()
    args = [(place, rank, ranks, together, told) for rank in range(ranks)]
    processes = [context.Process(target=restore, args=one) for one in args]
    for process in processes:
        process.start()
    longest = max(told.get() for _ in processes)
    for process in processes:
        process.join()
    return float(longest)


def restore(place: Path, rank: int, ranks: int, together: Barrier, told: Any) -> None:
    """One rank's restore, after all are ready."""
    room = prepare(place, rank, ranks)
    together.wait()
    started = time.perf_counter()
    read_set(place, rank=rank, world_size=ranks, room=room)
    told.put(time.perf_counter() - started)


def show(found: dict[str, list[float]], ranks: int) -> None:
    for name, values in found.items():
        spread = f"{min(values):.1f} to {max(values):.1f}"
        print(f"{ranks} ranks, {name}: {statistics.median(values):.1f} ({spread})")


if __name__ == "__main__":
    main()
