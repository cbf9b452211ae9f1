"""How long a restart takes: SIGKILL of a rank until the next attempt's first step, phase by phase.

    python bench/restart.py [--kills 12] [--settle 3] [--second 0.5]
                            [lm:2 lm:1 torch_lm:2 torch_lm:1 lm:2:hot]
                            [--run "--standby off"] [--train "--layers 2"]

One run under `holdfast run` for each case: an example and its number of ranks; `hot`: the next
attempt's ranks wait beside them. Once an attempt has trained for `--settle` seconds (and those
wait) a random rank gets a SIGKILL; the run's own journals then tell, on
the clock that this script stamped the kill with, when each phase was over:

- detected: the supervisor knows · gone: no process of the attempt is left · chosen: what to restore
- launched: the ranks' processes are told to begin · script: `holdfast.start` in the slowest rank
- join: from there until it restores (it builds its model, finds the other ranks) · restored
- first step: until all ranks have completed a step; of that, compiled is what the slowest traced
  and compiled

Medians and spread are printed, and how many steps were lost. With `--second`, every other kill
comes so many seconds after an attempt's first steps, before its standby is ready; shown apart.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import shlex
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from holdfast.controller.replay import inputs
from holdfast.core import events as ev
from holdfast.errors import JournalError
from holdfast.journal.clocks import now_ns
from holdfast.journal.layout import SPAN_KINDS, Kind
from holdfast.journal.rank_page import RankPage
from holdfast.journal.reader import argument, read_journal

EXAMPLES = Path(__file__).parents[1] / "examples"
CASES = ["lm:2", "lm:1", "torch_lm:2", "torch_lm:1", "lm:2:hot", "torch_lm:2:hot"]
COMPILE = SPAN_KINDS.index("compile")
LIMIT_S = 180.0
STEPS_FIRST = 5
PHASES = ("detected", "gone", "chosen", "launched", "script", "join", "restored", "first step")


@dataclass(frozen=True)
class Restart:
    """One kill; `at` has the end of each phase after it, in ms."""

    at: dict[str, float]
    compiled: float
    lost_steps: int

    @property
    def total(self) -> float:
        return self.at[PHASES[-1]]

    def phase(self, name: str) -> float:
        """What it took alone; a phase that began before the one above was over is shorter."""
        before = max((self.at[one] for one in PHASES[: PHASES.index(name)]), default=0.0)
        return max(0.0, self.at[name] - before)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("cases", nargs="*", default=CASES, metavar="EXAMPLE:RANKS")
    parser.add_argument("--kills", type=int, default=12)
    parser.add_argument("--settle", type=float, default=3.0)
    parser.add_argument("--second", type=float, help="seconds after which every other kill comes")
    parser.add_argument("--run", default="", help="more options of holdfast run")
    parser.add_argument("--train", default="", help="more options of the training script")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    print(f"{platform.machine()}, {os.cpu_count()} cores, {platform.platform()}, load {load()}")
    for case in options.cases:
        example, count, how = (case + "::").split(":")[:3]
        ranks, is_hot = int(count or 1), how == "hot"
        with tempfile.TemporaryDirectory(prefix="holdfast-bench-") as folder:
            found = measure(example, ranks, options, Path(folder), is_hot=is_hot)
        name = example + (", hot" if is_hot else "")
        if options.second is None:
            show(name, ranks, found)
        else:
            show(name, ranks, found[::2])
            show(f"{name}, the second kill", ranks, found[1::2])
    print(f"load at the end {load()}")


def load() -> str:
    return f"{os.getloadavg()[0]:.2f}"


def show(example: str, ranks: int, restarts: list[Restart]) -> None:
    print(f"\n{example}, {ranks} rank(s), {len(restarts)} kills: ms, median (least … most)")
    for name in PHASES:
        row(f"  {name}", [one.phase(name) for one in restarts])
        if name == "first step":
            row("    of which compiled", [one.compiled for one in restarts])
    row("SIGKILL → first step", [one.total for one in restarts])
    lost = [one.lost_steps for one in restarts]
    print(f"  steps lost: {statistics.mean(lost):.1f} a kill, at most {max(lost)}", flush=True)


def row(what: str, values: list[float]) -> None:
    middle = statistics.median(values)
    print(f"{what:<24} {middle:>8.1f} ({min(values):.1f} … {max(values):.1f})", flush=True)


def measure(
    example: str, ranks: int, options: argparse.Namespace, folder: Path, *, is_hot: bool
) -> list[Restart]:
    """One run that is killed again and again."""
    environment = os.environ | {
        "HOLDFAST_STORE": str(folder / "store"),
        "HOLDFAST_SCRATCH": str(folder / "scratch"),
    }
    command = [
        sys.executable, "-m", "holdfast.cli.main", "run", "--name", "r", "--ranks", str(ranks),
        *(["--standby", "hot"] if is_hot else []), *shlex.split(options.run), "--",
        sys.executable, str(EXAMPLES / example / "train.py"), "--steps", "1000000",
        "--eval-every", "0", "--log-every", "1", "--threads", str(max(1, 2 // ranks)),
        *shlex.split(options.train),
    ]  # fmt: skip
    chance = random.Random(options.seed)
    killed_ns: list[int] = []
    reached = 0
    with open(folder / "out", "wb") as out:  # noqa: PTH123
        process = subprocess.Popen(command, stdout=out, stderr=out, env=environment)
        try:
            for attempt in range(options.kills + 1):
                pages = trained(folder, attempt, ranks, process, reached + STEPS_FIRST)
                if attempt == options.kills:
                    break
                if is_hot:
                    await_hot(folder, attempt + 1, ranks)
                is_second = options.second is not None and attempt % 2
                settle_s = options.second if is_second else options.settle
                time.sleep(settle_s * (0.8 + 0.4 * chance.random()))
                words = [page.snapshot() for page in pages]
                pids, reached = [one.owner_pid for one in words], max(one.step for one in words)
                killed_ns.append(now_ns())
                os.kill(chance.choice(pids), signal.SIGKILL)
                for page in pages:
                    page.detach()
        finally:
            process.send_signal(signal.SIGTERM)  # stopped now, it would keep its memory
            process.wait()
    store = folder / "store" / "r"
    (journal,) = (store / "journal").glob("controller-*.hfj")
    told = list(inputs(read_journal(journal)))
    return [
        restart_of(store, told, ranks, attempt, at_ns) for attempt, at_ns in enumerate(killed_ns)
    ]


def await_hot(folder: Path, attempt: int, ranks: int) -> None:
    """Until the ranks of an attempt wait at its gate."""
    place = f"scratch/*/r-*/attempt-{attempt:04d}/at-the-gate-*.json"
    end = time.monotonic() + LIMIT_S
    while len(list(folder.glob(place))) < ranks:
        if time.monotonic() > end:
            raise SystemExit(f"nobody waits for attempt {attempt} after {LIMIT_S} s")
        time.sleep(0.02)


def trained(
    folder: Path, attempt: int, ranks: int, process: subprocess.Popen[bytes], step: int
) -> list[RankPage]:
    """The pages of an attempt, when all its ranks have done a step that nobody had done before.

    Else the run would back off: that is not what is measured here.
    """
    place = f"scratch/*/r-*/attempt-{attempt:04d}/rank-*.hfj"
    pages: list[RankPage] = []

    def ready() -> bool:
        if process.poll() is not None:
            raise SystemExit(f"the run has ended:\n{(folder / 'out').read_text()[-3000:]}")
        if len(pages) < ranks:
            try:
                pages[:] = [RankPage.open(path) for path in sorted(folder.glob(place))]
            except JournalError:
                return False
        return len(pages) == ranks and all(page.snapshot().step >= step for page in pages)

    end = time.monotonic() + LIMIT_S
    while not ready():
        if time.monotonic() > end:
            raise SystemExit(f"attempt {attempt} got no steps done within {LIMIT_S} s")
        time.sleep(0.02)
    return pages


def restart_of(store: Path, told: list[ev.Event], ranks: int, killed: int, at_ns: int) -> Restart:
    """What the journals say of the restart after the attempt `killed`."""

    def first(kind: type, attempt: int | None = None) -> int:
        of = (one for one in told if isinstance(one, kind) and one.at_ns >= at_ns)
        return next(one.at_ns for one in of if attempt in (None, getattr(one, "attempt", None)))

    new, old = killed + 1, killed
    tracks = [Track.read(path) for path in rank_journals(store, new)]
    assert len(tracks) == ranks
    ends = {
        "detected": first(ev.RankExited, old),
        "gone": first(ev.TreeGone, old),
        "chosen": first(ev.SetsSeen),
        "launched": first(ev.Launched, new),
        "script": max(track.began_ns for track in tracks),
        "join": max(track.restoring_ns for track in tracks),
        "restored": max(track.restored_ns for track in tracks),
        "first step": max(track.step_ns for track in tracks),
    }
    compiled_ns = max(track.compiled_ns for track in tracks)
    reached = min(Track.read(path).last_step for path in rank_journals(store, old))
    lost = reached - min(track.resume_step for track in tracks)
    at = {name: (ns - at_ns) / 1e6 for name, ns in ends.items()}
    return Restart(at, compiled_ns / 1e6, max(0, lost))


def rank_journals(store: Path, attempt: int) -> Iterator[Path]:
    return (store / "attempts" / f"{attempt:04d}" / "journal").glob("rank-*.hfj")


@dataclass(frozen=True)
class Track:
    """One rank's attempt, by its journal."""

    began_ns: int
    restoring_ns: int
    restored_ns: int
    resume_step: int
    compiled_ns: int  # from the end of the restore to the first step
    step_ns: int  # the first one's end
    last_step: int

    @classmethod
    def read(cls, path: Path) -> Track:
        journal = read_journal(path)
        records = journal.records

        def of(
            kind: Kind,
            also: Callable[[np.ndarray], np.ndarray] = lambda some: np.ones(len(some), bool),
        ) -> np.ndarray:
            some = records[records["kind"] == kind]
            found: np.ndarray = some[also(some)]
            return found

        (restore, *_) = of(Kind.RESTORE)
        spans = of(Kind.SPAN, lambda some: argument(some) == COMPILE)
        # JAX dispatches ahead: its first step is done when it is complete on the device. PyTorch
        # on a CPU is done with a step when the loop is.
        steps = of(Kind.COMPLETE if len(spans) else Kind.STEP)
        restored_ns, step_ns = int(restore["time"]), int(steps["time"][0])
        within = [
            (max(int(one["value"]), restored_ns), min(int(one["time"]), step_ns)) for one in spans
        ]
        return cls(
            began_ns=journal.clocks[0].boottime_ns,
            restoring_ns=int(restore["value"]),
            restored_ns=restored_ns,
            resume_step=int(restore["step"]),
            compiled_ns=union_ns(within),
            step_ns=step_ns,
            last_step=int(of(Kind.STEP)["step"][-1]),
        )


def union_ns(spans: list[tuple[int, int]]) -> int:
    """How long at least one of them was open: tracing, lowering and compiling nest."""
    total = reached = 0
    for start, end in sorted(spans):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


if __name__ == "__main__":
    main()
