"""What supervision costs while nothing strikes: longer steps, and whose processors' time they are.

    python bench/recovery/beside.py [--system holdfast] [--rounds 3] [--seconds 40]

In turn, so that a machine that gets slower meanwhile is no finding: the training alone, under
nobody and without saves, and under the system, whose saves are at their defaults. A step is the
mean of the time, saves and all. Time on a processor is the kernel's (`schedstat`), by process, in
milliseconds of one core for each step of the run; threads of ranks are told apart by their names.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import tempfile
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import family
from bout import Bout
from entrants import NAMES, UNDISTURBED
from race import corpus
from ruler import NS_PER_S, Follower, boot_ns
from systems import Place, System

Use = dict[tuple[int, int], tuple[str, int]]  # (process, thread) -> whose, nanoseconds


def main() -> None:
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("--system", default="holdfast", choices=NAMES)
    p.add_argument("--rounds", type=int, default=3)
    p.add_argument("--seconds", type=float, default=40.0)
    p.add_argument("--ranks", type=int, default=2)
    p.add_argument("--holdfast", default="", help="more flags for `holdfast run`")
    args = p.parse_args()
    family.adopt_orphans()
    system = NAMES[args.system]
    work = Path(tempfile.mkdtemp(prefix="holdfast-beside-"))
    data = work / "corpus.bin"
    data.write_bytes(corpus())
    options = {"holdfast": args.holdfast}
    steps: dict[str, list[float]] = defaultdict(list)
    try:
        for number in range(args.rounds):
            for one in (UNDISTURBED[system.framework], system):
                place = Place(work / f"{one.name}-{number}", data, args.ranks, options)
                step_ns, use = measured(one, place, args.seconds)
                steps[one.name].append(step_ns / 1e6)
                print(f"{one.name}: {step_ns / 1e6:.2f} ms a step, load {os.getloadavg()[0]:.1f}")
                for whose, ms in sorted(use.items(), key=lambda item: -item[1]):
                    print(f"    {ms:8.2f} ms  {whose}", flush=True)
    finally:
        family.end_all()
        shutil.rmtree(work, ignore_errors=True)
    alone, under = (statistics.median(steps[name]) for name in steps)
    print(f"{alone:.2f} -> {under:.2f} ms: {100 * (under / alone - 1):+.1f} %")


def measured(system: System, place: Place, seconds: float) -> tuple[int, dict[str, float]]:
    """The mean step in nanoseconds, and milliseconds of a core for each step, by process."""
    place.folder.mkdir(parents=True)
    place.memory.mkdir(exist_ok=True)
    bout = Bout(system, place, print)
    try:
        bout.start()
        bout.wait(boot_ns() + 10 * NS_PER_S)  # standbys, first sets
        before, from_ns = processors(), boot_ns()
        bout.wait(from_ns + int(seconds * NS_PER_S))
        after, to_ns = processors(), boot_ns()
        count = steps_within(bout.follower, from_ns, to_ns)
        return round((to_ns - from_ns) / count), by_process(before, after, count)
    finally:
        family.end_all()
        shutil.rmtree(place.folder, ignore_errors=True)
        shutil.rmtree(place.memory, ignore_errors=True)


def steps_within(follower: Follower, from_ns: int, to_ns: int) -> float:
    """How many steps a rank did in that time: the mean over the ranks."""
    return statistics.mean(
        sum(from_ns < step.at_ns <= to_ns for life in lives for step in life.steps)
        for lives in follower.lives.values()
    )


def by_process(before: Use, after: Use, steps: float) -> dict[str, float]:
    """What each has used between the two looks, in milliseconds for each step."""
    found: dict[str, float] = defaultdict(float)
    for key, (whose, ns) in after.items():
        found[whose] += (ns - before.get(key, ("", 0))[1]) / 1e6 / steps
    return {whose: ms for whose, ms in found.items() if ms >= 0.01}


def processors() -> Use:
    """The time on a processor of every thread below us."""
    found: Use = {}
    for pid in family.descendants():
        with contextlib.suppress(OSError):
            words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
            process = process_name(Path(f"/proc/{pid}/comm").read_text().strip(), words)
            for task in Path(f"/proc/{pid}/task").iterdir():
                with contextlib.suppress(OSError):
                    name = (task / "comm").read_text().strip()
                    ns = int((task / "schedstat").read_text().split()[0])
                    is_main = int(task.name) == pid
                    found[pid, int(task.name)] = process + ("" if is_main else f" / {name}"), ns
    return found


def process_name(name: str, words: list[bytes]) -> str:
    """Which process that is, in a word or two."""
    scripts = [Path(word.decode()).name for word in words if word.endswith(b".py")]
    modules = [after.decode() for word, after in pairwise(words) if word == b"-m"]
    return f"{name} {' '.join(modules or scripts)}"


if __name__ == "__main__":
    main()
