"""Checkpoints against what physics allows, and beside Orbax: everything in turn, in one run.

    python bench/checkpoint.py [--gib 1] [--rounds 5] [--dir PATH] [--no-orbax]

Floors: a copy of the same bytes into warm memory (one thread); write + fsync of the same bytes to a
new file; a read of the same bytes from the page cache into a warm buffer. A ratio is a median over
the rounds of (measured / the same round's floor). Needs three times `--gib` of free disk and eight
times of memory, three of them in /dev/shm. `JAX_PLATFORMS=cpu` unless it is set.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import platform
import shutil
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import numpy as np

from holdfast.snapshot.memory import reserve, touch
from holdfast.snapshot.ram import BufferFiles, Named
from holdfast.snapshot.ram_folder import BASE, buffer_name, claim_ram
from holdfast.snapshot.restore import prepare, read_set
from holdfast.snapshot.seal import seal_buffer
from holdfast.snapshot.sets import commit, set_name
from holdfast.snapshot.shard import write_shard
from holdfast.snapshot.staging import GLOBAL, Staging

BLOCK_BYTES = 16 << 20
ARRAYS = 16


class Clock:
    """Seconds by name, one entry per round."""

    def __init__(self) -> None:
        self.seconds: dict[str, list[float]] = defaultdict(list)

    @contextlib.contextmanager
    def time(self, name: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.seconds[name].append(time.perf_counter() - started)

    def median(self, name: str) -> float:
        return statistics.median(self.seconds[name])

    def ratio(self, name: str, floor: str) -> float:
        """The median over the rounds of the ratio to the same round's floor."""
        pairs = zip(self.seconds[name], self.seconds[floor], strict=True)
        return statistics.median(mine / physics for mine, physics in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--gib", type=float, default=1.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--dir", type=Path, default=Path("/var/tmp"))
    parser.add_argument("--memory-dir", type=Path, default=BASE)
    parser.add_argument("--no-orbax", action="store_true")
    parser.add_argument("--memory-only", action="store_true", help="the memory tier alone")
    args = parser.parse_args()

    folder = Path(tempfile.mkdtemp(prefix="checkpoint-bench-", dir=args.dir))
    ram = claim_ram(args.memory_dir, folder.name)
    try:
        tiers = (not args.memory_only, not (args.memory_only or args.no_orbax))
        clock = run(folder, ram.path, int(args.gib * 2**30), args.rounds, *tiers)
    finally:
        ram.remove()
        shutil.rmtree(folder)
    show(clock, args.gib)


def run(folder: Path, ram: Path, size_bytes: int, rounds: int, disk: bool, orbax: bool) -> Clock:
    clock = Clock()
    elements = size_bytes // 4 // ARRAYS
    keys = jax.random.split(jax.random.key(0), ARRAYS)
    state = {f"layer{n:02d}": jax.random.normal(key, (elements,)) for n, key in enumerate(keys)}
    jax.block_until_ready(state)
    sources = [np.asarray(array).view(np.uint8) for array in state.values()]
    warm = reserve(sum(source.size for source in sources))
    touch(warm)
    measures: list[Callable[[int], None]] = [
        lambda _: copy_floor(clock, sources, warm),
        holdfast_memory(clock, ram, state),
    ]
    if disk:
        measures += [
            lambda number: write_floor(clock, folder / f"floor-{number}", warm),
            holdfast_save(clock, folder, state),
            lambda _: read_floor(clock, folder, warm),
            lambda _: holdfast_restore(clock, folder, state),
        ]
    if orbax:
        measures += orbax_measures(clock, folder, state)
    for measure in measures:  # a round that does not count: imports, first allocations, page cache
        measure(0)
    clock.seconds.clear()
    for number in range(1, rounds + 1):
        for measure in measures:
            measure(number)
            os.sync()  # nobody's dirty pages are written in somebody else's time
    return clock


def copy_floor(clock: Clock, sources: list[Any], warm: Any) -> None:
    with clock.time("copy into warm memory"):
        position = 0
        for source in sources:
            np.copyto(warm[position : position + source.size], source)
            position += source.size


def write_floor(clock: Clock, path: Path, warm: Any) -> None:
    with clock.time("write + fsync"):
        write(path, warm)
    path.unlink()


def write(path: Path, data: Any) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    for start in range(0, data.size, BLOCK_BYTES):
        block = data[start : start + BLOCK_BYTES].data
        while block:
            block = block[os.write(descriptor, block) :]
    os.fsync(descriptor)
    os.close(descriptor)


def read_floor(clock: Clock, folder: Path, warm: Any) -> None:
    path = folder / "read-floor"
    if not path.exists():
        write(path, warm)
    descriptor = os.open(path, os.O_RDONLY)
    for name in ("", "read from page cache"):  # the first read makes sure that it is there
        with clock.time(name):
            position = 0
            while position < warm.size:
                block = warm[position : position + BLOCK_BYTES].data
                position += os.preadv(descriptor, [block], position)
    os.close(descriptor)


def holdfast_save(clock: Clock, folder: Path, state: Any) -> Callable[[int], None]:
    staging = Staging()
    staging.prepare({"state": state})

    def measure(number: int) -> None:
        place = folder / "ckpt" / set_name(0, number)
        shutil.rmtree(folder / "ckpt", ignore_errors=True)
        (folder / "ckpt").mkdir()
        with clock.time("Holdfast save, total"):
            with clock.time("Holdfast save, blocked"):
                captured = staging.capture({"state": state})
            write_shard(place, captured, attempt=0, step=number, rank=0, world_size=1)
            captured.release()
            commit(place, 1)

    return measure


