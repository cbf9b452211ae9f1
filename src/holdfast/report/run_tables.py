"""The tables of a run's page in words: disruptions, slow steps, hosts, checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from holdfast.core.ledger.kinds import STEP
from holdfast.core.visible import clean
from holdfast.report import host_findings
from holdfast.report.charts import Table
from holdfast.report.document import NS_PER_CHIP_HOUR
from holdfast.report.findings import HostFindings
from holdfast.report.hosts import HostRow
from holdfast.report.kinds import place_of, style_of, words_of
from holdfast.report.overview import Overview
from holdfast.report.stories import Incident
from holdfast.report.words import (
    MISSING,
    chip_hours,
    counted,
    duration,
    first_start_in_words,
    moment,
    money,
    size,
)

HOSTS = 64  # that are shown of a run of several


def incident(view: Overview, one: Incident) -> dict[str, Any]:
    """A disruption's row, and the story that it opens into."""
    return {
        "attempt": one.attempt,
        "when": duration(max(0, one.at_ns - view.origin_ns)),
        "date": moment(one.at_ns) if view.unix_clock else "",
        "at_us": (one.at_ns - view.course.start_ns) // 1000,
        "cause": one.cause,
        "lost": counted(one.lost_steps, "step") if one.lost_steps else MISSING,
        "down": "not over" if one.down_ns is None else duration(one.down_ns),
        "price": chip_hours(round(one.chip_hours * NS_PER_CHIP_HOUR)),
        "money": MISSING if one.money is None else money(one.money),
        "bars": _bars(one.phases),
        "phases": [
            (_phase_name(kind), _phase_words(kind) if one.is_whole else "", duration(ns))
            for kind, ns in one.phases
        ],
        "exits": _exits(one),
        "resumed": one.resumed,
        "restart": one.restart,
        "last": last_words(one),
        "rank": one.rank,
        "stacks": one.stacks,
        "is_whole": one.is_whole,
    }


def first_start(view: Overview) -> dict[str, Any] | None:
    """Where the time went until the first step of all; None: the run has not begun."""
    time_ns = view.account.first_start_ns
    phases = sorted(time_ns.items(), key=lambda phase: place_of(phase[0]))
    if not phases:
        return None
    return {
        "words": first_start_in_words(sum(time_ns.values()), is_over=STEP in time_ns),
        "bars": _bars(phases),
        "phases": [
            (_phase_name(kind), "" if kind == STEP else clean(words_of(kind)), duration(ns))
            for kind, ns in phases
        ],
    }


def _bars(phases: Sequence[tuple[str, int]]) -> list[dict[str, str]]:
    """Each where the one before it ended, in percent of all."""
    total, at, bars = sum(ns for _, ns in phases) or 1, 0, []
    for kind, ns in phases:
        x, width = (f"{part * 100 / total:.2f}" for part in (at, ns))
        bars.append({"x": x, "width": width, "colour": style_of(kind).colour})
        at += ns
    return bars


def last_words(one: Incident) -> str:
    """The end of the output, with the traceback, which is mostly a part of it."""
    lines = list(one.lines)
    if one.traceback and one.traceback[-1] not in lines:
        lines += one.traceback
    return "\n".join(lines)


def _phase_name(kind: str) -> str:
    """The step within a disruption is the one that ended it."""
    return "first step" if kind == STEP else clean(kind)


def _phase_words(kind: str) -> str:
    return "the first one that was completed again" if kind == "step" else clean(words_of(kind))


def _exits(one: Incident) -> str:
    """What the processes ended with, those that are alike together."""
    groups: dict[str, list[int]] = {}
    for rank, code in enumerate(one.exits):
        words = "was not seen to end" if code is None else f"exit code {code}"
        if code is not None and code < 0:
            words = f"signal {-code}"
        groups.setdefault(words, []).append(rank)
    exits = []
    for words, ranks in groups.items():
        who = ", ".join(map(str, ranks[:8])) + (", …" if len(ranks) > 8 else "")
        exits.append(f"{'rank' if len(ranks) == 1 else 'ranks'} {who}: {words}")
    return "; ".join(exits)


def outliers(view: Overview) -> Table | None:
    """The slowest steps; None: none took much longer than usual."""
    steps = view.steps
    if not steps.outliers:
        return None
    rows = [
        (
            f"{one.step:,}",
            str(one.attempt),
            duration(max(0, one.end_ns - view.origin_ns)),
            duration(one.took_ns),
            f"{one.took_ns / max(1, steps.usual_ns):.1f} ×",
        )
        for one in steps.outliers
    ]
    return Table(("step", "attempt", "after", "took", "of the normal"), tuple(rows))


def host(row: HostRow) -> dict[str, Any]:
    """A rank's row."""
    moved = MISSING if row.step_ago_ns is None else f"{duration(row.step_ago_ns)} ago"
    ahead = "the others wait for it" if row.is_straggler else duration(row.ahead_ns)
    return {
        "cells": (
            f"{row.host}, rank {row.rank}",
            row.phase,
            f"{row.step:,}",
            f"{row.behind:,}" if row.behind else MISSING,
            ahead,
            moved,
            f"{duration(row.alive_ago_ns)} ago",
        ),
        "straggler": row.is_straggler,
    }


def members(hosts: Sequence[HostFindings]) -> dict[str, Any]:
    """The hosts of a run of several, of many those that are not as the others."""
    if not hosts:
        return {"summary": "", "heads": (), "rows": (), "left": ""}
    left = len(hosts) - HOSTS
    heads, *rows = host_findings.table(hosts, HOSTS)
    return {
        "summary": host_findings.summary(hosts),
        "heads": heads,
        "rows": rows,
        "left": counted(left, "other host") if left > 0 else "",
    }


def tiers(view: Overview) -> list[tuple[str, ...]]:
    """The rows of the tiers of checkpoints."""
    return [
        (
            tier.name,
            f"{tier.saves:,}" if tier.saves else MISSING,
            duration(tier.blocked_ns),
            duration(tier.took_ns),
            duration(tier.every_ns),
            size(tier.nbytes) if tier.nbytes else MISSING,
            MISSING if tier.last_step is None else f"step {tier.last_step:,}",
            MISSING if tier.last_ns is None else f"{_since(tier.last_ns, view)} ago",
            f"{counted(tier.at_risk_steps, 'step')}, {duration(tier.at_risk_ns)}",
        )
        for tier in view.tiers
    ]


def _since(then_ns: int, view: Overview) -> str:
    """As of when the page was made, like every "ago" of it, also where the run was over before."""
    return duration(max(0, view.now_ns - then_ns))
