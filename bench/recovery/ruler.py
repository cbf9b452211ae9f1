"""The neutral ruler: what a training really kept, from lines that its own script wrote.

The scripts of all systems in the race write the same lines, with one `write` each, into a file per
rank: a life begins (after its restore, before its first step), and a step is done. Nothing that a
system says about itself is looked at.

- A **life** is one stretch of a rank's training: from a `begin` line to the next one of that rank.
  It says after which step it goes on. Steps above it that an earlier life of the same rank did are
  lost: they are not part of the model in the end.
- A step's time is its own: from when its batch is there to when its result is, saves not included:
  neither the rank's own nor those of others that it waits for. So where ranks do a step together,
  it is one step for all of them, which takes as long as the slowest needs: it begins when the last
  one has its batch (before that they only wait for it), and ends when the last one has its result.
  The first step of a life counts for no more than the median of the others; the rest of it
  (tracing, compiling, lazy imports) is the price of starting.
- **Goodput** is kept steps × the step of an undisturbed run / elapsed, the mean over the ranks, as
  each of them is paid. That run trains alone, under nobody and without saves, before a system's
  turn and after it; its step is the median of the times from one step's end to the next, and the
  mean of both counts. So what a system moves into the steps is a loss, too. `own_goodput` counts
  each kept step by its own time.
- The time from a kill to the **next new step** ends with the first step, on any rank, of a number
  that the run had not reached before. `again` ends with the first step of any life that began after
  the kill; the steps between the two are done twice. `whole` ends when every rank is past it.
"""

from __future__ import annotations

import json
import os
import statistics
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

NS_PER_S = 1_000_000_000
# Hosts of a lab number their processes alike: a line's pid is one of all hosts, with its host.
HOST_VARIABLE = "RACE_HOST"
PIDS_OF_HOST = 1 << 32


def boot_ns() -> int:
    """The clock of all lines: since boot, the same in every process, never set."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Stamps:
    """Writes one rank's lines. A line is one write to a file opened for appending: never torn."""

    def __init__(self, folder: str | Path, rank: int):
        path = Path(folder) / f"rank-{rank:05d}.jsonl"
        self.rank = rank
        self.pid = os.getpid() + PIDS_OF_HOST * int(os.environ.get(HOST_VARIABLE, "0"))
        self.file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def begin(self, after: int) -> None:
        """This process trains on after that step."""
        self._write(f'"begin": {after}', boot_ns())

    def step(self, step: int, since_ns: int) -> None:
        """That step is done; its batch was there at `since_ns`."""
        self._write(f'"step": {step}, "since": {since_ns}', boot_ns())

    def _write(self, what: str, at_ns: int) -> None:
        who = f'"rank": {self.rank}, "pid": {self.pid}'
        line = f'{{{what}, "boot": {at_ns}, "wall": {time.time_ns()}, {who}}}\n'
        os.write(self.file, line.encode())


@dataclass(frozen=True)
class Step:
    """One step of one rank."""

    number: int
    since_ns: int
    at_ns: int


@dataclass
class Life:
    """One stretch of a rank's training, in one process."""

    rank: int
    pid: int
    after: int
    at_ns: int
    steps: list[Step]


class Follower:
    """Reads the lines as they are written: each call of `read` takes in what is new."""

    def __init__(self, folder: str | Path):
        self.folder = Path(folder)
        self.lives: dict[int, list[Life]] = {}
        self.places: dict[Path, int] = {}

    def read(self) -> Follower:
        for path in sorted(self.folder.glob("rank-*.jsonl")):
            with path.open("rb") as file:
                file.seek(self.places.get(path, 0))
                for line in file:
                    if not line.endswith(b"\n"):
                        break  # it is being written
                    self.places[path] = self.places.get(path, 0) + len(line)
                    self._take(json.loads(line))
        return self

    def _take(self, line: dict[str, int]) -> None:
        lives = self.lives.setdefault(line["rank"], [])
        if "begin" in line:
            lives.append(Life(line["rank"], line["pid"], line["begin"], line["boot"], []))
            return
        # A rank that is being replaced may still be writing beside its successor.
        life = next((one for one in reversed(lives) if one.pid == line["pid"]), None)
        if life is None:
            raise ValueError(f"a step of pid {line['pid']}, which never began: {line}")
        life.steps.append(Step(line["step"], line["since"], line["boot"]))

    def newest(self, rank: int) -> Life | None:
        return self.lives[rank][-1] if self.lives.get(rank) else None

    def highest(self, until_ns: int | None = None) -> int:
        """The highest step that any rank has done, by then."""
        numbers = (
            step.number
            for lives in self.lives.values()
            for life in lives
            for step in life.steps
            if until_ns is None or step.at_ns <= until_ns
        )
        return max(numbers, default=0)


@dataclass(frozen=True)
class Account:
    """What became of a stretch of time."""

    elapsed_s: float
    goodput: float
    own_goodput: float
    kept_steps: int
    lost_steps: int
    step_s: float

    def as_json(self) -> dict[str, float]:
        return {name: round(value, 6) for name, value in vars(self).items()}


