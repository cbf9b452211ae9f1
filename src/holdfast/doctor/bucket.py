"""A run store in an object store, tried out with one small object that is taken away again."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable
from dataclasses import replace
from statistics import median

from holdfast.doctor.facts import ObjectStore
from holdfast.doctor.host import outside
from holdfast.errors import ConfigurationError, HoldfastError, StoreUnavailable
from holdfast.journal.objects import Bucket, is_object_url, parse_place

PROBE = "holdfast-doctor-"
READS = 5


def object_store(store: str, *, instance: bool) -> ObjectStore | None:
    """What the bucket does when it is asked; None for a store that is no bucket.

    `instance`: credentials may come from this machine's metadata server. Takes some 15 s where
    nobody answers. Raises ConfigurationError for a URL that names no place.
    """
    if not is_object_url(store):
        return None
    place = parse_place(store, instance=instance)
    found = ObjectStore(str(place))
    try:
        bucket = Bucket(place)
    except ConfigurationError as error:
        return replace(found, step="opened", trouble=str(error))
    return probe(bucket, found)


def probe(
    bucket: Bucket,
    found: ObjectStore,
    clock: Callable[[], float] = time.time,
    stopwatch: Callable[[], float] = time.perf_counter,
) -> ObjectStore:
    """Write, claim, read, list and delete an object; the first that fails ends it.

    `clock` gives unix seconds.
    """
    key = f"{PROBE}{os.urandom(6).hex()}"
    mine, other = key.encode(), b"somebody else's"
    is_written = False
    step = "written"
    try:
        before_s = clock()
        bucket.create(key, mine)
        is_written, after_s = True, clock()
        step = "read"
        found = replace(found, took_s=_reads(bucket, key, mine, stopwatch))
        # Stamps of objects are cut to whole seconds.
        skew_s = outside(bucket.stamped_s(key), before_s - 1, after_s)
        found = replace(found, skew_s=skew_s)
        step = "listed"
        if key not in bucket.list_top():
            raise StoreUnavailable(f"{bucket.where(key)} was written, and is not in the list")
        step = "claimed"
        found = replace(found, is_exclusive=_is_exclusive(bucket, key, other))
        step = "deleted"
        bucket.delete([key])
        is_written = bucket.has(key)
        if is_written:
            raise StoreUnavailable(f"{bucket.where(key)} was deleted, and is still there")
    except (HoldfastError, OSError) as error:
        if is_written and step != "deleted":
            with contextlib.suppress(HoldfastError, OSError):
                bucket.delete([key])
                is_written = False
        left = bucket.where(key) if is_written else ""
        return replace(found, step=step, trouble=str(error), left=left)
    return found


def _reads(bucket: Bucket, key: str, data: bytes, stopwatch: Callable[[], float]) -> float:
    """How long a small read takes, in seconds."""
    took_s = []
    for _ in range(READS):
        began_s = stopwatch()
        if bucket.get(key, len(data)) != data:
            raise StoreUnavailable(f"{bucket.where(key)} is not what was written")
        took_s.append(stopwatch() - began_s)
    return median(took_s)


def _is_exclusive(bucket: Bucket, key: str, data: bytes) -> bool:
    """Whether the store refuses to create what is there: leases and attempts rest on that."""
    try:
        bucket.create(key, data)
    except FileExistsError:
        return True
    return False
