"""Sets in an object store: shards in parts, receipts, and a manifest that only one can create.

An object is seen whole or not at all and is durable when its write is answered, so order is all
there is to keep: a shard, its receipt, the manifest last. A listing tells names and sizes at once.
"""

from __future__ import annotations

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holdfast.errors import CorruptCheckpoint
from holdfast.journal.flow import Flow
from holdfast.journal.objects import Bucket, Gone, ListedObject
from holdfast.snapshot.names import (
    doing,
    doomed_by,
    doomed_name,
    given_up,
    is_committed,
    parse_set_name,
)
from holdfast.snapshot.receipt import CHUNK_BYTES, MANIFEST, Receipt, receipt_name, shard_name
from holdfast.snapshot.sealed import MAX_SEALED_BYTES, seal, unseal

READERS = 8  # they wait for the network most of the time, on however few cores
NEIGHBOURHOOD_BYTES = 2 << 20  # small reads come with what lies around them, which is read next
KEPT_NEIGHBOURHOODS = 32


@dataclass(frozen=True, slots=True)
class ObjectFiles:
    """The files of one set, as one listing saw them."""

    entries: Mapping[str, ListedObject]

    def has(self, file: str) -> bool:
        """Whether it is there."""
        return file in self.entries

    def size(self, file: str) -> int | None:
        """Its bytes; None when it is not there."""
        found = self.entries.get(file)
        return None if found is None else found.nbytes

    def doomed_by(self) -> int | None:
        """The newest lease whose holder was removing the set; None: none was."""
        return doomed_by(self.entries)


class ObjectShard:
    """A shard, read in ranges. Safe for several threads."""

    def __init__(self, bucket: Bucket, key: str) -> None:
        self._bucket = bucket
        self._key = key
        try:
            self.nbytes = bucket.size(key)
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{bucket.where(key)} is missing") from error
        self._near: OrderedDict[int, memoryview] = OrderedDict()
        self._lock = threading.Lock()

    def read_into(self, target: memoryview, offset: int, what: str) -> None:
        """Fill `target` from there; CorruptCheckpoint when it ends before, StoreUnavailable."""
        done = 0
        while done < target.nbytes:
            found = self._some(offset + done, target.nbytes - done)
            if not found.nbytes:
                raise CorruptCheckpoint(f"{self._bucket.where(self._key)} ends inside {what}")
            target[done : done + found.nbytes] = found
            done += found.nbytes

    def close(self) -> None:
        """Forget what was read."""
        self._near.clear()

    def _some(self, offset: int, length: int) -> memoryview:
        """Bytes from `offset` on, at most `length`; none at the end."""
        if length >= NEIGHBOURHOOD_BYTES:
            return self._get(offset, length)
        begin = offset - offset % NEIGHBOURHOOD_BYTES
        with self._lock:
            near = self._near.get(begin)
        if near is None:
            near = self._get(begin, NEIGHBOURHOOD_BYTES)
            with self._lock:
                self._near[begin] = near
                if len(self._near) > KEPT_NEIGHBOURHOODS:
                    self._near.popitem(last=False)
        return near[offset - begin : offset - begin + length]

    def _get(self, offset: int, length: int) -> memoryview:
        length = min(length, self.nbytes - offset)
        if length <= 0:
            return memoryview(b"")
        try:
            return self._bucket.get_range(self._key, offset, length)
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{self._bucket.where(self._key)} is missing") from error


class ObjectVault:
    """See `holdfast.snapshot.vault.Vault`."""

    block_bytes = CHUNK_BYTES
    readers: int | None = READERS

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def where(self, name: str, file: str = "") -> str:
        """The URL."""
        return self._bucket.where(_key(name, file))

    def look(self) -> dict[str, ObjectFiles]:
        """All sets, by one listing; StoreUnavailable."""
        found: dict[str, dict[str, ListedObject]] = defaultdict(dict)
        for key, entry in self._bucket.list().items():
            name, _, file = key.partition("/")
            if file and parse_set_name(name) is not None:
                found[name][file] = entry
        return {name: ObjectFiles(found[name]) for name in sorted(found)}

    def files(self, name: str) -> ObjectFiles:
        """The files of one set (or, for "", those beside the sets); StoreUnavailable."""
        begin = f"{name}/" if name else ""
        entries = self._bucket.list(name) if name else self._bucket.list_top()
        return ObjectFiles({key.removeprefix(begin): one for key, one in entries.items()})

    def read(self, name: str, file: str) -> dict[str, Any]:
        """A sealed object; CorruptCheckpoint, StoreUnavailable."""
        key = _key(name, file)
        try:
            data = self._bucket.get(key, MAX_SEALED_BYTES)
        except FileNotFoundError as error:
            raise CorruptCheckpoint(f"{self._bucket.where(key)} is missing") from error
        return unseal(data, self._bucket.where(key))

    def write(self, name: str, file: str, value: Any) -> None:
        """Create or replace a sealed object; StoreUnavailable."""
        self._bucket.put(_key(name, file), seal(value))

    def open(self, name: str, file: str) -> ObjectShard:
        """A shard; CorruptCheckpoint, StoreUnavailable."""
        return ObjectShard(self._bucket, _key(name, file))

    def put_data(
        self,
        name: str,
        rank: int,
        data: Sequence[memoryview],
        flow: Flow | None = None,
    ) -> None:
        """A rank's shard, durable. What an earlier, failed try left there is replaced."""
        files = self.files(name)
        if files.has(MANIFEST):
            raise is_committed(name, self.where(name))
        if files.has(receipt_name(rank)):
            self._bucket.delete([_key(name, receipt_name(rank))])
        try:
            self._bucket.put_parts(_key(name, shard_name(rank)), data, flow)
        except Gone:
            raise given_up(name) from None

    def put_receipt(self, name: str, receipt: Receipt) -> None:
        """Acknowledge a shard."""
        self.write(name, receipt_name(receipt.rank), receipt.to_json())

    def put_manifest(self, name: str, value: dict[str, Any]) -> None:
        """Create the manifest: of any number of controllers one succeeds, and the others see it.

        Raises CorruptCheckpoint when somebody else has committed the set, StoreUnavailable.
        """
        try:
            self._bucket.create(_key(name, MANIFEST), seal(value))
        except FileExistsError as error:
            raise CorruptCheckpoint(
                f"cannot {doing(name)}: {self.where(name)} was committed by another process"
            ) from error

    def doom(self, name: str, epoch: int) -> None:
        """Mark a set."""
        self._bucket.put(_key(name, doomed_name(epoch)), b"")

    def delete(self, name: str) -> None:
        """Remove a set, the manifest first, the marks last."""
        self._bucket.delete([_key(name, MANIFEST)])
        files = self.files(name).entries
        marks = [file for file in files if doomed_by([file]) is not None]
        for part in ([file for file in files if file not in marks], marks):
            self._bucket.delete([_key(name, file) for file in part])


def _key(name: str, file: str) -> str:
    return f"{name}/{file}" if name and file else name or file
