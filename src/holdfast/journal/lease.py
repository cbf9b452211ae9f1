"""The lease: a run is supervised by one process at a time.

    lease/000007.json       claim of epoch 7: who holds it. Made by `link`, never changed or removed
    lease/000007.alive      the holder's heartbeat: a counter, replaced every HEARTBEAT_S
    lease/000007.released   the holder gave the lease back; how it ended the run, if it did
    lease/reserved          room for that, should the disk be full then

The run is held by the claim with the highest epoch. To acquire it, one finds that claim, makes sure
that its holder is gone, and creates the claim of the next epoch. Because claims stay for ever, that
name is free exactly once: of any number of acquirers, however late the slow ones come, one wins,
and nobody's earlier judgement can win later. A holder that is wrongly taken for dead (a host that
slept for a minute) finds the next epoch's claim when it renews, and its attempts are fenced off.

Whether a holder is gone: on the same boot and in the same pid namespace the process table says so
at once. Elsewhere its heartbeat must stand still for SILENT_AFTER_S *while the acquirer watches it
on its own monotonic clock*: wall clocks and time stamps of different hosts are never compared.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from holdfast.core.durations import seconds_in_words
from holdfast.core.value import value
from holdfast.errors import RunHeld, StoreUnavailable
from holdfast.journal.atomic import (
    create_exclusive,
    create_reserved,
    encode_json,
    make_part,
    read_json,
    reserve,
    store_errors,
    write_atomic,
)
from holdfast.journal.fields import text, whole
from holdfast.journal.holder import RunHolder, Sign, is_dying, look
from holdfast.journal.regular import read_regular
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder

HEARTBEAT_S = 5.0
SILENT_AFTER_S = 30.0
WATCH_EVERY_S = 0.5
DYING_LIMIT_S = 10.0
DYING_EVERY_S = 0.01

_CLAIM, _ALIVE, _RELEASED = "json", "alive", "released"
_EPOCH_DIGITS = 12  # nobody claims so often; a longer name would make the next one too long
_HEARTBEAT_BYTES = 64
_RESERVED_BYTES = 4096


class LeaseState(Enum):
    """How the newest lease of a run stands, as far as one look can tell."""

    FREE = "free"  # never held
    HELD = "held"
    UNKNOWN = "unknown"  # held from elsewhere: its heartbeat's age is all there is
    DEAD = "dead"  # its holder died without giving it back
    RELEASED = "released"


class LastWords(NamedTuple):
    """How a supervisor ended its run: with which exit code, and in words.

    `leaves_memory`: a set in memory is newer than all that is durable, or may be. `by_person`:
    somebody has asked for that end, and starts the run again when they like. `job`: the cluster's
    name for the start that has ended so; "": it has none.
    """

    exit_code: int
    words: str
    leaves_memory: bool = True
    by_person: bool = False
    job: str = ""


class WatchedHolder(NamedTuple):
    """For so long this host has watched the heartbeat of that epoch, and it stood still at `beat`.

    Whoever goes on to watch compares: beats are counted, so none has come in between if it is the
    same. `over_before`: if the run was over by a lease up to this one, it is begun again.
    """

    epoch: int
    still_s: float
    over_before: int = 0
    beat: bytes = b""

    @classmethod
    def parse(cls, words: str) -> WatchedHolder:
        """From `7:12.5:3:0a`, as `str` gives it; raises ValueError."""
        epoch, still_s, over_before, beat = words.split(":")
        counts_s = min(max(0.0, float(still_s)), SILENT_AFTER_S)
        return cls(int(epoch), counts_s, int(over_before), bytes.fromhex(beat))

    def __str__(self) -> str:
        return f"{self.epoch}:{self.still_s}:{self.over_before}:{self.beat.hex()}"


@value
class LeaseView:
    """The newest lease. `holder` is None if there is none, or if its claim is damaged.

    `seen_unix_ns` is when the holder last showed life, by the file's time stamp: for people to
    read, never to decide by. `last_words` is what it told when it gave the lease back, if it did.
    """

    state: LeaseState
    epoch: int
    holder: RunHolder | None
    seen_unix_ns: int | None
    last_words: LastWords | None = None


@dataclass(slots=True)
class Lease:
    """The right to supervise a run. Belongs to the process that acquired it: a fork's is inert."""

    folder: RunFolder
    epoch: int
    holder: RunHolder
    _beats: int = field(default=0, repr=False)

    def renew(self) -> None:
        """Show life; due every HEARTBEAT_S. Raises as `check`."""
        if self._inert():
            return
        self.check()
        self._beats += 1
        write_atomic(_path(self.folder, self.epoch, _ALIVE), b"%d\n" % self._beats, durable=False)

    def check(self) -> None:
        """Make sure that the lease is still ours.

        Raises RunHeld when somebody took it over (stop writing, leave), StoreUnavailable when that
        cannot be known now (go on, ask again).
        """
        if self._inert():
            return
        refresh(self.folder.lease_dir)
        with store_errors("check the lease", self.folder.lease_dir):
            taken = _path(self.folder, self.epoch + 1, _CLAIM).exists()
            _path(self.folder, self.epoch, _CLAIM).stat()
        if taken:
            successor = holder_of(self.folder, self.epoch + 1)
            raise RunHeld(
                f"run {self.folder.name!r} was taken over by {successor or 'an unknown process'} "
                f"while this supervisor (lease {self.epoch}) showed no life; it must stop now"
            )

    def end(self, last_words: LastWords | None) -> bool:
        """Give the run back with its last words; whether they count. Raises StoreUnavailable.

        They do not once somebody has taken the run over: whether that one has read them, nobody
        knows. Then nobody else may be told of that end.
        """
        try:
            self.check()
            self.release(last_words)
            self.check()
        except RunHeld:
            return False
        return True

    def release(self, last_words: LastWords | None = None) -> None:
        """Give the run back; again is harmless. Raises StoreUnavailable."""
        if self._inert():
            return
        fields = last_words._asdict() if last_words is not None else {}
        with contextlib.suppress(FileExistsError):
            released = _path(self.folder, self.epoch, _RELEASED)
            create_reserved(released, encode_json(fields), _reserved(self.folder))

    def _inert(self) -> bool:
        return os.getpid() != self.holder.pid


