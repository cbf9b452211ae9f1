"""What the saves of a run have cost so far: an engine's grace periods and memory go by it."""

from __future__ import annotations

from holdfast.errors import HoldfastError
from holdfast.journal.store import RunStore


def saves_of(runs: RunStore, name: str) -> dict[str, int]:
    """`save_ns` from an order to a durable set, `checkpoint_bytes` of the newest; as far as known.

    Of a run that is not there, or cannot be read, nothing is known: it is asked for hosts anyway.
    """
    from holdfast.journal.live import live_journals
    from holdfast.journal.recorded import load_run
    from holdfast.snapshot.sets import list_sets

    try:
        folder = runs.get(name)
        counts = load_run(folder.path, live_journals(folder)).facts.controllers.saves()
        sets, _ = list_sets(folder.ckpt_dir)
    except HoldfastError:
        return {}
    found = {}
    if counts.flushes:
        blocked_ns = counts.memory_blocked_ns // max(1, counts.memory)
        found["save_ns"] = blocked_ns + counts.flushed_ns // counts.flushes
    if sets:
        found["checkpoint_bytes"] = sets[-1].nbytes + sets[-1].external_bytes
    return found
