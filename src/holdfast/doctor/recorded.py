"""What a run has recorded of its saves: how large, how long."""

from __future__ import annotations

from statistics import median

from holdfast.doctor.facts import RunRecord
from holdfast.errors import JournalError
from holdfast.journal.attempts import attempts
from holdfast.journal.gathered import gathered_run
from holdfast.journal.live import live_journals
from holdfast.journal.recorded import load_run
from holdfast.journal.store import RunFolder
from holdfast.sim.observed import observe
from holdfast.snapshot.sets import list_sets


def run_record(folder: RunFolder) -> RunRecord:
    """As far as it is known; raises StoreUnavailable."""
    sets, _ = list_sets(folder.ckpt_dir)
    newest = attempts(folder).newest
    ranks = 1 if newest is None else newest.ranks
    state_bytes = sets[-1].nbytes if sets else None
    try:
        seen = observe(gathered_run(load_run(folder.path, live_journals(folder))))
    except JournalError:
        return RunRecord(folder.name, ranks, state_bytes)
    return RunRecord(
        folder.name,
        ranks,
        state_bytes,
        step_s=seen.step_s or None,
        blocked_s=median(seen.saves_s) if seen.saves_s else None,
        write_s=seen.writing_s / seen.writes if seen.writes else None,
    )
