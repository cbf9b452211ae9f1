"""The goodput API: the library that it is of, and our face of it, in turn.

    python bench/dropin.py [--rounds 5] [--steps 1000000] [--peer-steps 1000000] [--no-peer]

- one `record_step_start_time`: medians of batches, wall and CPU time of the thread.
- what is there after 50 steps, when the process ends: normally, by sys.exit, an exception, SIGTERM,
  SIGKILL.
- `get_job_goodput` of so many steps: first, and again after ten more; a fresh process a round.
- `from … import goodput`, in a fresh process.

The library is run as it is, its own cloud logger and its thread included; the client below that,
which would go over the network, is a FAKE that writes to a local file at once. It runs only where
its dependencies are (`make bench` installs them).
"""

from __future__ import annotations

import argparse
import datetime
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
from typing import Any

MEASURE = "--measure"
STEP_S = 0.25
FIRST_S = 1_704_000_000.0
BATCH = 1000
ENDS: dict[str, Callable[[], None]] = {
    "exit": lambda: None,
    "sys.exit": lambda: sys.exit(0),
    "exception": lambda: print(1 / 0),
    "SIGTERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
}


def main() -> None:
    if sys.argv[1:2] == [MEASURE]:
        name, *arguments = sys.argv[2:]
        print(json.dumps(MEASURES[name](*arguments)), flush=True)
        return
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--peer-steps", type=int, help="default: as many as --steps")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    print(machine())
    sides = ["ours"] if options.no_peer or not has_peer() else ["peer", "ours"]
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        work = Path(folder)
        record(sides, options.rounds, work)
        imports(sides, options.rounds, work)
        ends(sides, work)
        steps = {"ours": options.steps, "peer": options.peer_steps or options.steps}
        asked(sides, steps, options.rounds, work)


def has_peer() -> bool:
    code = "import google.cloud.logging, ml_goodput_measurement"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True).returncode == 0
    if not found:
        print("ml-goodput-measurement and what it needs are not installed: it is left out")
    return found


