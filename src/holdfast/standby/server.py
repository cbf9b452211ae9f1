"""The fork server: one interpreter that has imported, from which all standbys are forked.

Imports take seconds of a core for each rank. Where they leave no thread and no device behind they
are done once, in a process that waits and does nothing else. Asked for a tree, it forks one: guard,
reaper, and an interpreter for each rank, which begins where the server has come to. The tree is the
agent's: who forks it ends at once, so that the agent, a subreaper, becomes its parent.

A thread would not be there after a fork, and what it held would never be let go of. Some libraries
end theirs before each fork, and begin them again when they need them (OpenBLAS does): a first fork
shows which. If any are left, there is no fork server; nor if imports have left behind what else a
fork cannot have for itself (`left_behind`).
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import json
import os
import signal
import socket
import sys
import time
import warnings

from .channel import VARIABLE, Task
from .left_behind import LeftBehind, open_fds, threads

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from typing import Any, NoReturn

    from .output import HeldOutput
    from .surroundings import VariableReads

MESSAGE_BYTES = 1 << 16
MAX_FDS = 253  # in one message, by the kernel
STREAMS = frozenset([0, 1, 2])
LOOK_S = 0.0005
CHOSEN_SEEDS = 1 << 32


def _load_reaper() -> tuple[Any, Any]:
    """The reaper's modules, by path and under our own name."""
    name = f"{__package__}.reaper"
    folder = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "agent")
    folder = os.path.join(folder, "reaper")
    spec = importlib.util.spec_from_file_location(
        name, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
    )
    if spec is None:
        raise ImportError(f"{folder} has no __init__.py: Holdfast is not installed whole")
    sys.modules[name] = importlib.util.module_from_spec(spec)
    guard = importlib.import_module(f"{name}.guard")
    return guard, importlib.import_module(f"{name}.processes")


_GUARD, _PROCESSES = _load_reaper()


class Forked(BaseException):
    """Out of the reaper's loop: the process is its fork, and a standby.

    No Exception: nothing on the way out is to catch it.
    """

    def __init__(self, rank: dict[str, Any]) -> None:
        super().__init__()
        self.rank = rank


