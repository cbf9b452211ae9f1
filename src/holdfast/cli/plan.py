"""`holdfast plan`: what goodput to expect of a run, and what would raise it."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from holdfast.sim.plan_input import PARAMETERS, from_file, parsed, question_of


def _parameters(command: Callable[..., None]) -> Callable[..., None]:
    """A flag for each parameter of a plan; their values are parsed where a file's are."""
    for one in reversed(PARAMETERS):
        more: dict[str, Any] = {"is_flag": True, "default": None}
        if one.metavar is not None:
            more = {"metavar": one.metavar}
        command = click.option(f"--{one.name}", help=one.help, **more)(command)
    return command


@click.command()
@_parameters
@click.option(
    "--file",
    metavar="FILE",
    help="Take parameters from a TOML file, by the same names; flags win over it.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def plan(file: str | None, as_json: bool, **flags: object) -> None:
    """Say what goodput to expect of a run, how often to save, and what would raise it.

    Needs --mtbf, or --failures-per-1000-node-days and --hosts; all else has a default. A TIME is in
    seconds, or has a unit: 90s, 5min, 2h, 54d. Nothing is started. How to read the answer, and how
    it is computed: docs/how-to/plan.md and docs/explanation/planning.md.
    """
    values = {} if file is None else from_file(Path(file))
    values |= parsed(((name, v) for name, v in flags.items() if v is not None), "--")
    from holdfast.sim.plan import plan as answer

    found = answer(question_of(values))
    if as_json:
        json.dump(found.to_json(), sys.stdout, indent=1, allow_nan=False)
        print()
        return
    from rich.console import Console

    from holdfast.cli.plan_screen import show

    if hasattr(sys.stdout, "reconfigure"):  # what the terminal cannot print is not worth an error
        sys.stdout.reconfigure(errors="replace")
    show(found, Console(highlight=False))
