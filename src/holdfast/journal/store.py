"""The run store: a folder of runs, and where everything of a run lies.

    STORE/RUN/run.json                     what the run is; created once, never changed
              lease/000007.json …          who supervises it (holdfast.journal.lease)
              control/000001-stop.json     what people ask of it (holdfast.journal.control)
              attempts/0003/attempt.json   each launch, and how it ended (holdfast.journal.attempts)
                            journal/ logs/ incidents/ ranks/
              journal/                     the controller's own journals
              ckpt/0003-000000041000/      checkpoint sets (holdfast.snapshot)
              pins.json                    sets that retention leaves alone

Nothing here keeps a file open or remembers what it read: the folder is the truth.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from holdfast.config import instance_credentials, mirror_folder
from holdfast.core.value import value
from holdfast.errors import ConfigurationError, StoreUnavailable, UnknownRun
from holdfast.journal.atomic import (
    make_folder,
    make_part,
    store_errors,
)
from holdfast.journal.clocks import boot_id, now_ns
from holdfast.journal.elsewhere import note_elsewhere
from holdfast.journal.names import check_name, is_name, new_id, shown
from holdfast.journal.regular import refuse_link
from holdfast.journal.remote import Remote, ask_together, remote_of
from holdfast.journal.run_identity import (
    RUN_FILE,
    RunIdentity,
    create_identity,
    read_identity,
    replace_identity,
)

A = TypeVar("A")
B = TypeVar("B")

_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://")


@value
class RunFolder:
    """One run's folder in the store, and the paths of its parts."""

    path: Path
    identity: RunIdentity

    @property
    def name(self) -> str:
        """The run's name."""
        return self.identity.name

    @property
    def scratch_key(self) -> str:
        """The run's key among local scratch folders: unique across stores, and for life.

        Who copies a store copies its runs' ids, so that the place of the store is part of it.
        """
        name = self.identity.first_name or self.identity.name
        place = zlib.crc32(os.fsencode(os.path.realpath(self.path.parent)))
        return f"{name}-{self.identity.run_id}-{place:08x}"

    @property
    def store(self) -> str:
        """The store that it is in, for people."""
        return _shown_place(self.path.parent)

    @property
    def lease_dir(self) -> Path:
        """Claims and heartbeats of supervisors."""
        return self.path / "lease"

    @property
    def control_dir(self) -> Path:
        """Requests to the supervisor."""
        return self.path / "control"

    @property
    def journal_dir(self) -> Path:
        """The controller's journals."""
        return self.path / "journal"

    @property
    def ckpt_dir(self) -> Path:
        """Checkpoint sets."""
        return self.path / "ckpt"

    @property
    def cache_dir(self) -> Path:
        """Compiled programs: the home of what the hosts' local tiers hold."""
        return self.path / "cache"

    @property
    def pins_path(self) -> Path:
        """Pinned sets and their tags."""
        return self.path / "pins.json"

    @property
    def attempts_dir(self) -> Path:
        """One folder per attempt."""
        return self.path / "attempts"

    def complete(self, *, durable: bool = True) -> None:
        """Make the parts that are missing: a run of an earlier version may lack some.

        `durable` as in `make_part`. Raises StoreUnavailable; also when the run's own folder is
        not there.
        """
        for part in (self.attempts_dir, self.ckpt_dir, self.control_dir, self.lease_dir):
            if not part.is_dir():
                make_part(part, durable=durable)

    def attempt_dir(self, attempt: int) -> Path:
        """The folder of one attempt."""
        return self.attempts_dir / f"{attempt:04d}"

    def attempt_journal_dir(self, attempt: int) -> Path:
        """The ranks' journals of one attempt, as copied from local scratch."""
        return self.attempt_dir(attempt) / "journal"

    def logs_dir(self, attempt: int) -> Path:
        """What the attempt's ranks printed."""
        return self.attempt_dir(attempt) / "logs"

    def incidents_dir(self, attempt: int) -> Path:
        """Tracebacks, stacks and the like, collected when the attempt broke."""
        return self.attempt_dir(attempt) / "incidents"

    def ranks_dir(self, attempt: int) -> Path:
        """What ranks say about themselves beside their journals."""
        return self.attempt_dir(attempt) / "ranks"

    def profiles_dir(self, attempt: int) -> Path:
        """Where its ranks' time went, as their frameworks' profilers saw it (holdfast.profiles)."""
        return self.attempt_dir(attempt) / "profiles"


