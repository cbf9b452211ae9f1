"""`holdfast submit`: have an engine (Slurm, Ray, Kubernetes) give hosts to a run, and start it."""

from __future__ import annotations

import contextlib
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import click

from holdfast.cli.door import say
from holdfast.cli.orders import host_line, order_json
from holdfast.cli.places import store_option
from holdfast.cli.run import passed_on
from holdfast.cli.run import run as run_command
from holdfast.cli.saves import saves_of
from holdfast.config import inherited_environment, run_store
from holdfast.core.durations import SECOND_NS
from holdfast.core.hosts.engine import MOST_HOSTS, NO_RUN, EngineHost, Submission, changes
from holdfast.core.redact import with_secrets
from holdfast.engines.protocol import Engine, EngineError, Ordered, SpokenEngine
from holdfast.engines.registry import checked_options, engine_module
from holdfast.errors import (
    EXIT_SAVED_START_ME_AGAIN,
    EXIT_UNAVAILABLE,
    ConfigurationError,
    RunHeld,
    StoreUnavailable,
)
from holdfast.journal.lease import SILENT_AFTER_S, LastWords, LeaseState, view
from holdfast.journal.names import check_name, default_name
from holdfast.journal.remote import refresh
from holdfast.journal.store import RunFolder, RunStore
from holdfast.journal.submitted import alone, keep, stored

WAIT_S = 2.0  # between two looks of --wait
# Options of `holdfast run` that the engine or this command says, or that are of one process.
NOT_PASSED_ON = {
    "name", "store", "hosts", "spares", "ranks", "host_index", "host_address", "fresh",
    "ends_job", "known", "stop_is_final", "as_controller", "command",
}  # fmt: skip


