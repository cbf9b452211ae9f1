"""`holdfast.load`: a run's state for inference or analysis; no run, no attempt, nothing written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from holdfast.config import run_store
from holdfast.errors import ConfigurationError, NoGoodCheckpoint
from holdfast.journal.store import RunFolder, RunStore
from holdfast.snapshot.catalog import Catalog
from holdfast.snapshot.retention import read_pins


def load(
    reference: str, *, store: str | None = None, like: Any = None, only: str | None = None
) -> Any:
    """The state of the run `RUN`, `RUN@TAG` or `RUN@STEP`, with every byte verified.

    Without `@` the newest good checkpoint on its lineage. `store`: where runs live; by default
    as for the commands. `STORE/RUN` names both in one. `like` and `only` as in `Run.restore`:
    without `like`, plain containers of numpy arrays. A run that keeps everything in tracked parts
    has no state of its own: then it is `{name: state_dict}` of rank 0's parts. Raises UnknownRun,
    NoGoodCheckpoint, StateMismatch, CorruptCheckpoint, ConfigurationError.
    """
    place, _, which = reference.partition("@")
    root, slash, name = place.rstrip("/").rpartition("/")
    if not name or (slash and store is not None):
        raise ConfigurationError(
            f"load({reference!r}): write RUN, RUN@TAG or RUN@STEP of the store, or STORE/RUN"
        )
    root = (root or slash) if slash else run_store(store)
    folder = RunStore.at(root).get(name)
    from holdfast.snapshot.restore import load_path, read_set
    from holdfast.snapshot.sets import read_head

    set_dir = _set_of(folder, which)
    state = load_path(set_dir, like=like, only=only)
    if state is not None:
        return state
    world_size = read_head(set_dir).world_size
    return read_set(set_dir, sections=("parts",), world_size=world_size).get("parts")


def _set_of(folder: RunFolder, which: str) -> Path:
    if which:
        tagged = read_pins(folder.pins_path).get(which)
        if tagged is not None:
            return folder.ckpt_dir / tagged
        if not which.isdecimal():
            known = ", ".join(sorted(read_pins(folder.pins_path))) or "none"
            raise ConfigurationError(f"run {folder.name!r} has no tag {which!r}; its tags: {known}")
    chosen = Catalog(folder).at_step(int(which) if which else None)
    if chosen is None:
        what = f"of step {which}" if which else "yet"
        raise NoGoodCheckpoint(f"run {folder.name!r} has no checkpoint {what}")
    return folder.ckpt_dir / chosen
