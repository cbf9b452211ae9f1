"""Summaries of runs that nobody writes any more, kept from one look to the next.

A summary stands as long as the files that it was made of are the same: by their names, sizes,
times and inode numbers. Nothing else is trusted: a file of the cache that is damaged, of another
version, or not there, costs a reading of the journals and never a number.

Kept is the whole of a run alone. What went where in the last day depends on when one asks; the
listing knows which runs that is a question for.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import xxhash

from holdfast.core.ledger.program import MAX_FLOPS
from holdfast.core.ledger.summary import ALL, Loss, RunSummary, Spent
from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import make_folder, read_json, write_atomic
from holdfast.journal.fields import field, text, texts, whole, whole_or_none
from holdfast.journal.metric_lines import as_json, values_of

VERSION = 9
MAX_BYTES = 256 << 20
MAX_CHIP_NS = 2**100
MAX_PARTS = 256
_PARTS = ("", "lease", "journal", "ckpt", "attempts")
_PARTS_OF_ATTEMPT = ("", "journal")


class Outside(NamedTuple):
    """What a run's files look like from outside.

    `signature` differs once any of them was written a while after `newest_ns`, the newest time that
    a file has (unix): two writes within one tick of the file system's clock look like one, and what
    is written through a map is in a file's times only when the page goes to the disk.
    """

    signature: str
    newest_ns: int


def outside(run_dir: Path) -> Outside:
    """Look at them.

    Sets of checkpoints count with their folders (a manifest that comes or goes changes those).
    Raises OSError when a folder cannot be listed. Strings, not paths: this is asked of every run.
    """
    base = str(run_dir)
    seen: list[str] = []
    newest_ns = 0
    for part in _PARTS:
        names, at_ns = _look(f"{base}/{part}" if part else base, seen)
        newest_ns = max(newest_ns, at_ns)
    for name in names:  # of the last part, the attempts
        for part in _PARTS_OF_ATTEMPT:
            newest_ns = max(newest_ns, _look(f"{base}/attempts/{name}/{part}", seen)[1])
    listing = "\n".join(seen).encode(errors="surrogateescape")
    return Outside(xxhash.xxh3_128_hexdigest(listing), newest_ns)


def _look(place: str, seen: list[str]) -> tuple[list[str], int]:
    """Add what a folder's entries look like, in order; their names, and the newest one's time."""
    found: dict[str, str] = {}
    newest_ns = 0
    with contextlib.suppress(FileNotFoundError, NotADirectoryError), os.scandir(place) as entries:
        for entry in entries:
            with contextlib.suppress(FileNotFoundError):
                info = entry.stat(follow_symlinks=False)
                newest_ns = max(newest_ns, info.st_mtime_ns)
                found[entry.name] = (
                    f"{info.st_size} {info.st_mtime_ns} {info.st_ino} {info.st_mode}"
                )
    names = sorted(found)
    seen.append(f"{place} {len(names)}")
    seen.extend(f"{name}\0{found[name]}" for name in names)
    return names, newest_ns


class SummaryCache:
    """One file on this host for one store. Reading and writing it never fails: it is only time."""

    def __init__(self, place: Path, root: Path) -> None:
        """`place`: the folder of all such files; `root`: the store's."""
        self.file = place / f"{xxhash.xxh3_128_hexdigest(os.fsencode(root))}.json"
        self._known: dict[str, tuple[str, RunSummary]] = {}
        self._changed = False
        with contextlib.suppress(StoreUnavailable, FileNotFoundError, ValueError):
            self._known = dict(_read(read_json(self.file, MAX_BYTES)))

    def has(self, name: str) -> bool:
        """Whether anything is known of a run, old or not."""
        return name in self._known

    def get(self, name: str, seen: str) -> RunSummary | None:
        """The summary of a run whose files look like this; its window is `ALL` alone."""
        known = self._known.get(name)
        return known[1] if known is not None and known[0] == seen else None

    def put(self, seen: str, summary: RunSummary) -> None:
        """Keep it from now on."""
        self._known[summary.name] = (seen, summary)
        self._changed = True

    def keep(self, names: Mapping[str, object]) -> None:
        """Forget the runs that are not among these: they were deleted."""
        for name in [known for known in self._known if known not in names]:
            del self._known[name]
            self._changed = True

    def save(self) -> None:
        """Write what has changed, if this host lets us."""
        if not self._changed:
            return
        self._changed = False
        with contextlib.suppress(StoreUnavailable, OSError):
            make_folder(self.file.parent, durable=False)
            write_atomic(self.file, encoded(self._known.values()), durable=False)


