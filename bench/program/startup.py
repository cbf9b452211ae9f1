"""Where the time until the first step goes, with each remedy on and off: what the report says.

    python bench/program/startup.py [--rungs "kept programs,…"] [--settle 24]

The reference trainer under `holdfast run`. First starts: with the packages' files out of the page
cache, and in it. Restarts: the rank gets a SIGKILL once it has saved (and standbys wait). What is
told is `first_start_s` and `waterfall_s` of `holdfast report --json`. Results are added to those in
build/program/startup.json, so that a second call is a second round, and of each
the fastest counts; drawing.py draws them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import numpy

from holdfast.errors import JournalError
from holdfast.journal.rank_page import RankPage

ROOT = Path(__file__).resolve().parents[2]
TRAIN = [sys.executable, str(ROOT / "examples" / "reference" / "train.py")]
HOLDFAST = [sys.executable, "-m", "holdfast.cli.main"]
PACKAGES = Path(numpy.__file__).parents[1]
SAVED_STEP = 12  # it is killed after it
LIMIT_S = 180.0


class Rung(NamedTuple):
    """Options of `holdfast run` and of the trainer."""

    run: str
    train: str = ""
    is_killed: bool = True
    is_cold: bool = False  # the packages' files are out of the page cache


OFF = "--compile-cache off --standby off"
RUNGS = {
    "first start, files not in memory": Rung(OFF, "--jit-only", is_killed=False, is_cold=True),
    "first start, files in memory": Rung(OFF, "--jit-only", is_killed=False),
    "restart without a remedy": Rung(OFF, "--jit-only"),
    "… with the compile cache": Rung("--standby off", "--jit-only"),
    "… with kept programs": Rung("--standby off"),
    "… and a standby": Rung("--standby auto"),
    "… and one that waits (hot)": Rung("--standby hot"),
}


def main() -> None:
    p = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    p.add_argument("--rungs", help="some of their names, with semicolons between them")
    p.add_argument("--settle", type=float, default=24.0, help="seconds that standbys get")
    p.add_argument("--train", default="--attention local-global --global-every 2 --remat names")
    p.add_argument("--results", type=Path, default=ROOT / "build" / "program" / "startup.json")
    args = p.parse_args()
    results: dict[str, list[dict[str, float]]] = {}
    with contextlib.suppress(FileNotFoundError):
        results = json.loads(args.results.read_text())
    print(f"load {os.getloadavg()[0]:.1f}")
    for name in args.rungs.split(";") if args.rungs else RUNGS:
        results.setdefault(name, []).append(measured(RUNGS[name], args.train, args.settle))
        args.results.parent.mkdir(parents=True, exist_ok=True)
        args.results.write_text(json.dumps(results) + "\n")
        print(told(name, results[name]), flush=True)
    print(f"load {os.getloadavg()[0]:.1f}")


def told(name: str, rounds: list[dict[str, float]]) -> str:
    """The fastest round and its parts; in brackets the least, the most, and how many there are."""
    totals = [sum(one.values()) for one in rounds]
    parts = min(rounds, key=lambda one: sum(one.values()))
    words = ", ".join(f"{kind} {s:.2f}" for kind, s in sorted(parts.items()) if s >= 0.005)
    return f"{name:<34} {min(totals):6.2f} s (… {max(totals):.2f}, {len(rounds)} rounds): {words}"


def measured(rung: Rung, train: str, settle_s: float) -> dict[str, float]:
    """Seconds by kind, from the run's report."""
    has_standby = "--standby off" not in rung.run
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as place:
        folder = Path(place)
        environment = os.environ | {
            "HOLDFAST_STORE": str(folder / "store"),
            "HOLDFAST_SCRATCH": str(folder / "scratch"),
        }
        options = ("--name", "r", "--save-every", "4", "--status", "off", *shlex.split(rung.run))
        words = ("--steps", "1000000", "--log-every", "1000", "--eval-every", "0")
        script = [*TRAIN, *words, *shlex.split(train), *shlex.split(rung.train)]
        if rung.is_cold:
            forget(PACKAGES)
        with open(folder / "out", "wb") as out:  # noqa: PTH123
            process = subprocess.Popen(
                [*HOLDFAST, "run", *options, "--", *script],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=environment,
            )  # fmt: skip
            try:
                if rung.is_killed:
                    wait_s = settle_s if has_standby else 0.0
                    struck(folder, process, wait_s, is_hot="hot" in rung.run)
                else:
                    trained(folder, process, 0)
            finally:
                process.send_signal(signal.SIGTERM)
                process.wait()
        report = [*HOLDFAST, "report", "r", "--json"]
        found = subprocess.run(report, check=True, capture_output=True, env=environment)
    told = json.loads(found.stdout)
    if not rung.is_killed:
        return dict(told["first_start_s"])
    incident = told["incidents"][0]
    if bool(incident["restart"]["woken"]) != has_standby:
        raise SystemExit(f"a standby was to be used and was not, or the reverse: {incident}")
    # Steps that were lost depend on when the last save was, and not on how it starts.
    return {kind: s for kind, s in incident["waterfall_s"].items() if kind != "lost"}


def struck(
    folder: Path, process: subprocess.Popen[bytes], settle_s: float, *, is_hot: bool
) -> None:
    """Killed once it has trained and saved, and until it has trained again."""
    trained(folder, process, 0)
    if is_hot:
        until(lambda: any(folder.glob("scratch/*/r-*/attempt-0001/at-the-gate-*.json")), process)
    time.sleep(settle_s)
    page = trained(folder, process, 0)
    words = page.snapshot()
    page.detach()
    os.kill(words.owner_pid, signal.SIGKILL)
    trained(folder, process, 1)


def trained(folder: Path, process: subprocess.Popen[bytes], attempt: int) -> RankPage:
    """The page of that attempt's rank, once it is past a few steps."""
    found: list[RankPage] = []

    def ready() -> bool:
        if not found:
            with contextlib.suppress(JournalError):
                place = f"scratch/*/r-*/attempt-{attempt:04d}/rank-*.hfj"
                found.extend(RankPage.open(path) for path in folder.glob(place))
        return bool(found) and found[0].snapshot().step >= SAVED_STEP * (attempt + 1)

    until(ready, process, folder / "out")
    return found[0]


def until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes], out: Path | None = None
) -> None:
    end = time.monotonic() + LIMIT_S
    while not ready():
        if process.poll() is not None or time.monotonic() > end:
            raise SystemExit(f"it came to nothing:\n{out.read_text()[-3000:] if out else ''}")
        time.sleep(0.01)


def forget(folder: Path) -> None:
    """Have the kernel drop the files' pages: of a folder alone, so that nobody else is slower."""
    for path in files(folder):
        descriptor = os.open(path, os.O_RDONLY)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def files(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())


if __name__ == "__main__":
    main()
