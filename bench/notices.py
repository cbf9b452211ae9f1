"""How soon a notice is acted on, and what listening costs while nothing is told.

    python bench/notices.py [--rounds 15] [--idle 60]

Two ranks train under `holdfast run --notice gce:…`, which listens to the emulator of Google's
metadata server in this process. From the emulator's `preempted` until the order of the agreed step
lies in both ranks' pages, and until both have reached that step. Then a listener to every source
that needs no cluster is left alone: CPU time and memory.
"""

from __future__ import annotations

import argparse
import os
import platform
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.core.save.word import Order
from holdfast.errors import JournalError
from holdfast.journal.clocks import now_ns
from holdfast.journal.rank_page import RankPage
from holdfast.testing.gce import GceEmulator

STEP_MS = 20
LIMIT_S = 120.0
TRAIN = f"""
import time
import numpy as np
import holdfast as hf

run = hf.start()
state = run.restore(init=lambda: {{"w": np.zeros(1 << 18)}})
for step in run.steps(10**9):
    time.sleep({STEP_MS} / 1e3)
    run.done(step, state)
"""
IDLE = """
import sys, time
from holdfast.journal.clocks import read_clock_pair
from holdfast.notices.listener import Listener
from holdfast.notices.protocol import Clocks, SourceSurroundings
from holdfast.notices.registry import wanted

around = SourceSurroundings()
Listener(
    wanted(sys.argv[1], around), around, clock=lambda: Clocks(*read_clock_pair()), heard=print,
    say=print, grace_ns=30 * 10**9,
).start()
time.sleep(5)
began, spent = time.monotonic(), time.process_time()
time.sleep(float(sys.argv[2]))
share = (time.process_time() - spent) / (time.monotonic() - began)
rss = int(open("/proc/self/statm").read().split()[1]) * 4 / 1024
print(f"{share * 100:.3f} {rss:.1f}")
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--idle", type=float, default=60.0, help="seconds")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, {platform.platform()}, load {load()}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        os.environ["HOLDFAST_STORE"] = str(folder / "store")
        os.environ["HOLDFAST_SCRATCH"] = str(folder / "scratch")
        (folder / "train.py").write_text(TRAIN)
        rounds = [noticed(folder, number) for number in range(options.rounds)]
        row("notice published → the agreed step is ordered", [one[0] for one in rounds])
        row("  … → both ranks have reached it", [one[1] for one in rounds])
        with GceEmulator() as gce:
            sources = f"gce:{gce.url},file:{folder / 'notice'},signal:USR1=60"
            command = [sys.executable, "-c", IDLE, sources, str(options.idle)]
            told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    share, rss = told.split()[-2:]
    print(f"idle listener to gce, file and signal: {share} % of a core, {rss} MB in all")
    print(f"load at the end {load()}")


def load() -> str:
    return f"{os.getloadavg()[0]:.2f}"


def row(what: str, values: list[float]) -> None:
    low, high, middle = min(values), max(values), statistics.median(values)
    print(f"{what:<52} {middle:>8.2f} ms ({low:.2f} … {high:.2f})", flush=True)


def noticed(folder: Path, number: int) -> tuple[float, float]:
    """Milliseconds until the order is stored for both ranks, and until they have reached it."""
    with GceEmulator() as gce:
        command = [sys.executable, "-m", "holdfast.cli.main", "run", "--name", f"n{number}"]
        command += ["--ranks", "2", "--notice", f"gce:{gce.url}", "--save-every", "1000000"]
        command += ["--memory", "off", "--", sys.executable, str(folder / "train.py")]
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=folder
        )
        try:
            pages = trained(folder, number)
            wait(lambda: sum("last_etag" in one.query for one in gce.requests) >= 3)
            began_ns = now_ns()
            gce.do("preempted")
            wait(lambda: all(one.snapshot().order.flags & Order.STOP for one in pages))
            ordered_ns = now_ns()
            step = pages[0].snapshot().order.step
            wait(lambda: all(one.snapshot().step >= step for one in pages))
            reached_ns = max(one.snapshot().step_at_ns for one in pages)
            for page in pages:
                page.detach()
        finally:
            process.send_signal(signal.SIGQUIT)
            process.wait()
    return (ordered_ns - began_ns) / 1e6, (reached_ns - began_ns) / 1e6


def trained(folder: Path, number: int) -> list[RankPage]:
    """The pages of both ranks, when they are well on their way."""
    pages: list[RankPage] = []

    def ready() -> bool:
        if len(pages) < 2:
            places = sorted(folder.glob(f"scratch/*/n{number}-*/attempt-0000/rank-*.hfj"))
            try:
                pages[:] = [RankPage.open(place) for place in places]
            except JournalError:
                return False
        return len(pages) == 2 and all(one.snapshot().step >= 25 for one in pages)

    wait(ready)
    return pages


def wait(condition: Callable[[], object]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("the run did not get that far")
        time.sleep(0.0005)


if __name__ == "__main__":
    main()
