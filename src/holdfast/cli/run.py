"""`holdfast run`: start a training command under supervision."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from holdfast.agent.supervisor import Screen
    from holdfast.config.settings import Settings


@click.command(context_settings={"ignore_unknown_options": False})
@click.option("--name", metavar="NAME", help="The run's name; the script's name by default.")
@click.option("--store", metavar="PLACE", help="Where runs live: a folder or a URL.")
@click.option("--store-credentials", metavar="WHOSE", help="environment or instance.")
@click.option("--mirror", metavar="FOLDER", help="Local copies of records in object stores.")
@click.option("--ranks", type=int, metavar="N", help="Training processes on this host.")
@click.option("--chips", type=int, metavar="N", help="Accelerators that the run occupies.")
@click.option(
    "--ideal-step", "ideal_step_s", type=float, metavar="S", help="What a step takes at best."
)
@click.option("--grace", "grace_s", type=float, metavar="S", help="From SIGTERM to being gone.")
@click.option("--notice", metavar="SOURCES", help="Where warnings come from: gce,file:PATH; auto.")
@click.option("--on-notice", metavar="HOW", help="When all is saved: leave, stay or release.")
@click.option("--save-every", "save_every_steps", type=int, metavar="N", help="Save each N steps.")
@click.option("--save-every-s", type=float, metavar="S", help="Save each S seconds.")
@click.option(
    "--snapshot-every",
    "snapshot_every_steps",
    type=int,
    metavar="N",
    help="Copy each N steps to memory.",
)
@click.option("--snapshot-every-s", type=float, metavar="S", help="Copy to memory each S seconds.")
@click.option("--keep", "keep_last", type=int, metavar="N", help="Checkpoints that stay.")
@click.option("--memory", metavar="N", help="Snapshots held in memory: auto, off, or 1 to 3.")
@click.option("--memory-dir", metavar="FOLDER", help="The memory folder that holds them.")
@click.option("--max-failures", type=int, metavar="N", help="Failures without progress.")
@click.option("--crash-loop", type=int, metavar="N", help="Failures in the same way that are one.")
@click.option(
    "--crash-loop-within", "crash_loop_within_s", type=float, metavar="S", help="In that time."
)
@click.option("--hang", metavar="S", help="Hung after S seconds without a step; auto or off.")
@click.option(
    "--standby",
    metavar="HOW",
    help="Interpreters that wait for the next attempt: auto, hot or off.",
)
@click.option("--scratch", metavar="FOLDER", help="Local folder for live journals.")
@click.option("--export", metavar="EXPORTERS", help="Numbers to prometheus:9464,tensorboard:DIR.")
@click.option("--status", metavar="HOW", help="auto, live, plain or off.")
@click.option("--compile-cache", metavar="SIZE", help="Compiled programs kept: bytes, auto or off.")
@click.option("--log-level", metavar="LEVEL", help="error, warning or info.")
@click.option("--config", "config_file", metavar="FILE", help="Instead of ./holdfast.toml.")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, required=True)
def run(config_file: str | None, command: Sequence[str], **flags: Any) -> None:
    """Run COMMAND, keep it going, and record where its time went.

    Write the command after `--`: holdfast run --name my-run -- python train.py --steps 400

    SIGTERM is a notice with the grace period: an agreed save, then exit code 75. Ctrl-C once saves
    and stops, twice stops now. Exit codes: 0 done, 75 saved (start me again), 1 the command failed,
    69 the store is unavailable, 78 configuration.
    """
    from holdfast.cli.supervise import supervise
    from holdfast.config import resolve, strange_variables

    settings = resolve(flags, config_file=config_file).settings
    screen = _screen(settings)
    for hint in strange_variables():
        screen.say("warning", hint)
    sys.exit(supervise(settings, tuple(command), screen))


def _screen(settings: Settings) -> Screen:
    from holdfast.cli.screen import LiveScreen, PlainScreen

    title = settings.name or "run"
    how = settings.status
    if how == "live" or (how == "auto" and sys.stderr.isatty() and sys.stdout.isatty()):
        return LiveScreen(title, settings.log_level)
    return PlainScreen(title, settings.log_level, status=how != "off")
