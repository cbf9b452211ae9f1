"""How long a thousand runs take to list and to sum up, and a run of a million steps to open.

    python bench/fleet.py [--runs 1000] [--times 5] [--steps 1000000]

Each run is on record as `holdfast run` leaves it (`recorded.py`): one to six attempts, 2,000 steps,
a save to memory after each tenth and to disk after each hundredth, failures with their stories; one
in ten was left without an end, two are under way, one in fifty is cut by a window. What is timed is
each command as a whole, the interpreter's start included, and the listing alone. Cold means that
nothing is kept from before; the files are in the page cache.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from recorded import Plan, make

from holdfast.journal.lease import acquire
from holdfast.journal.store import RunStore
from holdfast.runs.listing import RunList

S = 1_000_000_000
DAY = 86_400 * S
MILLION = Plan(attempts=50, step_s=0.25, memory_every=80, disk_every=2_400)


def fill(store: RunStore, count: int) -> None:
    now = time.time_ns()
    for number in range(count):
        plan = Plan(attempts=1 + number % 6, is_done=number % 10 != 3)
        ago = DAY + 600 * S if number % 50 == 0 else (9 + number % 30) * DAY
        make(store, f"run-{number:04d}", plan, now - ago, number)


def timed(job: Callable[[], object], times: int) -> list[float]:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        job()
        took.append(time.perf_counter() - began)
    return took


def said(name: str, took: list[float]) -> None:
    print(
        f"{name:44} median {statistics.median(took):.3f} s   "
        f"({min(took):.3f} to {max(took):.3f}, {len(took)} times)"
    )


def main() -> None:
    flags = argparse.ArgumentParser()
    flags.add_argument("--runs", type=int, default=1000)
    flags.add_argument("--times", type=int, default=5)
    flags.add_argument("--steps", type=int, default=1_000_000)
    asked = flags.parse_args()
    print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, ", end="")
    print(f"Python {platform.python_version()}")
    with tempfile.TemporaryDirectory() as place:
        many(Path(place), asked.runs, asked.times)
        one(Path(place), asked.steps, asked.times)


def many(place: Path, count: int, times: int) -> None:
    store = RunStore(place / "store")
    began = time.perf_counter()
    fill(store, count)
    load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
    print(f"{count} runs (made in {time.perf_counter() - began:.1f} s; load {load})")
    leases = [acquire(store.get(f"run-{number:04d}")) for number in (1, 2)]
    mirror = place / "mirror"

    def cold() -> None:
        shutil.rmtree(mirror, ignore_errors=True)
        call("report", "--fleet", store.root, mirror=mirror)

    said("holdfast ls", timed(lambda: call("ls", "--store", store.root), times))
    said("holdfast report --fleet, cold", timed(cold, 3))
    said(
        "holdfast report --fleet, cached",
        timed(lambda: call("report", "--fleet", store.root, mirror=mirror), times),
    )
    said("listing by one process, cold", timed(lambda: RunList(store).look(), 1))
    cache = mirror / "summaries"
    said("listing, from the cache's file", timed(lambda: RunList(store, cache=cache).look(), times))
    runs = RunList(store, cache=cache)
    runs.look()
    said("listing, looked at again", timed(runs.look, times))
    print(f"(runs read in such a look: {runs.look().read})")
    for lease in leases:
        lease.release()


def one(place: Path, steps: int, times: int) -> None:
    store = RunStore(place / "long")
    make(store, "long", replace(MILLION, steps=steps), time.time_ns() - 10 * DAY)
    where = ("long", "--store", store.root)
    said(f"holdfast report, {steps:,} steps", timed(lambda: call("report", *where), times))
    page = place / "page.html"
    written = timed(lambda: call("report", *where, "--html", page), times)
    said(f"holdfast report --html, {steps:,} steps", written)


def call(*words: object, mirror: Path | None = None) -> None:
    command = [sys.executable, "-m", "holdfast.cli.main", *map(str, words)]
    environment = {**os.environ, "HOLDFAST_MIRROR": str(mirror)} if mirror else None
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
