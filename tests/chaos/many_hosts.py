"""Chaos on several hosts: a run is struck in every way that a network and machines know.

    python tests/chaos/many_hosts.py --minutes 60        (make chaos-hosts)

A *night* is one small run of two or three hosts and a spare, each of them namespaces of this
machine (`tests/lab`). A monkey kills ranks, agents and controllers, powers hosts off, freezes them,
cuts them off in one direction or both, delays the network, and takes the store away or fills its
disk. What is gone is started again. At the end every rank must have the very parameters of a run
that nobody touched, the ledger must sum up, each attempt that ended must have ended by a blow, and
no process and no buffer may be left.
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
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE.parent / name) for name in (HERE.name, "", "e2e", "lab")]
import lab as labs  # noqa: E402
from hosts_verdict import judge  # noqa: E402
from proc import attempt_of, with_marker  # noqa: E402

VICTIM = HERE / "victim.py"
STEPS = 60_000
BLOWS_A_NIGHT = 8
LOST_S = 2
CALM_S = (0.0, 3.0)  # between two blows
LASTS_S = (0.2, 6.0)  # what is mended again: shorter and longer than a host is waited for
END_S = 180.0  # from the last blow to the end of the run
LEFT_S = 30.0
DISK_MIB = 64  # what a night leaves in its store is a tenth of that
OPENS_S = 60.0  # an agent has opened its run by then, however busy the machine is
GOOD_CODES = (0, -signal.SIGKILL)
LONG_S = 45.0  # a silent controller is followed after 30, and hosts that are away come back
OF_BLOWS = ("killed", "host_lost", "unknown", "peer_lost")  # causes that blows have


class Blow(NamedTuple):
    """One: what it was, and when. `hit`: the attempt whose rank it has killed."""

    what: str
    at_unix_ns: int
    over_unix_ns: int
    hit: int | None = None


@dataclass(slots=True)
class Night:
    """One run, from its first start to the verdict."""

    number: int
    seed: int
    ranks: int
    save_every: int
    folder: Path
    blows: list[Blow] = field(default_factory=list)
    output: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    causes: Counter[str] = field(default_factory=Counter)
    back_s: list[float] = field(default_factory=list)
    attempts: int = 0

    @property
    def strange(self) -> list[str]:
        """What is worth a look though nothing was lost: an end that no blow has, a long wait."""
        strange = sorted({cause for cause in self.causes if cause not in OF_BLOWS})
        long = [one for one in self.back_s if one > LONG_S]
        return [
            *(f"an attempt ended as {cause}" for cause in strange),
            *(f"the next new step came after {one:.1f} s" for one in long),
        ]


class Run:
    """`holdfast run` on all hosts of a lab, started again on each where it was killed."""

    def __init__(self, night: Night, lab: labs.Lab) -> None:
        self.night, self.lab = night, lab
        self.dice = random.Random(night.seed)
        self.hurry = night.folder / "hurry"
        self.marker = f"HURRY={self.hurry}"
        self.store = night.folder / "disk" / "store"
        self.agents: dict[int, labs.LabProcess] = {}
        self.all: list[labs.LabProcess] = []
        self.is_store_away = False
        for host in lab.hosts:
            self.start(host)

    def start(self, host: labs.Host) -> None:
        night = self.night
        options = ("--name", "night", "--hosts", night.ranks, "--spares", 1)
        options += ("--host-index", host.index, "--host-lost", LOST_S)
        # A host that is struck three times is no host that fails: it is to stay in the run.
        options += ("--save-every", night.save_every, "--quarantine-after", 0)
        run = [sys.executable, "-m", "holdfast.cli.main", "run", *options]
        env = {
            "HURRY": self.hurry,
            "HOLDFAST_STORE": self.store,
            "HOLDFAST_SCRATCH": self.lab.own / f"scratch-{host.index}",
            "HOLDFAST_NOTICE": "off",
        }
        agent = host.start([*run, "--", sys.executable, VICTIM, STEPS], env=env)
        self.agents[host.index] = agent
        self.all.append(agent)

    def tend(self) -> bool:
        """Start again what was killed; whether all have ended by themselves."""
        are_over = True
        for host in self.lab.hosts:
            agent = self.agents.get(host.index)
            code = None if agent is None else agent.code()
            if agent is None or code is None:
                are_over = False
            elif code == 0:
                continue
            else:
                are_over = False
                if code not in GOOD_CODES and not self.is_store_away:
                    self.night.problems.append(f"host {host.index} ended with {code}")
                self.start(host)
        return are_over

    # --- blows ------------------------------------------------------------------------------

    def strike(self) -> None:
        """One blow, and what follows until it is over."""
        what = self.dice.choice(list(BLOWS))
        at_unix_ns = time.time_ns()
        done = BLOWS[what](self)
        hit = next(done, None)
        if hit is not None:
            for _ in done:
                pass
            blow = Blow(what, at_unix_ns, time.time_ns(), hit if hit >= 0 else None)
            self.night.blows.append(blow)

    def _pids(self, *words: str) -> list[int]:
        """Processes of the night whose command line holds one of these."""
        found = []
        for pid in with_marker(self.marker):
            with contextlib.suppress(OSError):
                line = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
                if any(word in line for word in words):
                    found.append(pid)
        return found

    def _kill(self, pids: list[int]) -> bool:
        if not pids:
            return False
        try:
            os.kill(self.dice.choice(pids), signal.SIGKILL)
        except ProcessLookupError:
            return False
        return True

    def kill_rank(self) -> Iterator[int]:
        ranks: dict[int, list[int]] = {}
        for pid in self._pids(str(VICTIM)):
            number = attempt_of(pid)  # of an agent: none
            if number is not None and _comm(pid) != "hf-standby":
                ranks.setdefault(number, []).append(pid)
        records = self.store / "night" / "attempts"
        known = [n for n in ranks if (records / f"{n:04d}" / "attempt.json").exists()]
        if known and self._kill(ranks[max(known)]):
            yield max(known)

    def kill_controller(self) -> Iterator[int]:
        if self._kill(self._pids("--as-controller")):
            yield -1

    def kill_agent(self) -> Iterator[int]:
        agent = self.agents[self.dice.choice(self.lab.hosts).index]
        if agent.code() is None:
            agent.send(signal.SIGKILL)
            yield -1

    def power_off(self) -> Iterator[int]:
        host = self.dice.choice(self.lab.hosts)
        host.power_off()
        del self.agents[host.index]
        yield -1
        self._wait()
        host.power_on()
        self.start(host)

    def freeze(self) -> Iterator[int]:
        host = self.dice.choice(self.lab.hosts)
        host.freeze()
        yield -1
        self._wait()
        host.thaw()

    def cut(self) -> Iterator[int]:
        index = self.dice.choice(self.lab.hosts).index
        self.dice.choice((self.lab.cut, self.lab.cut_one_way))(index)
        yield -1
        self._wait()
        self.lab.mend(index)

    def delay(self) -> Iterator[int]:
        self.lab.delay(self.dice.uniform(5, 200))
        yield -1
        self._wait()
        self.lab.delay(0)

    def fill_disk(self) -> Iterator[int]:
        """That of the store, so that nothing more can be written there."""
        self._wait_until_opened()
        self.is_store_away = True
        ballast = self.store.with_name("ballast")
        with ballast.open("wb", buffering=0) as file:
            for size in (1 << 20, 1 << 12):
                with contextlib.suppress(OSError):
                    while True:
                        file.write(bytes(size))
        yield -1
        self._wait()
        ballast.unlink()
        self.tend()
        self.is_store_away = False

    def _wait_until_opened(self) -> None:
        """An agent that begins without a store makes one, and another run in it."""
        give_up_s = time.monotonic() + OPENS_S
        while not all(map(_has_opened, self.agents.values())) and time.monotonic() < give_up_s:
            time.sleep(0.1)

    def take_store(self) -> Iterator[int]:
        away = self.store.with_name("store-away")
        self._wait_until_opened()
        self.is_store_away = True
        self.store.rename(away)
        yield -1
        self._wait()
        if self.store.exists():
            made = [str(path.relative_to(self.store)) for path in self.store.rglob("*")]
            self.night.problems.append(f"while the store was away somebody made {made}")
            self.store.rename(self.store.with_name(f"made-{len(self.night.blows)}"))
        away.rename(self.store)
        self.tend()
        self.is_store_away = False

    def _wait(self) -> None:
        time.sleep(self.dice.uniform(*LASTS_S))


def _has_opened(agent: labs.LabProcess) -> bool:
    return agent.code() is not None or "This is host" in agent.text


BLOWS: dict[str, Callable[[Run], Iterator[int]]] = {
    "rank killed": Run.kill_rank,
    "controller killed": Run.kill_controller,
    "agent killed": Run.kill_agent,
    "host powered off": Run.power_off,
    "host frozen": Run.freeze,
    "host cut off": Run.cut,
    "network slow": Run.delay,
    "store away": Run.take_store,
}
if os.geteuid() == 0:  # a disk that can be filled is mounted
    BLOWS["disk full"] = Run.fill_disk


@contextlib.contextmanager
def disk(folder: Path) -> Iterator[None]:
    """A small one of its own, that can be filled; the hosts see it that are made within."""
    folder.mkdir()
    if "disk full" not in BLOWS:
        yield
        return
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={DISK_MIB}m", "disk", folder], check=True)
    try:
        yield
    finally:
        kept = folder.with_name("kept")
        shutil.copytree(folder, kept, symlinks=True)
        subprocess.run(["umount", "--lazy", folder], check=True)
        folder.rmdir()
        kept.rename(folder)


def _comm(pid: int) -> str:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/comm").read_text().strip()
    return ""


def _line(pid: int) -> bytes:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    return b""


def spend(night: Night) -> Night:
    """Live through one night and judge it."""
    with disk(night.folder / "disk"), labs.Lab(night.ranks + 1, night.folder) as lab:
        run = Run(night, lab)
        end_s = time.monotonic() + END_S
        while not list(run.store.glob("night/attempts/*/attempt.json")):
            time.sleep(0.05)
            if time.monotonic() > end_s:
                night.problems.append("the run does not begin")
                break
        while len(night.blows) < BLOWS_A_NIGHT and not night.problems:
            time.sleep(run.dice.uniform(*CALM_S))
            if run.tend():
                break
            run.strike()
        run.hurry.touch()
        end_s = time.monotonic() + END_S
        while not run.tend():
            time.sleep(0.05)
            if time.monotonic() > end_s:
                night.problems.append("the run does not come to its end")
                break
        end_s = time.monotonic() + LEFT_S
        while (left := with_marker(run.marker)) and time.monotonic() < end_s:
            time.sleep(0.05)
        if left:
            lines = [_line(pid).replace(b"\0", b" ")[-80:] for pid in left]
            night.problems.append(f"processes were left behind: {lines}")
        for host in filter(lambda one: one.is_on, lab.hosts):
            buffers = [str(one) for one in host.root.glob("dev/shm/**/*") if one.is_file()]
            if buffers:
                night.problems.append(f"in memory of host {host.index} is left: {buffers[:4]}")
    for agent in run.all:
        night.output += [f"host {agent.index}: {line}" for line in agent.lines]
    try:
        judge(night, run.store, STEPS)
    except Exception as error:  # the judge's own trouble is a finding as well
        night.problems.append(f"the run cannot be judged: {error!r}")
    return night


class Campaign:
    """Nights side by side, until the time is up."""

    def __init__(self, seconds: float, seed: int, base: Path) -> None:
        self.base = base
        self.nights: list[Night] = []
        self._end_s = time.monotonic() + seconds
        self._dice = random.Random(seed)
        self._lock = threading.Lock()
        self._begun = 0

    def _next(self) -> Night | None:
        with self._lock:
            if time.monotonic() > self._end_s:
                return None
            number, self._begun = self._begun, self._begun + 1
            dice = self._dice
            folder = self.base / f"night-{number:05d}"
            folder.mkdir()
            seed, ranks = dice.getrandbits(48), dice.choice((2, 2, 3))
            return Night(number, seed, ranks, dice.choice((50, 400, 2000)), folder)

    def work(self) -> None:
        """One worker: night after night."""
        while night := self._next():
            spend(night)
            with self._lock:
                self.nights.append(night)
                self._say(night)
            if night.problems or night.strange:
                (night.folder / "output").write_text("\n".join(night.output))
            else:
                shutil.rmtree(night.folder, ignore_errors=True)

    def _say(self, night: Night) -> None:
        what = ", ".join(blow.what for blow in night.blows)
        print(f"night {night.number} ({night.ranks} hosts and a spare): {what}", flush=True)
        for words in (*night.problems, *night.strange):
            print(f"  seed {night.seed}: {words}\n  kept: {night.folder}", flush=True)


def main() -> int:
    """Run a campaign; 0 if nothing was lost."""
    parser = argparse.ArgumentParser(description="strike runs of several hosts at random")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--workers", type=int, default=max(1, len(os.sched_getaffinity(0)) // 2))
    parser.add_argument("--seed", type=int, default=int(time.time()))
    options = parser.parse_args()
    if not labs.has_namespaces():
        print("no lab here: it needs root, unshare (namespaces) and /dev/net/tun (TAP)")
        return 0
    base = Path(tempfile.mkdtemp(prefix="holdfast-chaos-hosts-"))
    print(f"chaos on hosts: {options.minutes:g} min, seed {options.seed}, {base}", flush=True)
    campaign = Campaign(options.minutes * 60, options.seed, base)
    with ThreadPoolExecutor(options.workers) as pool:
        for done in [pool.submit(campaign.work) for _ in range(options.workers)]:
            done.result()
    return report(campaign)


def report(campaign: Campaign) -> int:
    """Print what happened; the exit code."""
    nights = campaign.nights
    blows = Counter(blow.what for night in nights for blow in night.blows)
    causes = sum((night.causes for night in nights), Counter[str]())
    bad = [night.number for night in nights if night.problems]
    back_s = [one for night in nights for one in night.back_s]
    print(f"{blows.total()} blows: {', '.join(f'{n} × {what}' for what, n in blows.most_common())}")
    print(f"{len(nights)} runs, {sum(night.attempts for night in nights)} attempts; ended by "
          + ", ".join(f"{cause} {n}" for cause, n in causes.most_common()))  # fmt: skip
    if back_s:
        middle, worst = statistics.median(back_s), max(back_s)
        print(f"from an end to the next new step: median {middle:.2f} s, longest {worst:.2f} s")
    if bad:
        print(f"{len(bad)} runs with problems: {bad}")
        return 1
    print("nothing was lost: every run ended with the parameters of one that nobody touched")
    with contextlib.suppress(OSError):
        campaign.base.rmdir()
    return 0


if __name__ == "__main__":
    sys.exit(main())
