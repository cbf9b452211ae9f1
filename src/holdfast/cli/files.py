"""Files that a command makes for people: whole or not at all, and readable as their umask says."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import write_plain

SHARED_FILE = 0o666  # less the umask


def write_file(path: str, data: bytes, what: str) -> None:
    """Create or replace a file; raises StoreUnavailable, and what was there before stays."""
    place = Path(path).resolve()
    try:
        if place.exists() and not place.is_file():
            number = errno.EISDIR if place.is_dir() else errno.ENXIO
            raise OSError(number, os.strerror(number))
        write_plain(place, data, SHARED_FILE)
    except OSError as error:
        raise StoreUnavailable(
            f"{what} cannot be written to {path} ({error.strerror}); choose another place"
        ) from None
