"""The files that ranks have read which wait at a gate: whether one is another since."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from holdfast.agent.tree import RankCommand
from holdfast.journal.gate import Mark, files_path, mark, read_files

CHECK_EVERY_S = 2.0
# Of a restart: then the files are on a disk that does not answer. Less than a cold start with a
# framework takes, and more than a busy host may keep the thread that looks from its turn.
CHECK_LIMIT_S = 2.0


class ReadFiles:
    """What ranks tell in `folder`, at their gate, and the files that their commands name."""

    def __init__(self, folder: Path, commands: Sequence[RankCommand]) -> None:
        self._folder = folder
        self._ranks = [one.rank for one in commands]
        self._words = {path for one in commands for path in _files_of(one)}
        self._read: dict[int, dict[str, Mark]] = {}
        self._woken_unix_ns = time.time_ns()
        self._check: Check | None = None
        self._next_check_s = 0.0

    def look(self) -> None:
        """See who has come to the gate, and now and then whether the files are what they were."""
        for rank in self._ranks:
            if rank not in self._read:
                with contextlib.suppress(OSError, ValueError):
                    files = read_files(files_path(self._folder, rank))
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

    def trouble(self) -> str:
        """Why what was read is not what a start would read now; empty: it is.

        Looks anew: a look under way may have passed a file by already.
        """
        until_s = time.monotonic() + CHECK_LIMIT_S
        if self._check is None or self._check.wait(CHECK_LIMIT_S):
            check = self._check = self._look_at_files()
            if check.wait(max(0.0, until_s - time.monotonic())):
                return f"{check.found} has changed since it was read" if check.found else ""
        return "whether its files have changed cannot be told"

    def _look_at_files(self) -> Check:
        return Check(self._words, list(self._read.values()), self._woken_unix_ns)


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
