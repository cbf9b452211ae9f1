"""`holdfast replay`: what was decided in a run's recorded life, and whether it would be again."""

from __future__ import annotations

import re

import click

from holdfast.cli.places import open_run, store_option
from holdfast.controller import replay as night
from holdfast.core import events as ev
from holdfast.core.run.trace_lines import event_line, seconds, trace_lines
from holdfast.distribution import VERSION
from holdfast.errors import EXIT_USER_FAILURE, ConfigurationError, JournalError
from holdfast.journal.reader import read_journal
from holdfast.journal.store import RunFolder

_JOURNAL = re.compile(r"controller-([0-9]{6,9})\.hfj")


@click.command()
@click.argument("run")
@store_option
@click.option("--supervisor", type=int, help="Only this one; all by default.")
@click.option("--trace", is_flag=True, help="Print each input, and what was decided on it.")
@click.pass_context
def replay(
    ctx: click.Context, run: str, store: str | None, supervisor: int | None, trace: bool
) -> None:
    """Decide the recorded life of RUN again, and compare.

    A supervisor records its policy, and every input before it acts on it. The same code decides on
    these inputs again; the exit code is 1 where other actions follow. Supervisors are numbered as
    they took over the run.
    """
    folder = open_run(run, store)
    numbers = _supervisors(folder)
    if supervisor is not None and supervisor not in numbers:
        known = ", ".join(map(str, numbers)) or "none"
        raise ConfigurationError(f"run {run!r} has no supervisor {supervisor}; it has {known}")
    same = [
        _decide_again(folder, number, trace=trace)
        for number in numbers
        if supervisor in (None, number)
    ]
    if not same:
        raise ConfigurationError(f"run {run!r} was never supervised: nothing was decided")
    if not all(same):
        ctx.exit(EXIT_USER_FAILURE)


def _supervisors(folder: RunFolder) -> list[int]:
    """Those that have left a journal, the first first."""
    found = (_JOURNAL.fullmatch(path.name) for path in folder.journal_dir.glob("controller-*"))
    return sorted(int(match[1]) for match in found if match)


def _decide_again(folder: RunFolder, number: int, *, trace: bool) -> bool:
    """Whether the same was decided; prints that, or why it cannot be known."""
    name = f"supervisor {number}"
    try:
        journal = night.recorded(read_journal(folder.journal_dir / f"controller-{number:06d}.hfj"))
    except JournalError as error:
        click.echo(f"{name}: not decided again: {error}")
        return True
    if trace:
        _print_trace(journal)
    words = f"{name}: {len(journal.inputs):,} inputs: "
    found = night.difference(journal)
    if found is None:
        click.echo(f"{words}the same decisions")
        return True
    click.echo(words + _difference_words(journal, found))
    return False


def _print_trace(journal: night.RecordedDecisions) -> None:
    """Times are seconds since the first input."""
    since_ns = journal.inputs[0].at_ns if journal.inputs else 0
    try:
        for event, actions in night.replay(journal.inputs, journal.policy):
            for line in trace_lines(event, actions, event.at_ns, since_ns=since_ns):
                click.echo(line)
    except JournalError as error:
        click.echo(f"{'':9}  {error}")


def _difference_words(journal: night.RecordedDecisions, found: night.Difference) -> str:
    since_ns = journal.inputs[0].at_ns

    def place(event: ev.Event | None, without: str) -> str:
        if event is None:
            return without
        at_ns = event.at_ns - since_ns
        return f"{event_line(event, event.at_ns)} at {seconds(at_ns).strip()} s"

    span = f"{place(found.after, 'the first input')} and {place(found.before, 'the end')}"
    words = f"other decisions than were recorded, between {span}"
    if journal.version == VERSION:
        return words
    return f"{words} (recorded by Holdfast {journal.version}, decided again by {VERSION})"
