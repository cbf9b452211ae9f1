"""The ledger on a million steps, and the best-known goodput library on the same run.

    python bench/ledger.py [--steps 1000000] [--rounds 5] [--peer-steps 1000000] [--no-peer]

- cold: columns of steps in memory → account; with a DATA span in every step, too.
- later: ten more steps (and spans), what is open right now, and the account again.
- peer: ml-goodput-measurement 0.2.3, `GoodputCalculator.get_job_goodput`, cold and after ten more
  entries. Its Cloud Logging client is a FAKE, a list in memory: no network, no parsing. The real
  one can only cost more.

Every round is a fresh process. Seconds are wall time; CPU seconds stand beside them, because this
is all computation, and a busy machine shows in the former alone. Memory is the growth of the peak
over what holds the input.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.core.ledger.facts import AttemptFact, RunFact
from holdfast.core.ledger.incremental import Ledger

STEP_NS = 250_000_000
STALL_NS = 9_000_000
LATER = 10
REPEATS = 30  # of "later", in one process
MEASURE = "--measure"


def main() -> None:
    if sys.argv[1:2] == [MEASURE]:
        name, steps, path = sys.argv[2], int(sys.argv[3]), Path(sys.argv[4])
        print(json.dumps(MEASURES[name](steps, path)))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--peer-steps", type=int, default=None, help="default: as many as --steps")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    peer_steps = options.peer_steps or options.steps
    print(machine())
    print(f"{options.steps:,} steps, {options.rounds} rounds: median (least … most)\n")
    ours = measure("cold", options.steps, options.rounds, "cold")
    measure("cold_spans", options.steps, options.rounds, "cold, with as many DATA spans")
    if options.no_peer:
        return
    peer = measure("peer", peer_steps, min(options.rounds, 3), f"peer, {peer_steps:,} steps")
    for key, what in (("cpu_s", "cold, CPU"), ("memory_mb", "memory"), ("later_s", "asked again")):
        per_step = 1 if key == "later_s" else options.steps / peer_steps
        print(f"peer / ours, {what}: {peer[key] / ours[key] * per_step:,.0f}")


def measure(name: str, steps: int, rounds: int, title: str) -> dict[str, float]:
    """Run one measure in fresh processes, print its line, return the medians."""
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        command = [sys.executable, __file__, MEASURE, name, str(steps), folder]
        found = [
            json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
            for _ in range(rounds)
        ]
    medians = {}
    parts = []
    for key in found[0]:
        values = [one[key] for one in found]
        medians[key] = statistics.median(values)
        scale, unit = (1e3, "ms") if key == "later_s" else (1, key.rsplit("_", 1)[1].upper())
        unit = "s" if unit == "S" else unit
        shown = [f"{value * scale:.3g}" for value in (medians[key], min(values), max(values))]
        parts.append(f"{key.rsplit('_', 1)[0]} {shown[0]} {unit} ({shown[1]} … {shown[2]})")
    print(f"{title:34} " + "; ".join(parts))
    return medians


# --- measured in a process of their own ----------------------------------------------------------


def columns(steps: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    number = np.arange(1, steps + 1, dtype=np.int64)
    return number, (number - 1) * STEP_NS, number * STEP_NS


def cold(steps: int, spans: bool) -> dict[str, float]:
    number, start, end = columns(steps)
    kind = np.zeros(steps, dtype=np.int64)
    Ledger()  # imports are not what is measured
    reset_peak()

    since_start = clocks()
    ledger = Ledger()
    ledger.add([RunFact("r", 0, None, 8), AttemptFact(0, 0, None, None)])
    ledger.add_steps(0, number, number, start, end)
    if spans:
        ledger.add_spans(0, ["data"], kind, start, start + STALL_NS)
    account = ledger.account(int(end[-1]))
    cold_s, cpu_s = since(since_start)
    memory_mb = peak_mb()
    assert account.steps_kept == steps

    later = []
    for _ in range(REPEATS):
        new = number[-1] + 1 + np.arange(LATER)
        number = new
        start, end = (new - 1) * STEP_NS, new * STEP_NS
        now = int(end[-1])
        began = time.perf_counter()
        ledger.add_steps(0, new, new, start, end)
        if spans:
            ledger.add_spans(0, ["data"], kind[:LATER], start, start + STALL_NS)
        ledger.set_open(0, [("data", now)], (int(new[-1]) + 1, now))
        account = ledger.account(now + 1)
        later.append(time.perf_counter() - began)
    assert account.steps_kept == steps + LATER * REPEATS
    later_s = statistics.median(later)
    return {"cold_s": cold_s, "cpu_s": cpu_s, "later_s": later_s, "memory_mb": memory_mb}


def peer(steps: int, cache: Path) -> dict[str, float]:
    from ml_goodput_measurement.src.goodput import GoodputCalculator

    first = time.time() - (steps + 1) * STEP_NS / 1e9 - 3600
    client = FakeCloudLogger()
    client.entries.append({"job_name": "j", "job_start_time": first})
    client.append_steps(0, steps, first)
    calculator = GoodputCalculator("j", "log", cloud_logger=client, cache_dir=str(cache))
    reset_peak()
    since_start = clocks()
    calculator.get_job_goodput(include_badput_breakdown=True)
    cold_s, cpu_s = since(since_start)
    memory_mb = peak_mb()
    client.append_steps(steps, LATER, first)
    began = time.perf_counter()
    calculator.get_job_goodput(include_badput_breakdown=True)
    later_s = time.perf_counter() - began
    return {"cold_s": cold_s, "cpu_s": cpu_s, "later_s": later_s, "memory_mb": memory_mb}


class FakeCloudLogger:
    """Stands in for the peer's Cloud Logging client: a list in memory, read from a cursor on."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self._read = 0

    def append_steps(self, done: int, count: int, first: float) -> None:
        self.entries += [
            {"job_name": "j", "step_count": i, "step_start_time": first + 1 + i * STEP_NS / 1e9}
            for i in range(done, done + count)
        ]

    def read_cloud_logging_entries(
        self, *_: object, **__: object
    ) -> tuple[list[dict[str, Any]], tuple[datetime.datetime, str]]:
        new, self._read = self.entries[self._read :], len(self.entries)
        at = datetime.datetime.fromtimestamp(new[-1]["step_start_time"], tz=datetime.UTC)
        return new, (at, str(self._read))


MEASURES: dict[str, Callable[[int, Path], dict[str, float]]] = {
    "cold": lambda steps, _: cold(steps, spans=False),
    "cold_spans": lambda steps, _: cold(steps, spans=True),
    "peer": peer,
}


# --- the machine ---------------------------------------------------------------------------------


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    load = Path("/proc/loadavg").read_text().split()[0]
    return (
        f"{(models or [platform.machine()])[0]} ×{len(models)}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, numpy {np.__version__}, load {load}"
    )


def clocks() -> tuple[float, float]:
    return time.perf_counter(), time.process_time()


def since(began: tuple[float, float]) -> tuple[float, float]:
    """Wall and CPU seconds since then."""
    wall, cpu = clocks()
    return wall - began[0], cpu - began[1]


def reset_peak() -> None:
    global base_kb
    Path("/proc/self/clear_refs").write_text("5")
    base_kb = memory_kb("VmRSS")


def peak_mb() -> float:
    return (memory_kb("VmHWM") - base_kb) / 1e3


def memory_kb(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(f"{field}:"))


base_kb = 0

if __name__ == "__main__":
    main()
