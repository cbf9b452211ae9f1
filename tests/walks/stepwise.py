"""Every order in which programs can take their steps in a run store, with the real code.

    found = walk(world, bound=2)

Each program of a world runs in a thread of its own, and one of them at a time. Before each step in
the store (a name that is created, replaced, removed, listed or looked for) any other program may go
on instead: that is how a controller is stopped anywhere for a minute, and wakes up later. The walk
tries each choice, by running the world again from its start; a state that was met before is not
walked again. A state is what the store holds, what the world says of itself, and what each program
has met so far, since that is all that a program can know. Where no other program ever changes what
a program looks at, nor looks at what it changes, it need not be left: who touches what is learned,
and the walk begins anew when it has learned more.

`bound`: so often a program may be left in the middle for another one; None: without a bound.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

sys.path.insert(0, str(Path(__file__).parent))  # --import-mode=importlib leaves it out
from store_hooks import LOOKS, STEPS, Hooks, at_once, now, step, tree_of

sys.path.pop(0)

__all__ = ["Abandoned", "Broken", "Program", "Walked", "World", "at_once", "step", "walk"]

Program = Callable[[], None]
LIMIT_S = 60.0
LEARNS, STAYS = 30, 0.8  # runs at random, to learn who touches what


class Broken(AssertionError):
    """Something must never be, and was."""


class Abandoned(BaseException):
    """This order of steps is not walked any further."""


class World(Protocol):
    """What is walked: made anew for each order of steps."""

    @property
    def root(self) -> Path:
        """The folder in which its programs meet."""

    @property
    def programs(self) -> Sequence[Program]:
        """Each runs to its end; they may raise Broken."""

    def state(self) -> Hashable:
        """What the programs share beside the store."""

    def check(self) -> None:
        """After every step: raises Broken."""

    def at_end(self) -> None:
        """All programs have ended: raises Broken."""

    def close(self) -> None:
        """It is of no use any more."""


class Walked(NamedTuple):
    """How large a walk was. `runs`: from the start; `longest`: steps in one of them."""

    states: int
    runs: int
    longest: int


class Touched:
    """Which programs have looked at what in the store, and which have changed it."""

    def __init__(self) -> None:
        self._looked: dict[str, set[int]] = {}
        self._changed: dict[str, set[int]] = {}
        self.is_news = False

    def by(self, program: int, name: str, *, changes: bool) -> bool:
        """It does that; whether what another program does matters to it, or the other way round."""
        names = _and_above(name) if changes else [name]  # who lists a folder sees names in it
        mine, others = self._looked, [self._changed]
        if changes:
            mine, others = self._changed, [self._looked, self._changed]
        matters = any(of.get(one, set()) - {program} for of in others for one in names)
        for one in names:
            who = mine.setdefault(one, set())
            if program not in who:
                who.add(program)
                self.is_news = self.is_news or matters
        return matters


def _and_above(name: str) -> list[str]:
    parts = name.split("/")
    return ["/".join(parts[:end]) for end in range(len(parts), 0, -1)]


@dataclass(slots=True)
class _Fork:
    """A place where there was more than one way to go on. `left`: those not walked yet."""

    chosen: int
    left: list[int]


@dataclass(slots=True)
class _Runner:
    """One program's thread. `met`: a digest of all that it has met."""

    thread: threading.Thread | None = None
    turn: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    met: int = 0
    is_over: bool = False


