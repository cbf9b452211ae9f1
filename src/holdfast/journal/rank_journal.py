"""The journal of this process as a rank of a supervised run: one, whoever here writes to it.

A session makes it. A goodput recorder that comes first makes it too, and leaves the phase at
RECORDING: its records count, and nobody answers orders there. A session that comes later takes it
over, and from then on tells the steps.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from holdfast.errors import StoreUnavailable
from holdfast.journal.layout import Identity, RankPhase, Word
from holdfast.journal.writer import JournalWriter

_writers: dict[Path, JournalWriter] = {}
_recorders: list[Callable[[], None]] = []


def session_journal(path: Path, identity: Identity) -> JournalWriter:
    """The rank's journal, for the session of this process.

    Raises StoreUnavailable when it cannot be made, or is another process's.
    """
    writer = _writers.get(path)
    if writer is None:
        writer = _writers[path] = JournalWriter.create(path, identity)
        return writer
    writer.take_over()
    writer.end_steps(None)
    writer.page.store(Word.PHASE, RankPhase.STARTING)
    while _recorders:
        _recorders.pop()()
    return writer


def recorders_journal(
    path: Path, identity: Identity, session_begins: Callable[[], None]
) -> tuple[JournalWriter, bool]:
    """The rank's journal, for a recorder; and whether it is to tell the steps.

    It is not where a session does. `session_begins` is called when one takes that over. Raises
    StoreUnavailable when the journal cannot be made, or is another process's.
    """
    writer = _writers.get(path)
    if writer is None:
        if path.exists():
            raise StoreUnavailable(
                f"another process of rank {identity.rank} of run {identity.run!r} has the rank's "
                "journal: let one process of a rank record"
            )
        writer = _writers[path] = JournalWriter.create(path, identity)
        writer.page.store(Word.PHASE, RankPhase.RECORDING)
    tells_steps = writer.page.load(Word.PHASE) == RankPhase.RECORDING
    if tells_steps:
        _recorders.append(session_begins)
    return writer, tells_steps
