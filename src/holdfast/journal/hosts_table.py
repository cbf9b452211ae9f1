"""The hosts of a run as its controller sees them: a file beside its lease, for people to look at.

    lease/000007.hosts    one object: the rows, replaced once a second; of many hosts less often

A controller that follows another one finds in it for which hosts that one had waited already, and
which part of the run was on the machine of one that is silent. It waits for these hosts no longer
than that leaves of the time, but as long as one that lives needs. Nothing else is decided by it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import encode_json, read_json, write_atomic
from holdfast.journal.fields import text, whole_or_none
from holdfast.journal.layout import MAX_TIME_NS
from holdfast.journal.lease import Lease
from holdfast.journal.store import RunFolder


@dataclass(frozen=True, slots=True)
class ListedHost:
    """One host. `trains_as`: the number of the host whose part it has; None: it has none.

    `heard_unix_ns`: when it was last heard, by the clock of the controller's host. `behind_ns`: how
    far it is behind the median host in each step of `step_ns`; None: that is not known. `slice`:
    which one of several it belongs to. `offset_ns`: what brings the times of its boot to those of
    the controller's host, to within `error_ns`, and `ahead_ns` how far its wall clock is ahead of
    that host's; None: it was not measured. `chips`: how many it has; None: it does not say.
    `silent_ns`: for how long it was not heard then; None: not long enough to be suspect.
    """

    index: int
    state: str
    address: str
    trains_as: int | None = None
    heard_unix_ns: int | None = None
    behind_ns: int | None = None
    step_ns: int | None = None
    slice: str = ""
    first_rank: int | None = None
    last_rank: int | None = None
    boot: str = ""
    offset_ns: int | None = None
    error_ns: int | None = None
    ahead_ns: int | None = None
    chips: int | None = None
    silent_ns: int | None = None


NAMES = tuple(one.name for one in fields(ListedHost))


def tell_hosts(lease: Lease, rows: Sequence[ListedHost]) -> None:
    """For the holder of the lease; raises StoreUnavailable."""
    data = encode_json({"hosts": [{name: getattr(row, name) for name in NAMES} for row in rows]})
    write_atomic(_path(lease.folder, lease.epoch), data, durable=False)


def read_hosts(folder: RunFolder, epoch: int) -> tuple[ListedHost, ...] | None:
    """As the controller of that term has told; None: it has told nothing that can be read."""
    with contextlib.suppress(StoreUnavailable, FileNotFoundError, ValueError, TypeError):
        rows = read_json(_path(folder, epoch))["hosts"]
        return tuple(
            ListedHost(
                whole_or_none(row, "index") or 0,
                text(row, "state"),
                text(row, "address"),
                whole_or_none(row, "trains_as"),
                whole_or_none(row, "heard_unix_ns"),
                whole_or_none(row, "behind_ns"),
                whole_or_none(row, "step_ns"),
                text({"slice": "", **row}, "slice"),
                whole_or_none(row, "first_rank"),
                whole_or_none(row, "last_rank"),
                text({"boot": "", **row}, "boot"),
                whole_or_none(row, "offset_ns", -MAX_TIME_NS, MAX_TIME_NS),
                whole_or_none(row, "error_ns"),
                whole_or_none(row, "ahead_ns", -MAX_TIME_NS, MAX_TIME_NS),
                whole_or_none({"chips": None, **row}, "chips", 1),
                whole_or_none({"silent_ns": None, **row}, "silent_ns"),
            )
            for row in rows
        )
    return None


def _path(folder: RunFolder, epoch: int) -> Path:
    return folder.lease_dir / f"{epoch:06d}.hosts"