def holdfast_memory(clock: Clock, ram: Path, state: Any) -> Callable[[int], None]:
    """A copy into a buffer, sealed as the flush process does it, and read as the next life does."""
    buffers = BufferFiles(ram, wanted=3, rank=0, world_size=1, local_world_size=1)
    tree = {"state": state}
    why = buffers.prepare(buffers.measure(tree))  # a thread of the session does this
    assert buffers.ready == 3, why
    like = {"state": jax.eval_shape(lambda: state)}

    def measure(number: int) -> None:
        place = ram / buffer_name(number % 3)
        with clock.time("Holdfast memory save, blocked"):
            buffers.begin(number % 3, tree, Named(0, number, 0, GLOBAL, ()), None)
        with clock.time("Holdfast memory seal"):
            seal_buffer(place, 1, attempt=0, step=number)
        room = prepare(place)  # a thread of the session does this while the script imports
        with clock.time("Holdfast memory restore, verified"):
            restored = read_set(place, like, room=room)
            jax.block_until_ready(restored)
        check(restored["state"], state)

    return measure


def holdfast_restore(clock: Clock, folder: Path, state: Any) -> None:
    (place,) = [path for path in (folder / "ckpt").iterdir() if path.is_dir()]
    like = {"state": jax.eval_shape(lambda: state)}
    with clock.time("Holdfast restore, verified"):
        restored = read_set(place, like)
        jax.block_until_ready(restored)
    check(restored["state"], state)
    del restored
    room = prepare(place)  # a thread of the session does this while the script imports
    with clock.time("Holdfast restore, prepared"):
        restored = read_set(place, like, room=room)
        jax.block_until_ready(restored)
    check(restored["state"], state)


def check(restored: Any, state: Any) -> None:
    name = f"layer{ARRAYS - 1:02d}"
    assert np.array_equal(np.asarray(restored[name]), np.asarray(state[name]))


def orbax_measures(clock: Clock, folder: Path, state: Any) -> list[Callable[[int], None]]:
    import orbax.checkpoint as ocp

    sync = ocp.Checkpointer(ocp.PyTreeCheckpointHandler())
    asynchronous = ocp.AsyncCheckpointer(ocp.PyTreeCheckpointHandler())
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=x.sharding), state
    )

    def save(_: int) -> None:
        shutil.rmtree(folder / "orbax", ignore_errors=True)
        with clock.time("Orbax save, sync"):
            sync.save(folder / "orbax", args=ocp.args.PyTreeSave(state))

    def save_async(_: int) -> None:
        shutil.rmtree(folder / "orbax-async", ignore_errors=True)
        with clock.time("Orbax save, async, total"):
            with clock.time("Orbax save, async, blocked"):
                asynchronous.save(folder / "orbax-async", args=ocp.args.PyTreeSave(state))
            asynchronous.wait_until_finished()

    def restore(_: int) -> None:
        arguments = ocp.checkpoint_utils.construct_restore_args(abstract)
        with clock.time("Orbax restore, not verified"):
            restored = sync.restore(
                folder / "orbax",
                args=ocp.args.PyTreeRestore(item=abstract, restore_args=arguments),
            )
            jax.block_until_ready(restored)
        check(restored, state)

    return [save, save_async, restore]


FLOORS = {
    "memory save, blocked": ("copy into warm memory", 1.3),
    "memory seal": ("copy into warm memory", None),
    "memory restore, verified": ("copy into warm memory", 2.0),
    "save, blocked": ("copy into warm memory", 1.5),
    "save, async, blocked": ("copy into warm memory", None),
    "save, total": ("write + fsync", 1.3),
    "save, sync": ("write + fsync", None),
    "save, async, total": ("write + fsync", None),
    "restore, verified": ("read from page cache", 3.0),
    "restore, prepared": ("read from page cache", 3.0),
    "restore, not verified": ("read from page cache", None),
}


def show(clock: Clock, gib: float) -> None:
    print(f"{machine()}; jax {jax.__version__}; {gib:g} GiB of float32 in {ARRAYS} arrays")
    print(f"{'':36}{'median s':>10}{'min':>8}{'max':>8}{'x floor':>10}{'target':>8}")
    for name, seconds in clock.seconds.items():
        if not name:
            continue
        floor, target = FLOORS.get(name.partition(" ")[2], (None, None))
        row = f"{clock.median(name):10.3f}{min(seconds):8.3f}{max(seconds):8.3f}"
        ratio = f"{clock.ratio(name, floor):10.2f}" if floor else ""
        goal = f"{target:8.1f}" if target and name.startswith("Holdfast") else ""
        print(f"{name:36}{row}{ratio}{goal}")


def machine() -> str:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    model = platform.processor() or platform.machine()
    with contextlib.suppress(OSError, StopIteration):
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(line.split(":")[1].strip() for line in lines if line.startswith("model name"))
    return f"{len(os.sched_getaffinity(0))} x {model}, {memory:.0f} GiB, Linux {platform.release()}"


if __name__ == "__main__":
    main()
