"""The journal against a bare memory write, and beside the best-known goodput library.

    python bench/journal.py [--batches 50] [--steps 1000000] [--dir PATH] [--no-peer]

- per call: one step record, a span pair of which nothing is recorded, a recorded span pair, a note;
  medians over batches that take turns, less the cost of an empty loop. CPU time of the thread,
  page faults included: none of these calls waits, and a busy machine does not show in it. Floor:
  one 64-bit store into mapped memory, the same way (`memoryview`).
- the peer is ml-goodput-measurement's `record_step_start_time`. Its logging client is a FAKE, a
  list in memory: no network, no serialization, no thread; the real one can only cost more.
- cold: a journal file of a million steps → ledger → account, in a fresh process each time, with the
  growth of its memory; and again after 10 new records.

`--dir` is where the live journal lies (default /dev/shm; a local disk is the other sensible place).
"""

from __future__ import annotations

import argparse
import json
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.journal.clocks import boot_id, now_ns
from holdfast.journal.layout import (
    HEADER_BYTES,
    PAGE_BYTES,
    RECORD_BYTES,
    Identity,
    NoteType,
    Word,
)
from holdfast.journal.writer import JournalWriter

CALLS = 2000
MEASURE_COLD = "--measure-cold"


def main() -> None:
    if MEASURE_COLD in sys.argv:
        print(json.dumps(measure_cold(Path(sys.argv[-1]))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--batches", type=int, default=50)
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5, help="cold reads")
    parser.add_argument("--dir", type=Path, default=Path("/dev/shm"))
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    print(machine())
    folder = Path(tempfile.mkdtemp(prefix="holdfast-bench-", dir=options.dir))
    try:
        per_call(folder, options.batches, peer=not options.no_peer)
        cold(folder / "run", options.steps, options.rounds)
    finally:
        shutil.rmtree(folder)


def machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.machine(),
    )
    load = Path("/proc/loadavg").read_text().split()[0]
    return f"{model}, Linux {platform.release()}, Python {platform.python_version()}, load {load}"


# --- per call ------------------------------------------------------------------------------------


def per_call(folder: Path, batches: int, *, peer: bool) -> None:
    writer = identified(folder / "rank-00000.hfj")
    calls = {
        "empty call": empty,
        "one 64-bit store (floor)": bare_store(writer),
        "clock reading": lambda _step: now_ns(),
        "step record": writer.record_step,
        "span pair, nothing recorded": unrecorded_span(writer),
        "span pair, recorded": recorded_span(writer),
        "note": lambda step: writer.note(NoteType.MESSAGE, {"step": step}),
    }
    if peer and (theirs := peer_call()) is not None:
        calls["ml-goodput-measurement step (fake client)"] = theirs
    costs: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(batches):
        for name, call in calls.items():
            costs[name].append(batch_ns(call))
    overhead = statistics.median(costs["empty call"])
    floor = statistics.median(costs["one 64-bit store (floor)"]) - overhead
    print(f"\n{'per call':44}{'median':>10}{'quartiles':>18}{'x floor':>10}")
    for name, values in costs.items():
        low, middle, high = (v - overhead for v in statistics.quantiles(values, n=4))
        ratio = f"{middle / floor:.1f}" if name != "empty call" else ""
        print(f"{name:44}{middle:7.0f} ns{f'{low:.0f} to {high:.0f}':>18}{ratio:>10}")
    writer.close()


def batch_ns(call: Callable[[int], object]) -> float:
    steps = range(1, CALLS + 1)
    started = time.thread_time_ns()
    for step in steps:
        call(step)
    return (time.thread_time_ns() - started) / CALLS


def identified(path: Path) -> JournalWriter:
    return JournalWriter.create(path, Identity("bench", 0, "bench", 0, "host", 0, boot_id()))


def empty(_step: int) -> None:
    pass


def bare_store(writer: JournalWriter) -> Callable[[int], None]:
    page, word = writer.page.words, int(Word.WATERMARK)

    def store(step: int) -> None:
        page[word] = step

    return store


def unrecorded_span(writer: JournalWriter) -> Callable[[int], None]:
    opened, closed = writer.open_span, writer.close_span

    def pair(_step: int) -> None:
        closed(opened("data"), 1_000_000_000)

    return pair


def recorded_span(writer: JournalWriter) -> Callable[[int], None]:
    opened, closed = writer.open_span, writer.close_span

    def pair(_step: int) -> None:
        closed(opened("data"))

    return pair


