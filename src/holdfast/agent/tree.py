"""An attempt's processes as the agent sees them: through the reaper that is their parent."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from holdfast.agent.reaper import processes
from holdfast.agent.tree_process import TreeProcess
from holdfast.core.value import value

# The reaper says `stuck` or `busy` before that: who says nothing for so long is stopped, or wedged.
KILL_LIMIT_S = processes.STUCK_AFTER_S + 2.0
CLOSE_LIMIT_S = KILL_LIMIT_S


@value
class RankCommand:
    """One rank to start. `output_fd` receives its standard output and error, in order."""

    rank: int
    argv: Sequence[str]
    environment: Mapping[str, str]
    working_directory: str
    output_fd: int


@value
class StandbyCommand:
    """An interpreter to start ahead of its rank: `argv` in the surroundings of the rank's command.

    It is given `task` and its pipes in the variable `reaper.loop.STANDBY_VARIABLE`, as JSON.
    """

    argv: Sequence[str]
    task: Mapping[str, Any]
    rank: RankCommand


@value
class TreeMessage:
    """What the reaper said.

    `event` is standby, standby_lost, launched, spawn_failed, exit, busy, stuck or gone.
    """

    event: str
    at_ns: int
    fields: Mapping[str, Any]


def become_subreaper() -> None:
    """If a reaper is killed, its orphans come to us instead of to init, and we can end them."""
    processes.libc.prctl(processes.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


class Tree:
    """A reaper and what is below it: its ranks come with `launch`, once."""

    def __init__(self, process: TreeProcess) -> None:
        self._buffer = b""
        self._settled = False  # the reaper has said how the tree ended
        self._ending: threading.Thread | None = None
        self._kill_by_s: float | None = None
        self._process = process
        self.pidfd = process.pidfd

    @classmethod
    def start(cls, output_fds: Collection[int]) -> Tree:
        """With a reaper of its own. It takes over `output_fds`."""
        return cls(TreeProcess.start(output_fds))

    @property
    def pid(self) -> int:
        """The guard's."""
        return self._process.pid

    def stand_by(self, standbys: Sequence[StandbyCommand]) -> None:
        """Start interpreters that wait for the launch; each says of itself how it is."""
        ranks = [
            self._fields(one.rank) | {"argv": list(one.argv), "standby": dict(one.task)}
            for one in standbys
        ]
        self._say(do="standby", ranks=ranks)

    def launch(
        self,
        ranks: Sequence[RankCommand],
        *,
        waited_as: Sequence[int] = (),
        held: bool = False,
        beside: bool = False,
    ) -> None:
        """Start the ranks: a standby of that number that is there becomes it.

        `waited_as`: the numbers of these standbys, where they are not the ranks'. `held`: it makes
        itself ready, and runs nothing of the program before `free`. `beside`: others train, and it
        is at the lowest priority, where it may come back from that.
        """
        waited = waited_as or [rank.rank for rank in ranks]
        fields = [
            self._fields(rank) | {"waited_as": number}
            for rank, number in zip(ranks, waited, strict=True)
        ]
        self._say(do="launch", ranks=fields, held=held, beside=beside)

    def free(self) -> None:
        """Whoever is held may run; again, or where nobody is: no effect."""
        self._say(do="free")

    def lift(self) -> None:
        """The interpreters give way no more while they import."""
        self._say(do="lift")

    def fileno(self) -> int:
        """Readable when the reaper has something to say."""
        return self._process.report_fd

    def read(self) -> list[TreeMessage]:
        """What the reaper said since the last call; `lost` when it died without a word."""
        messages: list[TreeMessage] = []
        while True:
            try:
                data = os.read(self._process.report_fd, 1 << 16)
            except BlockingIOError:
                return messages
            if not data:
                return messages
            *lines, self._buffer = (self._buffer + data).split(b"\n")
            for line in lines:
                fields = json.loads(line)
                message = TreeMessage(fields.pop("event"), fields.pop("at_ns"), fields)
                self._settled = self._settled or message.event in ("gone", "stuck")
                if message.event == "busy" and self._kill_by_s is not None:
                    self._kill_by_s = time.monotonic() + KILL_LIMIT_S
                messages.append(message)

    def signal(self, number: int, rank: int | None = None) -> None:
        """Send a signal to one rank, or to all."""
        self._say(do="signal", rank=rank, signal=int(number))

    def kill(self) -> None:
        """SIGKILL every process of the attempt; `gone` follows."""
        self._say(do="kill")
        if self._kill_by_s is None:
            self._kill_by_s = time.monotonic() + KILL_LIMIT_S

    def ended(self) -> bool:
        """True when reaper and guard are no more.

        A reaper that was told to kill and says nothing (somebody stopped it) is ended with them:
        what it leaves comes to us.
        """
        kill_by_s = self._kill_by_s
        if kill_by_s is not None and not self._settled and time.monotonic() > kill_by_s:
            self._process.kill()
        return self._process.has_ended()

    def sweep_orphans(self, spare: Collection[int] = ()) -> list[int]:
        """After a reaper's death: end what was reparented to us; returns who would not die.

        `spare`: children of ours that are none of the tree's, with all that is below them.
        """
        began_s = time.monotonic()
        while left := _below_us(spare):
            for pid in left:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if stuck := processes.survivors(left, time.monotonic() - began_s):
                return stuck
            time.sleep(processes.RESCAN_S)
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        return []

    def close(self, limit_s: float = CLOSE_LIMIT_S) -> None:
        """Let go of the pipes; a reaper still there takes its tree down and ends.

        That is waited for up to `limit_s`, unless all is said: the rest is done in a thread. Again:
        wait again.
        """
        if self._ending is None:
            with contextlib.suppress(OSError):
                self._process.control.close()
            self._ending = threading.Thread(
                target=self._process.close_at_end, name="holdfast-tree", daemon=True
            )
            self._ending.start()
        if not self._settled:
            self._ending.join(limit_s)

    def _say(self, **message: Any) -> None:
        with contextlib.suppress(OSError):  # a dead reaper is noticed through its pidfd
            self._process.control.write(json.dumps(message).encode() + b"\n")
            self._process.control.flush()

    def _fields(self, rank: RankCommand) -> dict[str, Any]:
        output_fd = self._process.fds[rank.output_fd]
        return {
            "rank": rank.rank,
            "argv": list(rank.argv),
            "env": dict(rank.environment),
            "cwd": rank.working_directory,
            "stdout_fd": output_fd,
            "stderr_fd": output_fd,
        }


def _below_us(spare: Collection[int]) -> list[int]:
    """All below us but those who are spared, and what is below these."""
    for _ in range(2):  # a look does not see the children of who ends while it looks
        spared = {pid for root in spare for pid in (root, *processes.descendants(root))}
        if below := [pid for pid in processes.descendants(os.getpid()) if pid not in spared]:
            return below
    return []
