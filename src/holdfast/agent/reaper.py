"""The reaper: a small parent for an attempt's ranks, so that none of their processes outlives it.

Runs as a script of its own (`python -I -S reaper.py`, standard library only: it is up in some
15 ms) between the agent and the ranks. It is two processes, agent → guard → reaper → ranks:

- The reaper is a child subreaper: whatever the ranks leave behind, double-forked sessions included,
  is reparented to it, and dies with the attempt.
- End of file on its standard input means that the agent is gone: it kills the whole tree and
  ends. Its own parent-death signal says the same. Nothing else makes it end early: signals meant
  for others are swallowed.
- It speaks JSON lines. In: perhaps a `standby`, one `launch`, then `free`, `signal` and `kill`.
  Out: `launched` or `spawn_failed`, `exit` per rank, `stuck` for processes that survive SIGKILL,
  `gone`.
- `standby` starts one interpreter for each rank ahead of the launch, which wakes it: it becomes the
  rank. What it says of itself is passed on as `standby`; its death before that is `standby_lost`.
- The guard is its parent, and a subreaper too. It does nothing until the reaper has ended; what is
  left then (the reaper was killed, with the agent or without it) has come to the guard, and dies.
- A rank itself dies with its reaper by the kernel's hand (PR_SET_PDEATHSIG; the reaper has one
  thread), even when agent, guard and reaper are killed in one instant.

Times in its messages are CLOCK_BOOTTIME nanoseconds.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
from typing import Any, NoReturn

PR_SET_PDEATHSIG = 1
PR_SET_NAME = 15
PR_SET_CHILD_SUBREAPER = 36
STANDBY_VARIABLE = "HOLDFAST_STANDBY_TASK"
WAKE_PIPE_BYTES = 1 << 20
F_SETPIPE_SZ, F_GETPIPE_SZ = 1031, 1032
STUCK_AFTER_S = 10.0
REAPER_LIMIT_S = 5.0  # a reaper that is stopped, or wedged, when its agent is gone
RESCAN_S = 0.002
CONTROL_FD = 0
REPORT_FD = 1


libc = ctypes.CDLL(None, use_errno=True)


def now_ns() -> int:
    """CLOCK_BOOTTIME: goes on while the machine is suspended."""
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def report(event: str, **fields: Any) -> None:
    """One JSON line to the agent. If the agent is gone there is nobody to tell."""
    line = json.dumps({"event": event, "at_ns": now_ns(), **fields}) + "\n"
    data = line.encode()
    while data:
        try:
            data = data[os.write(REPORT_FD, data) :]
        except OSError:
            return


def descendants(root: int) -> list[int]:
    """Pids of all live processes below `root`, by one pass over /proc (zombies left out)."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - pathlib would double our start-up time
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123 - the same
                # The command may hold spaces and brackets: the fields start after the last ")".
                state, parent = file.read().rpartition(b")")[2].split()[:2]
        except OSError:
            continue
        children.setdefault(int(parent), []).append(int(name) if state != b"Z" else -int(name))
    found: list[int] = []
    todo = [root]
    while todo:
        for pid in children.get(todo.pop(), ()):
            todo.append(abs(pid))
            if pid > 0:
                found.append(pid)
    return found


def spawn(rank: dict[str, Any], failure_fd: int, keep: tuple[int, ...] = ()) -> int:
    """Fork and exec one rank in a process group of its own; returns its pid.

    If exec fails, `(rank, errno)` is written to `failure_fd`, which exec closes on success. It
    inherits its output, the descriptors in `keep`, and no other.
    """
    reaper = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != reaper:  # it died before prctl took hold
            os._exit(127)
        os.setpgid(0, 0)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # Python ignores it; exec would keep that
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.dup2(rank["stdout_fd"], 1)
        os.dup2(rank["stderr_fd"], 2)
        for fd in keep:
            os.set_inheritable(fd, True)
        os.chdir(rank["cwd"])
        os.execvpe(rank["argv"][0], rank["argv"], rank["env"])  # noqa: S606 - no shell
    except OSError as error:
        word, where = rank["argv"][0], os.fsdecode(error.filename or rank["argv"][0])
        if error.errno == errno.ENOENT and os.path.basename(where) == word:  # noqa: PTH119
            where = word  # not the last folder of PATH that it was looked for in
        line = json.dumps({"rank": rank["rank"], "errno": error.errno, "where": where})
        os.write(failure_fd, line.encode() + b"\n")
    finally:
        os._exit(127)


