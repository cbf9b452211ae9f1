"""What was read into a host's memory before a run needed it, as plain data; and how much may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.durations import in_words
from holdfast.core.value import value

SHARE = 0.5
"""Of the memory that is free: what the ranks take comes first."""
MB = 1_000_000
PACKAGES, PROGRAMS, CHECKPOINT, DATA = "packages", "programs", "checkpoint", "data"


@value
class PreloadedPart:
    """`from_disk` bytes of them were not in memory yet; None: the file system does not say.

    `missing` files are not on this host, `unread` cannot be read, and `why` tells of one of them.
    `is_cut`: there was more than was asked for, or than there is memory for.
    """

    what: str
    files: int = 0
    nbytes: int = 0
    from_disk: int | None = None
    took_ns: int = 0
    missing: int = 0
    unread: int = 0
    why: str = ""
    is_cut: bool = False

    @property
    def words(self) -> str:
        """All of it in a line."""
        first = "the first " if self.is_cut else ""
        files = "1 file" if self.files == 1 else f"{self.files:,} files"
        words = f"{self.what}: {files}, {first}{size_in_words(self.nbytes)}"
        if self.from_disk is not None and self.what != PROGRAMS:
            from_disk = size_in_words(self.from_disk) if self.from_disk else "none"
            words += f" ({from_disk} of it from disk)"
        words += f" in {in_words(self.took_ns)}"
        if self.missing:
            words += f"; {self.missing:,} not on this host"
        if self.unread:
            words += f"; {self.unread:,} unreadable ({self.why})"
        elif self.why:
            words += f"; {self.why}"
        return words

    def to_json(self) -> dict[str, Any]:
        """For a journal."""
        return {
            "what": self.what,
            "files": self.files,
            "bytes": self.nbytes,
            "from_disk": self.from_disk,
            "took_ns": self.took_ns,
        }


def size_in_words(nbytes: int) -> str:
    """In bytes, MB or GB."""
    if nbytes < MB / 10:
        return f"{nbytes:,} bytes"
    return f"{nbytes / MB / 1000:.3g} GB" if nbytes >= 1000 * MB else f"{nbytes / MB:.3g} MB"


def most_bytes(free_bytes: int, asked: int | None = None) -> tuple[int, str]:
    """How much may be read into memory, and why: as asked, but a share of what is free at most."""
    share = int(free_bytes * SHARE)
    if asked is not None and asked <= share:
        return asked, "as was asked"
    return share, f"half of the {size_in_words(free_bytes)} of memory that is free"


def in_order_of_need(parts: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Imports come first in a start, then the checkpoint, then data."""
    order = (PACKAGES, CHECKPOINT, DATA)
    return sorted(parts, key=lambda part: order.index(part["what"]))
