"""The fork server of this host: see `holdfast.standby.server` for what it is and does.

It is asked for a tree, and answers when it has one: nobody waits for it meanwhile.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holdfast.agent.output import RankOutput
from holdfast.agent.reaper.loop import STANDBY_VARIABLE
from holdfast.agent.tree import RankCommand, Tree
from holdfast.agent.tree_process import TreeProcess
from holdfast.config.rank import IMPORTS_VARIABLE
from holdfast.journal.clocks import now_ns

MESSAGE_BYTES = 1 << 20
CLOSE_LIMIT_S = 0.5
LOWEST = 19  # where sessions are scheduled as groups


class AskedTree:
    """A tree that was asked for: the ends of its pipes, and its ranks' outputs."""

    def __init__(self, outputs: Sequence[RankOutput]) -> None:
        self.outputs = outputs
        self.tree: Tree | None = None
        self.control_read_fd, control_fd = os.pipe()
        report_fd, self.report_write_fd = os.pipe()
        self._control = os.fdopen(control_fd, "wb")
        self._report = os.fdopen(report_fd, "rb", buffering=0)

    @property
    def output_fds(self) -> list[int]:
        """Each descriptor once."""
        return sorted({output.write_fd for output in self.outputs})

    @property
    def given_fds(self) -> list[int]:
        """What the tree has of them."""
        return [self.control_read_fd, self.report_write_fd, *self.output_fds]

    def sent(self) -> None:
        """They are on their way, or lost: ours are closed."""
        for fd in self.given_fds:
            os.close(fd)

    def is_made(self, pid: int, fds: Sequence[int]) -> None:
        """Its guard is that process, where the outputs are these descriptors."""
        places = dict(zip(self.output_fds, fds, strict=True))
        self.tree = Tree(TreeProcess(pid, self._control, self._report, places))

    def is_lost(self) -> bool:
        """Whether nobody has the other ends any more: the tree has ended before it was there."""
        poll = select.poll()
        poll.register(self._report, 0)
        return any(event & select.POLLHUP for _, event in poll.poll(0))

    def give_up(self) -> None:
        """There will be no tree."""
        self._control.close()
        self._report.close()
        for output in self.outputs:
            output.close()


