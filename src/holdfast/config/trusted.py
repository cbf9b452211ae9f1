"""Whose files are believed: who may write a file, or swap it, decides what is done upon it.

A path is trusted where every folder and link on the way belongs to somebody who is, and nobody else
may write there. In a folder such as /tmp everybody may, but the sticky bit keeps all from what is
not theirs, so it is enough that what lies there has the right owner.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Collection
from pathlib import Path

ROOT_UID = ROOT_GID = 0
_MOST_LINKS = 40  # as the kernel has it
_SAFELY = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY


class Untrusted(Exception):  # noqa: N818 - each caller says in its own words what comes of it
    """A path that somebody else may have arranged; the words name it and say why."""


def own_uids() -> frozenset[int]:
    """Root's, and this process's user's."""
    return frozenset((ROOT_UID, os.geteuid()))


def check_folders(path: Path, uids: Collection[int]) -> None:
    """Raise Untrusted where somebody else may change what `path` leads to; OSError if it has gone.

    Of the path's own file nothing is said, only of what leads there.
    """
    todo = list(reversed(path.absolute().parent.parts[1:]))
    at, links = Path("/"), 0
    while True:
        known = at.lstat()
        if stat.S_ISLNK(known.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise Untrusted(f"{at} leads from link to link")
            _check_owner(at, known, uids)
            target = at.readlink()
            todo += reversed(target.parts[target.is_absolute() :])
            at = Path("/") if target.is_absolute() else at.parent
        else:
            _check_owner(at, known, uids)
            if not known.st_mode & stat.S_ISVTX:
                _check_writers(at, known)
        if not todo:
            return
        part = todo.pop()
        at = at.parent if part == ".." else at / part


def open_trusted(path: Path, uids: Collection[int], flags: int = os.O_RDONLY) -> int:
    """A descriptor of a file or FIFO that nobody else may write; raises Untrusted, OSError."""
    check_folders(path, uids)
    try:
        descriptor = os.open(path, flags | _SAFELY, 0o644)
    except OSError:
        if path.is_symlink():
            raise Untrusted(f"{path} is a link: name the file itself") from None
        raise
    try:
        known = os.fstat(descriptor)
        if not (stat.S_ISREG(known.st_mode) or stat.S_ISFIFO(known.st_mode)):
            raise Untrusted(f"{path} is neither a file nor a FIFO")
        _check_owner(path, known, uids)
        _check_writers(path, known)
        if known.st_nlink > 1:  # anybody may give a file of ours a name in a folder like /tmp
            raise Untrusted(f"{path} has another name as well")
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def _check_owner(path: Path, known: os.stat_result, uids: Collection[int]) -> None:
    if known.st_uid not in uids:
        whose = " or ".join(name_of(uid) for uid in sorted(uids))
        raise Untrusted(f"{path} belongs to {name_of(known.st_uid)}, and not to {whose}")


def _check_writers(path: Path, known: os.stat_result) -> None:
    """Root's group, and this process's own, are as good as their users."""
    if known.st_mode & stat.S_IWOTH:
        raise Untrusted(f"everybody may write {path}")
    if known.st_mode & stat.S_IWGRP and known.st_gid not in (ROOT_GID, os.getegid()):
        raise Untrusted(f"group {known.st_gid} may write {path}")


def name_of(uid: int) -> str:
    """Of a user, for people."""
    import pwd  # seldom needed

    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"
