"""One system on hosts of the lab while it runs: started, struck by a power cut, waited for.

A host that is powered off comes back a while later, and its command is started again: it is a spare
then. When nobody has done a new step for long enough, all hosts are powered off, and everything is
started anew.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lab as labs
from bout import LOOK_EVERY_S, START_S, WARM_STEPS, FellError
from hosts_systems import HOSTS, HostsSystem, Seat
from ruler import HOST_VARIABLE, NS_PER_S, PIDS_OF_HOST, Follower, Life, Step, boot_ns
from systems import Place, environment

AWAY_S = 20.0
SPARE_LATER_S = 5.0  # so that the spare is the same host in all systems
LIVELY_S = 3.0  # a rank that has done a step within that trains


@dataclass
class Cut:
    """A power cut as it happened, and what it cost."""

    host: int
    rank: int
    due_s: float
    at_ns: int
    back: bool = True
    new_s: float | None = None
    lost_steps: int | None = None

    def look(self, lives: Mapping[int, list[Life]]) -> bool:
        """Whether as many ranks as train have done a new step; what that took and cost.

        The step that was under way does not count: the others may still finish it.
        """
        before = max(
            (
                step.number
                for of_rank in lives.values()
                for life in of_rank
                for step in life.steps
                if step.at_ns <= self.at_ns
            ),
            default=0,
        )
        new = [
            min(step.at_ns for life in of_rank for step in life.steps if self._is_new(step, before))
            for of_rank in lives.values()
            if any(self._is_new(step, before) for life in of_rank for step in life.steps)
        ]
        if len(new) < HOSTS:
            return False
        self.new_s = (min(new) - self.at_ns) / NS_PER_S
        begun = [
            life.after
            for of_rank in lives.values()
            for life in of_rank
            if self.at_ns < life.at_ns <= min(new)
        ]
        self.lost_steps = max(before - min(begun, default=before), 0)
        return True

    def _is_new(self, step: Step, before: int) -> bool:
        return step.at_ns > self.at_ns and step.number > before + 1


@dataclass
class HostsBout:
    """What was started, what its ranks wrote so far, and what struck it."""

    system: HostsSystem
    place: Place
    lab: labs.Lab
    say: Callable[[str], None]
    follower: Follower = field(init=False)
    cuts: list[Cut] = field(default_factory=list)
    commands: list[labs.LabProcess] = field(default_factory=list)
    _back_at: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for folder in (self.place.stamps, self.place.out):
            folder.mkdir(parents=True, exist_ok=True)
        self.follower = Follower(self.place.stamps)

    def start(self) -> None:
        """Start it on all hosts, the spare last, and wait until it trains."""
        from_ns = boot_ns()
        for host in self.lab.hosts:
            if host.index == HOSTS:
                self.pause(SPARE_LATER_S)
            self._start_on(host)
        self.until(lambda: self._has_trained_since(from_ns), START_S, "start")

    def start_anew(self) -> None:
        """From outside, on hosts that were all off."""
        self._back_at.clear()
        for host in self.lab.hosts:
            host.power_off()
        for host in self.lab.hosts:
            host.power_on()
        self.start()

    def _start_on(self, host: labs.Host) -> None:
        addresses = [one.address for one in self.lab.hosts]
        seat = Seat(self.place, host.index, addresses, self.lab.own)
        for command, extra in self.system.start(seat):
            with_host = environment({**extra, HOST_VARIABLE: str(host.index)})
            process = host.start(command, cwd=self.place.folder, env=with_host)
            self.commands.append(process)

    # --- what goes on -----------------------------------------------------------------------

    def training(self) -> dict[int, int]:
        """Which hosts do steps, and as which rank."""
        now_ns, found = boot_ns(), {}
        for rank in self.follower.read().lives:
            life = self.follower.newest(rank)
            if life and life.steps and now_ns - life.steps[-1].at_ns < LIVELY_S * NS_PER_S:
                found[life.pid // PIDS_OF_HOST] = rank
        return found

    def _has_trained_since(self, at_ns: int) -> bool:
        """Whether at least three hosts have got on well."""
        lively = [
            life
            for lives in self.follower.lives.values()
            for life in lives[-1:]
            if life.at_ns > at_ns and len(life.steps) >= WARM_STEPS
        ]
        return len(lively) >= HOSTS

    def tend(self) -> None:
        """Hosts whose time has come are switched on again."""
        for index, at_s in list(self._back_at.items()):
            if time.monotonic() >= at_s:
                del self._back_at[index]
                self.lab.hosts[index].power_on()
                self._start_on(self.lab.hosts[index])

    def pause(self, seconds: float) -> None:
        """Let it train."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.tend()
            time.sleep(LOOK_EVERY_S)

    def until(self, condition: Callable[[], Any], limit_s: float, what: str) -> None:
        give_up_s = time.monotonic() + limit_s
        while not condition():
            if time.monotonic() > give_up_s:
                raise FellError(f"{self.system.name} did not {what} within {limit_s:.0f} s")
            self.tend()
            time.sleep(LOOK_EVERY_S)
            self.follower.read()

    # --- what strikes -----------------------------------------------------------------------

    def cut_power(self, host: int, due_s: float) -> Cut:
        """Of one host that trains. It comes back later."""
        rank = self.training()[host]
        at_ns = boot_ns()
        self.lab.hosts[host].power_off()
        self._back_at[host] = time.monotonic() + AWAY_S
        self.cuts.append(Cut(host, rank, due_s, at_ns))
        return self.cuts[-1]

    def comes_back(self, cut: Cut, limit_s: float) -> bool:
        """Whether a new step is done within that time."""

        cut.back = True
        try:
            self.until(lambda: cut.look(self.follower.lives), limit_s, "come back")
        except FellError:
            cut.back = False
        return cut.back

    def tail(self, lines: int = 12) -> str:
        """The last words of each command that runs or has just ended."""
        told = []
        for one in self.commands[-8:]:
            words = "\n".join(one.lines[-lines:])
            told.append(f"--- host {one.index}, code {one.code()}\n{words}")
        return "\n".join(told)

    def output(self) -> str:
        """All that was printed, by command."""
        return "\n".join(f"--- host {one.index}\n{one.text}" for one in self.commands)


