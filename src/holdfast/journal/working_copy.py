"""The records of runs that live in an object store, on this host.

Everything of a run but its checkpoint sets is small, and read and written as files. So a store at
`s3://bucket/prefix` has a folder here that looks like any run store. `pull` fetches what is new
there, `push` takes home what was changed here without going through `journal.atomic`: journals,
logs, what ranks say of themselves. A note beside each run remembers which version of which object
the file here is; losing it costs a comparison, never data.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import json
import os
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import xxhash

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import make_folder, store_errors, write_plain
from holdfast.journal.fields import load_json
from holdfast.journal.objects import PART_BYTES, Bucket, ListedObject, Place
from holdfast.journal.regular import is_real_folder, read_regular
from holdfast.journal.remote import ask_together, register

RUN_FILE = "run.json"
SETS = "ckpt"  # not records: `snapshot.vault` keeps them
REQUESTS = "control"
PROGRAMS = "cache"  # large, and only a supervisor wants them: it says so by `pull`
GROWING = {"journal", "logs"}  # a file here that is longer than the object is ahead of it
MAX_FILE_BYTES = 1 << 40
PUSH_BYTES_PER_S = 1 << 20  # a journal of 10 MiB goes home every 10 s

_SEGMENT = re.compile(r"[A-Za-z0-9_=+,@-][A-Za-z0-9_=+.,@-]*")


@dataclass(frozen=True, slots=True)
class CopiedVersion:
    """The version of an object, and the file here that was the same."""

    version: str
    nbytes: int
    changed_ns: int


@dataclass(slots=True)
class WorkingCopy:
    """One store's. Methods may be called from several threads. See `journal.remote.Remote`."""

    place: Place
    root: Path
    _seen: dict[str, CopiedVersion] = field(default_factory=dict, repr=False)
    _pushed_ns: dict[str, int] = field(default_factory=dict, repr=False)
    _runs: set[str] = field(default_factory=set, repr=False)
    _versions: dict[str, str] = field(default_factory=dict, repr=False)
    _lock: threading.RLock = field(default_factory=threading.RLock, repr=False)

    @property
    def bucket(self) -> Bucket:
        """Opened when it is first needed, by each process for itself."""
        return _bucket(self.place, os.getpid())

    def runs(self) -> tuple[str, ...]:
        """The names of all runs there; StoreUnavailable."""
        there = [name for name in self.bucket.folders() if _SEGMENT.fullmatch(name)]
        new = [name for name in there if name not in self._runs]  # once a run, always one
        are_runs = ask_together(lambda name: self.bucket.has(f"{name}/{RUN_FILE}"), new)
        found = {name for name, is_run in zip(new, are_runs, strict=True) if is_run}
        self._runs = (self._runs & {*there}) | found
        return tuple(name for name in there if name in self._runs)

    def fetch(self, run: str) -> None:
        """All records of a run; FileNotFoundError when there is no such run, StoreUnavailable.

        One request where nothing is new, for a thousand objects each: a page that is live asks
        again and again, and requests are paid for.
        """
        key = f"{run}/{RUN_FILE}"
        with self._lock:
            self._remember(run)
            was_there = key in self._seen  # before we look: else it may be created meanwhile
        there = self.bucket.list(run)
        if key not in there:
            self._runs.discard(run)
            if was_there:
                with self._lock, store_errors("keep records of the store", self.root):
                    self._put_aside(run)
            raise FileNotFoundError(f"no run is named {run!r} in {self.place}")
        version = _version_of(there)
        with self._lock, store_errors("keep records of the store", self.root):
            if self._versions.get(run) == version:
                return
            self._know(run, there[key].e_tag)
            records = {key: entry for key, entry in there.items() if key.split("/")[1] != PROGRAMS}
            self._fetch_new(records)
            self._note(run)
            self._versions[run] = version

    def _know(self, run: str, version: str) -> None:
        """What is here may be of a run of that name that is gone: a run's first file never changes.

        Then nothing here is of the one that is there now.
        """
        key = f"{run}/{RUN_FILE}"
        seen = self._seen.get(key)
        if seen and seen.version == version:
            return
        with contextlib.suppress(FileNotFoundError):
            here = read_regular(self.root / key, MAX_FILE_BYTES)
            if here != self.bucket.get(key, MAX_FILE_BYTES):
                self._put_aside(run)

    def _put_aside(self, run: str) -> None:
        """Take what is here of a run that is gone out of the way: some may never have come home."""
        with contextlib.suppress(FileNotFoundError):
            (self.root / run).rename(self.root / f".gone-{run}-{time.time_ns()}")
        self._note_path(run).unlink(missing_ok=True)
        for key in [key for key in self._seen if key.startswith(f"{run}/")]:
            del self._seen[key]
        self._versions.pop(run, None)

    def version(self, run: str) -> str:
        """What all objects of a run looked like when it was last fetched; "": it never was."""
        return self._versions.get(run, "")

    def pull(self, folder: Path) -> None:
        """What is new below a folder of a run. Of requests, what was taken away goes here, too."""
        key = self._key(folder)
        with self._lock, store_errors("keep records of the store", folder):
            self._remember(key.partition("/")[0])
            known = [one for one in self._seen if one.startswith(f"{key}/")]
            there = self.bucket.list(key)
            self._fetch_new(there)
            for name in set(known) - set(there) if folder.name == REQUESTS else ():
                self._seen.pop(name, None)
                (self.root / name).unlink(missing_ok=True)

    def push(self, run: str, *, everything: bool = False) -> int:
        """Take home what was changed here; the number of files. Raises StoreUnavailable.

        Large files that grow go less often, unless `everything` must.
        """
        with self._lock:
            self._remember(run)
            done = 0
            for folder in self._folders(run):
                files = sorted(self._changed(folder, everything))
                for _, together in itertools.groupby(files, key=lambda one: one.stem):
                    done += self._push_together(list(together))
            gone = [
                key
                for key in self._seen
                if key.startswith(f"{run}/{PROGRAMS}/") and not (self.root / key).exists()
            ]
            self.bucket.delete(gone)
            for key in gone:
                del self._seen[key]
            if done or gone:
                self._note(run)
            return done

    def _push_together(self, files: Sequence[Path]) -> int:
        """A journal is read before the text that it points to, and put after it."""
        read = [(path, path.stat().st_mtime_ns, _bytes(path)) for path in files]
        for path, changed_ns, data in reversed(read):
            key = self._key(path)
            if len(data) > PART_BYTES:
                version = self.bucket.put_parts(key, [memoryview(data)])
            else:
                version = self.bucket.put(key, data)
            self._seen[key] = CopiedVersion(version, len(data), changed_ns)
            self._pushed_ns[key] = time.monotonic_ns()
        return len(read)

    # --- the Remote of `journal.remote` -----------------------------------------------------

    def put(self, path: Path, data: bytes) -> None:
        """Create or replace."""
        if self._is_record(path):
            self._put(path, lambda key: self.bucket.put(key, data), len(data))

    def create(self, path: Path, data: bytes) -> None:
        """Create, or fetch what is there and raise FileExistsError."""
        if not self._is_record(path):
            return
        try:
            self._put(path, lambda key: self.bucket.create(key, data), len(data))
        except FileExistsError:
            with self._lock, store_errors("keep records of the store", path):
                key = self._key(path)
                self._take_over(key, "", self._get(key))
            raise

    def written(self, path: Path) -> None:
        """The file here is the same as the object."""
        key = self._key(path)
        with self._lock, contextlib.suppress(OSError):
            if key in self._seen:
                found = path.stat()
                self._seen[key] = CopiedVersion(
                    self._seen[key].version, found.st_size, found.st_mtime_ns
                )

    def remove(self, path: Path) -> None:
        """Take it away."""
        with self._lock:
            self._seen.pop(self._key(path), None)
        self.bucket.delete([self._key(path)])

    def remains(self, run: str) -> bool:
        """Whether something has its name, and no run.json: a run begins, and ends, with that."""
        there = self.bucket.list(run)
        # A console's mark of a folder is listed, and is no object by that name.
        return f"{run}/{RUN_FILE}" not in there and any(map(self.bucket.has, there))

    def erase(self, run: str) -> None:
        """All of it, checkpoint sets too."""
        self.bucket.delete([f"{run}/{RUN_FILE}"])
        self.bucket.delete(list(self.bucket.list(run)))
        self._runs.discard(run)
        with self._lock, store_errors("remove the run's records", self.root / run):
            self._put_aside(run)
            for aside in self.root.glob(f".gone-{run}-*"):
                if aside.name.rpartition("-")[0] == f".gone-{run}":
                    shutil.rmtree(aside)

    def _put(self, path: Path, put: Callable[[str], str], nbytes: int) -> None:
        key = self._key(path)
        version = put(key)
        with self._lock:
            self._seen[key] = CopiedVersion(version, nbytes, 0)

    # --- files here, objects there ----------------------------------------------------------

    def _key(self, path: Path) -> str:
        return path.relative_to(self.root).as_posix()

    def _is_record(self, path: Path) -> bool:
        parts = path.relative_to(self.root).parts
        return len(parts) > 1 and parts[1] != SETS and all(map(_SEGMENT.fullmatch, parts))

    def _fetch_new(self, there: Mapping[str, ListedObject]) -> None:
        """Of these objects those to their files that are of another version there."""
        versions = {key: entry.e_tag for key, entry in there.items()}
        new = [key for key, version in versions.items() if not self._has(key, version)]
        small = [key for key in new if there[key].nbytes <= PART_BYTES]
        large = [key for key in new if there[key].nbytes > PART_BYTES]  # one at a time in memory
        for key, data in zip(small, ask_together(self._get, small), strict=True):
            self._take_over(key, versions[key], data)
        for key in large:
            self._take_over(key, versions[key], self._get(key))

    def _has(self, key: str, version: str) -> bool:
        """Whether the file is that version; what is no record is never fetched."""
        seen = self._seen.get(key)
        is_known = seen is not None and version != "" and seen.version == version
        return is_known or not self._is_record(self.root / key)

    def _get(self, key: str) -> bytes | None:
        """An object; None: it was taken away since it was listed."""
        try:
            return self.bucket.get(key, MAX_FILE_BYTES)
        except FileNotFoundError:
            return None

    def _take_over(self, key: str, version: str, data: bytes | None) -> None:
        """That object to its file, unless the file is the same, or has grown beyond it."""
        path = self.root / key
        if data is None or not self._is_record(path):
            return
        with contextlib.suppress(OSError):
            here = read_regular(path, MAX_FILE_BYTES)
            if here.startswith(data) or (len(here) > len(data) and GROWING & set(path.parts)):
                self._seen[key] = CopiedVersion(version, len(data), 0)
                return
        make_folder(path.parent, durable=False)
        write_plain(path, data)
        self._seen[key] = CopiedVersion(version, len(data), path.stat().st_mtime_ns)

    def _folders(self, run: str) -> Iterator[Path]:
        for place, folders, _ in os.walk(self.root / run):
            folders[:] = sorted(one for one in folders if one != SETS and _SEGMENT.fullmatch(one))
            if is_real_folder(Path(place)):
                yield Path(place)

    def _changed(self, folder: Path, everything: bool) -> Iterator[Path]:
        for path in sorted(folder.iterdir()):
            if not self._is_record(path) or path.is_symlink() or not path.is_file():
                continue
            found, seen = path.stat(), self._seen.get(self._key(path))
            if seen and (seen.nbytes, seen.changed_ns) == (found.st_size, found.st_mtime_ns):
                continue
            age_s = (time.monotonic_ns() - self._pushed_ns.get(self._key(path), 0)) / 1e9
            if everything or age_s * PUSH_BYTES_PER_S >= found.st_size:
                yield path

    # --- the note ---------------------------------------------------------------------------

    def _note_path(self, run: str) -> Path:
        return self.root / f".seen-{run}.json"

    def _remember(self, run: str) -> None:
        """Read the note, once."""
        if any(key.startswith(f"{run}/") for key in self._seen):
            return
        with contextlib.suppress(OSError, ValueError, TypeError, AttributeError):
            said = load_json(read_regular(self._note_path(run), 1 << 28))
            for key, (version, nbytes, changed_ns) in said.items():
                self._seen[key] = CopiedVersion(str(version), int(nbytes), int(changed_ns))

    def _note(self, run: str) -> None:
        said = {
            key: [one.version, one.nbytes, one.changed_ns]
            for key, one in self._seen.items()
            if key.startswith(f"{run}/")
        }
        write_plain(self._note_path(run), json.dumps(said).encode())


def working_copy(place: Place, base: Path) -> WorkingCopy:
    """The working copy below `base` of the store at `place`, made where it is missing."""
    return _working_copy(place, base)


@functools.cache
def _working_copy(place: Place, base: Path) -> WorkingCopy:
    import hashlib  # here alone; it loads a large library

    digest = hashlib.sha256(str(place).encode()).hexdigest()[:12]
    name = re.sub(r"[^A-Za-z0-9._-]+", "-", f"{place.bucket}-{place.prefix}")[:80].strip("-.")
    root = base / f"{place.scheme}-{name}-{digest}"
    make_folder(root)
    copy = WorkingCopy(place, root)
    register(root, copy)
    return copy


@functools.cache
def _bucket(place: Place, pid: int) -> Bucket:
    del pid
    return Bucket(place)


def _version_of(there: Mapping[str, ListedObject]) -> str:
    """Differs once any of these objects was written, came or went."""
    listing = "\n".join(f"{key}\0{one.e_tag}\0{one.nbytes}" for key, one in sorted(there.items()))
    return xxhash.xxh3_128_hexdigest(listing.encode())


def _bytes(path: Path) -> bytes:
    try:
        return read_regular(path, MAX_FILE_BYTES)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror or error}") from error
