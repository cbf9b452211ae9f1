"""What the foreman reads of its run in the store, and what it leaves there: `engine-end.json`.

The store may be slow or away, so it is read in a thread; what was read last counts meanwhile.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable

from holdfast.core.hosts.crew import CrewRun
from holdfast.core.hosts.engine import Submission
from holdfast.core.hosts.members import MemberState
from holdfast.errors import HoldfastError
from holdfast.journal.atomic import encode_json, read_json, write_atomic
from holdfast.journal.control import request
from holdfast.journal.hosts_table import read_hosts
from holdfast.journal.lease import view
from holdfast.journal.quarantine import quarantined
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder, RunStore

END_FILE = "engine-end.json"
LOOK_S = 1.0
THERE = (MemberState.ASSIGNED, MemberState.SUSPECT, MemberState.SPARE, MemberState.QUARANTINED)


def run_folder(submission: Submission) -> RunFolder:
    """The run's; raises HoldfastError."""
    return RunStore.at(submission.store).get_again(submission.run)


def look_at_run(folder: RunFolder) -> CrewRun:
    """How it stands. Raises HoldfastError."""
    refresh(folder.lease_dir)
    lease = view(folder)
    rows = read_hosts(folder, lease.epoch) or ()
    there = frozenset(row.index for row in rows if row.state in THERE)
    emptied = {row.index for row in rows if row.state == MemberState.QUARANTINED}
    last = lease.last_words
    return CrewRun(
        lease.epoch,
        None if last is None else last.exit_code,
        "" if last is None else last.words,
        last is not None and last.by_person,
        there,
        # Without a part, and put there by nobody: its own sources have said that it will go.
        frozenset(emptied - quarantined(folder).keys()) if emptied else frozenset(),
    )


def read_end(folder: RunFolder, order: str) -> tuple[int, str] | None:
    """How that order has ended; None: it has not, or nobody could write that down."""
    with contextlib.suppress(HoldfastError, OSError, ValueError, TypeError, KeyError):
        found = read_json(folder.path / END_FILE)
        if found["order"] == order:
            return int(found["code"]), str(found["words"])
    return None


class StoreLook:
    """The run's store, as a foreman looks at it."""

    def __init__(self, submission: Submission, say: Callable[[str], None]) -> None:
        self.newest = CrewRun()
        self._submission, self._say = submission, say
        self._folder: RunFolder | None = None
        self._trouble = ""
        threading.Thread(target=self._watch, name="run-store", daemon=True).start()

    def stop_run(self, grace_s: float) -> None:
        """Ask the run to save and stop, through its store."""
        self._try(lambda folder: request(folder, "stop", now=False, grace_s=grace_s))

    def tell_end(self, order: str, code: int, words: str) -> None:
        """Leave there how this order has ended."""
        data = encode_json({"order": order, "code": code, "words": words})
        self._try(lambda folder: write_atomic(folder.path / END_FILE, data))

    def has_ended(self, order: str) -> bool:
        """Whether an earlier life of this foreman has brought it to its end."""
        found: list[object] = []
        self._try(lambda folder: found.append(read_end(folder, order)))
        return any(one is not None for one in found)

    def _watch(self) -> None:
        while True:
            self._try(self._look)
            time.sleep(LOOK_S)

    def _look(self, folder: RunFolder) -> None:
        self.newest = look_at_run(folder)

    def _try(self, do: Callable[[RunFolder], object]) -> None:
        try:
            if self._folder is None:
                self._folder = run_folder(self._submission)
            do(self._folder)
            self._trouble = ""
        except (HoldfastError, OSError) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self._say(f"The run's store cannot be used here: {error}")
