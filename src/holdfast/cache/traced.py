"""Which kept programs have proved true on this host, and which have not: empty files beside them.

NAME.hfx.ENVIRONMENT.traced   made from, or compared with, its function in this environment:
                               its time stamp says when
DIGEST.void                    a program that is no longer what its function says, by the
                               digest of what was traced: the same in all ranks
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator
from pathlib import Path

TRACED = ".traced"
VOID = ".void"
_VOID_NAME = re.compile(r"[0-9a-f]{64}\.void")


def note_traced(folder: Path, name: str, environment: str) -> None:
    """The program in the file `name` is what its function says now. Never raises."""
    mark = folder / f"{name}.{environment}{TRACED}"
    with contextlib.suppress(OSError):
        for other in folder.glob(f"{name}.*{TRACED}"):
            if other != mark:
                other.unlink(missing_ok=True)
        mark.touch(mode=0o600)


def traced_ago_s(folder: Path, name: str, environment: str, now_unix_s: float) -> float | None:
    """How long ago that was noted last; None: it never was in this environment."""
    try:
        return now_unix_s - os.stat(folder / f"{name}.{environment}{TRACED}").st_mtime  # noqa: PTH116
    except OSError:
        return None


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
