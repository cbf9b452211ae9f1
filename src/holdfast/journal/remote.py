"""Folders that are working copies: what is written there is written where it comes from first.

A store in an object store has a working copy of its records on this host, so that all that reads
and writes runs works as with any folder. Where a *whole file* is written (`journal.atomic`), the
object store has it first: a claim or an attempt that somebody else has there is not created here,
and what was reported as written survives this host. Processes that know the folder only as a folder
(ranks) write into it plainly; the supervisor brings that home.

Nothing here depends on how the other place is reached; `journal.working_copy` registers itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Protocol, TypeVar

if TYPE_CHECKING:
    from holdfast.journal.objects import Place

A = TypeVar("A")
B = TypeVar("B")

AT_A_TIME = 16  # requests: each is a wait for the network, and little else


class Remote(Protocol):
    """Where a working copy comes from. All methods raise StoreUnavailable."""

    @property
    def place(self) -> Place:
        """The store."""

    def runs(self) -> tuple[str, ...]:
        """The names of its runs."""

    def fetch(self, run: str) -> None:
        """Bring all records of a run up to date; FileNotFoundError when there is no such run."""

    def version(self, run: str) -> str:
        """What all of a run looked like there at the last `fetch`: differs once any was written."""

    def push(self, run: str, *, everything: bool = False) -> int:
        """Take home what was changed here; the number of files. Large ones not every time."""

    def put(self, path: Path, data: bytes) -> None:
        """Create or replace what belongs at `path`; durable on return."""

    def create(self, path: Path, data: bytes) -> None:
        """The same if there is none yet, else FileExistsError: then `path` has what is there."""

    def written(self, path: Path) -> None:
        """What was put or created for `path` is in the working copy now."""

    def remove(self, path: Path) -> None:
        """Take away what belongs at `path`."""

    def remains(self, run: str) -> bool:
        """Whether there is something of a run whose removal was broken off."""

    def erase(self, run: str) -> None:
        """Remove all of a run, there and here: first what makes it one."""

    def pull(self, folder: Path) -> None:
        """Bring everything below `folder` up to date in the working copy."""


_remotes: dict[Path, Remote] = {}


def register(root: Path, remote: Remote) -> None:
    """From now on, in this process, `root` is the working copy of `remote`."""
    _remotes[root] = remote


def copied_from(path: Path) -> Place | None:
    """Where exactly the file or folder comes from; None when it is nobody's copy."""
    remote, parts = remote_of(path), []
    if remote is None:
        return None
    while path not in _remotes:
        parts.append(path.name)
        path = path.parent
    place = remote.place
    for part in reversed(parts):
        place /= part
    return place


def remote_of(path: Path) -> Remote | None:
    """Where the file or folder comes from; None when it is nobody's copy."""
    if not _remotes:
        return None
    return next((_remotes[one] for one in (path, *path.parents) if one in _remotes), None)


def refresh(folder: Path) -> None:
    """See what others have written below `folder`; nothing to do where it is nobody's copy.

    Raises StoreUnavailable when that cannot be known now.
    """
    remote = remote_of(folder)
    if remote is not None:
        remote.pull(folder)


def ask_together(ask: Callable[[A], B], of: Sequence[A]) -> Iterator[B]:
    """What `ask` gives of each, in their order. Several at a time wait for their store."""
    if len(of) < 2:
        yield from map(ask, of)
        return
    from concurrent.futures import ThreadPoolExecutor  # most stores are folders

    with ThreadPoolExecutor(min(AT_A_TIME, len(of)), "holdfast-store") as threads:
        for first in range(0, len(of), AT_A_TIME):  # no more answers than these are held
            yield from threads.map(ask, of[first : first + AT_A_TIME])
