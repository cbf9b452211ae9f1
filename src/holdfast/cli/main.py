"""The command `holdfast`: finds the subcommand, and turns every error into one sentence.

Subcommands live in `cli/<name>.py` as a click command of the same name. They are imported when they
are used, so that `holdfast --help` and a mistyped word cost no more than click itself.
"""

from __future__ import annotations

import difflib
import importlib
import os
import sys
import traceback
from collections.abc import Sequence
from typing import NoReturn

import click

from holdfast.cli.door import OUTPUT, doors, occupy_closed, say
from holdfast.distribution import VERSION
from holdfast.errors import EXIT_CONFIGURATION, EXIT_UNAVAILABLE, HoldfastError

# Each command's line in `holdfast --help`, in the order in which a user meets them.
COMMANDS = {
    "run": "Run COMMAND, keep it going, and record where its time went.",
    "submit": "Have an engine give hosts to a run, and start it on each.",
    "preload": "Read into this host's memory what a start of RUN will read.",
    "report": "Show the goodput of RUN, what it lost, and why.",
    "serve": "Show the runs of a store in a browser, live.",
    "ls": "List the runs of a store.",
    "hosts": "Show the hosts of RUN.",
    "logs": "Print what the ranks of RUN wrote.",
    "stop": "Ask RUN to save at its next step and stop.",
    "save": "Ask RUN to save at its next step and continue.",
    "again": "Say whether RUN wants to be started again: exit code 75.",
    "release": "Give the hosts of RUN back to the engine they came from.",
    "profile": "Show where the time of a live run's steps goes.",
    "rollback": "Have RUN continue from an earlier checkpoint.",
    "mv": "Rename a run.",
    "rm": "Remove a run: its records, its checkpoints, all of it.",
    "ckpt": "List, verify, pin and export checkpoints.",
    "up": "Make the machines of RUN, which then train it.",
    "health": "Show the state and health of machines.",
    "recover": "Find machines of RUN that are lost, delete them, and make them again.",
    "export": "Write the history of a run, or export the numbers of RUNS as they change.",
    "convert": "Turn the logs of a run that Holdfast did not see into a history.",
    "plan": "Say what goodput to expect of a run, how often to save, and what would raise it.",
    "simulate": "Simulate a training job in virtual time, and report what came of it.",
    "replay": "Decide the recorded life of RUN again, and compare.",
    "rehearse": "Rehearse maintenance, preemption and failures of a run on this machine.",
    "doctor": "Check this host for what will hurt a run, and say what to do about it.",
    "calibrate": "Measure what this host's device really reaches, for program goodput.",
    "agent": "Have jobs that Holdfast did not start save and leave before their host is taken.",
    "config": "Show every setting and where its value came from.",
}
EXIT_INTERRUPTED = 130  # 128 + SIGINT, as shells report it
EXIT_BROKEN_PIPE = 141  # 128 + SIGPIPE


class LazyGroup(click.Group):
    """A group whose commands are modules, imported at their first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        """Names, in the order of the help text."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        """The command of that name, or None."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"holdfast.cli.{cmd_name}")
        command: click.Command = getattr(module, cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Like click's, with the nearest names where there is no such command."""
        name = args[0]
        if name not in COMMANDS and not name.startswith("-"):
            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "see holdfast --help"
            raise click.UsageError(f"there is no command {name!r}; {hint}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        """The commands' section of the help text, without importing any of them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    no_args_is_help=True,
)
@click.version_option(VERSION, message="holdfast %(version)s")
def cli() -> None:
    """Keep long training runs productive, and account for every second of them.

    Start one with `holdfast run -- python train.py`; look at it with `holdfast report`.
    """


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a command line and exit: 0 done, 75 saved, 1 the user's failure, 69, 78 (see errors)."""
    occupy_closed()
    with doors():
        sys.exit(_carried_out(sys.argv[1:] if arguments is None else list(arguments)))


def _carried_out(words: list[str]) -> int:
    """Run the command, say what went wrong with it; the exit code."""
    code = 0
    try:
        # Not cli.main(): click would print usage errors over three lines and exit with 2.
        with cli.make_context("holdfast", words) as context:
            cli.invoke(context)
        sys.stdout.flush()
    except click.exceptions.Exit as finished:
        code = finished.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = EXIT_CONFIGURATION
    except click.ClickException as error:
        code = _say(_sentence(error), EXIT_CONFIGURATION)
    except HoldfastError as error:
        if _debugging():
            traceback.print_exc()
        code = _say(str(error), error.exit_code)
    except BrokenPipeError:
        _give_up_output()  # the reader went away (`holdfast logs | head`)
        code = EXIT_BROKEN_PIPE
    except OSError as error:
        if _debugging() or error.filename is None:
            raise
        if error.filename == OUTPUT:
            _give_up_output()
        code = _say(f"{error.filename}: {error.strerror}", EXIT_UNAVAILABLE)
    except (KeyboardInterrupt, click.Abort):
        code = EXIT_INTERRUPTED
    return code


def _give_up_output() -> None:
    """Python would complain again at exit of what cannot be written."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _say(words: str, code: int) -> int:
    say(words)
    return code


def _sentence(error: click.ClickException) -> str:
    """Click's message in our form, with the way to the right help text."""
    message = error.format_message().rstrip(".").replace(". (Did", " (did")
    message = message[:1].lower() + message[1:]
    context = getattr(error, "ctx", None)
    if context is None or "--help" in message or message.endswith("?"):
        return message
    return f"{message}; see {context.command_path} --help"


def _debugging() -> bool:
    from holdfast.config import debugging

    return debugging()


if __name__ == "__main__":
    main()
