"""What Holdfast costs a training process: import, `done`, a loop of 1 ms steps, a stop.

    python bench/session.py [--rounds 11] [--no-peer]

Everything that is compared takes turns in this one run; medians and spread are printed.

- import: `import holdfast` in a fresh interpreter, less a bare interpreter.
- done: one `run.done(step, state)` when nothing is due, the clock's own cost subtracted; beside it
  ml-goodput-measurement's `record_step_start_time`, whose logging client is a FAKE: a list in
  memory, which costs less than the real one.
- loop: fixed work of about 1 ms a step with `run.data` and `run.done`, against the work alone.
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
from pathlib import Path

CALLS = 200_000
LOOP_STEPS = 300


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
    costs = []
    done = run.done
    for step in run.steps(CALLS * 10):
        started = clock()
        done(step, state)
        costs.append(clock() - started - empty)
        if step == CALLS:
            run.finish(state)
            break
    quantiles = statistics.quantiles(costs, n=100)
    print(
        f"{'done(step), nothing due':<46} {quantiles[49] / 1e3:>9.3f} µs  "
        f"(p95 {quantiles[94] / 1e3:.3f}, p99 {quantiles[98] / 1e3:.3f})  target ≤ 1 µs"
    )
    if peer:
        theirs = peer_step_cost(clock, empty)
        if theirs is not None:
            print(
                f"{'  ml-goodput-measurement, one step':<46} {theirs / 1e3:>9.3f} µs  "
                f"{theirs / quantiles[49]:.1f} × ours"
            )


def peer_step_cost(clock, empty: int) -> float | None:
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
    return statistics.median(costs)


LOOP = """
import sys, time
import numpy as np
steps, ours = int(sys.argv[1]), sys.argv[2] == "ours"
values = np.ones(2000)
def work(n):
    total = 0.0
    for _ in range(n):
        total += float(values.sum())
    return total
def best(n):
    times = []
    for _ in range(30):
        t = time.perf_counter(); work(n); times.append(time.perf_counter() - t)
    return min(times)
n = max(1, int(0.001 / best(100) * 100))
if ours:
    import holdfast as hf
    run = hf.start("loop" + sys.argv[3])
    data = run.data(iter(range(10**9)))
    run.restore(init=dict)
    numbers, done = run.steps(10**9), run.done
    state = {}
    for step in range(1, 51):
        next(numbers); next(data); work(n); done(step, state)
for line in sys.stdin:
    t = time.perf_counter()
    if ours:
        for _ in range(steps):
            step = next(numbers); next(data); work(n); done(step, state)
    else:
        for _ in range(steps):
            work(n)
    print((time.perf_counter() - t) / steps, n, flush=True)
if ours:
    run.finish({})
"""


def measure_loop(rounds: int) -> None:
    """Both processes live side by side and run in turn, so that the machine's drift hits both."""
    rounds = max(rounds, 15)
    both = {
        which: subprocess.Popen(
            [sys.executable, "-c", LOOP, str(LOOP_STEPS), which, "x"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for which in ("bare", "ours")
    }

    def ask(which: str) -> tuple[float, int]:
        process = both[which]
        process.stdin.write("go\n")
        process.stdin.flush()
        seconds, amount = process.stdout.readline().split()
        return float(seconds), int(amount)

    ratios, bares = [], []
    for number in range(rounds):
        order = ("bare", "ours") if number % 2 else ("ours", "bare")
        measured = {which: ask(which) for which in order}
        # The two calibrated their work apart: compare time per unit of work.
        bare, ours = (measured[w][0] / measured[w][1] for w in ("bare", "ours"))
        bares.append(measured["bare"][0] * 1e3)
        ratios.append((ours / bare - 1) * 100)
    for process in both.values():
        process.stdin.close()
        process.wait()
        process.stdout.close()
    row("a step of the bare loop", bares, "ms")
    row("the same with data and done, more", ratios, "%", "target ≤ 0.5 %")


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
            news = note.get("news", {})
            if asked_ns and news.get("event") == "Committed":
                committed_ns = news["at_ns"]
    return (committed_ns - asked_ns) / 1e9


if __name__ == "__main__":
    main()
