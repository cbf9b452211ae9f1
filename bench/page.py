"""A run's page: how long it takes to make, how large it is, and when a browser shows it.

    python bench/page.py [--steps 1000000] [--attempts 500] [--rounds 5] [--no-browser]

Two runs of a month:

- simulated: `holdfast simulate --journal`, whose steps come in rows from save to save;
- recorded: every step by itself, of random length, with a save after each hundredth and a
  disruption after each attempt, put into the ledger as columns, as journals are read. Each
  disruption has a cause, forty lines of output and a traceback.

"Making" is all from the ledger to the file, in a process in which Vega has already drawn something;
"command" is `holdfast report --history FILE --html` from its start, which reads the history and
fits a plan, too. A browser is Debian's headless Chromium, opened anew for each page, from disk:
"first paint" is its own performance entry, "time line" the first frame of the canvas.
"""

from __future__ import annotations

import argparse
import platform
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from holdfast.cli.report_page import FindingsSource, look
from holdfast.core.ledger.facts import AttemptFact, RestoreFact, RunFact, SpanFact
from holdfast.core.ledger.incremental import Ledger
from holdfast.report.findings import DisruptionEvidence, Findings
from holdfast.report.run_page import run_page

S = 1_000_000_000
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
ZOOMS = 40
OTHER = "before => document.getElementById('course-place').dataset.drawn != before"
DRAWN = "() => document.getElementById('course-place').dataset.drawn"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1_000_000)
    parser.add_argument("--attempts", type=int, default=500)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--no-browser", action="store_true")
    options = parser.parse_args()
    print(f"{platform.platform()}, Python {platform.python_version()}, {cpu()}")
    print(f"{options.steps:,} steps, {options.attempts} attempts, {options.rounds} rounds: "
          "median (least … most)\n")  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        pages = [simulated(options, Path(folder)), recorded(options, Path(folder))]
        if not options.no_browser:
            browse(pages, options.rounds)


def simulated(options: argparse.Namespace, folder: Path) -> Path:
    """A history and its page, by the commands."""
    history, page = folder / "simulated.jsonl", folder / "simulated.html"
    days = options.steps * 2.78 / 86_400
    words = ["--hosts", "64", "--chips-per-host", "8", "--step", "2.5s", "--days", f"{days:.2f}d",
             "--mtbf", f"{days * 24 / options.attempts:.4f}h", "--save-stall", "3s",
             "--restart", "4min", "--host-share", "0.3", "--reschedule", "10min",
             "--journal", str(history)]  # fmt: skip
    subprocess.run([*holdfast(), "simulate", *words], check=True, stdout=subprocess.DEVNULL)

    def made() -> None:
        command = [*holdfast(), "report", "--history", str(history), "--html", str(page)]
        subprocess.run(command, check=True)

    told("simulated: command", taken(made, options.rounds))
    size(page)
    return page


def recorded(options: argparse.Namespace, folder: Path) -> Path:
    """The page of a run of which each step is on record."""
    page = folder / "recorded.html"
    ledger = filled(options.steps, options.attempts)
    account = ledger.account()
    line = "2026-01-31 18:00:00 rank 3: " + "words " * 20
    evidence = tuple(
        DisruptionEvidence(one.attempt, f"rank 3: killed by SIGKILL ({one.attempt})", (0, 0, 0, -9),
                 (line,) * 40, "Traceback (most recent call last):\nValueError: no", rank=3)
        for one in account.disruptions
    )  # fmt: skip
    findings = Findings(account, store="/store", state="running", unix_clock=True,
                        requested_ns=account.start_ns, evidence=evidence)  # fmt: skip

    def made() -> None:
        view = look(findings, FindingsSource(ledger, None), 2.0, None)
        page.write_text(run_page(view, (), "bench"))

    made()
    told("recorded: making", taken(made, options.rounds))
    course = taken(ledger.course, options.rounds)
    told("  … of that: the ledger's thinning", course)
    size(page)
    return page


def filled(steps: int, attempts: int) -> Ledger:
    """A ledger with that many steps of about 2.5 s, one by one."""
    rng, ledger, at, step = np.random.default_rng(1), Ledger(), 0, 1
    each = steps // attempts
    ledger.add([RunFact("recorded", 0, None, 512)])
    for attempt in range(attempts):
        began = at
        at += 90 * S
        took = (2.5 * S * rng.lognormal(0, 0.03, each)).astype(np.int64)
        took[rng.integers(0, each, 3)] *= 20
        saves = np.arange(each) % 100 == 99
        end = at + np.cumsum(took + saves * 3 * S)
        start = end - took
        number = np.arange(step, step + each)
        ledger.add_steps(attempt, number, number, start, end)
        which = np.flatnonzero(saves)
        ledger.add_spans(attempt, ["save"], np.zeros(len(which), np.int64), start[which] - 3 * S,
                         start[which])  # fmt: skip
        ledger.add([SpanFact(attempt, "startup", began, began + 60 * S)])
        ledger.add([RestoreFact(attempt, began + 60 * S, began + 70 * S, step - 1)])
        stop = int(end[-1]) + S
        ledger.add(
            [AttemptFact(attempt, began, stop, "killed" if attempt + 1 < attempts else None)]
        )
        at, step = stop + 20 * S, step + each - 20
    return ledger


def browse(pages: list[Path], rounds: int) -> None:
    """Open each page anew, so many times."""
    program = next(filter(None, map(shutil.which, NAMES)), None)
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        program = None
    if program is None:
        print("no browser: make browser sets Chromium and Playwright up")
        return
    with sync_playwright() as driver:
        for path in pages:
            found: dict[str, list[float]] = {}
            for _ in range(rounds):
                browser = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
                for name, value in opened(browser, path):
                    found.setdefault(name, []).append(value)
                browser.close()
            for name, values in found.items():
                told(f"{path.stem}: {name}", values)


def opened(browser: Any, path: Path) -> Iterator[tuple[str, float]]:
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    began = time.perf_counter()
    tab.goto(path.as_uri())
    tab.wait_for_function(DRAWN)
    yield "opened, to the time line", time.perf_counter() - began
    paints = tab.evaluate("performance.getEntriesByType('paint').map(e => [e.name, e.startTime])")
    yield "first paint", dict(paints)["first-contentful-paint"] / 1000
    tab.locator("#course-place").focus()
    began = time.perf_counter()
    for _ in range(ZOOMS // 2):
        for key in "+-":
            before = tab.evaluate(DRAWN)
            tab.keyboard.press(key)
            tab.wait_for_function(OTHER, arg=before)
    yield "a zoom, with the driver's own time", (time.perf_counter() - began) / ZOOMS


def taken(what: Callable[[], object], rounds: int) -> list[float]:
    """Seconds, so many times."""
    found = []
    for _ in range(rounds):
        began = time.perf_counter()
        what()
        found.append(time.perf_counter() - began)
    return found


def told(name: str, values: list[float]) -> None:
    median, least, most = statistics.median(values), min(values), max(values)
    print(f"{name:<44} {median:6.2f} s ({least:.2f} … {most:.2f})", flush=True)


def size(page: Path) -> None:
    print(f"{page.stem}: size{'':<32} {page.stat().st_size / 1e6:6.2f} MB", flush=True)


def holdfast() -> list[str]:
    return [sys.executable, "-m", "holdfast.cli.main"]


def cpu() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return f"{len(names)} × {names[0]}" if names else "unknown processor"


if __name__ == "__main__":
    main()
