"""Chaos: short runs are killed at random moments, and nothing may be lost.

    python tests/chaos/campaign.py --kills 10000        (make chaos)

A *night* is one small run under `holdfast run`. At random moments SIGKILL goes to its whole process
tree, or to one process of it; whoever is gone is started again. At the end the run must be done
with the very parameters of a run that nobody interrupted, its journals must read without a gap
that is not explained, the ledger must sum up, and every kill must be one incident.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
from proc import attempt_of, is_alive, tree_of, with_marker
from verdict import judge

VICTIM = Path(__file__).with_name("victim.py")
STEPS = 1500
KILLS_A_NIGHT = 12
AMONG_RANKS = 0.7  # this share of the kills waits until there are ranks; the others for nothing
MOST_WORKERS = 16
ROOM_BYTES = 12 << 20  # that a night may need: stores, journals, snapshots
LEFT_LIMIT_S = 30.0  # until the last of its processes is gone, too
NIGHT_LIMIT_S = 240.0  # generous: only a hang comes near it
TARGETS = (
    "tree",
    "supervisor",
    "guard",
    "reaper",
    "supervisor, guard and reaper",
    "rank",
    "rank",
    "any",
)


@dataclass(frozen=True, slots=True)
class Kill:
    """One blow: what it was aimed at, and which attempt's processes were there.

    It fell between `at_unix_ns` and `over_unix_ns`. `struck`: the attempts that its victims were
    of, or were to be of, by their environment: ranks may wait for one that is not on record yet.
    """

    target: str
    at_unix_ns: int
    over_unix_ns: int
    attempt: int | None
    struck: frozenset[int]


@dataclass(slots=True)
class Night:
    """One run, from its first start to the verdict."""

    number: int
    seed: int
    ranks: int
    save_every: int
    folder: Path
    kills: list[Kill] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    back_s: list[float] = field(default_factory=list)
    attempts: int = 0


class Run:
    """`holdfast run` as the night sees it: started again whenever it is gone."""

    def __init__(self, night: Night) -> None:
        self.night = night
        self.hurry = night.folder / "hurry"
        self.marker = f"HURRY={self.hurry}"
        self.start()

    def start(self) -> None:
        night = self.night
        log = (night.folder / "output").open("ab")
        options = ("--name", "night", "--ranks", night.ranks, "--save-every", night.save_every)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "holdfast.cli.main", "run", *map(str, options),
             "--", sys.executable, str(VICTIM), str(STEPS)],
            cwd=night.folder,
            env={
                **os.environ,
                "HURRY": str(self.hurry),
                "HOLDFAST_STORE": str(night.folder / "store"),
                "HOLDFAST_SCRATCH": str(night.folder / "scratch"),
            },
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        log.close()

    def until_there_are_ranks(self) -> None:
        """Wait until the run trains, or is about to."""
        end = time.monotonic() + NIGHT_LIMIT_S
        while self.process.poll() is None and not self.ranks() and time.monotonic() < end:
            time.sleep(0.005)

    def ranks(self) -> list[int]:
        """Processes of an attempt that are there now."""
        return [pid for pid in tree_of(self.process.pid) if self._attempt_of(pid) is not None]

    def _attempt_of(self, pid: int) -> int | None:
        """The attempt that this is a rank of; what stands by for the next is of none yet."""
        number = attempt_of(pid)
        records = self.night.folder / "store" / "night" / "attempts"
        if number is None or not (records / f"{number:04d}" / "attempt.json").exists():
            return None
        return number

    def strike(self, target: str, dice: random.Random) -> bool:
        """SIGKILL what was aimed at; False when nothing of the kind is there now."""
        pids = tree_of(self.process.pid)
        attempts = {pid: number for pid in pids if (number := self._attempt_of(pid)) is not None}
        ranks, keepers = list(attempts), [pid for pid in pids[1:] if pid not in attempts]
        aimed = {
            "tree": pids,
            "supervisor": pids[:1],
            "guard": keepers[:1],
            "reaper": keepers[1:2],
            "supervisor, guard and reaper": [*pids[:1], *keepers] if keepers else [],
            "rank": [dice.choice(ranks)] if ranks else [],
            "any": [dice.choice(pids)] if pids else [],
        }[target]
        if not aimed:
            return False
        attempt = max(attempts.values(), default=None)
        struck = frozenset(number for pid in aimed if (number := attempt_of(pid)) is not None)
        at_unix_ns = time.time_ns()
        hit = 0
        for pid in aimed:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                hit += 1
        if hit:
            self.night.kills.append(Kill(target, at_unix_ns, time.time_ns(), attempt, struck))
        return hit > 0

    def finish(self) -> int:
        """Nobody disturbs it any more; its exit code."""
        self.hurry.touch()
        end = time.monotonic() + NIGHT_LIMIT_S
        while True:
            code = self.process.wait(max(0.1, end - time.monotonic()))
            if code != -signal.SIGKILL:
                return code
            self.start()

    def sweep(self) -> list[int]:
        """What is left of the night's processes; they are ended."""
        end = time.monotonic() + LEFT_LIMIT_S
        while (left := with_marker(self.marker)) and time.monotonic() < end:
            time.sleep(0.01)
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        return left