@click.command(short_help="Have an engine give hosts to a run, and start it on each.")
@click.option(
    "--engine", "engine_name", required=True, metavar="ENGINE", help="slurm, ray, kubernetes …"
)
@click.option("--name", metavar="NAME", help="The run's name.")
@store_option
@click.option(
    "--hosts", type=click.IntRange(1, MOST_HOSTS), default=1, metavar="N", help="Hosts that train."
)
@click.option(
    "--spares", type=click.IntRange(0, MOST_HOSTS), default=0, metavar="S",
    help="More hosts, that wait for a loss.",
)  # fmt: skip
@click.option(
    "--ranks", type=click.IntRange(1), metavar="N", help="Training processes on each host."
)
@click.option(
    "--option", "-o", "options", multiple=True, metavar="NAME=VALUE",
    help="An option of the engine; `--list-options` shows them.",
)  # fmt: skip
@click.option("--list-options", is_flag=True, help="Show the engine's options, and do nothing.")
@click.option("--dry-run", is_flag=True, help="Show what would be submitted.")
@click.option("--wait", is_flag=True, help="Return when the run is over, with its exit code.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED)
@click.pass_context
def submit(
    context: click.Context,
    /,
    engine_name: str,
    name: str | None,
    store: str | None,
    hosts: int,
    spares: int,
    ranks: int | None,
    options: Sequence[str],
    list_options: bool,
    dry_run: bool,
    wait: bool,
    command: Sequence[str],
    **_passed_on: Any,
) -> None:
    """Ask an engine for N hosts and S spares, and have COMMAND run on them under `holdfast run`.

    Write the command after `--`. It returns once the engine has taken the order; the hosts may
    come later, and nothing depends on this machine from then on. Look with `holdfast hosts` and
    `holdfast report`, stop with `holdfast stop`, give the hosts back with `holdfast release`.
    Options of `holdfast run`, such as --save-every, are passed on.
    """
    module = engine_module(engine_name)
    if list_options:
        for one in module.OPTIONS:
            click.echo(f"{one.name:<20} {one.help}")
        return
    if not command or not command[0].strip():
        raise ConfigurationError("no command was given: write it after `--`")
    if hosts + spares > MOST_HOSTS:
        raise ConfigurationError(
            f"--hosts {hosts} and --spares {spares} are {hosts + spares} hosts: a run has at most "
            f"{MOST_HOSTS}"
        )
    found = _pairs(options)
    checked_options(engine_name, found)
    engine = module.make(found, inherited_environment())
    if isinstance(engine, SpokenEngine):
        engine.say = say
    run = default_name(command) if name is None else check_name(name)
    runs = RunStore.at(run_store(store))
    place = runs.shown if "://" in runs.shown else str(runs.root)  # wherever the hosts begin
    wanted = Submission(
        engine=engine_name,
        run=run,
        run_id=NO_RUN,
        store=place,
        hosts=hosts,
        spares=spares,
        command=tuple(command),
        ranks=ranks,
        flags=tuple(passed_on(context, NOT_PASSED_ON)),
        options=tuple(found.items()),
        **saves_of(runs, run),
    )
    _say_secrets(wanted)
    if dry_run:
        click.echo(engine.preview(wanted), nl=False)
        return
    engine.check(wanted)
    folder = runs.open(run, command=tuple(command))
    with alone(folder, say) as submitting:
        _refuse_if_held(folder, engine)
        term = view(folder).epoch
        submitting.check()  # asking the engine may have taken longer than others wait
        ordered = engine.submit(_of_run(wanted, folder))
        keep(folder, order_json(ordered))
    _say_taken(folder, ordered)
    if wait:
        sys.exit(_wait(folder, engine, ordered, term))


def _say_secrets(wanted: Submission) -> None:
    options = [f"{name}={value}" for name, value in wanted.options]
    found = [shown for words in (options, wanted.flags, wanted.command)
             for shown in with_secrets(words)]  # fmt: skip
    if found:
        say(
            f"what was typed is kept as it is, in the run's store and by {wanted.engine}, and a "
            f"secret is in it ({', '.join(found)}): pass it in the environment, or in a file"
        )


def _of_run(wanted: Submission, folder: RunFolder) -> Submission:
    return replace(wanted, run_id=folder.identity.run_id)


def _refuse_if_held(folder: RunFolder, engine: Engine) -> None:
    """Raises RunHeld where it runs, or waits for hosts already."""
    lease = view(folder)
    is_fresh = time.time_ns() - (lease.seen_unix_ns or 0) < SILENT_AFTER_S * SECOND_NS
    if lease.state is LeaseState.HELD or (lease.state is LeaseState.UNKNOWN and is_fresh):
        raise RunHeld(
            f"run {folder.name!r} is held by {lease.holder or 'an unknown process'}: stop it first "
            f"(`holdfast stop {folder.name}`), or use another --name"
        )
    if job := engine.find(folder.identity.run_id):
        known = stored(folder)
        if known is None or known.get("is_released"):
            raise RunHeld(
                f"run {folder.name!r} is submitted already ({job}), and its store does not say by "
                "whom: that submission was killed; take it back with the engine's own command"
            )
        raise RunHeld(
            f"run {folder.name!r} is submitted already ({job}): `holdfast release {folder.name}` "
            "takes that back"
        )


def _say_taken(folder: RunFolder, ordered: Ordered) -> None:
    wanted = ordered.submission
    spares = f" and {wanted.spares} spare" if wanted.spares else ""
    hosts = "1 host" if wanted.hosts == 1 else f"{wanted.hosts} hosts"
    click.echo(f"Submitted run {folder.name!r}: {hosts}{spares}, {ordered.words}")
    say(
        f"see `holdfast hosts {folder.name}`; `holdfast release {folder.name}` gives the hosts back"
    )


def _wait(folder: RunFolder, engine: Engine, ordered: Ordered, term: int) -> int:
    """Until the engine holds nothing for it any more; the run's exit code.

    `term`: of the run's newest controller before: what that one has said is an older story. Whoever
    waits may be ended, and the engine may be away for a while: the run goes on. If it ends
    meanwhile, and not to be started again, nobody waits for the engine's word.
    """
    before, trouble = "", ""
    hosts: tuple[EngineHost, ...] = ()
    while True:
        try:
            standing, trouble = engine.standing(ordered), ""
        except EngineError as error:
            if str(error) != trouble:
                say(f"{error}; asking again")
            trouble, last = str(error), None
            with contextlib.suppress(StoreUnavailable):  # it may be away with its engine
                last = _last_words(folder, term)
            if last is not None and (last.by_person or last.exit_code != EXIT_SAVED_START_ME_AGAIN):
                say(f"its store says that the run is over: {last.words}")
                return last.exit_code
        else:
            if standing.state != before:
                say(f"{ordered.submission.engine}: {standing.state}")
            now_unix_ns = time.time_ns()
            for change in changes(hosts, standing.hosts):
                say(host_line(change.host, now_unix_ns))
            if standing.is_over:
                break
            before, hosts = standing.state, standing.hosts
        time.sleep(WAIT_S)
    last = _last_words(folder, term)
    return EXIT_UNAVAILABLE if last is None else last.exit_code


def _last_words(folder: RunFolder, term: int) -> LastWords | None:
    """How a controller after that one has ended the run; None: none has."""
    refresh(folder.lease_dir)
    now = view(folder)
    return now.last_words if now.epoch > term else None


def _pairs(options: Iterable[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in options:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise ConfigurationError(f"--option {text!r} is not valid; write NAME=VALUE")
        if key in found:
            raise ConfigurationError(
                f"--option {key} is given twice, and only one of them can count: leave one out"
            )
        found[key] = value
    return found


submit.params += [one for one in run_command.params if one.name not in NOT_PASSED_ON]
