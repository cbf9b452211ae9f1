"""From memory to disk beside the training: the flush against write + fsync, and what steps notice.

    python bench/flush.py [--gib 1] [--rounds 5] [--dir PATH] [--memory-dir PATH]

Floor: write + fsync of the same bytes to a new file, in the same round. The real flush processes do
the rest: one at hand, for somebody who waits (a stop), and the one that gives way to the training.
The training is a loop of matrix products on every core, in this process; what its steps take while
the second one flushes, which spreads its work out, is compared with what they take just before.
Needs three times `--gib` of free disk, and once of memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import selectors
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path

import numpy as np

from holdfast.agent.flush import FlushProcesses, FlushResult
from holdfast.snapshot.ram_folder import buffer_name
from holdfast.snapshot.sets import commit, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import Staging

BLOCK_BYTES = 16 << 20
ARRAYS = 16
SIDE = 768  # of the matrices of a step: some 20 ms on two cores
QUIET_STEPS = 60

Seconds = dict[str, list[float]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--memory-dir", type=Path, default=Path("/dev/shm"))
    args = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="flush-bench-", dir=args.dir))
    memory = Path(tempfile.mkdtemp(prefix="flush-bench-", dir=args.memory_dir))
    try:
        show(run(folder, memory, int(args.gib * 2**30), args.rounds), args.gib)
    finally:
        shutil.rmtree(folder)
        shutil.rmtree(memory)


def run(folder: Path, memory: Path, size_bytes: int, rounds: int) -> Seconds:
    """Seconds by name, one entry per round."""
    seconds: Seconds = defaultdict(list)
    buffer, data = sealed(memory, size_bytes)
    selector = selectors.DefaultSelector()
    flushes = FlushProcesses(selector, dict(os.environ))
    try:
        for step in range(rounds + 1):  # the first one warms everything
            in_turn: list[tuple[str, Callable[[], float]]] = [
                ("floor", lambda: write_and_sync(folder / "floor", data)),
                ("at hand", lambda: awaited(flushes, selector, buffer, folder, urgent=True)),
            ]
            # A disk that has rested is faster for whoever is first.
            in_turn = in_turn[::-1] if step % 2 else in_turn
            last = ("giving way", lambda: awaited(flushes, selector, buffer, folder, urgent=False))
            for name, flush in (*in_turn, last):
                took_s = flush()
                if step:
                    seconds[name].append(took_s)
            quiet_s, beside_s, flush_s = train_beside(flushes, buffer, folder)
            if step:
                seconds["step"].append(quiet_s)
                seconds["step beside it"].append(beside_s)
                seconds["beside training"].append(flush_s)
    finally:
        flushes.close()
        selector.close()
    return seconds


def sealed(memory: Path, size_bytes: int) -> tuple[Path, memoryview]:
    """A sealed buffer of about that size, and the bytes for the floor."""
    elements = size_bytes // 4 // ARRAYS
    rng = np.random.default_rng(0)
    state = {f"w{n:02d}": rng.random(elements, dtype=np.float32) for n in range(ARRAYS)}
    place = memory / set_name(0, 1)
    captured = Staging().capture({"state": state})
    write_shard(place, captured, attempt=0, step=1, rank=0, world_size=1)
    commit(place, 1)
    return place.rename(memory / buffer_name(0)), captured.data


def write_and_sync(path: Path, data: memoryview) -> float:
    started = time.perf_counter()
    descriptor = os.open(path, os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
    for start in range(0, data.nbytes, BLOCK_BYTES):
        os.write(descriptor, data[start : start + BLOCK_BYTES])
    os.fsync(descriptor)
    os.close(descriptor)
    took_s = time.perf_counter() - started
    path.unlink()
    return took_s


def begin(
    flushes: FlushProcesses,
    buffer: Path,
    folder: Path,
    done: Callable[[FlushResult], None],
    *,
    urgent: bool,
) -> Path:
    place = folder / set_name(0, 1)
    flushes.flush(buffer, place, done, attempt=0, step=1, urgent=urgent)
    return place


def awaited(
    flushes: FlushProcesses,
    selector: selectors.BaseSelector,
    buffer: Path,
    folder: Path,
    *,
    urgent: bool,
) -> float:
    """One flush, with nothing beside it."""
    outcomes: list[FlushResult] = []
    started = time.perf_counter()
    place = begin(flushes, buffer, folder, outcomes.append, urgent=urgent)
    while not outcomes:
        selector.select(1.0)
        flushes.turn()
    took_s = time.perf_counter() - started
    check(outcomes[0], place)
    return took_s


def train_beside(flushes: FlushProcesses, buffer: Path, folder: Path) -> tuple[float, float, float]:
    """Mean seconds of a step before and during a flush, and the seconds that the flush took."""
    matrix = np.random.default_rng(1).random((SIDE, SIDE), dtype=np.float32)
    outcomes: list[FlushResult] = []

    def step() -> float:
        started = time.perf_counter()
        product = matrix
        for _ in range(4):
            product = matrix @ product
        return time.perf_counter() - started

    quiet = [step() for _ in range(QUIET_STEPS)]
    started = time.perf_counter()
    place = begin(flushes, buffer, folder, outcomes.append, urgent=False)
    beside = []
    while not outcomes:
        beside.append(step())
        flushes.turn()
    took_s = time.perf_counter() - started
    check(outcomes[0], place)
    return statistics.mean(quiet), statistics.mean(beside), took_s


def check(outcome: FlushResult, place: Path) -> None:
    if outcome.why is not None:
        raise SystemExit(outcome.why)
    shutil.rmtree(place)


def show(seconds: Seconds, gib: float) -> None:
    print(f"{platform.platform()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    floor = seconds["floor"]
    print(f"write + fsync of {gib:g} GiB: {spread(floor)}")
    for name, target in (("at hand", 1.3), ("giving way", None), ("beside training", None)):
        ratio = statistics.median(a / b for a, b in zip(seconds[name], floor, strict=True))
        wanted = "" if target is None else f" (target {target})"
        print(f"flush, {name}: {spread(seconds[name])}, {ratio:.2f} x{wanted}")
    pairs = zip(seconds["step beside it"], seconds["step"], strict=True)
    slowed = statistics.median(beside / quiet for beside, quiet in pairs) - 1
    print(f"a step: {spread(seconds['step'])}; beside the flush {slowed:+.1%} (target +5 %)")


def spread(values: list[float]) -> str:
    return f"{statistics.median(values):.3f} s ({min(values):.3f} … {max(values):.3f})"


if __name__ == "__main__":
    main()
