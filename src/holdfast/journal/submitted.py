"""What a run's hosts were asked of, and by which name its engine knows them: `engine.json`.

    keep(folder, {...})     by `holdfast submit`, in the run's store and on this host
    kept(folder)            only what this user has submitted, or has agreed to

Whoever can write into a run's store could name another engine there, or another job. The engine is
asked with the rights of the user who asks, so the store's word counts only as far as it is what was
submitted here (docs/explanation/trust.md).
"""

from __future__ import annotations

import contextlib
import fcntl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from holdfast.errors import ConfigurationError, RunHeld, StoreUnavailable
from holdfast.journal.agreed import agreed_path, is_only_mine
from holdfast.journal.atomic import encode_json, make_folder, read_json, write_atomic
from holdfast.journal.store import RunFolder

FILE = "engine.json"


def keep(folder: RunFolder, order: Mapping[str, Any]) -> None:
    """Write it down in the store, and that it is agreed to here; raises StoreUnavailable."""
    write_atomic(folder.path / FILE, encode_json(dict(order)))
    agree_to_order(folder, order)


@contextlib.contextmanager
def alone(folder: RunFolder) -> Iterator[None]:
    """Of two submissions of one run at a time on this host only one gets in.

    Each would find none in its engine, and there would be two jobs. Raises RunHeld.
    """
    path = _agreed(folder).with_suffix(".lock")
    make_folder(path.parent)
    with path.open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise RunHeld(
                f"run {folder.name!r} is being submitted by another process on this host: wait for "
                "that, or use another --name"
            ) from None
        except OSError:
            pass  # a file system without locks
        yield


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