def encoded(known: Iterable[tuple[str, RunSummary]]) -> bytes:
    """The file's bytes: what each run's files looked like, and its summary."""
    rows = [{"seen": seen, **_plain(one)} for seen, one in known]
    return json.dumps({"version": VERSION, "runs": rows}, allow_nan=False).encode()


_TEXTS = ("name", "run_id", "state", "why", "device")
_WHOLES = ("chips", "attempts")
_FLOPS = ("peak_flops", "reached_flops")
_CHIP_TIMES = ("ideal", "paced", "at_reached", "calibrated", "least", "least_reached")
_WHOLES_OR_NONE = ("step", "saved_step", "seen_unix_ns", "start_ns", "end_ns")


def _plain(one: RunSummary) -> dict[str, Any]:
    spent = one.spent()
    row: dict[str, Any] = {
        k: getattr(one, k) for k in (*_TEXTS, *_WHOLES, *_WHOLES_OR_NONE, *_FLOPS)
    }
    return row | {
        "notes": list(one.notes),
        "metrics": as_json(one.metrics),
        "course": list(one.course),
        "kinds": dict(spent.kinds),
        "steps_kept": spent.steps_kept,
        "lost_steps": spent.lost_steps,
        **{key: getattr(spent, key) for key in _CHIP_TIMES},
        "wall_ns": spent.wall_ns,
        "kept_ns": spent.kept_ns,
        "losses": [list(loss) for loss in spent.losses],
    }


def _read(raw: Mapping[str, Any]) -> Iterator[tuple[str, tuple[str, RunSummary]]]:
    if raw.get("version") != VERSION:
        return
    rows = field(raw, "runs")
    if not isinstance(rows, list):
        raise ValueError("its runs are no list")
    for row in rows:
        if not isinstance(row, dict):
            raise ValueError("a run is no object")
        summary = _summary(row)
        yield summary.name, (text(row, "seen"), summary)


def _summary(row: Mapping[str, Any]) -> RunSummary:
    fields: dict[str, Any] = {key: text(row, key) for key in _TEXTS}
    fields |= {key: whole(row, key) for key in _WHOLES}
    fields |= {key: whole_or_none(row, key) for key in _WHOLES_OR_NONE}
    fields |= {key: whole(row, key, high=MAX_FLOPS) for key in _FLOPS}
    kinds, losses = field(row, "kinds"), field(row, "losses")
    if not isinstance(kinds, dict) or not isinstance(losses, list):
        raise ValueError("its kinds or losses are none")
    spent = Spent(
        kinds={kind: whole(kinds, kind, high=MAX_CHIP_NS) for kind in kinds},
        steps_kept=whole(row, "steps_kept"),
        lost_steps=whole(row, "lost_steps"),
        **{key: whole(row, key, high=MAX_CHIP_NS) for key in _CHIP_TIMES},
        wall_ns=whole(row, "wall_ns"),
        kept_ns=whole(row, "kept_ns"),
        losses=tuple(_loss(one) for one in losses),
    )
    course = _course(field(row, "course"))
    return RunSummary(
        **fields,
        course=course,
        within={ALL: spent},
        notes=texts(row, "notes"),
        metrics=values_of(field(row, "metrics")),
    )


def _course(raw: object) -> tuple[int, ...]:
    if not isinstance(raw, list) or len(raw) > MAX_PARTS:
        raise ValueError("its course is none")
    if not all(type(share) is int and 0 <= share <= 100 for share in raw):
        raise ValueError("its course has shares that cannot be")
    return tuple(raw)


def _loss(raw: object) -> Loss:
    if not isinstance(raw, list) or len(raw) != len(Loss._fields):
        raise ValueError("a loss is none")
    fields = dict(zip(Loss._fields, raw, strict=True))
    at_ns, cause = whole(fields, "at_ns"), text(fields, "cause")
    chip_ns = whole(fields, "chip_ns", high=MAX_CHIP_NS)
    stopped = whole(fields, "stopped", high=chip_ns)
    return Loss(at_ns, cause, chip_ns, text(fields, "error"), stopped)
