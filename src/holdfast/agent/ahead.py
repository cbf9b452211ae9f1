"""The ranks of an attempt that is not on record yet: woken ahead of it, they wait at its gate.

Nothing of theirs is read before the gate opens but what they tell there: which files they have
imported. If one of them ends, or such a file changes, all of them are given up: the attempt starts
with interpreters that have only imported, or cold.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

from holdfast.agent.tree import RankCommand, Tree, TreeMessage
from holdfast.journal.gate import Gate, Go, Mark, files_path, mark, read_files

CHECK_EVERY_S = 2.0
# Of a restart: then the files are on a disk that does not answer. Less than a cold start with a
# framework takes, and more than a busy host may keep the thread that looks from its turn.
CHECK_LIMIT_S = 2.0

NEWS = ("launched", "standby")  # what the attempt itself is to hear when it begins


class Ahead:
    """Of one attempt; `lost` says why it came to nothing."""

    def __init__(self, tree: Tree, attempt: int, folder: Path, commands: list[RankCommand]) -> None:
        """Made before the ranks are woken; `folder` is made too. Raises OSError."""
        self.attempt = attempt
        self.folder = folder
        self.backlog: list[TreeMessage] = []
        self.lost = ""
        self._tree = tree
        self._ranks = [one.rank for one in commands]
        self._words = {path for one in commands for path in _files_of(one)}
        self._read: dict[int, dict[str, Mark]] = {}
        self._woken_unix_ns = time.time_ns()
        self._check: Check | None = None
        self._next_check_s = 0.0
        folder.mkdir(mode=0o700)
        self.gate = Gate(folder)

    def hear(self, message: TreeMessage) -> None:
        """Take what the reaper says; an end before the beginning is the end of all of it."""
        if message.event in NEWS:
            self.backlog.append(message)
        elif not self.lost:
            self.lost = _words(message)

    def look(self) -> None:
        """See who has come to the gate, and now and then whether the files are what they were."""
        for rank in self._ranks:
            if rank not in self._read:
                with contextlib.suppress(OSError, ValueError):
                    files = read_files(files_path(self.folder, rank))
                    if files is not None:
                        self._read[rank] = files
        now_s = time.monotonic()
        if self._read and now_s >= self._next_check_s:
            self._next_check_s = now_s + CHECK_EVERY_S
            self.check()

    @property
    def waiting(self) -> int:
        """How many ranks are known to stand at the gate."""
        return len(self._read)

    def check(self) -> None:
        """Begin to look whether a file has changed, unless that is being looked for."""
        if self._check is None or self._check.is_over:
            self._check = self._look_at_files()

    @property
    def changed(self) -> str:
        """A file that is another than what was read, as far as is known now."""
        return self._check.found if self._check is not None else ""

    def unfit_for(self, attempt: int) -> str:
        """Why this cannot become that attempt; empty: it can."""
        if self.lost:
            return self.lost
        if self.attempt != attempt:
            return f"it was to be attempt {self.attempt}"
        if not self._looks_anew():
            return "whether its files have changed cannot be told"
        return f"{self.changed} has changed since it was read" if self.changed else ""

    def _looks_anew(self) -> bool:
        """Have looked at the files from now on: a look under way may have passed one by already."""
        until_s = time.monotonic() + CHECK_LIMIT_S
        if self._check is not None and not self._check.wait(CHECK_LIMIT_S):
            return False
        check = self._check = self._look_at_files()
        return check.wait(max(0.0, until_s - time.monotonic()))

    def _look_at_files(self) -> Check:
        return Check(self._words, list(self._read.values()), self._woken_unix_ns)

    def free(self) -> None:
        """Nothing of the attempt before is left: whoever was held may run."""
        self._tree.free()

    def go(self, go: Go) -> None:
        """The attempt begins. Raises OSError."""
        self.free()
        for pid in self._pids():  # one that is idle would not be awake for a while
            with contextlib.suppress(OSError):
                if os.sched_getscheduler(pid) == os.SCHED_IDLE != os.sched_getscheduler(0):
                    os.sched_setscheduler(pid, os.SCHED_OTHER, os.sched_param(0))
        self.gate.open(go)

    def _pids(self) -> list[int]:
        launched = (one.fields["pids"] for one in self.backlog if one.event == "launched")
        return [pid for pids in launched for pid in pids.values()]


class Check:
    """Looks at files in a thread of its own: a disk that does not answer keeps nobody waiting."""

    def __init__(
        self, words: Iterable[str], read: list[dict[str, Mark]], woken_unix_ns: int
    ) -> None:
        self.found = ""
        self._words = words
        self._files = read
        self._woken_unix_ns = woken_unix_ns
        self._thread = threading.Thread(target=self._run, name="holdfast-files", daemon=True)
        self._thread.start()

    @property
    def is_over(self) -> bool:
        """Whether it has looked at all."""
        return not self._thread.is_alive()

    def wait(self, limit_s: float) -> bool:
        """Whether that is so within the limit."""
        self._thread.join(limit_s)
        return self.is_over

    def _run(self) -> None:
        now: dict[str, Mark | None] = {path: mark(path) for path in self._words}
        for files in self._files:
            for path, before in files.items():
                if path not in now:
                    now[path] = mark(path)
                if now[path] != before:
                    self.found = path
                    return
        # One that has changed before it was told of may have been read before that.
        for path, found in now.items():
            if found is not None and found.mtime_ns > self._woken_unix_ns:
                self.found = path
                return


def _files_of(command: RankCommand) -> Iterator[str]:
    """The words of the command that are files: the script, above all."""
    for word in command.argv[1:]:
        path = Path(command.working_directory, word)
        with contextlib.suppress(OSError):  # a word that is too long for a name
            if path.is_file():
                yield str(path)


def _words(message: TreeMessage) -> str:
    """What a tree's message says of its end."""
    fields = message.fields
    if message.event == "spawn_failed":
        return "the command cannot be started ahead of its attempt"
    if message.event != "exit":
        return f"the processes ahead of the attempt are {message.event}"
    how = f"signal {fields['signal']}" if fields["signal"] else f"exit code {fields['code']}"
    return f"rank {fields['rank']} ended ahead of its attempt ({how})"
