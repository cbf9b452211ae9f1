"""Where a run's sets are kept: one protocol, and a folder or an object store behind it.

What must hold is the same in both: whoever sees a receipt can rely on the shard, whoever sees a
manifest can rely on all of the set, and nothing partial is ever read as a set.

A run that lives in an object store has a working copy of its records on this host; its sets are in
the object store alone (`journal.elsewhere`).
"""

from __future__ import annotations

import functools
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holdfast.journal.elsewhere import elsewhere
from holdfast.journal.flow import Flow
from holdfast.snapshot.receipt import Receipt
from holdfast.snapshot.vault_folder import FolderVault

if TYPE_CHECKING:
    from holdfast.journal.objects import Place


class Files(Protocol):
    """The files of one set."""

    def has(self, file: str) -> bool:
        """Whether there is something of that name."""

    def size(self, file: str) -> int | None:
        """Bytes; None when it is not there, or no file. Raises StoreUnavailable."""

    def doomed_by(self) -> int | None:
        """The newest lease whose holder is removing the set; None: none is. StoreUnavailable."""


class OpenShard(Protocol):
    """A shard that can be read in parts, by several threads."""

    nbytes: int

    def read_into(self, target: memoryview, offset: int, what: str) -> None:
        """Fill `target` with the bytes from `offset` on.

        Raises CorruptCheckpoint, naming `what` was to be read, and StoreUnavailable.
        """

    def close(self) -> None:
        """It is not read any more."""


class Vault(Protocol):
    """The sets of one run. Names are those of sets; "" is the place beside them."""

    block_bytes: int  # how much is best read at once
    readers: int | None  # how many threads should read; None: as many as there are cores

    def where(self, name: str, file: str = "") -> str:
        """Where that is, for people."""

    def look(self) -> Mapping[str, Files]:
        """All sets, partial ones too, sorted by name; StoreUnavailable."""

    def files(self, name: str) -> Files:
        """The files of one set; StoreUnavailable."""

    def read(self, name: str, file: str) -> dict[str, Any]:
        """A sealed file's value; CorruptCheckpoint when missing or damaged, StoreUnavailable."""

    def write(self, name: str, file: str, value: Any) -> None:
        """Create or replace a sealed file; durable on return. StoreUnavailable."""

    def open(self, name: str, file: str) -> OpenShard:
        """A shard for reading; CorruptCheckpoint when missing, StoreUnavailable."""

    def put_data(
        self,
        name: str,
        rank: int,
        data: Sequence[memoryview],
        flow: Flow | None = None,
    ) -> None:
        """Write a rank's shard from memory, one view after the other; durable on return.

        What an earlier, failed try left is replaced. Raises StoreUnavailable: it cannot be written,
        the set is committed already, or `flow` was stopped; nothing of it is visible then.
        """

    def put_receipt(self, name: str, receipt: Receipt) -> None:
        """Acknowledge a shard that `put_data` has written; durable on return. StoreUnavailable."""

    def put_manifest(self, name: str, value: dict[str, Any]) -> None:
        """Make a set visible; durable on return. StoreUnavailable, CorruptCheckpoint."""

    def doom(self, name: str, epoch: int) -> None:
        """Mark a set: the holder of that lease is removing it. StoreUnavailable."""

    def delete(self, name: str) -> None:
        """Remove a set: its manifest first, so that it is never half visible; its marks last.

        Raises StoreUnavailable.
        """


def open_vault(place: Path | str) -> Vault:
    """The vault at a folder of sets or a URL; of a working copy, where its sets are.

    Raises ConfigurationError for a URL that is not valid, or whose library or credentials are
    not there, StoreUnavailable when only the folder itself says that its sets are elsewhere.
    """
    if isinstance(place, str) and "://" in place:
        from holdfast.journal.objects import parse_place

        return _vault_at(parse_place(place), os.getpid())
    folder = Path(place)
    other = elsewhere(folder)
    return FolderVault(folder) if other is None else _vault_at(other, os.getpid())


@functools.cache
def _vault_at(place: Place, pid: int) -> Vault:
    """One for each place and process: connections are kept, and a fork gets its own."""
    from holdfast.journal.objects import Bucket
    from holdfast.snapshot.vault_objects import ObjectVault

    del pid
    return ObjectVault(Bucket(place))
