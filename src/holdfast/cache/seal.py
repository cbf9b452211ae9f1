"""Seals: what a store held that others may write is used only if it bears one.

A program is code: whoever can change it where it is kept runs code where it is loaded. A checksum
does not help, since whoever changes the bytes computes it anew. A seal cannot be made without a
key, which lies in a file on each host and is never in the store.

    bytes 0..8     "HFSEAL01"
          8..40    HMAC-SHA256 over the file's name, a zero byte, and everything after the seal
         40..      the entry
"""

from __future__ import annotations

from holdfast.config.secret_file import read_secret_file

MAGIC = b"HFSEAL01"
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
    """The seal of the key in a file; raises ConfigurationError for one that others know."""
    return FileSealer(read_secret_file(path, "the key of the compile cache"))
