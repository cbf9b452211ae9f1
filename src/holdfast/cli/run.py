"""`holdfast run`: start a training command under supervision."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from holdfast.config.settings import TABLE
from holdfast.errors import EXIT_DONE, EXIT_SAVED_START_ME_AGAIN, HoldfastError

KNOWN_WAIT_S = 30.0  # for a store that is mounted later, or whose folders are seen later

if TYPE_CHECKING:
    from holdfast.agent.supervisor import Screen
    from holdfast.config.settings import Settings
    from holdfast.journal.store import RunFolder


@click.command(context_settings={"ignore_unknown_options": False})
@click.option("--name", metavar="NAME", help="The run's name.")
@click.option("--store", metavar="PLACE", help="Where runs live: a folder or a URL.")
@click.option(
    "--store-credentials",
    metavar="WHOSE",
    help="Whose credentials open an object store: environment or instance.",
)
@click.option(
    "--mirror", metavar="FOLDER", help="Where copies of an object store's records are kept."
)
@click.option("--ranks", type=int, metavar="N", help="Training processes on this host.")
@click.option("--hosts", type=int, metavar="N", help="Hosts that train.")
@click.option("--host-index", type=int, metavar="I", help="Which of them this is, from 0.")
@click.option("--spares", type=int, metavar="S", help="More hosts, that wait for a loss.")
@click.option("--host-address", metavar="IP", help="By which other hosts reach this one.")
@click.option("--slice", metavar="NAME", help="Which of several slices it belongs to.")
@click.option(
    "--secret-file", metavar="FILE", help="A secret that all hosts of the run have, and no others."
)
@click.option(
    "--host-lost", "host_lost_s", type=float, metavar="S", help="Silence after which one is lost."
)
@click.option(
    "--quarantine-after",
    type=int,
    metavar="N",
    help="Failures within an hour after which a host has no part any more.",
)
@click.option(
    "--preflight", metavar="ON", help="Whether a host that has failed is tried out: on or off."
)
@click.option(
    "--straggler",
    metavar="HOW",
    help="Where the others wait for one host all the time: say or replace.",
)
@click.option(
    "--straggler-percent", type=int, metavar="N", help="Behind by so much of a step is a straggler."
)
@click.option(
    "--straggler-after",
    "straggler_after_s",
    type=float,
    metavar="S",
    help="For how long it must be behind.",
)
@click.option("--elastic", type=int, metavar="N", help="Train on with as few hosts as this.")
@click.option(
    "--host-back", "host_back_s", type=float, metavar="S", help="When a lost host is back, usually."
)
@click.option("--chips", type=int, metavar="N", help="Accelerators that the run occupies.")
@click.option("--host-chips", type=int, metavar="N", help="Accelerators of this host.")
@click.option(
    "--ideal-step",
    "ideal_step_s",
    type=float,
    metavar="S",
    help="Seconds that a step takes at best.",
)
@click.option(
    "--flops-per-step", type=float, metavar="N", help="FLOPs of a step, on all chips together."
)
@click.option("--peak-flops", type=float, metavar="N", help="The peak of one chip, in FLOP/s.")
@click.option(
    "--grace",
    "grace_s",
    type=float,
    metavar="S",
    help="Seconds from SIGTERM until the host is gone.",
)
@click.option(
    "--notice", metavar="SOURCES", help="Where warnings come from: auto, off, gce,file:PATH …"
)
@click.option(
    "--on-notice", metavar="HOW", help="What to do once all is saved: leave, stay or release."
)
@click.option("--save-every", "save_every_steps", type=int, metavar="N", help="Save every N steps.")
@click.option("--save-every-s", type=float, metavar="S", help="Save every S seconds.")
@click.option(
    "--snapshot-every",
    "snapshot_every_steps",
    type=int,
    metavar="N",
    help="Copy to memory every N steps.",
)
@click.option("--snapshot-every-s", type=float, metavar="S", help="Copy to memory every S seconds.")
@click.option(
    "--keep", "keep_last", type=int, metavar="N", help="How many of the newest checkpoints stay."
)
@click.option(
    "--memory", metavar="N", help="How many snapshots are kept in memory: auto, off, or 1 to 3."
)
@click.option("--memory-dir", metavar="FOLDER", help="The folder in memory for them.")
@click.option(
    "--max-failures",
    type=int,
    metavar="N",
    help="Give up after N failures in a row without a new step.",
)
@click.option(
    "--crash-loop", type=int, metavar="N", help="N failures in the same way are a crash loop."
)
@click.option(
    "--crash-loop-within",
    "crash_loop_within_s",
    type=float,
    metavar="S",
    help="Those failures must happen within S seconds.",
)
@click.option(
    "--hold-finished",
    "hold_finished_s",
    type=float,
    metavar="S",
    help="Wait S seconds for a store that cannot take the last step.",
)
@click.option(
    "--hang", metavar="S", help="The run hangs after S seconds without a step: auto, off, or S."
)
@click.option(
    "--standby",
    metavar="HOW",
    help="Which processes wait for the next attempt: auto, hot or off.",
)
@click.option("--scratch", metavar="FOLDER", help="A local folder for live journals.")
@click.option(
    "--export", metavar="EXPORTERS", help="Where numbers go: prometheus:9464,tensorboard:DIR …"
)
@click.option("--status", metavar="HOW", help="How the status is shown: auto, live, plain or off.")
@click.option(
    "--compile-cache",
    metavar="SIZE",
    help="How many bytes of compiled programs are kept: auto, off, or N.",
)
@click.option(
    "--cache-key-file",
    metavar="FILE",
    help="A secret of the run's hosts that seals those programs in the store.",
)
@click.option(
    "--log-level", metavar="LEVEL", help="Which sentences are printed: error, warning or info."
)
@click.option(
    "--config", "config_file", metavar="FILE", help="A file to read instead of ./holdfast.toml."
)
@click.option(
    "--fresh", is_flag=True, help="Start a new run; one of that name is kept as NAME.1, NAME.2 …"
)
@click.option(
    "--known", is_flag=True,
    help="Begin no new run: one that is not in the store 30 s later ends this with 69.",
)  # fmt: skip
@click.option(
    "--ends-job", is_flag=True, help="Under Slurm: end a job that has lost the host of its script."
)
@click.option(
    "--stop-is-final",
    is_flag=True,
    help="Leave with 0 where a person has stopped the run, so that nobody starts it again.",
)
@click.option("--as-controller", metavar="WATCHED", hidden=True)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
@click.pass_context
def run(
    context: click.Context,
    /,
    config_file: str | None,
    fresh: bool,
    known: bool,
    ends_job: bool,
    stop_is_final: bool,
    as_controller: str | None,
    command: Sequence[str],
    **flags: Any,
) -> None:
    """Run COMMAND, keep it going, and record where its time went.

    Write the command after `--`: holdfast run --name my-run -- python train.py --steps 400

    SIGTERM is a notice with the grace period: an agreed save, then exit code 75. Ctrl-C once saves
    and stops, twice stops now. Exit codes: 0 done, 75 saved (start me again), 1 the command failed,
    69 the store is unavailable, 78 invalid configuration or arguments.
    """
    from holdfast.agent.inbox import leave_until_watched

    if as_controller is None:  # else 75 would say that it has given the run back
        leave_until_watched()
    from holdfast.cli.supervise import prepare, supervise
    from holdfast.config import pass_on_file, resolve, strange_variables
    from holdfast.distribution import stranger

    settings = resolve(flags, config_file=config_file).settings
    if config_file is None:
        pass_on_file()
    screen = _screen(settings)
    for hint in filter(None, (stranger(), *strange_variables())):
        screen.say("warning", hint)
    asked = prepare(
        settings,
        tuple(command),
        screen,
        fresh=fresh,
        is_known=known or as_controller is not None,
        wait_s=KNOWN_WAIT_S if known else 0.0,
    )
    left = partial(_as_asked, asked.folder) if stop_is_final else int
    if as_controller is None and (ended := _over_before_this_pod(asked.folder, stop_is_final)):
        screen.say("info", f"run {asked.folder.name!r} is over: {ended}")
        screen.close()
        sys.exit(EXIT_DONE)
    if not settings.has_several_hosts:
        sys.exit(left(supervise(asked)))
    from holdfast.cli.several_hosts import control, take_part

    if as_controller is not None:
        sys.exit(control(asked, as_controller))
    said = said_words(context, context.command.params)
    words = [*said, "--", *command]  # for the controller of several hosts
    sys.exit(left(take_part(asked, words, ends_job=ends_job)))


def _over_before_this_pod(folder: RunFolder, stop_is_final: bool) -> str:
    """How the run has ended for good under the Job that has made this pod again; "": it has not.

    Its other pods will not come: a host that began the run anew would wait for them.
    """
    from holdfast.config import job_of_pod

    if not (job := job_of_pod()):
        return ""
    from holdfast.journal.lease import view

    last = view(folder).last_words
    if last is None or last.job != job:
        return ""
    is_final = last.exit_code == EXIT_DONE or (stop_is_final and last.by_person)
    return last.words if is_final else ""


def _as_asked(folder: RunFolder, code: int) -> int:
    """0 for a run that a person has stopped, who starts it again when they like."""
    if code != EXIT_SAVED_START_ME_AGAIN:
        return code
    from holdfast.journal.lease import view
    from holdfast.journal.remote import refresh

    with contextlib.suppress(HoldfastError):
        refresh(folder.lease_dir)
        words = view(folder).last_words
        return EXIT_DONE if words is not None and words.by_person else code
    return code


def said_words(
    context: click.Context, options: Sequence[click.Parameter], without: Collection[str] = ()
) -> list[str]:
    """Those options as they were given; `without`: the names of some that are left out."""
    words: list[str] = []
    for option in options:
        value = context.params.get(option.name or "")
        is_said = isinstance(option, click.Option) and not option.is_flag and value is not None
        if is_said and option.name not in without:
            words += [option.opts[0], str(value)]
    return words


def passed_on(context: click.Context, without: Collection[str]) -> list[str]:
    """Of another command's options those that `holdfast run` gets on each host, as words.

    Raises ConfigurationError for a value that the hosts would refuse, hours later perhaps.
    """
    from holdfast.config import resolve

    known = {one.name for one in TABLE}.difference(without)
    resolve({name: value for name, value in context.params.items() if name in known})
    return said_words(context, run.params, without)


def tell_defaults(command: click.Command) -> None:
    """The settings' own, which the flags do not have: a variable or holdfast.toml may set them."""
    defaults = {one.name: one.default_words.replace("`", "") for one in TABLE}
    for parameter in command.params:
        if isinstance(parameter, click.Option) and parameter.name in defaults:
            parameter.help = f"{parameter.help}  [default: {defaults[parameter.name]}]"


tell_defaults(run)


def _screen(settings: Settings) -> Screen:
    from holdfast.cli.screen import LiveScreen, PlainScreen

    title = settings.name or "run"
    how = settings.status
    if settings.has_several_hosts:  # the agent and the controller share the terminal
        return PlainScreen(title, settings.log_level, ranks=settings.hosts, status=how != "off")
    if how == "live" or (how == "auto" and sys.stderr.isatty() and sys.stdout.isatty()):
        return LiveScreen(title, settings.log_level, ranks=settings.local_ranks)
    return PlainScreen(title, settings.log_level, ranks=settings.local_ranks, status=how != "off")