def spend(night: Night) -> Night:
    """Live through one night and judge it."""
    dice = random.Random(night.seed)
    run = Run(night)
    try:
        for _ in range(KILLS_A_NIGHT):
            if dice.random() < AMONG_RANKS:
                run.until_there_are_ranks()
            with contextlib.suppress(subprocess.TimeoutExpired):
                run.process.wait(dice.uniform(0, 0.8))
            if run.process.poll() not in (None, -signal.SIGKILL):
                break  # it was faster
            if run.process.poll() is not None:
                run.start()
                continue
            while not run.strike(dice.choice(TARGETS), dice) and run.process.poll() is None:
                pass
            if not is_alive(run.process.pid):
                run.process.wait()
                run.start()
        code = run.finish()
        if code != 0:
            night.problems.append(f"the run ended with {code}")
    except subprocess.TimeoutExpired:
        night.problems.append("the run does not come to its end")
        run.process.kill()
    finally:
        left = run.sweep()
    if left:
        night.problems.append(f"processes were left behind: {left}")
    night.output = (night.folder / "output").read_text(errors="replace").splitlines()
    try:
        judge(night, STEPS)
    except Exception as error:  # the judge's own trouble is a finding as well
        night.problems.append(f"the run cannot be judged: {error!r}")
    return night


class Campaign:
    """Nights side by side, until there were enough kills."""

    def __init__(self, kills: int, seed: int, base: Path) -> None:
        self.wanted = kills
        self.base = base
        self.dice = random.Random(seed)
        self.nights: list[Night] = []
        self._lock = threading.Lock()
        self._begun = 0
        self._promised = 0

    def _next(self) -> Night | None:
        with self._lock:
            done = sum(len(night.kills) for night in self.nights)
            under_way = self._begun - len(self.nights)
            if done + under_way * KILLS_A_NIGHT // 2 >= self.wanted:
                return None
            number, self._begun = self._begun, self._begun + 1
            folder = self.base / f"night-{number:05d}"
            folder.mkdir()
            (folder / "scratch").mkdir()
            return Night(
                number,
                seed=self.dice.getrandbits(48),
                ranks=self.dice.choice((1, 1, 2, 3)),
                save_every=self.dice.choice((3, 20, 100, 400)),
                folder=folder,
            )

    def work(self) -> None:
        """One worker: night after night."""
        while night := self._next():
            spend(night)
            with self._lock:
                self.nights.append(night)
                self._say(night)
            if not night.problems:
                shutil.rmtree(night.folder, ignore_errors=True)

    def _say(self, night: Night) -> None:
        for problem in night.problems:
            print(f"night {night.number} (seed {night.seed}, {night.ranks} ranks): {problem}")
            print(f"  kept: {night.folder}", flush=True)
        if len(self.nights) % 25 == 0:
            kills = sum(len(one.kills) for one in self.nights)
            bad = sum(bool(one.problems) for one in self.nights)
            print(f"… {kills} kills in {len(self.nights)} nights, {bad} with problems", flush=True)


def memory_for(workers: int) -> Path | None:
    """Where there is room for all nights in memory; None: nowhere (a container may have 64 MiB)."""
    memory = Path("/dev/shm")
    with contextlib.suppress(OSError):
        if shutil.disk_usage(memory).free >= workers * ROOM_BYTES:
            return memory
    return None


def main() -> int:
    """Run a campaign; 0 if nothing was lost."""
    parser = argparse.ArgumentParser(description="kill short runs at random; nothing may be lost")
    parser.add_argument("--kills", type=int, default=10_000)
    parser.add_argument(
        "--workers", type=int, default=min(MOST_WORKERS, 2 * len(os.sched_getaffinity(0)))
    )
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--folder", type=Path, help="where the nights live (default: in memory)")
    options = parser.parse_args()
    base = options.folder or Path(
        tempfile.mkdtemp(prefix="holdfast-chaos-", dir=memory_for(options.workers))
    )
    base.mkdir(parents=True, exist_ok=True)
    print(f"chaos: {options.kills} kills, seed {options.seed}, {options.workers} at a time, {base}")
    began = time.monotonic()
    campaign = Campaign(options.kills, options.seed, base)
    with ThreadPoolExecutor(options.workers) as pool:
        for done in [pool.submit(campaign.work) for _ in range(options.workers)]:
            done.result()
    return report(campaign, time.monotonic() - began)


def report(campaign: Campaign, took_s: float) -> int:
    """Print what happened; the exit code."""
    nights = campaign.nights
    kills = [kill for night in nights for kill in night.kills]
    bad = [night for night in nights if night.problems]
    by_target = ", ".join(
        f"{n} {what}" for what, n in Counter(k.target for k in kills).most_common()
    )
    back_s = [one for night in nights for one in night.back_s]
    among = sum(kill.attempt is not None for kill in kills)
    print(f"{len(kills)} kills ({by_target}), {among} of them while an attempt had processes")
    print(f"{len(nights)} runs, {sum(night.attempts for night in nights)} attempts, {took_s:.0f} s")
    if back_s:
        middle, worst = statistics.median(back_s), max(back_s)
        print(
            f"from a kill to the next completed step: median {middle:.2f} s, longest {worst:.2f} s"
        )
    if bad:
        print(f"{len(bad)} runs with problems: {[night.number for night in bad]}")
        return 1
    print("nothing was lost: every run ended with the parameters of one that nobody interrupted")
    with contextlib.suppress(OSError):
        campaign.base.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