class StandbyProcess:
    """An interpreter that waits to become a rank; `status_fd` is where it speaks of itself."""

    def __init__(self, rank: dict[str, Any], failure_fd: int) -> None:
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
        self.pid = spawn({**rank, "env": env}, failure_fd, keep)
        for fd in keep:
            os.close(fd)

    def wake(self, rank: dict[str, Any], *, held: bool, beside: bool) -> bool:
        """Have it become the rank; False: it cannot be told, and is ended.

        `held`: it waits once more, for `free`, before the program's first instruction. `beside`: it
        gives way to ranks that train.
        """
        self.lift()
        wake = {key: rank[key] for key in ("argv", "env", "cwd")} | {"hold": held, "beside": beside}
        line = json.dumps(wake).encode() + b"\n"
        try:
            # What does not fit at once would keep us waiting until its imports are done.
            fits = len(line) <= fcntl.fcntl(self.wake_fd, F_GETPIPE_SZ)
            woken = fits and os.write(self.wake_fd, line) == len(line)
        except OSError:  # it has just died
            woken = False
        if not woken:
            _signal(self.pid, signal.SIGKILL)
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

    def __init__(self, guard: int) -> None:
        self.guard = guard
        self.ranks: dict[int, int] = {}  # pid -> rank
        self.standbys: dict[int, StandbyProcess] = {}  # by rank; those that were not woken yet
        self.held: list[StandbyProcess] = []  # woken, and to be freed
        self.speaking: dict[int, StandbyProcess] = {}  # by status fd
        self.outputs: set[int] = set()
        self.killing_since: float | None = None
        self.stuck_reported = False
        self.buffer = b""
        self.has_begun = False  # there were ranks, or there will be none: what is left is a rest

    def stand_by(self, ranks: list[dict[str, Any]]) -> None:
        """Start an interpreter for each rank. One that cannot be started is one that has died."""
        self.keep_outputs(ranks)
        null = os.open(os.devnull, os.O_WRONLY)
        for rank in ranks:
            standby = StandbyProcess(rank, null)
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
            standby = self.standbys.pop(rank["rank"], None)
            if standby is not None and standby.wake(rank, held=held, beside=beside):
                self.held += [standby] if held else []
                pids[standby.pid] = rank["rank"]
                woken.append(rank["rank"])
            else:
                pids[spawn(rank, write_fd)] = rank["rank"]
        self.ranks = dict(pids)
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
                    _signal(pid, message["signal"])
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
            _signal(pid, signal.SIGKILL)

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
            rank = self.ranks.pop(pid, None)
            if rank is None:
                continue
            signaled = os.WIFSIGNALED(status)
            report(
                "exit",
                rank=rank,
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
        if not left and not _has_children():
            return True
        killing_since = self.killing_since or 0.0
        if time.monotonic() - killing_since > STUCK_AFTER_S and not self.stuck_reported:
            self.stuck_reported = True
            report("stuck", pids=left)
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

    def run(self, wakeup_fd: int) -> None:
        """Until every process of the attempt is gone."""
        poll = select.poll()
        poll.register(CONTROL_FD, select.POLLIN | select.POLLHUP)
        poll.register(wakeup_fd, select.POLLIN)
        while True:
            wait_ms = RESCAN_S * 1000 if self.killing_since is not None else None
            for fd, _ in poll.poll(wait_ms):
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
            if self.sweep():
                report("gone")
                return


def _signal(pid: int, number: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def _has_children() -> bool:
    try:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return False
    except OSError as error:
        return error.errno != errno.ECHILD
    return True


def stand_guard(reaper: int, wakeup_fd: int) -> None:
    """Return when the reaper has ended and nothing that it left behind is alive.

    It is given a while to do its work when the agent is gone; then it is wedged, and killed too.
    """
    poll = select.poll()
    poll.register(CONTROL_FD, 0)  # never read here: only its hang-up is told
    poll.register(wakeup_fd, select.POLLIN)
    limit_ms = None
    while not _has_ended(reaper):
        ready = poll.poll(limit_ms)
        if not ready:
            _signal(reaper, signal.SIGKILL)
        for fd, _ in ready:
            if fd == wakeup_fd:
                os.read(wakeup_fd, 512)
            else:
                poll.unregister(CONTROL_FD)
                limit_ms = REAPER_LIMIT_S * 1000
    began, stuck_reported = time.monotonic(), False
    while _has_children():
        left = descendants(os.getpid())
        for pid in left:
            _signal(pid, signal.SIGKILL)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if left and time.monotonic() - began > STUCK_AFTER_S and not stuck_reported:
            stuck_reported = True
            report("stuck", pids=left)
        time.sleep(RESCAN_S)


def _has_ended(child: int) -> bool:
    return os.waitpid(child, os.WNOHANG)[0] == child


def take_place(parent: int, name: str) -> int:
    """What must hold in guard and reaper before the first rank exists; returns the wakeup fd."""
    libc.prctl(PR_SET_NAME, name.encode(), 0, 0, 0)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    # Catchable, not SIGKILL: we still have a tree to take down.
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    read_fd, write_fd = os.pipe()
    os.set_blocking(write_fd, False)
    os.set_blocking(read_fd, False)
    signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
    if os.getppid() != parent:  # it died before prctl took hold
        os._exit(0)
    return read_fd


def main(agent_pid: int) -> NoReturn:
    """Become the guard and its child, the reaper; serve until nothing is left."""
    for number in (
        signal.SIGCHLD,
        signal.SIGTERM,
        signal.SIGINT,
        signal.SIGHUP,
        signal.SIGQUIT,
        signal.SIGUSR1,
        signal.SIGUSR2,
    ):
        # A handler, not SIG_IGN: exec resets handlers to the default, but keeps "ignored".
        signal.signal(number, lambda *_: None)
    wakeup_fd = take_place(agent_pid, "hf-guard")
    guard_pid = os.getpid()
    reaper_pid = os.fork()
    if reaper_pid:
        stand_guard(reaper_pid, wakeup_fd)
    else:
        os.close(wakeup_fd)
        Reaper(guard_pid).run(take_place(guard_pid, "hf-reaper"))
    os._exit(0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
