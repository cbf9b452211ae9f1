"""The report as JSON: the stable document of docs/reference/report-json.md.

The keys at the top are the result of a history (docs/reference/history.md), unchanged. What a store
knows beside it stands under keys of its own, so a reader of one reads the other too.
"""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from holdfast.core.durations import SECOND_NS
from holdfast.core.ledger.account import Account, Disruption
from holdfast.core.preloaded import PreloadedPart
from holdfast.report.findings import Findings, RestartFindings, SaveFindings
from holdfast.report.host_findings import host_to_json
from holdfast.report.words import iso

FORMAT = 1
NS_PER_CHIP_HOUR = 3600 * SECOND_NS


def _program(findings: Findings) -> dict[str, Any]:
    """What program goodput is a share of."""
    basis, told = findings.basis, findings.basis.told
    return {
        "of": basis.words(findings.account),
        "ideal_step_s": basis.declared.ideal_step_ns / SECOND_NS or None,
        "flops_per_step": basis.flops or None,
        "told": [
            {
                "attempt": attempt,
                "flops_per_step": one.flops or None,
                "device": one.device or None,
                "peak_flops": one.peak_flops or one.reached.flops or None,
            }
            for attempt, one in basis.of_attempts
        ],
        "tokens_per_step": basis.tokens_per_step,
        "flops_per_token": basis.flops_per_token,
        "bytes_per_step": basis.bytes or None,
        "peak_flops": basis.peak_flops or None,
        "peak_source": told.source or None,
        "peak_as_of": told.as_of or None,
        "highest_flops": told.most_flops or None,
        "goodput_of_reached": findings.program_of_reached,
        "reached_flops": told.reached.flops or None,
        "reached_dtype": told.reached.dtype or None,
        "reached_on": told.reached.on or None,
        "memory_bytes_per_s": told.reached.bytes or None,
        "together_devices": told.reached.together or None,
        "together_bytes_per_s": told.reached.together_bytes or None,
        "device": told.device or None,
        "dtype": told.dtype or None,
        "left_out": list(told.left_out),
    }


def document(findings: Findings) -> dict[str, Any]:
    """Everything a report says about a run, in plain types."""
    return {
        "format": FORMAT,
        **findings.account.to_json(),
        "program_goodput": findings.program,
        "productivity_goodput": findings.productivity,
        "program": _program(findings),
        "rolling": {name: _shares(account) for name, account in findings.rolling.items()},
        "run": {
            "name": findings.account.name,
            "store": findings.store,
            "command": list(findings.command),
            "commands": [
                {"attempt": one.attempt, "command": list(one.command)} for one in findings.commands
            ],
            "state": findings.state,
            "why": findings.why,
            "requested": iso(findings.requested_ns) if findings.unix_clock else None,
            "attempts": findings.attempts,
            "chips": findings.account.chips,
        },
        "first_start_s": {
            kind: ns / SECOND_NS for kind, ns in sorted(findings.account.first_start_ns.items())
        },
        "incidents": [_incident(findings, d) for d in findings.account.disruptions],
        "checkpoints": [
            {"name": c.name, "attempt": c.attempt, "step": c.step, "tags": list(c.tags)}
            for c in findings.checkpoints
        ],
        "rollbacks": [
            {
                "attempt": r.attempt,
                "step": r.step,
                "of_attempt": r.of_attempt,
                "skip_batches": r.skip_batches,
                "why": r.why,
            }
            for r in findings.rollbacks
        ],
        "announced": [
            {
                "words": one.words,
                "since": iso(one.since_ns),
                "deadline": iso(one.deadline_ns),
            }
            for one in findings.announced
        ],
        "saving": findings.saving,
        "resumed": [asdict(one) for one in findings.resumed],
        "preloads": [
            {
                "at": iso(one.at_ns),
                "host": one.host,
                "parts": [_preloaded(part) for part in one.parts],
            }
            for one in findings.preloads
        ],
        "requeues": [
            {"job": one.job, "times": one.times, "last": iso(one.at_ns)}
            for one in findings.requeues
        ],
        "saves": None if findings.saves is None else _saves(findings.saves),
        "compile_cache": _compilations(findings),
        "hosts": [host_to_json(one) for one in findings.hosts],
        "profile": None if findings.profile is None else findings.profile.to_json(),
        "metrics": {one.name: one.to_json() for one in findings.curves},
        "notes": list(findings.notes),
    }


def _preloaded(part: PreloadedPart) -> dict[str, Any]:
    return {
        "what": part.what,
        "files": part.files,
        "bytes": part.nbytes,
        "from_disk": part.from_disk,
        "took_s": part.took_ns / SECOND_NS,
    }


def _shares(account: Account) -> dict[str, Any]:
    values = account.to_json()
    names = ("elapsed_s", "productive_s", "goodput", "scheduling_goodput", "runtime_goodput")
    return {name: values[name] for name in (*names, "badput_s", "steps_kept", "lost_steps")}


def _incident(findings: Findings, disruption: Disruption) -> dict[str, Any]:
    evidence = findings.evidence_for(disruption)
    price = disruption.price_chip_ns
    return {
        **disruption.to_json(),
        "chip_hours": price / NS_PER_CHIP_HOUR,
        "words": evidence.words,
        "exits": list(evidence.exits),
        "last_lines": list(evidence.last_lines),
        "traceback": evidence.traceback,
        "rank": evidence.rank,
        "host": evidence.host,
        "stacks": [{"rank": rank, "text": text} for rank, text in evidence.stacks],
        "restart": None if evidence.restart is None else _restart(evidence.restart),
    }


def _saves(saves: SaveFindings) -> dict[str, Any]:
    return {
        "memory": saves.memory,
        "memory_blocked_s": saves.memory_blocked_ns / SECOND_NS,
        "disk": saves.disk,
        "drains": saves.flushes,
        "drained_s": saves.flushed_ns / SECOND_NS,
    }


def _compilations(findings: Findings) -> dict[str, Any] | None:
    found = findings.compilations
    if found is None:
        return None
    return {"hits": found.hits, "misses": found.misses, "saved_s": found.saved_ns / SECOND_NS}


def _restart(restart: RestartFindings) -> dict[str, Any]:
    return {
        "phases_s": {name: ns / SECOND_NS for name, ns in restart.phases_ns.items()},
        "woken": list(restart.woken),
        "cold": [{"rank": rank, "why": why} for rank, why in restart.cold.items()],
    }
