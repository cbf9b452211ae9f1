"""All runs of a store, each in a few numbers; asked again and again, or once.

    runs = RunList(RunStore.at(place), cache=summaries_folder())
    listing = runs.look(time.time_ns())

Journals are read of runs that have changed since the last look, and of runs that end inside one of
the windows asked for. Everything else is known by how its files look from outside (`runs.cache`),
so that a thousand finished runs cost a thousand looks at folders. A run that somebody supervises is
always read; between looks it is kept open, so that only what is new is read.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from holdfast.core.ledger.summary import ALL, RunSummary, Spent, Window, rolling
from holdfast.errors import HoldfastError, StoreUnavailable
from holdfast.journal.lease import LeaseState, view
from holdfast.journal.names import check_name
from holdfast.journal.remote import remote_of
from holdfast.journal.scratch import existing_scratch
from holdfast.journal.store import RunFolder, RunStore
from holdfast.runs.cache import Outside, SummaryCache, outside
from holdfast.runs.state import ENDED, is_held

if TYPE_CHECKING:
    from holdfast.runs.reading import RunReading

WORTH_A_PROCESS = 40  # runs, for each
KEPT_OPEN = 64  # each takes some descriptors, and the memory of its steps
SETTLED_NS = 2_000_000_000  # many ticks of any file system's clock
# A page that is mapped goes to the disk after some 35 s at most, and the next write to it counts.
UNENDED_SETTLED_NS = 60_000_000_000
AWAY_S = 5.0
SILENT_NS = 120_000_000_000  # well beyond what the ledger waits for a sign of life


class Listing(NamedTuple):
    """The runs by name, and a sentence for all that cannot be read.

    `read`: of how many the journals were read, because they had changed. `unread`: runs that
    changed and were not read, for want of patience.
    """

    runs: tuple[RunSummary, ...]
    problems: tuple[str, ...]
    read: int = 0
    unread: tuple[str, ...] = ()


class Fresh(NamedTuple):
    """A run that was just read; `signature`: what it may be kept by, None: it does not stand."""

    found: RunSummary
    signature: str | None


class RunList:
    """Looks at a store. Of one thread at a time."""

    def __init__(
        self,
        store: RunStore,
        *,
        cache: Path | None = None,
        names: Sequence[str] | None = None,
        scratch: str | None = None,
        processes: int = 1,
    ) -> None:
        """`cache`: the folder for what is kept on this host; None: this object's memory alone.

        `names`: only these runs; None: all that there are at each look. `scratch`: where this host
        has live journals, as configured. `processes`: so many read what nothing is known of, where
        that is much; a look without patience only.
        """
        self._store = store
        self._processes = processes
        self._cache = SummaryCache(cache or Path(), store.root) if cache else _Memory()
        self._names = None if names is None else tuple(names)
        self._scratch = scratch
        self._open: dict[str, RunReading] = {}
        self._looked: dict[str, RunReading] = {}
        self._read = 0
        self._until_s: float | None = None
        self._unread: tuple[str, ...] = ()

    def look(
        self,
        now_unix_ns: int | None = None,
        windows: Sequence[Window] | None = None,
        *,
        only: Collection[str] | None = None,
        patience_s: float | None = None,
    ) -> Listing:
        """How they stand now. `windows`: by default all, and the last hour, day and week.

        `only`: of all runs just these. `patience_s`: after so long, runs that would have to be read
        are left for the next look, which begins with them. Raises StoreUnavailable when the store
        itself cannot be read; of runs nothing.
        """
        now_ns = time.time_ns() if now_unix_ns is None else now_unix_ns
        windows = rolling(now_ns) if windows is None else windows
        self._read = 0
        self._looked = {}
        self._until_s = None if patience_s is None else time.monotonic() + patience_s
        runs: dict[str, RunSummary] = {}
        unread: list[str] = []
        problems: list[str] = []
        wanted = self._wanted(only)
        ahead = {} if patience_s is not None else self._read_ahead(wanted, now_ns, windows)
        for name in wanted:
            began_s = time.monotonic()
            try:
                one = self._summary(name, now_ns, windows, ahead.get(name))
            except HoldfastError as error:
                if isinstance(error, StoreUnavailable) and time.monotonic() - began_s > AWAY_S:
                    raise  # it is no single run's fault: the others would be waited for alike
                problems.append(str(error))
                continue
            except OSError as error:  # deleted while we looked
                problems.append(f"run {name!r}: {error}")
                continue
            if one is None:
                unread.append(name)
                continue
            runs[name] = one
            problems += [f"run {name!r}: {note}" for note in one.notes]
        if only is None:
            self._forget_all_but({*runs, *unread})
            self._unread = tuple(unread)
        self._cache.save()
        by_name = sorted(runs.values(), key=lambda run: run.name)
        return Listing(tuple(by_name), tuple(problems), self._read, tuple(unread))

    def reading(self, name: str) -> RunReading | None:
        """What a run's journals said at the last look; None: they were not read for it."""
        return self._looked.get(name)

    def _wanted(self, only: Collection[str] | None) -> Sequence[str]:
        """The names to look at, those first that the last look had no patience for."""
        if only is not None:
            return sorted(only)
        names = self._store.names() if self._names is None else self._names
        waiting = set(self._unread)
        return sorted(names, key=lambda name: name not in waiting) if waiting else names

    def _forget_all_but(self, names: Collection[str]) -> None:
        if self._names is None:
            self._cache.keep(dict.fromkeys(names))
        for name in [known for known in self._open if known not in names]:
            del self._open[name]

    def _summary(
        self, name: str, now_ns: int, windows: Sequence[Window], ahead: Fresh | None = None
    ) -> RunSummary | None:
        """A run whose files look as when it was over and read is so still; None: no patience.

        `ahead`: what somebody has just read.
        """
        is_late = self._until_s is not None and self._read > 0 and time.monotonic() > self._until_s
        if is_late and not self._cache.has(name):
            return None
        if ahead is None:
            if remote_of(self._store.root) is not None:
                self._store.get(name)  # what is here may be old
            before = self._outside(name)
            known = self._cache.get(name, before.signature)
            if known is not None and (within := _within(known, windows)) is not None:
                self._open.pop(name, None)
                return replace(known, within=within)
            if is_late:
                return None
            ahead = self.fresh(name, now_ns, windows, before)
        self._read += 1
        found, signature = ahead
        if signature is not None:
            self._cache.put(signature, replace(found, within={ALL: found.spent()}))
        return found

    def fresh(
        self, name: str, now_ns: int, windows: Sequence[Window], before: Outside | None = None
    ) -> Fresh:
        """What a run's journals say; `before`: what its files looked like until now."""
        before = before or self._outside(name)
        folder = self._store.get(name)
        is_moving = self._is_moving(folder, now_ns)
        all_windows = (Window(ALL, None), *windows)
        found = self._reading(folder).summary(all_windows, now_ns, live=is_moving)
        stands = not is_moving and _is_settled(found, before, now_ns)
        return Fresh(found, before.signature if stands and self._outside(name) == before else None)

    def _outside(self, name: str) -> Outside:
        seen = outside(self._store.root / check_name(name))
        remote = remote_of(self._store.root)
        return (
            seen
            if remote is None
            else seen._replace(signature=seen.signature + remote.version(name))
        )

    def _read_ahead(
        self, names: Sequence[str], now_ns: int, windows: Sequence[Window]
    ) -> dict[str, Fresh]:
        """Runs that nothing is known of, read side by side, if they are many."""
        unknown = [name for name in names if not self._cache.has(name)]
        workers = min(self._processes, len(unknown) // WORTH_A_PROCESS)
        if workers < 2 or remote_of(self._store.root) is not None:
            return {}
        from holdfast.runs.ahead import side_by_side

        read = partial(_read, self._store, self._scratch, now_ns, tuple(windows))
        return side_by_side(workers, read, unknown)

    def _reading(self, folder: RunFolder) -> RunReading:
        from holdfast.runs.reading import RunReading  # numpy: only where something is to be read

        reading = self._open.get(folder.name)
        if reading is None or reading.folder.identity != folder.identity:
            reading = RunReading(folder)
            if len(self._open) < KEPT_OPEN:
                self._open[folder.name] = reading
        self._looked[folder.name] = reading
        return reading

    def _is_moving(self, folder: RunFolder, now_ns: int) -> bool:
        """Whether its numbers change without any file's looking different: maps are written."""
        lease = view(folder)
        is_silent = lease.seen_unix_ns is not None and now_ns - lease.seen_unix_ns > SILENT_NS
        if is_held(lease) and not (lease.state is LeaseState.UNKNOWN and is_silent):
            return True
        places = existing_scratch(folder.scratch_key, self._scratch)
        return any(any(place.glob("*/*.hfj")) for place in places)


def _read(
    store: RunStore,
    scratch: str | None,
    now_ns: int,
    windows: Sequence[Window],
    names: Sequence[str],
) -> dict[str, Fresh]:
    """Those of the runs that can be read; the others are left to who asks one by one."""
    runs = RunList(store, names=names, scratch=scratch)
    found: dict[str, Fresh] = {}
    for name in names:
        with contextlib.suppress(HoldfastError, OSError):
            found[name] = runs.fresh(name, now_ns, windows)
    return found


def _is_settled(found: RunSummary, seen: Outside, now_ns: int) -> bool:
    """Whether the summary stands until its files look different.

    While a run has not ended, somebody unseen may still write through a map; and the end of one
    that was just killed moves with the clock for a minute.
    """
    has_ended = found.state in ENDED
    quiet_ns = time.time_ns() - seen.newest_ns  # of files, whose clock this is
    if quiet_ns < (SETTLED_NS if has_ended else UNENDED_SETTLED_NS):
        return False
    return found.end_ns is None or found.end_ns < now_ns - SETTLED_NS


def _within(known: RunSummary, windows: Sequence[Window]) -> dict[str, Spent] | None:
    """What of a run as a whole is in each window; None: one begins in the midst of it."""
    start_ns, end_ns = known.start_ns, known.end_ns
    found: dict[str, Spent] = {}
    for name, from_ns in windows:
        if start_ns is None or end_ns is None:
            continue
        if from_ns is None or from_ns <= start_ns:
            found[name] = known.spent()
        elif from_ns < end_ns:
            return None
    return found


class _Memory(SummaryCache):
    """The same without a file."""

    def __init__(self) -> None:
        self._known = {}
        self._changed = False

    def save(self) -> None:
        """Nowhere."""
