"""One compiled program in a file: a checksum, a few words about it, and its bytes.

    bytes 0..8     "HFCACHE1"
          8..16    xxh3_64 of everything after them
         16..20    length of the words, little-endian
         20..      the words: a JSON object
           ..      the program, as its compiler gave it

A program is code. Bytes whose checksum is wrong are never given to anybody.
"""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import Any

from holdfast.core.value import value

MAGIC = b"HFCACHE1"
SUFFIX = ".hfx"
_SUM_AT, _LENGTH_AT, _WORDS_AT = 8, 16, 20
_PLAIN = re.compile(r"[^A-Za-z0-9_]+")
_NAME = re.compile(r"[A-Za-z0-9_]{1,60}-[0-9a-f]{32}\.hfx")


class EntryError(ValueError):
    """These bytes are no entry, or no longer the one that was written."""


@value
class CacheEntry:
    """A program, the key that it answers to, and what is known about it."""

    key: str
    program: bytes
    words: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The file that it lies in."""
        return name_of(self.key)

    def encode(self) -> bytes:
        """The file's bytes."""
        from xxhash import xxh3_64_intdigest

        words = json.dumps({**self.words, "key": self.key}, separators=(",", ":")).encode()
        rest = len(words).to_bytes(4, "little") + words + self.program
        return MAGIC + xxh3_64_intdigest(rest).to_bytes(8, "little") + rest


def name_of(key: str) -> str:
    """The file name of a key: the part that people know, and a digest of all of it."""
    from xxhash import xxh3_128_hexdigest

    return f"{stem(key.rpartition('-')[0] or key)}-{xxh3_128_hexdigest(key.encode())}{SUFFIX}"


def stem(plain: str) -> str:
    """How the file names of keys begin that begin so."""
    return _PLAIN.sub("_", plain)[:60] or "program"


def is_name(name: str) -> bool:
    """Whether a file of this name is one of ours."""
    return _NAME.fullmatch(name) is not None


def decode(data: bytes) -> CacheEntry:
    """The inverse of `CacheEntry.encode`; raises EntryError."""
    from xxhash import xxh3_64_intdigest

    view = memoryview(data)
    if len(data) < _WORDS_AT or view[:_SUM_AT] != MAGIC:
        raise EntryError("it does not begin as an entry does")
    if int.from_bytes(view[_SUM_AT:_LENGTH_AT], "little") != xxh3_64_intdigest(view[_LENGTH_AT:]):
        raise EntryError("its checksum is wrong")
    program_at = _WORDS_AT + int.from_bytes(view[_LENGTH_AT:_WORDS_AT], "little")
    try:
        words = json.loads(bytes(view[_WORDS_AT:program_at]))
        key = words.pop("key")
        if not isinstance(key, str) or program_at > len(data):
            raise ValueError
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        raise EntryError("its words cannot be read") from None
    return CacheEntry(key, bytes(view[program_at:]), words)
