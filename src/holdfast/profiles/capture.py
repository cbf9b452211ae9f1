"""What a rank tells of a profile that it was asked for: a small file beside the trace.

    attempts/0003/profiles/ID/rank-00000.json            this
                              rank-00000.trace.json.gz   what PyTorch's profiler wrote, or
                              rank-00000.xplane.pb.gz    what JAX's did
                              summary.json               what `holdfast profile` made of both

All times are CLOCK_BOOTTIME in ns, as in the journal.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast.core.value import value
from holdfast.errors import StoreUnavailable
from holdfast.journal import fields
from holdfast.journal.atomic import make_part, read_json
from holdfast.journal.regular import is_real_folder
from holdfast.journal.store import RunFolder

FORMAT = 1
MAX_STEPS = 100
MAX_BYTES = 4 << 20  # of the file
MAX_TRACE_BYTES = 256 << 20  # of a trace, as it is when it is not compressed
TRACES = {"jax": ".xplane.pb.gz", "torch": ".trace.json.gz"}


@value
class Capture:
    """A window that a rank has recorded, or why it has not (`refused`).

    `edges`: each step's number, and its end; the first is the one before the window. `spans`: what
    the rank has recorded of it beside, by kind. `ran`: a few times a step, how long the training's
    thread had run so far.
    """

    attempt: int
    rank: int
    steps: int = 0  # asked for
    refused: str = ""
    framework: str = ""
    version: str = ""
    device: str = ""
    at_unix_ns: int = 0
    trace_bytes: int = 0
    note: str = ""
    edges: tuple[tuple[int, int], ...] = ()
    spans: tuple[tuple[str, int, int], ...] = ()
    ran: tuple[tuple[int, int], ...] = ()

    def to_json(self) -> dict[str, Any]:
        """As it is stored."""
        return {"format": FORMAT, **asdict(self)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Capture:
        """The inverse. Raises ValueError for what cannot be."""
        if fields.whole(raw, "format") != FORMAT:
            raise ValueError("a newer Holdfast wrote it; upgrade")
        edges = [_pair(one) for one in _rows(raw, "edges", 2)]
        if any(one[1] > two[1] for one, two in pairwise(edges)):
            raise ValueError("its edges are out of order")
        return cls(
            attempt=fields.whole(raw, "attempt", high=fields.MAX_ATTEMPT),
            rank=fields.whole(raw, "rank", high=fields.MAX_RANKS),
            steps=fields.whole(raw, "steps"),
            refused=fields.text(raw, "refused"),
            framework=fields.text(raw, "framework"),
            version=fields.text(raw, "version"),
            device=fields.text(raw, "device"),
            at_unix_ns=fields.whole(raw, "at_unix_ns"),
            trace_bytes=fields.whole(raw, "trace_bytes"),
            note=fields.text(raw, "note"),
            edges=tuple(edges),
            spans=tuple(_span(one) for one in _rows(raw, "spans", 3)),
            ran=tuple(_pair(one) for one in _rows(raw, "ran", 2)),
        )


def _rows(raw: Mapping[str, Any], key: str, length: int) -> list[list[Any]]:
    rows = fields.field(raw, key)
    if not isinstance(rows, list) or not all(
        isinstance(one, list) and len(one) == length for one in rows
    ):
        raise ValueError(f"its {key} are no list of {length} each")
    return rows


def _time(value: object) -> int:
    return fields.whole({"time": value}, "time")


def _pair(row: list[Any]) -> tuple[int, int]:
    return _time(row[0]), _time(row[1])


def _span(row: list[Any]) -> tuple[str, int, int]:
    return fields.text({"kind": row[0]}, "kind")[:64], _time(row[1]), _time(row[2])


def profile_dir(folder: RunFolder, attempt: int, name: str) -> Path:
    """Where all of one profile lies."""
    return folder.profiles_dir(attempt) / name


def capture_path(folder: RunFolder, attempt: int, name: str, rank: int) -> Path:
    """What the rank tells of it."""
    return profile_dir(folder, attempt, name) / f"rank-{rank:05d}.json"


def make_place(capture_file: Path) -> None:
    """The folders that it lies in, where the attempt's own is. Raises StoreUnavailable."""
    for folder in (capture_file.parent.parent, capture_file.parent):
        make_part(folder)


def trace_path(capture_file: Path, framework: str) -> Path:
    """The trace beside that."""
    return capture_file.with_suffix(TRACES[framework])


def read_capture(path: Path) -> Capture | None:
    """What a rank has told; None: nothing yet. Raises StoreUnavailable for what is damaged."""
    try:
        raw = read_json(path, MAX_BYTES)
    except FileNotFoundError:
        return None
    try:
        return Capture.from_json(raw)
    except ValueError as error:
        raise StoreUnavailable(f"{path} is damaged ({error}); profile again") from error


def profiles(folder: RunFolder, attempt: int) -> list[Path]:
    """The folders of an attempt's profiles, the newest first."""
    place = folder.profiles_dir(attempt)
    if not is_real_folder(place):
        return []
    try:
        found = [one for one in place.iterdir() if is_real_folder(one)]
        return sorted(found, key=lambda one: (one.lstat().st_mtime_ns, one.name), reverse=True)
    except OSError:
        return []
