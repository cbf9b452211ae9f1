"""`make schedules`: random fault schedules against the core, until one breaks what must be true.

    python tests/schedules/schedule_campaign.py [--schedules N] [--first SEED] [--workers N]
    python tests/schedules/schedule_campaign.py --seed SEED

A schedule is a scenario script that follows from its seed alone (`generate`), and it is played in
virtual time by the real machines, watched at every event (`tests/scenarios/watch.py`). The first
that breaks something ends the campaign: it is made short (`shrink`) and written, with the trace of
what happened, to tests/scenarios/found_SEED.txt, which `make test` replays and fails on until what
is wrong is mended. `--seed` plays one again and prints its trace.
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parent))
from generate import schedule
from play import SCENARIOS, Script, play, played
from shrink import shrink

sys.path.pop(0)

BATCH = 200
BATCHES = 5  # of a worker: then another takes its place
WRITTEN = 8  # of so many schedules one is replayed from plain data, and its messages are text
SAY_EVERY_S = 10.0


class Batch(NamedTuple):
    """What came of some schedules in a row."""

    count: int
    events: int
    attempts: int
    broken: int | None  # the first seed that broke something


def run_batch(seeds: range) -> Batch:
    """Play them, up to the first that breaks something."""
    events = attempts = 0
    for done, seed in enumerate(seeds, start=1):
        script = played(schedule(seed), as_written=seed % WRITTEN == 0)
        events += sum(len(world.inputs) for world in script.worlds)
        attempts += len(script.worlds[-1].store.attempts)
        if script.broken:
            return Batch(done, events, attempts, seed)
    return Batch(len(seeds), events, attempts, None)


def _settle_down() -> None:
    """A worker looks for no garbage, which took a quarter of the time: it ends with all of it.

    200 schedules leave some 35 MB.
    """
    gc.disable()


def campaign(first: int, count: int, workers: int) -> int | None:
    """Play so many on all workers; the first seed found that breaks something."""
    batches = [range(n, min(n + BATCH, first + count)) for n in range(first, first + count, BATCH)]
    began_s = said_s = time.monotonic()
    done = events = attempts = 0
    with multiprocessing.Pool(workers, _settle_down, maxtasksperchild=BATCHES) as pool:
        for batch in pool.imap_unordered(run_batch, batches):
            done, events = done + batch.count, events + batch.events
            attempts += batch.attempts
            now_s = time.monotonic()
            if batch.broken is not None or done >= count or now_s - said_s >= SAY_EVERY_S:
                said_s = now_s
                rate = done / max(1e-9, now_s - began_s)
                print(
                    f"{done:,} of {count:,} schedules, {attempts:,} attempts, {events:,} events; "
                    f"{rate:,.0f} schedules a second",
                    flush=True,
                )
            if batch.broken is not None:
                return batch.broken
    return None


def script_of(seed: int) -> tuple[str, str]:
    """The shortest schedule that breaks what this seed breaks: what is wrong, and the script."""
    lines = shrink(schedule(seed), play)
    script = Script()
    trace = script.run(list(lines))
    script.lines = []
    script.close()
    trace += "".join(f"{line}\n" for line in script.lines)
    words = script.broken or play(lines)
    if not script.broken:  # that it never ends is no line of the trace
        trace += f"!!! {words}\n"
    head = f"# Found by schedule {seed}: {words}\n"
    return words, head + "".join(f"{line}\n" for line in lines) + "----\n" + trace


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 when something was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--schedules", type=int, default=10_000, help="how many")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="play this one alone, and print its trace")
    parser.add_argument("--into", type=Path, default=SCENARIOS, help="where a script is written")
    asked = parser.parse_args(arguments)
    if asked.schedules < 1 or asked.workers < 1:
        parser.error("--schedules and --workers count from 1")
    if asked.seed is not None:
        script = Script()
        lines = list(schedule(asked.seed))
        print(*lines, "----", script.run(lines), sep="\n")
        words = play(lines)
        print(words or "nothing is wrong with it")
        return bool(words)
    seed = campaign(asked.first, asked.schedules, asked.workers)
    if seed is None:
        print("nothing found")
        return 0
    print(f"schedule {seed} breaks something; making it short")
    words, text = script_of(seed)
    path = asked.into / f"found_{seed}.txt"
    path.write_text(text)
    print(text, f"{words}\nwritten to {path}", sep="\n")
    return 1


if __name__ == "__main__":
    sys.exit(main())
