"""Which hosts see that the run is held, and have no link to its controller: marks beside the lease.

    lease/000007.unlinked-2    host 2, for as long as that is so

A controller that is cut off from the hosts, and not from the store, learns by them that others
could go on without it.
"""

from __future__ import annotations

import contextlib
import os
import re

from holdfast.journal.atomic import create_exclusive, remove, store_errors
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder

_MARK = re.compile(r"(\d{6,12})\.unlinked-(\d{1,6})")


def tell_unlinked(folder: RunFolder, epoch: int, index: int) -> None:
    """That host has no link to the holder of that lease; raises StoreUnavailable."""
    with contextlib.suppress(FileExistsError):
        create_exclusive(folder.lease_dir / _name(epoch, index), b"")


def tell_linked(folder: RunFolder, epoch: int, index: int) -> None:
    """It has one again; raises StoreUnavailable."""
    remove(folder.lease_dir / _name(epoch, index))


def unlinked_hosts(folder: RunFolder, epoch: int) -> frozenset[int]:
    """Those without a link to the holder of that lease; raises StoreUnavailable."""
    refresh(folder.lease_dir)
    with store_errors("read the lease", folder.lease_dir):
        names = os.listdir(folder.lease_dir)  # noqa: PTH208 - names are all we need
    marks = filter(None, map(_MARK.fullmatch, names))
    return frozenset(int(mark[2]) for mark in marks if int(mark[1]) == epoch)


def _name(epoch: int, index: int) -> str:
    return f"{epoch:06d}.unlinked-{index}"
