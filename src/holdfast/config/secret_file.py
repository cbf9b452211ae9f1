"""Secrets that lie in a file, which nobody else may read.

A secret is never in an argument, in the store or in a log. Links are followed: a platform's secrets
(a Secret mounted by Kubernetes) are links.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import ConfigurationError

MIN_CHARS = 32  # as many as 16 random bytes have in hexadecimal
MAX_BYTES = 1 << 16
HOW_TO_MAKE_ONE = (
    "make one with: (umask 077; python3 -c 'import secrets; print(secrets.token_urlsafe(48))' "
    "> FILE), and give every host of the run the same"
)


def read_secret_file(path: str | os.PathLike[str], what: str) -> bytes:
    """The secret in a file, without the spaces around it; ConfigurationError for one others know.

    `what`: the secret's name in the sentence, as in "the key of the compile cache".
    """

    def refused(why: str) -> ConfigurationError:
        return ConfigurationError(
            f"{what}, {os.fspath(path)}, cannot be used: {why}; {HOW_TO_MAKE_ONE}"
        )

    try:
        descriptor = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise refused(f"it cannot be read: {error.strerror}") from error
    try:
        if why := _weakness(os.fstat(descriptor)):
            raise refused(why)
        secret = os.read(descriptor, MAX_BYTES + 1).strip()
    except OSError as error:
        raise refused(f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if not MIN_CHARS <= len(secret) <= MAX_BYTES:
        raise refused(f"it holds {len(secret)} characters, and needs {MIN_CHARS} or more")
    return secret


def _weakness(info: os.stat_result) -> str:
    """Why what is in such a file is no secret of ours; '': it is one.

    The group may read a file of root's: that is how Kubernetes hands one to a user (`fsGroup`).
    """
    mine = os.geteuid()
    if not stat.S_ISREG(info.st_mode):
        return "it is no regular file"
    if info.st_uid not in (mine, 0):
        return f"it belongs to user id {info.st_uid}"
    may = stat.S_IMODE(info.st_mode)
    others = may & (0o037 if info.st_uid != mine else 0o077)
    return f"others may open it (mode {may:04o}): chmod 600 it" if others else ""
