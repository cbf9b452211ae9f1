"""Places where the owner of a file does not tell who wrote it."""

from __future__ import annotations

from pathlib import Path

from holdfast.journal.remote import remote_of
from holdfast.journal.scratch import filesystem_of

# Whoever mounts these is told as the owner of all files: a bucket mounted as a folder, a Windows
# share. A file's owner on NFS and its like is the one who wrote it, as far as hosts are trusted.
_OWNERLESS = frozenset({"fuse", "fuseblk", "cifs", "smb3", "smbfs", "9p"})


def written_by_anybody(place: Path) -> str:
    """Where a file's owner does not tell who wrote it: what that place is; '': the owner tells."""
    remote = remote_of(place)
    if remote is not None:
        return str(remote.place)
    kind = filesystem_of(place)
    if kind in _OWNERLESS or kind.startswith("fuse."):
        return f"{place} ({kind}, whose files all seem to be ours)"
    return ""