def acquire(
    folder: RunFolder,
    holder: RunHolder | None = None,
    *,
    on_wait: Callable[[str], None] = lambda _words: None,
    watched: WatchedHolder | None = None,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> Lease:
    """Take the run's lease for this process.

    Returns at once, or raises RunHeld at once, when the last holder was of this host; otherwise
    watches its heartbeat for up to SILENT_AFTER_S and says so to `on_wait` first. `watched`: what
    this host has watched of it already. Raises StoreUnavailable when the store cannot be written.
    """
    holder = holder or RunHolder.current()
    make_part(folder.lease_dir)
    refresh(folder.lease_dir)
    epoch = _newest_epoch(folder)
    while True:
        if epoch:
            seen = watched if watched is not None and watched.epoch == epoch else None
            _ensure_free(folder, epoch, on_wait, seen, clock, sleep)
        epoch += 1
        try:
            create_exclusive(_path(folder, epoch, _CLAIM), encode_json(holder.to_json()))
        except FileExistsError:
            # Somebody was faster, or a network filesystem listed the folder from its cache. The
            # claim of this epoch is there, whatever a listing says: judge that one.
            continue
        reserve(_reserved(folder), _RESERVED_BYTES)
        return Lease(folder, epoch, holder)


def over_meanwhile(lease: Lease, over_before: int) -> LastWords | None:
    """The last words of a holder before this one, if the run was over with them.

    Who waits until a holder is silent may take the lease of one that has just ended the run: that
    end stands, also if another has taken the lease in between, and died before it looked here. One
    that has shown life or given the run back has looked. `over_before`: a run that was over by then
    is begun again.
    """
    folder = lease.folder
    for epoch in range(lease.epoch - 1, over_before, -1):
        words = _last_words(folder, epoch)
        has_looked = heartbeat(folder, epoch) or _path(folder, epoch, _RELEASED).exists()
        if words is not None or has_looked:
            return words
    return None


def view(folder: RunFolder) -> LeaseView:
    """How the run's lease stands. Raises StoreUnavailable when the folder cannot be read."""
    epoch = _newest_epoch(folder)
    if not epoch:
        return LeaseView(LeaseState.FREE, 0, None, None)
    holder = holder_of(folder, epoch)
    state, seen_ns = _state(folder, epoch, holder), _last_seen_ns(folder, epoch)
    last = _last_words(folder, epoch) if state is LeaseState.RELEASED else None
    return LeaseView(state, epoch, holder, seen_ns, last)


def _ensure_free(
    folder: RunFolder,
    epoch: int,
    on_wait: Callable[[str], None],
    seen: WatchedHolder | None,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> None:
    """Return when the holder of `epoch` is gone; raise RunHeld when it shows life."""
    holder = holder_of(folder, epoch)
    state = _state(folder, epoch, holder)
    if state is LeaseState.UNKNOWN:
        first = heartbeat(folder, epoch) if seen is None else seen.beat
        silent_after_s = SILENT_AFTER_S - (0.0 if seen is None else seen.still_s)
        on_wait(
            f"run {folder.name!r} was held by {holder or 'an unknown process'}; waiting up to "
            f"{seconds_in_words(max(0.0, silent_after_s))} to see whether it is alive"
        )
        state = _watch(folder, epoch, first, silent_after_s, clock, sleep)
    elif state is LeaseState.HELD and holder is not None:
        state = _watch_dying(folder, epoch, holder, clock, sleep)
    if state is LeaseState.HELD:
        raise RunHeld(
            f"run {folder.name!r} is held by {holder or 'an unknown process'}; "
            f"stop it with `holdfast stop {folder.name}` or wait"
        )


def _watch(
    folder: RunFolder,
    epoch: int,
    first: bytes,
    silent_after_s: float,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> LeaseState:
    """Watch a heartbeat from elsewhere until it moves, is given up, or stood still long enough."""
    until = clock() + silent_after_s
    left_s = silent_after_s
    while True:
        sleep(max(0.0, min(left_s, WATCH_EVERY_S)))
        left_s = until - clock()
        refresh(folder.lease_dir)
        if _path(folder, epoch, _RELEASED).exists():
            return LeaseState.RELEASED
        if heartbeat(folder, epoch) != first:
            return LeaseState.HELD
        if left_s <= 0 or _path(folder, epoch + 1, _CLAIM).exists():
            return LeaseState.DEAD  # of the next one, if somebody else saw it, is asked next


def _watch_dying(
    folder: RunFolder,
    epoch: int,
    holder: RunHolder,
    clock: Callable[[], float],
    sleep: Callable[[float], None],
) -> LeaseState:
    """Who starts a run at once after a SIGKILL of its holder finds it dying, and not yet dead."""
    began = clock()
    sleep(DYING_EVERY_S)  # between taking its signal and beginning to exit it shows no sign of it
    while (state := _state(folder, epoch, holder)) is LeaseState.HELD:
        if not is_dying(holder):
            return _state(folder, epoch, holder)  # it may have gone just now
        if clock() - began > DYING_LIMIT_S:
            break
        sleep(DYING_EVERY_S)
    return state


def _state(folder: RunFolder, epoch: int, holder: RunHolder | None) -> LeaseState:
    with store_errors("read the lease", folder.lease_dir):
        if _path(folder, epoch, _RELEASED).exists():
            return LeaseState.RELEASED
    sign = look(holder) if holder else Sign.UNKNOWN
    return {
        Sign.ALIVE: LeaseState.HELD,
        Sign.DEAD: LeaseState.DEAD,
        Sign.UNKNOWN: LeaseState.UNKNOWN,
    }[sign]


def _path(folder: RunFolder, epoch: int, kind: str) -> Path:
    return folder.lease_dir / f"{epoch:06d}.{kind}"


def _reserved(folder: RunFolder) -> Path:
    return folder.lease_dir / "reserved"


def _newest_epoch(folder: RunFolder) -> int:
    """The highest epoch that was ever claimed; 0 if none was."""
    newest = 0
    with store_errors("read the lease", folder.lease_dir), contextlib.suppress(FileNotFoundError):
        for name in os.listdir(folder.lease_dir):  # noqa: PTH208 - names are all we need
            stem, _, kind = name.partition(".")
            if kind == _CLAIM and len(stem) <= _EPOCH_DIGITS and stem.isascii() and stem.isdigit():
                newest = max(newest, int(stem))
    return newest


def holder_of(folder: RunFolder, epoch: int) -> RunHolder | None:
    """Who claimed that epoch; None if the claim is damaged (its heartbeat still speaks for it)."""
    with contextlib.suppress(StoreUnavailable, FileNotFoundError, ValueError):
        return RunHolder.from_json(read_json(_path(folder, epoch, _CLAIM)))
    return None


def _last_words(folder: RunFolder, epoch: int) -> LastWords | None:
    """None if nothing was told, or nothing that can be read."""
    with contextlib.suppress(StoreUnavailable, FileNotFoundError, ValueError):
        raw = read_json(_path(folder, epoch, _RELEASED))
        leaves_memory = raw.get("leaves_memory", True) is not False
        code, by_person = whole(raw, "exit_code", high=255), raw.get("by_person") is True
        job = text({"job": "", **raw}, "job")
        return LastWords(code, text(raw, "words"), leaves_memory, by_person, job)
    return None


def heartbeat(folder: RunFolder, epoch: int) -> bytes:
    """Another one each time that the holder has shown life; raises StoreUnavailable."""
    with store_errors("read the lease", folder.lease_dir), contextlib.suppress(FileNotFoundError):
        return read_regular(_path(folder, epoch, _ALIVE), _HEARTBEAT_BYTES)
    return b""


def _last_seen_ns(folder: RunFolder, epoch: int) -> int | None:
    for kind in (_RELEASED, _ALIVE, _CLAIM):
        with contextlib.suppress(OSError):
            return _path(folder, epoch, kind).stat().st_mtime_ns
    return None