@value
class RunStore:
    """A folder of runs. Making one touches nothing; a store that is not there yet is empty."""

    root: Path

    @classmethod
    def at(
        cls,
        place: str | os.PathLike[str],
        *,
        mirror: str | None = None,
        instance: bool | None = None,
    ) -> RunStore:
        """The store at a plain path, a `file://` URL, or in an object store.

        Of one in an object store this is the working copy on this host, in the folder `mirror`;
        `instance`: its credentials may be this machine's (both: as configured). Raises
        ConfigurationError for other places.
        """
        text = os.fspath(place)
        if "://" not in text:  # most stores are folders, and need no more
            return cls(_folder_of(text))
        from holdfast.journal.objects import is_object_url, parse_place
        from holdfast.journal.working_copy import working_copy

        if not is_object_url(text):
            return cls(_folder_of(text))

        if instance is None:
            instance = instance_credentials()
        base = _folder_of(mirror or mirror_folder())
        return cls(working_copy(parse_place(text, instance=instance), base).root)

    @property
    def shown(self) -> str:
        """Where it is, for people: its URL, or its folder."""
        return _shown_place(self.root)

    @property
    def is_missing(self) -> bool:
        """Whether it is a folder, and none is there."""
        return self._remote is None and not self.root.exists()

    @property
    def why_empty(self) -> str:
        """What is to be said of a store in which no run was found."""
        missing = f"there is no folder {self.shown}"
        return missing if self.is_missing else f"there are no runs in {self.shown} yet"

    @property
    def _remote(self) -> Remote | None:
        return remote_of(self.root)

    def names(self) -> tuple[str, ...]:
        """The names of all runs, sorted; raises StoreUnavailable if the store cannot be read."""
        if self._remote is not None:
            return self._remote.runs()
        with store_errors("list the runs", self.root), contextlib.suppress(FileNotFoundError):
            return tuple(sorted(_run_names(self.root)))
        return ()

    def runs(self) -> tuple[tuple[RunFolder, ...], tuple[str, ...]]:
        """All readable runs by name, and a sentence for each that is not readable."""
        found = [*self.each(self._get_or_say, self.names())]
        folders = tuple(one for one in found if isinstance(one, RunFolder))
        return folders, tuple(one for one in found if isinstance(one, str))

    def _get_or_say(self, name: str) -> RunFolder | str:
        try:
            return self.get(name)
        except (StoreUnavailable, ConfigurationError) as error:
            return str(error)

    def each(self, look: Callable[[A], B], of: Sequence[A]) -> Iterator[B]:
        """What `look` gives of each, in their order; side by side where each waits for a network.

        `of`: runs of this store, by whatever.
        """
        return map(look, of) if self._remote is None else ask_together(look, of)

    def get(self, name: str) -> RunFolder:
        """The run of that name.

        Raises UnknownRun (naming those that are nearest), ConfigurationError if a newer Holdfast
        wrote it, StoreUnavailable if its run.json is damaged or cannot be read.
        """
        path = self.root / check_name(name)
        try:
            if self._remote is not None:
                self._remote.fetch(name)
            folder = RunFolder(path, read_identity(path))
        except FileNotFoundError:
            raise UnknownRun(self._unknown(name)) from None
        _refuse_links(folder)
        self._place_sets(folder)
        return folder

    def get_again(self, name: str) -> RunFolder:
        """The same of a run that was there a moment ago.

        Its name is no mistake then: that it is not found is the store's absence, as a rule. Where
        it was mounted there is an empty folder, or none. Raises StoreUnavailable for that, too.
        """
        try:
            return self.get(name)
        except UnknownRun:
            where = self.shown
            gone = (
                f"there is no folder {where}"
                if self.is_missing
                else f"run {name!r} is not in {where}"
            )
            raise StoreUnavailable(f"{gone} any more; check that the store is mounted") from None

    def _place_sets(self, folder: RunFolder) -> None:
        """Of sets in an object store nothing is copied: a note says where they are."""
        if self._remote is not None:
            folder.complete(durable=False)
            note_elsewhere(folder.ckpt_dir, self._remote.place / folder.name / folder.ckpt_dir.name)

    def create(
        self, name: str, *, command: Sequence[str] = (), requested_unix_ns: int | None = None
    ) -> RunFolder:
        """Create the run; raises ConfigurationError if it is there, StoreUnavailable."""
        path = self.root / check_name(name)
        now = time.time_ns()
        identity = RunIdentity(
            name=name,
            run_id=new_id(),
            created_unix_ns=now,
            requested_unix_ns=now if requested_unix_ns is None else requested_unix_ns,
            command=tuple(command),
            requested_boot_id=boot_id() if requested_unix_ns is None else "",
            requested_boot_ns=now_ns() if requested_unix_ns is None else 0,
        )
        if self._remote is not None and self._remote.remains(name):
            raise ConfigurationError(
                f"a run named {name!r} was being removed from {self.shown}, and some of it is "
                f"left; finish that first: holdfast rm {name}"
            )
        make_folder(self.root)
        make_part(path)
        folder = RunFolder(path, identity)
        folder.complete(durable=False)  # before run.json, and synced with it
        try:
            create_identity(path, identity)
        except FileExistsError:
            place = _shown_place(self.root)
            raise ConfigurationError(
                f"a run named {name!r} already exists in {place}; use another name"
            ) from None
        self._place_sets(folder)
        return folder

    def open(
        self, name: str, *, command: Sequence[str] = (), requested_unix_ns: int | None = None
    ) -> RunFolder:
        """The run of that name, created if it is new. Any number of callers get the same one."""
        with contextlib.suppress(UnknownRun):
            folder = self.get(name)
            folder.complete()
            return folder
        try:
            return self.create(name, command=command, requested_unix_ns=requested_unix_ns)
        except ConfigurationError as error:
            with contextlib.suppress(UnknownRun):
                return self.get(name)  # somebody created it in between
            raise error from None

    def _unknown(self, name: str) -> str:
        from difflib import get_close_matches  # 10 ms, and needed by a mistyped name alone

        names = [name for name in self.names() if is_name(name)]  # others could be no answer
        if not names:
            return f"no run is named {name!r}: {self.why_empty}; is it the right store (--store)?"
        if near := get_close_matches(name, names, n=3):
            hint = f"did you mean {' or '.join(near)}?"
        else:
            more = f" and {len(names) - 5} more" if len(names) > 5 else ""
            hint = f"the store has {', '.join(names[:5])}{more}"
        return f"no run is named {name!r} in {self.shown}: {hint}"


