"""`holdfast rehearse`: a warning, a kill or a hang, on this host, with a report."""

from __future__ import annotations

import contextlib
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holdfast.cli.door import say
from holdfast.cli.rehearse_machine import machine
from holdfast.cli.seconds import Seconds
from holdfast.cli.supervise import run_policy
from holdfast.config.settings import TABLE
from holdfast.errors import (
    EXIT_DONE,
    EXIT_USER_FAILURE,
    ConfigurationError,
    HoldfastError,
    needs_extra,
)

if TYPE_CHECKING:
    from holdfast.rehearse.script import Script
    from holdfast.rehearse.story import RehearsalStory
    from holdfast.testing.registry import EmulatorRow
    from holdfast.testing.scripted import ScriptedEmulator

F = TypeVar("F", bound=Callable[..., Any])
NAME = "rehearsal"
USUAL_SOURCE = "gce"


def _shared(command: F) -> F:
    """The options that every rehearsal has."""
    for option in (
        click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True),
        click.option(
            "--limit",
            type=Seconds(least=1),
            default=600.0,
            metavar="S",
            help="Give up after so many seconds; 600 by default.",
        ),
        click.option(
            "--then",
            "go_on_steps",
            type=click.IntRange(min=1),
            default=3,
            metavar="N",
            help="New steps that it must make afterwards; 3 by default.",
        ),
        click.option("--ranks", type=int, metavar="N", help="Training processes; 1 by default."),
        click.option("--store", metavar="FOLDER", help="Keep the run there; else it is removed."),
        click.option(
            "--after",
            default="10",
            metavar="WHEN",
            help="Steps until it happens, or seconds after the first one (5s); 10.",
        ),
    ):
        command = option(command)
    return command


def _announced(command: F) -> F:
    """And those of rehearsals in which a service tells of it."""
    for option in (
        click.option("--grace", "grace_s", type=float, metavar="S", help="As for holdfast run."),
        click.option("--script", metavar="FILE", help="What the emulator says, and how it fails."),
        click.option(
            "--source",
            metavar="NAME",
            help="Which service tells: aws, azure, gce, kubernetes, slurm, tpu; gce.",
        ),
    ):
        command = option(command)
    return command


@click.group(no_args_is_help=True)
def rehearse() -> None:
    """Rehearse maintenance, preemption and failures of a run on this machine.

    COMMAND runs under `holdfast run` in a store of its own, with real processes and real signals.
    What warns it is an emulator on this host's loopback; no other address is asked, but by
    `machine`, which has the cloud itself do it. Other settings come from holdfast.toml and
    variables, as always. Exit codes: 0 where no step was lost that
    could have been saved, and it went on; else 1.
    """


rehearse.add_command(machine)


@rehearse.command(short_help="Announce maintenance.")
@_announced
@click.option(
    "--in", "in_s", type=Seconds(), metavar="S", help="Ahead of it; the service's own lead."
)
@_shared
def maintenance(in_s: float | None, command: Sequence[str], **flags: Any) -> None:
    """Announce maintenance, see the run save and leave, and start it again."""
    flags["source"] = _named(flags["source"])
    row = _row(flags["source"])
    usual = row.maintenance
    if in_s is not None:
        if not row.dated:
            raise ConfigurationError(f"--in: {flags['source']} names no date of its maintenance")
        usual = row.dated
    _rehearse("maintenance", command, usual=usual, in_s=in_s, **flags)


@rehearse.command(short_help="Announce a preemption.")
@_announced
@_shared
def preemption(command: Sequence[str], **flags: Any) -> None:
    """Announce a preemption, see the run save and leave, and start it again."""
    flags["source"] = _named(flags["source"])
    _rehearse("preemption", command, usual=_row(flags["source"]).preemption, **flags)


@rehearse.command(short_help="Kill a rank.")
@click.option("--rank", type=int, default=0, metavar="N", help="Which one; 0 by default.")
@_shared
def kill(command: Sequence[str], **flags: Any) -> None:
    """Send a rank SIGKILL, and see the run go on by itself."""
    _rehearse("kill", command, **flags)


@rehearse.command(short_help="Have a rank hang.")
@click.option("--rank", type=int, default=0, metavar="N", help="Which one; 0 by default.")
@click.option(
    "--hang", default="auto:5", metavar="S", help="As for holdfast run; auto:5 by default."
)
@_shared
def hang(command: Sequence[str], **flags: Any) -> None:
    """Send a rank SIGSTOP, see that noticed, and the run go on by itself."""
    _rehearse("hang", command, **flags)


def _named(source: str | None) -> str:
    if source is None:
        _say(f"No --source is named: an emulator of {USUAL_SOURCE} tells of it")
    return source or USUAL_SOURCE


