"""Compilation, from the moment JAX is there: watched, kept, and counted.

How many programs were found compiled, how many were not, and what that saved stands in the rank's
words, which a SIGKILL does not take along. They are what JAX reports through its public monitoring
interface, so they count the user's own cache as well.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from holdfast.cache import traced
from holdfast.cache.entry import name_of
from holdfast.config import environment_digest
from holdfast.core.kept_programs import compare_in_s
from holdfast.journal.layout import RankPhase, Word
from holdfast.journal.rank_page import RankPage
from holdfast.session.attachment import Attachment
from holdfast.session.hooks import Guard
from holdfast.session.say import say
from holdfast.session.upon_import import upon_import
from holdfast.session.watch import watch_compilation

if TYPE_CHECKING:  # what keeps programs is imported once JAX is: most scripts have none
    from holdfast.cache.home import Homing
    from holdfast.session.compile_cache import ProgramCache
    from holdfast.session.kept_check import KeptCheck
    from holdfast.session.preload import Loaded, Preload

ASKED = "/jax/compilation_cache/compile_requests_use_cache"
FOUND = "/jax/compilation_cache/cache_hits"
FINDING_S = "/jax/compilation_cache/cache_retrieval_time_sec"
SAVED_S = "/jax/compilation_cache/compile_time_saved_sec"
CLOSE_LIMIT_S = 3.0
DONE_LIMIT_S = 60.0  # nothing presses: each program that does not come home is compiled anew


class Compiling:
    """What a session has to do with compilation; JAX need not be there, nor ever come."""

    def __init__(
        self, attachment: Attachment, give_up: Callable[[str, int | None], NoReturn]
    ) -> None:
        """`give_up` ends the attempt, for that reason, and has the run go back.

        To the end of the attempt in which the program was last right; None: to before this one.
        """
        self._attachment = attachment
        self._give_up = give_up
        self._checks: list[KeptCheck] = []
        self._homing: Homing | None = None
        self._preload: Preload | None = None
        self._is_awaited = False
        self.cache: ProgramCache | None = None
        self.counts = Counts(attachment.writer.page)
        self._call_off = upon_import("jax", self._jax_is_there, "programs are compiled again")

    def close(self) -> None:
        """Bring home what is new."""
        self._call_off()
        for check in self._checks:
            check.close()
        if self.cache is not None:
            self.cache.loads.close()
        if self._homing is not None:
            is_done = self._attachment.writer.page.snapshot().phase is RankPhase.FINISHED
            self._homing.close(DONE_LIMIT_S if is_done else CLOSE_LIMIT_S, is_done=is_done)

    def expect(self, key_stem: str) -> None:
        """A function of `run.compile`'s will be called, whose programs' keys begin so."""
        if self.cache is not None:
            from holdfast.session.preload import Preload

            if self._preload is None:
                self._preload = Preload(self.cache)
            self._preload.add(key_stem)
            if self._is_awaited:
                self._preload.begin()

    def preload(self) -> None:
        """The script is about to wait, or to restore: load what its functions needed last."""
        self._is_awaited = True
        if self._preload is not None:
            self._preload.begin()

    def preloaded(self, key: str) -> Loaded | None:
        """What was loaded ahead under this key."""
        return None if self._preload is None else self._preload.take(key)

    # --- kept steps, and their functions ----------------------------------------------------

    @property
    def compares(self) -> bool:
        """Whether this rank compares: one of each host does, for all trace the same."""
        return self._attachment.local_rank == 0

    def compare(self, cache: ProgramCache, check: KeptCheck, traced_ns: object) -> None:
        """Have a program that was found compared with its function once that is due."""
        last, ago_s = traced.last_traced(cache.tier.folder, name_of(check.key)), None
        if last is not None and last.environment == environment_digest():
            ago_s = time.time() - last.at_unix_s
        trace_s = traced_ns / 1e9 if isinstance(traced_ns, int) else 0.0
        self._checks.append(check)
        check.begin(compare_in_s(trace_s, ago_s))

    def proved(self, key: str) -> None:
        """The program of this key is what its function says now."""
        if self.cache is not None:
            folder, attempt = self.cache.tier.folder, self._attachment.attempt
            traced.note_traced(folder, name_of(key), environment_digest(), attempt)

    def disown(self, name: str, check: KeptCheck, why: str) -> NoReturn:
        """A program that was used is not what its function says: throw it away, and go back."""
        proved_in = None
        if self.cache is not None:
            last = traced.last_traced(self.cache.tier.folder, name_of(check.key))
            proved_in = None if last is None else last.attempt
            traced.void(self.cache.tier.folder, check.made_from)
        self._give_up(
            f"{name} is not what its kept program was compiled from: {why}. It depends on "
            "something that Holdfast does not see, such as a variable or a file that a package "
            "reads; the program is thrown away",
            proved_in,
        )

    def found(self, start_ns: int, end_ns: int, saved_ns: int) -> None:
        """A whole program was found, between these times, and spared that much."""
        self._attachment.writer.record_span("compile", start_ns, end_ns)
        self.counts.add(asked=1, hits=1, saved_ns=saved_ns)

    def _jax_is_there(self) -> None:
        watch_compilation(self._attachment.writer)
        self._open_cache()
        self.counts.listen()

    def _open_cache(self) -> None:
        programs = self._attachment.programs
        if programs is None or self._attachment.is_inert:
            return
        from holdfast.session.compile_cache import open_cache, point_jax_at

        attempt, rank = self._attachment.attempt, self._attachment.rank
        cache, homing = open_cache(programs, attempt, rank, say)
        if point_jax_at(cache, say):
            self.cache = self.counts.cache = cache
            if homing is not None:
                self._homing = homing
                homing.start()


class Counts:
    """Hits, misses and what was saved, as JAX reports them, put into the page."""

    def __init__(self, page: RankPage) -> None:
        self.cache: ProgramCache | None = None
        self._page = page
        self._lock = threading.Lock()
        self._asked = self._hits = self._saved_ns = 0
        self._reported_saved_ns = 0  # what JAX says was saved by the program found last

    def listen(self) -> None:
        """Begin. In versions that report nothing, nothing is counted."""
        monitoring = getattr(sys.modules["jax"], "monitoring", None)
        for name, callback in (
            ("register_event_listener", self.happened),
            ("register_event_duration_secs_listener", self.took),
        ):
            register = getattr(monitoring, name, None)
            if register is not None:
                register(Guard(callback, "compilations are no longer counted"))

    def happened(self, event: str, **_: object) -> None:
        """JAX reports that something happened."""
        if event == ASKED:
            # JAX says so without a cache as well.
            self.add(asked=bool(sys.modules["jax"].config.jax_compilation_cache_dir))
        elif event == FOUND:
            self.add(hits=1)

    def took(self, event: str, duration_s: float, **_: object) -> None:
        """JAX reports a duration: first what it takes to be saved, then what the finding took.

        It knows whole seconds of compilation only; our own entries know better.
        """
        if event == SAVED_S:
            self._reported_saved_ns = int(duration_s * 1e9)
        elif event == FINDING_S:
            last = None if self.cache is None else self.cache.last
            if self.cache is not None:
                self.cache.loaded()
            if last is not None and last.is_found and last.compile_ns:
                self.add(saved_ns=last.compile_ns - int(duration_s * 1e9))
            else:
                self.add(saved_ns=self._reported_saved_ns)

    def add(self, *, asked: int = 0, hits: int = 0, saved_ns: int = 0) -> None:
        """Count, and show it."""
        with self._lock:
            self._asked += asked
            self._hits += hits
            self._saved_ns += saved_ns
            page = self._page
            page.store(Word.COMPILE_HITS, self._hits)
            page.store(Word.COMPILE_MISSES, max(0, self._asked - self._hits))
            page.store(Word.COMPILE_SAVED_NS, max(0, self._saved_ns))
