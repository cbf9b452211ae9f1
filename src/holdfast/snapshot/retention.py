"""How many sets a run keeps, which are pinned, and the deleting of the others.

Never deleted: the newest set of the lineage, a pinned one, one that is in use. A set that was
abandoned (its attempt is not on the lineage, or its step above where the next attempt resumed)
goes once the lineage has as many sets as `Keep.last` asks for.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from holdfast.core.save.choose import Chain, newest_first
from holdfast.errors import CorruptCheckpoint, StoreUnavailable
from holdfast.journal.atomic import store_errors, write_atomic
from holdfast.journal.attempts import AttemptRecord
from holdfast.journal.fields import load_json, printable
from holdfast.journal.regular import read_regular
from holdfast.snapshot.external import external_of, is_removed
from holdfast.snapshot.keep import Keep
from holdfast.snapshot.removal import Held, is_doomed, remove
from holdfast.snapshot.sets import SetInfo, list_sets, parse_set_name, read_head

MAX_PINS_BYTES = 16 << 20
LOCK_TRIES, LOCK_STEP_S = 50, 0.02


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


class _Pins(NamedTuple):
    tags: dict[str, str]  # tag → name of a set
    up_to: tuple[int, int]  # the sets of which `pin_tagged` has seen the tags: (attempt, step)


def read_pins(path: Path) -> dict[str, str]:
    """Tag → name of a set; empty when there is no file.

    Raises:
        StoreUnavailable: it cannot be read or makes no sense. Nothing may be deleted then.

    """
    return _read(path).tags


def pin(path: Path, tag: str, name: str) -> None:
    """Give a set a tag; a tag that another set had moves. Raises StoreUnavailable."""
    with _alone(path):
        pins = _read(path)
        _write(path, pins._replace(tags=pins.tags | {tag: name}))


def unpin(path: Path, tag: str) -> bool:
    """Take a tag away; whether it was there. Raises StoreUnavailable."""
    with _alone(path):
        pins = _read(path)
        if pins.tags.pop(tag, None) is None:
            return False
        _write(path, pins)
        return True


def pin_tagged(path: Path, sets: Sequence[SetInfo]) -> None:
    """Pin the committed sets that were saved with tags, each once. Raises StoreUnavailable.

    The tags stand in the manifests, and the pins follow: who dies between the two (or finds the
    disk full) leaves a tagged set that nothing protects, and the next call catches up. A tag that
    was taken away since stays away.
    """
    with _alone(path):
        pins = _read(path)
        new = sorted((s.attempt, s.step, s.name, s.tags) for s in sets if s.tags)
        new = [one for one in new if one[:2] > pins.up_to]
        if new:
            tags = pins.tags | {tag: name for _, _, name, tags in new for tag in tags}
            _write(path, _Pins(tags, new[-1][:2]))


@contextlib.contextmanager
def _alone(path: Path) -> Iterator[None]:
    """No other process of this host changes the pins, or deletes by them, meanwhile.

    It is waited for a moment only, for it may be stopped; and some file systems have no locks.
    """
    with contextlib.ExitStack() as stack:
        with contextlib.suppress(OSError):  # whoever reads or writes says what is wrong
            folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            stack.callback(os.close, folder)
            _lock(folder)
        yield


def _lock(descriptor: int) -> None:
    for _ in range(LOCK_TRIES):
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(LOCK_STEP_S)
        else:
            return


def _read(path: Path) -> _Pins:
    with store_errors("read the pins", path):
        try:
            data = read_regular(path, MAX_PINS_BYTES)
        except FileNotFoundError:
            return _Pins({}, (-1, 0))
    try:
        said = load_json(data)
        tags, up_to = said.get("pins"), said.get("tagged_up_to", [-1, 0])
        sound = (
            isinstance(tags, dict)
            and all(isinstance(name, str) and parse_set_name(name) for name in tags.values())
            and isinstance(up_to, list)
            and [type(number) for number in up_to] == [int, int]
        )
    except (ValueError, AttributeError):
        sound = False
    if not sound:
        raise StoreUnavailable(
            f"{path} is not readable as pins, so no checkpoint will be deleted; repair or remove it"
        )
    shown = {printable(tag): name for tag, name in tags.items()}
    return _Pins(shown, (up_to[0], up_to[1]))


def _write(path: Path, pins: _Pins) -> None:
    said = {"pins": dict(sorted(pins.tags.items())), "tagged_up_to": list(pins.up_to)}
    write_atomic(path, json.dumps(said, indent=1).encode() + b"\n")


def removed_elsewhere(
    ckpt_dir: Path, sets: Sequence[SetInfo], damaged: Collection[str]
) -> tuple[str, ...]:
    """Of the damaged sets, those that stand for checkpoints which their framework has removed.

    In a folder of which a sound set has one: else it may be that the folder is away.
    """
    folders = {one.external_folder for one in sets}
    found = []
    for name in damaged:
        with contextlib.suppress(CorruptCheckpoint):  # damaged in another way
            external = external_of(read_head(ckpt_dir / name).extras)
            if external is not None and external.folder in folders and is_removed(external):
                found.append(name)
    return tuple(found)


def collect(
    ckpt_dir: Path,
    pins_path: Path,
    keep: Keep,
    lease: Held,
    in_use: Collection[str] = (),
    chain: Chain | None = None,
    records: Sequence[AttemptRecord] = (),
) -> tuple[str, ...]:
    """Delete what `plan` says, and what is being removed already; the names of the deleted sets.

    Raises:
        StoreUnavailable: pins or folder cannot be read, or the run may be another's by now (nothing
            was deleted), or a deletion failed.

    """
    with _alone(pins_path):
        pins = read_pins(pins_path)
        sets, damage = list_sets(ckpt_dir)
        begun = [one for one in sets if is_doomed(one.name, one.doomed_by, records)]
        others, _ = plan([one for one in sets if one not in begun], pins, keep, in_use, chain)
        removed = set(removed_elsewhere(ckpt_dir, sets, damage)) - {*pins.values()}
        names = (*(one.name for one in (*begun, *others)), *sorted(removed))
        names = tuple(name for name in names if name not in in_use)
        remove(ckpt_dir, names, lease)
        return names
