"""What Holdfast costs a training process: import, `done`, a loop of 1 ms steps, a stop.

    python bench/session.py [--rounds 11] [--no-peer]

Everything that is compared takes turns in this one run; medians and spread are printed.

- import: `import holdfast` in a fresh interpreter, less a bare interpreter.
- done: one `run.done(step, state)` when nothing is due, the clock's own cost subtracted; beside it
  ml-goodput-measurement's `record_step_start_time`, whose logging client is a FAKE: a list in
  memory, which costs less than the real one.
- loop: fixed work of about 1 ms a step with `run.data` and `run.done`, against the work alone, by
  CPU time; and what Holdfast's own threads burn meanwhile.
- stop: SIGTERM to `holdfast run` until it is gone, less the rest of the step and the save itself
  (copy, write, sync, manifest: read from the run's own journal).
"""

from __future__ import annotations

import argparse
import json
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

CALLS = 200_000
LOOP_STEPS = 100


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, {platform.platform()}, load {load()}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        os.environ["HOLDFAST_STORE"] = str(Path(folder) / "store")
        os.environ["HOLDFAST_SCRATCH"] = folder
        measure_import(options.rounds)
        measure_done(peer=not options.no_peer)
        measure_loop(options.rounds)
        measure_stop(Path(folder), options.rounds)


def load() -> str:
    return f"{os.getloadavg()[0]:.2f}"


def row(what: str, values: list[float], unit: str, note: str = "") -> None:
    low, high = min(values), max(values)
    middle = statistics.median(values)
    print(f"{what:<46} {middle:>9.3f} {unit:<3} ({low:.3f} … {high:.3f})  {note}".rstrip())


def measure_import(rounds: int) -> None:
    def run(code: str) -> float:
        started = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return (time.perf_counter() - started) * 1e3

    run("import holdfast")
    pairs = [(run("pass"), run("import holdfast")) for _ in range(rounds)]
    row("bare interpreter", [bare for bare, _ in pairs], "ms")
    row("import holdfast, more", [ours - bare for bare, ours in pairs], "ms", "target ≤ 50 ms")


