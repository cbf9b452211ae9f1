"""How long `holdfast report --fleet` takes over a thousand runs: cold, and from the cache.

    python bench/fleet.py [--runs 1000] [--times 7]

Each run has three attempts and a thousand steps, two are under way, and one in fifty is cut by a
window. What is timed is the whole command, the interpreter's start included, and the listing alone.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from holdfast.journal.lease import acquire
from holdfast.journal.store import RunStore
from holdfast.runs.listing import RunList

ROOT = Path(__file__).parents[1]
S = 1_000_000_000
DAY = 86_400 * S


def fill(store: RunStore, count: int) -> None:
    sys.path.insert(0, str(ROOT / "tests" / "runs"))
    from made_runs import Made, make_run

    now = time.time_ns()
    attempts = [Made(300, 1.0, "killed"), Made(300, 1.0, "failed"), Made(400, 1.0)]
    for number in range(count):
        ago = (9 + number % 30) * DAY
        if number % 50 == 0:
            ago = DAY + 600 * S
        make_run(store, f"run-{number:04d}", attempts, requested_ns=now - ago, chips=8)


def timed(job, times: int) -> list[float]:
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
    flags.add_argument("--times", type=int, default=7)
    asked = flags.parse_args()
    with tempfile.TemporaryDirectory() as place:
        store = RunStore(Path(place) / "store")
        began = time.perf_counter()
        fill(store, asked.runs)
        print(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, ", end="")
        print(f"Python {platform.python_version()}; {asked.runs} runs of 3 attempts, 1,000 steps")
        load = ", ".join(f"{one:.1f}" for one in os.getloadavg())
        print(f"(made in {time.perf_counter() - began:.1f} s; load {load})")
        leases = [acquire(store.get(f"run-{number:04d}")) for number in (1, 2)]
        cache = Path(place) / "mirror" / "summaries"
        command = [sys.executable, "-m", "holdfast.cli.main", "report", "--fleet", str(store.root)]
        environment = {**os.environ, "HOLDFAST_MIRROR": str(Path(place) / "mirror")}

        def call() -> None:
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)

        said("listing, no cache", timed(lambda: RunList(store).look(), 3))
        call()
        said("holdfast report --fleet, cached", timed(call, asked.times))
        said(
            "listing, from the cache's file",
            timed(lambda: RunList(store, cache=cache).look(), asked.times),
        )
        runs = RunList(store, cache=cache)
        runs.look()
        said("listing, looked at again", timed(runs.look, asked.times))
        print(f"(runs read in such a look: {runs.look().read})")
        for lease in leases:
            lease.release()


if __name__ == "__main__":
    main()
