"""Reading what a rank has left of a profile, and keeping what was made of it beside that."""

from __future__ import annotations

import zlib
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import unavailable, write_atomic
from holdfast.journal.regular import read_regular
from holdfast.journal.store import RunFolder
from holdfast.profiles.capture import (
    MAX_TRACE_BYTES,
    TRACES,
    Capture,
    profiles,
    read_capture,
    trace_path,
)
from holdfast.profiles.chrome import read_chrome
from holdfast.profiles.summary import (
    MAX_BYTES,
    ProfileSummary,
    read_summary,
    summarise,
    summary_bytes,
)
from holdfast.profiles.xplane import read_xspace

SUMMARY = "summary.json"
_READERS = {"jax": read_xspace, "torch": read_chrome}


def unpacked(data: bytes, most: int = MAX_TRACE_BYTES) -> bytes:
    """What a gzip file holds; raises ValueError for no such file, or one that holds too much."""
    unpacker = zlib.decompressobj(wbits=31)
    try:
        found = unpacker.decompress(data, most + 1)
    except zlib.error as error:
        raise ValueError(f"it is no gzip file ({error})") from None
    if len(found) > most:
        raise ValueError(f"it holds more than {most >> 20} MiB")
    if not unpacker.eof:
        raise ValueError("it is cut short")
    return found


def read_trace(path: Path, capture: Capture) -> ProfileSummary:
    """What the trace beside that capture says. Raises StoreUnavailable, ValueError."""
    if capture.framework not in TRACES:
        raise ValueError(f"its framework is {capture.framework!r}")
    trace = trace_path(path, capture.framework)
    try:
        data = read_regular(trace, MAX_TRACE_BYTES)
    except OSError as error:
        raise unavailable(f"read {trace.name}", trace, error) from error
    if len(data) > MAX_TRACE_BYTES:
        raise ValueError("it is too large")
    return summarise(_READERS[capture.framework](unpacked(data)), capture)


def summarised(place: Path) -> ProfileSummary | None:
    """What was made of the profile in that folder; None: nothing yet, or nothing that holds."""
    try:
        data = read_regular(place / SUMMARY, MAX_BYTES)
        return read_summary(data) if len(data) <= MAX_BYTES else None
    except (OSError, ValueError):
        return None


def make_summary(path: Path, capture: Capture) -> ProfileSummary:
    """Read a rank's trace, and keep what it says beside it. Raises StoreUnavailable."""
    try:
        made = read_trace(path, capture)
    except ValueError as error:
        raise StoreUnavailable(f"the trace of {path} cannot be read: {error}") from error
    write_atomic(path.parent / SUMMARY, summary_bytes(made))
    return made


def captures(place: Path) -> list[tuple[Path, Capture]]:
    """What ranks have told in that folder; what is damaged is passed over."""
    found = []
    for path in sorted(place.glob("rank-*.json")):
        try:
            capture = read_capture(path)
        except StoreUnavailable:
            continue
        if capture is not None:
            found.append((path, capture))
    return found


def newest_profile(folder: RunFolder, newest_attempt: int) -> ProfileSummary | None:
    """The newest that was read, of the newest attempts; None: there is none."""
    for attempt in range(newest_attempt, max(-1, newest_attempt - 100), -1):
        for place in profiles(folder, attempt):
            found = summarised(place)
            if found is not None:
                return found
    return None
