"""`make notices`: random stories of maintenance, until one breaks what must be true.

    python tests/maintenance/maintenance_campaign.py [--notices N] [--first SEED] [--workers N]
    python tests/maintenance/maintenance_campaign.py --seed SEED

Each story is one host's: services announce, move, start and call off what is to happen to it, fail
meanwhile, and are heard by the real sources; a run and a host daemon act on that, in virtual time,
many hosts at once in one process (`maintenance_host`). A simple oracle says what must be true
(`maintenance_oracle`): no step lost where the deadline allowed a save, nobody signalled twice, no
host released early, no change warned of twice. What breaks that is made short and printed, with its
seed. `maintenance_real` is the same with real processes, in small.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

sys.path.insert(0, str(Path(__file__).parents[1] / "scenarios"))
sys.path.insert(0, str(Path(__file__).parent))
from maintenance_host import Host
from maintenance_oracle import findings
from maintenance_story import Story, lines, story
from virtual_net import VirtualLoop, run_all
from virtual_services import use_virtual_tpu

from holdfast.sim.clock import VirtualClock

sys.path.pop(0)
sys.path.pop(0)

TOGETHER = 25  # hosts in one virtual world
SAY_EVERY_S = 10.0


class Came(NamedTuple):
    """What came of some stories."""

    notices: int
    taken: int
    saved: int
    broken: tuple[tuple[int, str], ...]


def play(stories: Sequence[Story]) -> tuple[list[Host], list[list[str]]]:
    """Play these at once; the hosts, and what is wrong with each."""
    loop = VirtualLoop(VirtualClock())
    undo = use_virtual_tpu() if any("tpu" in one.sources for one in stories) else lambda: None
    try:
        with tempfile.TemporaryDirectory(prefix="holdfast-notices-", dir=_memory()) as name:
            hosts = []
            for number, one in enumerate(stories):
                folder = Path(name) / str(number)
                folder.mkdir()
                hosts.append(Host(one, loop, folder))
            run_all(loop, [host.play() for host in hosts])
    finally:
        undo()
        loop.close()
    wrong = [findings(host) for host in hosts]
    if loop.trouble:
        wrong[0].append(f"in the loop: {loop.trouble[0]}")
    return hosts, wrong


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def wrong_with(one: Story) -> list[str]:
    """What is wrong with one story, played alone."""
    try:
        return play([one])[1][0]
    except Exception as error:  # whatever it is, it is what was looked for
        return [f"{type(error).__name__}: {error}"]


def run_batch(seeds: range, with_tpu: bool = True) -> Came:
    """Play these at once; a batch that breaks off is played one by one."""
    stories = [story(seed, with_tpu=with_tpu) for seed in seeds]
    try:
        hosts, wrong = play(stories)
    except Exception:  # the same
        broken = [(one.seed, found[0]) for one in stories if (found := wrong_with(one))]
        return Came(len(seeds), 0, 0, tuple(broken))
    broken = [(one.seed, found[0]) for one, found in zip(stories, wrong, strict=True) if found]
    taken = [host.taken for host in hosts if host.taken is not None]
    saved = [one for one in taken if one.done - one.saved <= 1]
    heard = sum(len(host.heard) for host in hosts)
    return Came(heard, len(taken), len(saved), tuple(broken))


def shrink(one: Story) -> Story:
    """The same, without whatever it breaks without."""
    changed = True
    while changed:
        changed = False
        for smaller in _smaller(one):
            if smaller.events and wrong_with(smaller):
                one, changed = smaller, True
                break
    return one


def _smaller(one: Story) -> list[Story]:
    without = lambda items: [items[:n] + items[n + 1 :] for n in range(len(items))]  # noqa: E731
    found = [replace(one, events=rest) for rest in without(one.events)]
    found += [replace(one, faults=rest) for rest in without(one.faults)]
    found += [replace(one, jobs=rest) for rest in without(one.jobs)]
    found += [replace(one, agent_ends_s=rest) for rest in without(one.agent_ends_s)]
    for place, event in enumerate(one.events):
        for rest in without(event.told_by):
            if rest:
                events = (
                    *one.events[:place],
                    replace(event, told_by=rest),
                    *one.events[place + 1 :],
                )
                found.append(replace(one, events=events))
    if one.skew_s:
        found.append(replace(one, skew_s=0))
    if one.buffers:
        found.append(replace(one, buffers=0))
    return found


def campaign(first: int, count: int, workers: int) -> list[tuple[int, str]]:
    """Play so many; all that break something."""
    batches = [
        range(n, min(n + TOGETHER, first + count)) for n in range(first, first + count, TOGETHER)
    ]
    began_s = said_s = time.monotonic()
    stories = notices = taken = saved = 0
    broken: list[tuple[int, str]] = []
    with multiprocessing.Pool(workers) as pool:
        for batch, came in zip(batches, pool.imap(run_batch, batches), strict=True):
            stories += len(batch)
            notices, taken, saved = notices + came.notices, taken + came.taken, saved + came.saved
            broken += came.broken
            for seed, words in came.broken:
                print(f"seed {seed}: {words}", flush=True)
            now_s = time.monotonic()
            if stories >= count or now_s - said_s >= SAY_EVERY_S:
                said_s = now_s
                print(
                    f"{stories:,} of {count:,} scripted notices, told {notices:,} times; {taken:,} "
                    f"hosts taken, {saved:,} of them with all saved; {len(broken)} broken; "
                    f"{stories / (now_s - began_s):,.1f} a second",
                    flush=True,
                )
    return broken


def show(one: Story) -> int:
    """Play one, and print the story and what was heard and found."""
    print(*lines(one), sep="\n")
    hosts, wrong = play([one])
    host = hosts[0]
    for notice, at_ns in zip(host.heard, host.heard_ns, strict=True):
        left = None if notice.deadline_ns is None else (notice.deadline_ns - at_ns) / 1e9
        print(f"{(at_ns - host.began_ns) / 1e9:8.2f}  heard: {notice.source} {notice.action} "
              f"{notice.state} left {left} lead {notice.lead_ns} {notice.words}")  # fmt: skip
    for at_ns, level, words in host.said:
        print(f"{(at_ns - host.began_ns) / 1e9:8.2f}  {level}: {words}")
    print(f"{host.taken}; sets {host.watch.times[-4:]}; stop {host.stop_ns}; {host.warned}")
    print(*(wrong[0] or ["nothing is wrong with it"]), sep="\n")
    return bool(wrong[0])


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the campaign; 1 when something was found."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--notices", type=int, default=1000, help="how many stories")
    parser.add_argument("--first", type=int, default=0, help="the first one's seed")
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--seed", type=int, help="play this one alone, and print it")
    asked = parser.parse_args(arguments)
    if asked.seed is not None:
        return show(story(asked.seed))
    broken = campaign(asked.first, asked.notices, asked.workers)
    if broken:
        seed, _ = broken[0]
        print(f"seed {seed}, made short:")
        show(shrink(story(seed)))
        return 1
    print("nothing found")
    return 0


if __name__ == "__main__":
    sys.exit(main())