def kept(lives: Mapping[int, list[Life]], from_ns: int, to_ns: int) -> dict[str, float]:
    """The ruler's account of the run as one: the time in which it did steps that stayed.

    How many ranks do a step together may change, and spares do it too: so a step counts once, from
    when the last rank has its batch to when the last has its result. It is lost if a life that
    begins later goes on before it. The first step of a life counts for no more than the median.
    """
    begun = sorted((life.at_ns, life.after) for of in lives.values() for life in of)
    steps: dict[int, tuple[int, int]] = {}
    all_took: list[int] = []
    lost: set[tuple[int, int]] = set()
    for of_rank in lives.values():
        for life in of_rank:
            for step in life.steps:
                later = [after for at_ns, after in begun if at_ns > step.at_ns]
                if not from_ns < step.at_ns <= to_ns:
                    continue
                if later and min(later) < step.number:
                    lost.add((step.number, sum(at_ns <= step.at_ns for at_ns, _ in begun)))
                    continue
                since_ns, at_ns = steps.get(step.number, (step.since_ns, step.at_ns))
                steps[step.number] = (max(since_ns, step.since_ns), max(at_ns, step.at_ns))
    all_took = sorted(at_ns - since_ns for since_ns, at_ns in steps.values())
    typical_ns = all_took[len(all_took) // 2] if all_took else 0
    firsts = {life.steps[0].number for of in lives.values() for life in of if life.steps}
    kept_ns = sum(
        min(at_ns - since_ns, typical_ns) if number in firsts else at_ns - since_ns
        for number, (since_ns, at_ns) in steps.items()
    )
    return {
        "elapsed_s": (to_ns - from_ns) / NS_PER_S,
        "goodput": kept_ns / (to_ns - from_ns),
        "kept_steps": len(steps),
        "lost_steps": len({number for number, _ in lost}),
        "step_s": typical_ns / NS_PER_S,
    }


def clean_environment() -> None:
    """Of this process, which the hosts' processes inherit."""
    for name in [name for name in os.environ if name.startswith("HOLDFAST_")]:
        del os.environ[name]


def end(lab: labs.Lab) -> None:
    """Switch off what is on."""
    for host in lab.hosts:
        with contextlib.suppress(OSError):
            host.power_off()


def folder_of(base: Path, name: str) -> Path:
    folder = base / name
    folder.mkdir(parents=True)
    return folder
