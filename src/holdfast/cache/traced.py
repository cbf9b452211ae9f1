"""Which kept programs have proved true on this host, and which have not: empty files beside them.

NAME.hfx.ENVIRONMENT.ATTEMPT.traced  made from, or compared with, its function in that attempt,
with these variables: its time stamp says when
DIGEST.void                          a program that is no longer what its function says, by the
digest of what was traced: the same in all ranks
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

TRACED = ".traced"
VOID = ".void"
_VOID_NAME = re.compile(r"[0-9a-f]{64}\.void")
_TRACED_NAME = re.compile(r"\.([0-9a-f]{16})\.([0-9]{1,9})\.traced")


class Traced(NamedTuple):
    """Where and when a program was last found to be what its function says."""

    environment: str
    attempt: int
    at_unix_s: float


def note_traced(folder: Path, name: str, environment: str, attempt: int) -> None:
    """The program in the file `name` is what its function says now. Never raises."""
    mark = folder / f"{name}.{environment}.{attempt}{TRACED}"
    with contextlib.suppress(OSError):
        mark.touch(mode=0o600)
        for other in folder.glob(f"{name}.*{TRACED}"):
            if other != mark:
                other.unlink(missing_ok=True)


def last_traced(folder: Path, name: str) -> Traced | None:
    """What was noted last; None: nothing was, on this host."""
    found = []
    with contextlib.suppress(OSError):
        for path in folder.glob(f"{name}.*{TRACED}"):
            match = _TRACED_NAME.fullmatch(path.name.removeprefix(name))
            if match is not None:
                found.append(Traced(match[1], int(match[2]), path.lstat().st_mtime))
    return max(found, key=lambda one: one.at_unix_s, default=None)


def void(folder: Path, digest: str) -> None:
    """Nobody uses a program again that was made from this. Never raises."""
    with contextlib.suppress(OSError):
        (folder / f"{digest}{VOID}").touch(mode=0o600)


def is_void(folder: Path, digest: object) -> bool:
    """Whether that was said of it."""
    return isinstance(digest, str) and (folder / f"{digest}{VOID}").exists()


def voids(folder: Path) -> set[str]:
    """The names of the files that say so."""
    return {path.name for path in folder.glob(f"*{VOID}") if _VOID_NAME.fullmatch(path.name)}


def leftovers(folder: Path) -> Iterator[Path]:
    """All of these files."""
    yield from folder.glob(f"*{TRACED}")
    yield from folder.glob(f"*{VOID}")
