"""A history of so many lines to its result, beside `json.loads` of the same lines.

    python bench/history.py [--lines 1000000] [--rounds 5]

The lines are steps in the spellings of several writers. In each round one fresh process does both
in turn: `json.loads` of each line, which says nothing yet of what the lines mean, and the whole way
from the file to the account. CPU seconds, and their ratio in each round; memory is the growth of
the peak.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from ledger import clocks, machine, peak_mb, reset_peak, since

from holdfast.core.history.text import parse_text
from holdfast.core.ledger.incremental import Ledger
from holdfast.journal.history_file import read_history

MEASURE = "--measure"
HEAD = (
    '{"event": "run", "name": "r", "requested": 0.0, "ended": null, "chips": 8}\n'
    '{"event": "attempt", "attempt": 0, "start": 0.0, "end": null, "cause": null}\n'
)


def main() -> None:
    if sys.argv[1:2] == [MEASURE]:
        print(json.dumps(measure(Path(sys.argv[2]))))
        return
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    print(machine())
    print(f"{options.lines:,} lines, {options.rounds} rounds: median (least … most)\n")
    print(f"{'':34} {'json.loads':>20} {'to the result':>20} {'ratio':>20} {'memory':>8}")
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
        for title, spelled in SPELLINGS.items():
            path = Path(folder) / "history.jsonl"
            with path.open("w") as file:
                file.write(HEAD)
                file.writelines(spelled(options.lines))
            command = [sys.executable, __file__, MEASURE, str(path)]
            rounds = [
                json.loads(subprocess.run(command, check=True, capture_output=True).stdout)
                for _ in range(options.rounds)
            ]
            loads, ours = ([one[key] for one in rounds] for key in ("loads_s", "ours_s"))
            ratio = [b / a for a, b in zip(loads, ours, strict=True)]
            memory = statistics.median(one["memory_mb"] for one in rounds)
            cells = [spread(loads, " s"), spread(ours, " s"), spread(ratio, "")]
            print(f"{title:34} " + " ".join(f"{c:>20}" for c in cells) + f" {memory:5.0f} MB")


def spread(values: list[float], unit: str) -> str:
    return f"{statistics.median(values):.2f}{unit} ({min(values):.2f} … {max(values):.2f})"


def measure(path: Path) -> dict[str, float]:
    parse_text(HEAD)  # imports are not what is measured
    lines = path.read_text().splitlines()
    began = clocks()
    for line in lines:
        json.loads(line)
    _, loads_s = since(began)
    del lines
    reset_peak()
    began = clocks()
    ledger = Ledger()
    ledger.add_history(read_history(path))
    assert ledger.account().to_json()["steps_kept"] > 0
    _, ours_s = since(began)
    return {"loads_s": loads_s, "ours_s": ours_s, "memory_mb": peak_mb()}


# --- how steps are spelled -----------------------------------------------------------------------


def steps(count: int, first_s: float = 1.76e9) -> Iterator[dict[str, Any]]:
    """A step each quarter of a second."""
    for i in range(count):
        bounds = {"start": first_s + i * 0.25, "end": first_s + (i + 1) * 0.25}
        yield {"event": "step", "attempt": 0, "step": i + 1, **bounds}


def exported(count: int) -> Iterator[str]:
    return (json.dumps(step) + "\n" for step in steps(count))


def with_spans(count: int) -> Iterator[str]:
    for step in steps(count // 2):
        start = step["start"]
        span = {"event": "span", "attempt": 0, "kind": "data", "start": start}
        yield json.dumps({**span, "end": round(start + 0.009, 9)}) + "\n"
        yield json.dumps(step) + "\n"


def compact(count: int) -> Iterator[str]:
    return (json.dumps(step, separators=(",", ":")) + "\n" for step in steps(count))


def others(count: int) -> Iterator[str]:
    """The keys in another order, and more of them."""
    for i, step in enumerate(steps(count)):
        logged = {"time": f"2026-11-23T14:{i % 60:02d}:00", "loss": 2.3 + 1 / (i + 1), "lr": 3e-4}
        yield json.dumps(logged | dict(sorted(step.items()))) + "\n"


def binary(count: int) -> Iterator[str]:
    """Sums of binary floats, with all the digits that those have."""
    for i in range(count):
        bounds = {"start": i * 0.1, "end": (i + 1) * 0.1}
        yield json.dumps({"event": "step", "attempt": 0, "step": i + 1, **bounds}) + "\n"


SPELLINGS: dict[str, Callable[[int], Iterator[str]]] = {
    "steps as an export writes them": exported,
    "half of them DATA spans": with_spans,
    "compact": compact,
    "other order, and more keys": others,
    "sums of binary floats": binary,
}

if __name__ == "__main__":
    main()
