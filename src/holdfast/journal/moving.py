"""Runs that are renamed and removed: others see one step, and a second call finishes a broken one.

In a folder the run goes under a name that no run can have, and so out of everybody's sight:

    STORE/.moving-RUNID-NEW     renamed: its run.json gets the new name, then it appears as NEW
    STORE/.removed-RUNID-NAME   removed: its files are deleted one by one

Whoever comes by next finishes what somebody began who is gone. In an object store nothing can be
renamed; there a run goes with its run.json, and what is left of it keeps its name taken.
"""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from holdfast.errors import ConfigurationError, RunHeld, StoreUnavailable, UnknownRun
from holdfast.journal.atomic import store_errors, sync_folder
from holdfast.journal.lease import acquire
from holdfast.journal.names import MAX_NAME_CHARS, check_name
from holdfast.journal.remote import remote_of
from holdfast.journal.scratch import existing_scratch
from holdfast.journal.store import RunFolder, RunStore, hidden_run, rewrite_name

MOVING, REMOVED = ".moving-", ".removed-"
MACHINES = Path("machines", "machines.json")

Say = Callable[[str], None]


def move(store: RunStore, old: str, new: str, on_wait: Say = lambda _words: None) -> None:
    """Rename a run that nobody supervises.

    Raises UnknownRun, RunHeld, StoreUnavailable, and ConfigurationError when the new name is taken
    or cannot be, for a run that has machines, and in an object store.
    """
    check_name(new)
    if remote_of(store.root) is not None:
        raise ConfigurationError(
            f"run {old!r} stays as it is: {store.shown} is an object store, which cannot rename; "
            "start a run of another name there"
        )
    if new in finish(store, on_wait=on_wait) and not (store.root / old).exists():
        return  # an earlier try had come that far
    if new == old or (store.root / new).exists():
        raise ConfigurationError(f"a run named {new!r} already exists in {store.shown}")
    folder = store.get(old)
    if (folder.path / MACHINES).exists():
        raise ConfigurationError(
            f"run {old!r} has machines that start it under this name; it cannot be renamed"
        )
    lease = acquire(folder, on_wait=on_wait)
    hidden = store.root / f"{MOVING}{folder.identity.run_id}-{new}"
    with store_errors("rename the run", folder.path):
        folder.path.rename(hidden)
        sync_folder(store.root)
    replace(lease, folder=_appear(store, hidden, new)).release()


def set_aside(store: RunStore, name: str, on_wait: Say = lambda _words: None) -> str | None:
    """Rename a run to the first of NAME.1, NAME.2 … that is free; None: there is no such run."""
    if remote_of(store.root) is None:
        finish(store, on_wait=on_wait)
    try:
        store.get(name)
    except UnknownRun:
        return None
    number = 1
    while (store.root / f"{name}.{number}").exists():
        number += 1
    aside = f"{name}.{number}"
    if len(aside) > MAX_NAME_CHARS:
        raise ConfigurationError(f"{name!r} is too long to be set aside as {aside!r}")
    move(store, name, aside, on_wait)
    return aside


def remove_run(
    store: RunStore,
    name: str,
    here: Sequence[str | None] = (),
    on_wait: Say = lambda _words: None,
) -> None:
    """Remove a run that nobody supervises: from its store, and what it has on this host.

    `here`: as `existing_scratch` takes them. Of a run whose removal was broken off, what is left.
    Raises UnknownRun, RunHeld, StoreUnavailable.
    """
    remote = remote_of(store.root)
    if remote is not None:
        if not remote.remains(name):
            folder = store.get(name)
            acquire(folder, on_wait=on_wait)
            _remove_here(folder, here)
        remote.erase(name)
        return
    if name in finish(store, here, on_wait) and not (store.root / name).exists():
        return  # an earlier try had come that far
    folder = store.get(name)
    acquire(folder, on_wait=on_wait)
    hidden = store.root / f"{REMOVED}{folder.identity.run_id}-{name}"
    with store_errors("remove the run", folder.path):
        folder.path.rename(hidden)
        sync_folder(store.root)
    _delete(hidden, here)


def finish(
    store: RunStore, here: Sequence[str | None] = (), on_wait: Say = lambda _words: None
) -> tuple[str, ...]:
    """Finish what somebody began who is gone: the names that runs have lost, or got.

    Raises StoreUnavailable.
    """
    found: list[str] = []
    for hidden, name in _pending(store.root, REMOVED):
        _delete(hidden, here)
        found.append(name)
    for hidden, name in _pending(store.root, MOVING):
        with contextlib.suppress(RunHeld):  # who renames it lives: it is not ours to finish
            lease = acquire(hidden_run(hidden), on_wait=on_wait)
            replace(lease, folder=_appear(store, hidden, name)).release()
            found.append(name)
    return tuple(found)


def _pending(root: Path, prefix: str) -> Iterator[tuple[Path, str]]:
    """What is hidden in a store, and the name that it had, or gets."""
    with store_errors("look into the store", root):
        hidden = sorted(root.glob(f"{prefix}*-*")) if root.is_dir() else []
    for path in hidden:
        name = path.name.removeprefix(prefix).partition("-")[2]
        with contextlib.suppress(ConfigurationError):
            yield path, check_name(name)


def _appear(store: RunStore, hidden: Path, name: str) -> RunFolder:
    """Give a hidden run its name, and with it to all; raises StoreUnavailable."""
    rewrite_name(hidden, name)
    place = store.root / name
    if place.exists():
        raise StoreUnavailable(
            f"{hidden} cannot become run {name!r}: somebody has made one of that name meanwhile; "
            f"rename that one (holdfast mv {name} …), and try again"
        )
    with store_errors("rename the run", hidden):
        hidden.rename(place)
        sync_folder(store.root)
    return store.get(name)


def _delete(hidden: Path, here: Sequence[str | None]) -> None:
    with contextlib.suppress(StoreUnavailable, ConfigurationError):  # it may have lost its run.json
        _remove_here(hidden_run(hidden), here)
    with store_errors("remove the run's files", hidden), contextlib.suppress(FileNotFoundError):
        shutil.rmtree(hidden)


def _remove_here(folder: RunFolder, here: Sequence[str | None]) -> None:
    """What the run has in memory and scratch of this host; never raises."""
    for configured in here:
        for place in existing_scratch(folder.scratch_key, configured):
            shutil.rmtree(place, ignore_errors=True)
