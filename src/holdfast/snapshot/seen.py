"""What is seen of a run's checkpoints, made of what was read: see `core.save.choose`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from holdfast.core.save.choose import SealedSet, SeenSets, Skip, StoredSet
from holdfast.journal.attempts import AttemptRecord, lineage, skips
from holdfast.snapshot.buffers import SealedBuffer
from holdfast.snapshot.removal import REMOVED, is_doomed
from holdfast.snapshot.sets import SetInfo


def seen(
    run: str,
    newest_attempt: int,
    records: Sequence[AttemptRecord],
    sets: Sequence[SetInfo],
    damage: Mapping[str, str],
    *,
    buffers: Sequence[SealedBuffer] = (),
    bad_copies: Sequence[str] = (),
    pins: Mapping[str, str] | None = None,
    place: Callable[[int], object],
) -> SeenSets:
    """Pure. `place` of an attempt's record, for a sentence. Sets that are being removed are bad."""
    doomed = {one.name: REMOVED for one in sets if is_doomed(one.name, one.doomed_by, records)}
    stored = [StoredSet(one.attempt, one.step, one.tags) for one in sets if one.name not in doomed]
    sealed = [SealedSet(b.info.attempt, b.info.step, b.number, b.info.tags) for b in buffers]
    wanted = {newest_attempt, *(s.attempt for s in stored), *(s.attempt for s in sealed)}
    known = {record.attempt for record in records}
    return SeenSets(
        run,
        newest_attempt,
        tuple((part.attempt, part.up_to_step) for part in lineage(records)),
        tuple(stored),
        tuple(sealed),
        tuple({**damage, **doomed}.items()),
        tuple(bad_copies),
        tuple((pins or {}).items()),
        tuple(Skip(*one) for one in skips(records)),
        tuple((number, str(place(number))) for number in sorted(wanted - known)),
    )