def measured(name: str, *arguments: object, work: Path, expect: bool = True) -> Any:
    """What a fresh process found; None when it ended without a word and may."""
    environment = {**os.environ, "HOLDFAST_STORE": str(work / "store")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # else every import would compile anew
    result = subprocess.run(
        [sys.executable, __file__, MEASURE, name, *map(str, arguments)],
        env=environment,
        capture_output=True,
        text=True,
    )
    if expect and result.returncode:
        raise SystemExit(result.stderr)
    return json.loads(result.stdout.splitlines()[-1]) if result.stdout.strip() else None


def spread(values: list[float], unit: str, scale: float = 1.0) -> str:
    values = [value * scale for value in values]
    return f"{statistics.median(values):.3g} {unit} ({min(values):.3g} … {max(values):.3g})"


# --- what is printed -----------------------------------------------------------------------------


def record(sides: list[str], rounds: int, work: Path) -> None:
    print("\nrecord_step_start_time(step), per call")
    for number in range(rounds):
        for side in sides:
            found = measured("record", side, work / f"record-{number}", work=work)
            CALLS.setdefault(side, []).append(found)
    for side in sides:
        wall = [one["wall_s"] for one in CALLS[side]]
        cpu = [one["cpu_s"] for one in CALLS[side]]
        print(f"  {side}: {spread(wall, 'µs', 1e6)}; CPU {spread(cpu, 'µs', 1e6)}")


CALLS: dict[str, list[Any]] = {}


def imports(sides: list[str], rounds: int, work: Path) -> None:
    print("\nimport of goodput, beyond a bare interpreter")
    found: dict[str, list[Any]] = {side: [] for side in sides}
    for _ in range(rounds):
        for side in sides:
            found[side].append(measured("import", side, work=work))
    for side in sides:
        wall = [one["wall_s"] for one in found[side]]
        cpu = [one["cpu_s"] for one in found[side]]
        print(f"  {side}: {spread(wall, 's')}; CPU {spread(cpu, 's')}")


def ends(sides: list[str], work: Path) -> None:
    print("\nof 50 steps, recorded when the process ends by")
    for end in ENDS:
        line = []
        for side in sides:
            place = work / f"ends-{end}-{side}"
            measured("ends", side, end, place, work=work, expect=False)
            line.append(f"{side} {measured('left', side, place, work=work)}")
        print(f"  {end:10} {', '.join(line)}")


def asked(sides: list[str], steps: dict[str, int], rounds: int, work: Path) -> None:
    print("\nget_job_goodput(include_badput_breakdown=True)")
    for side in sides:
        number = rounds if side == "ours" else min(rounds, 3)
        found = [
            measured("ask", side, steps[side], work / f"ask-{side}-{n}", work=work)
            for n in range(number)
        ]
        first = spread([one["first_s"] for one in found], "s")
        again = spread([one["again_s"] for one in found], "ms", 1e3)
        print(f"  {side}, {steps[side]:,} steps: first {first}; after ten more {again}")
    injected = [measured("ask", "injected", steps["ours"], work / "i", work=work) for _ in range(3)]
    first = spread([one["first_s"] for one in injected], "s")
    again = spread([one["again_s"] for one in injected], "ms", 1e3)
    print(f"  ours, with an injected log of as many entries: first {first}; again {again}")


# --- measured in a process of its own ------------------------------------------------------------


def module(side: str) -> Any:
    if side == "peer":
        from ml_goodput_measurement.src import goodput
    else:
        from holdfast.compat.ml_goodput_measurement import goodput
    return goodput


def recorder(side: str, place: Path) -> Any:
    goodput = module(side)
    if side == "peer":
        fake_client(place)
    return goodput.GoodputRecorder(place.name, "log", True)


def measure_record(side: str, place: str) -> dict[str, float]:
    one = recorder(side, Path(place))
    one.record_job_start_time()
    one.record_step_start_time(0)
    walls, cpus = [], []
    for batch in range(20):
        steps = range(1 + batch * BATCH, 1 + (batch + 1) * BATCH)
        wall, cpu = time.perf_counter(), time.thread_time()
        for step in steps:
            one.record_step_start_time(step)
        walls.append((time.perf_counter() - wall) / BATCH)
        cpus.append((time.thread_time() - cpu) / BATCH)
    return {"wall_s": statistics.median(walls), "cpu_s": statistics.median(cpus)}


def measure_import(side: str) -> dict[str, float]:
    code = (
        "import time; w, c = time.perf_counter(), time.process_time(); "
        f"from {'ml_goodput_measurement' if side == 'peer' else OURS} import goodput; "
        "print(time.perf_counter() - w, time.process_time() - c)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    wall, cpu = map(float, out.stdout.split())
    return {"wall_s": wall, "cpu_s": cpu}


OURS = "holdfast.compat.ml_goodput_measurement"


def measure_ends(side: str, end: str, place: str) -> None:
    one = recorder(side, Path(place))
    one.record_job_start_time()
    for step in range(50):
        if step == 40:
            time.sleep(3.0)  # what it sends in the background has been sent by now
        one.record_step_start_time(step)
    ENDS[end]()


def measure_left(side: str, place: str) -> int:
    if side == "peer":
        path = Path(place) / "sent"
        text = path.read_text() if path.exists() else ""
        return text.count('"step_start_time"')
    from holdfast.compat.ml_goodput_measurement.local import LocalLog, run_name

    books = LocalLog(run_name(Path(place).name)).books()
    life = books.lives[0]
    return life.under_way[0] if life.under_way else life.done  # steps that began


def measure_ask(side: str, count: str, place: str) -> dict[str, float]:
    steps = int(count)
    goodput = module(side)
    job = Path(place).name
    if side == "ours":
        one = recorder(side, Path(place))
        one.record_job_start_time()
        for step in range(steps):
            one.record_step_start_time(step)
        calculator = goodput.GoodputCalculator(job, "log")

        def grow() -> None:
            for step in range(steps, steps + 10):
                one.record_step_start_time(step)
    else:
        log = ListLog(job)
        log.add(0, steps)
        calculator = goodput.GoodputCalculator(job, "log", log, cache_dir=place)

        def grow() -> None:
            log.add(steps, 10)

    started = time.perf_counter()
    calculator.get_job_goodput(include_badput_breakdown=True)
    first = time.perf_counter() - started
    grow()
    started = time.perf_counter()
    calculator.get_job_goodput(include_badput_breakdown=True)
    return {"first_s": first, "again_s": time.perf_counter() - started}


class ListLog:
    """An injected log: entries in memory, read from a cursor on."""

    def __init__(self, job: str) -> None:
        self.entries: list[dict[str, Any]] = [{"job_name": job, "job_start_time": FIRST_S}]
        self._job, self._read = job, 0

    def add(self, done: int, count: int) -> None:
        self.entries += [
            {"job_name": self._job, "step_count": n, "step_start_time": FIRST_S + 1 + n * STEP_S}
            for n in range(done, done + count)
        ]

    def read_cloud_logging_entries(self, *_: Any, **__: Any) -> tuple[list[Any], tuple[Any, str]]:
        new, self._read = self.entries[self._read :], len(self.entries)
        at = datetime.datetime.fromtimestamp(new[-1]["step_start_time"], tz=datetime.UTC)
        return new, (at, str(self._read))


def fake_client(place: Path) -> None:
    """Put a client below the library's logger that sends to a file instead of a network."""
    import google.cloud.logging as cloud

    place.mkdir(parents=True, exist_ok=True)

    class Batch:
        def __init__(self) -> None:
            self.entries: list[Any] = []

        def log(self, **fields: Any) -> None:
            self.entries.append(fields)

        def commit(self, **_: Any) -> None:
            with (place / "sent").open("a") as file:
                file.writelines(json.dumps(one, default=str) + "\n" for one in self.entries)
            self.entries = []

    class Logger:
        def batch(self) -> Batch:
            return Batch()

    class Client:
        project = "bench"

        def __init__(self) -> None:
            self._handlers: set[Any] = set()

        def logger(self, *_: Any, **__: Any) -> Logger:
            return Logger()

    cloud.Client = Client


MEASURES: dict[str, Callable[..., Any]] = {
    "record": measure_record,
    "import": measure_import,
    "ends": measure_ends,
    "left": measure_left,
    "ask": measure_ask,
}


def machine() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    load = Path("/proc/loadavg").read_text().split()[0]
    return (
        f"{(models or [platform.machine()])[0]} ×{len(models)}, Linux {platform.release()}, "
        f"Python {platform.python_version()}, load {load}"
    )


if __name__ == "__main__":
    main()