def measure_done(*, peer: bool) -> None:
    import holdfast as hf

    clock = time.perf_counter_ns
    empty = sorted(clock() * -1 + clock() for _ in range(CALLS))[CALLS // 2]
    run = hf.start("done")
    run.restore(init=dict)
    state: dict[str, int] = {}
    costs, with_metrics = [], []
    done = run.done
    metrics = {"loss": 0.5, "lr": 1e-3}
    for step in run.steps(CALLS * 2):
        started = clock()
        if step <= CALLS:
            done(step, state)
            costs.append(clock() - started - empty)
        else:
            done(step, state, metrics=metrics)
            with_metrics.append(clock() - started - empty)
    run.close()
    quantiles = statistics.quantiles(costs, n=100)
    print(
        f"{'done(step), nothing due':<46} {quantiles[49] / 1e3:>9.3f} µs  "
        f"(p95 {quantiles[94] / 1e3:.3f}, p99 {quantiles[98] / 1e3:.3f})  target ≤ 1 µs"
    )
    of_metrics = statistics.quantiles(with_metrics, n=100)
    print(
        f"{'done(step, metrics=two numbers)':<46} {of_metrics[49] / 1e3:>9.3f} µs  "
        f"(p95 {of_metrics[94] / 1e3:.3f}, p99 {of_metrics[98] / 1e3:.3f})  "
        "target ≤ 2 µs"
    )
    if peer:
        theirs = peer_step_cost(clock, empty)
        if theirs is not None:
            print(
                f"{'  ml-goodput-measurement, one step':<46} {theirs / 1e3:>9.3f} µs  "
                f"{theirs / quantiles[49]:.1f} × ours"
            )


def peer_step_cost(clock: Callable[[], int], empty: int) -> float | None:
    try:
        from ml_goodput_measurement import goodput
    except ImportError:
        print("  ml-goodput-measurement is not installed: not measured")
        return None

    class FakeCloudLogger:
        """A FAKE of the peer's cloud logging client: it keeps entries in memory."""

        def __init__(self, *_: object) -> None:
            self.entries: list[object] = []

        def write_cloud_logging_entry(self, entry: object) -> None:
            self.entries.append(entry)

    recorder = goodput.GoodputRecorder("bench", "bench", True, FakeCloudLogger())
    costs = []
    for step in range(CALLS // 10):
        started = clock()
        recorder.record_step_start_time(step)
        costs.append(clock() - started - empty)
    return float(statistics.median(costs))


LOOP = """
import sys, time
import numpy as np
import holdfast as hf

rounds, steps = int(sys.argv[1]), int(sys.argv[2])
values = np.ones(2000)

def work(n):
    total = 0.0
    for _ in range(n):
        total += float(values.sum())
    return total

def seconds(n):
    started = time.thread_time()
    work(n)
    return time.thread_time() - started

amount = max(1, round(0.001 / min(seconds(100) for _ in range(30)) * 100))
run = hf.start("loop")
data = run.data(iter(range(10**9)))
run.restore(init=dict)
numbers, done, state = run.steps(10**9), run.done, {}

def ours():
    started = time.thread_time()
    for _ in range(steps):
        step = next(numbers)
        next(data)
        work(amount)
        done(step, state)
    return (time.thread_time() - started) / steps

def bare():
    started = time.thread_time()
    for _ in range(steps):
        work(amount)
    return (time.thread_time() - started) / steps

ours()
for number in range(rounds):
    wall, others = time.perf_counter(), time.process_time() - time.thread_time()
    first, second = (bare, ours) if number % 2 else (ours, bare)
    one, two = first(), second()
    others = time.process_time() - time.thread_time() - others
    wall = time.perf_counter() - wall
    plain, with_holdfast = (one, two) if number % 2 else (two, one)
    print(plain, with_holdfast, others / wall, flush=True)
run.finish({})
"""


def measure_loop(rounds: int) -> None:
    """Blocks with and without in turn, in one process, by CPU time: the machine's drift hits both.

    What Holdfast's own threads burn is counted in full, though they have another core to run on.
    """
    process = subprocess.run(
        [sys.executable, "-c", LOOP, str(max(rounds, 41)), str(LOOP_STEPS)],
        capture_output=True,
        text=True,
        check=True,
    )
    lines = [[float(word) for word in line.split()] for line in process.stdout.splitlines()]
    row("a step of the bare loop", [bare * 1e3 for bare, _, _ in lines], "ms")
    row("  data and done in the loop, more", [(o / b - 1) * 100 for b, o, _ in lines], "%")
    row("  Holdfast's threads beside it, more", [share * 100 for _, _, share in lines], "%")
    total = statistics.median(o / b - 1 for b, o, _ in lines) + statistics.median(
        share for _, _, share in lines
    )
    print(f"{'  together':<46} {total * 100:>9.3f} %    target ≤ 0.5 %")


STOP = """
import time
import numpy as np
import holdfast as hf
run = hf.start()
state = run.restore(init=lambda: {"w": np.zeros(4_000_000, np.float32)})
for step in run.steps(10**6):
    time.sleep(0.05)
    state["w"] += 1
    run.done(step, state)
    if step % 10 == 0:
        print("step", step, flush=True)
"""


def measure_stop(folder: Path, rounds: int) -> None:
    script = folder / "stop.py"
    script.write_text(STOP)
    totals, rests = [], []
    for number in range(min(rounds, 7)):
        name = f"stop{number}"
        process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.main", "run", "--name", name, "--",
             sys.executable, str(script)],
            stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        assert process.stdout is not None
        for line in process.stdout:
            if "step 20" in line:
                break
        started = time.perf_counter()
        process.send_signal(signal.SIGTERM)
        code = process.wait()
        total_s = time.perf_counter() - started
        process.stdout.close()
        if code != 75:
            raise SystemExit(f"holdfast run ended with {code}, not 75")
        saved_s = until_committed_s(Path(os.environ["HOLDFAST_STORE"]) / name)
        totals.append(total_s * 1e3)
        rests.append((total_s - saved_s) * 1e3)
    row("SIGTERM until all is gone (50 ms steps)", totals, "ms")
    row("  less rest of the step and save of 16 MB", rests, "ms", "target ≤ 200 ms")


def until_committed_s(run: Path) -> float:
    """From the notice to the set's being complete, by the controller's own journal."""
    asked_ns = committed_ns = 0
    for path in sorted((run / "journal").glob("*.jsonl")):
        for line in path.read_text().splitlines():
            note = json.loads(line)
            if note.get("event") == "StopAsked":
                asked_ns = note["at_ns"]
            news = note.get("news", note)  # of the agreement, or of what is written from memory
            if asked_ns and news.get("event") in ("Committed", "FlushCommitted"):
                committed_ns = news["at_ns"]
    if not committed_ns:
        raise SystemExit(f"{run}: its journal does not say when the last step was durable")
    return (committed_ns - asked_ns) / 1e9


if __name__ == "__main__":
    main()
