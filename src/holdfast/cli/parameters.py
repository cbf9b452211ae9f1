"""The parameters of a plan as flags, for the commands that take them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click

from holdfast.sim.plan_input import PARAMETERS, from_file, parsed


def parameters(command: Callable[..., None]) -> Callable[..., None]:
    """A flag for each parameter, and --file; their values are parsed where a file's are."""
    command = click.option(
        "--file",
        metavar="FILE",
        help="Take parameters from a TOML file, by the same names; flags win over it.",
    )(command)
    for one in reversed(PARAMETERS):
        more: dict[str, Any] = {"is_flag": True, "default": None}
        if one.metavar is not None:
            more = {"metavar": one.metavar}
        command = click.option(f"--{one.name}", help=one.help, **more)(command)
    return command


def values_of(file: str | None, flags: Mapping[str, object]) -> dict[str, Any]:
    """All that was given, parsed; raises ConfigurationError."""
    values = {} if file is None else from_file(Path(file))
    return values | parsed(((name, v) for name, v in flags.items() if v is not None), "--")