def _row(source: str) -> EmulatorRow:
    from holdfast.testing.registry import EMULATORS

    if source not in EMULATORS:
        known = ", ".join(EMULATORS)
        raise ConfigurationError(f"--source {source}: there is an emulator of {known}")
    return EMULATORS[source]


def _rehearse(
    word: str,
    command: Sequence[str],
    *,
    usual: str = "",
    in_s: float | None = None,
    source: str | None = None,
    script: str | None = None,
    store: str | None,
    after: str,
    go_on_steps: int,
    limit: float,
    rank: int = 0,
    **flags: Any,
) -> None:
    from holdfast.config import inherited_environment, resolve
    from holdfast.notices.protocol import SourceSurroundings
    from holdfast.rehearse.perform import RehearsalPlan, perform
    from holdfast.rehearse.script import Moment
    from holdfast.rehearse.stage import Stage
    from holdfast.rehearse.story import Rehearsed

    moment, played = Moment.of(after), _script(script, usual)
    settings = resolve(flags).settings
    if not 0 <= rank < settings.local_ranks:
        last = settings.local_ranks - 1
        there = f"ranks 0 to {last}" if last else "one rank, 0"
        raise ConfigurationError(f"--rank {rank}: the run has {there} (see --ranks)")
    # Whoever ends a rehearsal, or its terminal, ends its run as well, and what lies in memory.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # nohup
            signal.signal(number, lambda received, _: sys.exit(128 + received))
    with contextlib.ExitStack() as later:
        emulator = None if source is None else later.enter_context(_emulator(source, later))
        place = _place(store, later)
        memory = _folder(settings.memory_dir, later)
        notice, variables = "off", dict[str, str]()
        if source is not None and emulator is not None:
            notice = f"{source}:{_row(source).option_of(emulator)}"
            variables |= _row(source).variables
        environment = {**inherited_environment(), **variables}
        policy = run_policy(settings, SourceSurroundings(environment))
        options = [*_options(flags), "--notice", notice, "--memory-dir", str(memory)]
        stage = Stage(place, NAME, options, command, policy, environment)
        plan = RehearsalPlan(
            Rehearsed(word), moment, played, in_s, rank, go_on_steps, limit, memory
        )
        story = perform(plan, stage, emulator, _say)
        _report(place)
        code = _tell(story)
    sys.exit(code)


def _emulator(source: str, later: contextlib.ExitStack) -> ScriptedEmulator:
    """The service's; raises ConfigurationError where something that it needs is not installed."""
    row = _row(source)
    try:
        return row.start(_folder(None, later))
    except ImportError as error:
        raise ConfigurationError(
            needs_extra(f"--source {source}: its emulator ({error.name}) needs", row.extra)
        ) from None


def _script(path: str | None, usual: str) -> Script:
    from holdfast.rehearse.script import Script, read_script

    script = Script() if path is None else read_script(Path(path))
    return script.or_usual(tuple(usual.split())) if usual else script


def _options(flags: Mapping[str, Any]) -> list[str]:
    """Flags of `holdfast run` by the names of their settings."""
    rows = {row.name: row.flag for row in TABLE}
    return [
        word
        for name, value in flags.items()
        if value is not None
        for word in (rows[name], str(value))
    ]


def _place(store: str | None, later: contextlib.ExitStack) -> Path:
    """The rehearsal's own store; raises ConfigurationError where it has been rehearsed before."""
    if store is None:
        _say("What it leaves is removed at the end; --store FOLDER keeps it")
        return _folder(None, later)
    if "://" in store:
        raise ConfigurationError(f"--store {store}: a rehearsal is kept in a folder of this host")
    place = Path(store).expanduser().absolute()
    if (place / NAME).exists():
        raise ConfigurationError(
            f"--store {store} holds a rehearsal already: remove {place / NAME}, or name another"
        )
    return place


def _folder(base: str | None, later: contextlib.ExitStack) -> Path:
    """A new folder that is removed at the end."""
    try:
        folder = Path(tempfile.mkdtemp(prefix="holdfast-rehearsal-", dir=base))
    except OSError as error:
        raise ConfigurationError(f"no folder can be made in {base}: {error.strerror}") from None
    later.callback(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _say(words: str) -> None:
    say(f"rehearsal: {words}")


def _report(place: Path) -> None:
    """The ordinary one, of the rehearsal's run."""
    from holdfast.cli.report import report

    with contextlib.suppress(HoldfastError):  # it never came that far
        click.get_current_context().invoke(report, run=NAME, store=str(place), history=None)


def _tell(story: RehearsalStory) -> int:
    """Print what came of it; the exit code."""
    from holdfast.rehearse.story import lines, verdict

    is_well, why = verdict(story)
    click.echo("")
    for line in lines(story):
        click.echo(f"  {line}")
    click.echo(f"{'well' if is_well else 'not well'}: {why}")
    return EXIT_DONE if is_well else EXIT_USER_FAILURE
