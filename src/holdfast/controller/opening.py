"""What is known of a run when a controller takes it over: how it went under earlier ones."""

from __future__ import annotations

import time
from pathlib import Path

from holdfast.core import events as ev
from holdfast.core.exits import LOSS_CAUSES
from holdfast.core.ledger.kinds import DONE
from holdfast.core.save.choose import newest_first
from holdfast.journal.attempts import Attempts, attempts, lineage
from holdfast.journal.clocks import now_ns
from holdfast.journal.rollbacks import standing_wishes
from holdfast.journal.store import RunFolder
from holdfast.snapshot.ram_folder import sealed_buffers
from holdfast.snapshot.sets import list_sets

FREE_CAUSES = (DONE, "stopped", "preempted", "rolled_back")  # ends that are no failures


def running(known: Attempts) -> ev.RunningAttempt | None:
    """The newest attempt, if nobody has ended it; None: it is over, or there is none."""
    record = known.newest
    if record is None or record.end is not None or record.attempt != known.newest_number:
        return None
    resume = ev.Resume(
        record.restore_set,
        record.resume_step,
        record.parent,
        skip_batches=record.skip_batches,
        committed_step=0 if record.from_memory else None,  # the store tells what is durable
    )
    return ev.RunningAttempt(record.attempt, resume, record.ranks, record.epoch, record.hosts)


def opened(folder: RunFolder, looks_back_ns: int = 0, memory: Path | None = None) -> ev.Opened:
    """For the holder of the run's lease, once earlier attempts are closed.

    But for the newest, which may run still where it does not end with its controller.

    `looks_back_ns`: how old failures of the script's own may be. `memory`: the run's folder of the
    memory tier on this host. Raises StoreUnavailable.
    """
    known = attempts(folder)
    observed_ns, failures, memory_lost = _past(known)
    return ev.Opened(
        now_ns(),
        next_attempt=known.next_number,
        high_water=_high_water(folder, known, memory),
        failures_seen=failures,
        observed_ns=observed_ns,
        memory_lost=memory_lost,
        wishes=standing_wishes(folder, known),
        own_failures=_own_failures(known, looks_back_ns),
        running=running(known),
    )


def _high_water(folder: RunFolder, known: Attempts, memory: Path | None) -> int:
    """How far the run is known to have come; what it went back from does not count."""
    sets = list(list_sets(folder.ckpt_dir)[0])
    if memory is not None:
        sets += [one.info for one in sealed_buffers(memory)[0]]
    return max((one.step for one in newest_first(sets, lineage(known.records))), default=0)


def _past(known: Attempts) -> tuple[int, int, int]:
    """How long this run has been watched, how many failures that brought, of how many hosts."""
    observed_ns = failures = memory_lost = 0
    for record in known.records:
        if record.end is not None:
            observed_ns += max(0, record.end.ended_unix_ns - record.created_unix_ns)
            failures += record.end.cause not in FREE_CAUSES
            memory_lost += record.end.cause in LOSS_CAUSES
    return observed_ns, failures, memory_lost


def _own_failures(known: Attempts, looks_back_ns: int) -> tuple[ev.OwnFailure, ...]:
    """The script's own of late, by the clock of the supervisor that begins."""
    now, unix_ns = now_ns(), time.time_ns()
    return tuple(
        ev.OwnFailure(record.attempt, now - age_ns, end.own_signature)
        for record in known.records
        if (end := record.end) is not None
        and end.own_signature
        and (age_ns := max(0, unix_ns - end.ended_unix_ns)) < looks_back_ns
    )
