"""What the reaper does: it starts ranks and standbys as it is told, and reports how they end."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import select
import signal
import time

from .processes import (
    CONTROL_FD,
    RESCAN_S,
    Fate,
    LeftAlive,
    descendants,
    has_children,
    report,
    signal_to,
    spawn,
)

TYPE_CHECKING = False  # what `typing` would say, without importing it
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    Start = Callable[[dict[str, Any], int, tuple[int, ...]], int]

STANDBY_VARIABLE = "HOLDFAST_STANDBY_TASK"
WAKE_PIPE_BYTES = 1 << 20
LOOK_S = 0.02  # 10 to 20 µs of a core for each rank, each time
F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032


class StandbyProcess:
    """An interpreter that waits to become a rank; `status_fd` is where it speaks of itself."""

    def __init__(self, rank: dict[str, Any], failure_fd: int, start: Start) -> None:
        self.rank: int = rank["rank"]
        self.buffer = b""
        wake_read_fd, self.wake_fd = os.pipe()
        self.status_fd, status_write_fd = os.pipe()
        with contextlib.suppress(OSError):  # the kernel's limit for unprivileged users
            fcntl.fcntl(self.wake_fd, F_SETPIPE_SZ, WAKE_PIPE_BYTES)
        os.set_blocking(self.wake_fd, False)
        os.set_blocking(self.status_fd, False)
        task = {**rank["standby"], "wake_fd": wake_read_fd, "status_fd": status_write_fd}
        env = {**rank["env"], STANDBY_VARIABLE: json.dumps(task)}
        keep = (wake_read_fd, status_write_fd)
        self.pid = start({**rank, "env": env}, failure_fd, keep)
        for fd in keep:
            os.close(fd)

    def wake(self, rank: dict[str, Any], *, held: bool, beside: bool) -> bool:
        """Have it become the rank; False: it cannot be told, and is ended.

        `held`: it waits once more, for `free`, before the program's first instruction. `beside`: it
        gives way to ranks that train.
        """
        self.lift()
        self.rank = rank["rank"]
        wake = {key: rank[key] for key in ("argv", "env", "cwd")} | {"hold": held, "beside": beside}
        line = json.dumps(wake).encode() + b"\n"
        try:
            # What does not fit at once would keep us waiting until its imports are done.
            fits = len(line) <= fcntl.fcntl(self.wake_fd, F_GETPIPE_SZ)
            woken = fits and os.write(self.wake_fd, line) == len(line)
        except OSError:  # it has just died
            woken = False
        if not woken:
            signal_to(self.pid, signal.SIGKILL)
        if not (woken and held):
            self.forget()
        return woken

    def free(self) -> None:
        """Let one that is held run the program."""
        with contextlib.suppress(OSError):
            os.write(self.wake_fd, b"{}\n")
        self.forget()

    def lift(self) -> None:
        """In the middle of its imports it is idle: beside busy neighbours it would not hear us."""
        with contextlib.suppress(OSError):
            idle = os.SCHED_IDLE
            if os.sched_getscheduler(self.pid) == idle != os.sched_getscheduler(0):
                os.sched_setscheduler(self.pid, os.SCHED_OTHER, os.sched_param(0))

    def read(self) -> bool:
        """Pass on what it says of itself; False at the end of that."""
        try:
            data = os.read(self.status_fd, 1 << 16)
        except BlockingIOError:
            return True
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                report("standby", rank=self.rank, pid=self.pid, status=json.loads(line))
        return bool(data)

    def forget(self) -> None:
        """Let go of the pipe by which it is woken: an end of file there ends who still waits."""
        if self.wake_fd >= 0:
            os.close(self.wake_fd)
            self.wake_fd = -1


class Reaper:
    """The loop's state: which pids are ranks, and whether the tree is being killed."""

    def __init__(self, guard: int, start: Start = spawn) -> None:
        self.guard = guard
        self.start = start  # how an interpreter that stands by is started
        self.ranks: dict[int, int] = {}  # pid -> rank
        self.fates: dict[int, Fate] = {}  # of these
        self.standbys: dict[int, StandbyProcess] = {}  # by rank; those that were not woken yet
        self.held: list[StandbyProcess] = []  # woken, and to be freed
        self.speaking: dict[int, StandbyProcess] = {}  # by status fd
        self.outputs: set[int] = set()
        self.killing_since: float | None = None
        self.left_alive = LeftAlive()
        self.buffer = b""
        self.has_begun = False  # there were ranks, or there will be none: what is left is a rest

    def stand_by(self, ranks: list[dict[str, Any]]) -> None:
        """Start an interpreter for each rank. One that cannot be started is one that has died."""
        self.keep_outputs(ranks)
        null = os.open(os.devnull, os.O_WRONLY)
        for rank in ranks:
            standby = StandbyProcess(rank, null, self.start)
            self.standbys[standby.rank] = self.speaking[standby.status_fd] = standby
        os.close(null)

    def launch(self, ranks: list[dict[str, Any]], *, held: bool, beside: bool) -> None:
        """Start all ranks, or none: a command that cannot be started ends the attempt at once."""
        self.reap()
        self.keep_outputs(ranks)
        read_fd, write_fd = os.pipe()  # close-on-exec by default
        pids: dict[int, int] = {}
        woken = []
        for rank in ranks:
            standby = self.standbys.pop(rank["waited_as"], None)
            if standby is not None and standby.wake(rank, held=held, beside=beside):
                self.held += [standby] if held else []
                pids[standby.pid] = rank["rank"]
                woken.append(rank["rank"])
            else:
                pids[spawn(rank, write_fd)] = rank["rank"]
        self.ranks = dict(pids)
        self.fates = {pid: Fate(pid) for pid in pids}
        os.close(write_fd)
        with os.fdopen(read_fd, "rb") as file:
            failures = [json.loads(line) for line in file.read().splitlines()]
        for fd in self.outputs:
            os.close(fd)
        for standby in self.standbys.values():
            standby.forget()
        self.standbys = {}
        self.has_begun = True
        if failures:
            self.ranks = {}
            report("spawn_failed", failures=failures)
            self.kill()
        else:
            report("launched", pids={rank: pid for pid, rank in pids.items()}, woken=woken)

    def keep_outputs(self, ranks: list[dict[str, Any]]) -> None:
        """They are ours until the launch; a rank inherits its own as its standard streams."""
        self.outputs |= {rank[which] for rank in ranks for which in ("stdout_fd", "stderr_fd")}
        for fd in self.outputs:
            os.set_inheritable(fd, False)

    def command(self, message: dict[str, Any]) -> None:
        """Do what the agent says."""
        if message["do"] == "launch":
            self.launch(message["ranks"], held=message["held"], beside=message["beside"])
        elif message["do"] == "standby":
            self.stand_by(message["ranks"])
        elif message["do"] == "signal":
            for pid, rank in self.ranks.items():
                if message["rank"] in (None, rank):
                    signal_to(pid, message["signal"])
        elif message["do"] == "lift":
            for standby in self.standbys.values():
                standby.lift()
        elif message["do"] == "free":
            while self.held:
                self.held.pop().free()
        elif message["do"] == "kill":
            self.kill()

    def kill(self) -> None:
        """SIGKILL everything below us; repeated until nothing is left (see `sweep`)."""
        self.has_begun = True
        if self.killing_since is None:
            self.killing_since = time.monotonic()
        for pid in descendants(os.getpid()):
            signal_to(pid, signal.SIGKILL)

    def reap(self) -> None:
        """Collect what has died. Orphans that were reparented to us are reaped in silence."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if pid == 0:
                return
            self.lose_standby(pid)
            if pid in self.ranks:
                self.tell_end(pid, status)

    def foresee(self) -> None:
        """Tell of the ranks that are ending, while the kernel still frees what they had."""
        for pid in list(self.ranks):
            if (status := self.fates[pid].look()) is not None:
                self.tell_end(pid, status)

    def tell_end(self, pid: int, status: int) -> None:
        """A rank is one no more; `status` as of wait(2)."""
        self.fates.pop(pid).close()
        signaled = os.WIFSIGNALED(status)
        report(
            "exit",
            rank=self.ranks.pop(pid),
            pid=pid,
            code=None if signaled else os.WEXITSTATUS(status),
            signal=os.WTERMSIG(status) if signaled else None,
            core_dumped=signaled and os.WCOREDUMP(status),
        )

    def lose_standby(self, pid: int) -> None:
        """One that has died before it was woken: its rank starts cold."""
        for standby in list(self.standbys.values()):
            if standby.pid == pid:
                standby.forget()
                del self.standbys[standby.rank]
                report("standby_lost", rank=standby.rank, pid=pid)

    def sweep(self) -> bool:
        """When killing, or once the last rank has left, nothing may stay; True when all is gone."""
        if not self.has_begun or (self.ranks and self.killing_since is None):
            return False
        self.kill()
        self.reap()
        left = descendants(os.getpid())
        if not left and not has_children():
            return True
        # What runs no more and cannot be waited for yet is none of these: it is being taken apart.
        self.left_alive.tell(left, time.monotonic() - (self.killing_since or 0.0))
        return False

    def read_commands(self) -> bool:
        """Read what came; False at end of file (the agent is gone)."""
        try:
            data = os.read(CONTROL_FD, 1 << 16)
        except InterruptedError:
            return True
        if not data:
            return False
        *lines, self.buffer = (self.buffer + data).split(b"\n")
        for line in lines:
            self.command(json.loads(line))
        return True

    def wait_ms(self) -> float | None:
        """How long to wait for something to happen before we look by ourselves."""
        if self.killing_since is not None:
            return RESCAN_S * 1000
        return LOOK_S * 1000 if self.ranks else None

    def run(self, wakeup_fd: int) -> None:
        """Until every process of the attempt is gone."""
        poll = select.poll()
        poll.register(CONTROL_FD, select.POLLIN | select.POLLHUP)
        poll.register(wakeup_fd, select.POLLIN)
        while True:
            for fd, _ in poll.poll(self.wait_ms()):
                if fd == wakeup_fd:
                    os.read(wakeup_fd, 512)
                    # The kernel says SIGTERM when our parent dies; so does who stops a service by
                    # a signal to each of its processes, and then the ranks are about to save.
                    if os.getppid() != self.guard:
                        self.kill()
                elif fd in self.speaking:
                    if not self.speaking[fd].read():
                        poll.unregister(fd)
                        os.close(fd)
                        del self.speaking[fd]
                elif fd == CONTROL_FD and not self.read_commands():
                    poll.unregister(CONTROL_FD)
                    self.kill()
            for fd in self.speaking:
                poll.register(fd, select.POLLIN)
            self.reap()
            self.foresee()
            if self.sweep():
                report("gone")
                return
