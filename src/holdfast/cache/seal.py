"""Seals: what a store held that others may write is used only if it bears one.

A program is code: whoever can change it where it is kept runs code where it is loaded. A checksum
does not help, since whoever changes the bytes computes it anew. A seal cannot be made without a
key, which lies in a file on each host and is never in the store.

    bytes 0..8     "HFSEAL01"
          8..40    HMAC-SHA256 over the file's name, a zero byte, and everything after the seal
         40..      the entry
"""

from __future__ import annotations

import os
import stat
from pathlib import Path

from holdfast.errors import ConfigurationError

MAGIC = b"HFSEAL01"
KEY_MIN_CHARS = 32
KEY_MAX_BYTES = 1 << 16
HOW_TO_MAKE_ONE = (
    "make one with: (umask 077; python3 -c 'import secrets; print(secrets.token_urlsafe(48))' "
    "> FILE), and give every host of the run the same"
)
_SEAL_BYTES = 32
_ENTRY_AT = len(MAGIC) + _SEAL_BYTES


class SealError(ValueError):
    """These bytes bear no seal of this key and name."""


class FileSealer:
    """Seals files, and opens what was sealed with the same key under the same name."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def close(self, name: str, data: bytes) -> bytes:
        """The bytes with a seal in front."""
        return MAGIC + self._of(name, data) + data

    def open(self, name: str, data: bytes) -> bytes:
        """The inverse; raises SealError."""
        from hmac import compare_digest

        if not is_sealed(data):
            raise SealError("it has no seal")
        entry = data[_ENTRY_AT:]
        if not compare_digest(data[len(MAGIC) : _ENTRY_AT], self._of(name, entry)):
            raise SealError("its seal is not of this key")
        return entry

    def _of(self, name: str, data: bytes) -> bytes:
        import hashlib
        import hmac

        seal = hmac.new(self._key, name.encode() + b"\0", hashlib.sha256)
        seal.update(data)
        return seal.digest()


def is_sealed(data: bytes) -> bool:
    """Whether these bytes bear a seal, of whatever key."""
    return data.startswith(MAGIC)


def read_seal(path: str) -> FileSealer:
    """The seal of the key in a file; raises ConfigurationError for one that others know.

    Links are followed: a platform's secrets (a Secret mounted by Kubernetes) are links.
    """
    try:
        descriptor = os.open(Path(path).expanduser(), os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from error
    try:
        if why := _weakness(os.fstat(descriptor)):
            raise _refused(path, why)
        key = os.read(descriptor, KEY_MAX_BYTES + 1).strip()
    except OSError as error:
        raise _refused(path, f"it cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if not KEY_MIN_CHARS <= len(key) <= KEY_MAX_BYTES:
        raise _refused(path, f"it holds {len(key)} characters, and needs {KEY_MIN_CHARS} or more")
    return FileSealer(key)


def _weakness(info: os.stat_result) -> str:
    """Why a key in such a file is no secret of ours; '': it is one.

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


def _refused(path: str, why: str) -> ConfigurationError:
    return ConfigurationError(
        f"the key of the compile cache, {path}, cannot be used: {why}; {HOW_TO_MAKE_ONE}"
    )
