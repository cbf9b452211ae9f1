"""How many sets a run keeps, which are pinned, and the deleting of the others.

Never deleted: the newest set of the lineage, a pinned one, one that is in use. A set that was
abandoned (its attempt is not on the lineage, or its step above where the next attempt resumed)
goes once the lineage has as many sets as `Keep.last` asks for.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.journal.atomic import store_errors, write_atomic
from holdfast.journal.fields import load_json, printable
from holdfast.journal.regular import read_regular
from holdfast.snapshot.choose import Chain, newest_first
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.sets import SetInfo, delete_set, list_sets, parse_set_name

MAX_PINS_BYTES = 16 << 20


def plan(
    sets: Sequence[SetInfo],
    pins: Mapping[str, str],
    keep: Keep,
    in_use: Collection[str] = (),
    chain: Chain | None = None,
) -> tuple[tuple[SetInfo, ...], dict[str, str]]:
    """What to delete, and for every set by name why it stays or goes. Pure.

    `pins` maps a tag to a set's name. `chain`: the lineage, as for `choose`; without it every
    attempt counts as the parent of the next.
    """
    if chain is None:
        chain = [(attempt, None) for attempt in sorted({s.attempt for s in sets}, reverse=True)]
    lineage = newest_first(sets, chain)
    tags: dict[str, list[str]] = {}
    for tag, name in pins.items():
        tags.setdefault(name, []).append(tag)
    reasons: dict[str, str] = {}
    seen_windows: set[int] = set()
    for one in reversed(lineage):  # oldest first: the first set of each window stays
        if keep.every is not None and one.step // keep.every not in seen_windows:
            seen_windows.add(one.step // keep.every)
            reasons[one.name] = f"kept: the first of its {keep.every} steps"
    for one in lineage[: keep.last]:
        reasons[one.name] = f"kept: one of the last {keep.last}"
    on_lineage = {one.name for one in lineage}
    for one in sets:
        if one.name in tags:
            reasons[one.name] = f"kept: pinned as {', '.join(sorted(tags[one.name]))}"
        elif one.name in in_use:
            reasons[one.name] = "kept: in use"
        elif one.name not in on_lineage and len(lineage) < keep.last:
            reasons[one.name] = "kept: abandoned, but the lineage is still short of checkpoints"
    doomed = tuple(one for one in sets if one.name not in reasons)
    for one in doomed:
        why = "older than what is kept" if one.name in on_lineage else "on an abandoned branch"
        reasons[one.name] = f"deleted: {why}"
    return doomed, reasons


def read_pins(path: Path) -> dict[str, str]:
    """Tag → name of a set; empty when there is no file.

    Raises:
        StoreUnavailable: it cannot be read or makes no sense. Nothing may be deleted then.

    """
    with store_errors("read the pins", path):
        try:
            data = read_regular(path, MAX_PINS_BYTES)
        except FileNotFoundError:
            return {}
    try:
        pins = load_json(data).get("pins")
        sound = isinstance(pins, dict) and all(
            isinstance(name, str) and parse_set_name(name) for name in pins.values()
        )
    except (ValueError, AttributeError):
        sound = False
    if not sound:
        raise StoreUnavailable(
            f"{path} is not readable as pins, so no checkpoint will be deleted; repair or remove it"
        )
    return {printable(tag): name for tag, name in pins.items()}


def pin(path: Path, tag: str, name: str) -> None:
    """Give a set a tag; a tag that another set had moves. Raises StoreUnavailable."""
    _write_pins(path, read_pins(path) | {tag: name})


def unpin(path: Path, tag: str) -> bool:
    """Take a tag away; whether it was there. Raises StoreUnavailable."""
    pins = read_pins(path)
    if pins.pop(tag, None) is None:
        return False
    _write_pins(path, pins)
    return True


def _write_pins(path: Path, pins: Mapping[str, str]) -> None:
    write_atomic(path, json.dumps({"pins": dict(sorted(pins.items()))}, indent=1).encode() + b"\n")


def collect(
    ckpt_dir: Path,
    pins_path: Path,
    keep: Keep,
    in_use: Collection[str] = (),
    chain: Chain | None = None,
) -> tuple[str, ...]:
    """Delete what `plan` says; the names of the sets that are gone.

    Raises:
        StoreUnavailable: pins or folder cannot be read (nothing was deleted), or a deletion failed.

    """
    pins = read_pins(pins_path)
    sets, _ = list_sets(ckpt_dir)
    doomed, _ = plan(sets, pins, keep, in_use, chain)
    for one in doomed:
        delete_set(one.path)
    return tuple(one.name for one in doomed)