class ForkServer:
    """Of an agent that is a subreaper, for a rank's command.

    `argv`: what an interpreter that stands by is started as.

    `is_ready`: all is imported. `has_ended`: nothing is to be had of it any more; `unfit`: nor of
    another one, and why. `memory_bytes`: what it has resident. `began_ns`: when it was started.
    Raises OSError where it cannot be.
    """

    def __init__(self, argv: Sequence[str], rank: RankCommand) -> None:
        self.is_ready = self.has_ended = False
        self.unfit = ""
        self.memory_bytes = 0
        self.began_ns = now_ns()
        self.asked: AskedTree | None = None
        self._is_lifted = False  # by us; it was idle
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.setblocking(False)
        self._words = os.memfd_create("holdfast-fork-server")
        self._ending = threading.Thread(target=self._await_end, name="holdfast-fork", daemon=True)
        try:
            with theirs, theirs.dup() as second:
                self._process = self._start(argv, rank, theirs.fileno(), second.fileno())
        except OSError:
            self._socket.close()
            os.close(self._words)
            raise

    def _start(
        self, argv: Sequence[str], rank: RankCommand, wake_fd: int, status_fd: int
    ) -> subprocess.Popen[bytes]:
        task = {
            "imports": rank.environment[IMPORTS_VARIABLE],
            "argv": list(rank.argv),
            "wake_fd": wake_fd,
            "status_fd": status_fd,
            "server_of": os.getpid(),
        }
        return subprocess.Popen(
            argv,
            env={**rank.environment, STANDBY_VARIABLE: json.dumps(task)},
            cwd=rank.working_directory,
            pass_fds=[wake_fd, status_fd],
            stdin=subprocess.DEVNULL,
            stdout=self._words,
            stderr=self._words,
            start_new_session=True,
        )

    @property
    def pid(self) -> int:
        """Its own; trees that it has forked are not below it."""
        return self._process.pid

    def fileno(self) -> int:
        """Readable when it has something to say, or has ended."""
        return self._socket.fileno()

    def lift(self) -> None:
        """It gives way no more while it imports."""
        with contextlib.suppress(OSError):
            if os.sched_getscheduler(self.pid) == os.SCHED_IDLE != os.sched_getscheduler(0):
                os.sched_setscheduler(self.pid, os.SCHED_OTHER, os.sched_param(0))
                self._is_lifted = True
            Path(f"/proc/{self.pid}/autogroup").write_text("0", encoding="ascii")

    def give_way(self) -> None:
        """While it imports it gives way again, if it did before it was lifted."""
        if not self._is_lifted or self.is_ready or self.has_ended:
            return
        self._is_lifted = False
        with contextlib.suppress(OSError):
            os.sched_setscheduler(self.pid, os.SCHED_IDLE, os.sched_param(0))
            Path(f"/proc/{self.pid}/autogroup").write_text(str(LOWEST), encoding="ascii")

    def ask(self, outputs: Sequence[RankOutput]) -> None:
        """Have it fork a tree for ranks with these outputs, which are given up where none comes."""
        self.asked = asked = AskedTree(outputs)
        message = json.dumps({"agent": os.getpid()}).encode()
        with contextlib.suppress(OSError):  # it has ended: `read` will see
            socket.send_fds(self._socket, [message], asked.given_fds)
        asked.sent()

    def read(self) -> Tree | None:
        """Hear what it says; the tree that was asked for, once it is there."""
        while not self.has_ended:
            try:
                data = self._socket.recv(MESSAGE_BYTES)
            except BlockingIOError:
                if self.asked is None or not self.asked.is_lost():
                    return None
                data = b""  # it lives, but what it forks does not
            except OSError:
                data = b""
            if not data:
                self._end()
            elif (tree := self._hear(json.loads(data))) is not None:
                return tree
        return None

    def _hear(self, said: dict[str, Any]) -> Tree | None:
        event, asked = said["event"], self.asked
        if event == "ready":
            self.is_ready = True
            self.lift()  # it may have been told to give way after its last import
            self.memory_bytes = int(said.get("rss_bytes", 0))
        elif event == "unfit":
            self.unfit = str(said["why"])
        elif event == "stale":  # it imports anew
            self.is_ready = False
            self._give_up_asked()
        elif event == "tree" and asked is not None:
            self.asked = None
            with contextlib.suppress(OSError):  # it has ended already
                asked.is_made(said["pid"], said["fds"])
            if asked.tree is None:
                asked.give_up()
            return asked.tree
        return None

    def _give_up_asked(self) -> None:
        asked, self.asked = self.asked, None
        if asked is not None:
            asked.give_up()

    def _end(self) -> None:
        self.has_ended, self.is_ready = True, False
        self._give_up_asked()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)  # what its imports have started
        self._process.kill()
        # Whoever hangs in the kernel cannot be waited for by a loop that answers signals.
        self._ending.start()

    def _await_end(self) -> None:
        self._process.wait()
        with contextlib.suppress(ChildProcessError):  # those of its children that came to us
            while os.waitpid(-self._process.pid, os.WNOHANG)[0]:
                pass

    def last_words(self) -> str:
        """What it printed last: why it has ended by itself; "" for nothing."""
        text = os.pread(self._words, MESSAGE_BYTES, 0).decode(errors="replace")
        return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")

    def close(self) -> None:
        """Nobody wants it any more; trees that it has forked live on."""
        if not self.has_ended:
            self._end()
        self._ending.join(CLOSE_LIMIT_S)
        self._socket.close()
        os.close(self._words)
