"""What a run's hosts were asked of, and by which name its engine knows them: `engine.json`.

    keep(folder, {...})     by `holdfast submit`, in the run's store and on this host
    kept(folder)            only what this user has submitted, or has agreed to

Whoever can write into a run's store could name another engine there, or another job. The engine is
asked with the rights of the user who asks, so the store's word counts only as far as it is what was
submitted here (docs/explanation/trust.md).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from holdfast.core.durations import seconds_in_words
from holdfast.errors import ConfigurationError, HoldfastError, RunHeld, StoreUnavailable
from holdfast.journal.agreed import agreed_path, is_only_mine
from holdfast.journal.atomic import encode_json, make_folder, make_part, read_json, write_atomic
from holdfast.journal.lease import HEARTBEAT_S, SILENT_AFTER_S, Lease, acquire, view
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder

FILE = "engine.json"
SUBMITTING = "submit"


def keep(folder: RunFolder, order: Mapping[str, Any]) -> None:
    """Write it down in the store, and that it is agreed to here; raises StoreUnavailable."""
    write_atomic(folder.path / FILE, encode_json(dict(order)))
    agree_to_order(folder, order)


@contextlib.contextmanager
def alone(folder: RunFolder, on_wait: Callable[[str], None]) -> Iterator[Lease]:
    """Of several submissions of one run at a time only one gets in, wherever they are.

    Each would find none in its engine, and there would be two jobs. It is a lease like the run's
    own, in a folder of the store that is its own; one that is killed elsewhere is waited for, after
    `on_wait` was told. What the run's records say is fresh then. Raises RunHeld, StoreUnavailable.
    """
    name, beside = folder.name, replace(folder, path=folder.path / SUBMITTING)

    def waiting(_words: str) -> None:
        on_wait(
            f"run {name!r} was being submitted by {view(beside).holder or 'somebody'}; waiting up "
            f"to {seconds_in_words(SILENT_AFTER_S)} to see whether that goes on"
        )

    make_part(beside.path)
    try:
        lease = acquire(beside, on_wait=waiting)
    except RunHeld:
        raise RunHeld(
            f"run {name!r} is being submitted by {view(beside).holder or 'somebody else'}: wait "
            "for that, or use another --name"
        ) from None
    ended = threading.Event()
    beats = threading.Thread(target=_renew, args=(lease, ended), name="submitting", daemon=True)
    beats.start()
    try:
        refresh(folder.path)
        yield lease
    finally:
        ended.set()
        beats.join()
        with contextlib.suppress(HoldfastError):  # the next one waits for its silence
            lease.release()


def _renew(lease: Lease, ended: threading.Event) -> None:
    while not ended.wait(HEARTBEAT_S):
        with contextlib.suppress(HoldfastError):
            lease.renew()


def agree_to_order(folder: RunFolder, order: Mapping[str, Any]) -> None:
    """Remember on this host that this is right; raises StoreUnavailable."""
    path = _agreed(folder)
    make_folder(path.parent)
    write_atomic(path, encode_json(dict(order)))


def stored(folder: RunFolder) -> dict[str, Any] | None:
    """What the store said when the run was opened; None: nobody has submitted it.

    Raises StoreUnavailable for rubbish.
    """
    try:
        return read_json(folder.path / FILE)
    except FileNotFoundError:
        return None


def kept(folder: RunFolder) -> tuple[dict[str, Any] | None, str]:
    """What was submitted, as far as this user knows it, and why not where the answer is None."""
    found = stored(folder)
    if found is None:
        return None, (
            f"run {folder.name!r} was not submitted to an engine: `holdfast stop {folder.name}` "
            "ends it"
        )
    path = _agreed(folder)
    with contextlib.suppress(OSError, StoreUnavailable, ConfigurationError, ValueError):
        if is_only_mine(path.parent) and is_only_mine(path) and read_json(path) == found:
            return found, ""
    return None, (
        f"run {folder.name!r} was submitted elsewhere, or its store was changed: ask where it was "
        f"submitted, or look at {FILE} in its store and say once --accept-stored"
    )


def _agreed(folder: RunFolder) -> Path:
    path = agreed_path(folder)
    return path.with_name(f"{path.stem}-engine.json")
