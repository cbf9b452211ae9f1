"""Where the run's controller is, by the store; and one is started where there is none.

A thread of its own, since a store may hang; what is seen is judged by `core.hosts.succession`. Who
starts a controller does not hold the run: that process takes the lease itself.
"""

from __future__ import annotations

import contextlib
import subprocess
import threading
from collections.abc import Callable
from dataclasses import dataclass

from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.says import Over
from holdfast.core.hosts.succession import FollowStep, LeaseSight, Succession
from holdfast.distribution import VERSION
from holdfast.errors import (
    EXIT_CONFIGURATION,
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
    HoldfastError,
)
from holdfast.journal.attempts import attempts
from holdfast.journal.clocks import now_ns
from holdfast.journal.lease import LeaseState, LeaseView, WatchedHolder, heartbeat, view
from holdfast.journal.listening import read_listening
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder
from holdfast.journal.unlinked import tell_linked, tell_unlinked
from holdfast.link.values import Claim

UNLINKED_S, LINKED_S = 0.1, 2.0  # between two looks
# A bucket takes money for each look. So of the hosts with a link only those look so often that are
# the first to start another controller; the others do so each 4 to 6 s, and not all at once.
FIRST_HOSTS, SELDOM_S = 3, 5.0
ALL_LOOKS = 4000  # a second at most, of all hosts together, while none has a link
LEAVE_S = 5.0
TELL_NS = 15 * SECOND_NS  # without a link to a holder that listens
SILENT_S = 10.0  # a holder that does not listen may be no controller of several hosts
REFUSED_S = 60.0  # the same, of which an agent that has never found a controller draws the end
HELD = {LeaseState.HELD: True, LeaseState.UNKNOWN: None}


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
        start: Callable[[WatchedHolder], subprocess.Popen[bytes]],
        seen: Callable[[Sighting], None],
        say: Callable[[str, str], None],
        hosts: int = 1,
    ) -> None:
        """`start(watched)`: a process that is to be the controller; raises OSError."""
        self._is_linked = False
        self._look_s = max(UNLINKED_S, hosts / ALL_LOOKS)
        self._folder = folder
        self._succession = Succession(index)
        self._start = start
        self._seen = seen
        self._say = say
        self._child: subprocess.Popen[bytes] | None = None
        self._claim: Claim | None = None
        self._index = index
        self._linked_ns = 0  # when the controller was last linked, or first seen
        self._told: int | None = None  # the lease of which others know that there is no link
        self._silent_looks = 0
        # Of a holder that has another version: its lease, and its heartbeat when that was seen.
        self._other_version: tuple[int, bytes] | None = None
        self._ends, self._wakes = threading.Event(), threading.Event()
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
        self._wakes.set()
        self._thread.join(LEAVE_S)
        if self._child is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._child.wait(LEAVE_S)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                self.look()
            except HoldfastError:
                self._succession.store_is_away(now_ns())
            self._wakes.wait(self.rest_s)
            self._wakes.clear()

    @property
    def is_linked(self) -> bool:
        """Whether this host has a link to the controller; where it goes down, it looks at once."""
        return self._is_linked

    @is_linked.setter
    def is_linked(self, is_linked: bool) -> None:
        was_linked, self._is_linked = self._is_linked, is_linked
        if was_linked and not is_linked:
            self._wakes.set()

    @property
    def rest_s(self) -> float:
        """Until the next look."""
        if not self.is_linked:
            return self._look_s
        if self._index < FIRST_HOSTS:
            return LINKED_S
        return SELDOM_S * (0.8 + self._index % 41 / 100)

    def look(self) -> None:
        """Once; called from its thread, as long as that runs."""
        folder, at_ns = self._folder, now_ns()
        refresh(folder.lease_dir)
        lease = view(folder)
        sight = LeaseSight(
            lease.epoch,
            HELD.get(lease.state, False),
            lease.state is LeaseState.RELEASED and lease.last_words is not None,
            heartbeat(folder, lease.epoch),
        )
        step = self._succession.look(
            at_ns, sight, is_linked=self.is_linked, is_starting=self._is_starting()
        )
        if step is FollowStep.LEAVE and lease.last_words is not None:
            words = lease.last_words
            over = Over(words.exit_code, words.words, words.leaves_memory)
            self._seen(Sighting(over=over))
        elif step is FollowStep.FOLLOW:
            self._follow(lease, at_ns)
            self._tell_whether_linked(lease.epoch, at_ns)
        elif step is FollowStep.START:
            self._start_one()

    def _tell_whether_linked(self, epoch: int, at_ns: int) -> None:
        """A controller that hears too few hosts looks whether they live, and cannot reach it."""
        claim = self._claim
        if self.is_linked or claim is None or claim.term != epoch:
            self._linked_ns = at_ns
            if self._told is not None:
                tell_linked(self._folder, self._told, self._index)
                self._told = None
        elif self._told != epoch and at_ns - self._linked_ns > TELL_NS:
            tell_unlinked(self._folder, epoch, self._index)
            self._told = epoch

    def _is_starting(self) -> bool:
        """Whether the controller that was started here lives; counts those that failed."""
        child = self._child
        code = None if child is None else child.poll()
        if code is None:
            return child is not None
        self._child = None
        if code == EXIT_SAVED_START_ME_AGAIN:
            self._succession.has_given_back(now_ns())
            return False
        if code != 0 and self._succession.has_failed():
            self._gives_up(code if code > 0 else EXIT_UNAVAILABLE)
        return False

    def _gives_up(self, code: int) -> None:
        self._seen(Sighting(over=Over(code, "the controller of the run cannot be started")))

    def _start_one(self) -> None:
        try:
            epoch, beat, still_ns = self._succession.watched(now_ns())
            over_before, still_s = self._succession.over_before, still_ns / SECOND_NS
            self._child = self._start(WatchedHolder(epoch, still_s, over_before, beat))
        except OSError as error:
            self._say("warning", f"The controller of the run cannot be started: {error}")
            if self._succession.has_failed():
                self._gives_up(EXIT_UNAVAILABLE)

    def _follow(self, lease: LeaseView, at_ns: int) -> None:
        where = read_listening(self._folder, lease.epoch)
        if where is None:
            self._silent_looks += 1
            silent_s = self._silent_looks * self._look_s
            holder = lease.holder or "an unknown process"
            if silent_s >= SILENT_S > silent_s - self._look_s:
                self._say("warning", f"The run is held by {holder}, which takes no other hosts")
            if silent_s >= REFUSED_S and self._claim is None:
                name = self._folder.path.name
                words = (
                    f"run {name!r} is held by {holder}, which trains on one host alone; stop it "
                    f"with `holdfast stop {name}`, or give this run another name"
                )
                self._seen(Sighting(over=Over(EXIT_UNAVAILABLE, words)))
            return
        self._silent_looks = 0
        if where.holdfast not in ("", VERSION) and self._claim is None:
            self._refuse_version(lease, where.holdfast)
            return
        claim = Claim(where.addresses, where.port, lease.epoch, where.certificate)
        if claim != self._claim:
            self._claim = claim
            self._succession.has_found_one()
            self._linked_ns = at_ns  # who comes late, or from another one, has only begun to dial
            self._seen(Sighting(claim=claim))
        if not self.is_linked:
            newest = attempts(self._folder).newest
            self._seen(Sighting(newest_attempt=None if newest is None else newest.attempt))

    def _refuse_version(self, lease: LeaseView, version: str) -> None:
        """Once the holder has shown life: the run may have been stopped for an upgrade."""
        seen = lease.epoch, heartbeat(self._folder, lease.epoch)
        first = self._other_version
        if first is None or first[0] != lease.epoch:
            self._other_version = seen
        elif first != seen:
            words = (
                f"this host has Holdfast {VERSION}, and the run's controller, "
                f"{lease.holder or 'an unknown process'}, has {version}: have one version on all "
                "hosts"
            )
            self._seen(Sighting(over=Over(EXIT_CONFIGURATION, words)))