def _shown_place(root: Path) -> str:
    remote = remote_of(root)
    return str(root if remote is None else remote.place)


def _folder_of(place: str) -> Path:
    if not place or "\0" in place:
        raise ConfigurationError(f"{shown(place)} cannot be a run store: name a folder")
    scheme = _SCHEME.match(place)
    if scheme is None:
        return Path(os.path.abspath(os.path.expanduser(place)))  # noqa: PTH100, PTH111 - keeps links
    if scheme[1] != "file":
        raise ConfigurationError(
            f"the store {shown(place.partition('?')[0])} is of an unknown kind '{scheme[1]}'; "
            "name a folder, or s3://, gs:// or az:// with bucket and prefix"
        )
    from urllib.parse import unquote, urlsplit

    url = urlsplit(place)
    if url.netloc not in ("", "localhost") or not url.path.startswith("/"):
        raise ConfigurationError(
            f"the store {shown(place)} names no folder of this host; write file:///the/folder"
        )
    return Path(unquote(url.path))


def _run_names(root: Path) -> Iterator[str]:
    with os.scandir(root) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and (root / entry.name / RUN_FILE).exists():
                yield entry.name


def hidden_run(path: Path) -> RunFolder:
    """A run whose folder has no run's name, as while it is renamed; raises StoreUnavailable."""
    try:
        return RunFolder(path, read_identity(path, is_hidden=True))
    except FileNotFoundError as error:
        raise StoreUnavailable(f"{path} is no run; move it away") from error


def rewrite_name(path: Path, name: str) -> None:
    """Have the run in a hidden folder say that it has this name; raises StoreUnavailable."""
    before = hidden_run(path).identity
    if before.name != name:
        after = replace(before, name=name, first_name=before.first_name or before.name)
        replace_identity(path, after)


def _refuse_links(folder: RunFolder) -> None:
    """StoreUnavailable when a part of the run is a link: what is done there is done elsewhere."""
    for place in (folder.path, folder.attempts_dir):
        with store_errors("open the run", place), contextlib.suppress(FileNotFoundError):
            refuse_link(place)
            with os.scandir(place) as entries:
                links = [entry.path for entry in entries if entry.is_symlink()]
            if links:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), min(links))
