"""The run that is rehearsed with: `holdfast run` as a process, and a folder for what it leaves."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from holdfast.config.rank import rank_marks
from holdfast.core.run.machine import RunPolicy
from holdfast.errors import HoldfastError
from holdfast.journal.clocks import now_ns
from holdfast.journal.folders import journal_names
from holdfast.journal.live import identity_of, live_journals
from holdfast.journal.store import RunFolder, RunStore
from holdfast.rehearse.tale import Tale, read_tale

LEAVE_LIMIT_S = 60.0  # for what was told to stop now


@dataclass(slots=True)
class Stage:
    """One run of `command`, under one supervisor at a time."""

    store: Path
    name: str
    options: Sequence[str]  # of `holdfast run`, for every start
    command: Sequence[str]
    policy: RunPolicy
    environment: Mapping[str, str]
    _supervisor: subprocess.Popen[bytes] | None = field(default=None, init=False)
    _known: tuple[str, ...] = field(default=(), init=False)

    @property
    def folder(self) -> RunFolder:
        """The run's folder; raises UnknownRun before its supervisor has made it."""
        return RunStore.at(str(self.store)).get(self.name)

    def start(self, *options: str) -> None:
        """Start a supervisor, with more options of its own."""
        with contextlib.suppress(HoldfastError):
            self._known = tuple(journal_names(self.folder.journal_dir))
        named = ["--store", str(self.store), "--name", self.name, *self.options, *options]
        argv = [sys.executable, "-P", "-m", "holdfast.cli.main", "run", *named, "--", *self.command]
        self._supervisor = subprocess.Popen(argv, env=dict(self.environment))

    def ended(self, wait_s: float) -> int | None:
        """The supervisor's exit code (negative: the signal); None: it is there after `wait_s`."""
        if self._supervisor is None:
            return None
        try:
            return self._supervisor.wait(wait_s)
        except subprocess.TimeoutExpired:
            return None

    def tale(self, since_ns: int | None) -> Tale:
        """What this supervisor has been told so far."""
        with contextlib.suppress(HoldfastError, OSError, KeyError):
            if (path := self._journal()) is not None:
                return read_tale(path, self.policy, since_ns)
        return Tale()

    def stop(self) -> int | None:
        """Save and stop, as Ctrl-C has it."""
        if self._supervisor is not None and self._supervisor.poll() is None:
            self._supervisor.send_signal(signal.SIGINT)
        return self.ended(LEAVE_LIMIT_S)

    def kill(self) -> None:
        """The end that a host comes to: its supervisor, and with it the tree, by SIGKILL."""
        if self._supervisor is not None:
            self._supervisor.kill()
            self._supervisor.wait()

    def close(self) -> None:
        """Leave nothing behind."""
        if self._supervisor is not None and self._supervisor.poll() is None:
            self._supervisor.send_signal(signal.SIGQUIT)
            if self.ended(LEAVE_LIMIT_S) is None:
                self.kill()

    def strike(self, rank: int, number: signal.Signals) -> int | None:
        """Send a rank of the attempt that runs a signal: when; None: there is no such rank."""
        journal = self._rank_journal(rank)
        if journal is None:
            return None
        (mark,), found = rank_marks(self.folder.identity.run_id), []
        for place in Path("/proc").glob("[0-9]*"):
            with contextlib.suppress(OSError):
                is_ours = mark in (place / "environ").read_bytes().split(b"\0")
                if is_ours and os.fsencode(f"{journal}\n") in (place / "maps").read_bytes():
                    found.append((_started(place), int(place.name)))
        if not found:
            return None
        at_ns, (_, pid) = now_ns(), min(found)  # what it forked has the journal mapped, too
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # it has ended meanwhile
            return None
        return at_ns

    def _journal(self) -> Path | None:
        """The journal of the supervisor that was started last; where it grows, if it still does."""
        folder = self.folder
        live = {
            home.name: path
            for home, path in live_journals(folder).items()
            if home.parent == folder.journal_dir
        }
        mine = {*live, *journal_names(folder.journal_dir)} - {*self._known}
        newest = max(mine, default="")
        return live.get(newest, folder.journal_dir / newest) if newest else None

    def _rank_journal(self, rank: int) -> Path | None:
        found = []
        for path in live_journals(self.folder).values():
            identity = identity_of(path)
            if identity is not None and identity.rank == rank:
                found.append((identity.attempt, path))
        return max(found)[1] if found else None


def _started(place: Path) -> int:
    """When a process was started, in the kernel's ticks since boot."""
    return int((place / "stat").read_bytes().rpartition(b")")[2].split()[19])
