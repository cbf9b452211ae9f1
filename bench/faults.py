"""How fast a fault is answered: a rank is killed, or gets a SIGTERM of its own, beside another one.

    python bench/faults.py [--rounds 15] [--mb 16]

Both ranks are numpy trainers with `--mb` megabytes of state and steps of 20 ms, which they end
together, as data-parallel ranks do. Each round is a run of its own under `holdfast run --ranks 2`.
Medians and spread are printed.

- killed: from SIGKILL of one rank until both ranks are gone, watched by this script's own pidfds.
- SIGTERM: from the signal to one rank until the agreed step is ordered (the word is in both pages,
  polled by this script), and until both ranks have reached it (by the ranks' own stamps), less one
  step as long as the slower rank's were before the signal. Once with steps that wait, as for a
  device, and once with steps that compute.
"""

from __future__ import annotations

import argparse
import os
import platform
import select
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.core.save.word import Order
from holdfast.journal.clocks import now_ns
from holdfast.journal.rank_page import RankPage

STEP_MS = 20.0
WARM_STEPS = 25
LIMIT_S = 60.0
TARGET = "target ≤ 20 ms"

TRAIN = """
import os, sys, time
import numpy as np
import holdfast as hf

mb, step_s, computes = float(sys.argv[1]), float(sys.argv[2]), sys.argv[3] == "computes"
run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(int(mb * 250_000), np.float32)})
values = np.ones(20_000)
rank = int(os.environ["RANK"])
steps_done = np.memmap(sys.argv[4], np.int64, "r+", shape=2)
for step in run.steps(10**9):
    end = time.perf_counter() + step_s
    state["w"][:1000] += 1
    if computes:
        while time.perf_counter() < end:
            values.sum()
    else:
        time.sleep(step_s)
    steps_done[rank] = step
    while steps_done.min() < step:  # what an all-reduce does: nobody is ahead
        time.sleep(0.0002)
    run.done(step, state)
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--mb", type=float, default=16.0)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, {platform.platform()}, load {load()}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as name:
        folder = Path(name)
        os.environ["HOLDFAST_STORE"] = str(folder / "store")
        os.environ["HOLDFAST_SCRATCH"] = str(folder / "scratch")
        script = folder / "train.py"
        script.write_text(TRAIN)
        killed = [after_sigkill(folder, options.mb) for _ in range(options.rounds)]
        row("SIGKILL of one of 2 ranks until both are gone", killed, "target ≤ 50 ms")
        for how in ("waits", "computes"):
            rounds = [after_sigterm(folder, options.mb, how) for _ in range(options.rounds)]
            row(f"SIGTERM to one of 2 ranks (a step {how}): ordered", [one[0] for one in rounds])
            row("  step reached by both, beyond one step", [one[1] for one in rounds], TARGET)
            row("  one step was", [one[2] for one in rounds])
    print(f"load at the end {load()}")


def load() -> str:
    return f"{os.getloadavg()[0]:.2f}"


def row(what: str, values: list[float], note: str = "") -> None:
    low, high = min(values), max(values)
    middle = statistics.median(values)
    print(f"{what:<52} {middle:>8.2f} ms ({low:.2f} … {high:.2f})  {note}".rstrip(), flush=True)


@contextmanager
def training(folder: Path, mb: float, how: str) -> Iterator[list[RankPage]]:
    """A run of two ranks that are well on their way: their pages."""
    for number in range(1_000_000):
        name = f"r{number}"
        if not (folder / "store" / name).exists():
            break
    slots = folder / f"{name}.slots"
    slots.write_bytes(bytes(16))
    process = subprocess.Popen(
        [sys.executable, "-m", "holdfast.cli.main", "run", "--name", name, "--ranks", "2",
         "--save-every", "1000000", "--",
         sys.executable, str(folder / "train.py"), str(mb), str(STEP_MS / 1e3), how, str(slots)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        pattern = f"scratch/*/{name}-*/attempt-0000/rank-*.hfj"
        wait(lambda: len(list(folder.glob(pattern))) == 2)
        time.sleep(0.2)  # until their headers are whole
        pages = [RankPage.open(path) for path in sorted(folder.glob(pattern))]
        wait(lambda: all(page.snapshot().step >= WARM_STEPS for page in pages))
        yield pages
        for page in pages:
            page.detach()
    finally:
        process.send_signal(signal.SIGQUIT)
        process.wait()


def wait(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LIMIT_S
    while not condition():
        if time.monotonic() > end:
            raise SystemExit("the run did not get that far")
        time.sleep(0.001)


def after_sigkill(folder: Path, mb: float) -> float:
    with training(folder, mb, "waits") as pages:
        pids = [page.snapshot().owner_pid for page in pages]
        fds = [os.pidfd_open(pid) for pid in pids]
        poll = select.poll()
        for fd in fds:
            poll.register(fd, select.POLLIN)
        started = time.perf_counter()
        signal.pidfd_send_signal(fds[1], signal.SIGKILL)
        left = set(fds)
        while left:
            for fd, _ in poll.poll():
                poll.unregister(fd)
                left.discard(fd)
        took_ms = (time.perf_counter() - started) * 1e3
        for fd in fds:
            os.close(fd)
    return took_ms


def after_sigterm(folder: Path, mb: float, how: str) -> tuple[float, float, float]:
    """Milliseconds: until the order; until both have reached its step, less one; that one step."""
    with training(folder, mb, how) as pages:
        # Read before the signal: the length of a step on this machine, under this load.
        before = [page.snapshot() for page in pages]
        wait(
            lambda: all(
                p.snapshot().step >= b.step + 10 for p, b in zip(pages, before, strict=True)
            )
        )
        after = [page.snapshot() for page in pages]
        step_ms = max(
            (b.step_at_ns - a.step_at_ns) / (b.step - a.step) / 1e6
            for a, b in zip(before, after, strict=True)
        )
        started_ns = now_ns()
        os.kill(after[1].owner_pid, signal.SIGTERM)
        wait(lambda: all(page.snapshot().order.flags & Order.STOP for page in pages))
        ordered_ns = now_ns()
        agreed = pages[0].snapshot().order.step
        wait(lambda: all(page.snapshot().step >= agreed for page in pages))
        reached_ns = max(page.snapshot().step_at_ns for page in pages)
    reached_ms = (reached_ns - started_ns) / 1e6
    return (ordered_ns - started_ns) / 1e6, reached_ms - step_ms, step_ms


if __name__ == "__main__":
    main()