def peer_call() -> Callable[[int], None] | None:
    try:
        from ml_goodput_measurement.src.goodput import GoodputRecorder
    except ImportError as problem:
        print(f"ml-goodput-measurement is left out: {problem}")
        return None

    class FakeClient:
        """Stands in for Cloud Logging: keeps entries in memory."""

        def __init__(self) -> None:
            self.entries: list[object] = []

        def write_cloud_logging_entry(self, entry: object) -> None:
            self.entries.append(entry)

    recorder = GoodputRecorder("bench", "bench", True, FakeClient())
    record: Callable[[int], None] = recorder.record_step_start_time
    return record


# --- a million steps, cold -----------------------------------------------------------------------


def cold(run: Path, steps: int, rounds: int) -> None:
    path = run / "attempts" / "0000" / "journal" / "rank-00000.hfj"
    path.parent.mkdir(parents=True)
    writer = identified(path)
    writer.note(
        NoteType.FACT, {"fact": "run", "name": "bench", "requested_ns": now_ns(), "chips": 1}
    )
    writer.note(NoteType.FACT, {"fact": "attempt_start", "attempt": 0, "at_ns": now_ns()})
    writer.begin_step(1, None)
    for step in range(1, steps + 1):
        writer.record_step(step)
    writer.close()
    command = [sys.executable, __file__, MEASURE_COLD, str(run)]
    results = [
        json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        for _ in range(rounds)
    ]
    print(f"\n{steps:,} steps, cold, {rounds} fresh processes{'median':>22}{'least to most':>24}")
    rows = (
        ("journal → facts", "read_s", 1e3, "ms"),
        ("facts → account", "account_s", 1e3, "ms"),
        ("journal → account", "total_s", 1e3, "ms"),
        ("process time of that", "cpu_s", 1e3, "ms"),
        ("memory above imports, at its peak", "peak_bytes", 1e-6, "MB"),
        ("10 records later → account", "again_s", 1e3, "ms"),
    )
    for title, key, scale, unit in rows:
        values = sorted(result[key] * scale for result in results)
        spread = f"{values[0]:.2f} to {values[-1]:.2f}"
        print(f"{title:44}{statistics.median(values):12.2f} {unit}{spread:>24}")


def measure_cold(run: Path) -> dict[str, float]:
    """In a fresh process: what it costs to read a run, with everything imported before."""
    from holdfast.journal.recorded import load_run

    base_bytes = memory_bytes("VmRSS")
    started, started_cpu = time.perf_counter(), time.process_time()
    recorded = load_run(run)
    read = time.perf_counter()
    account = recorded.account()
    done, done_cpu = time.perf_counter(), time.process_time()
    assert account.steps_kept > 0
    peak_bytes = memory_bytes("VmHWM")
    again = []
    grow = growth(run)
    for _ in range(5):
        grow()
        restarted = time.perf_counter()
        assert recorded.refresh() == 10
        recorded.account()
        again.append(time.perf_counter() - restarted)
    return {
        "read_s": read - started,
        "account_s": done - read,
        "total_s": done - started,
        "cpu_s": done_cpu - started_cpu,
        "peak_bytes": peak_bytes - base_bytes,
        "again_s": statistics.median(again),
    }


def growth(run: Path) -> Callable[[], None]:
    """Ten more steps, written into the closed file the way its owner would have gone on."""
    from holdfast.journal.reader import JournalReader

    path = next(run.glob("attempts/*/journal/rank-*.hfj"))

    def grow() -> None:
        with JournalReader(path) as reader:
            count = reader.count()
            last = reader.read_new(count - 1)[0]
        new = b"".join(
            value.to_bytes(8, "little")
            for n in range(1, 11)
            for value in (
                int(last["time"]) + n * 1000,
                int(last["word"]),
                int(last["step"]) + n,
                int(last["time"]) + (n - 1) * 1000,
            )
        )
        with path.open("r+b") as file:
            file.seek(HEADER_BYTES + count * RECORD_BYTES)
            file.write(new)
            file.seek(PAGE_BYTES + 8 * Word.COUNT)
            file.write((count + 10).to_bytes(8, "little"))

    return grow


def memory_bytes(field: str) -> int:
    """Of this process since its exec (getrusage's peak would include the parent's before it)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    raise KeyError(field)


if __name__ == "__main__":
    main()