class TreeForker:
    """For a process of one thread; what it is asked comes by the task's socket."""

    def __init__(self, task: Task, output: HeldOutput, surroundings: VariableReads) -> None:
        self._task = task
        self._output = output
        self._surroundings = surroundings
        self._socket = socket.socket(fileno=task.wake_fd)
        self._handlers: dict[int, Any] = {}
        own = {task.wake_fd, task.status_fd} | output.fds | STREAMS
        self._left = LeftBehind(_GUARD.SWALLOWED, own)

    def serve(
        self,
        *,
        ready: Callable[[], bool],
        change: Callable[[], str],
        anew: Callable[[], NoReturn],
    ) -> Task:
        """Returns in each standby that is forked, with its task; in the server never.

        `ready`: imports until all is there, or until somebody asks, and says which. `change`: why
        all must be imported anew; empty: nothing must. `anew`: begins again.
        """
        is_ready = False
        while True:
            # Later on this is what ranks have imported since: the next ones have it, too.
            if ready() and not is_ready:
                is_ready = True
                self._see_to_what_is_left()
                self._task.tell_ready()
            message, fds = self._next()
            if why := change():
                self._task.tell("stale", why=why)
                for fd in fds:
                    os.close(fd)
                anew()
            self._see_to_what_is_left(fds)
            task = self._fork(message, fds)
            for fd in fds:
                os.close(fd)
            if task is not None:
                return task

    def _next(self) -> tuple[dict[str, Any], list[int]]:
        data, fds, _, _ = socket.recv_fds(self._socket, MESSAGE_BYTES, MAX_FDS)
        if not data:  # nobody wants this process any more
            os._exit(0)
        return json.loads(data), fds

    def _see_to_what_is_left(self, given: Collection[int] = ()) -> None:
        """End where no fork could have for itself what imports have left behind."""
        if threads() > 1:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # newer Pythons warn of a fork with threads
                child = os.fork()
            if not child:
                os._exit(0)
            os.waitpid(child, 0)
        why = "an import has started threads, which a fork would lose" if threads() > 1 else ""
        if why := why or self._left.obstacle(_PROCESSES.has_children, given):
            self._task.tell("unfit", why=why)
            os._exit(0)

    def _fork(self, message: dict[str, Any], fds: list[int]) -> Task | None:
        """A tree; None in the server, and in each of the tree's interpreters its task."""
        kept = open_fds() - set(fds) - {self._task.wake_fd, self._task.status_fd} | STREAMS
        self._handlers = {number: signal.getsignal(number) for number in _GUARD.SWALLOWED}
        self._output.mute()  # some libraries print in each child
        between = os.fork()
        if between:
            os.waitpid(between, 0)
            self._output.hold()
            return None
        between = os.getpid()
        if os.fork():
            os._exit(0)
        while os.getppid() == between:
            time.sleep(LOOK_S)
        is_collecting = gc.isenabled()
        gc.disable()  # guard and reaper are to leave shared pages alone
        try:
            self._be_guard(message["agent"], fds)
        except Forked as forked:
            task = self._be_standby(forked.rank, kept)
        except BaseException as error:
            self._output.hold()
            print(f"holdfast: fork server: {type(error).__name__}: {error}", file=sys.stderr)
            os._exit(1)
        if is_collecting:
            gc.enable()
        fds.clear()
        return task

    def _be_guard(self, agent: int, fds: list[int]) -> NoReturn:
        os.setsid()  # a terminal's Ctrl-C is for the agent alone
        control, report, *outputs = fds
        os.dup2(control, _PROCESSES.CONTROL_FD)
        os.close(control)
        # Not where standard output is: some libraries print in each child.
        _PROCESSES.REPORT_FD = report
        if os.getppid() == agent:
            self._task.tell("tree", pid=os.getpid(), fds=outputs)
        self._task.close()
        self._socket.detach()
        _GUARD.main(agent, self._start)
        os._exit(0)

    def _start(self, rank: dict[str, Any], failure_fd: int, keep: tuple[int, ...]) -> int:
        """Fork the interpreter of a rank; it is executed where it could not use these imports."""
        pid: int = _PROCESSES.fork()
        if pid:
            return pid
        env = {name: value for name, value in rank["env"].items() if name != VARIABLE}
        if self._surroundings.difference(env, rank["cwd"]):
            _PROCESSES.execute(rank, failure_fd, keep)
        raise Forked(rank)

    def _be_standby(self, rank: dict[str, Any], kept: set[int]) -> Task:
        signal.set_wakeup_fd(-1)
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        task = Task(json.loads(rank["env"][VARIABLE]))
        task.is_lowered = self._task.is_lowered
        task.pythonpath = self._task.pythonpath
        self._output.lead_to(rank["stdout_fd"], rank["stderr_fd"])
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        kept |= {task.wake_fd, task.status_fd} | self._output.fds
        for fd in open_fds() - kept:
            os.close(fd)
        _be_another_process()
        return task


def _be_another_process() -> None:
    """What libraries remember of the process that they were imported in.

    Global generators that were seeded by chance at import must not draw alike in all forks.
    Python's own `random` sees to that itself.
    """
    for library, renew in _RENEWED.items():
        module: Any = sys.modules.get(library)
        try:
            if module is not None:
                renew(module)
        except (AttributeError, TypeError, ValueError, RuntimeError):
            continue  # another version than those that we know


def _renew_threading(threading: Any) -> None:
    threading.main_thread()._set_native_id()


def _renew_numpy(random: Any) -> None:
    """One that a module has seeded since has no seed sequence, and stays."""
    if random.mtrand._rand._bit_generator._seed_seq is not None:
        random.seed(None)


def _renew_torch(torch: Any) -> None:
    """By chance it is one of 64 bits; one that a module has chosen is smaller, and stays."""
    if torch.default_generator.initial_seed() >= CHOSEN_SEEDS:
        torch.default_generator.seed()


_RENEWED = {
    "threading": _renew_threading,
    "numpy.random": _renew_numpy,
    "torch": _renew_torch,
}
