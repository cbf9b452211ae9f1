"""What a run's store says of it, as findings: its journals, read, and its other files."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import replace

from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.account import Account
from holdfast.core.ledger.summary import ROLLING_S, spent_of
from holdfast.core.redact import redacted
from holdfast.core.visible import clean
from holdfast.journal.attempts import AttemptRecord, attempts
from holdfast.journal.lease import view
from holdfast.journal.quarantine import quarantined
from holdfast.journal.recorded import RecordedLedger
from holdfast.journal.store import RunFolder
from holdfast.profiles.read import newest_profile
from holdfast.report.evidence import evidence_of
from holdfast.report.findings import (
    Checkpoint,
    CompilationFindings,
    Findings,
    LastAnnounced,
    LaunchFindings,
    PreloadFindings,
    RequeueFindings,
    Resumed,
    RolledBack,
    SaveFindings,
)
from holdfast.report.host_findings import hosts_of, with_hosts
from holdfast.runs.curves import curves
from holdfast.runs.state import state_of
from holdfast.snapshot.sets import list_sets


def findings_of(folder: RunFolder, recorded: RecordedLedger, account: Account) -> Findings:
    """All that is known of a run, about that account of it; the run's clock counts unix time.

    Raises StoreUnavailable when its folder cannot be read; what is damaged is a note.
    """
    known = attempts(folder)
    launched, damaged = known.records, known.damage
    found, unreadable = evidence_of(folder, [d.attempt for d in account.disruptions])
    evidence = with_hosts(found, recorded.facts.controllers.hosts)
    checkpoints, unsound = _checkpoints(folder)
    newest = launched[-1] if launched else None
    is_held = recorded.facts.is_held
    state, why = state_of(view(folder), newest, time.time_ns(), is_held=is_held)
    commands = tuple(_commands(launched))
    basis = recorded.facts.program_basis()
    spent = spent_of(account, basis)
    return Findings(
        replace(account, name=folder.name),  # journals have the one of their time
        store=folder.store,
        command=commands[-1].command if commands else redacted(folder.identity.command),
        commands=commands,
        state=state,
        why=why,
        requested_ns=recorded.facts.requested_ns,
        unix_clock=True,
        attempts=len(launched),
        evidence=evidence,
        checkpoints=checkpoints,
        rollbacks=_rollbacks(launched),
        announced=_announced(recorded, account.end_ns),
        saving=recorded.facts.controllers.saving,
        resumed=_resumed(launched),
        preloads=_preloads(recorded),
        requeues=_requeues(recorded),
        saves=_saves(recorded),
        compilations=_compilations(recorded),
        notes=(
            *recorded.notes(),
            *damaged,
            *unreadable,
            *unsound,
            *_quarantine(folder),
            *basis.notes(account),
        ),
        program=spent.program,
        productivity=spent.productivity,
        program_of_reached=spent.program_of_reached,
        basis=basis,
        profile=newest_profile(folder, known.newest_number),
        rolling=_rolling(recorded, account),
        curves=curves(recorded, account.end_ns),
        hosts=hosts_of(recorded, evidence),
    )


def _quarantine(folder: RunFolder) -> Iterator[str]:
    """The hosts that are to have no part, as it is now."""
    for index, one in quarantined(folder).items():
        by = "the run itself" if one.is_automatic else clean(one.sender)
        yield f"host {index} is in quarantine ({clean(one.reason)}), by {by}"


def _rolling(recorded: RecordedLedger, account: Account) -> dict[str, Account]:
    """The last hour, day and week before the account's end."""
    return {
        name: recorded.account(account.end_ns, size_s * SECOND_NS)
        for name, size_s in ROLLING_S.items()
    }


def _checkpoints(folder: RunFolder) -> tuple[tuple[Checkpoint, ...], list[str]]:
    """The committed sets, oldest first, and a sentence for each that is not sound."""
    sets, damage = list_sets(folder.ckpt_dir)
    found = tuple(
        Checkpoint(s.name, s.attempt, s.step, s.tags, s.nbytes, s.created_unix_ns) for s in sets
    )
    return found, [f"checkpoint {name}: {why}" for name, why in damage.items()]


def _announced(recorded: RecordedLedger, at_ns: int) -> tuple[LastAnnounced, ...]:
    """What is announced and not withdrawn, for an account that ends at that moment."""
    announced = recorded.facts.controllers.announced
    return tuple(
        LastAnnounced(one.words, one.since_ns, one.deadline_ns, at_ns) for one in announced
    )


def _compilations(recorded: RecordedLedger) -> CompilationFindings | None:
    """What the ranks found in their compilation cache; None when they looked for nothing."""
    hits, misses, saved_ns = recorded.facts.compilations()
    return CompilationFindings(hits, misses, saved_ns) if hits or misses else None


def _preloads(recorded: RecordedLedger) -> tuple[PreloadFindings, ...]:
    """In their order."""
    found = sorted(recorded.facts.controllers.preloads.items())
    return tuple(PreloadFindings(at_ns, one.host, one.parts) for at_ns, one in found)


def _requeues(recorded: RecordedLedger) -> tuple[RequeueFindings, ...]:
    """The cluster's jobs that were started again, in their order."""
    jobs = sorted(recorded.facts.controllers.jobs.values(), key=lambda one: one.at_ns)
    return tuple(RequeueFindings(one.job, one.restarts, one.at_ns) for one in jobs if one.restarts)


def _saves(recorded: RecordedLedger) -> SaveFindings | None:
    """How often was saved, by all supervisors; None: never."""
    counts = recorded.facts.controllers.saves()
    saves = SaveFindings(
        counts.memory, counts.memory_blocked_ns, counts.disk, counts.flushes, counts.flushed_ns
    )
    return saves if saves.memory or saves.disk else None


def _commands(launched: Sequence[AttemptRecord]) -> Iterator[LaunchFindings]:
    """What was started, each time that it changed."""
    before: tuple[str, ...] = ()
    for one in launched:
        if one.command and one.command != before:
            yield LaunchFindings(one.attempt, redacted(one.command))
            before = one.command


def _resumed(launched: Sequence[AttemptRecord]) -> tuple[Resumed, ...]:
    """The attempts that did not begin from scratch."""
    return tuple(
        Resumed(one.attempt, one.resume_step, one.from_memory)
        for one in launched
        if one.restore_set is not None
    )


def _rollbacks(launched: Sequence[AttemptRecord]) -> tuple[RolledBack, ...]:
    """The attempts that somebody wanted to go back."""
    return tuple(
        RolledBack(one.attempt, one.resume_step, one.parent, one.skip_batches, one.rollback.words)
        for one in launched
        if one.rollback is not None
    )
