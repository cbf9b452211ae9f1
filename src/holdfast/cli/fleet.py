"""What the commands about machines share: the provider, who looks after them, and a table."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any, TypeVar

import click

from holdfast.cli.door import console, say
from holdfast.cli.seconds import Seconds
from holdfast.config import tpu_endpoint
from holdfast.core.hosts.fleet import Maintenance, Resource, diagnose, diagnose_slice
from holdfast.core.hosts.recover import Act, Decision, RecoverPolicy
from holdfast.core.hosts.wanted import Machines
from holdfast.errors import EXIT_DONE, EXIT_UNAVAILABLE, ConfigurationError
from holdfast.journal.agreed import agree, agreed, differences
from holdfast.journal.attempts import attempts
from holdfast.journal.holder import RunHolder
from holdfast.journal.machines import MachinesBook, read_machines
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder
from holdfast.provision.cloud_tpu.client import CloudTpu
from holdfast.provision.recovery import RunRecovery

F = TypeVar("F", bound=Callable[..., Any])


def looking_options(
    every_s: float = 15.0,
    limit_s: float | None = None,
    limit: str = "Wait no longer than that, then exit with 69.",
) -> Callable[[F], F]:
    """`--every S` and `--limit S`, of commands that look again and again; `limit`: its help."""
    every = click.option(
        "--every",
        type=Seconds(least=0.01),
        default=every_s,
        metavar="S",
        help="Seconds between two looks.",
    )
    most = click.option("--limit", type=Seconds(), default=limit_s, metavar="S", help=limit)
    return lambda command: every(most(command))


def agreed_machines(folder: RunFolder, accept_stored: bool) -> Machines:
    """What the run's machines are made of, as the store says and this user has agreed.

    Asks on a terminal; raises ConfigurationError where the user does not agree, or has none.
    """
    stored, known = read_machines(folder), agreed(folder)
    if stored == known:
        return stored
    if not accept_stored:
        what = "changed in the store" if known else "not known on this host"
        say(f"What the machines of run {folder.name!r} are made of is {what}; the store says:")
        for line in differences(known, stored):
            click.echo(f"  {line}", err=True)
        asked = "use your rights to look after machines of that kind?"
        if not sys.stdin.isatty() or not click.confirm(asked, err=True):
            raise ConfigurationError(
                f"nothing was done for run {folder.name!r}: whoever can write into its store could "
                "have written that; if it is right, say so once with --accept-stored"
            )
    agree(folder, stored)
    return stored


@contextmanager
def cloud(project: str, zone: str, api: str) -> Iterator[CloudTpu]:
    """Cloud TPU, or its emulator where one is named."""
    client = CloudTpu(project, zone, api=api, endpoint=tpu_endpoint())
    try:
        yield client
    finally:
        client.close()


@contextmanager
def looked_after(
    folder: RunFolder,
    machines: Machines,
    policy: RecoverPolicy,
    knows_gone: Callable[[RunHolder], bool] = lambda _holder: False,
) -> Iterator[RunRecovery]:
    """The run's machines, looked after by this process; its lease is given back at the end.

    `knows_gone`: see `MachinesBook`.
    """
    book = MachinesBook(folder, lambda words: tell("info", words), knows_gone)
    with cloud(machines.project, machines.zone, machines.api) as provider:
        recovery = RunRecovery(
            machines,
            provider,
            policy,
            book,
            clock=time.time_ns,
            sleep=time.sleep,
            jitter=random.random,
            say=tell,
            is_done=lambda: _is_done(folder),
        )
        try:
            yield recovery
        finally:
            recovery.close()
            book.close()


def _is_done(folder: RunFolder) -> bool:
    refresh(folder.attempts_dir)
    newest = attempts(folder).newest
    return newest is not None and newest.end is not None and newest.end.done


def tell(level: str, words: str) -> None:
    """One sentence about what goes on."""
    del level
    say(words)


def concluded(decision: Decision) -> int:
    """Say how it stands; the exit code."""
    action, _, reason = decision
    if action.is_forbidden:
        flag = {Act.DELETE: "--delete", Act.CREATE: "--create or --delete"}[action.act]
        too = f", and the healthy {', '.join(action.healthy)} with it" if action.healthy else ""
        click.echo(f"would {action.act} {action.name}{too}: {reason}; nothing was done, see {flag}")
    elif action.act is Act.ASK:
        click.echo(f"a person has to act: {reason}")
    else:
        click.echo(reason)
    return EXIT_DONE if action.act is Act.REST else EXIT_UNAVAILABLE


def rows(resources: Sequence[Resource]) -> list[dict[str, Any]]:
    """One row a slice, and one for a resource that has none yet."""
    found: list[dict[str, Any]] = []
    for one in resources:
        base = {"resource": one.name, "accelerator": one.accelerator, "owner": one.owner}
        for part in one.slices:
            condition, _ = diagnose_slice(part)
            found.append(
                base
                | {
                    "name": part.name,
                    "state": str(part.state),
                    "health": str(part.health),
                    "condition": str(condition),
                    "maintenance": _window(part.maintenance),
                    "autocheckpoint": part.autocheckpoint,
                    "symptoms": list(part.symptoms),
                    "words": part.words,
                }
            )
        if len(one.slices) < one.slices_wanted:
            condition, _ = diagnose(one)
            missing = one.slices_wanted - len(one.slices)
            found.append(
                base
                | {
                    "name": one.name,
                    "state": str(one.state),
                    "health": "untold",
                    "condition": str(condition),
                    "maintenance": None,
                    "autocheckpoint": None,
                    "symptoms": [],
                    "words": one.words or f"{missing} of {one.slices_wanted} slices are not there",
                }
            )
    return found


def _window(maintenance: Maintenance | None) -> dict[str, Any] | None:
    if maintenance is None:
        return None
    return {
        "is_ongoing": maintenance.is_ongoing,
        "start_unix_ns": maintenance.start_unix_ns,
        "end_unix_ns": maintenance.end_unix_ns,
    }


_STYLES = {"healthy": "green", "creating": "", "waiting": "", "in maintenance": "yellow"}


def show(found: Sequence[dict[str, Any]]) -> None:
    """The rows as a table."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="dim")
    for heading in ("name", "type", "state", "health", "maintenance", "autocheckpoint"):
        table.add_column(heading, no_wrap=True)
    table.add_column("")
    for row in found:
        words = "; ".join([*row["symptoms"], *filter(None, [row["words"]])])
        table.add_row(
            Text(row["name"], style="bold"),
            Text(row["accelerator"]),
            Text(row["state"], style=_STYLES.get(row["condition"], "bold red")),
            Text(row["health"]),
            _when(row["maintenance"]),
            {True: "on", False: "off", None: "–"}[row["autocheckpoint"]],
            Text(words, style="dim"),
        )
    console(folded=False).print(table)


def _when(window: dict[str, Any] | None) -> str:
    if window is None:
        return "–"
    if window["is_ongoing"]:
        return "now"
    start = window["start_unix_ns"]
    return (
        "announced"
        if start is None
        else f"{datetime.fromtimestamp(start / 1e9, UTC):%d %b %H:%M} UTC"
    )
