"""Carrying records between this host and an object store, beside everything else.

What is written through `journal.atomic` is there at once. The rest (journals, logs, words of ranks)
goes every few seconds, and what people ask for comes the other way. A store that is away is said
once; nothing waits for it, and nothing is lost while this host lives: the working copy has it all,
and the next round or the next start takes it home.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from holdfast.errors import HoldfastError
from holdfast.journal.remote import remote_of
from holdfast.journal.store import RunFolder

PERIOD_S = 5.0


class Carrier:
    """One thread, for a run whose folder is a working copy; for others it does nothing."""

    def __init__(self, folder: RunFolder, say: Callable[[str], None]) -> None:
        self._remote = remote_of(folder.path)
        self._folder = folder
        self._say = say
        self._trouble = False
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-carrier", daemon=True)
        if self._remote is not None:
            self._thread.start()

    def close(self, limit_s: float) -> None:
        """Take everything home; says where it is when that does not work in time. Once."""
        if self._remote is None or self._closing.is_set():
            return
        self._closing.set()
        self._thread.join(limit_s)
        if self._thread.is_alive() or self._trouble:
            self._say(
                f"Not all records of the run could be taken to {self._remote.place}; they stay in "
                f"{self._folder.path} and go there with the next start on this host"
            )

    def _run(self) -> None:
        while not self._closing.wait(PERIOD_S):
            self._round(everything=False)
        self._round(everything=True)

    def _round(self, *, everything: bool) -> None:
        if self._remote is None:
            return
        try:
            self._remote.push(self._folder.name, everything=everything)
            if not everything:
                self._remote.pull(self._folder.control_dir)
        except (HoldfastError, OSError) as error:
            if not self._trouble:
                self._say(f"{error}; training goes on, its records are kept on this host meanwhile")
            self._trouble = True
        else:
            if self._trouble:
                self._say("The object store can be reached again; nothing was lost")
            self._trouble = False
