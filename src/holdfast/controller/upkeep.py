"""Upkeep: once a second, everything live is copied to the run store, and the lease is renewed.

A thread of its own: a store that hangs or is full is said once, counted, and tried again; nothing
waits for it and nothing is lost while this host lives, because the live files stay in local scratch
until they are home.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from holdfast.errors import HoldfastError, RunHeld
from holdfast.journal.lease import HEARTBEAT_S, Lease

PERIOD_S = 1.0
BEAT_ROUNDS = int(HEARTBEAT_S / PERIOD_S)
DURABLE_ROUNDS = 5  # what a power cut may take from journals and logs: the last seconds


class Syncable(Protocol):
    """A live file with its place in the store."""

    def sync(self, *, durable: bool = False) -> int:
        """Copy growth, and have it on the disk; raises StoreUnavailable. The bytes copied."""


@dataclass(slots=True)
class LiveFiles:
    """The live files of one attempt, and the scratch folder to remove when they are home."""

    scratch: Path
    files: list[Syncable] = field(default_factory=list)
    is_ending: bool = False


class Upkeep:
    """The thread. `say` and `lost` are called from it."""

    def __init__(
        self, lease: Lease | None, say: Callable[[str], None], lost: Callable[[str], None]
    ) -> None:
        """`lease` None: somebody else holds the run; live files are looked after all the same."""
        self._lease = lease
        self._say = say
        self._lost = lost
        self._folders: list[LiveFiles] = []
        self._lock = threading.Lock()
        self._wake = threading.Event()
        self._closing = False
        self._trouble = self._failed = ""
        self._rounds = 0
        self.tasks: list[Callable[[], None]] = []
        self._thread = threading.Thread(target=self._run, name="holdfast-upkeep", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def add(self, folder: LiveFiles) -> None:
        """Look after an attempt's files from now on."""
        with self._lock:
            self._folders.append(folder)

    def end(self, scratch: Path) -> None:
        """The attempt is over: copy once more, then remove its scratch folder."""
        with self._lock:
            for folder in self._folders:
                if folder.scratch == scratch:
                    folder.is_ending = True
        self._wake.set()

    @property
    def has_store(self) -> bool:
        """Whether the run store could be written in the last round."""
        return not self._trouble

    def close(self, limit_s: float) -> bool:
        """One last round; False when the store does not answer in time (scratch is kept then)."""
        self._closing = True
        self._wake.set()
        self._thread.join(limit_s)
        return not self._thread.is_alive() and not self._trouble

    def _run(self) -> None:
        while not self._closing:
            self._wake.wait(PERIOD_S)
            self._wake.clear()
            self._round()
        self._round()

    def _round(self) -> None:
        trouble = ""
        self._rounds += 1
        try:
            self._renew()
        except RunHeld as error:
            self._lost(str(error))
        except HoldfastError as error:
            trouble = str(error)
        with self._lock:
            folders = list(self._folders)
        for folder in folders:
            # Asked before copying: what is still being written now must be copied once more.
            is_last = folder.is_ending or self._closing
            problem = self._sync(folder, is_last)
            trouble = trouble or problem
            if is_last and not problem:
                shutil.rmtree(folder.scratch, ignore_errors=True)
                with self._lock:
                    self._folders.remove(folder)
        for task in self.tasks:
            self._do(task)
        if trouble and not self._trouble:
            self._say(f"{trouble}; training goes on, its journal is kept on this host meanwhile")
        elif self._trouble and not trouble:
            self._say("The run store can be written again; nothing was lost")
        self._trouble = trouble

    def _do(self, task: Callable[[], None]) -> None:
        """Whatever it meets, no more threads for example: the lease must be renewed."""
        try:
            task()
        except Exception as error:
            words = f"{type(error).__name__}: {error}"
            if words != self._failed:
                self._say(f"What is done beside the run has failed ({words}); it is tried again")
            self._failed = words

    def _renew(self) -> None:
        if self._lease is not None and self._rounds % BEAT_ROUNDS == 0:
            self._lease.renew()

    def _sync(self, folder: LiveFiles, is_last: bool) -> str:
        # The scratch folder goes when its files are home: by then they must be on the disk.
        durable = is_last or self._rounds % DURABLE_ROUNDS == 0
        for file in folder.files:
            try:
                file.sync(durable=durable)
            except HoldfastError as error:
                return str(error)
        return ""
