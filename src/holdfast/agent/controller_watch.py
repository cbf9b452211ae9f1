"""Where the run's controller is, by the store; and one is started where there is none.

A thread of its own, since a store may hang. Who starts a controller does not hold the run: that
process takes the lease itself, and of several that are started one gets it. Hosts with low numbers
come first, so that not all start one.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.hosts.says import Over
from holdfast.errors import HoldfastError
from holdfast.journal.attempts import attempts
from holdfast.journal.lease import LeaseState, LeaseView, heartbeat, view
from holdfast.journal.listening import read_listening
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder
from holdfast.link.values import Claim

UNLINKED_S, LINKED_S = 0.25, 2.0  # between two looks
TURN_S, LONGEST_TURN_S = 2.0, 10.0  # how long each host leaves it to those before it
STILL_S = 15.0  # a heartbeat from elsewhere: then its holder is tried to be followed
SILENT_S = 10.0  # a holder that does not listen is none of ours
FAILURES = 3  # of controllers, one after another
LEAVE_S = 5.0


@dataclass(frozen=True, slots=True)
class Sighting:
    """What was seen: a controller to dial, the end of the run, or a newer attempt than ours."""

    claim: Claim | None = None
    over: Over | None = None
    newest_attempt: int | None = None


class ControllerWatch:
    """`seen` and `say` are called from its thread. `is_linked` is set by the owner."""

    def __init__(
        self,
        folder: RunFolder,
        index: int,
        start: Callable[[], subprocess.Popen[bytes]],
        seen: Callable[[Sighting], None],
        say: Callable[[str, str], None],
    ) -> None:
        """`start()`: a process that is to be the controller; raises OSError."""
        self.is_linked = False
        self._folder = folder
        self._patience_s = min(TURN_S * index, LONGEST_TURN_S + index / 10)
        self._start = start
        self._seen = seen
        self._say = say
        self._child: subprocess.Popen[bytes] | None = None
        self._before: int | None = None  # terms up to that were over before this began
        self._claim: Claim | None = None
        self._absent_since_s: float | None = None
        self._silent_since_s: float | None = None  # a holder that does not listen
        self._beat: tuple[int, bytes] = (0, b"")
        self._beat_s = 0.0
        self._failures = 0
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="holdfast-watch", daemon=True)

    @property
    def pids(self) -> list[int]:
        """Of the controller, if it was started here and lives."""
        child = self._child
        return [child.pid] if child is not None and child.returncode is None else []

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Look no more, and leave the controller a moment to end."""
        self._ends.set()
        self._thread.join(LEAVE_S)
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(LEAVE_S)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                refresh(self._folder.lease_dir)
                self._look(view(self._folder), time.monotonic())
            except HoldfastError:
                self._absent_since_s = None  # the store is away: nothing is known
                self._beat_s = time.monotonic()
            self._ends.wait(LINKED_S if self.is_linked else UNLINKED_S)

    def _look(self, lease: LeaseView, now_s: float) -> None:
        if self._before is None:
            is_over = lease.state in (LeaseState.RELEASED, LeaseState.DEAD, LeaseState.FREE)
            self._before = lease.epoch if is_over else lease.epoch - 1
        if lease.state is LeaseState.RELEASED and lease.epoch > self._before and lease.last_words:
            self._seen(Sighting(over=Over(*lease.last_words)))
            return
        if self._is_held(lease, now_s):
            self._absent_since_s = None
            self._aim(lease, now_s)
            if not self.is_linked:
                self._seen(Sighting(newest_attempt=attempts(self._folder).newest_number))
        else:
            self._have_one(now_s)

    def _is_held(self, lease: LeaseView, now_s: float) -> bool:
        """Whether its holder is not known to be gone."""
        if lease.state is not LeaseState.UNKNOWN or self.is_linked:
            self._beat_s = now_s
            return lease.state in (LeaseState.HELD, LeaseState.UNKNOWN)
        beat = lease.epoch, heartbeat(self._folder, lease.epoch)
        if beat != self._beat:
            self._beat, self._beat_s = beat, now_s
        return now_s - self._beat_s < STILL_S

    def _aim(self, lease: LeaseView, now_s: float) -> None:
        where = read_listening(self._folder, lease.epoch)
        if where is None:
            if self._silent_since_s is None:
                self._silent_since_s = now_s
            elif now_s - self._silent_since_s > SILENT_S:
                self._silent_since_s = now_s + 60
                holder = lease.holder or "an unknown process"
                self._say("warning", f"The run is held by {holder}, which does not take hosts")
            return
        self._silent_since_s = None
        claim = Claim(where.addresses, where.port, lease.epoch)
        if claim != self._claim:
            self._claim, self._failures = claim, 0
            self._seen(Sighting(claim=claim))

    def _have_one(self, now_s: float) -> None:
        """No controller is there: start one, once those with lower numbers had their turn."""
        if self._absent_since_s is None:
            self._absent_since_s = now_s
        child = self._child
        if child is not None:
            code = child.poll()
            if code is None:
                return
            self._child = None
            self._failures += code != 0
            if self._failures >= FAILURES:
                words = f"the controller of the run cannot be started (exit code {code})"
                self._seen(Sighting(over=Over(code if 0 < code < 128 else 69, words)))
                return
        if now_s - self._absent_since_s < self._patience_s:
            return
        try:
            self._child = self._start()
        except OSError as error:
            self._failures += 1
            self._say("warning", f"The controller cannot be started: {error}")
        self._absent_since_s = now_s
