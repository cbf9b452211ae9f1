"""Between the tiers: a fresh host is seeded from the run store, new programs are brought home.

In a thread of its own, at leisure: a store that hangs delays nobody, and what is not home yet is
compiled again by the next host. Where others may write the home, what lies there is sealed; without
a key to do so there is no home.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from holdfast.cache import traced
from holdfast.cache.loads import aside, clear
from holdfast.cache.seal import FileSealer
from holdfast.cache.tier import CacheTier
from holdfast.errors import HoldfastError
from holdfast.journal.atomic import make_part, write_atomic
from holdfast.journal.ownerless import written_by_anybody

PERIOD_S = 2.0
SEED_LIMIT_S = 5.0
SWEEP_ROUNDS = 300


def keep_in_step(
    local: CacheTier,
    place: Path,
    limit_bytes: int,
    seal: FileSealer | None,
    say: Callable[[str], None],
) -> Homing:
    """A tier of this host and its home at `place`, in the run store, where that can be trusted."""
    if seal is None and (where := written_by_anybody(place)):
        why = (
            f"compiled programs stay on this host: others may write {where}, and a program is "
            "code; with --cache-key-file FILE they go there sealed"
        )
        return Homing(local, None, limit_bytes, why_none=why)
    return Homing(local, CacheTier(place, say, seal), limit_bytes)


class Homing:
    """Keeps two tiers in step, and both within their bound."""

    def __init__(
        self, local: CacheTier, home: CacheTier | None, limit_bytes: int, *, why_none: str = ""
    ) -> None:
        """Without a home what is compiled stays on this host, within the bound; `why_none` says so.

        It is said once there is a program.
        """
        self.why_none = why_none
        self._local = local
        self._home = home
        self._limit_bytes = limit_bytes
        self._seeded = threading.Event()
        self._closing = threading.Event()
        self._looked_at_ns = 0
        self._at_home: set[str] | None = None
        self._rounds = 0
        self._failed = False
        self._is_done = False
        self._thread = threading.Thread(target=self._run, name="holdfast-cache", daemon=True)

    def start(self) -> None:
        """Begin, with the seeding."""
        self._thread.start()

    def wait_seeded(self, limit_s: float = SEED_LIMIT_S) -> bool:
        """Until this host has what the store had; False when that takes too long."""
        return self._seeded.wait(limit_s)

    def close(self, limit_s: float, *, is_done: bool = False) -> bool:
        """One last round; False when the store does not answer in time.

        When the run is done, nothing of it stays on this host but what could not be brought home.
        """
        self._is_done = is_done
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(limit_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        try:
            self.seed(SEED_LIMIT_S)
        finally:
            self._seeded.set()
        with contextlib.suppress(OSError):
            self._lower_priority()  # from now on nobody waits for it
        while not self._closing.wait(PERIOD_S):
            self._round()
        self._round()
        if self._home is not None:
            self._tell_uses(self._home)
        if self._is_done:
            self._leave()

    @staticmethod
    def _lower_priority() -> None:
        """A priority belongs to a thread, on Linux: that of this one."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)

    def seed(self, limit_s: float) -> tuple[int, int]:
        """Copy what is at home and not here, the last used first, while there is time and room.

        How many programs are here then, and how many bytes were copied.
        """
        if self._home is None:
            return 0, 0
        until_s = time.monotonic() + limit_s
        _copy_voids(self._home, self._local)
        stored = self._home.entries()
        self._at_home = {kept.name for kept in stored}
        here = {kept.name for kept in self._local.entries()} | aside(self._local.folder)
        room_bytes = self._limit_bytes
        files = copied_bytes = 0
        for kept in stored:
            room_bytes -= kept.size_bytes
            if room_bytes < 0 or time.monotonic() > until_s or self._closing.is_set():
                break
            if kept.name in here:
                files += 1
                continue
            data = self._home.read_sound(kept.name)
            if data is None:
                self._at_home.discard(kept.name)  # what this host compiles takes its place
            elif self._local.write(kept.name, data, used_unix_ns=kept.used_unix_ns):
                files, copied_bytes = files + 1, copied_bytes + len(data)
        return files, copied_bytes

    def _round(self) -> None:
        try:
            changed_ns = self._local.folder.stat().st_mtime_ns
        except OSError:
            return  # nothing was compiled yet
        self._rounds += 1
        if self._rounds % SWEEP_ROUNDS == 0:
            self._local.sweep(time.time())
            if self._home is not None:
                self._home.sweep(time.time())
        if changed_ns == self._looked_at_ns and not self._failed:
            return
        self._looked_at_ns = changed_ns
        if self.why_none and self._local.entries():
            self._local.say_once(self.why_none)
        self._failed = self._home is not None and not self._bring_home(self._home)
        self._local.bound(self._limit_bytes)

    def _tell_uses(self, home: CacheTier) -> None:
        """Other hosts' bounds and seeding go by when the programs at home were used last."""
        used = {kept.name: kept.used_unix_ns for kept in self._local.entries()}
        for kept in home.entries():
            if used.get(kept.name, 0) > kept.used_unix_ns:
                home.mark_used(kept.name, used[kept.name])

    def _leave(self) -> None:
        """Without a home all goes: the run is done, and nobody else may have what it compiled."""
        at_home = None if self._home is None else {kept.name for kept in self._home.entries()}
        with contextlib.suppress(OSError):
            for kept in self._local.entries():
                if at_home is None or kept.name in at_home:
                    (self._local.folder / kept.name).unlink()
            clear(self._local.folder)
            self._local.folder.rmdir()  # as long as another rank's are there, that fails

    def _bring_home(self, home: CacheTier) -> bool:
        """Copy what is here and not at home; False when something has to be tried again."""
        for name in aside(self._local.folder):
            with contextlib.suppress(OSError):
                (home.folder / name).unlink()
        _copy_voids(self._local, home)
        here = self._local.entries()
        known = self._at_home or set()
        new = [kept for kept in here if kept.name not in known]
        if not new:
            return True
        known = {kept.name for kept in home.entries()} - home.refused
        for kept in new:
            if kept.name in known:
                continue
            data = self._local.read_sound(kept.name)
            if data is not None and not home.write(
                kept.name, data, durable=True, used_unix_ns=kept.used_unix_ns
            ):
                return False
            known.add(kept.name)
        home.bound(self._limit_bytes, {kept.name: kept.used_unix_ns for kept in here})
        self._at_home = known
        return True


def _copy_voids(source: CacheTier, target: CacheTier) -> None:
    """Which programs are no longer what their functions say."""
    with contextlib.suppress(OSError, HoldfastError):
        for name in sorted(traced.voids(source.folder) - traced.voids(target.folder)):
            make_part(target.folder)
            write_atomic(target.folder / name, b"")
