"""`holdfast report`: a run's goodput, what it lost, and why."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holdfast.errors import ConfigurationError

if TYPE_CHECKING:
    from holdfast.core.facts import Fact
    from holdfast.core.ledger.account import Account
    from holdfast.journal.store import RunFolder
    from holdfast.report.findings import Checkpoint, Findings

NS_PER_S = 1_000_000_000


@click.command()
@click.argument("run", required=False)
@click.option("--store", metavar="FOLDER", help="The run store; default: the configured one.")
@click.option(
    "--history",
    metavar="FILE",
    help="Report on a history file instead of a run; - reads standard input.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--window", metavar="S", help="Only the last S seconds.")
@click.option(
    "--now",
    metavar="T",
    help="As it stood at T: seconds on the history's clock, for a run since its request; "
    "for a run also an ISO 8601 time.",
)
@click.option("--all", "every_story", is_flag=True, help="Tell the story of every disruption.")
@click.option("--svg", metavar="FILE", help="Draw the report into a picture instead.")
def report(
    run: str | None,
    store: str | None,
    history: str | None,
    as_json: bool,
    window: str | None,
    now: str | None,
    every_story: bool,
    svg: str | None,
) -> None:
    """Show a run's goodput, what it lost, and why.

    Reads what was recorded and changes nothing; the run may be under way. The JSON is described in
    docs/reference/report-json.md, the history format in docs/reference/history.md.
    """
    if (run is None) == (history is None):
        raise click.UsageError("name a run, or a file with --history", click.get_current_context())
    window_ns = None if window is None else _window_ns(window)
    if history is not None:
        findings, document = _of_history(history, now, window_ns)
    else:
        findings, document = _of_run(str(run), store, now, window_ns)
    if as_json:
        json.dump(document, sys.stdout, indent=1, allow_nan=False)
        print()
    elif svg is not None:
        _draw(findings, svg)
    else:
        _show(findings, every_story)


def _of_history(path: str, now: str | None, window_ns: int | None) -> tuple[Findings, Any]:
    from holdfast.journal.history_file import read_history
    from holdfast.report.findings import Findings

    facts = read_history(path)
    now_ns = None if now is None else _clock_ns(now)
    account = _account(facts, now_ns, window_ns)
    return Findings(account), account.to_json()


def _of_run(
    name: str, store: str | None, now: str | None, window_ns: int | None
) -> tuple[Findings, Any]:
    from holdfast.config import run_store
    from holdfast.journal.recorded import load_run
    from holdfast.journal.store import RunStore
    from holdfast.report.document import document
    from holdfast.report.evidence import evidence_of
    from holdfast.report.findings import Findings

    folder = RunStore.at(run_store(store)).get(name)
    recorded = load_run(folder)
    now_ns = None if now is None else _run_clock_ns(now, folder.identity.requested_unix_ns)
    account = _account(recorded.facts, now_ns, window_ns)
    evidence, damage = evidence_of(folder, [d.attempt for d in account.disruptions])
    findings = Findings(
        account,
        store=str(folder.path.parent),
        command=folder.identity.command,
        state="",
        requested_unix_ns=folder.identity.requested_unix_ns,
        attempts=0,
        evidence=tuple(evidence),
        checkpoints=_checkpoints(folder),
        notes=(*recorded.notes, *damage),
    )
    return findings, document(findings)


def _account(facts: Sequence[Fact], now_ns: int | None, window_ns: int | None) -> Account:
    from holdfast.core.ledger.plain import account

    return account(facts, now_ns, window_ns)


def _checkpoints(folder: RunFolder) -> tuple[Checkpoint, ...]:
    """The committed sets, oldest first."""
    from holdfast.report.findings import Checkpoint
    from holdfast.snapshot.sets import list_sets

    sets, _ = list_sets(folder.ckpt_dir)
    found = [Checkpoint(s.name, s.attempt, s.step, tuple(s.tags)) for s in sets]
    return tuple(sorted(found, key=lambda c: (c.attempt, c.step)))


def _show(findings: Findings, every_story: bool) -> None:
    from rich.console import Console

    from holdfast.report.terminal import show

    if hasattr(sys.stdout, "reconfigure"):  # what the terminal cannot print is not worth an error
        sys.stdout.reconfigure(errors="replace")
    show(findings, Console(highlight=False), every_story=every_story)


def _draw(findings: Findings, path: str) -> None:
    from holdfast.report.picture import svg

    Path(path).write_text(svg(findings, f"holdfast report {findings.account.name}"))


def _window_ns(text: str) -> int:
    seconds = _number(text)
    if seconds is None or seconds <= 0:
        raise ConfigurationError(f"--window {text}: give a positive number of seconds")
    return round(seconds * NS_PER_S)


def _clock_ns(text: str) -> int:
    seconds = _number(text)
    if seconds is None:
        raise ConfigurationError(f"--now {text}: give seconds on the history's clock")
    return round(seconds * NS_PER_S)


def _run_clock_ns(text: str, requested_unix_ns: int) -> int:
    """A time on a run's clock, which is zero at its request."""
    seconds = _number(text)
    if seconds is not None:
        return round(seconds * NS_PER_S)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigurationError(
            f"--now {text}: give seconds since the run's request, or a time like "
            "2026-01-31T18:00:00Z"
        ) from None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return round(moment.timestamp() * NS_PER_S) - requested_unix_ns


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None