def account(
    lives: dict[int, list[Life]], from_ns: int, to_ns: int, undisturbed_ns: int | None = None
) -> Account:
    """Of the time between two instants. The last life's steps count as kept.

    `undisturbed_ns`: a step of the undisturbed run; None: there was none, and goodput is `own`.
    """
    typical_ns = typical_step_ns(lives)
    together = Together(lives)
    kept_ns = kept = lost = 0
    for of_rank in lives.values():
        for index, life in enumerate(of_rank):
            # What a later life did not go on from is lost, also to the lives before the last one.
            until = min((later.after for later in of_rank[index + 1 :]), default=None)
            for place, step in enumerate(life.steps):
                if not from_ns < step.at_ns <= to_ns:
                    continue
                if until is not None and step.number > until:
                    lost += 1
                    continue
                kept += 1
                since_ns, end_ns = together.times_ns(step)
                took_ns = min(end_ns, to_ns) - max(since_ns, from_ns)
                kept_ns += min(took_ns, typical_ns) if place == 0 else took_ns
    ranks = max(len(lives), 1)
    own = kept_ns / ranks / (to_ns - from_ns)
    worth_ns = kept_ns if undisturbed_ns is None else kept * undisturbed_ns
    return Account(
        elapsed_s=(to_ns - from_ns) / NS_PER_S,
        goodput=worth_ns / ranks / (to_ns - from_ns),
        own_goodput=own,
        kept_steps=round(kept / ranks),
        lost_steps=round(lost / ranks),
        step_s=typical_ns / NS_PER_S,
    )


class Together:
    """Which steps of several ranks are one: those of one number that are under way at one time."""

    def __init__(self, lives: dict[int, list[Life]]):
        self.by_number: dict[int, list[Step]] = {}
        for of_rank in lives.values():
            for life in of_rank:
                for step in life.steps:
                    self.by_number.setdefault(step.number, []).append(step)

    def times_ns(self, step: Step) -> tuple[int, int]:
        """When the last of the ranks that do this step together had its batch, and its result."""
        same = [
            other
            for other in self.by_number[step.number]
            if other.since_ns <= step.at_ns and step.since_ns <= other.at_ns
        ]
        return max(one.since_ns for one in same), max(one.at_ns for one in same)


def undisturbed_step_ns(lives: dict[int, list[Life]]) -> int:
    """What a step takes from end to end where nothing disturbs it: the median."""
    times = [
        after.at_ns - step.at_ns
        for of_rank in lives.values()
        for life in of_rank
        for step, after in pairwise(life.steps)
    ]
    return round(statistics.median(times)) if times else 0


def typical_step_ns(lives: dict[int, list[Life]]) -> int:
    """The median of all steps but the first of each life."""
    times = [
        step.at_ns - step.since_ns
        for of_rank in lives.values()
        for life in of_rank
        for step in life.steps[1:]
    ]
    return round(statistics.median(times)) if times else 0


@dataclass(frozen=True)
class Recovery:
    """From a fault to work. None: not seen."""

    lost_steps: int | None
    again_s: float | None
    new_s: float | None
    whole_s: float | None


def recovery(
    lives: dict[int, list[Life]],
    fault_ns: int,
    until_ns: int | None = None,
    struck: int | None = None,
) -> Recovery:
    """What one fault cost. `until_ns`: when the next one struck. `struck`: the rank that was hit.

    A rank that was not hit may still finish the step that it was in; that is reached, but it is no
    recovery. So the steps of lives that the fault ended count as done before it. The life that was
    hit is over, even while no other has begun: on a busy machine it does steps between the moment
    that is noted and the signal.
    """
    end_ns = until_ns if until_ns is not None else 1 << 62
    begun = [x for of in lives.values() for x in of if fault_ns < x.at_ns <= end_ns]
    ended = {life.rank for life in begun} | {struck}
    working = [
        life
        for of_rank in lives.values()
        for life in of_rank
        if life.at_ns <= end_ns and (life.at_ns > fault_ns or life.rank not in ended)
    ]
    before = max(
        (
            step.number
            for of_rank in lives.values()
            for life in of_rank
            for step in life.steps
            if step.at_ns <= fault_ns or (life.at_ns <= fault_ns and life.rank in ended)
        ),
        default=0,
    )
    firsts = [life.steps[0].at_ns for life in begun if life.steps]
    news = [
        first_above([life for life in working if life.rank == rank], before, fault_ns, end_ns)
        for rank in lives
    ]
    seen = [at for at in news if at is not None]
    lost = [_lost(lives[life.rank], life) for life in begun]
    return Recovery(
        lost_steps=max(lost, default=0 if seen else None),
        again_s=_since(fault_ns, min(firsts, default=None)),
        new_s=_since(fault_ns, min(seen, default=None)),
        whole_s=_since(fault_ns, max(seen) if seen and len(seen) == len(lives) else None),
    )


def first_above(of_rank: Sequence[Life], number: int, from_ns: int, to_ns: int) -> int | None:
    """When this rank first did a step above that number."""
    return min(
        (
            step.at_ns
            for life in of_rank
            for step in life.steps
            if step.number > number and from_ns < step.at_ns <= to_ns
        ),
        default=None,
    )


def _lost(of_rank: Iterable[Life], life: Life) -> int:
    """How many steps of its rank's earlier lives this life did not go on from."""
    reached = max(
        (s.number for one in of_rank for s in one.steps if s.at_ns < life.at_ns), default=0
    )
    return max(reached - life.after, 0)


def _since(fault_ns: int, at_ns: int | None) -> float | None:
    return None if at_ns is None else (at_ns - fault_ns) / NS_PER_S
