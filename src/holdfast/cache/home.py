"""Between the tiers: a fresh host is seeded from the run store, new programs are brought home.

In a thread of its own, at leisure: a store that hangs delays nobody, and what is not home yet is
compiled again by the next host.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time

from holdfast.cache.tier import Tier

PERIOD_S = 2.0
SEED_LIMIT_S = 5.0
SWEEP_ROUNDS = 300


class Homing:
    """Keeps two tiers in step, and both within their bound."""

    def __init__(self, local: Tier, home: Tier, limit_bytes: int) -> None:
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
            self._seed()
        finally:
            self._seeded.set()
        with contextlib.suppress(OSError):
            self._lower_priority()  # from now on nobody waits for it
        while not self._closing.wait(PERIOD_S):
            self._round()
        self._round()
        self._tell_uses()
        if self._is_done:
            self._leave()

    @staticmethod
    def _lower_priority() -> None:
        """A priority belongs to a thread, on Linux: that of this one."""
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), 10)

    def _seed(self) -> None:
        """Copy what is at home and not here, the last used first, while there is time and room."""
        until_s = time.monotonic() + SEED_LIMIT_S
        stored = self._home.entries()
        self._at_home = {kept.name for kept in stored}
        here = {kept.name for kept in self._local.entries()}
        room_bytes = self._limit_bytes
        for kept in stored:
            room_bytes -= kept.size_bytes
            if room_bytes < 0 or time.monotonic() > until_s or self._closing.is_set():
                return
            if kept.name not in here and (data := self._home.read_sound(kept.name)) is not None:
                self._local.write(kept.name, data, used_unix_ns=kept.used_unix_ns)

    def _round(self) -> None:
        try:
            changed_ns = self._local.folder.stat().st_mtime_ns
        except OSError:
            return  # nothing was compiled yet
        self._rounds += 1
        if self._rounds % SWEEP_ROUNDS == 0:
            self._local.sweep(time.time())
            self._home.sweep(time.time())
        if changed_ns == self._looked_at_ns and not self._failed:
            return
        self._looked_at_ns = changed_ns
        self._failed = not self._bring_home()
        self._local.bound(self._limit_bytes)

    def _tell_uses(self) -> None:
        """Other hosts' bounds and seeding go by when the programs at home were used last."""
        used = {kept.name: kept.used_unix_ns for kept in self._local.entries()}
        for kept in self._home.entries():
            if used.get(kept.name, 0) > kept.used_unix_ns:
                self._home.mark_used(kept.name, used[kept.name])

    def _leave(self) -> None:
        at_home = {kept.name for kept in self._home.entries()}
        with contextlib.suppress(OSError):
            for kept in self._local.entries():
                if kept.name in at_home:
                    (self._local.folder / kept.name).unlink()
            self._local.folder.rmdir()  # as long as another rank's are there, that fails

    def _bring_home(self) -> bool:
        """Copy what is here and not at home; False when something has to be tried again."""
        here = self._local.entries()
        known = self._at_home or set()
        new = [kept for kept in here if kept.name not in known]
        if not new:
            return True
        known = {kept.name for kept in self._home.entries()}
        for kept in new:
            if kept.name in known:
                continue
            data = self._local.read_sound(kept.name)
            if data is not None and not self._home.write(
                kept.name, data, durable=True, used_unix_ns=kept.used_unix_ns
            ):
                return False
            known.add(kept.name)
        self._home.bound(self._limit_bytes, {kept.name: kept.used_unix_ns for kept in here})
        self._at_home = known
        return True
