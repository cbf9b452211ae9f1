"""`holdfast export`: what runs have recorded, for other programs: a file, or numbers as they go."""

from __future__ import annotations

import sys
from importlib.resources import files
from itertools import chain

import click

from holdfast.cli.door import say
from holdfast.cli.places import open_run, store_option
from holdfast.cli.seconds import Seconds
from holdfast.errors import ConfigurationError, JournalError

FILES = {"rules": "rules.yml", "dashboard": "dashboard.json"}
LEAST_S, MOST_S = 0.2, 3600.0


@click.command()
@click.argument("runs", nargs=-1)
@store_option
@click.option("--history", is_flag=True, help="As a history: one JSON object per line.")
@click.option(
    "--prometheus", is_flag=True, help="Serve numbers for Prometheus on this host's loopback."
)
@click.option(
    "--port",
    type=click.IntRange(0, 65_535),
    metavar="PORT",
    help="The port; 9464 by default, 0 for any free one.",
)
@click.option("--tensorboard", metavar="DIR", help="Write scalars for TensorBoard there.")
@click.option("--gcp", metavar="PROJECT/ZONE", help="Send to Google Cloud Monitoring and Logging.")
@click.option(
    "--every",
    "every_s",
    type=Seconds(LEAST_S, MOST_S),
    default=15.0,
    metavar="S",
    help="Look at the runs every S seconds; 15 by default.",
)
@click.option("--once", is_flag=True, help="Look once, and end; --prometheus then prints.")
@click.option("--rules", is_flag=True, help="Print recording and alert rules for Prometheus.")
@click.option("--dashboard", is_flag=True, help="Print a dashboard for Grafana.")
@click.option("--out", metavar="FILE", help="Write there instead of to standard output.")
@click.option("--until-eof", is_flag=True, hidden=True, help="End when standard input does.")
def export(
    runs: tuple[str, ...],
    store: str | None,
    history: bool,
    prometheus: bool,
    port: int | None,
    tensorboard: str | None,
    gcp: str | None,
    every_s: float,
    once: bool,
    rules: bool,
    dashboard: bool,
    out: str | None,
    until_eof: bool,
) -> None:
    """Write the history of a run, or export the numbers of RUNS as they change.

    Without RUNS: of all runs of the store. `--history` takes one run, and writes lines that are
    described in docs/reference/history.md; `holdfast report --history` reads them. The numbers are
    described in docs/reference/metrics.md.
    """
    from holdfast.export.asked import AskedExporters, gcp_of
    from holdfast.export.served import PORT

    context = click.get_current_context()
    asked = AskedExporters(
        (PORT if port is None else port) if prometheus else None,
        tensorboard,
        None if gcp is None else gcp_of(gcp),
    )
    wanted = [history, rules, dashboard, not asked.nothing]
    if sum(wanted) != 1:
        raise click.UsageError(
            "name what to export: --history, --prometheus, --tensorboard, --gcp, --rules or "
            "--dashboard",
            context,
        )
    if port is not None and not prometheus:
        raise click.UsageError("--port is for --prometheus", context)
    if rules or dashboard:
        name = FILES["rules" if rules else "dashboard"]
        _write(files("holdfast.export").joinpath("files", name).read_bytes(), out, name)
    elif history:
        if len(runs) != 1:
            raise click.UsageError("--history takes one run", context)
        _history(runs[0], store, out)
    else:
        if out is not None and not (once and prometheus):
            raise ConfigurationError("--out takes the numbers of --prometheus --once")
        from holdfast.cli.exporting import export_numbers

        export_numbers(runs, store, asked, every_s=every_s, once=once, out=out, until_eof=until_eof)


def _history(run: str, store: str | None, out: str | None) -> None:
    from holdfast.journal.history_file import write_history
    from holdfast.journal.live import live_journals
    from holdfast.journal.recorded import export_facts, load_run

    folder = open_run(run, store)
    recorded = load_run(folder.path, live_journals(folder))
    for note in recorded.notes():
        say(f"note: {note}")
    facts = export_facts(recorded)
    first = next(facts, None)
    if first is None:
        raise JournalError(f"run {folder.name!r} has no journal yet: there is nothing to export")
    write_history(sys.stdout if out in (None, "-") else out, chain([first], facts))


def _write(data: bytes, out: str | None, what: str) -> None:
    if out in (None, "-"):
        sys.stdout.write(data.decode())
        return
    from holdfast.cli.files import write_file

    write_file(str(out), data, what)