class Steps:
    """One run of a world, by the choices in `path` and then straight on."""

    def __init__(
        self,
        world: World,
        path: Sequence[int] | Random,
        known: dict[Hashable, int],
        bound: int | None,
        touched: Touched,
    ) -> None:
        """`path`: the first choices; a generator of random numbers: all of them."""
        self.world = world
        self._touched = touched
        self.path = path
        self.forks: list[_Fork] = []
        self.story: list[str] = []
        self.broken: BaseException | None = None
        self.tree = tree_of(world.root)  # what counts of the store, each file by a digest
        self.is_quiet = False  # no step is one that others may come before
        self._known = known
        self._bound = bound
        self._switches = 0
        self._root = f"{world.root}{os.sep}"
        self._runners = [_Runner() for _ in world.programs]
        self._mine: dict[int, int] = {}  # which program a thread is
        self._running = 0
        self._is_abandoned = False
        self._is_over = threading.Event()

    def run(self) -> None:
        """Until all programs have ended, or nothing new would come."""
        for number, program in enumerate(self.world.programs):
            runner = self._runners[number]
            runner.thread = threading.Thread(target=self._begin, args=(number, program))
            runner.thread.start()
        self._pass_on(self._choose(None))
        if not self._is_over.wait(LIMIT_S):
            raise RuntimeError(f"the walk hangs after {self.story[-20:]}")
        for runner in self._runners:
            assert runner.thread is not None
            runner.thread.join()

    def _begin(self, number: int, program: Program) -> None:
        runner = self._runners[number]
        self._mine[threading.get_ident()] = number
        runner.turn.acquire()
        try:
            if not self._is_abandoned:
                program()
        except Abandoned:
            pass
        except BaseException as error:
            self._stop(error)
        runner.is_over = True
        if self._is_abandoned:
            self._end_next()
            return
        try:
            self._check()
            if all(one.is_over for one in self._runners):
                self._is_abandoned = True  # what looks now is no program
                self.world.at_end()
                self._is_over.set()
                return
            self._pass_on(self._choose(None))
        except Abandoned:
            self._end_next()
        except BaseException as error:
            self._stop(error)
            self._end_next()

    def _stop(self, error: BaseException) -> None:
        self.broken = self.broken or error
        self._is_abandoned = True

    def _end_next(self) -> None:
        """Have each program that is left unwind, one after the other."""
        for runner in self._runners:
            if not runner.is_over:
                runner.turn.release()
                return
        self._is_over.set()

    def _pass_on(self, number: int) -> None:
        self._running = number
        self._runners[number].turn.release()

    # --- a step -----------------------------------------------------------------------------

    @property
    def is_watched(self) -> bool:
        """Whether who asks is one of the programs, and the walk goes on."""
        return not self._is_abandoned and threading.get_ident() in self._mine

    def step(self, what: str, name: str | None = None) -> None:
        """The program that calls is about to do that; another one may go on first.

        `name`: to what in the store; None: to what the programs share beside it.
        """
        if not self.is_watched:
            return
        number = self._mine[threading.get_ident()]
        if name is not None:
            changes = what not in LOOKS
            what = f"{what} {name}"
            if not self._touched.by(number, name, changes=changes):
                return
        if self.is_quiet:
            return
        runner = self._runners[number]
        runner.met = hash((runner.met, what))
        self._check()
        chosen = self._choose(number)
        if chosen != number:
            self._pass_on(chosen)
            runner.turn.acquire()
            if self._is_abandoned:
                raise Abandoned
        self.story.append(f"{number}: {what}")

    def meets(self, result: Hashable) -> None:
        """That is what its step came to."""
        if self.is_watched:
            runner = self._runners[self._mine[threading.get_ident()]]
            runner.met = hash((runner.met, result))

    def _check(self) -> None:
        try:
            self.world.check()
        except Broken as error:
            self._stop(error)
            raise Abandoned from None

    def _choose(self, number: int | None) -> int:
        """Who goes on. `number`: who would without a choice; None: it has ended."""
        ready = [one for one, runner in enumerate(self._runners) if not runner.is_over]
        depth = len(self.forks)
        if isinstance(self.path, Random):
            stays = number is not None and self.path.random() < STAYS
            chosen, left = number if stays and number is not None else self.path.choice(ready), []
        elif depth < len(self.path):
            chosen, left = self.path[depth], []
        else:
            order = ready if number is None else [number, *(n for n in ready if n != number)]
            if number is not None and self._bound is not None and self._switches >= self._bound:
                order = [number]
            self._look_whether_known(number)
            chosen, left = order[0], order[1:]
        self.forks.append(_Fork(chosen, left))
        if number is not None and chosen != number:
            self._switches += 1
        return chosen

    def _look_whether_known(self, number: int | None) -> None:
        met = tuple((runner.met, runner.is_over) for runner in self._runners)
        key = (tuple(sorted(self.tree.items())), met, self.world.state())
        left = 0
        if self._bound is not None:  # who may be left in the middle depends on who runs
            key, left = (*key, number), self._bound - self._switches
        if self._known.get(key, -1) >= left:
            self._is_abandoned = True
            raise Abandoned
        self._known[key] = left

    # --- what the store is asked ------------------------------------------------------------

    def inside(self, path: Any) -> str | None:
        """The path inside the run, if it is one that counts."""
        try:
            text = os.fspath(path)
        except TypeError:
            return None  # a descriptor
        if not isinstance(text, str) or not text.startswith(self._root):
            return None
        name = text[len(self._root) :]
        return name if STEPS.fullmatch(name) else None


def walk(
    make: Callable[[], World], bound: int | None = None, most_runs: int | None = None
) -> Walked:
    """Every order of steps of worlds that `make` makes; raises Broken with the story."""
    touched = Touched()
    with Hooks().installed():
        for seed in range(LEARNS):
            _run_once(make(), Random(seed), {}, None, touched)
        touched.is_news = False
        while (found := _walk_once(make, bound, most_runs, touched)) is None:
            touched.is_news = False
    return found


def _walk_once(
    make: Callable[[], World], bound: int | None, most_runs: int | None, touched: Touched
) -> Walked | None:
    """None: it has learned of more steps between which programs must be left."""
    known: dict[Hashable, int] = {}
    trail: list[_Fork] = []  # of the run before, up to the choice that is made differently
    runs = longest = 0
    while True:
        path = [fork.chosen for fork in trail]
        steps = _run_once(make(), path, known, bound, touched)
        if touched.is_news:
            return None
        runs, longest = runs + 1, max(longest, len(steps.story))
        trail += steps.forks[len(trail) :]
        while trail and not trail[-1].left:
            trail.pop()
        if not trail or runs == most_runs:
            return Walked(len(known), runs, longest)
        trail[-1].chosen = trail[-1].left.pop(0)


def _run_once(
    world: World,
    path: Sequence[int] | Random,
    known: dict[Hashable, int],
    bound: int | None,
    touched: Touched,
) -> Steps:
    steps = Steps(world, path, known, bound, touched)
    now.append(steps)
    try:
        steps.run()
    finally:
        now.clear()
        world.close()
    if steps.broken is not None:
        kind = Broken if isinstance(steps.broken, Broken) else RuntimeError
        told = "\n".join(steps.story)
        raise kind(f"{steps.broken!r}\n{told}") from steps.broken
    return steps
