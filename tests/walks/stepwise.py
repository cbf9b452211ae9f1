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

import contextlib
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, NamedTuple, Protocol

Program = Callable[[], None]
FROZEN_NS = 1_700_000_000_000_000_000
LIMIT_S = 60.0
LEARNS, STAYS = 30, 0.8  # runs at random, to learn who touches what

# What is a step in the store, by the path inside the run. The rest is nobody else's, or never read.
STEPS = re.compile(
    r"lease|lease/\d+\.(?:json|released)|attempts|attempts/\d+/(?:attempt|end)\.json"
    r"|control|control/[^/.]+\.json|ckpt|ckpt/[\d-]+|ckpt/[\d-]+/(?:manifest\.json|doomed-\d+|rank-\d+\.json)"
)
# These never change once they are there, and stay for ever: to see one again is no news.
LOOKS = ("looks for", "lists", "reads")
FOR_EVER = re.compile(r"lease/\d+\.json|attempts/\d+/attempt\.json")


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
        self.tree = _tree_of(world.root)  # what counts of the store, each file by a digest
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


def _tree_of(root: Path) -> dict[str, int]:
    found = {}
    for folder, _, names in os.walk(root):
        for name in names:
            path = Path(folder, name)
            inside = os.fspath(path.relative_to(root))
            if STEPS.fullmatch(inside):
                found[inside] = hash(path.read_bytes())
    return found


_now: list[Steps] = []  # that is walked


def step(what: str) -> None:
    """For a world: its program is about to do that, beside the store."""
    if _now:
        _now[0].step(what)


@contextlib.contextmanager
def at_once() -> Iterator[None]:
    """For a world: what its program does in the store is one step with what was before."""
    steps = _now[0] if _now else None
    before = steps is not None and steps.is_quiet
    if steps is not None:
        steps.is_quiet = True
    try:
        yield
    finally:
        if steps is not None:
            steps.is_quiet = before


class _Hooks:
    """The functions of `os` by which the store is reached; a step before each that counts."""

    def __init__(self) -> None:
        self.real = {
            name: getattr(os, name)
            for name in ("stat", "lstat", "listdir", "open", "link", "replace", "rename", "unlink")
        }
        self.rmtree = shutil.rmtree

    @contextlib.contextmanager
    def installed(self) -> Iterator[None]:
        """Until then every thread of this process goes through them."""
        hooks = {
            "stat": self._looks("stat"),
            "lstat": self._looks("lstat"),
            "listdir": self._listdir,
            "open": self._open,
            "link": self._link,
            "replace": self._moves("replace"),
            "rename": self._moves("rename"),
            "unlink": self._unlink,
        }
        time_ns, fsync = time.time_ns, os.fsync
        try:
            for name, hook in hooks.items():
                setattr(os, name, hook)
            shutil.rmtree = self._rmtree  # type: ignore[assignment]
            time.time_ns = lambda: FROZEN_NS
            os.fsync = lambda _: None  # type: ignore[assignment] # no power is cut here
            yield
        finally:
            for name, real in self.real.items():
                setattr(os, name, real)
            shutil.rmtree = self.rmtree
            time.time_ns, os.fsync = time_ns, fsync

    def _counts(self, path: Any) -> tuple[Steps, str] | None:
        if not _now or not _now[0].is_watched:
            return None
        name = _now[0].inside(path)
        return None if name is None else (_now[0], name)

    def _digest(self, path: Any) -> int:
        descriptor = self.real["open"](path, os.O_RDONLY)
        try:
            return hash(os.read(descriptor, 1 << 20))
        finally:
            os.close(descriptor)

    def _exists(self, path: Any) -> bool:
        try:
            self.real["lstat"](path)
        except OSError:
            return False
        return True

    def _looks(self, name: str) -> Callable[..., Any]:
        real = self.real[name]

        def look(path: Any, *args: Any, **options: Any) -> Any:
            found = None if options.get("dir_fd") is not None else self._counts(path)
            if found is None or "." not in found[1]:  # that a folder is there is no news
                return real(path, *args, **options)
            steps, inside = found
            if not (FOR_EVER.fullmatch(inside) and self._exists(path)):
                steps.step("looks for", inside)
                steps.meets(steps.tree.get(inside))
            return real(path, *args, **options)

        return look

    def _listdir(self, path: Any = ".") -> Any:
        found = self._counts(path)
        if found is None:
            return self.real["listdir"](path)
        steps, inside = found
        steps.step("lists", inside)
        names = sorted(self.real["listdir"](path))
        steps.meets(tuple(names))
        return names

    def _open(self, path: Any, flags: int, *args: Any, **options: Any) -> Any:
        found = None if options.get("dir_fd") is not None else self._counts(path)
        if found is None:
            return self.real["open"](path, flags, *args, **options)
        steps, inside = found
        if flags & os.O_CREAT:
            steps.step("creates", inside)
            steps.tree.setdefault(inside, 0)
        elif not flags & os.O_DIRECTORY and not (FOR_EVER.fullmatch(inside) and self._exists(path)):
            steps.step("reads", inside)
            steps.meets(steps.tree.get(inside))
        return self.real["open"](path, flags, *args, **options)

    def _link(self, source: Any, path: Any, **options: Any) -> None:
        found = self._counts(path)
        if found is None:
            self.real["link"](source, path, **options)
            return
        steps, inside = found
        steps.step("creates", inside)
        steps.meets(self._exists(path))
        self.real["link"](source, path, **options)
        steps.tree[inside] = self._digest(path)

    def _moves(self, name: str) -> Callable[..., None]:
        real = self.real[name]

        def move(source: Any, path: Any, **options: Any) -> None:
            found = self._counts(path)
            if found is not None:
                found[0].step("writes", found[1])
            real(source, path, **options)
            if found is not None:
                found[0].tree[found[1]] = self._digest(path)

        return move

    def _unlink(self, path: Any, **options: Any) -> None:
        found = None if options.get("dir_fd") is not None else self._counts(path)
        if found is not None and self._exists(path):
            found[0].step("removes", found[1])
            found[0].tree.pop(found[1], None)
        self.real["unlink"](path, **options)

    def _rmtree(self, path: Any, *args: Any, **options: Any) -> None:
        found = self._counts(path)
        if found is not None:
            steps, inside = found
            steps.step("removes", inside)
            for name in [one for one in steps.tree if one.startswith(f"{inside}/")]:
                del steps.tree[name]
        with _unwatched():
            self.rmtree(path, *args, **options)


@contextlib.contextmanager
def _unwatched() -> Iterator[None]:
    steps = _now.pop() if _now else None
    try:
        yield
    finally:
        if steps is not None:
            _now.append(steps)


def walk(
    make: Callable[[], World], bound: int | None = None, most_runs: int | None = None
) -> Walked:
    """Every order of steps of worlds that `make` makes; raises Broken with the story."""
    touched = Touched()
    with _Hooks().installed():
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
    _now.append(steps)
    try:
        steps.run()
    finally:
        _now.clear()
        world.close()
    if steps.broken is not None:
        kind = Broken if isinstance(steps.broken, Broken) else RuntimeError
        told = "\n".join(steps.story)
        raise kind(f"{steps.broken!r}\n{told}") from steps.broken
    return steps
